"""Event middleware for sensors, applications and agents that come and go.

The names below are all a program needs to begin. Each is imported when it is first used, so
`import tidings` costs next to nothing and brings in no other package.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidings.client import App, blocking, connect, open
    from tidings.errors import TidingsError
    from tidings.event import Batch, Event
    from tidings.event.typed import Typed
    from tidings.filters import Filter
    from tidings.matching import Index
    from tidings.patterns import Pattern

__version__ = "0.1.0"
__all__ = [
    "App",
    "Batch",
    "Event",
    "Filter",
    "Index",
    "Pattern",
    "TidingsError",
    "Typed",
    "__version__",
    "blocking",
    "connect",
    "open",
]


def lazy_names(package: dict[str, Any], homes: dict[str, str]) -> Callable[[str], Any]:
    """Return a `__getattr__` that imports the home of a name, and keeps the name in the package."""

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        package[name] = getattr(import_module(homes[name]), name)
        return package[name]

    return find


_HOMES = {
    "App": "tidings.client",
    "Batch": "tidings.event",
    "Event": "tidings.event",
    "Filter": "tidings.filters",
    "Index": "tidings.matching",
    "Pattern": "tidings.patterns",
    "TidingsError": "tidings.errors",
    "Typed": "tidings.event.typed",
    "blocking": "tidings.client",
    "connect": "tidings.client",
    "open": "tidings.client",
}
__getattr__ = lazy_names(globals(), _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

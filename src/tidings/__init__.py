"""News of events, for things that come and go.

The names below are all a program needs to begin. Each is imported when it is first used, so
`import tidings` costs next to nothing and brings in no other package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidings.client import App, blocking, connect, open
    from tidings.errors import TidingsError
    from tidings.event import Batch, Event
    from tidings.event.typed import Typed
    from tidings.filters import Filter
    from tidings.matching import Index

__version__ = "0.1.0"
__all__ = [
    "App",
    "Batch",
    "Event",
    "Filter",
    "Index",
    "TidingsError",
    "Typed",
    "__version__",
    "blocking",
    "connect",
    "open",
]

_HOMES = {
    "App": "tidings.client",
    "Batch": "tidings.event",
    "Event": "tidings.event",
    "Filter": "tidings.filters",
    "Index": "tidings.matching",
    "TidingsError": "tidings.errors",
    "Typed": "tidings.event.typed",
    "blocking": "tidings.client",
    "connect": "tidings.client",
    "open": "tidings.client",
}


def __getattr__(name: str) -> Any:
    """Import the home of `name` and keep the name here, so that this is called once for each name."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tidings' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Help for the tests of programs that use tidings: docs/testing.md.

Every run of pytest loads the plugin (`plugin.py`) if tidings is installed, so each name below is imported
when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidings.testing.clock import VirtualClock
    from tidings.testing.node_process import NodeProcess
    from tidings.testing.proxy import Proxy

__all__ = ["NodeProcess", "Proxy", "VirtualClock"]

_HOMES = {
    "NodeProcess": "tidings.testing.node_process",
    "Proxy": "tidings.testing.proxy",
    "VirtualClock": "tidings.testing.clock",
}


def __getattr__(name: str) -> Any:
    """Import the home of `name`, and keep the name here."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tidings.testing' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value

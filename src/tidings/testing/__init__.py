"""Help for the tests of programs that use tidings: docs/testing.md.

Every run of pytest loads the plugin (`plugin.py`) if tidings is installed, so each name below is imported
when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings import lazy_names

if TYPE_CHECKING:
    from tidings.testing.assertions import eventually, eventually_blocking, published, queued
    from tidings.testing.clock import VirtualClock
    from tidings.testing.node_process import NodeProcess
    from tidings.testing.proxy import Proxy

__all__ = [
    "NodeProcess",
    "Proxy",
    "VirtualClock",
    "eventually",
    "eventually_blocking",
    "published",
    "queued",
]

_HOMES = {
    "NodeProcess": "tidings.testing.node_process",
    "Proxy": "tidings.testing.proxy",
    "VirtualClock": "tidings.testing.clock",
    "eventually": "tidings.testing.assertions",
    "eventually_blocking": "tidings.testing.assertions",
    "published": "tidings.testing.assertions",
    "queued": "tidings.testing.assertions",
}
__getattr__ = lazy_names(globals(), _HOMES)

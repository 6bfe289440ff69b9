"""The console of the demo: what the node says of itself each second, and what was logged in all."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tidings.cli.demo.people import LEDGER, READINGS

if TYPE_CHECKING:
    from tidings.client import Bus


class Sample(Struct, frozen=True):
    """What the node told at one moment, and how fast that grows."""

    taken_at: float = 0.0
    published: int = 0
    logged: int = 0
    log_bytes: int = 0
    ledger_waiting: int = 0
    published_per_s: float = 0.0
    logged_per_s: float = 0.0


class Console:
    """Asks the node how it stands. It never makes a sensor go on."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._last = Sample(time.monotonic())

    async def look(self) -> Sample:
        """How it stands now, and how fast things went since the last look."""
        status = await self._bus.status()
        before, now = self._last, time.monotonic()
        elapsed_s = max(now - before.taken_at, 1e-9)
        published, logged = _published(status), status["log"]["end"] - 1  # nothing else is stored here
        self._last = Sample(
            now,
            published,
            logged,
            status["log"]["bytes"],
            _waiting(status, LEDGER),
            (published - before.published) / elapsed_s,
            (logged - before.logged) / elapsed_s,
        )
        return self._last

    async def count_readings(self) -> int:
        """How many readings are in the log: read from it, one by one."""
        count = 0
        async for _position, _event in self._bus.log.read(where=READINGS):
            count += 1
        return count


def _published(status: dict[str, Any]) -> int:
    return sum(times for what, _reason, times in status["counts"] if what == "published")


def _waiting(status: dict[str, Any], durable: str) -> int:
    return sum(one["depth"] for one in status["durables"] if one["name"] == durable)

"""How long durable subscriptions have been behind, for metrics: asked of the store, and seldom.

When the first event behind a cursor was stored stays the same until the cursor moves, so it is asked once for
each place where a cursor stands, and for some places at a time: others want to read, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

AGES_MAX = 1_000
"""Durable subscriptions whose oldest event is looked up."""
AT_ONCE = 20
"""Places that are looked up in one question to the store."""

Look = Callable[[int], int | None]
"""When the first event from a position on was stored, None if there is none; called in a thread."""
Ask = Callable[..., Future[Any]]


class Ages:
    """Knows when what durable subscriptions wait for was stored. `ask` has something done in a thread."""

    def __init__(self, look: Look, ask: Ask) -> None:
        self._look = look
        self._ask = ask
        self._stored_us: dict[int, int] = {}  # by cursor

    async def oldest_s(self, durables: Iterable[dict[str, Any]], now: float) -> dict[tuple[str, str], float]:
        """Seconds since the oldest event behind each cursor was stored, by owner and name; those with any."""
        behind = [one for one in durables if one["depth"]][:AGES_MAX]
        cursors = {one["cursor"] for one in behind}
        known = {cursor: at_us for cursor, at_us in self._stored_us.items() if cursor in cursors}
        unknown = sorted(cursors - known.keys())
        for first in range(0, len(unknown), AT_ONCE):
            some = unknown[first : first + AT_ONCE]
            found = await asyncio.wrap_future(self._ask(self._look_up, some))
            known.update((cursor, at_us) for cursor, at_us in found if at_us is not None)
        self._stored_us = known
        return {
            (one["owner"], one["name"]): max(0.0, now - known[one["cursor"]] / 1e6)
            for one in behind
            if one["cursor"] in known
        }

    def _look_up(self, cursors: Sequence[int]) -> list[tuple[int, int | None]]:
        return [(cursor, self._look(cursor + 1)) for cursor in cursors]

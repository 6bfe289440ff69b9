"""The two clocks of a node: one that never jumps, for deadlines, and the wall clock, for stamps.

Steady time is the wall clock of the start and what has passed since by the monotonic clock. So it reads like
other times, and goes on when somebody, or NTP, sets the wall clock; only the next start follows that.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class SteadyClock:
    """Time that goes on evenly from where the wall clock stands when this is made."""

    def __init__(
        self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._anchor = wall() - monotonic()

    def now(self) -> float:
        """Seconds since 1970 if nobody has set the wall clock since the start."""
        return self._anchor + self._monotonic()

    def shift(self, now: float) -> float:
        """By how much the wall clock is ahead of `now`; below 0 if it is behind."""
        return self._wall() - now

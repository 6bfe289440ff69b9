"""Things to be done at a time: a heap of moments, each with what is to be called then."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from math import inf

from tidings.steps import Steps

TIDY_AFTER = 1_000
"""Cancelled ones that may lie in the heap, and as many as there are others, before they are swept out."""


AT_ONCE = 64
"""Timers that go off in one step."""


class Timer:
    """One thing to be done."""

    __slots__ = ("act", "at", "number")

    def __init__(self, at: float, number: int, act: Callable[[float], None]) -> None:
        self.at = at
        self.number = number
        self.act: Callable[[float], None] | None = act

    def __lt__(self, other: Timer) -> bool:
        return (self.at, self.number) < (other.at, other.number)


class Timers:
    """All that is to be done; in the order of time, and of being set where times are the same."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._made = 0
        self._cancelled = 0

    def at(self, moment: float, act: Callable[[float], None]) -> Timer:
        """Have something called once, at the moment or soon after, with the time it is then."""
        self._made += 1
        timer = Timer(moment, self._made, act)
        heappush(self._heap, timer)
        return timer

    def cancel(self, timer: Timer | None) -> None:
        """It is not to be done any more; none, or one that was done, is passed over."""
        if timer is None or timer.act is None:
            return
        timer.act = None
        self._cancelled += 1
        if self._cancelled > max(TIDY_AFTER, len(self._heap) // 2):
            self._heap = [one for one in self._heap if one.act is not None]
            heapify(self._heap)
            self._cancelled = 0

    @property
    def wake_at(self) -> float:
        """When `wake` is to be called next."""
        while self._heap and self._heap[0].act is None:
            heappop(self._heap)
            self._cancelled -= 1
        return self._heap[0].at if self._heap else inf

    def wake(self, now: float) -> Steps[None]:
        """Do all that is due, in steps; what that sets for now is done too."""
        done = 0
        while self.wake_at <= now:
            timer = heappop(self._heap)
            act, timer.act = timer.act, None
            if act is not None:
                act(now)
            done += 1
            if not done % AT_ONCE:
                yield

"""Virtual time: things that are to happen, done in their order without waiting for any."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

Action = Callable[[], None]


class Clock:
    """A time that only moves when something happens; what is due at the same time happens as it was asked."""

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        self._due: list[tuple[float, int, Action]] = []
        self._asked = 0

    def after(self, delay_s: float, action: Action) -> None:
        """Have something done after a while."""
        assert delay_s >= 0
        self._asked += 1
        heappush(self._due, (self.now + delay_s, self._asked, action))

    def run(self, until: float) -> None:
        """Let everything happen that is due up to that time."""
        while self._due and self._due[0][0] <= until:
            self.now, _, action = heappop(self._due)
            self.steps += 1
            action()
        self.now = max(self.now, until)

"""Long work that no client waits for: one more worker among the sessions, with a share of its own."""

from __future__ import annotations

from collections import deque
from typing import Any

from tidings.steps import Steps
from tidings.turns import Share, Turns

_END: Any = object()


class Background:
    """Steps to be taken one behind the other, in turn with what sessions do."""

    def __init__(self, turns: Turns[Any]) -> None:
        self._turns = turns
        self._share = Share()
        self._steps: deque[Steps[None]] = deque()

    def __len__(self) -> int:
        """How much is left to be done."""
        return len(self._steps)

    def add(self, steps: Steps[None]) -> None:
        """Have these taken, from the end of this tick on."""
        self._steps.append(steps)
        self._turns.add(self, self._share)

    def begin(self, steps: Steps[None]) -> bool:
        """Take the first step now, the others from the end of this tick on; whether there are others."""
        has_more = next(steps, _END) is not _END
        if has_more:
            self.add(steps)
        return has_more

    def work(self, until: float) -> bool:
        """Go on until this moment of the turns' clock; whether more is left. Called when it is its turn."""
        while self._steps:
            if next(self._steps[0], _END) is _END:
                self._steps.popleft()
            if self._turns.clock() >= until:
                break
        return bool(self._steps)

    def give_up(self) -> bool:
        """Drop the work that has failed; whether more is left."""
        self._steps.popleft()
        return bool(self._steps)

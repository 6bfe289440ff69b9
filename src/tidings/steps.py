"""Long work cut into steps: a generator that yields wherever others may have their turn.

    def purge(self, filter: Filter) -> Steps[int]:
        for number in numbers:
            self.drop(number)
            yield
        return len(numbers)

A step takes well under a millisecond. The runner of the steps decides how many of them make a turn; between
two steps anything may have changed, so a step must not rely on what an earlier one saw without looking again.
Steps that are not wanted any more are closed, so what must be undone stands in a `finally`. Steps that wait
for something done elsewhere yield PAUSE, and are resumed when their runner is notified.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum
from typing import Any, Final, TypeVar

Result = TypeVar("Result")


class Pause(Enum):
    """Yielded by steps that can't go on before they are resumed."""

    PAUSE = "pause"


PAUSE: Final = Pause.PAUSE

Steps = Generator[Any, None, Result]
"""Yields None, or PAUSE."""


def finish(steps: Steps[Result]) -> Result:
    """Run all steps at once, for a caller that nobody waits for."""
    while True:
        try:
            is_paused = next(steps)
            assert is_paused is None, "nobody would say that they can go on"
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

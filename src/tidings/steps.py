"""Long work cut into steps: a generator that yields wherever others may have their turn.

    def purge(self, filter: Filter) -> Steps[int]:
        for number in numbers:
            self.drop(number)
            yield
        return len(numbers)

A step takes well under a millisecond. Whoever runs the steps decides how many of them make a turn; between
two steps anything may have changed, so a step must not rely on what an earlier one saw without looking again.
Steps that are not wanted any more are closed, so what must be undone stands in a `finally`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

Result = TypeVar("Result")

Steps = Generator[None, None, Result]


def finish(steps: Steps[Result]) -> Result:
    """Run all steps at once, for a caller that nobody waits for."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

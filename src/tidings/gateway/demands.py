"""Demands: which filters want what is advertised, noted one after the other, a bounded part at a time.

A filter counts as demanded while it is under one advertisement at least. Noting a demand may concern every
sensor there is and take long, so what the node says stands in line here until there is time for it.
"""

from __future__ import annotations

from collections import Counter, deque

from tidings.gateway.interest import Interest
from tidings.steps import Steps

STEPS_MAX = 20
"""Steps, such as reading one filter, that are done at once."""


class Demands:
    """Notes in the interest what is demanded."""

    def __init__(self, interest: Interest) -> None:
        self._interest = interest
        self._demands: dict[int, tuple[str, ...]] = {}  # by advertisement
        self._counts: Counter[str] = Counter()  # advertisements under which each filter is demanded
        self._waiting: deque[tuple[int, tuple[str, ...]]] = deque()
        self._noting: Steps[None] | None = None

    @property
    def is_behind(self) -> bool:
        """Whether not all is noted yet."""
        return self._noting is not None or bool(self._waiting)

    def change(self, number: int, filters: tuple[str, ...]) -> None:
        """Have these filters, and no others, noted for an advertisement when it is their turn."""
        self._waiting.append((number, filters))

    def go_on(self) -> None:
        """Note some of what waits."""
        for _ in range(STEPS_MAX):
            if self._noting is None:
                if not self._waiting:
                    break
                self._noting = self._note(*self._waiting.popleft())
            if next(self._noting, self) is self:
                self._noting = None

    def _note(self, number: int, filters: tuple[str, ...]) -> Steps[None]:
        """Note what an advertisement is demanded by: what is new first, so that nothing ends in between."""
        before = self._demands.pop(number, ())
        if filters:
            self._demands[number] = filters
        for text in filters:
            self._counts[text] += 1
            if self._counts[text] == 1:
                yield from self._interest.want(text)
                yield
        for text in before:
            self._counts[text] -= 1
            if not self._counts[text]:
                del self._counts[text]
                yield from self._interest.unwant(text)
                yield

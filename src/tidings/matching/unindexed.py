"""Filters that must be asked about every event, counted by the user whose they are, and limited.

Nothing tells beforehand whether `a < b` may match, so each event costs the evaluation of each such filter:
about a microsecond for each of its conditions. The limit is of conditions, not of filters, because one filter
may have a thousand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final

from tidings.errors import Refused
from tidings.filters import Filter
from tidings.filters.tree import Condition, parts_of
from tidings.matching.clues import Way, way_of

UNINDEXED_MAX: Final = 500
"""Conditions in the unindexed filters of one user, or of all where nobody is known by name."""


class Unindexed:
    """The unindexed filters there are."""

    def __init__(self, most: int = UNINDEXED_MAX) -> None:
        self._most = most
        self._held: dict[Hashable, tuple[str, int, int]] = {}  # whose it is, its conditions, those tried
        self._conditions: Counter[str] = Counter()  # by user
        self.conditions = 0  # of all users, those that are tried while an event is published

    def __len__(self) -> int:
        return len(self._held)

    def check(self, user: str, wanted: Filter) -> bool:
        """Refuse a filter that would be one too many for a user; whether it must be tried on every event."""
        if way_of(wanted)[0] is not Way.UNINDEXED:
            return False
        if self._conditions[user] + _conditions(wanted.condition) > self._most:
            raise Refused(
                "limit",
                f"{user or 'this node'!r} has too many filters that must be tried on every event: their"
                f" conditions are limited to UNINDEXED_MAX = {self._most}; add a condition with a constant,"
                " such as an equality, a topic or a text to be contained",
            )
        return True

    def add(self, holder: Hashable, user: str, wanted: Filter, is_later: bool = False) -> None:
        """Count a filter, whether or not it is within the limit; `is_later`: not tried by publishers."""
        conditions = _conditions(wanted.condition)
        tried = 0 if is_later else conditions
        self._held[holder] = user, conditions, tried
        self._conditions[user] += conditions
        self.conditions += tried

    def remove(self, holder: Hashable) -> None:
        """Count a filter no longer; one that was not counted is passed over."""
        held = self._held.pop(holder, None)
        if held is not None:
            user, conditions, tried = held
            self._conditions[user] -= conditions
            self.conditions -= tried
            if not self._conditions[user]:
                del self._conditions[user]


def _conditions(condition: Condition) -> int:
    """How many simple conditions a condition is joined from."""
    return sum(map(_conditions, parts_of(condition))) or 1

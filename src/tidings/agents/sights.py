"""The events that conditions of groups wait for, counted as they come to the home of the group.

A node that starts again, and was the home of a group that others keep, does not know yet whether it still is.
What comes meanwhile it holds, and notes when it is the home again; if another node is, that counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from tidings.agents.records import GroupRecord
from tidings.agents.views import TYPE
from tidings.event import Batch
from tidings.exchange import EventSink, Exchange, NodeSubscription, Positions, Rows
from tidings.filters import Filter

NOTED = f"{TYPE}noted"
"""The type of the event that a condition has counted others, which is itself not counted."""


class _Sight(EventSink):
    """Counts the events of one filter."""

    def __init__(self, count: Callable[[int], None]) -> None:
        self._count = count

    def deliver(self, _batch: Batch, rows: Rows, _positions: Positions) -> None:
        self._count(len(rows))


class Sights:
    """The subscriptions of the conditions of groups."""

    def __init__(self, exchange: Exchange, noted: Callable[[str, str, int], None]) -> None:
        """`noted` is called with a group, a filter, and how many events have matched."""
        self._exchange = exchange
        self._noted = noted
        self._subscriptions: dict[str, list[NodeSubscription]] = {}
        self._held: dict[str, Counter[str]] = {}

    def begin(self, group: GroupRecord) -> None:
        """Count for a group whose home this node is, unless it does already."""
        if group.group in self._subscriptions:
            return
        own = Filter("group = :group AND type <> :noted", group=group.group, noted=NOTED)
        found = self._subscriptions[group.group] = []
        for where in sorted(group.condition.filters()):
            sight = _Sight(partial(self._seen, group.group, where))
            found.append(NodeSubscription(Filter(where) & own, sight, passive=True))
            self._exchange.subscribe(found[-1])

    def hold(self, group: GroupRecord) -> None:
        """Count for a group whose home this node may be again."""
        self._held[group.group] = Counter()
        self.begin(group)

    def go_on(self, group: str) -> None:
        """This node is the home: note what was held."""
        for where, times in self._held.pop(group, Counter[str]()).items():
            self._noted(group, where, times)

    def end(self, groups: Iterable[str]) -> None:
        """Count for these groups no more."""
        for group in groups:
            self._held.pop(group, None)
            for subscription in self._subscriptions.pop(group, ()):
                self._exchange.unsubscribe(subscription)

    def _seen(self, group: str, where: str, times: int) -> None:
        if group in self._held:
            self._held[group][where] += times
        else:
            self._noted(group, where, times)

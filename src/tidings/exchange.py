"""The exchange: the subscriptions and sources of a node, matched with each other.

Every consumer of events is a subscription, a filter with a sink; every producer of events is a source, which
may advertise a filter. The exchange has both tables. `match` searches the index for matching subscriptions;
its caller stores what must be stored, and delivers to each sink its rows of the batch with their positions.
Each advertisement gets the filters that *demand* its events, so that a source without subscribers can be
silent (quenching); passive subscriptions receive events and create no demand.

`match` is on the hot path: it works on batches and plain calls.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from enum import Enum
from typing import Any, Protocol, cast, runtime_checkable

from tidings.event import Batch
from tidings.filters import Filter
from tidings.interest import Advertisement, Interests
from tidings.interest.demand import Weight
from tidings.matching import Index
from tidings.matching.clues import Unindexed

REPORTED_MAX = 100
"""Filters that are reported to an advertiser one by one; beyond that it gets one that covers them all."""

ROWS_AT_ONCE = 2_048
"""Events that are matched in one step."""
TRIED_AT_ONCE = 4_096
"""Conditions that are evaluated one by one in one step."""
FOUND_AT_ONCE = 1 << 19
"""Pairs of event and subscription that are found in some ten milliseconds."""

Rows = Sequence[int]
"""Rows of a batch, ascending."""


Positions = Sequence[int | None] | None
"""Position of each row of a batch; None for a row, or for all of them, that is not stored."""


class Need(Enum):
    """Events of a sink that must be stored, so that they can be delivered again."""

    NOTHING = 0
    RELIABLE = 1  # the events that demand it by `delivery`
    EVERYTHING = 2
    LOGGED = 3  # everything, and kept in the log
    ELSEWHERE = 4  # nothing, and what `outward` returns need not be in the log: it is in that of another node


_NOTHING = Need.NOTHING  # Python takes longer to find a member of an enumeration than to call a method


class EventSink(Protocol):
    """Receiver of the events of a subscription."""

    def need(self, count: int) -> Need:  # noqa: ARG002
        """Return which of the matching events must be stored; called before each batch, which has `count`."""
        return _NOTHING

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        """Take these rows of the batch; called once for each batch that has any."""


@runtime_checkable
class OutwardSink(EventSink, Protocol):
    """Sink of events that go to another node, which has them in its log."""

    def outward(self, batch: Batch, rows: Rows) -> Rows:
        """Return the rows that go there."""


class Later(Protocol):
    """Matches events with subscriptions of its own after they were published, at a time of its own."""

    def add(self, subscription: NodeSubscription) -> None:
        """Match later batches with this one, too."""

    def remove(self, subscription: NodeSubscription) -> None:
        """Match nothing with this one any more."""

    def put(self, batch: Batch, positions: Positions) -> None:
        """Take published events, stored at these positions."""


class NodeSubscription:
    """Filter and sink. Events from `origin` do not go back there.

    `asked` is the filter that sources get: the requested one, if rules, which are not disclosed, have
    narrowed `filter`. `user` is the user whose inboxes it reads, None for all of them. Owners have equal
    shares of the time for spreading demands. A subscription with a `later` is not in the index: that gets
    each batch, and matches it. An `is_local` one is not announced to other nodes, and none to the neighbour
    `but_from`. A member of a channel has that channel's id.
    """

    __slots__ = (
        "asked",
        "but_from",
        "channel",
        "filter",
        "is_local",
        "is_over",
        "later",
        "origin",
        "owner",
        "parts",
        "passive",
        "sink",
        "user",
    )

    def __init__(
        self,
        filter: Filter,
        sink: EventSink,
        passive: bool = False,
        origin: Any = None,
        user: str | None = None,
        owner: Hashable = None,
        asked: Filter | None = None,
        later: Later | None = None,
    ) -> None:
        self.filter = filter
        self.asked = filter if asked is None else asked
        self.sink = sink
        self.passive = passive
        self.origin = origin
        self.is_over = False  # it gets no more events, not even those matched before
        self.user = user
        self.owner = owner
        self.later = later
        self.is_local = False
        self.but_from = ""
        self.parts: tuple[Filter, ...] = ()  # filters that together are `filter`, to be indexed one by one
        self.channel = ""


class ChannelWatcher(Protocol):
    """Hears of the members of channels."""

    def entered(self, member: NodeSubscription) -> None:
        """A member has begun to get events."""

    def left(self, member: NodeSubscription) -> None:
        """A member gets no more events."""


class Watcher(Protocol):
    """Hears what the clients of a node want and offer, to announce it to other nodes."""

    def subscribed(self, subscription: NodeSubscription) -> None:
        """One has begun, or goes on with another filter."""

    def unsubscribed(self, subscription: NodeSubscription) -> None:
        """One has ended."""

    def advertised(self, advertisement: Advertisement) -> None:
        """An advertisement has begun."""

    def withdrawn(self, advertisement: Advertisement) -> None:
        """One has ended."""


class Grant(EventSink):
    """Sink of a filter of events that a user may publish: it takes nothing, the match is all."""

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        """Do nothing: the caller of `match` has the result."""


class Exchange:
    """The tables of subscriptions and advertisements of one node."""

    def __init__(self) -> None:
        self._index: Index[NodeSubscription] = Index(patient=True)
        self._interests = Interests(REPORTED_MAX)
        self.unindexed = Unindexed()
        self.later: dict[Later, int] = {}  # with the number of subscriptions of each
        self.ended = 0  # subscriptions, ever
        self._grants: dict[Filter, tuple[NodeSubscription, int]] = {}  # with the number of grants of each
        self.offers_changed = 0
        """Number of advertisements that came or went."""
        self.announced: dict[NodeSubscription, None] = {}
        """Subscriptions of which a watcher is notified; those that were there before it, too."""
        self.watcher: Watcher | None = None
        self.members: dict[NodeSubscription, None] = {}
        """Members of channels, which are announced in another way."""
        self.channels: ChannelWatcher | None = None

    @property
    def subscriptions(self) -> int:
        """Number of subscriptions."""
        return len(self._index) - len(self._grants) + sum(self.later.values())

    @property
    def advertisements(self) -> int:
        """Number of advertisements."""
        return len(self._interests)

    def match(self, batch: Batch, origin: Any = None) -> list[tuple[NodeSubscription, Rows]]:
        """Return the subscriptions that match any of the batch, each with its rows; `later` has more."""
        return [
            (subscription, cast("Rows", rows))  # or an array of integers, which does as well
            for subscription, rows in self._index.match_items(batch)
            if subscription.origin is None or subscription.origin is not origin
        ]

    @property
    def rows_at_once(self) -> int:
        """Number of events that can be matched in a few milliseconds."""
        tried = self.unindexed.conditions + self._index.tried
        return max(1, min(ROWS_AT_ONCE, TRIED_AT_ONCE // tried)) if tried else ROWS_AT_ONCE

    @property
    def rows_at_first(self) -> int:
        """Return the same for the worst case: fewer, if many filters may be evaluated for each or match."""
        tried, found = TRIED_AT_ONCE // max(1, self._index.asked), FOUND_AT_ONCE // max(1, len(self._index))
        return max(1, min(self.rows_at_once, tried, found))

    def subscribe(self, subscription: NodeSubscription) -> None:
        """Deliver matching events to the sink from now on."""
        subscription.is_over = False
        later, user = subscription.later, subscription.user or ""
        if later is not None:
            later.add(subscription)
            self.later[later] = self.later.get(later, 0) + 1
            self.unindexed.add(subscription, user, subscription.filter, is_later=True)
        else:
            if subscription.parts:
                for part in subscription.parts:
                    self._index.extend(subscription, part)
            else:
                self._index.add(subscription, subscription.filter)
            if self._index.is_unindexed(subscription):
                self.unindexed.add(subscription, user, subscription.filter)
        if not subscription.passive:
            self._interests.demand(*_demand(subscription))
        if subscription.channel:
            self.members[subscription] = None
            if self.channels is not None:
                self.channels.entered(subscription)
        elif not subscription.is_local:
            self.announced[subscription] = None
            if self.watcher is not None:
                self.watcher.subscribed(subscription)

    def settle(self) -> None:
        """Prepare the index now, at the cost of subscribers rather than of publishers."""
        self._index.settle()

    def unsubscribe(self, subscription: NodeSubscription) -> None:
        """Deliver no more events to this one; KeyError if it is not there."""
        subscription.is_over = True
        self.ended += 1
        later = subscription.later
        if later is None:
            self._index.remove(subscription)
        else:
            later.remove(subscription)
            self.later[later] -= 1
            if not self.later[later]:
                del self.later[later]
        self.unindexed.remove(subscription)
        if not subscription.passive:
            self._interests.release(*_demand(subscription))
        if subscription in self.members:
            del self.members[subscription]
            if self.channels is not None:
                self.channels.left(subscription)
        if subscription in self.announced:
            del self.announced[subscription]
            if self.watcher is not None:
                self.watcher.unsubscribed(subscription)

    def extend(self, subscription: NodeSubscription, filter: Filter) -> None:
        """Deliver to the sink what matches this filter, too; for a subscription that has no other filter."""
        subscription.is_over = False
        self._index.extend(subscription, filter)

    def retract(self, subscription: NodeSubscription, filter: Filter) -> None:
        """Deliver no more for one of the filters by which a subscription was extended."""
        self._index.retract(subscription, filter)

    def demand(self, subscription: NodeSubscription, filter: Filter) -> None:
        """Let one of the filters by which a subscription was extended demand events of their sources."""
        self._interests.demand(filter, subscription.origin, subscription.owner, filter)

    def release(self, subscription: NodeSubscription, filter: Filter) -> None:
        """Let it demand them no longer."""
        self._interests.release(filter, subscription.origin, subscription.owner, filter)

    def grant(self, filter: Filter) -> NodeSubscription:
        """Match each batch with the events that a user may publish too: that costs no second pass over it."""
        granted, times = self._grants.get(filter, (None, 0))
        if granted is None:
            granted = NodeSubscription(filter, Grant(), passive=True)
            self._index.add(granted, filter)
        self._grants[filter] = granted, times + 1
        return granted

    def revoke(self, granted: NodeSubscription) -> None:
        """Remove one grant of this filter."""
        _, times = self._grants.pop(granted.filter)
        if times > 1:
            self._grants[granted.filter] = granted, times - 1
        else:
            self._index.remove(granted)

    def advertise(self, advertisement: Advertisement) -> tuple[Filter, ...]:
        """Offer events and return the filters that demand them; changes are reported at the end of ticks."""
        self.offers_changed += 1
        if self.watcher is not None:
            self.watcher.advertised(advertisement)
        return self._interests.offer(advertisement)

    def withdraw(self, advertisement: Advertisement) -> None:
        """Remove an advertisement; KeyError if it is not there."""
        self._interests.withdraw(advertisement)
        self.offers_changed += 1
        if self.watcher is not None:
            self.watcher.withdrawn(advertisement)

    def offers(self, filter: Filter) -> Iterator[tuple[Advertisement, Weight]]:
        """Yield the advertisements that may overlap a filter, with their weights, in order."""
        return self._interests.offers(filter)

    @property
    def has_changes(self) -> bool:
        """Whether changes are still to be reported to sources in the next tick."""
        return self._interests.has_changes

    def finish_tick(self) -> None:
        """Report new and removed demands to sources, as far as one tick goes."""
        self._interests.finish_tick()


def _demand(subscription: NodeSubscription) -> tuple[Filter, Any, Hashable, Filter]:
    """Return the demand of a subscription, as interest keeps it."""
    return subscription.filter, subscription.origin, subscription.owner, subscription.asked

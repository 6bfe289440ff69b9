"""Cursors: places on the stored stream, and whose they are.

A cursor says which events its owner wants of the stream, and up to which position it needs nothing any more.
One with a name is stored, and outlives connections and restarts; others end with their session. While nobody
takes what matches, the cursor itself is the sink of its subscription, and only has stored what it needs; a
*consumer* that is there is the sink then, such as the stream to a client (`streams.py`). A cursor that has
none, and only has events kept, is an *archive*.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Struct

from tidings.event import Batch
from tidings.exchange import Need, Positions, Rows, Sink, Subscription
from tidings.filters import Filter
from tidings.protocol.access import NOBODY, OWNER, Gate, Permit
from tidings.store.interface import Drop, Durable, Kind, Operation, Put

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker


class Options(Struct, frozen=True, omit_defaults=True):
    """What a stored cursor is for."""

    log: bool = False  # it is an archive
    passive: bool = False
    newest: bool = False  # its client gets the newest events first

    def encode(self) -> bytes:
        """The options as they are stored; nothing for those of most."""
        return b"" if self == Options() else msgspec.msgpack.encode(self)


def options_of(record: Durable) -> Options:
    """What a stored cursor is for."""
    return msgspec.msgpack.decode(record.options, type=Options) if record.options else Options()


class Consumer(Sink, Protocol):
    """Who takes the events of a cursor while it is there."""

    @property
    def passed(self) -> int:
        """The position up to which it needs nothing any more."""

    def part(self, reason: str) -> None:
        """Leave the cursor: it ends, or another takes its events."""


class Cursor:
    """See the module. What is asked for is stored; what was granted of that is only in the subscription."""

    ends_at = inf
    """When its lease ends, by the clock that never jumps."""
    is_archive = False
    """Whether it only has events kept, and nobody consumes them."""
    has_left = False
    """Whether it wants nothing any more, and is only remembered."""

    def __init__(self, broker: Broker, record: Durable, filter: Filter | None = None) -> None:
        """`filter` is that of the record, where it has been read already."""
        self.broker = broker
        self.name = record.name
        self.owner = record.owner
        self.acknowledged = record.cursor
        self.handed = record.handed  # up to here events may have been delivered
        self.options = record.options
        self.consumer: Consumer | None = None
        self.since_us: int | None = None  # begin at this time instead: it is found when the store is read
        asked, passive = Filter(record.filter) if filter is None else filter, options_of(record).passive
        self.subscription = Subscription(asked, self, passive, owner=self.owner)

    @property
    def key(self) -> tuple[str, str]:
        """What no other cursor with a name has."""
        return self.owner, self.name

    @property
    def filter(self) -> Filter:
        """What is asked for."""
        return self.subscription.asked

    def allow(self, granted: Filter, user: str | None) -> None:
        """Let it have what was granted; `user` is the one bound by rules, None for others."""
        self.subscription.filter, self.subscription.user = granted, user

    @property
    def passed(self) -> int:
        """The position up to which its owner needs nothing any more."""
        return self.acknowledged if self.consumer is None else self.consumer.passed

    @property
    def released(self) -> int:
        """The position up to which nothing need be in the store for it, save what is in the log."""
        return self.passed

    def attach(self, consumer: Consumer) -> None:
        """Let someone take its events, from what is not acknowledged on; nobody does so yet."""
        self.consumer = self.subscription.sink = consumer

    def detach(self) -> None:
        """Nobody takes its events any more."""
        self.consumer, self.subscription.sink = None, self

    def acknowledge(self, position: int) -> None:
        """Its owner has dealt with everything up to the position."""
        self.acknowledged = position
        self.broker.places.keep(self)

    def hand_out(self, position: int) -> None:
        """Events up to the position may be delivered from the next commit on."""
        self.handed = position
        self.broker.places.keep(self)

    def begin(self, position: int) -> None:
        """Everything before the position is not wanted: it was found for `since_us`."""
        self.since_us = None
        if self.name:
            self.acknowledged = self.handed = position - 1
            self.broker.places.keep(self)

    def review(self) -> None:
        """The rules have changed; a client is parted from, and finds that when it comes again."""

    # The sink, while there is no consumer

    def need(self, count: int) -> Need:  # noqa: ARG002
        """Have stored what asks for it."""
        return Need.RELIABLE

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:  # noqa: ARG002
        """What is stored waits there, and the rest is for nobody."""
        self.broker.count("dropped", unstored(rows, positions), "away")

    # The store

    def stored(self) -> Put:
        """What keeps it."""
        places = self.acknowledged, self.handed
        return Put(Durable(self.name, self.owner, str(self.filter), *places, self.options))

    def dropped(self) -> list[Operation]:
        """What keeps it no longer."""
        return [Drop(self.name, self.owner)]


def unstored(rows: Rows, positions: Positions) -> int:
    """How many of the rows are not stored."""
    return len(rows) if positions is None else sum(positions[row] is None for row in rows)


class Terms(Struct, frozen=True, omit_defaults=True):
    """What is stored of an archive beside its place."""

    holds: bool = False  # its position matters
    lease_s: float | None = None
    until: float | None = None  # when the lease ends, by the wall clock: that is what a later start goes by
    left: bool = False  # its reader has ended it, and may come back
    user: str = ""  # whose rights it has, and no more than these; the owner of the node has all


TERMS: Kind[tuple[str, str], Terms] = Kind("archive", Terms)


class Archive(Cursor):
    """A cursor that has what matches kept in the log, and delivers nothing.

    The log is what of the stored stream is persistent: events that ask for it, and what an archive wants.
    Whoever reads the log asks for it by position; an archive only has it there. One with a name outlives
    connections and restarts, until its lease ends or somebody ends it. One that `holds` is a reader's, behind
    whose position nothing may be pruned. One that has `left` wants nothing any more: it only says that it did
    not simply vanish.
    """

    is_archive = True

    def __init__(self, broker: Broker, record: Durable, terms: Terms, filter: Filter | None = None) -> None:
        super().__init__(broker, record, filter)
        self.terms = terms
        self.ends_at = self._end()

    def _end(self) -> float:
        until, lease_s = self.terms.until, self.terms.lease_s
        return inf if until is None else self.broker.deadline(until, inf if lease_s is None else lease_s)

    @property
    def has_left(self) -> bool:  # type: ignore[override]  # it depends on its terms
        """Whether it wants nothing any more, and is only remembered."""
        return self.terms.left

    @property
    def passed(self) -> int:
        """The position up to which its reader, if it has one, needs nothing any more."""
        return self.acknowledged if self.terms.holds else self.broker.position

    @property
    def released(self) -> int:
        """Everything: what it needs is in the log."""
        return self.broker.position

    def permit(self, gate: Gate) -> Permit:
        """What whoever has it may do, as the rules are now."""
        return (gate.permit_of(self.terms.user) or NOBODY) if self.terms.user else OWNER

    def review(self) -> None:
        """Keep for a user what it may subscribe to now."""
        permit = self.permit(self.broker.gate)
        self.broker.places.refilter(self, self.filter, permit.reach(self.filter), permit.bound)

    def renew(self, terms: Terms) -> None:
        """Its reader is still there."""
        self.terms = terms
        self.ends_at = self._end()
        self.broker.store(TERMS.set(self.key, terms))

    def pass_to(self, position: int) -> None:
        """Its reader needs nothing up to this position; one that was passed before changes nothing."""
        if position > self.acknowledged:
            self.handed = position
            self.acknowledge(position)

    def demand(self, passive: bool) -> None:
        """Have sources told of what it wants, unless it is passive."""
        subscription, exchange = self.subscription, self.broker.exchange
        if subscription.passive is not passive:
            exchange.unsubscribe(subscription)
            subscription.passive = passive
            exchange.subscribe(subscription)
            self.options = Options(log=True, passive=passive).encode()
            self.broker.places.keep(self)

    def need(self, count: int) -> Need:  # noqa: ARG002
        """Have all that matches kept in the log."""
        return Need.LOGGED

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        """They are in the log, and that is all."""

    def dropped(self) -> list[Operation]:
        """What keeps neither it nor its terms any longer."""
        return [*super().dropped(), TERMS.drop(self.key)]

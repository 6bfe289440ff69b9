"""Cursor: a place on the stored stream, and whose it is.

A cursor says which events its owner wants of the stream, and up to which position it needs nothing any more.
One with a name is stored, and outlives connections and restarts; others end with their session. While nobody
takes what matches, the cursor itself is the sink of its subscription, and only has stored what it needs; a
*consumer* that is there is the sink then, such as the stream to a client (`stored_consumer.py`).
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Struct, structs

from tidings.event import Batch
from tidings.event.relayed import Had, RelayedBatch
from tidings.exchange import EventSink, Need, NodeSubscription, Positions, Rows
from tidings.filters import Filter
from tidings.protocol.updates import NewestUpdates
from tidings.store.interface import Drop, Durable, Operation, PutCursor

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker


INTERNAL = "\x1f"
"""How the owner of a cursor begins that belongs to the node itself: no client can have such a name."""


class Options(Struct, frozen=True, omit_defaults=True):
    """The stored options of a cursor."""

    log: bool = False  # it is an archive
    passive: bool = False
    newest: bool = False  # its client gets the newest events first
    channel: str = ""  # it is a member of this channel
    link: bool = False  # its client is a neighbour node
    heir: bool = False  # that has not announced yet what is wanted behind it
    kept: int = 0  # the position behind which events are kept for those beyond it
    skips: dict[str, int] = {}  # neighbours, and up to which position it gets nothing that came from them
    again: int = 0  # the position up to which events may have been had by it, or beyond it
    cut: int = 0  # it has moved here: up to this position it gets what was brought along for it, no more
    had: dict[str, Had] = {}  # what it has had of each first node, where it came from
    home: str = ""  # the node at which it was made, if not this one
    moves: int = 0  # how often it has moved since
    arriving: str = ""  # the move by which it is on its way here, and of which a restart leaves nothing
    came: str = ""  # the move by which it came, which its former node takes back if it has not heard of that

    def encode(self) -> bytes:
        """The options as they are stored; nothing for those of most."""
        return b"" if self == Options() else msgspec.msgpack.encode(self)

    @property
    def asked(self) -> bytes:
        """What of them a client has asked for, as it would be stored."""
        return structs.replace(self, cut=0, had={}, home="", moves=0, arriving="", came="").encode()


def options_of(record: Durable) -> Options:
    """Return the stored options of a cursor."""
    return options_in(record.options)


def options_in(stored: bytes) -> Options:
    """Return options as they were stored."""
    return msgspec.msgpack.decode(stored, type=Options) if stored else Options()


class CursorConsumer(EventSink, Protocol):
    """Consumer of a cursor's events while it is there."""

    @property
    def passed(self) -> int:
        """The position up to which it needs nothing any more."""

    def part(self, reason: str) -> None:
        """Leave the cursor: it ends, or another takes its events."""


class Cursor:
    """Place of an owner on the stored stream. It stores the wish; the granted part is the subscription's."""

    ends_at = inf
    """When its lease ends, by the clock that never jumps."""
    is_archive = False
    """Whether it only has events kept, and nobody consumes them."""
    has_left = False
    """Whether it wants nothing any more, and is only remembered."""
    is_link = False
    """Whether its client is a neighbour node."""

    def __init__(self, broker: Broker, record: Durable, filter: Filter | None = None) -> None:
        """`filter` is that of the record, where it has been read already."""
        self.broker = broker
        self.name = record.name
        self.owner = record.owner
        self.acknowledged = record.cursor
        self.handed = record.handed  # up to here events may have been delivered
        self.options = record.options
        self.consumer: CursorConsumer | None = None
        self.since_us: int | None = None  # begin at this time instead: it is found when the store is read
        asked, options = Filter(record.filter) if filter is None else filter, options_of(record)
        self.subscription = NodeSubscription(asked, self, options.passive, owner=self.owner)
        self.subscription.channel = options.channel
        self.cut, self.had = options.cut, options.had
        self.newest = NewestUpdates() if options.channel else None  # a member's, of what it has not got
        self.is_indexed = True  # that is known of all that is stored

    @property
    def key(self) -> tuple[str, str]:
        """The key, which no other named cursor has."""
        return self.owner, self.name

    @property
    def reader(self) -> str:
        """The same as one text: what has moved here for it is marked by that."""
        return f"{self.name}\x1f{self.owner}"

    def unhad(self, batch: Batch, rows: Rows) -> Rows:
        """Return the rows of a batch that it has not had at the node where it was before."""
        if not self.had or not isinstance(batch, RelayedBatch) or batch.only:
            return rows
        had = self.had.get(batch.first.node)
        if had is None:
            return rows
        return [row for row in rows if not had.has(batch.first, batch.numbers[row])]

    @property
    def filter(self) -> Filter:
        """The requested filter."""
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

    def enter(self) -> None:
        """Begin to match events."""
        self.broker.exchange.subscribe(self.subscription)

    def leave(self) -> None:
        """Match no more events."""
        self.broker.exchange.unsubscribe(self.subscription)

    def attach(self, consumer: CursorConsumer) -> None:
        """Let someone take its events, from what is not acknowledged on; nobody does so yet."""
        self.consumer = self.subscription.sink = consumer

    def detach(self) -> None:
        """Detach its consumer: nobody takes its events any more."""
        self.consumer, self.subscription.sink = None, self

    def acknowledge(self, position: int) -> None:
        """Acknowledge everything up to the position."""
        self.acknowledged = position
        self.broker.cursors.keep(self)

    def hand_out(self, position: int) -> None:
        """Events up to the position may be delivered from the next commit on."""
        self.handed = position
        self.broker.cursors.keep(self)

    def begin(self, position: int) -> None:
        """Everything before the position is not wanted: it was found for `since_us`."""
        self.since_us = None
        if self.name:
            self.acknowledged = self.handed = position - 1
            self.broker.cursors.keep(self)

    def review(self) -> None:
        """The rules have changed; a client is parted from, and finds that when it comes again."""

    # The sink, while there is no consumer

    def need(self, count: int) -> Need:  # noqa: ARG002
        """Have stored what asks for it."""
        return Need.RELIABLE

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        """Deliver nothing: what is stored waits there, and the rest is for nobody."""
        if self.newest is not None:
            self.newest.note_stored(batch, rows, positions)
        self.broker.count("dropped", unstored(rows, positions), "away")

    # The store

    def stored(self) -> PutCursor:
        """The operation that stores it."""
        places = self.acknowledged, self.handed
        return PutCursor(Durable(self.name, self.owner, str(self.filter), *places, self.options))

    def dropped(self) -> list[Operation]:
        """The operations that remove it."""
        return [Drop(self.name, self.owner)]


def unstored(rows: Rows, positions: Positions) -> int:
    """Return the number of rows that are not stored."""
    return len(rows) if positions is None else sum(positions[row] is None for row in rows)

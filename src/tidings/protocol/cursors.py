"""Cursors: places on the stored stream, and whose they are.

A cursor says which events its owner wants of the stream, and up to which position it needs nothing any more.
One with a name is stored, and outlives connections and restarts; others end with their session. While nobody
takes what matches, the cursor itself is the sink of its subscription, and only has stored what it needs; a
*consumer* that is there is the sink then, such as the stream to a client (`stored_consumer.py`). A cursor
that has none, and only has events kept, is an *archive*. What every cursor has passed is needed by nobody,
and is given up now and then.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct, structs

from tidings.errors import Refused
from tidings.event import Batch
from tidings.event.relayed import Had, RelayedBatch
from tidings.exchange import EventSink, Need, NodeSubscription, Positions, Rows
from tidings.filters import Filter
from tidings.protocol.access import NOBODY, OWNER, Authenticator, Principal
from tidings.protocol.arguments import check_readable
from tidings.protocol.updates import NewestUpdates
from tidings.store.interface import Drop, Durable, Operation, PutCursor, RecordKind, StoreState, Trim

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker
    from tidings.protocol.stored_consumer import StoredConsumer

DURABLES_MAX = 100_000
"""Durable subscriptions of a node."""
INTERNAL = "\x1f"
"""How the owner of a cursor begins that belongs to the node itself: no client can have such a name."""
TRIM_AFTER = 1_000
"""Positions that all durable subscriptions have passed before it is worth to trim the stream."""


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

    def encode(self) -> bytes:
        """The options as they are stored; nothing for those of most."""
        return b"" if self == Options() else msgspec.msgpack.encode(self)

    @property
    def asked(self) -> bytes:
        """What of them a client has asked for, as it would be stored."""
        return structs.replace(self, cut=0, had={}, home="", moves=0, arriving="").encode()


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


class Terms(Struct, frozen=True, omit_defaults=True):
    """The stored terms of an archive, beside its place."""

    holds: bool = False  # its position matters
    lease_s: float | None = None
    until: float | None = None  # when the lease ends, by the wall clock: that is what a later start goes by
    left: bool = False  # its reader has ended it, and may come back
    user: str = ""  # whose rights it has, and no more than these; the owner of the node has all


TERMS: RecordKind[tuple[str, str], Terms] = RecordKind("archive", Terms)


class Archive(Cursor):
    """A cursor that has what matches kept in the log, and delivers nothing.

    The log is what of the stored stream is persistent: events that ask for it, and what an archive wants.
    Readers of the log ask for it by position; an archive only keeps it there. One with a name outlives
    connections and restarts, until its lease ends or somebody ends it. One that `holds` is a reader's, behind
    whose position nothing may be pruned. One that has `left` wants nothing any more: it only says that it did
    not simply vanish.
    """

    is_archive = True

    def __init__(self, broker: Broker, record: Durable, terms: Terms, filter: Filter | None = None) -> None:
        super().__init__(broker, record, filter)
        # It keeps what its own node takes in; a reader's demand concerns the sources of all nodes.
        self.subscription.is_local = self.subscription.passive
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

    def principal(self, authenticator: Authenticator) -> Principal:
        """Return the owner's rights by the current rules."""
        return (authenticator.principal_of(self.terms.user) or NOBODY) if self.terms.user else OWNER

    def review(self) -> None:
        """Keep for a user what it may subscribe to now."""
        principal = self.principal(self.broker.authenticator)
        self.broker.cursors.refilter(self, self.filter, principal.reach(self.filter), principal.bound)

    def renew(self, terms: Terms) -> None:
        """Renew the lease of its reader."""
        self.terms = terms
        self.ends_at = self._end()
        self.broker.store(TERMS.set(self.key, terms))

    def pass_to(self, position: int) -> None:
        """Pass a position, up to which its reader needs nothing; one passed before changes nothing."""
        if position > self.acknowledged:
            self.handed = position
            self.acknowledge(position)

    def demand(self, passive: bool) -> None:
        """Create demand for what it wants, unless it is passive."""
        subscription, exchange = self.subscription, self.broker.exchange
        if subscription.passive is not passive:
            exchange.unsubscribe(subscription)
            subscription.passive = subscription.is_local = passive
            exchange.subscribe(subscription)
            self.options = Options(log=True, passive=passive).encode()
            self.broker.cursors.keep(self)

    def need(self, count: int) -> Need:  # noqa: ARG002
        """Have all that matches kept in the log."""
        return Need.LOGGED

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        """Deliver nothing: the events are in the log."""

    def dropped(self) -> list[Operation]:
        return [*super().dropped(), TERMS.drop(self.key)]


class Cursors:
    """All cursors on the stored stream: those with a name, and those that end with a session."""

    def __init__(self, broker: Broker, state: StoreState) -> None:
        self._broker = broker
        self._named: dict[tuple[str, str], Cursor] = {}
        self._archives: dict[tuple[str, str], Archive] = {}  # those of them that are archives
        self._cursors: dict[Cursor, None] = {}  # with a name or not
        self._attached: dict[StoredConsumer, None] = {}
        self._changed: dict[Cursor, None] = {}  # in this tick
        self._trimmed = 0
        self.of_links: list[Durable] = []  # those of neighbour nodes, which the owner of links opens
        self._restore(state)

    def _restore(self, state: StoreState) -> None:
        """Go on with what was stored; what damage has left of an archive without its terms is dropped."""
        terms = TERMS.known(state)
        for record in state.durables:
            key, options = (record.owner, record.name), options_of(record)
            if options.link:
                self.of_links.append(record)
            elif options.arriving:
                self._broker.store(Drop(record.name, record.owner))
            elif not options.log:
                cursor = Cursor(self._broker, record)
                cursor.is_indexed = cursor.newest is None
                self.reopen(cursor)
            elif key in terms:
                self.reopen(Archive(self._broker, record, terms.pop(key)))
            else:
                self._broker.store(Drop(record.name, record.owner))
        for key in terms:
            self._broker.store(TERMS.drop(key))

    # Those with a name

    def open(self, cursor: Cursor) -> None:
        """Keep a new cursor with a name; there is none of that name."""
        check_readable(cursor.name, "the name of a durable subscription or of a reader")
        if len(self._named) >= DURABLES_MAX:
            raise Refused("limit", f"a node has at most {DURABLES_MAX} durable subscriptions")
        self.reopen(cursor)
        self.keep(cursor)

    def open_archive(self, archive: Archive) -> None:
        """Keep a new archive with a name, and its terms."""
        self.open(archive)
        archive.renew(archive.terms)

    def reopen(self, cursor: Cursor) -> None:
        """Go on with a cursor that was stored before."""
        self._named[cursor.key] = cursor
        if isinstance(cursor, Archive):
            self._archives[cursor.key] = cursor
        self.add(cursor)

    def find(self, owner: str, name: str) -> Cursor | None:
        """The cursor of that owner and name, if there is one."""
        return self._named.get((owner, name))

    def find_archive(self, owner: str, name: str) -> Archive | None:
        """Return it if it is an archive."""
        return self._archives.get((owner, name))

    def end(self, cursor: Cursor) -> None:
        """A cursor with a name is wanted no longer."""
        del self._named[cursor.key]
        self._archives.pop(cursor.key, None)
        self._changed.pop(cursor, None)
        for operation in cursor.dropped():
            self._broker.store(operation)
        self.remove(cursor)

    def end_durable(self, owner: str, name: str) -> None:
        """End a durable subscription for good, also one that is open; Refused if there is none."""
        cursor = self.find(owner, name)
        if cursor is None or cursor.is_archive:
            raise Refused("not-found", f"there is no durable subscription {name!r}")
        if cursor.consumer is not None:
            cursor.consumer.part("unsubscribed")
        self.end(cursor)
        if self._broker.patterns is not None:
            self._broker.patterns.end(owner, name)

    @property
    def named(self) -> list[Cursor]:
        """All that outlive connections."""
        return list(self._named.values())

    @property
    def archives(self) -> list[Archive]:
        """The archives with a name."""
        return list(self._archives.values())

    def review(self) -> None:
        """The rules may have changed."""
        for cursor in self._named.values():
            cursor.review()

    # All of them

    def add(self, cursor: Cursor) -> None:
        """A place in the stored stream is needed."""
        self._cursors[cursor] = None
        cursor.enter()

    def remove(self, cursor: Cursor) -> None:
        """Remove a cursor that is not needed any more."""
        del self._cursors[cursor]
        cursor.leave()

    def refilter(self, cursor: Cursor, asked: Filter, granted: Filter, user: str | None) -> None:
        """Give a cursor another filter: what its client asks for or was granted may have changed."""
        subscription = cursor.subscription
        if subscription.asked != asked:
            self.keep(cursor)
        elif subscription.filter == granted:
            subscription.user = user
            return
        self._broker.exchange.unsubscribe(subscription)
        subscription.asked = asked
        cursor.allow(granted, user)
        self._broker.exchange.subscribe(subscription)

    def attach(self, stream: StoredConsumer) -> None:
        """A client takes what a cursor is for."""
        self._attached[stream] = None

    def detach(self, stream: StoredConsumer) -> None:
        """Detach its consumer; a cursor without a name ends with that."""
        del self._attached[stream]
        if not stream.cursor.name:
            self.remove(stream.cursor)

    def read_on(self) -> None:
        """Wake the consumers that wait for what has become durable."""
        for stream in self._attached:
            stream.read_on()

    # Commits

    @property
    def is_due(self) -> bool:
        """Whether any cursor is to be stored with this tick."""
        return bool(self._changed)

    def keep(self, cursor: Cursor) -> None:
        """Have a cursor that has changed stored with this tick."""
        self._changed[cursor] = None

    def take_due(self) -> list[Operation]:
        """Return the operations that store the cursors changed in this tick."""
        changed, self._changed = self._changed, {}
        return [cursor.stored() for cursor in changed]

    @property
    def trimmed(self) -> int:
        """The position up to which nothing is read for anybody any more."""
        return self._trimmed

    def trim(self, after: int | None = None) -> list[Operation]:
        """Return the release of what all have passed, each `after` so many positions, or TRIM_AFTER."""
        # What is not on disk yet could go too, as commits are made in order: the store would only be asked to
        # drop what the same commit, or one before it that may still fail, brings it.
        on_disk, least = self._broker.position_durable, TRIM_AFTER if after is None else after
        if on_disk - self._trimmed < least:
            return []
        passed = min(min((cursor.released for cursor in self._cursors), default=on_disk), on_disk)
        if passed - self._trimmed < least:
            return []
        self._trimmed = passed
        return [Trim(passed)]

    def status(self) -> list[dict[str, Any]]:
        """Return the state of those with a name."""
        position = self._broker.position
        return [
            {
                "name": name,
                "owner": owner,
                "cursor": cursor.passed,
                "depth": position - cursor.passed,
                "archive": cursor.is_archive,
            }
            for (owner, name), cursor in sorted(self._named.items())
            if not (cursor.has_left or cursor.is_link or owner.startswith(INTERNAL))
        ]

"""All cursors of a node on its stored stream (`cursor.py`): opened, found, stored and ended.

What every cursor has passed is needed by nobody, and is given up now and then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidings.errors import Refused
from tidings.filters import Filter
from tidings.protocol.archive import TERMS, Archive
from tidings.protocol.arguments import check_readable
from tidings.protocol.cursor import INTERNAL, Cursor, options_of
from tidings.store.interface import Drop, Durable, Operation, StoreState, Trim

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker
    from tidings.protocol.stored_consumer import StoredConsumer
    from tidings.protocol.stored_pages import PageReading

DURABLES_MAX = 100_000
"""Durable subscriptions of a node."""
TRIM_AFTER = 1_000
"""Positions that all durable subscriptions have passed before it is worth to trim the stream."""


class Cursors:
    """All cursors on the stored stream: those with a name, and those that end with a session."""

    def __init__(self, broker: Broker, state: StoreState) -> None:
        self._broker = broker
        self._named: dict[tuple[str, str], Cursor] = {}
        self._archives: dict[tuple[str, str], Archive] = {}  # those of them that are archives
        self._cursors: dict[Cursor, None] = {}  # with a name or not
        self._attached: dict[StoredConsumer, None] = {}
        self._awaiting: list[PageReading] = []  # what is to be on disk
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
        awaiting, self._awaiting = self._awaiting, []
        for reading in awaiting:
            reading.read_on()

    def await_durable(self, reading: PageReading) -> None:
        """Let a reading go on when more is on disk."""
        self._awaiting.append(reading)

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

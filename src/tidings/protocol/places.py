"""All cursors on the stored stream: those with a name, and those that end with a session.

What every cursor has passed is needed by nobody, and is given up now and then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidings.errors import Refused
from tidings.filters import Filter
from tidings.protocol.arguments import check_readable
from tidings.protocol.cursors import TERMS, Archive, Cursor, options_of
from tidings.protocol.streams import Stream
from tidings.store.interface import Drop, Operation, State, Trim

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker

DURABLES_MAX = 100_000
"""Durable subscriptions of a node."""
TRIM_AFTER = 1_000
"""Positions that all durable subscriptions have passed before it is worth to trim the stream."""


class Places:
    """See the module."""

    def __init__(self, broker: Broker, state: State) -> None:
        self._broker = broker
        self._named: dict[tuple[str, str], Cursor] = {}
        self._archives: dict[tuple[str, str], Archive] = {}  # those of them that are archives
        self._cursors: dict[Cursor, None] = {}  # with a name or not
        self._attached: dict[Stream, None] = {}
        self._changed: dict[Cursor, None] = {}  # in this tick
        self._trimmed = 0
        self._restore(state)

    def _restore(self, state: State) -> None:
        """Go on with what was stored; what damage has left of an archive without its terms is dropped."""
        terms = TERMS.known(state)
        for record in state.durables:
            key = record.owner, record.name
            if not options_of(record).log:
                self._open(Cursor(self._broker, record))
            elif key in terms:
                self._open_archive(Archive(self._broker, record, terms.pop(key)))
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
        self._open(cursor)
        self.keep(cursor)

    def open_archive(self, archive: Archive) -> None:
        """Keep a new archive with a name, and its terms."""
        self.open(archive)
        self._archives[archive.key] = archive
        archive.renew(archive.terms)

    def _open(self, cursor: Cursor) -> None:
        self._named[cursor.key] = cursor
        self.add(cursor)

    def _open_archive(self, archive: Archive) -> None:
        self._archives[archive.key] = archive
        self._open(archive)

    def find(self, owner: str, name: str) -> Cursor | None:
        """The cursor of that owner and name, if there is one."""
        return self._named.get((owner, name))

    def find_archive(self, owner: str, name: str) -> Archive | None:
        """The same if it is an archive."""
        return self._archives.get((owner, name))

    def end(self, cursor: Cursor) -> None:
        """A cursor with a name is wanted no longer."""
        del self._named[cursor.key]
        self._archives.pop(cursor.key, None)
        self._changed.pop(cursor, None)
        for operation in cursor.dropped():
            self._broker.store(operation)
        self.remove(cursor)

    @property
    def named(self) -> list[Cursor]:
        """All that outlive connections."""
        return list(self._named.values())

    @property
    def archives(self) -> list[Archive]:
        """Those that keep things in the log under a name."""
        return list(self._archives.values())

    def review(self) -> None:
        """The rules may have changed."""
        for cursor in self._named.values():
            cursor.review()

    # All of them

    def add(self, cursor: Cursor) -> None:
        """A place in the stored stream is needed."""
        self._cursors[cursor] = None
        self._broker.exchange.subscribe(cursor.subscription)

    def remove(self, cursor: Cursor) -> None:
        """It is needed no longer."""
        del self._cursors[cursor]
        self._broker.exchange.unsubscribe(cursor.subscription)

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

    def attach(self, stream: Stream) -> None:
        """A client takes what a cursor is for."""
        self._attached[stream] = None

    def detach(self, stream: Stream) -> None:
        """It does so no longer; what has no name ends with that."""
        del self._attached[stream]
        if not stream.cursor.name:
            self.remove(stream.cursor)

    def read_on(self) -> None:
        """What has become durable may be what those with a client wait for."""
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
        """What stores the cursors that have changed in this tick."""
        changed, self._changed = self._changed, {}
        return [cursor.stored() for cursor in changed]

    def trim(self, after: int | None = None) -> list[Operation]:
        """What gives up what all have passed, now and then: `after` so many positions, or TRIM_AFTER."""
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
        """How those with a name stand."""
        position = self._broker.position
        return [
            {"name": name, "owner": owner, "cursor": cursor.passed, "depth": position - cursor.passed}
            for (owner, name), cursor in sorted(self._named.items())
            if not cursor.has_left
        ]

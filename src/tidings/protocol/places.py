"""All places in the stored stream: those of durable subscriptions, and those that end with a session.

What every place has passed is needed by nobody, and is given up now and then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from tidings.errors import Refused
from tidings.filters import Filter
from tidings.protocol.archive import Archive, terms_of
from tidings.protocol.arguments import check_readable
from tidings.protocol.newest import NewestStream
from tidings.protocol.streams import Stream
from tidings.store.interface import Drop, Durable, Operation, Put, Trim

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker

DURABLES_MAX = 100_000
"""Durable subscriptions of a node."""
TRIM_AFTER = 1_000
"""Positions that all durable subscriptions have passed before it is worth to trim the stream."""


class Places:
    """See the module."""

    def __init__(self, broker: Broker, records: Iterable[Durable]) -> None:
        self._broker = broker
        self._durables: dict[tuple[str, str], Stream] = {}  # by owner and name
        self._streams: dict[Stream, None] = {}  # durable or not
        self._attached: dict[Stream, None] = {}  # those that have a client
        self._records: dict[tuple[str, str], Durable] = {}  # changed in this tick
        self._archives: dict[Archive, None] = {}
        self._trimmed = 0
        for record in records:
            self._add_durable(record)

    # Durable ones

    def open_durable(self, record: Durable, filter: Filter, user: str | None) -> Stream:
        """The durable subscription of that owner and name, made if there is none, with what was granted.

        `user` is who is bound by rules, None for whoever is not.
        """
        stream = self._durables.get((record.owner, record.name))
        if stream is None:
            check_readable(record.name, "the name of a durable subscription or of a reader")
            if len(self._durables) >= DURABLES_MAX:
                raise Refused("limit", f"a node has at most {DURABLES_MAX} durable subscriptions")
            self.keep(record)
            stream = self._add_durable(record, filter, user)
        return stream

    def find_durable(self, owner: str, name: str) -> Stream | None:
        """The durable subscription of that owner and name, if there is one."""
        return self._durables.get((owner, name))

    def end_durable(self, stream: Stream) -> None:
        """A durable subscription is wanted no longer."""
        record = stream.record
        assert record is not None
        del self._durables[record.owner, record.name]
        if isinstance(stream, Archive):
            del self._archives[stream]
        self._records.pop((record.owner, record.name), None)
        self._broker.store(Drop(record.name, record.owner))
        self.remove(stream)

    @property
    def named(self) -> list[Stream]:
        """All that outlive connections, by owner and name."""
        return list(self._durables.values())

    @property
    def archives(self) -> list[Archive]:
        """Those that keep things in the log under a name."""
        return list(self._archives)

    def review(self) -> None:
        """The rules may have changed: what is kept for a user is what it may subscribe to now."""
        for archive in self._archives:
            self.refilter(archive, archive.reach(self._broker.gate))
            archive.subscription.user = archive.permit(self._broker.gate).bound

    def _add_durable(self, record: Durable, filter: Filter | None = None, user: str | None = None) -> Stream:
        stream = self._made(record)
        stream.subscription.user = user
        if filter is not None:
            stream.subscription.filter = filter
        self._durables[record.owner, record.name] = stream
        if isinstance(stream, Archive):
            self._archives[stream] = None
        self.add(stream)
        return stream

    def _made(self, record: Durable) -> Stream:
        filter, terms = Filter(record.filter), terms_of(record.options)
        if terms.log:
            return Archive(self._broker, filter, record, terms)
        options = msgspec.msgpack.decode(record.options) if record.options else {}
        kind = NewestStream if options.get("newest") else Stream
        return kind(self._broker, filter, record.cursor + 1, record, passive=terms.passive)

    # All of them

    def add(self, stream: Stream) -> None:
        """A place in the stored stream is needed."""
        self._streams[stream] = None
        self._broker.exchange.subscribe(stream.subscription)

    def remove(self, stream: Stream) -> None:
        """It is needed no longer."""
        del self._streams[stream]
        self._broker.exchange.unsubscribe(stream.subscription)

    def refilter(self, stream: Stream, filter: Filter) -> None:
        """Give a named place another filter: what its client asks for or was granted may have changed."""
        assert stream.record is not None
        subscription, asked = stream.subscription, Filter(stream.record.filter)
        if (subscription.filter, subscription.asked) != (filter, asked):
            self._broker.exchange.unsubscribe(subscription)
            subscription.filter, subscription.asked = filter, asked
            self._broker.exchange.subscribe(subscription)

    def attach(self, stream: Stream) -> None:
        """It has a client."""
        self._attached[stream] = None

    def detach(self, stream: Stream) -> None:
        """It has none, or not any more."""
        self._attached.pop(stream, None)

    def read_on(self) -> None:
        """What has become durable may be what those with a client wait for."""
        for stream in self._attached:
            stream.read_on()

    # Commits

    @property
    def is_due(self) -> bool:
        """Whether any record is to be stored with this tick."""
        return bool(self._records)

    def keep(self, record: Durable) -> None:
        """Have what is kept of a durable subscription stored with this tick."""
        self._records[record.owner, record.name] = record

    def take_due(self) -> list[Operation]:
        """The records to be stored with this tick."""
        records, self._records = self._records, {}
        return [Put(record) for record in records.values()]

    def trim(self, after: int | None = None) -> list[Operation]:
        """What gives up what all have passed, now and then: `after` so many positions, or TRIM_AFTER."""
        # What is not on disk yet could go too, as commits are made in order: the store would only be asked to
        # drop what the same commit, or one before it that may still fail, brings it.
        on_disk = self._broker.position_durable
        cursors = (stream.cursor for stream in self._streams if not isinstance(stream, Archive))
        passed = min(min(cursors, default=on_disk), on_disk)  # what archives need is in the log
        if passed - self._trimmed < (TRIM_AFTER if after is None else after):
            return []
        self._trimmed = passed
        return [Trim(passed)]

    def status(self) -> list[dict[str, Any]]:
        """How the durable ones stand."""
        position = self._broker.position
        return [
            {"name": name, "owner": owner, "cursor": stream.cursor, "depth": position - stream.cursor}
            for (owner, name), stream in sorted(self._durables.items())
            if not (isinstance(stream, Archive) and stream.terms.left)
        ]

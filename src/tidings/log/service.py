"""Log service of a node: readers come and go, and read events again.

Logging itself does not happen here: the broker stores persistent events and those that archives want.
Reading, which takes long, is done by `LogHistory` in a thread; a client may read what it may subscribe to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from tidings.errors import NotAllowed, Refused
from tidings.filters import Filter
from tidings.log import arguments
from tidings.log.arguments import READ_SIZE_MAX
from tidings.log.history import LogAnswer, LogHistory
from tidings.log.retention import LogRetention, RetentionTerms
from tidings.protocol.access import Action, Principal
from tidings.protocol.archive import Archive, Terms
from tidings.protocol.broker import Broker
from tidings.protocol.channels import OTHER_EVENTS, Channels, filter_of
from tidings.protocol.cursor import Cursor, Options
from tidings.protocol.service import IncomingRequest, Service
from tidings.protocol.session import Session
from tidings.replies import Deferred
from tidings.store.interface import Discard, Durable
from tidings.timers import Leases

WAITING_SIZE_MAX = 4 * READ_SIZE_MAX
"""Bytes that may wait to be sent to a client before it may read more of the log."""
READS_MAX = 8
"""Reads of the log that one client may have under way."""
READERS_MAX = 1_000
"""Readers of one user, or of one client of the node's owner."""
KEPT_MAX = 100
"""Filters that are kept for one user, or for one client of the node's owner."""
LEFT_MAX = 1_000
"""Readers of one user, or of one client of the node's owner, that are known to have left; the oldest go."""
LEFT_S = 365 * 86_400.0
"""How long a departed reader is remembered."""
MEMORY_SIZE_MAX = 64 << 20
"""Bytes of events in the log of a node that has no directory; the oldest half goes when it is full."""

RIGHTS: tuple[Action, ...] = ("subscribe", "publish")
"""Actions of which a client can learn what its rules allow."""

_PASSIVE = Options(log=True, passive=True).encode()

Operations = Mapping[str, tuple[Any, Callable[[IncomingRequest, Any], Any]]]


class LogService(Service):
    """Log of a broker. `lasts`: stored events survive a restart, and so need not fit into memory."""

    def __init__(
        self,
        broker: Broker,
        history: LogHistory,
        lasts: bool,
        where: str | None = None,
        retention: RetentionTerms | None = None,
        seal_s: float | None = None,
    ) -> None:
        """`where` is the filter to keep by the settings, None for nothing beyond persistent events.

        After `seal_s` at the latest the log is to be sealed by the sealer; None if there is none.
        """
        self._broker = broker
        self._history = history
        self._lasts = lasts
        self.custody = LogRetention(broker, history, retention or RetentionTerms(), seal_s, self._go)
        self._reads: dict[Session, int] = {}
        self._thinned = 0  # the position up to which a log in memory was discarded
        self._size_thinned = 0  # and the bytes logged by then
        self._leases: Leases[Cursor] = Leases(attrgetter("ends_at"))
        for archive in broker.cursors.archives:
            self._watch(archive)
        self.scanned = 0  # bytes read for replies, ever
        self.searched = 0  # bytes in the store that filters were matched with for replies, ever
        self.operations: Operations = {
            "log.status": (arguments.Nothing, self._status),
            "log.rights": (arguments.Nothing, self._rights),
            "log.reader": (arguments.ReaderRequest, self._reader),
            "log.keep": (arguments.Keep, self._keep),
            "log.passed": (arguments.Passed, self._passed),
            "log.leave": (arguments.Leave, self._leave),
            "log.read": (arguments.ReadRequest, self._read),
            "log.at": (arguments.At, self._at),
            "log.find": (arguments.FindEventsRequest, self._find),
            **self.custody.operations,
        }
        if where is not None:
            start = broker.position
            broker.cursors.add(Archive(broker, Durable("", "", where, start, start, _PASSIVE), Terms()))

    # Readers and archives

    def _reader(self, asked: IncomingRequest, wanted: arguments.ReaderRequest) -> Any:
        until = None if wanted.lease_s is None else self._broker.wall + wanted.lease_s
        user = asked.session.principal.user
        terms = Terms(True, wanted.lease_s, until, user=user)
        if wanted.resume and self._broker.cursors.find(asked.session.owner, wanted.name) is None:
            problem = "its lease has ended, or it was removed; events that only it wanted were not kept"
            raise Refused("gone", f"the reader {wanted.name!r} is gone: {problem}")
        archive = self._open(asked.session, wanted.name, wanted.where, terms, wanted.passive, wanted.start)
        return {
            "cursor": archive.passed,
            "end": self._broker.end_logged,
            "first": self.custody.first,
            "node": self._broker.node,
        }

    def _keep(self, asked: IncomingRequest, wanted: arguments.Keep) -> Any:
        asked.session.principal.require("keep", "having what others publish kept in the log")
        terms = Terms(user=asked.session.principal.user)
        self._open(asked.session, wanted.name, wanted.where, terms, True, None)
        return {}

    def _open(
        self, session: Session, name: str, where: str, terms: Terms, passive: bool, start: int | None
    ) -> Archive:
        """Return the archive of that name, made if there is none; its filter and terms become these."""
        places, asked = self._broker.cursors, Filter(where)
        granted = session.narrow("subscribe", asked)
        found = places.find(session.owner, name)
        if found is None or found.has_left:
            self._check_room(session, terms)
            self._broker.exchange.unindexed.check(session.bound or "", granted)
            if found is not None:
                self._end(found)  # it comes back, with a start of its own
            cursor = self._broker.position if start is None else max(0, start - 1)
            options = Options(log=True, passive=passive).encode()
            record = Durable(name, session.owner, str(asked), cursor, cursor, options)
            archive = Archive(self._broker, record, terms, asked)
            archive.allow(granted, session.bound)
            places.open_archive(archive)
        else:
            archive = self._reopen(session, name, terms)
            archive.demand(passive)
            places.refilter(archive, asked, granted, session.bound)
        self._watch(archive)
        return archive

    def _reopen(self, session: Session, name: str, terms: Terms) -> Archive:
        """Go on with an existing archive; Refused if it is something else."""
        archive = self._broker.cursors.find_archive(session.owner, name)
        if archive is None or archive.terms.holds != terms.holds:
            raise Refused("exists", f"{name!r} is the name of something else")
        archive.renew(terms)
        return archive

    def _check_room(self, session: Session, terms: Terms) -> None:
        """Count a user as one, whatever its clients are called, but those of the owner one by one."""
        own = sum(
            not one.has_left and one.terms.holds is terms.holds and _is_of(one, terms.user, session.owner)
            for one in self._broker.cursors.archives
        )
        who = repr(terms.user or session.owner)
        if terms.holds and own >= READERS_MAX:
            raise Refused("limit", f"{who} has READERS_MAX = {READERS_MAX} readers of the log; end one first")
        if not terms.holds and own >= KEPT_MAX:
            raise Refused("limit", f"{who} has KEPT_MAX = {KEPT_MAX} filters kept in the log; end one first")

    def _passed(self, asked: IncomingRequest, wanted: arguments.Passed) -> Any:
        self._named(asked.session.owner, wanted.name).pass_to(wanted.position - 1)
        return {}

    def _leave(self, asked: IncomingRequest, wanted: arguments.Leave) -> Any:
        owner = asked.session.owner if wanted.owner is None else wanted.owner
        if owner != asked.session.owner:
            asked.session.principal.check_manage()
        archive = self._named(owner, wanted.name)
        self._end(archive)
        if wanted.resumable and archive.terms.holds:
            self._note_left(archive)
        return {}

    def _note_left(self, archive: Archive) -> None:
        """Keep a record that a reader has left, without any demand."""
        broker, user = self._broker, archive.terms.user
        left = [one for one in broker.cursors.archives if one.has_left and _is_of(one, user, archive.owner)]
        if len(left) >= LEFT_MAX:
            self._end(min(left, key=lambda one: one.ends_at))
        terms = Terms(lease_s=LEFT_S, until=broker.wall + LEFT_S, left=True, user=user)
        position = archive.acknowledged
        record = Durable(archive.name, archive.owner, "FALSE", position, position, _PASSIVE)
        kept = Archive(broker, record, terms)
        broker.cursors.open_archive(kept)
        self._watch(kept)

    def _named(self, owner: str, name: str) -> Archive:
        found = self._broker.cursors.find_archive(owner, name)
        if found is None or found.has_left:
            raise Refused("not-found", f"no reader of the log has the name {name!r}")
        return found

    # Reading

    def _read(self, asked: IncomingRequest, wanted: arguments.ReadRequest) -> Any:
        filter = asked.session.narrow_stored(Filter(wanted.where))
        if wanted.sealing:
            _check_sealer(asked.session)
        elif wanted.channel:
            admitted = self._channels.admit_reader(asked.session, wanted.channel)
            return admitted.map(lambda one: self._read_what(asked, wanted, filter & filter_of(one)))
        else:
            filter = self._without_channels(filter)
        return self._read_what(asked, wanted, filter)

    @property
    def _channels(self) -> Channels:
        if self._broker.channels is None:
            raise Refused("not-found", "this node has no channels")
        return self._broker.channels

    def _without_channels(self, filter: Filter) -> Filter:
        """Leave out the events of channels, which only members read: they ask for those of one channel."""
        channels = self._broker.channels
        return filter if channels is None or not channels.are_logged else filter & OTHER_EVENTS

    def _read_what(self, asked: IncomingRequest, wanted: arguments.ReadRequest, filter: Filter) -> Any:
        end = self._broker.end_logged
        if wanted.end is not None:
            end = min(end, wanted.end)

        def answer(found: LogAnswer) -> dict[str, Any]:
            self.scanned += found.scanned
            self.searched += found.searched
            return {"parts": found.parts, "next": found.next, "end": end}

        if wanted.start >= end:
            return answer(LogAnswer([], wanted.start))
        if wanted.collapse is not None:
            terms, node = wanted.collapse, self._broker.node
            skips = wanted.skip, wanted.skip_pruned
            return self._go(
                asked, lambda: self._history.collapse(wanted.start, end, filter, terms, node, *skips), answer
            )
        arguments = (
            wanted.start,
            end,
            filter,
            wanted.size_max,
            wanted.skip,
            wanted.columns,
            wanted.skip_pruned,
        )
        return self._go(asked, lambda: self._history.read(*arguments), answer)

    def _at(self, asked: IncomingRequest, wanted: arguments.At) -> Any:
        asked.session.principal.grant("subscribe")
        return self._go(
            asked, lambda: self._history.position_at(wanted.time_us), lambda found: {"position": found}
        )

    def _find(self, asked: IncomingRequest, wanted: arguments.FindEventsRequest) -> Any:
        filter = self._without_channels(asked.session.narrow_stored(Filter()))
        end = self._broker.end_logged
        return self._go(
            asked,
            lambda: self._history.find(wanted.ids, filter, wanted.start, end),
            lambda found: {"parts": found.parts, "next": found.next, "end": end},
        )

    def _go(
        self, asked: IncomingRequest, run: Callable[[], Any], answer: Callable[[Any], Any]
    ) -> Deferred[Any]:
        """Read the log for a client; the reply is the result of `answer`."""
        session = asked.session
        under_way = self._reads.get(session, 0)
        if under_way >= READS_MAX or session.outbox.size > WAITING_SIZE_MAX:
            raise Refused("limit", "too much of the log is under way to this client already")
        self._reads[session] = under_way + 1

        def ended(_outcome: object) -> None:
            if session in self._reads:
                self._reads[session] -= 1

        reading = self._broker.offload(run)
        reading.then(ended, ended)
        return reading.map(answer)

    def parted(self, session: Session, is_clean: bool) -> None:  # noqa: ARG002
        """Forget a session that has ended; reads in progress for it are dropped."""
        self._reads.pop(session, None)
        self.custody.parted(session)

    # Time

    def _watch(self, archive: Archive) -> None:
        self._leases.watch(archive)
        self._broker.timers.by(self._leases.wake_at, self._end_late)

    def _end_late(self, now: float) -> None:
        """End readers whose leases have expired."""
        for cursor in self._leases.ended(now):
            if not cursor.has_left:
                self._broker.count("leases_ended")
            self._end(cursor)
        self._broker.timers.at(self._leases.wake_at, self._end_late)

    def _end(self, cursor: Cursor) -> None:
        self._leases.cancel(cursor)
        self._broker.cursors.end(cursor)

    def finish_tick(self) -> None:
        """Note how the log has grown; one in memory must not grow without end."""
        broker = self._broker
        self.custody.finish_tick()
        if self._lasts or broker.size_logged - self._size_thinned < MEMORY_SIZE_MAX // 2:
            return
        if self._thinned:
            broker.store(Discard(self._thinned))
        self._thinned, self._size_thinned = broker.position, broker.size_logged
        for operation in broker.cursors.trim(after=1):  # discards only what earlier commits have trimmed
            broker.store(operation)

    # Status

    def _status(self, asked: IncomingRequest, _wanted: arguments.Nothing) -> Any:
        """Return the status, which needs the right to subscribe; other readers need the right to manage."""
        broker, session = self._broker, asked.session
        manages = session.principal.manages
        if not manages:
            session.principal.grant("subscribe")
        readers = [_reader_fields(archive) for archive in broker.cursors.archives if not archive.has_left]
        return {
            "node": broker.node,
            "name": broker.name,
            **self._figures(),
            "folder": self._history.sealed.place if manages else "",
            "wanted": self.custody.wanted,
            "readers": [one for one in readers if manages or one["owner"] == session.owner],
        }

    def _rights(self, asked: IncomingRequest, _wanted: arguments.Nothing) -> Any:
        """Return what this client may subscribe to and publish, as filters: those of its own rules."""
        principal = asked.session.principal
        return {action: str(_granted(principal, action)) for action in RIGHTS}

    def _figures(self) -> dict[str, int]:
        broker, custody = self._broker, self.custody
        return {
            "first": custody.first,
            "end": broker.end_logged,
            "sealed": custody.sealed_last,
            "bytes": broker.size_logged,
            "files": custody.span.files,
            "sealed_bytes": custody.span.size,
        }

    def status(self) -> dict[str, Any]:
        """Return the log's part of the node's status."""
        return {"log": self._figures()}


def _granted(principal: Principal, action: Action) -> Filter:
    try:
        return principal.grant(action) or Filter()
    except NotAllowed:
        return ~Filter()


def _is_of(archive: Archive, user: str, owner: str) -> bool:
    """Whether it is the user's, or that of a client of the node's owner, who count one by one."""
    return archive.terms.user == user and (bool(user) or archive.owner == owner)


def _reader_fields(archive: Archive) -> dict[str, Any]:
    return {
        "name": archive.name,
        "owner": archive.owner,
        "filter": str(archive.filter),
        "cursor": archive.passed,
        "holds": archive.terms.holds,
        "passive": archive.subscription.passive,
        "lease_s": archive.terms.lease_s,
    }


def _check_sealer(session: Session) -> None:
    """Raise NotAllowed for who is not the node's own sealer, which comes over the node's own socket."""
    if session.caller.host is not None or session.principal.rules is not None:
        raise NotAllowed("only the sealer of a node reads all that is in its log")

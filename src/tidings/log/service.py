"""What a node does about its log when clients ask: readers come and go, and events are read again.

The log itself needs nobody here: the broker stores what archives want and what is persistent. Reading, which
takes long, is an errand of `History`; what it may tell is what the client may subscribe to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any

import msgspec

from tidings.errors import Refused
from tidings.filters import Filter
from tidings.log import arguments
from tidings.log.arguments import READ_SIZE_MAX
from tidings.log.history import Answer, History, Span
from tidings.log.sealing import Schedule
from tidings.protocol.archive import Archive, Terms
from tidings.protocol.broker import Broker
from tidings.protocol.bystander import Bystander
from tidings.protocol.errands import Errand
from tidings.protocol.service import LATER, Asked
from tidings.protocol.session import Session
from tidings.store.interface import Discard, Durable, Trim

WAITING_SIZE_MAX = 4 * READ_SIZE_MAX
"""Bytes that may wait to be sent to a client before it may ask for more of the log."""
READS_MAX = 8
"""Readings of the log that one client may have under way."""
MEMORY_SIZE_MAX = 64 << 20
"""Bytes of events in the log of a node that has no directory; the oldest half goes when it is full."""
RETAIN_S = 60.0
"""How often it is looked whether something is too old or too much."""

Operations = Mapping[str, tuple[Any, Callable[[Asked, Any], Any]]]


class Retention(msgspec.Struct, frozen=True):
    """What the settings say of how long the log is kept."""

    age_s_max: float | None = None
    size_max: int | None = None

    @property
    def is_endless(self) -> bool:
        """Whether everything is kept for ever."""
        return self.age_s_max is None and self.size_max is None


class LogService(Bystander):
    """The log of a broker. `lasts`: what is stored survives a restart, and so need not fit into memory."""

    def __init__(
        self,
        broker: Broker,
        history: History,
        lasts: bool,
        where: str | None = None,
        retention: Retention | None = None,
        seal_s: float | None = None,
    ) -> None:
        """`where` is what the settings have kept, None for nothing beyond persistent events.

        After `seal_s` at the latest the log is to be sealed, which others do; None if nobody does.
        """
        self._broker = broker
        self._history = history
        self._lasts = lasts
        self._retention = retention or Retention()
        self._retain_at = broker.now + RETAIN_S
        self._span = history.sealed.span()
        self._schedule = Schedule(seal_s, self._sealed_last, broker.now)
        self._look_back()
        self._reads: dict[Session, int] = {}
        self._sealings: list[tuple[int, Asked]] = []  # who waits for the log to be sealed up to where
        self._thinned = 0  # the position up to which a log in memory was given up
        self._size_thinned = 0  # and how many bytes had been logged then
        self.scanned = 0  # bytes of answers, ever: how much is read of the log
        self.operations: Operations = {
            "log.status": (arguments.Nothing, self._status),
            "log.reader": (arguments.Reader, self._reader),
            "log.keep": (arguments.Keep, self._keep),
            "log.passed": (arguments.Passed, self._passed),
            "log.leave": (arguments.Leave, self._leave),
            "log.read": (arguments.Read, self._read),
            "log.at": (arguments.At, self._at),
            "log.find": (arguments.Find, self._find),
            "log.seal": (arguments.Nothing, self._seal),
            "log.sealed": (arguments.Sealed, self._sealed),
            "log.prune": (arguments.Prune, self._prune),
            "log.verify": (arguments.Verify, self._verify),
        }
        if where is not None:
            broker.places.add(Archive(broker, Filter(where)))

    # Who reads

    def _reader(self, asked: Asked, wanted: arguments.Reader) -> Any:
        until = None if wanted.lease_s is None else self._broker.now + wanted.lease_s
        terms = Terms(True, wanted.passive, True, wanted.lease_s, until)
        archive = self._open(asked.session, wanted.name, wanted.where, terms, wanted.start)
        return {
            "cursor": archive.cursor,
            "end": self._broker.end_logged,
            "first": self._first,
            "node": self._broker.node,
        }

    def _keep(self, asked: Asked, wanted: arguments.Keep) -> Any:
        self._open(asked.session, wanted.name, wanted.where, Terms(log=True, passive=True), None)
        return {}

    def _open(self, session: Session, name: str, where: str, terms: Terms, start: int | None) -> Archive:
        """The archive of that name, made if there is none; its filter and terms are these from now on."""
        places, asked = self._broker.places, Filter(where)
        granted = session.narrow("subscribe", asked)
        cursor = self._broker.position if start is None else max(0, start - 1)
        record = Durable(name, session.owner, str(asked), cursor, cursor, msgspec.msgpack.encode(terms))
        archive = places.open_durable(record)
        if not isinstance(archive, Archive) or archive.terms.holds != terms.holds:
            raise Refused("exists", f"{name!r} is the name of something else")
        archive.want(asked)
        archive.renew(terms)
        places.refilter(archive, granted)
        return archive

    def _passed(self, asked: Asked, told: arguments.Passed) -> Any:
        self._named(asked.session, told.name).pass_to(told.position - 1)
        return {}

    def _leave(self, asked: Asked, told: arguments.Leave) -> Any:
        self._broker.places.end_durable(self._named(asked.session, told.name))
        return {}

    def _named(self, session: Session, name: str) -> Archive:
        found = self._broker.places.find_durable(session.owner, name)
        if not isinstance(found, Archive):
            raise Refused("not-found", f"nobody reads the log under the name {name!r}")
        return found

    # Reading

    def _read(self, asked: Asked, wanted: arguments.Read) -> Any:
        filter = asked.session.narrow("subscribe", Filter(wanted.where))
        end = self._broker.end_logged
        if wanted.end is not None:
            end = min(end, wanted.end)

        def answer(found: Answer) -> dict[str, Any]:
            self.scanned += found.scanned
            return {"parts": found.parts, "next": found.next, "end": end}

        if wanted.start >= end:
            return answer(Answer([], wanted.start))
        arguments = wanted.start, end, filter, wanted.size_max, wanted.skip, wanted.columns
        return self._go(asked, lambda: self._history.read(*arguments), answer)

    def _at(self, asked: Asked, wanted: arguments.At) -> Any:
        return self._go(
            asked, lambda: self._history.position_at(wanted.time_us), lambda found: {"position": found}
        )

    def _find(self, asked: Asked, wanted: arguments.Find) -> Any:
        filter, end = asked.session.narrow("subscribe", Filter()), self._broker.end_logged
        return self._go(
            asked,
            lambda: self._history.find(wanted.ids, filter, end),
            lambda found: {"parts": found.parts},
        )

    def _go(self, asked: Asked, run: Callable[[], Any], answer: Callable[[Any], Any]) -> Any:
        """Have the log read for a client, which is told when that is done."""
        session = asked.session
        under_way = self._reads.get(session, 0)
        if under_way >= READS_MAX or session.outbox.size > WAITING_SIZE_MAX:
            raise Refused("limit", "too much of the log is under way to this client already")
        self._reads[session] = under_way + 1

        def done(found: Any) -> None:
            self._ended(session)
            asked.answer(answer(found), self._broker.promise)

        def failed(error: Any) -> None:
            self._ended(session)
            asked.fail(error)

        self._broker.send(Errand(run, done, failed))
        return LATER

    def _ended(self, session: Session) -> None:
        if session in self._reads:
            self._reads[session] -= 1

    def parted(self, session: Session, is_clean: bool) -> None:  # noqa: ARG002
        """A session has ended; what is still read for it is told to nobody."""
        self._reads.pop(session, None)
        self._sealings = [one for one in self._sealings if one[1].session is not session]

    # Sealing and pruning

    @property
    def _sealed_last(self) -> int:
        """The position up to which nothing is left to be sealed."""
        return max(self._span.last, self._history.discarded)

    def _look_back(self) -> None:
        """See what a node that was started anew has not sealed, and since when that waits."""
        since_us = self._history.waiting_us(self._sealed_last + 1)
        if since_us is not None:
            self._schedule.grown(self._broker.end_logged - 1, 0, self._broker.now)
            self._schedule.waited(since_us / 1e6)

    def wanted(self, now: float) -> int:
        """The position up to which the log is to be sealed now; 0 if it need not be."""
        return self._schedule.due(now)

    def _seal(self, asked: Asked, _told: arguments.Nothing) -> Any:
        """Answer when all there is now has been sealed, which others do: see `log.status`."""
        asked.session.permit.check_manage()
        last = self._broker.end_logged - 1
        if last <= self._sealed_last:
            return {"sealed": last}
        if self._schedule.wait_s is None:
            raise Refused("not-found", "this node seals nothing: it has no directory, or was told so")
        self._schedule.grown(last, self._broker.size_logged, self._broker.now)
        self._schedule.ask(last)
        self._sealings.append((last, asked))
        return LATER

    def _sealed(self, asked: Asked, told: arguments.Sealed) -> Any:
        asked.session.permit.check_manage()
        return self._go(
            asked, self._history.sealed.refresh, lambda span: self._take_sealed(span, told.position)
        )

    def _take_sealed(self, span: Span, position: int) -> dict[str, Any]:
        """Give up in the store what files have, as far as no subscription needs it there.

        Who seals may be further than the files are: then there was nothing to be put into one.
        """
        self._span = span
        done = min(max(position, span.last), self._broker.end_logged - 1)
        self._schedule.sealed(done, self._broker.now)
        self._discard()
        for end, waiting in self._sealings:
            if end <= done:
                waiting.answer({"sealed": done}, self._broker.promise)
        self._sealings = [one for one in self._sealings if one[0] > done]
        return {"sealed": done}

    def _discard(self) -> None:
        """Have the store give up what files have; what is trimmed now is discarded with the next call."""
        for operation in self._broker.places.trim(after=1):
            self._broker.store(operation)
        self._broker.store(Discard(min(self._span.last, self._broker.end_logged - 1)))

    def _prune(self, asked: Asked, told: arguments.Prune) -> Any:
        asked.session.permit.check_manage()
        if told.before is None and told.before_us is None and told.size_max is None:
            raise Refused("not-understood", "say before which position or time, or to which size")
        top = self._broker.end_logged if told.before is None else told.before
        limit = top if told.force else min(top, self._needed)

        def run() -> tuple[int, Span]:
            spent = self._history.sealed.spent(top, told.before_us, told.size_max)
            return spent, self._pruned(limit, told.before_us, told.size_max)

        def answer(found: tuple[int, Span]) -> dict[str, Any]:
            spent, self._span = found
            held_for = [] if told.force else self._holders(spent)
            return {"first": self._first, "kept_for": held_for, "bytes": self._span.size}

        return self._go(asked, run, answer)

    def _pruned(self, limit: int, before_us: int | None, size_max: int | None) -> Span:
        """Remove files; called in a thread. What the store has still is in the log, and stays in files."""
        return self._history.sealed.prune(min(limit, self._history.discarded + 1), before_us, size_max)

    def _verify(self, asked: Asked, told: arguments.Verify) -> Any:
        asked.session.permit.check_manage()
        start, end = max(told.start, 1), self._broker.end_logged

        def answer(found: tuple[list[str], int]) -> dict[str, Any]:
            return {"problems": found[0], "next": max(found[1], start + 1), "end": end}

        if start >= end:
            return {"problems": [], "next": start, "end": end}
        return self._go(asked, lambda: self._history.verify(start, end), answer)

    @property
    def _needed(self) -> int:
        """The lowest position that some reader has not passed."""
        places = self._broker.places
        return min((stream.cursor for stream in places.named), default=self._broker.position) + 1

    def _holders(self, spent: int) -> list[str]:
        """The readers for whose sake something up to the position is kept."""
        places = self._broker.places
        return [one.record.name for one in places.named if one.record and one.cursor < spent]

    # Time

    @property
    def wake_at(self) -> float:
        """When a lease ends, or retention is looked after."""
        leases = min((archive.ends_at for archive in self._broker.places.archives), default=inf)
        return leases if self._retention.is_endless else min(leases, self._retain_at)

    def wake(self, now: float) -> None:
        """End readers that were not heard of, and give up what is too old or too much."""
        for archive in self._broker.places.archives:
            if archive.ends_at <= now:
                self._broker.count("leases_ended")
                self._broker.places.end_durable(archive)
        if now >= self._retain_at and not self._retention.is_endless:
            self._retain_at = now + RETAIN_S
            self._retain(now)

    def _retain(self, now: float) -> None:
        age_s, size = self._retention.age_s_max, self._retention.size_max
        before_us = None if age_s is None else int((now - age_s) * 1e6)
        limit = self._needed
        self._discard()

        def done(span: Span) -> None:
            self._span = span

        def failed(_error: Any) -> None:
            self._broker.count("failures", reason="log")

        self._broker.send(Errand(lambda: self._pruned(limit, before_us, size), done, failed))

    def finish_tick(self) -> None:
        """Note how the log has grown; one in memory must not grow for ever."""
        broker = self._broker
        self._schedule.grown(broker.end_logged - 1, broker.size_logged, broker.now)
        if self._lasts or broker.size_logged - self._size_thinned < MEMORY_SIZE_MAX // 2:
            return
        if self._thinned:
            broker.store(Trim(self._thinned))
            broker.store(Discard(self._thinned))
        self._thinned, self._size_thinned = broker.position, broker.size_logged

    # What is told

    @property
    def _first(self) -> int:
        return self._span.first if self._span.files else self._history.discarded + 1

    def _status(self, _asked: Asked, _told: arguments.Nothing) -> Any:
        broker, span = self._broker, self._span
        return {
            "node": broker.node,
            "name": broker.name,
            "first": self._first,
            "end": broker.end_logged,
            "sealed": self._sealed_last,
            "bytes": broker.size_logged,
            "files": span.files,
            "sealed_bytes": span.size,
            "folder": self._history.sealed.place,
            "wanted": self.wanted(broker.now),
            "readers": [_told_of(archive) for archive in broker.places.archives],
        }

    def status(self) -> dict[str, Any]:
        """What the node says of its log, beside what the broker says."""
        told = {
            "first": self._first,
            "end": self._broker.end_logged,
            "sealed": self._sealed_last,
            "files": self._span.files,
            "sealed_bytes": self._span.size,
            "bytes": self._broker.size_logged,
        }
        return {"log": told}


def _told_of(archive: Archive) -> dict[str, Any]:
    record, terms = archive.record, archive.terms
    assert record is not None
    return {
        "name": record.name,
        "owner": record.owner,
        "filter": record.filter,
        "cursor": archive.cursor,
        "holds": terms.holds,
        "passive": terms.passive,
        "lease_s": terms.lease_s,
    }

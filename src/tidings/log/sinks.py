"""Sinks: targets to which jobs of many tasks publish all their rows at once, each once, or none of them.

Tasks stage rows, which no consumer sees. A commit names the attempts whose rows count, and all of these are
published in one tick: no consumer gets any of them before the store's commit that has all of them together
with the sink's progress. So a batch that comes again does nothing, and its staged rows are dropped; the same
number of another query is no repetition, and refused. A job without batches is known by its run in the same
way. The user is part of the name of a sink: users share none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from hashlib import sha256
from math import inf
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from tidings.errors import CodecError, NotAllowed, Refused
from tidings.event import Batch
from tidings.event.wire import Checked, check
from tidings.ids import ForwardedOrigin, new_system
from tidings.log.sink_staging import (
    BYTES_EACH,
    DONE,
    Done,
    Pieces,
    RunKey,
    SinkKey,
    StagedPiece,
    Staging,
    apart,
    restore,
    stored_piece,
)
from tidings.protocol.arguments import Name, Number, check_readable
from tidings.protocol.broker import Broker
from tidings.protocol.ledger import check_growing
from tidings.protocol.service import IncomingRequest, Service
from tidings.protocol.session import Session
from tidings.queues import QueueManager, Volatile, open_queues
from tidings.store.interface import Dequeue, Enqueue, Operation, Store, StoredMessage

PIECE_SIZE_MAX = 4 << 20
"""Bytes of the events that are staged at once."""
SINK_SIZE_MAX = 256 << 20
"""Bytes that are staged for one sink, and so those that can be published at once."""
STAGED_SIZE_MAX = 1 << 30
"""Bytes that are staged at a node."""
SINKS_MAX = 10_000
"""Sinks whose progress a node remembers."""
SINKS_EACH_MAX = 1_000
"""Sinks of one user among them."""
UNUSED_S = 30 * 86_400.0
"""Time without a publication after which a sink can be forgotten, to make room for another."""
LEFT_S = 6 * 3_600.0
"""How long staged rows wait in a run in which nothing more is staged, before they are dropped."""
IDLE_S = 10 * 60.0
"""The same if there is no room for other rows of this sink."""

BATCH_MAX = 2**62


class Stage(Struct, frozen=True):
    """Arguments of a sink.stage request: `raw` is an array of events with its head."""

    sink: Name
    run: Name
    attempt: Name
    number: Number
    raw: bytes


class CommitRequest(Struct, frozen=True):
    """Arguments of a sink.commit request: the number of pieces of each attempt whose rows count, in order.

    `query` identifies the query of the batch: the same when a batch is repeated, and another when batches
    are numbered anew.
    """

    sink: Name
    run: Name
    batch: Annotated[int, Meta(ge=0, lt=BATCH_MAX)] | None = None
    attempts: dict[Name, Number] = {}
    query: Name | None = None


class Abort(Struct, frozen=True):
    """Arguments of a sink.abort request: these attempts, or all of the run."""

    sink: Name
    run: Name
    attempts: list[Name] | None = None


class Sinks(Service):
    """Service for the sinks of a node; added after that of the queues, in whose store pieces lie."""

    def __init__(self, manager: QueueManager, staged: Sequence[StoredMessage] = ()) -> None:
        """`staged` are the pieces of sinks among the stored messages of queues."""
        self._manager = manager
        self._broker = manager.broker
        self._done = DONE.known(self._broker.state)
        self._staging = Staging(self._charge)
        useless = restore(self._staging, staged, lambda moment: self._broker.deadline(moment, 0.0))
        self._store_drop(useless)
        self._broker.timers.at(self._left_at, self._give_up_left)
        numbers = manager.numbers
        numbers.last = max([numbers.last, *(one.number for one in staged)])
        self.operations = {
            "sink.stage": (Stage, self._stage),
            "sink.commit": (CommitRequest, self._commit),
            "sink.abort": (Abort, self._abort),
        }

    # Staging

    def _charge(self, user: str, size: int) -> None:
        """Charge a user's account for its staged bytes."""
        memory = self._broker.memory
        memory.charge(memory.user(user), size)

    def _stage(self, asked: IncomingRequest, wanted: Stage) -> dict[str, int]:
        """Stage a piece, unless it is there already; return the number of rows in the attempt."""
        session, key = asked.session, _key(asked, wanted)
        pieces = self._staging.pieces(key, wanted.attempt)
        if wanted.number > len(pieces):
            problem = (
                f"piece {wanted.number} can't follow: {len(pieces)} are staged, the others were given up"
            )
            raise Refused("incomplete", f"attempt {wanted.attempt!r} of sink {wanted.sink!r}: {problem}")
        if not pieces:
            check_readable(wanted.sink, "the name of a sink")
        if wanted.number == len(pieces):
            self._check_room(key, len(wanted.raw))
            self._broker.memory.user(key[0]).check(len(wanted.raw))
            checked = _checked(wanted.raw, pieces)
            self._check_granted(session, Batch(wanted.raw, None, checked.offsets), _rows(pieces))
            self._take(session, key, wanted, checked)
        return {"rows": _rows(self._staging.pieces(key, wanted.attempt))}

    def _take(self, session: Session, key: RunKey, wanted: Stage, checked: Checked) -> None:
        assert session.origin is not None
        number = self._manager.numbers.next(self._broker.wall)
        piece = StagedPiece(number, wanted.raw, session.origin.source, checked)
        self._staging.add(key, wanted.attempt, piece, self._broker.now)
        self._broker.timers.by(self._left_at, self._give_up_left)
        stored = Enqueue(stored_piece(key, wanted.attempt, wanted.number, piece))
        self._manager.keep([stored], partial(self._staging.remove, key, wanted.attempt, piece))

    def _check_room(self, key: RunKey, size: int) -> None:
        if size > PIECE_SIZE_MAX:
            problem = f"{size} bytes are staged at once; at most PIECE_SIZE_MAX = {PIECE_SIZE_MAX} can be"
            raise Refused("too-large", problem)
        size += BYTES_EACH
        if self._staged(key) + size > SINK_SIZE_MAX or self._staging.size + size > STAGED_SIZE_MAX:
            for other in self._staging.idle(key, self._broker.now - IDLE_S):  # which seem to be dead
                self._give_up(other)
        if self._staged(key) + size > SINK_SIZE_MAX:
            staged = f"has {self._staged(key)} bytes staged, and {size} more are"
            hint = "write less at a time; a stream that reads tidings does with maxOffsetsPerTrigger"
            raise Refused("limit", f"sink {key[1]!r} {staged} above SINK_SIZE_MAX = {SINK_SIZE_MAX}: {hint}")
        if self._staging.size + size > STAGED_SIZE_MAX:
            problem = f"above STAGED_SIZE_MAX = {STAGED_SIZE_MAX}: others are staging too, try again later"
            raise Refused(
                "limit", f"the sinks of this node have {self._staging.size} bytes, and more are {problem}"
            )

    def _staged(self, key: RunKey) -> int:
        return self._staging.sizes.get(key[:2], 0)

    def _check_granted(self, session: Session, batch: Batch, first: int) -> None:
        """Raise NotAllowed for the first event that a client may not publish; `first`: rows before these."""
        if session.granted is None and session.bound is None:
            return
        for row in range(len(batch)):
            if not session.may_publish(batch, row):
                raise NotAllowed(_refusal(session, batch, row, first))

    # The end of a run

    def _commit(self, asked: IncomingRequest, wanted: CommitRequest) -> dict[str, Any]:
        """Publish all rows of these attempts, unless that was done before; return their number."""
        session, key = asked.session, _key(asked, wanted)
        done = self._done.get(key[:2], Done())
        if done.has(wanted.batch, wanted.run, wanted.query):
            self._give_up(key)
            return {"published": 0, "repeated": True}
        self._check_commit(key, done, wanted)
        pieces = {attempt: self._staging.pieces(key, attempt) for attempt in wanted.attempts}
        for attempt in pieces.values():
            self._check_pieces(session, attempt)
        self._conclude(key, done, wanted)
        for name, attempt in pieces.items():
            self._publish(session, self._origin(key, name, wanted.batch), attempt)
        return {"published": sum(map(_rows, pieces.values())), "repeated": False}

    def _check_commit(self, key: RunKey, done: Done, wanted: CommitRequest) -> None:
        if wanted.batch is not None and done.batch is not None and wanted.batch <= done.batch:
            whose = " of another query" if done.is_anothers(wanted.query) else ""
            problem = f"has batch {done.batch}{whose} already, so batch {wanted.batch} can't be a new one"
            why = "the query's checkpoint was deleted, or another query has this sink: choose another name"
            raise Refused("passed", f"sink {wanted.sink!r} {problem}; {why}")
        missing = self._staging.missing(key, wanted.attempts)
        if missing:
            problem = f"run {wanted.run!r} is not all staged: {'; '.join(missing[:3])}"
            raise Refused("incomplete", f"sink {wanted.sink!r}: {problem}")

    def _check_pieces(self, session: Session, pieces: list[StagedPiece]) -> None:
        """Check the rights again: they may have changed since these were staged."""
        first = 0
        for piece in pieces:
            self._check_granted(session, Batch(piece.raw, None, piece.checked.offsets), first)
            first += piece.rows

    def _conclude(self, key: RunKey, done: Done, wanted: CommitRequest) -> None:
        """End the run, and note the batch as done; all of it is undone if it can't be stored."""
        sink, now_us = key[:2], int(self._broker.wall * 1e6)
        forgotten = self._make_room(sink)
        if wanted.batch is None:
            after = done.with_run(wanted.run, now_us)
        else:
            after = done.with_batch(wanted.batch, wanted.query, now_us)
        dropped = self._staging.drop(key)
        self._done[sink] = after
        operations: list[Operation] = [Dequeue(one.number) for pieces in dropped.values() for one in pieces]
        operations += [DONE.set(sink, after), *map(DONE.drop, forgotten)]
        self._manager.keep(operations, partial(self._undo, key, done, dropped, forgotten))

    def _make_room(self, sink: SinkKey) -> dict[SinkKey, Done]:
        """Forget the sink unused for longest if there can't be one more; Refused if it may be needed."""
        if sink in self._done:
            return {}
        own = [other for other in self._done if other[0] == sink[0]]
        is_users = len(own) >= SINKS_EACH_MAX
        if not is_users and len(self._done) < SINKS_MAX:
            return {}
        oldest = min(own if is_users else self._done, key=lambda other: self._done[other].used_us)
        if self._done[oldest].used_us / 1e6 + UNUSED_S > self._broker.wall:
            limit = f"SINKS_EACH_MAX = {SINKS_EACH_MAX}" if is_users else f"SINKS_MAX = {SINKS_MAX}"
            problem = f"there are {limit} sinks already, all used in the last {UNUSED_S / 86_400:g} days"
            raise Refused("limit", f"sink {sink[1]!r} can't be one more: {problem}; use one of them")
        return {oldest: self._done.pop(oldest)}

    def _undo(self, key: RunKey, done: Done, dropped: Pieces, forgotten: dict[SinkKey, Done]) -> None:
        self._done[key[:2]] = done
        if done == Done():
            del self._done[key[:2]]
        self._done.update(forgotten)
        self._staging.put_back(key, dropped, self._broker.now)
        self._broker.timers.by(self._left_at, self._give_up_left)

    def _publish(self, session: Session, origin: ForwardedOrigin, pieces: list[StagedPiece]) -> None:
        for piece in pieces:
            if piece.rows:
                checked = piece.checked
                batch = Batch(
                    piece.raw, ForwardedOrigin(origin.system, origin.epoch, piece.source), checked.offsets
                )
                self._broker.publishing.hand_on(batch, checked, session, waits=True)

    def _origin(self, key: RunKey, attempt: str, batch: int | None) -> ForwardedOrigin:
        """Return the origin of an attempt's rows: a system of its own, and the batch as the epoch.

        So ids are the same however often a commit is tried, and no two commits share one.
        """
        named = sha256(msgspec.msgpack.encode((self._broker.node, *key, attempt))).digest()
        return ForwardedOrigin(new_system(lambda size: named[:size]), 0 if batch is None else batch + 1)

    def _abort(self, asked: IncomingRequest, unwanted: Abort) -> None:
        """Forget staged rows; an unknown run is no error."""
        self._give_up(_key(asked, unwanted), unwanted.attempts)

    def _give_up(self, key: RunKey, attempts: list[str] | None = None) -> None:
        dropped = self._staging.drop(key, attempts)
        self._store_drop(piece.number for pieces in dropped.values() for piece in pieces)

    def _store_drop(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._broker.store(Dequeue(number))

    # Time

    @property
    def _left_at(self) -> float:
        """Return when the oldest idle run expires."""
        oldest = next(iter(self._staging.runs.values()), None)
        return inf if oldest is None else oldest.touched + LEFT_S

    def _give_up_left(self, now: float) -> None:
        """Drop idle runs that have expired."""
        while self._left_at <= now:
            self._give_up(next(iter(self._staging.runs)))
        self._broker.timers.at(self._left_at, self._give_up_left)

    def status(self) -> dict[str, Any]:
        """Return the status of the sinks."""
        sinks = sorted({*self._done, *self._staging.sizes})
        return {"sinks": [self._sink_status(user, sink) for user, sink in sinks]}

    def _sink_status(self, user: str, sink: str) -> dict[str, Any]:
        done, staged = self._done.get((user, sink), Done()), self._staging.sizes.get((user, sink), 0)
        return {"name": sink, "owner": user, "batch": done.batch, "staged_bytes": staged}


def open_sinks(
    broker: Broker, store: Store, lasts: bool, types: Iterable[type[Volatile]] = ()
) -> QueueManager:
    """Give a broker its queues, as `open_queues` does, and its sinks beside them, with the stored pieces."""
    staged: list[StoredMessage] = []
    manager = open_queues(broker, store, lasts, types, apart(store.messages(), staged))
    broker.add(Sinks(manager, staged))
    return manager


def _key(asked: IncomingRequest, wanted: Stage | CommitRequest | Abort) -> RunKey:
    """Return the key of the run, for the requesting user; NotAllowed if it may not publish anything."""
    principal = asked.session.principal
    principal.grant("publish")
    return principal.user, wanted.sink, wanted.run


def _checked(raw: bytes, pieces: list[StagedPiece]) -> Checked:
    """Return facts about events that follow those of these pieces; Refused, naming row and place, if bad."""
    try:
        checked = check(raw)
        last = next((piece.checked.counters[-1] for piece in reversed(pieces) if piece.rows), 0)
        if len(checked.counters):
            check_growing(checked.counters, last)
    except CodecError as error:
        raise Refused("event", f"{_placed(error.place, _rows(pieces))}: {error.problem}") from None
    return checked


def _placed(place: str, first: int) -> str:
    """Convert a place among the events of a piece to one among the attempt's rows: `row 1017, $.priority`."""
    head, bracket, rest = place.removeprefix("$[").partition("]")
    return f"row {first + int(head)}, ${rest}" if bracket and head.isdigit() else place


def _rows(pieces: Iterable[StagedPiece]) -> int:
    return sum(piece.rows for piece in pieces)


def _refusal(session: Session, batch: Batch, row: int, first: int) -> str:
    """Return why a row may not be published; `first`: rows before these."""
    problem = session.broker.answers.refusal(session.principal, batch, row)
    if not problem and session.granted is not None:
        problem = f"{session.principal.user!r} may publish only what matches: {session.granted.filter}"
    return f"{problem}; row {first + row} does not"

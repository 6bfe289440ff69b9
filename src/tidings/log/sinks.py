"""Sinks: where jobs of many tasks publish all their rows at once, each once, or none of them.

Tasks stage rows; what is staged is seen by nobody. A commit names the attempts whose rows count, and all of
these are published in one tick: nobody has any of them before the commit of the store that has all of them
and, with them, that this batch was done. So a batch that comes again does nothing, and what was staged for it
goes. A job without batches is known by its run in the same way. Whose a sink is, is part of its name: users
do not meet there.
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
from tidings.event.check import Checked, check
from tidings.ids import Handed, new_system
from tidings.log.staging import BYTES_EACH, Piece, Pieces, RunKey, SinkKey, apart, restore, stored_piece
from tidings.protocol.arguments import Name, Number
from tidings.protocol.broker import Broker
from tidings.protocol.bystander import Bystander
from tidings.protocol.ledger import check_growing
from tidings.protocol.service import Asked
from tidings.protocol.session import Session
from tidings.queues import QueueManager, Volatile, open_queues
from tidings.store.interface import Count, Counter, Dequeue, Enqueue, Operation, Store, StoredMessage

PIECE_SIZE_MAX = 4 << 20
"""Bytes of the events that are staged at once."""
SINK_SIZE_MAX = 256 << 20
"""Bytes that are staged for one sink, and so those that can be published at once."""
STAGED_SIZE_MAX = 1 << 30
"""Bytes that are staged at a node."""
SINKS_MAX = 10_000
"""Sinks of which a node remembers what was done."""
RUNS_KEPT = 256
"""Runs without batches that are remembered of one sink, the last ones."""
LEFT_S = 6 * 3_600.0
"""How long staged rows wait in a run in which nothing more is staged, before they go."""

BATCH_MAX = 2**62
_SINK = "sink:"  # no client's system has a colon in its name


class Stage(Struct, frozen=True):
    """The arguments of a sink.stage request: `raw` is an array of events with its head."""

    sink: Name
    run: Name
    attempt: Name
    number: Number
    raw: bytes


class Commit(Struct, frozen=True):
    """The arguments of a sink.commit request: how many pieces each attempt has whose rows count, in order."""

    sink: Name
    run: Name
    batch: Annotated[int, Meta(ge=0, lt=BATCH_MAX)] | None = None
    attempts: dict[Name, Number] = {}


class Abort(Struct, frozen=True):
    """The arguments of a sink.abort request: these attempts, or all of the run."""

    sink: Name
    run: Name
    attempts: list[Name] | None = None


class Done(Struct):
    """What was published of a sink: up to which batch, and the last runs that had none."""

    batch: int | None = None
    runs: dict[int, int] = {}  # digests of their names, the last one last, and in which record they stand

    def has(self, wanted: Commit) -> bool:
        """Whether this was done before."""
        if wanted.batch is None:
            return _digest(wanted.run) in self.runs
        return self.batch == wanted.batch


class Sinks(Bystander):
    """See the module; a service of the broker, behind that of the queues, in whose store pieces lie."""

    def __init__(
        self, manager: QueueManager, counters: Iterable[Counter] = (), staged: Sequence[StoredMessage] = ()
    ) -> None:
        """`counters` and `staged` are what was stored, of sinks among others, and for them."""
        self._manager = manager
        self._broker = manager.broker
        self._done = _known(counters)
        self._staging, useless = restore(staged)
        self._store_drop(useless)
        numbers = manager.numbers
        numbers.last = max([numbers.last, *(one.number for one in staged)])
        self.operations = {
            "sink.stage": (Stage, self._stage),
            "sink.commit": (Commit, self._commit),
            "sink.abort": (Abort, self._abort),
        }

    # Staging

    def _stage(self, asked: Asked, wanted: Stage) -> dict[str, int]:
        """Take a piece, unless it was had before; how many rows there are in the attempt."""
        session = asked.session
        key = session.permit.user, wanted.sink, wanted.run
        pieces = self._staging.pieces(key, wanted.attempt)
        if wanted.number > len(pieces):
            problem = (
                f"piece {wanted.number} can't follow: {len(pieces)} are staged, the others were given up"
            )
            raise Refused("incomplete", f"attempt {wanted.attempt!r} of sink {wanted.sink!r}: {problem}")
        if wanted.number == len(pieces):
            self._check_room(key, len(wanted.raw))
            checked = _checked(wanted.raw, pieces)
            self._check_granted(session, Batch(wanted.raw, None, checked.offsets), _rows(pieces))
            self._take(session, key, wanted, checked)
        return {"rows": _rows(self._staging.pieces(key, wanted.attempt))}

    def _take(self, session: Session, key: RunKey, wanted: Stage, checked: Checked) -> None:
        assert session.origin is not None
        number = self._manager.numbers.next(self._broker.now)
        piece = Piece(number, wanted.raw, session.origin.source, checked)
        self._staging.add(key, wanted.attempt, piece, self._broker.now)
        stored = Enqueue(stored_piece(key, wanted.attempt, wanted.number, piece))
        self._manager.keep([stored], partial(self._staging.remove, key, wanted.attempt, piece))

    def _check_room(self, key: RunKey, size: int) -> None:
        if size > PIECE_SIZE_MAX:
            problem = f"{size} bytes are staged at once; at most PIECE_SIZE_MAX = {PIECE_SIZE_MAX} can be"
            raise Refused("too-large", problem)
        staged, size = self._staging.sizes.get(key[:2], 0), size + BYTES_EACH
        if staged + size > SINK_SIZE_MAX:
            problem = f"has {staged} bytes staged, and {size} more are above SINK_SIZE_MAX = {SINK_SIZE_MAX}"
            raise Refused("limit", f"sink {key[1]!r} {problem}: write less at a time")
        if self._staging.size + size > STAGED_SIZE_MAX:
            problem = f"above STAGED_SIZE_MAX = {STAGED_SIZE_MAX}: others are staging too, try again later"
            raise Refused(
                "limit", f"the sinks of this node have {self._staging.size} bytes, and more are {problem}"
            )

    def _check_granted(self, session: Session, batch: Batch, first: int) -> None:
        """Raise NotAllowed for the first event that a client may not publish; `first`: rows before these."""
        granted = session.granted
        if granted is None:
            return
        for row, event in enumerate(batch.events, start=first):
            if not granted.filter.matches(event):
                only = f"may publish only what matches: {granted.filter}"
                raise NotAllowed(f"{session.permit.user!r} {only}; row {row} does not")

    # The end of a run

    def _commit(self, asked: Asked, wanted: Commit) -> dict[str, Any]:
        """Publish all rows of these attempts, unless that was done before; how many they are."""
        session = asked.session
        key = session.permit.user, wanted.sink, wanted.run
        done = self._done.get(key[:2], Done())
        if done.has(wanted):
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

    def _check_commit(self, key: RunKey, done: Done, wanted: Commit) -> None:
        if wanted.batch is not None and done.batch is not None and wanted.batch < done.batch:
            problem = f"has batch {done.batch} already, so batch {wanted.batch} can't be a new one"
            why = "the query's checkpoint was deleted, or another query has this sink: choose another name"
            raise Refused("passed", f"sink {wanted.sink!r} {problem}; {why}")
        missing = self._staging.missing(key, wanted.attempts)
        if missing:
            problem = f"run {wanted.run!r} is not all staged: {'; '.join(missing[:3])}"
            raise Refused("incomplete", f"sink {wanted.sink!r}: {problem}")
        if key[:2] not in self._done and len(self._done) >= SINKS_MAX:
            raise Refused("limit", f"a node has at most SINKS_MAX = {SINKS_MAX} sinks")

    def _check_pieces(self, session: Session, pieces: list[Piece]) -> None:
        """What was granted may have changed since these were staged."""
        first = 0
        for piece in pieces if session.granted is not None else ():
            self._check_granted(session, Batch(piece.raw, None, piece.checked.offsets), first)
            first += piece.rows

    def _conclude(self, key: RunKey, done: Done, wanted: Commit) -> None:
        """Let the run be over, and the batch be done; all of it is undone if it can't be stored."""
        after, record = _with(done, wanted, key[:2], int(self._broker.now * 1e6))
        dropped = self._staging.drop(key)
        self._done[key[:2]] = after
        operations: list[Operation] = [*_dequeued(dropped), Count(record)]
        self._manager.keep(operations, partial(self._undo, key, done, dropped))

    def _undo(self, key: RunKey, done: Done, dropped: Pieces) -> None:
        self._done[key[:2]] = done
        if done == Done():
            del self._done[key[:2]]
        self._staging.put_back(key, dropped, self._broker.now)

    def _publish(self, session: Session, origin: Handed, pieces: list[Piece]) -> None:
        for piece in pieces:
            if piece.rows:
                checked = piece.checked
                batch = Batch(piece.raw, Handed(origin.system, origin.epoch, piece.source), checked.offsets)
                self._broker.hand_on(batch, checked, session, waits=True)

    def _origin(self, key: RunKey, attempt: str, batch: int | None) -> Handed:
        """What numbers the rows of an attempt: a system of its own, and the batch as the epoch.

        So ids are the same however often a commit is tried, and no two commits that are made share one.
        """
        named = sha256(msgspec.msgpack.encode((self._broker.node, *key, attempt))).digest()
        return Handed(new_system(lambda size: named[:size]), 0 if batch is None else batch + 1)

    def _abort(self, asked: Asked, unwanted: Abort) -> None:
        """Forget what was staged; what is not there is as well."""
        self._give_up((asked.session.permit.user, unwanted.sink, unwanted.run), unwanted.attempts)

    def _give_up(self, key: RunKey, attempts: list[str] | None = None) -> None:
        dropped = self._staging.drop(key, attempts)
        self._store_drop(piece.number for pieces in dropped.values() for piece in pieces)

    def _store_drop(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._broker.store(Dequeue(number))

    # Time

    @property
    def wake_at(self) -> float:
        """When what was left the longest goes."""
        oldest = next(iter(self._staging.runs.values()), None)
        return inf if oldest is None else oldest.touched + LEFT_S

    def wake(self, now: float) -> None:
        """Time has passed: what nobody came back for goes."""
        while self.wake_at <= now:
            self._give_up(next(iter(self._staging.runs)))

    def status(self) -> dict[str, Any]:
        """How the sinks stand."""
        sinks = sorted({*self._done, *self._staging.sizes})
        return {"sinks": [self._told(user, sink) for user, sink in sinks]}

    def _told(self, user: str, sink: str) -> dict[str, Any]:
        done, staged = self._done.get((user, sink), Done()), self._staging.sizes.get((user, sink), 0)
        return {"name": sink, "owner": user, "batch": done.batch, "staged_bytes": staged}


def open_sinks(
    broker: Broker, store: Store, lasts: bool, types: Iterable[type[Volatile]] = ()
) -> QueueManager:
    """Give a broker its queues, as `open_queues` does, and its sinks beside them, with what was stored."""
    staged: list[StoredMessage] = []
    manager = open_queues(broker, store, lasts, types, apart(store.messages(), staged))
    broker.add(Sinks(manager, store.state.counters, staged))
    return manager


def _known(counters: Iterable[Counter]) -> dict[SinkKey, Done]:
    """What was done, by the records of it; the runs in the order in which they were."""
    known: dict[SinkKey, Done] = {}
    for one in sorted(counters, key=lambda one: one.seen_us):
        if one.system.startswith(_SINK):
            user, _, sink = one.system.removeprefix(_SINK).partition("/")
            done = known.setdefault((user, sink), Done())
            if one.epoch:
                done.runs[one.counter] = one.epoch
            else:
                done.batch = one.counter - 1
    return known


def _checked(raw: bytes, pieces: list[Piece]) -> Checked:
    """What is known of events that follow those of these pieces; Refused, naming row and place, if bad."""
    try:
        checked = check(raw)
        last = next((piece.checked.counters[-1] for piece in reversed(pieces) if piece.rows), 0)
        if len(checked.counters):
            check_growing(checked.counters, last)
    except CodecError as error:
        raise Refused("event", f"{_placed(error.place, _rows(pieces))}: {error.problem}") from None
    return checked


def _placed(place: str, first: int) -> str:
    """A place among the events of a piece, as one among the rows of the attempt: `row 1017, $.priority`."""
    head, bracket, rest = place.removeprefix("$[").partition("]")
    return f"row {first + int(head)}, ${rest}" if bracket and head.isdigit() else place


def _rows(pieces: Iterable[Piece]) -> int:
    return sum(piece.rows for piece in pieces)


def _dequeued(dropped: Pieces) -> list[Dequeue]:
    return [Dequeue(piece.number) for pieces in dropped.values() for piece in pieces]


def _with(done: Done, wanted: Commit, sink: SinkKey, now_us: int) -> tuple[Done, Counter]:
    """What was done of a sink with this commit, and the record that says so.

    Records are those of counters: that of a batch has epoch 0 and one more than the batch. Those of runs are
    a ring of RUNS_KEPT, each with a digest.
    """
    system = f"{_SINK}{sink[0]}/{sink[1]}"
    if wanted.batch is not None:
        return Done(wanted.batch, done.runs), Counter(system, 0, wanted.batch + 1, now_us)
    runs = dict(done.runs)
    slot = len(runs) + 1 if len(runs) < RUNS_KEPT else runs.pop(next(iter(runs)))
    digest = _digest(wanted.run)
    runs[digest] = slot
    return Done(done.batch, runs), Counter(system, slot, digest, now_us)


def _digest(run: str) -> int:
    return int.from_bytes(sha256(run.encode()).digest()[:8], "big") >> 1

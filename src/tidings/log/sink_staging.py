"""Rows staged for sinks, invisible until a commit names them, and the progress of sinks.

A job writes to a sink in a *run*; each of its tasks stages rows in an *attempt* of its own, in *pieces* that
are numbered from 0 on. So a piece that is sent again is recognized, and a task that was started twice has
left two attempts, of which the commit names one. Pieces lie in the store as messages do, under a key that no
queue has, and in memory while they wait: their size is limited by the limits of sinks. Progress is kept as
records, so that nothing is published twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tidings.event.wire import Checked, check
from tidings.store.interface import RecordKind, StoredMessage

STAGED = 0
"""Key under which pieces are stored: no queue has it."""
RUNS_KEPT = 256
"""Runs without batches that are remembered of one sink, the last ones."""
BYTES_EACH = 400
"""Approximate cost of a piece besides its bytes, for limits."""

SinkKey = tuple[str, str]
"""User, "" for the owner of the node, and a sink of that user."""
RunKey = tuple[str, str, str]
"""User, sink and run."""


class StagedPiece:
    """Events that were staged together; `number` is theirs in the store, `source` their sender."""

    __slots__ = ("_checked", "number", "raw", "source")

    def __init__(self, number: int, raw: bytes, source: str | None, checked: Checked | None = None) -> None:
        self.number = number
        self.raw = raw
        self.source = source
        self._checked = checked

    @property
    def checked(self) -> Checked:
        """Facts about the events; found again if they were read from the store."""
        if self._checked is None:
            self._checked = check(self.raw)
        return self._checked

    @property
    def rows(self) -> int:
        """Number of events."""
        return int.from_bytes(self.raw[1:5], "big")

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        return BYTES_EACH + len(self.raw)


Pieces = dict[str, list[StagedPiece]]
"""Pieces by attempt, each at the index of its number."""


class StagedRun:
    """Pieces staged in one run, and when the last of them came."""

    def __init__(self) -> None:
        self.attempts: Pieces = {}
        self.touched = 0.0


class Staging:
    """All that is staged at a node; `charge` is called with a user and the growth of its staged bytes."""

    def __init__(self, charge: Callable[[str, int], None]) -> None:
        self._charge = charge
        self.runs: dict[RunKey, StagedRun] = {}  # the run unused for longest first
        self.size = 0
        self.sizes: dict[SinkKey, int] = {}

    def pieces(self, key: RunKey, attempt: str) -> list[StagedPiece]:
        """Return the pieces of an attempt."""
        run = self.runs.get(key)
        return [] if run is None else run.attempts.get(attempt, [])

    def add(self, key: RunKey, attempt: str, piece: StagedPiece, now: float) -> None:
        """Stage a piece after the existing ones."""
        run = self.runs.pop(key, None) or StagedRun()
        self.runs[key] = run
        run.touched = now
        run.attempts.setdefault(attempt, []).append(piece)
        self._grow(key, piece.size)

    def remove(self, key: RunKey, attempt: str, piece: StagedPiece) -> None:
        """Remove a piece that was not stored after all, if it is still there."""
        pieces = self.pieces(key, attempt)
        if piece in pieces:
            pieces.remove(piece)
            self._grow(key, -piece.size)
            if not pieces:
                self.drop(key, [attempt])

    def drop(self, key: RunKey, attempts: Iterable[str] | None = None) -> Pieces:
        """Forget these attempts, or all of a run; return their pieces."""
        run = self.runs.get(key)
        if run is None:
            return {}
        names = list(run.attempts) if attempts is None else attempts
        dropped = {name: run.attempts.pop(name) for name in names if name in run.attempts}
        if not run.attempts:
            del self.runs[key]
        self._grow(key, -sum(piece.size for pieces in dropped.values() for piece in pieces))
        return dropped

    def put_back(self, key: RunKey, dropped: Pieces, now: float) -> None:
        """Put back pieces that were not dropped after all."""
        for attempt, pieces in dropped.items():
            for piece in pieces:
                self.add(key, attempt, piece, now)

    def missing(self, key: RunKey, wanted: Mapping[str, int]) -> list[str]:
        """Return the missing pieces of so many by attempt, in words."""
        staged = {attempt: len(self.pieces(key, attempt)) for attempt in wanted}
        return [
            f"attempt {attempt!r} has {staged[attempt]} of {count} pieces"
            for attempt, count in wanted.items()
            if staged[attempt] != count
        ]

    def idle(self, key: RunKey, since: float) -> list[RunKey]:
        """Return the other runs of this sink in which nothing was staged since then."""
        return [
            other
            for other, run in self.runs.items()
            if other[:2] == key[:2] and other != key and run.touched <= since
        ]

    def _grow(self, key: RunKey, size: int) -> None:
        sink = key[:2]
        self.size += size
        self.sizes[sink] = self.sizes.get(sink, 0) + size
        if not self.sizes[sink]:
            del self.sizes[sink]
        self._charge(key[0], size)


def apart(stored: Iterable[StoredMessage], staged: list[StoredMessage]) -> Iterator[StoredMessage]:
    """Yield the messages of queues among these; append the pieces to `staged`."""
    for one in stored:
        if one.queue == STAGED:
            staged.append(one)
        else:
            yield one


def stored_piece(key: RunKey, attempt: str, place: int, piece: StagedPiece) -> StoredMessage:
    """Return the stored form of a piece; `place` is its number within the attempt."""
    named = msgspec.json.encode((*key, attempt)).decode()
    return StoredMessage(piece.number, STAGED, named, place, piece.source, 0, piece.raw)


def restore(
    staging: Staging, stored: Iterable[StoredMessage], time_of: Callable[[float], float]
) -> list[int]:
    """Stage the pieces in the store; return the numbers of those that are of no use.

    Those are the ones before which another is missing. `time_of` converts a time of the wall clock.
    """
    useless: list[int] = []
    for one in stored:
        user, sink, run, attempt = msgspec.json.decode(one.system or "", type=tuple[str, str, str, str])
        key = user, sink, run
        if one.epoch == len(staging.pieces(key, attempt)):
            staging.add(key, attempt, StagedPiece(one.number, one.raw, one.source), time_of(one.number / 1e6))
        else:
            useless.append(one.number)
    return useless


# Progress of sinks


class Done(Struct, frozen=True, omit_defaults=True):
    """Progress of a sink: the last batch published, its query, and the last runs without batches."""

    batch: int | None = None
    query: int = 0  # a digest, 0 if it was not given
    runs: tuple[int, ...] = ()  # digests of their names, the last one last
    used_us: int = 0  # when the last of it was published

    def is_anothers(self, query: str | None) -> bool:
        """Whether the last batch is known to be of another query than this one."""
        return query is not None and self.query not in (0, _digest(query))

    def has(self, batch: int | None, run: str, query: str | None) -> bool:
        """Whether this was done before."""
        if batch is None:
            return _digest(run) in self.runs
        return self.batch == batch and not self.is_anothers(query)

    def with_batch(self, batch: int, query: str | None, now_us: int) -> Done:
        """Return the progress after this batch."""
        return replace(self, batch=batch, query=0 if query is None else _digest(query), used_us=now_us)

    def with_run(self, run: str, now_us: int) -> Done:
        """Return the progress after this run."""
        return replace(self, runs=(*self.runs, _digest(run))[-RUNS_KEPT:], used_us=now_us)


DONE: RecordKind[SinkKey, Done] = RecordKind("sink", Done)


def _digest(name: str) -> int:
    return int.from_bytes(sha256(name.encode()).digest()[:8], "big") >> 1

"""The whole log of a node as one: what lies in its store, and what was sealed into files.

All of this is called in threads, beside the loop of the node. Files are in the folder before the store gives
up what they hold, so a position that the store has no more is in a file: reading looks into the store first,
and into files only for what the store has not. No lock is needed for that.

A store that was restored from a backup, or rebuilt, has not all that came before, though files may: positions
leap ahead then, and what was leapt over is read from the files.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from time import monotonic
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from tidings.errors import Refused
from tidings.event import Batch
from tidings.filters import Filter
from tidings.ids import Origin
from tidings.log.chunks import LivePart, Part, SealedPart, live_part, rows_bytes
from tidings.log.sealing import Sized
from tidings.matching import Index
from tidings.store.interface import Store, StoredBatch
from tidings.store.salvage import POSITION_LEAP

PIECE_SIZE = 1 << 20
"""Bytes that are read of the store at once."""
SCAN_SIZE_MAX = 64 << 20
"""Bytes that are looked at for one answer, about, however few of them match: others want to read too."""
FOUND_SIZE = 8 << 20
"""Bytes of events in one answer to who looks for ids, about."""
READ_S_MAX = 1.0
"""Seconds that reading goes on for one answer, about: few threads read for all clients."""
ANSWER_SIZE_MAX = 12 << 20
"""Bytes of events in an answer that has more than one event: it must fit into a frame."""


WantedColumns = Sequence[str] | None
"""Which columns of files are wanted; None: all."""


class LogAnswer(Struct, frozen=True):
    """Parts of the log, and where to ask on; `scanned` is how many bytes were looked at."""

    parts: list[Part]
    next: int
    scanned: int = 0


class SealedSpan(Struct, frozen=True):
    """The span of a node's files: everything from `first` to `last`, in so many files and bytes."""

    first: int = 1
    last: int = 0
    files: int = 0
    size: int = 0


class SealedLog(Protocol):
    """The files of a node's log."""

    @property
    def place(self) -> str:
        """The place of the files; empty if there is none."""

    @property
    def files(self) -> Sequence[Sized]:
        """The files, by position, as they were when it was looked last."""

    def span(self) -> SealedSpan:
        """The span when the folder was last listed."""

    def refresh(self) -> SealedSpan:
        """List the folder, and return the span."""

    def read(
        self, first: int, end: int, filter: Filter, size_max: int, skip: bool, columns: WantedColumns = None
    ) -> tuple[list[bytes], int]:
        """Events from `first` on and before `end`, as Arrow IPC streams of about that size; where to go on.

        Where little matches it ends early, maybe without any. Raises Refused with the code `corrupt` for a
        file that can't be read, and for positions that are in no file, unless these are to be skipped.
        """

    def batches(self, first: int, end: int, size_max: int, filter: Filter) -> list[StoredBatch]:
        """The same as they were stored, for those who want events; none if there are none.

        Now and then one is among them that does not match, so that it is known how far that was read.
        """

    def batches_before(self, position: int, size_max: int) -> list[StoredBatch]:
        """The batches that begin at or before a position, the last one first."""

    def position_at(self, time_us: int) -> int | None:
        """The position of the first event that was stored at or after a time, if there is one."""

    def verify(self, first: int) -> tuple[list[str], int]:
        """Return the problems of the file that has this position, or of the next one, and where to go on."""

    def spent(self, before: int, before_us: int | None, size_max: int | None) -> int:
        """The position up to which `prune` would remove files."""

    def prune(self, before: int, before_us: int | None, size_max: int | None) -> SealedSpan:
        """Remove files that end before the position, and of these what the other two say; what is left."""


class Nowhere:
    """The files of a node that seals nothing."""

    place = ""
    files: Sequence[Sized] = ()

    def span(self) -> SealedSpan:
        """There is nothing."""
        return SealedSpan()

    def refresh(self) -> SealedSpan:
        """There is nothing."""
        return SealedSpan()

    def read(
        self,
        _first: int,
        end: int,
        _filter: Filter,
        _size_max: int,
        _skip: bool,
        _columns: WantedColumns = None,
    ) -> tuple[list[bytes], int]:
        """There is nothing."""
        return [], end

    def batches(self, _first: int, _end: int, _size_max: int, _filter: Filter) -> list[StoredBatch]:
        """There is nothing."""
        return []

    def batches_before(self, _position: int, _size_max: int) -> list[StoredBatch]:
        """There is nothing."""
        return []

    def position_at(self, _time_us: int) -> int | None:
        """There is nothing."""
        return None

    def verify(self, first: int) -> tuple[list[str], int]:
        """There is nothing."""
        return [], first

    def spent(self, _before: int, _before_us: int | None, _size_max: int | None) -> int:
        """There is nothing."""
        return 0

    def prune(self, _before: int, _before_us: int | None, _size_max: int | None) -> SealedSpan:
        """There is nothing."""
        return SealedSpan()


class History:
    """The log of a node that has this store and these files."""

    def __init__(self, store: Store, sealed: SealedLog | None = None) -> None:
        self.sealed: SealedLog = sealed or Nowhere()
        self._store = store

    @property
    def first(self) -> int:
        """The lowest position from which on nothing was pruned."""
        span = self.sealed.span()
        return span.first if span.files else self.discarded + 1

    @property
    def discarded(self) -> int:
        """The position up to which the store has given up the log."""
        return self._store.discarded

    def is_sealed(self, position: int) -> bool:
        """Whether a position is in files alone, where searching may take long."""
        return position <= self.discarded

    def waiting_us(self, position: int) -> int | None:
        """When the first of what the store has from this position on was stored; None if that is nothing."""
        found = self._store.read(position, 1)
        return found[0].stored_us if found else None

    # Reading

    def read(
        self,
        start: int,
        end: int,
        filter: Filter,
        size_max: int,
        skip: bool,
        columns: WantedColumns = None,
        skip_pruned: bool = False,
    ) -> LogAnswer:
        """Events of the log from `start` on and before `end`, maybe none yet where few match; where to go on.

        Raises Refused for what is damaged and for what was pruned, unless the one or the other is skipped.
        """
        self._check_pruned(start, skip_pruned)
        parts: list[Part] = []
        position, size, scanned = max(start, 1), 0, 0
        ends_at = monotonic() + READ_S_MAX
        while position < end and size < size_max and scanned < SCAN_SIZE_MAX:
            if scanned and monotonic() >= ends_at:
                break
            room = min(PIECE_SIZE, size_max - size)
            found, following = self._piece(position, end, filter, room, skip, columns)
            size += sum(map(_size, found))
            scanned += PIECE_SIZE
            if size > ANSWER_SIZE_MAX:
                if not parts:
                    parts, position = _beginning(found[0]) or (found, following)
                break
            parts, position = parts + found, following
        return LogAnswer(parts, max(position, start), scanned)

    def find(self, ids: Sequence[str], filter: Filter, start: int, end: int) -> LogAnswer:
        """The events with these ids, as far as the filter has them: some, maybe none yet; where to go on."""
        if not ids:
            return LogAnswer([], end)
        wanted = Filter("id IN :ids", ids=sorted(set(ids))) & filter
        return self.read(start, end, wanted, FOUND_SIZE, skip=True, skip_pruned=True)

    def position_at(self, time_us: int) -> int:
        """The position of the first event that was stored at or after that time, or one past the last."""
        sealed = self.sealed.position_at(time_us)
        live = self._store.position_at(time_us)
        return live if sealed is None else min(sealed, live)

    def _check_pruned(self, start: int, skip_pruned: bool) -> None:
        first = self.first
        if start < first and start > 0 and not skip_pruned:
            raise Refused("pruned", f"position {start} was pruned: the log begins at {first}")

    def _piece(
        self,
        position: int,
        end: int,
        filter: Filter,
        size_max: int,
        skip: bool,
        columns: WantedColumns = None,
    ) -> tuple[list[Part], int]:
        stored = self._held(position, size_max)
        if stored is None:
            limit = min(end, self._sealed_end(position))
            tables, following = self.sealed.read(position, limit, filter, size_max, skip, columns)
            return [SealedPart(table) for table in tables], following
        following = min(stored[-1].first + stored[-1].count, end) if stored else end
        if not skip:
            for bad in self._store.corrupt(position, following):
                raise Refused("corrupt", f"the batch at position {bad} is not as it was written")
        logged = (batch for batch in stored if batch.persistent and batch.first < end)
        return list(_matching(logged, filter, position, end)), following

    def _held(self, position: int, size_max: int) -> list[StoredBatch] | None:
        """What the store has from this position on; None if it is for the files to say."""
        found = self._store.read(position, size_max)
        if position <= self.discarded:  # maybe while it was being read
            return None
        if position > self.sealed.span().last:
            return found
        if (not found or found[0].first > position) and self._is_leapt_over(position):
            return None
        return _up_to_leap(found)

    def _is_leapt_over(self, position: int) -> bool:
        """Whether the store has leapt over a position that it has not."""
        below, above = self._store.read_before(position, 1), self._store.read(position, 1)
        low = _last(below[0]) if below else self.discarded
        return not above or above[0].first - low >= POSITION_LEAP

    def _sealed_end(self, position: int) -> int:
        """Return the end of reading files from the position on: the store goes on from there."""
        if position <= self.discarded:
            return self.discarded + 1
        following = self._store.read(position, 1)
        end = self.sealed.span().last + 1
        return min(following[0].first, end) if following else end

    # For subscriptions, as `Store`

    def stored_us(self, position: int) -> int | None:
        """When the first event from this position on was stored, sealed or not; None if there is none."""
        found = self.batches(position, 1)
        return found[0].stored_us if found else None

    def batches(self, position: int, size_max: int, filter: Filter | None = None) -> list[StoredBatch]:
        """The batches that hold positions from this one on, sealed or not; as `Store.read`.

        Of what is sealed, events may be left out that a filter does not want.
        """
        while (stored := self._held(position, size_max)) is None:
            end = self._sealed_end(position)
            found = self.sealed.batches(position, end, size_max, filter or Filter())
            if found:
                return found
            position = end
        return stored

    def batches_before(self, position: int, size_max: int) -> list[StoredBatch]:
        """The same as `Store.read_before`."""
        stored, last = self._store.read_before(position, size_max), self.sealed.span().last
        is_there = bool(stored) and _last(stored[0]) >= position
        if is_there or not last or (stored and not self._is_leapt_over(position)):
            return _up_to_leap(stored)
        sealed = self.sealed.batches_before(min(position, last), size_max)
        below = _last(stored[0]) if stored else 0
        return [batch for batch in sealed if batch.first > below] or _up_to_leap(stored)

    # Managing

    def verify(self, start: int, end: int) -> tuple[list[str], int]:
        """Return the problems of a piece of the log from `start` on, and where to go on: `end` at the end."""
        span = self.sealed.span()
        if start <= span.last:
            return self.sealed.verify(max(start, span.first))
        stored = self._store.read(start, PIECE_SIZE)
        following = min(stored[-1].first + stored[-1].count, end) if stored else end
        bad = self._store.corrupt(start, following)
        return [f"the batch at position {one} is not as it was written" for one in bad], following


def _up_to_leap(batches: Sequence[StoredBatch]) -> list[StoredBatch]:
    """Those before the first place where positions have leapt, in whichever direction they come."""
    leaps = (abs(one.first - before.first) >= POSITION_LEAP for before, one in pairwise(batches))
    return list(batches[: next((place for place, is_leap in enumerate(leaps, 1) if is_leap), len(batches))])


def _last(batch: StoredBatch) -> int:
    return batch.first + batch.count - 1


def _matching(batches: Iterable[StoredBatch], filter: Filter, start: int, end: int) -> Iterator[LivePart]:
    """Return the matching events of stored batches, within these positions."""
    index: Index[str] = Index()
    index.add("", filter)
    wants_all = filter == Filter()
    for stored in batches:
        low, high = max(start - stored.first, 0), min(end - stored.first, stored.count)
        if wants_all and (low, high) == (0, stored.count):
            yield live_part(stored)
            continue
        batch = Batch(stored.raw, Origin(stored.system, stored.epoch, stored.source))
        matched = (row for _, rows in index.match_rows(batch).items() for row in rows)
        rows = [int(row) for row in matched if low <= row < high]
        if len(rows) == stored.count:
            yield live_part(stored)
        elif rows:
            part = live_part(stored)
            fields = part.system, part.epoch, part.source, part.stored_us
            yield LivePart(part.first, part.count, rows_bytes(array("I", rows)), *fields, batch.raw_of(rows))


def _beginning(part: Part) -> tuple[list[Part], int] | None:
    """As many of the first events of a part as an answer may have, one at least, and where to go on.

    None if it can't be parted: what is sealed is of the size that was asked for, or one large event.
    """
    if isinstance(part, SealedPart):
        return None
    batch, positions = Batch(part.raw, part.origin), part.positions()
    sizes = accumulate(len(batch.raw_of([row])) for row in range(len(positions)))
    count = max(1, sum(size <= ANSWER_SIZE_MAX for size in sizes))
    if count == len(positions):
        return [part], positions[-1] + 1
    rows = rows_bytes(array("I", (position - part.first for position in positions[:count])))
    return [replace(part, rows=rows, raw=batch.raw_of(list(range(count))))], positions[count]


def _size(part: Part) -> int:
    return len(part.raw if isinstance(part, LivePart) else part.table)

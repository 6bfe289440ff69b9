"""The whole log of a node, in its store and in sealed files.

All methods are called in threads, beside the loop of the node. Files are in the folder before the store
discards their events, so a position that the store has no more is in a file: reading tries the store first,
and files only for what the store lacks. No lock is needed for that.

A store that was restored from a backup, or rebuilt, may lack earlier events that files have: then positions
leap ahead, and the positions in between are read from the files.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from tidings.errors import ConfigError, Refused
from tidings.event import Batch
from tidings.filters import Filter
from tidings.log.arguments import CollapseTerms
from tidings.log.chunks import FileInfo, LivePart, Part, ReplyPart, SealedPart, rows_bytes
from tidings.log.selection import Selection
from tidings.store.interface import Store, StoredBatch
from tidings.store.salvage import POSITION_LEAP

PIECE_SIZE = 1 << 20
"""Bytes that are read from the store at once."""
SPARSE_SIZE = 4 << 20
"""The same if hardly any of them match."""
SPARSE = 16
"""Bytes that were read for each that matched, from which on that is so."""
SCAN_SIZE_MAX = 64 << 20
"""Bytes that are scanned for one reply, about, however few of them match: other readers wait too."""
FOUND_SIZE = 8 << 20
"""Bytes of events in one reply to a search for ids, about."""
READ_S_MAX = 1.0
"""Seconds that reading goes on for one reply, about: few threads read for all clients."""
ANSWER_SIZE_MAX = 12 << 20
"""Bytes of events in a reply that has more than one event: it must fit into a frame."""


WantedColumns = Sequence[str] | None
"""Wanted columns of files; None: all."""


class LogAnswer(Struct, frozen=True):
    """Parts of the log, and the position to go on from.

    `scanned` is the number of bytes read for it, `searched` that of bytes in the store which were matched.
    """

    parts: Sequence[ReplyPart]
    next: int
    scanned: int = 0
    searched: int = 0


class SealedSpan(Struct, frozen=True):
    """Span of a node's files: everything from `first` to `last`, in so many files and bytes."""

    first: int = 1
    last: int = 0
    files: int = 0
    size: int = 0


class SealedLog:
    """Files of a node's log; a node that seals nothing has this one, without files."""

    @property
    def place(self) -> str:
        """Place of the files; empty if there is none."""
        return ""

    @property
    def files(self) -> Sequence[FileInfo]:
        """Files by position, when the folder was last listed."""
        return ()

    def span(self) -> SealedSpan:
        """Return the span when the folder was last listed."""
        return SealedSpan()

    def refresh(self) -> SealedSpan:
        """List the folder, and return the span."""
        return SealedSpan()

    def read(
        self, _first: int, end: int, _filter: Filter, _size_max: int, _skip: bool, _columns: WantedColumns
    ) -> tuple[list[bytes], int]:
        """Return events at positions from `first` to before `end` as Arrow IPC streams, and where to go on.

        The streams have about `size_max` bytes; if little matches, it ends early, maybe without any. Raises
        Refused with the code `corrupt` for a file that can't be read, and for positions that are in no file,
        unless these are to be skipped.
        """
        return [], end

    def batches(self, _first: int, _end: int, _size_max: int, _filter: Filter) -> list[StoredBatch]:
        """Return the same as stored batches, for consumers of events; none if there are none.

        Now and then one that does not match is among them, to show how far the files were read.
        """
        return []

    def batches_before(self, _position: int, _size_max: int) -> list[StoredBatch]:
        """Return the batches that begin at or before a position, the last one first."""
        return []

    def position_at(self, _time_us: int) -> int | None:
        """Return the position of the first event stored at or after a time, if there is one."""
        return None

    def verify(self, first: int) -> tuple[list[str], int]:
        """Return the problems of the file that has this position, or of the next one, and where to go on."""
        return [], first

    def spent(self, _before: int, _before_us: int | None, _size_max: int | None) -> int:
        """Return the position up to which `prune` would remove files."""
        return 0

    def prune(self, _before: int, _before_us: int | None, _size_max: int | None) -> SealedSpan:
        """Remove files that end before the position, as far as the other two limits say; return the rest."""
        return SealedSpan()


class LogHistory:
    """Log of a node with this store and these files."""

    def __init__(self, store: Store, sealed: SealedLog | None = None) -> None:
        self.sealed: SealedLog = sealed or SealedLog()
        self._store = store

    @property
    def first(self) -> int:
        """Lowest position from which on nothing was pruned."""
        span = self.sealed.span()
        return span.first if span.files else self.discarded + 1

    @property
    def discarded(self) -> int:
        """Position up to which the store has discarded the log."""
        return self._store.discarded

    def is_sealed(self, position: int) -> bool:
        """Whether a position is in files alone, where searching may take long."""
        return position <= self.discarded

    def waiting_us(self, position: int) -> int | None:
        """Return when the first event in the store from this position on was stored; None without one."""
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
        """Return events from `start` on and before `end`, maybe none yet if few match; and where to go on.

        Raises Refused for damaged and for pruned events, unless the one or the other are skipped.
        """
        self._check_pruned(start, skip_pruned)
        parts: list[Part] = []
        selection = Selection(filter)
        position, size, scanned = max(start, 1), 0, 0
        ends_at = monotonic() + READ_S_MAX
        while position < end and size < size_max and scanned < SCAN_SIZE_MAX:
            if scanned and monotonic() >= ends_at:
                break
            room = min(PIECE_SIZE, size_max - size)
            if scanned > SPARSE * size:
                room = max(room, min(SPARSE_SIZE, 2 * size_max))
            found, following = self._piece(position, end, selection, room, skip, columns)
            size += sum(map(_size, found))
            scanned += max(PIECE_SIZE, room)
            if size > ANSWER_SIZE_MAX:
                if not parts:
                    parts, position = _beginning(found[0]) or (found, following)
                break
            parts, position = parts + found, following
        return LogAnswer(parts, max(position, start), scanned, selection.searched)

    def collapse(
        self,
        start: int,
        end: int,
        filter: Filter,
        terms: CollapseTerms,
        node: str,
        skip: bool,
        skip_pruned: bool,
    ) -> LogAnswer:
        """Return partial rows of the same events, of as many as one reply may read, and where to go on.

        Raises Refused for terms that can't be met, too. If even the partial rows of one piece are too large,
        or Arrow is not installed, it returns the events of the piece.
        """
        try:
            from tidings.log.collapse import Collapser, collapsed_part
        except ModuleNotFoundError:
            return self.read(start, end, filter, PIECE_SIZE, skip, None, skip_pruned)
        self._check_pruned(start, skip_pruned)
        try:
            collapser = Collapser(terms, node)
        except ConfigError as error:
            raise Refused("protocol", str(error)) from None
        decoder, selection = collapser.decoder, Selection(filter)
        position, scanned, ends_at = max(start, 1), 0, monotonic() + READ_S_MAX
        while position < end and scanned < SCAN_SIZE_MAX and not (scanned and collapser.is_full):
            if scanned and monotonic() >= ends_at:
                break
            found, following = self._piece(position, end, selection, PIECE_SIZE, skip, decoder.wanted)
            if not collapser.add_within(decoder.batches(found), ANSWER_SIZE_MAX):
                if scanned == 0:
                    return LogAnswer(found, max(following, start), PIECE_SIZE, selection.searched)
                break
            position, scanned = following, scanned + PIECE_SIZE
        return LogAnswer([collapsed_part(collapser)], max(position, start), scanned, selection.searched)

    def find(self, ids: Sequence[str], filter: Filter, start: int, end: int) -> LogAnswer:
        """Return some of the events with these ids that match the filter, maybe none yet; where to go on."""
        if not ids:
            return LogAnswer([], end)
        wanted = Filter("id IN :ids", ids=sorted(set(ids))) & filter
        return self.read(start, end, wanted, FOUND_SIZE, skip=True, skip_pruned=True)

    def position_at(self, time_us: int) -> int:
        """Return the position of the first event stored at or after that time, or one past the last."""
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
        selection: Selection,
        size_max: int,
        skip: bool,
        columns: WantedColumns = None,
    ) -> tuple[list[Part], int]:
        stored = self._held(position, size_max)
        if stored is None:
            limit = min(end, self._sealed_end(position))
            tables, following = self.sealed.read(position, limit, selection.filter, size_max, skip, columns)
            return [SealedPart(table) for table in tables], following
        following = min(stored[-1].first + stored[-1].count, end) if stored else end
        if not skip:
            for bad in self._store.corrupt(position, following):
                raise Refused("corrupt", f"the batch at position {bad} is not as it was written")
        logged = (batch for batch in stored if batch.persistent and batch.first < end)
        return list(selection.parts(logged, position, end)), following

    def _held(self, position: int, size_max: int) -> list[StoredBatch] | None:
        """Return the batches in the store from this position on; None if the files must be read."""
        found = self._store.read(position, size_max)
        if position <= self.discarded:  # maybe while it was being read
            return None
        if position > self.sealed.span().last:
            return found
        if (not found or found[0].first > position) and self._is_leapt_over(position):
            return None
        return _up_to_leap(found)

    def _is_leapt_over(self, position: int) -> bool:
        """Whether the store has leapt over a position that it lacks."""
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
        """Return when the first event from this position on was stored, sealed or not; None without one."""
        found = self.batches(position, 1)
        return found[0].stored_us if found else None

    def batches(self, position: int, size_max: int, filter: Filter | None = None) -> list[StoredBatch]:
        """Return the batches that hold positions from this one on, sealed or not; as `Store.read`.

        Sealed events that do not match the filter may be left out.
        """
        while (stored := self._held(position, size_max)) is None:
            end = self._sealed_end(position)
            found = self.sealed.batches(position, end, size_max, filter or Filter())
            if found:
                return found
            position = end
        return stored

    def batches_before(self, position: int, size_max: int) -> list[StoredBatch]:
        """Return the same as `Store.read_before`."""
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
    """Return the batches before the first leap of positions, in whichever direction they come."""
    leaps = (abs(one.first - before.first) >= POSITION_LEAP for before, one in pairwise(batches))
    return list(batches[: next((place for place, is_leap in enumerate(leaps, 1) if is_leap), len(batches))])


def _last(batch: StoredBatch) -> int:
    return batch.first + batch.count - 1


def _beginning(part: Part) -> tuple[list[Part], int] | None:
    """Return as many of the first events of a part as a reply may have, at least one, and where to go on.

    None if it can't be split: a sealed part has the requested size, or is one large event.
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

"""Decisions about sealing: when the log is sealed, into which files, and which of these are joined.

A node decides up to which position its log is to be sealed (`SealSchedule`). The sealer reads it from the
end of the files on, and cuts it into files (`FileCutter`): where the date changes, and where a file is large,
always at the end of a batch. The claims of the files of a node adjoin, whatever holes its log has. A log that
is sealed every few minutes makes many small files: those that adjoin on a date are joined, eight or more of a
size at once, so that no event is written again more often than the logarithm of its date's files (`to_join`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from itertools import pairwise
from typing import Final

from msgspec import Struct

from tidings.log.chunks import FileInfo, LivePart, date_of

LIVE_SIZE_MAX: Final = 32 << 20
"""Bytes in the log from which on they are sealed before their time."""
FILE_SIZE_MAX: Final = 32 << 20
"""Bytes of events, as they were sent, from which on a file is large enough; it becomes much smaller."""
JOIN_AT: Final = 8
"""Number of files of a size that are joined."""
TIER_SIZE: Final = 64 << 10
"""Largest file of the first size; the next size is JOIN_AT times this, and so on."""
JOINED_SIZE_MAX: Final = 256 << 20
"""Bytes of a file from which on it is joined with no other."""


class SealSchedule:
    """Decides up to where a log is to be sealed: on request, if it is large, or if it has waited `wait_s`.

    With `wait_s` None it is never sealed, not even on request.
    """

    def __init__(self, wait_s: float | None, sealed: int, now: float) -> None:
        self.wait_s = wait_s
        self._sealed = sealed
        self._last = sealed  # the last position in the log
        self._asked = 0
        self._since = now  # when the log got its first unsealed event, or before
        self._size = self._size_sealed = 0  # bytes ever logged, and those up to the last sealing

    def grown(self, last: int, size: int, now: float) -> None:
        """Note that the log ends with this position and has had so many bytes ever; called after ticks."""
        if last > self._last:
            if self._last <= self._sealed:
                self._since = now
            self._last, self._size = last, size

    def waited(self, since: float) -> None:
        """Note that unsealed events have waited since that time, before the start of the node."""
        self._since = min(self._since, since)

    def ask(self, position: int) -> None:
        """Request that the log be sealed up to here."""
        self._asked = max(self._asked, position)

    def sealed(self, position: int, now: float) -> None:
        """Note that it is sealed up to here; later events wait from now on at most."""
        if position > self._sealed:
            self._sealed, self._size_sealed, self._since = position, self._size, now
        self._last = max(self._last, position)

    def lost(self, position: int, now: float) -> None:
        """Note that files are gone: it is sealed up to here only, and later events wait from now on."""
        if position < self._sealed:
            self._sealed, self._since = position, now

    @property
    def position(self) -> int:
        """Position up to which it is sealed."""
        return self._sealed

    def due(self, now: float) -> int:
        """Return the position up to which it is to be sealed now; 0 if it need not be."""
        if self.wait_s is None or self._last <= self._sealed:
            return 0
        is_large = self._size - self._size_sealed >= LIVE_SIZE_MAX
        if is_large or now >= self._since + self.wait_s:
            return self._last
        return self._asked if self._asked > self._sealed else 0


class FileCut(Struct, frozen=True):
    """File to be written, with all of the log from `first` to `last`, which is in these parts."""

    first: int
    last: int
    day: date
    parts: list[LivePart]


class FileCutter:
    """Cuts a log, as it is read, into files, the first of which begins at `first`."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._parts: list[LivePart] = []
        self._size = 0

    def add(self, parts: Iterable[LivePart]) -> Iterator[FileCut]:
        """Add the parts read next; yield the files that are complete with them."""
        for part in parts:
            if self._parts and self._ends_before(part):
                yield self._cut(part.first - 1)
            self._parts.append(part)
            self._size += len(part.raw)

    def finish(self, last: int) -> Iterator[FileCut]:
        """Yield the last file, of the log up to this position, unless it would be empty."""
        if self._parts:
            yield self._cut(last)

    def _ends_before(self, part: LivePart) -> bool:
        last = self._parts[-1]
        if part.first == last.first:  # the rest of a batch that came in pieces
            return False
        return date_of(part.stored_us) != date_of(last.stored_us) or self._size >= FILE_SIZE_MAX

    def _cut(self, last: int) -> FileCut:
        cut = FileCut(self._first, last, date_of(self._parts[0].stored_us), self._parts)
        self._first, self._parts, self._size = last + 1, [], 0
        return cut


def reach(files: Iterable[FileInfo], start: int, top: int, is_empty: Callable[[int, int], bool]) -> int:
    """Return the position up to which files, by position, have everything after `start`.

    That is the first place where claims do not adjoin, unless `is_empty` says that there is nothing between
    two positions. A claim beyond `top`, the last position there is, is of another life of the node.
    """
    for file in files:
        first, last = file.claim.first, file.claim.last
        if last > top or (first > start + 1 and not is_empty(start + 1, first - 1)):
            break
        start = max(start, last)
    return start


def holes(files: Iterable[FileInfo], first: int, end: int) -> Iterator[tuple[int, int]]:
    """Return the positions from `first` on and before `end` that no file claims; each hole likewise."""
    for file in files:
        if first < min(file.claim.first, end):
            yield first, min(file.claim.first, end)
        first = max(first, file.claim.last + 1)
    if first < end:
        yield first, end


def to_join(files: Sequence[FileInfo]) -> list[FileInfo]:
    """Return the files, of one node and by position, that are to be joined next; none if all is well.

    Of a date that is over, all that fit into one; of the last date, `JOIN_AT` or more of about the same size.
    """
    for run in _runs(files):
        tiers = sorted({_tier(file) for file in run})
        is_over = run[0].date != files[-1].date
        for tier in tiers[-1:] if is_over else tiers:
            for row in _rows(run, tier):
                if len(row) > 1 and (is_over or sum(_tier(file) == tier for file in row) >= JOIN_AT):
                    return row
    return []


def _runs(files: Sequence[FileInfo]) -> Iterator[list[FileInfo]]:
    """Yield the files in runs that adjoin and are of one date."""
    run: list[FileInfo] = list(files[:1])
    for before, file in pairwise(files):
        if file.date != before.date or file.claim.first != before.claim.last + 1:
            yield run
            run = []
        run.append(file)
    if run:
        yield run


def _rows(run: Sequence[FileInfo], tier: int) -> Iterator[list[FileInfo]]:
    """Yield rows of adjacent files, none above that tier, that fit into one file."""
    row: list[FileInfo] = []
    for file in run:
        is_small = _tier(file) <= tier
        if row and not (is_small and sum(one.size for one in row) + file.size <= JOINED_SIZE_MAX):
            yield row
            row = []
        if is_small:
            row.append(file)
    if row:
        yield row


def _tier(file: FileInfo) -> int:
    tier, size = 0, TIER_SIZE
    while file.size > size:
        tier, size = tier + 1, size * JOIN_AT
    return tier

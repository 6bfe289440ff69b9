"""When the log is sealed, into which files, and which of these are joined: decided here, done by others.

A node says up to which position its log is to be sealed (`Schedule`). The sealer reads it from the end of the
files on, and cuts it into files (`FileCutter`): where the date changes, and where a file is large, always
at the end of a batch. The claims of the files of a node adjoin, whatever holes its log has. A log that is
sealed every few minutes makes many small files: those that adjoin on a date are joined, eight or more of a
size at once, so that no event is written again more often than the logarithm of its date's files (`to_join`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from itertools import pairwise
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from tidings.log.chunks import LivePart, date_of

LIVE_SIZE_MAX: Final = 32 << 20
"""Bytes in the log from which on they are sealed before their time."""
FILE_SIZE_MAX: Final = 32 << 20
"""Bytes of events, as they were sent, from which on a file is large enough; it becomes much smaller."""
JOIN_AT: Final = 8
"""So many files of a size are joined."""
TIER_SIZE: Final = 64 << 10
"""Files up to this size are of one size; the next size is JOIN_AT times this, and so on."""
JOINED_SIZE_MAX: Final = 256 << 20
"""Bytes of a file from which on it is joined with no other."""


class Schedule:
    """Says up to where a log is to be sealed: when it was asked for, is large, or has waited `wait_s`.

    With `wait_s` None it is never, whatever is asked.
    """

    def __init__(self, wait_s: float | None, sealed: int, now: float) -> None:
        self.wait_s = wait_s
        self._sealed = sealed
        self._last = sealed  # the last position in the log
        self._asked = 0
        self._since = now  # when the log got its first event behind what is sealed, or before
        self._size = self._size_sealed = 0  # bytes that went into the log ever, and until it was sealed

    def grown(self, last: int, size: int, now: float) -> None:
        """The log ends with this position now, and so many bytes went into it ever; called after ticks."""
        if last > self._last:
            if self._last <= self._sealed:
                self._since = now
            self._last, self._size = last, size

    def waited(self, since: float) -> None:
        """What is not sealed has been there since that time, which was before the start of the node."""
        self._since = min(self._since, since)

    def ask(self, position: int) -> None:
        """Somebody waits for the log to be sealed up to here."""
        self._asked = max(self._asked, position)

    def sealed(self, position: int, now: float) -> None:
        """It is, up to here; what came meanwhile waits from now on at most."""
        if position > self._sealed:
            self._sealed, self._size_sealed, self._since = position, self._size, now
        self._last = max(self._last, position)

    def lost(self, position: int, now: float) -> None:
        """Files are gone: it is sealed up to here only, and what is behind waits from now on."""
        if position < self._sealed:
            self._sealed, self._since = position, now

    @property
    def position(self) -> int:
        """Up to where it is sealed."""
        return self._sealed

    def due(self, now: float) -> int:
        """The position up to which it is to be sealed now; 0 if it need not be."""
        if self.wait_s is None or self._last <= self._sealed:
            return 0
        is_large = self._size - self._size_sealed >= LIVE_SIZE_MAX
        if is_large or now >= self._since + self.wait_s:
            return self._last
        return self._asked if self._asked > self._sealed else 0


class FileCut(Struct, frozen=True):
    """One file to be: it has all of the log from `first` to `last`, which is in these parts."""

    first: int
    last: int
    day: date
    parts: list[LivePart]


class FileCutter:
    """Cuts a log that is read on and on into files, the first of which begins at `first`."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._parts: list[LivePart] = []
        self._size = 0

    def add(self, parts: Iterable[LivePart]) -> Iterator[FileCut]:
        """Take in what was read next; the files that are complete with it."""
        for part in parts:
            if self._parts and self._ends_before(part):
                yield self._cut(part.first - 1)
            self._parts.append(part)
            self._size += len(part.raw)

    def finish(self, last: int) -> Iterator[FileCut]:
        """The log was read up to this position: the last file, unless there is nothing to be in it."""
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


class Claimed(Protocol):
    """A claim, as `tidings.log.segment_file.Claim`."""

    @property
    def first(self) -> int:
        """The first position."""

    @property
    def last(self) -> int:
        """The last position."""


class Sized(Protocol):
    """A file, as far as it matters here."""

    @property
    def claim(self) -> Claimed:
        """The claim of the file."""

    @property
    def date(self) -> date:
        """When that was stored."""

    @property
    def size(self) -> int:
        """How many bytes it has."""


File = TypeVar("File", bound=Sized)


def reach(files: Iterable[Sized], start: int, top: int, is_empty: Callable[[int, int], bool]) -> int:
    """The position up to which files, by position, have all that stands behind `start`.

    Where claims do not adjoin that is the end, unless `is_empty` says that there is nothing between two
    positions. A claim beyond `top`, the last position there is, is of another life of the node.
    """
    for file in files:
        first, last = file.claim.first, file.claim.last
        if last > top or (first > start + 1 and not is_empty(start + 1, first - 1)):
            break
        start = max(start, last)
    return start


def holes(files: Iterable[Sized], first: int, end: int) -> Iterator[tuple[int, int]]:
    """Return the positions from `first` on and before `end` that no file claims; each hole likewise."""
    for file in files:
        if first < min(file.claim.first, end):
            yield first, min(file.claim.first, end)
        first = max(first, file.claim.last + 1)
    if first < end:
        yield first, end


def to_join(files: Sequence[File]) -> list[File]:
    """The files, of one node and by position, that are to be joined next; none if all is well.

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


def _runs(files: Sequence[File]) -> Iterator[list[File]]:
    """The files in runs that adjoin and are of one date."""
    run: list[File] = list(files[:1])
    for before, file in pairwise(files):
        if file.date != before.date or file.claim.first != before.claim.last + 1:
            yield run
            run = []
        run.append(file)
    if run:
        yield run


def _rows(run: Sequence[File], tier: int) -> Iterator[list[File]]:
    """Those files that stand side by side, none above that tier, and fit into one file."""
    row: list[File] = []
    for file in run:
        is_small = _tier(file) <= tier
        if row and not (is_small and sum(one.size for one in row) + file.size <= JOINED_SIZE_MAX):
            yield row
            row = []
        if is_small:
            row.append(file)
    if row:
        yield row


def _tier(file: Sized) -> int:
    tier, size = 0, TIER_SIZE
    while file.size > size:
        tier, size = tier + 1, size * JOIN_AT
    return tier

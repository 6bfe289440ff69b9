"""Files of one node's log, as the node reads them.

The sealer adds files here and joins small ones, so a file that was listed may be gone when it is opened. Then
the folder is listed again, and another file has the contents. Reading is for any thread. Rows of a group
beyond the requested size are kept a while, for a reader that goes on.

Arrow is loaded when something is read, in the thread that reads; listing and pruning do without.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Final

from tidings.errors import Refused, StoreDamaged, StoreError
from tidings.filters import Filter
from tidings.log.chunks import FileInfo, date_of
from tidings.log.history import READ_S_MAX, SealedLog, SealedSpan, WantedColumns
from tidings.log.paging import Rest, before, cut, joined, size_of, stream_of, tail
from tidings.log.segment_folder import Folder
from tidings.store.interface import StoredBatch, within

if TYPE_CHECKING:
    import pyarrow as pa

SCAN_MAX: Final = 1_000_000
"""Positions that are scanned for one request, about."""
DAMAGE_MAX: Final = 1_000
"""Reports of damage that are kept."""
LISTINGS_MAX: Final = 3
"""Listings of a folder for one request: it changes, but not that fast."""

_everything = Filter()


class SealedFiles(SealedLog):
    """Files in a folder that hold the log of this node."""

    def __init__(self, folder: Folder, node: str, damage: list[StoreDamaged] | None = None) -> None:
        """Damage that is skipped for consumers of events is noted in `damage`."""
        self.folder = folder
        self.damage: list[StoreDamaged] = [] if damage is None else damage
        self._node = node
        self._lock = Lock()
        self._files: list[FileInfo] | None = None  # by position; None: never listed
        self._span = SealedSpan()
        self._rest = Rest()

    # Listing

    @property
    def place(self) -> str:
        """Place of the files."""
        return str(self.folder)

    def refresh(self) -> SealedSpan:
        """List the folder; StoreError if it can't be listed."""
        try:
            found = self.folder.files(self._node)
        except OSError as error:
            raise StoreError(str(self.folder), f"can't be listed: {error}") from None
        with self._lock:
            self._files = found
            self._span = _span_of(found)
            return self._span

    def span(self) -> SealedSpan:
        """Return the span when the folder was last listed; empty, as long as it can't be listed."""
        if self._files is None:
            try:
                return self.refresh()
            except StoreError:
                return SealedSpan()
        return self._span

    @property
    def files(self) -> list[FileInfo]:
        """Return the files, by position; StoreError if the folder can't be listed."""
        if self._files is None:
            self.refresh()
        with self._lock:
            return list(self._files or ())

    # Reading

    def read(
        self, first: int, end: int, filter: Filter, size_max: int, skip: bool, columns: WantedColumns = None
    ) -> tuple[list[bytes], int]:
        """Return events at positions from `first` to before `end` as Arrow IPC streams, and where to go on.

        The streams have about `size_max` bytes; if little matches, it ends early, maybe without any. Raises
        Refused with the code `corrupt` for a file that can't be read, and for positions that are in no file,
        unless they are to be skipped.
        """
        streams: list[bytes] = []
        position, size = first, 0
        ends_at = monotonic() + READ_S_MAX
        while position < end and size < size_max and position - first < SCAN_MAX:
            if position > first and monotonic() >= ends_at:
                break
            try:
                found, following = self._piece(position, end, filter, size_max - size, columns, SCAN_MAX)
                if found is None and following == position + SCAN_MAX < end:
                    following = self._next_event(following, end)
            except _Lost as lost:
                if not skip and streams:  # a request from here on gets the error
                    break
                if not skip:
                    raise Refused("corrupt", lost.text) from None
                position = min(lost.end, end)
                continue
            if found is not None:
                size += size_of(found)
                if streams and size > 2 * size_max:  # a large event, which is sent alone
                    break
                streams.append(stream_of(found))
            position = following
        return streams, position

    def _next_event(self, position: int, end: int) -> int:
        """Return the position of the first event from here on: positions may leap far within a file."""
        table, following = self._piece(position, end, _everything, 1, ())
        return following if table is None else int(table.column("position")[0].as_py())

    def _piece(
        self,
        position: int,
        end: int,
        filter: Filter,
        size_max: int,
        columns: WantedColumns = None,
        scan_max: int | None = None,
    ) -> tuple[pa.Table | None, int]:
        """Return the matching events from the position on, as a table of about that size, and where to go on.

        With `scan_max` at most so many positions are scanned.
        """
        asked = str(filter) if columns is None else f"{filter} {sorted(columns)}"
        kept = self._rest.take(position, asked)
        if kept is None:
            file = self._file_at(position, end)
            limit = end if scan_max is None else min(end, position + scan_max)
            table, following = self._read_file(file, position, limit, filter, size_max, columns)
        else:
            table, following = kept
            if following > end:
                table, following = before(table, end), end
        if table is None or not len(table):
            return None, following
        head, rest = cut(table, size_max)
        if rest is not None:
            begin = rest.column("position")[0].as_py()
            self._rest.put(begin, asked, rest, following)
            following = begin
        return head, following

    def _read_file(
        self, file: FileInfo, position: int, end: int, filter: Filter, size_max: int, columns: WantedColumns
    ) -> tuple[pa.Table | None, int]:
        for _ in range(LISTINGS_MAX):
            try:
                wanted = None if columns is None else sorted({"position", *columns})
                tables, following = self.folder.read_file(file, position, end, filter, size_max, wanted)
                return joined(tables), following
            except FileNotFoundError:
                self.refresh()
                file = self._file_at(position, end)
            except StoreDamaged as damage:
                raise _Lost.file(file, damage) from None
        raise _Lost.file(file, StoreDamaged(file.path, "is listed and can't be found"))

    def _file_at(self, position: int, end: int) -> FileInfo:
        """Return the file that has this position; raises _Lost, after listing again, if there is none."""
        for _ in range(2):
            files = self.files
            place = bisect_left(files, position, key=lambda file: file.claim.last)
            file = files[place] if place < len(files) else None
            if file is not None and file.claim.first <= position:
                return file
            self.refresh()
        following = end if file is None else min(file.claim.first, end)
        text = f"positions {position} to {following - 1} are in no file of {self.folder}"
        raise _Lost(text, following)

    # As stored batches, for subscriptions

    def batches(self, first: int, end: int, size_max: int, filter: Filter = _everything) -> list[StoredBatch]:
        """Return the batches from `first` on and before `end`, of about that size; damaged ones are left out.

        If nothing matches for long, return the next event all the same, so that other readers get their turn.
        """
        position = first
        while position < end:
            limit = min(end, position + SCAN_MAX)
            try:
                table, following = self._piece(position, limit, filter, size_max)
                if table is None and following == limit < end:
                    table, following = self._piece(limit, end, _everything, 1)
            except _Lost as lost:
                self._report(lost)
                table, following = None, min(lost.end, end)
            if table is not None:
                return _stored(table)
            position = following
        return []

    def batches_before(self, position: int, size_max: int) -> list[StoredBatch]:
        """Return the batches that begin at or before a position, the last one first; without damaged ones."""
        for file in reversed(self.files):
            if file.claim.first > position:
                continue
            try:
                for table in self.folder.read_back(file, position):
                    return within(reversed(_stored(tail(table, size_max))), size_max)
            except FileNotFoundError:
                self.refresh()
                return self.batches_before(position, size_max)
            except StoreDamaged as damage:
                self._report(_Lost.file(file, damage))
        return []

    def _report(self, lost: _Lost) -> None:
        report = StoreDamaged(str(self.folder), lost.text)
        with self._lock:
            if len(self.damage) < DAMAGE_MAX and all(str(one) != str(report) for one in self.damage):
                self.damage.append(report)

    # Time

    def position_at(self, time_us: int) -> int | None:
        """Return the position of the first event stored at or after a time, if there is one."""
        day = date_of(time_us)
        for file in self.files:
            if file.date >= day:
                try:
                    found = self.folder.position_at(file, time_us)
                except (FileNotFoundError, StoreDamaged):  # a reader gets the error
                    found = file.claim.first
                if found is not None:
                    return found
        return None

    # Upkeep

    def verify(self, first: int) -> tuple[list[str], int]:
        """Return the problems of the file that has this position, or of the next one, and where to go on."""
        from tidings.log.upkeep import verify_file

        self.refresh()
        files = self.files
        place = bisect_left(files, first, key=lambda file: file.claim.last)
        if place == len(files):
            return [], self.span().last + 1
        file = files[place]
        problems = [f"{file.path}: {problem}" for problem in verify_file(self.folder, file)]
        if file.claim.first > first:
            problems.insert(0, f"positions {first} to {file.claim.first - 1} are in no file of {self.folder}")
        return problems, file.claim.last + 1

    def spent(self, before: int, before_us: int | None, size_max: int | None) -> int:
        """Return the position up to which `prune` could remove files; one less than the first if none."""
        files = self.files
        going = list(self._going(files, before, before_us, size_max))
        return going[-1].claim.last if going else self.span().first - 1

    def prune(self, before: int, before_us: int | None, size_max: int | None) -> SealedSpan:
        """Remove files that end before the position, as far as the other two limits say; return the rest.

        A file goes if all in it was stored before `before_us`, or if the files from it on have more than
        `size_max`; without either limit, all go. The oldest go first, up to the first one that stays.
        """
        self.refresh()
        self.folder.remove(list(self._going(self.files, before, before_us, size_max)))
        return self.refresh()

    def _going(
        self, files: list[FileInfo], before: int, before_us: int | None, size_max: int | None
    ) -> Iterator[FileInfo]:
        left = sum(file.size for file in files)
        for file in files:
            if file.claim.last >= before:
                return
            is_endless = before_us is None and size_max is None
            is_much = size_max is not None and left > size_max
            if not (is_endless or is_much or (before_us is not None and self._is_old(file, before_us))):
                return
            left -= file.size
            yield file

    def _is_old(self, file: FileInfo, before_us: int) -> bool:
        if file.date > date_of(before_us):
            return False
        try:
            return self.folder.latest_us(file) < before_us
        except (FileNotFoundError, StoreDamaged):  # its date is known, if not the hour
            return file.date < date_of(before_us)


class _Lost(Exception):
    """Positions that can't be read, up to `end`."""

    def __init__(self, text: str, end: int) -> None:
        super().__init__(text)
        self.text = text
        self.end = end

    @classmethod
    def file(cls, file: FileInfo, damage: StoreDamaged) -> _Lost:
        """Return the error for all positions of a file."""
        claim, problem = file.claim, " ".join(str(damage).split())
        return cls(f"{problem}; it has positions {claim.first} to {claim.last}", claim.last + 1)


def _stored(table: pa.Table) -> list[StoredBatch]:
    from tidings.log.arrow.decode_rows import raw_batches

    return raw_batches(table)


def _span_of(files: Sequence[FileInfo]) -> SealedSpan:
    if not files:
        return SealedSpan()
    size = sum(file.size for file in files)
    return SealedSpan(files[0].claim.first, files[-1].claim.last, len(files), size)

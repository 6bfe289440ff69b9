"""The folder of sealed files: on this machine's disk or on any file system Arrow knows.

    FOLDER/date=YYYY-MM-DD/NODE-FIRST-LAST.parquet

The rule kept: a file that can be seen is whole. It is written under a hidden name, synced, and then renamed.
A file whose claim lies within that of another one of its node is *superseded*, and is passed over: so several
small files are replaced by one by writing that and then removing them, and whoever is stopped in between has
lost and doubled nothing. What was left behind is removed by `clean`.

Files are added by one writer for each node, and read by anybody at the same time. FileNotFoundError says that
a file was replaced after it was listed: list again.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from pyarrow import fs

from tidings.errors import ConfigError, StoreDamaged
from tidings.filters.filter import Filter
from tidings.log.files import Claim, by_date, claim_in, tables_of, write_file
from tidings.log.opened import OpenFile
from tidings.log.parts import LivePart, date_of
from tidings.log.upkeep import Problem, adjoining, merge_files, verify_folder

METADATA_KEPT_MAX: Final = 100
"""Files whose footers are remembered."""
READ_SIZE: Final = 8 << 20
_HIDDEN, _UNFINISHED = ".", ".part"
_everything = Filter()


class FileInfo(Struct, frozen=True):
    """A sealed file, as the listing of the folder tells it."""

    path: str
    """Where it lies in the folder."""
    claim: Claim
    date: date
    size: int


class Folder:
    """The sealed files in a folder, named by a path or, for other file systems, a URI."""

    def __init__(self, where: str | Path, filesystem: fs.FileSystem | None = None) -> None:
        """With a `filesystem` the path is one there."""
        self._name = str(where)
        if filesystem is None and "://" not in self._name:
            filesystem, path = fs.LocalFileSystem(), str(Path(where).absolute())
        elif filesystem is None:
            filesystem, path = _from_uri(self._name)
        else:
            path = self._name
        self._root = path
        self._is_local = isinstance(filesystem, fs.LocalFileSystem)
        self.filesystem = fs.SubTreeFileSystem(path, filesystem)
        self._metadata: OrderedDict[tuple[str, int], pq.FileMetaData] = OrderedDict()

    def __str__(self) -> str:
        return self._name

    # What there is

    def files(self, node: str | None = None) -> list[FileInfo]:
        """The files of a node, or of all, by node and position; without those that are superseded."""
        kept: list[FileInfo] = []
        for file in sorted(self._listed(node), key=_widest_first):
            if not (kept and kept[-1].claim.covers(file.claim)):
                kept.append(file)
        return kept

    def superseded(self, node: str | None = None) -> list[FileInfo]:
        """The files that others have replaced, and nobody has removed."""
        kept = {file.path for file in self.files(node)}
        return [file for file in self._listed(node) if file.path not in kept]

    def leftovers(self, node: str | None = None) -> list[str]:
        """The paths of files that were begun and not finished; one of them may be being written just now."""
        names = ((info.path, PurePosixPath(info.path).name) for info in self._all_files())
        return [
            path
            for path, name in names
            if name.startswith(_HIDDEN)
            and (claim := claim_in(name.removeprefix(_HIDDEN).removesuffix(_UNFINISHED))) is not None
            and node in (None, claim.node)
        ]

    def choose(
        self,
        first: int | None = None,
        last: int | None = None,
        since_us: int | None = None,
        until_us: int | None = None,
        node: str | None = None,
    ) -> list[FileInfo]:
        """The files that may have events at these positions, both included, stored at these times."""
        return [
            file
            for file in self.files(node)
            if (first is None or file.claim.last >= first)
            and (last is None or file.claim.first <= last)
            and (since_us is None or file.date >= date_of(since_us))
            and (until_us is None or file.date <= date_of(until_us))
        ]

    def _listed(self, node: str | None) -> Iterator[FileInfo]:
        for info in self._all_files():
            path = PurePosixPath(info.path)
            claim, day = claim_in(path.name), _date_in(path.parent.name)
            if claim is not None and day is not None and node in (None, claim.node):
                yield FileInfo(info.path, claim, day, info.size)

    def _all_files(self) -> Iterator[fs.FileInfo]:
        found = self.filesystem.get_file_info(fs.FileSelector("", recursive=True, allow_not_found=True))
        return (info for info in found if info.type == fs.FileType.File)

    # Writing

    def write(
        self, parts: Iterable[LivePart], node: str, first: int | None = None, last: int | None = None
    ) -> FileInfo:
        """Seal the events of live parts, which were stored on one date: see `files.by_date`.

        The file claims all positions from `first` to `last`, else those of the parts. Durable on return.
        """
        held = list(parts)
        dates = by_date(held)
        if len(dates) != 1:
            raise ValueError(f"a file is of one date, these parts are of {len(dates)}")
        begin = held[0].first if first is None else first
        end = max(part.first + part.count - 1 for part in held) if last is None else last
        return self.write_tables(tables_of(held), Claim(node, begin, end), dates[0][0])

    def write_tables(self, tables: Iterable[pa.Table], claim: Claim, day: date) -> FileInfo:
        """Write a file of tables with the same columns, those of the files; durable on return."""
        parent = f"date={day}"
        path, hidden = f"{parent}/{claim.file_name}", f"{parent}/{_HIDDEN}{claim.file_name}{_UNFINISHED}"
        self.filesystem.create_dir(parent, recursive=True)
        try:
            with self.filesystem.open_output_stream(hidden) as sink:
                write_file(sink, tables, claim)
            self._sync(hidden)
            self.filesystem.move(hidden, path)
        except BaseException:
            with suppress(OSError):  # there may be no room, so it must not stay
                self._delete(hidden)
            raise
        self._sync(parent, "")
        return FileInfo(path, claim, day, self.filesystem.get_file_info(path).size)

    def _sync(self, *paths: str) -> None:
        """Make files or folders durable; what is not a disk of this machine does so by itself."""
        for path in paths if self._is_local else ():
            descriptor = os.open(Path(self._root, path), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def remove(self, files: Iterable[FileInfo]) -> None:
        """Remove files; those that are not there any more are no trouble."""
        for file in files:
            self._delete(file.path)

    def clean(self, node: str) -> list[str]:
        """Remove what is superseded and what was left unfinished, and name it; for the node's one writer."""
        gone = [*self.leftovers(node), *(file.path for file in self.superseded(node))]
        for path in gone:
            self._delete(path)
        return gone

    def _delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self.filesystem.delete_file(path)

    # Reading

    def open(self, file: FileInfo) -> OpenFile:
        """A file to be read; FileNotFoundError if it is gone, StoreDamaged if it can't be read."""
        known = self._metadata.get((file.path, file.size))
        opened = OpenFile(self.filesystem.open_input_file(file.path), file.path, known)
        if known is None:
            self._metadata[file.path, file.size] = opened.metadata
            while len(self._metadata) > METADATA_KEPT_MAX:
                self._metadata.popitem(last=False)
        return opened

    def read(
        self,
        first: int,
        end: int,
        filter: Filter = _everything,
        columns: Sequence[str] | None = None,
        size_max: int = READ_SIZE,
        node: str | None = None,
    ) -> tuple[list[pa.Table], int]:
        """The events of one node from `first` on and before `end` that match, and where to go on.

        The tables have about `size_max` bytes together, and their columns may differ. Where to go on is `end`
        when that was all. ConfigError if there are files of several nodes and none is named.
        """
        tables: list[pa.Table] = []
        position, size = first, 0
        files = self._of_one_node(node)
        while (file := _file_from(files, position, end)) is not None and size < size_max:
            begin = max(position, file.claim.first)
            try:
                found, position = self.read_file(file, begin, end, filter, size_max - size, columns)
            except FileNotFoundError:
                listed, files = files, self._of_one_node(node)
                if file in files and files == listed:
                    raise
                continue
            tables += found
            size += sum(table.nbytes for table in found)
        return tables, position if file is not None else end

    def read_file(
        self,
        file: FileInfo,
        first: int,
        end: int,
        filter: Filter,
        size_max: int,
        columns: Sequence[str] | None = None,
    ) -> tuple[list[pa.Table], int]:
        """The same of one file: its tables have the same columns."""
        with self.open(file) as opened:
            return opened.read(first, end, filter, size_max, columns)

    def read_back(self, file: FileInfo, position: int) -> Iterator[pa.Table]:
        """All rows of a file up to a position, in tables of which the last comes first."""
        with self.open(file) as opened:
            yield from opened.read_back(position)

    def find(self, ids: Sequence[str], node: str | None = None) -> list[pa.Table]:
        """The events with these ids, the newest files first; what can't be read is passed over."""
        missing = set(ids)
        found: list[pa.Table] = []
        for file in reversed(self.files(node)):
            if not missing:
                break
            with suppress(FileNotFoundError, StoreDamaged), self.open(file) as opened:
                for table in opened.find(sorted(missing)):
                    found.append(table)
                    missing -= set(table.column("id").to_pylist())
        return found

    def position_at(self, file: FileInfo, time_us: int) -> int | None:
        """The position of the first event of a file that was stored at or after a time, or None."""
        with self.open(file) as opened:
            return opened.position_at(time_us)

    def latest_us(self, file: FileInfo) -> int:
        """When the last events of a file were stored, in microseconds."""
        with self.open(file) as opened:
            return opened.latest_us()

    def _of_one_node(self, node: str | None) -> list[FileInfo]:
        files = self.files(node)
        nodes = sorted({file.claim.node for file in files})
        if len(nodes) > 1:
            raise ConfigError(self._name, "node", f"there are files of several: {', '.join(nodes)}")
        return files

    # Upkeep

    def merge(
        self, small_bytes: int, big_bytes: int, node: str | None = None
    ) -> list[tuple[FileInfo, list[FileInfo]]]:
        """Make one file of several that adjoin on a date: each new one, and those it has replaced.

        Files below `small_bytes` are taken, until they have `big_bytes` together.
        """
        runs = adjoining(self.files(node), small_bytes, big_bytes)
        return [(self.join(files), files) for files in runs]

    def join(self, files: Sequence[FileInfo]) -> FileInfo:
        """Put one file in the place of these, which adjoin; one call, so that who stops leaves none twice."""
        info = merge_files(self, files)
        self.remove(files)
        return info

    def verify(self, progress: Callable[[FileInfo], None] | None = None) -> list[Problem]:
        """Read everything, and tell what is wrong; `progress` is called with each file before it is read."""
        return verify_folder(self, progress)


def _file_from(files: Sequence[FileInfo], position: int, end: int) -> FileInfo | None:
    """The first file with something at or after a position and before an end."""
    place = bisect_left(files, position, key=lambda file: file.claim.last)
    if position >= end or place == len(files) or files[place].claim.first >= end:
        return None
    return files[place]


def _widest_first(file: FileInfo) -> tuple[str, int, int, str]:
    """Sorts so that a file comes after the one that supersedes it."""
    return file.claim.node, file.claim.first, -file.claim.last, file.path


def _date_in(folder: str) -> date | None:
    try:
        return date.fromisoformat(folder.removeprefix("date=")) if folder.startswith("date=") else None
    except ValueError:
        return None


def _from_uri(uri: str) -> tuple[Any, str]:
    try:
        filesystem, path = fs.FileSystem.from_uri(uri)
    except (pa.ArrowException, ValueError) as error:
        raise ConfigError("folder", uri, f"is no place Arrow knows: {error}") from None
    return filesystem, path

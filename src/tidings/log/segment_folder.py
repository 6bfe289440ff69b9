"""Folder of sealed files: on this machine's disk or on any file system Arrow knows.

    FOLDER/date=YYYY-MM-DD/NODE-FIRST-LAST.parquet

The rule kept: a visible file is whole. It is written under a hidden name, synced, and then renamed. A file
whose claim lies within that of another one of its node is *superseded*, and is ignored: so several small
files are replaced by one by writing that and then removing them, and a writer that is stopped in between
loses and doubles nothing. `clean` removes the leftovers.

Files are added by one writer for each node, and read by anybody at the same time. FileNotFoundError means
that a file was replaced after it was listed: list again.

Arrow is loaded when a file is read or written, and for other file systems: a node that only lists files on
its own disk does without, and takes half the memory.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from tidings.errors import ConfigError, MissingExtra
from tidings.filters.filter import Filter
from tidings.log.chunks import FileClaim, FileInfo, LivePart, claim_in

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import fs

    from tidings.log.schema import KindRegistry, Kinds
    from tidings.log.segment_file import OpenFile
    from tidings.log.upkeep import Problem

METADATA_KEPT_MAX: Final = 100
"""Files whose footers are remembered."""
READ_SIZE: Final = 8 << 20
_HIDDEN, _UNFINISHED = ".", ".part"
_FILE_MODE, _FOLDER_MODE = 0o600, 0o700  # events may be secret
_everything = Filter()


class Folder:
    """Sealed files in a folder, named by a path or, for other file systems, a URI."""

    def __init__(self, where: str | Path, filesystem: fs.FileSystem | None = None) -> None:
        """With a `filesystem` the path is one there. Raises MissingExtra without Arrow."""
        if find_spec("pyarrow") is None:
            raise MissingExtra("the sealed log", "node")
        self._name = str(where)
        self._local: Path | None = None  # its path, if that is on a disk of this machine
        self._elsewhere: tuple[Any, str] | None = None  # else its file system, and the path there
        if filesystem is not None:
            self._elsewhere = filesystem, self._name
        elif "://" in self._name:
            self._elsewhere = _from_uri(self._name)
        else:
            self._local = Path(where).absolute()
        if self._elsewhere is not None and self._elsewhere[0].type_name == "local":
            self._local = Path(self._elsewhere[1])
        self._metadata: OrderedDict[tuple[str, int], pq.FileMetaData] = OrderedDict()

    @cached_property
    def filesystem(self) -> fs.FileSystem:
        """File system whose root is the folder."""
        from pyarrow import fs

        base, path = self._elsewhere or (fs.LocalFileSystem(), str(self._local))
        return fs.SubTreeFileSystem(path, base)

    @cached_property
    def _registry(self) -> KindRegistry:
        from tidings.log.schema import KindRegistry

        return KindRegistry(self.open)

    def __str__(self) -> str:
        return self._name

    # Listing

    def files(self, node: str | None = None) -> list[FileInfo]:
        """Return the files of a node, or of all, by node and position; without those that are superseded."""
        kept: list[FileInfo] = []
        for file in sorted(self._listed(node), key=_widest_first):
            if not (kept and kept[-1].claim.covers(file.claim)):
                kept.append(file)
        return kept

    def superseded(self, node: str | None = None) -> list[FileInfo]:
        """Return the superseded files that were not removed."""
        kept = {file.path for file in self.files(node)}
        return [file for file in self._listed(node) if file.path not in kept]

    def leftovers(self, node: str | None = None) -> list[str]:
        """Return the paths of unfinished files; one of them may be being written just now."""
        names = ((path, PurePosixPath(path).name) for path, _ in self._all_files())
        return [
            path
            for path, name in names
            if name.startswith(_HIDDEN)
            and (claim := claim_in(name.removeprefix(_HIDDEN).removesuffix(_UNFINISHED))) is not None
            and node in (None, claim.node)
        ]

    def _listed(self, node: str | None) -> Iterator[FileInfo]:
        for name, size in self._all_files():
            path = PurePosixPath(name)
            claim, day = claim_in(path.name), _date_in(path.parent.name)
            if claim is not None and day is not None and node in (None, claim.node):
                yield FileInfo(name, claim, day, size)

    def _all_files(self) -> Iterator[tuple[str, int]]:
        """Yield the paths and sizes of all files; none if there is no such folder."""
        if self._local is not None:
            return _local_files(self._local)
        from pyarrow import fs

        found = self.filesystem.get_file_info(fs.FileSelector("", recursive=True, allow_not_found=True))
        return ((info.path, info.size) for info in found if info.type == fs.FileType.File)

    def known_kinds(self) -> dict[str, str]:
        """Return the kind of each attribute that has a column in some file: see `tidings.log.schema`."""
        return self._registry.known(self.files())

    # Writing

    def write(
        self, parts: Iterable[LivePart], node: str, first: int | None = None, last: int | None = None
    ) -> FileInfo:
        """Seal the events of live parts, which were stored on one date: see `files.by_date`.

        The file claims all positions from `first` to `last`, else those of the parts. Durable on return.
        """
        from tidings.log.schema import Kinds
        from tidings.log.segment_file import by_date, tables_of

        held = list(parts)
        dates = by_date(held)
        if len(dates) != 1:
            raise ValueError(f"a file is of one date, these parts are of {len(dates)}")
        begin = held[0].first if first is None else first
        end = max(part.first + part.count - 1 for part in held) if last is None else last
        is_last = all(file.claim.last < end for file in self.files(node))
        kinds = Kinds(self.known_kinds(), may_grow=is_last)
        return self.write_tables(tables_of(held, kinds), FileClaim(node, begin, end), dates[0][0], kinds)

    def write_tables(self, tables: Iterable[pa.Table], claim: FileClaim, day: date, kinds: Kinds) -> FileInfo:
        """Write a file of tables with the same columns, of the kinds of this folder; durable on return."""
        from tidings.log.segment_file import write_file

        parent = f"date={day}"
        path, hidden = f"{parent}/{claim.file_name}", f"{parent}/{_HIDDEN}{claim.file_name}{_UNFINISHED}"
        self._prepare(parent, hidden)
        try:
            with self.filesystem.open_output_stream(hidden) as sink:
                write_file(sink, tables, claim, kinds)
            self._sync(hidden)
            self.filesystem.move(hidden, path)
        except BaseException:
            with suppress(OSError):  # there may be no room, so it must not stay
                self._delete(hidden)
            raise
        self._sync(parent, "")
        return FileInfo(path, claim, day, self.filesystem.get_file_info(path).size)

    def _prepare(self, parent: str, file: str) -> None:
        """Make the folder for a file; on a disk of this machine only its owner may read it, as the file."""
        if self._local is None:
            self.filesystem.create_dir(parent, recursive=True)
            return
        self._local.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        (self._local / parent).mkdir(mode=_FOLDER_MODE, exist_ok=True)
        descriptor = os.open(self._local / file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE_MODE)
        try:
            os.fchmod(descriptor, _FILE_MODE)  # a leftover may have another mode
        finally:
            os.close(descriptor)

    def _sync(self, *paths: str) -> None:
        """Make files or folders durable; other file systems than this machine's disks do so by themselves."""
        if self._local is None:
            return
        for path in paths:
            descriptor = os.open(self._local / path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def remove(self, files: Iterable[FileInfo]) -> None:
        """Remove files; missing ones are ignored."""
        for file in files:
            self._delete(file.path)

    def clean(self, node: str) -> list[str]:
        """Remove superseded and unfinished files, and return their names; for the node's one writer."""
        gone = [*self.leftovers(node), *(file.path for file in self.superseded(node))]
        for path in gone:
            self._delete(path)
        return gone

    def _delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            if self._local is not None:
                (self._local / path).unlink()
            else:
                self.filesystem.delete_file(path)

    # Reading

    def open(self, file: FileInfo) -> OpenFile:
        """Open a file for reading; FileNotFoundError if it is gone, StoreDamaged if it can't be read."""
        from tidings.log.segment_file import OpenFile

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
        """Return the events of one node from `first` on and before `end` that match, and where to go on.

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
        """Return the same of one file: its tables have the same columns."""
        with self.open(file) as opened:
            return opened.read(first, end, filter, size_max, columns)

    def read_back(self, file: FileInfo, position: int) -> Iterator[pa.Table]:
        """Yield all rows of a file up to a position, in tables of which the last comes first."""
        with self.open(file) as opened:
            yield from opened.read_back(position)

    def position_at(self, file: FileInfo, time_us: int) -> int | None:
        """Return the position of the first event of a file stored at or after a time, or None."""
        with self.open(file) as opened:
            return opened.position_at(time_us)

    def latest_us(self, file: FileInfo) -> int:
        """Return when the last events of a file were stored, in microseconds."""
        with self.open(file) as opened:
            return opened.latest_us()

    def _of_one_node(self, node: str | None) -> list[FileInfo]:
        files = self.files(node)
        nodes = sorted({file.claim.node for file in files})
        if len(nodes) > 1:
            raise ConfigError(self._name, "node", f"there are files of several: {', '.join(nodes)}")
        return files

    # Upkeep

    def join(self, files: Sequence[FileInfo]) -> FileInfo:
        """Replace these files, which adjoin, by one; one call, so that a stop in between doubles nothing."""
        from tidings.log.upkeep import merge_files

        info = merge_files(self, files)
        self.remove(files)
        return info

    def verify(self, progress: Callable[[FileInfo], None] | None = None) -> list[Problem]:
        """Read everything, and return the problems; `progress` is called with each file before it is read."""
        from tidings.log.upkeep import verify_folder

        return verify_folder(self, progress)


def _file_from(files: Sequence[FileInfo], position: int, end: int) -> FileInfo | None:
    """Return the first file with something at or after a position and before an end."""
    place = bisect_left(files, position, key=lambda file: file.claim.last)
    if position >= end or place == len(files) or files[place].claim.first >= end:
        return None
    return files[place]


def _widest_first(file: FileInfo) -> tuple[str, int, int, str]:
    """Sort key by which a file comes after the one that supersedes it."""
    return file.claim.node, file.claim.first, -file.claim.last, file.path


def _date_in(folder: str) -> date | None:
    try:
        return date.fromisoformat(folder.removeprefix("date=")) if folder.startswith("date=") else None
    except ValueError:
        return None


def _local_files(root: Path) -> Iterator[tuple[str, int]]:
    for parent, _, names in os.walk(root, onerror=_raise_unless_gone, followlinks=True):
        for name in names:
            path = Path(parent, name)
            with suppress(FileNotFoundError):
                yield path.relative_to(root).as_posix(), path.stat().st_size


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _from_uri(uri: str) -> tuple[Any, str]:
    import pyarrow as pa
    from pyarrow import fs

    try:
        filesystem, path = fs.FileSystem.from_uri(uri)
    except (pa.ArrowException, ValueError) as error:
        raise ConfigError("folder", uri, f"is no place Arrow knows: {error}") from None
    return filesystem, path

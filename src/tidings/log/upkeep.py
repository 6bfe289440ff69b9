"""Upkeep of the folder of sealed files: joining small ones, and verifying all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from msgspec import Struct

from tidings.errors import StoreError
from tidings.log import segment_file as sealed
from tidings.log.arrow.attributes import frequent
from tidings.log.arrow.map_column import counts_of, reshaped, total_of
from tidings.log.chunks import FileClaim, FileInfo
from tidings.log.schema import Kinds

if TYPE_CHECKING:
    from tidings.log.segment_folder import Folder

GROUP_SIZE_MAX: Final = 64 << 20
"""Bytes in memory from which on a row group of a joined file is large enough, however few its rows are."""


class Problem(Struct, frozen=True):
    """A fault in the log."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


def merge_files(folder: Folder, files: Sequence[FileInfo]) -> FileInfo:
    """Write one file with all events of these, which adjoin; they stay, and are superseded by it.

    They are read twice, a row group at a time: to find the frequent attributes, and to copy them. Columns
    have the kinds of the folder, so drifted values fit it again. No name gets its first column here, since
    this need not be the last file of its node.
    """
    rows, counts = 0, []
    kinds = Kinds(folder.known_kinds(), may_grow=False)
    for table in _tables(folder, files):
        rows += len(table)
        counts.append(counts_of(table))
    own = frequent(total_of(counts), rows, kinds)
    tables = (reshaped(table, own) for table in _tables(folder, files))
    claim = FileClaim(files[0].claim.node, files[0].claim.first, files[-1].claim.last)
    return folder.write_tables(_row_groups(tables), claim, files[0].date, kinds)


def _tables(folder: Folder, files: Iterable[FileInfo]) -> Iterator[pa.Table]:
    for file in files:
        with folder.open(file) as opened:
            yield from opened.tables()


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the same rows in tables of the size of a row group; at least one."""
    held: list[pa.Table] = []
    rows, size, given = 0, 0, False
    for table in tables:
        held.append(table)
        rows += len(table)
        size += table.nbytes
        if rows >= sealed.GROUP_ROWS or size >= GROUP_SIZE_MAX:
            yield pa.concat_tables(held).combine_chunks()
            held, rows, size, given = [], 0, 0, True
    if held and (rows or not given):
        yield pa.concat_tables(held).combine_chunks()


def verify_folder(folder: Folder, progress: Callable[[FileInfo], None] | None) -> list[Problem]:
    """Read every page of every file; return the problems of files, and between them."""
    problems = [Problem(path, "was begun and not finished") for path in folder.leftovers()]
    problems += [Problem(file.path, "is superseded by another file") for file in folder.superseded()]
    files = folder.files()
    for _, of_node in groupby(files, key=lambda file: file.claim.node):
        problems += _gaps(list(of_node))
    for file in files:
        if progress is not None:
            progress(file)
        problems += [Problem(file.path, problem) for problem in verify_file(folder, file)]
    return problems


def _gaps(files: Sequence[FileInfo]) -> Iterator[Problem]:
    for one, other in pairwise(files):
        if one.claim.last + 1 < other.claim.first:
            missing = f"{one.claim.last + 1} to {other.claim.first - 1}"
            yield Problem(other.path, f"positions {missing}, before its own, are in no file")


def verify_file(folder: Folder, file: FileInfo) -> list[str]:
    """Read every page of a file; return its problems."""
    problems: list[str] = []
    try:
        with folder.open(file) as opened:
            if opened.claim != file.claim:
                problems.append(f"claims to be {opened.claim.file_name}")
            rows, last = 0, file.claim.first - 1
            for positions in opened.pages():
                problems += _verify_positions(positions, last, file.claim)
                rows += len(positions)
                last = int(positions[-1]) if len(positions) else last
            if rows != opened.footer.count:
                problems.append(f"has {rows} events, and its footer says {opened.footer.count}")
    except StoreError as error:
        problems.append(error.problem)
    except OSError as error:
        problems.append(f"can't be read: {error}")
    return problems


def _verify_positions(positions: Any, last: int, claim: FileClaim) -> Iterator[str]:
    if not len(positions):
        return
    steps = np.diff(np.concatenate([[last], positions]))
    if (steps <= 0).any():
        yield f"its positions do not ascend at {positions[int(np.argmax(steps <= 0))]}"
    if positions[0] < claim.first or positions[-1] > claim.last:
        yield f"has positions {positions[0]} to {positions[-1]}, which it does not claim"

"""Files of saved indexes: written once, and mapped by every process of a machine that matches with them.

A file is written beside its place and then moved there, so a reader sees a whole file or none. Processes that
open the same file share one copy of it in memory. `tidings.matching.saved` has the format.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

from tidings.errors import IndexFileError
from tidings.matching.index import Index
from tidings.matching.saved import SavedIndex, saved


def save_index(index: Index[Any], path: str | os.PathLike[str]) -> None:
    """Write an index to a file, replacing one that is there; its keys must be ints or texts.

    UserError for another key. Processes that have an earlier file of that name open keep that one.
    """
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            for part in saved(index):
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def open_index(path: str | os.PathLike[str]) -> SavedIndex[Any]:
    """Open a saved index for matching; it is read-only and matches as the index that was saved.

    All of the file is checked. IndexFileError, which names the place, for one that is cut, damaged, of
    another version or no saved index at all.
    """
    with Path(path).open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            raise IndexFileError(str(path), "is empty, and so no saved index")
        # A private mapping: its pages are shared with others until someone writes, which nobody does.
        return SavedIndex(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), str(path))

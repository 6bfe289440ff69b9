"""For tests of sealed files: joining of all that can be, without regard to their sizes."""

from __future__ import annotations

from itertools import groupby

from tidings.log.chunks import FileInfo
from tidings.log.segment_folder import Folder


def merge(folder: Folder) -> list[tuple[FileInfo, list[FileInfo]]]:
    """Join the files of each node and date, which adjoin; return each new file with those it has replaced."""
    runs = [list(run) for _, run in groupby(folder.files(), lambda file: (file.claim.node, file.date))]
    return [(folder.join(run), run) for run in runs if len(run) > 1]

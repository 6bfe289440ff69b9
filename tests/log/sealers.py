"""For tests of the log: events to store, and who seals them by hand, as the child of a node does."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from tidings.event import Batch, Event
from tidings.filters import Filter
from tidings.ids import Origin
from tidings.log.chunks import FileInfo, LivePart, Part
from tidings.log.history import LogHistory
from tidings.log.sealing import FileCutter, to_join
from tidings.log.segment_file import positioned_events
from tidings.log.segment_folder import Folder
from tidings.log.segments import SealedFiles
from tidings.store.interface import StoredBatch

NODE = "node"
DAY_US = 86_400_000_000
NOON_US = 20_000 * DAY_US + DAY_US // 2


def stored(
    first: int, numbers: Iterable[int], stored_us: int = NOON_US, persistent: bool = True, system: str = "s"
) -> StoredBatch:
    """A batch of events that tests tell by their attribute n, and which are even or not."""
    events = [replace(Event("t", {"n": n, "even": n % 2 == 0}), counter=n + 1) for n in numbers]
    batch = Batch.of(events)
    return StoredBatch(first, len(events), system, 1, "ann", stored_us, persistent, batch.raw)


def numbers_in(batches: Iterable[StoredBatch]) -> list[tuple[int, int]]:
    """The position and the attribute n of each event."""
    return [
        (one.first + row, event["n"])
        for one in batches
        for row, event in enumerate(Batch(one.raw, Origin(one.system, one.epoch, one.source)).events)
    ]


def numbers_of(parts: Iterable[Part]) -> list[tuple[int, int]]:
    """The same of parts of answers."""
    told: list[tuple[int, int]] = []
    for part in parts:
        if isinstance(part, LivePart):
            events = zip(part.positions(), part.events(), strict=True)
            told += [(position, event["n"]) for position, event in events]
        else:
            told += [(position, event["n"]) for position, event in positioned_events(part.table)]
    return told


def read_all(
    history: LogHistory, start: int, end: int, where: str = "", size_max: int = 1 << 20, skip: bool = False
) -> list[tuple[int, int]]:
    """All that is told of the log from a position on, asked for piece by piece."""
    told: list[tuple[int, int]] = []
    while start < end:
        answer = history.read(start, end, Filter(where), size_max, skip, skip_pruned=skip)
        told += numbers_of(answer.parts)
        assert answer.next > start
        start = answer.next
    return told


def seal(history: LogHistory, folder: Folder, first: int, last: int, node: str = NODE) -> list[FileInfo]:
    """Write what a log has from one position to another into files."""
    cutter, answer = FileCutter(first), history.read(first, last + 1, Filter(), 1 << 30, False)
    assert answer.next == last + 1
    live = [part for part in answer.parts if isinstance(part, LivePart)]
    assert len(live) == len(answer.parts)
    cuts = [*cutter.add(live), *cutter.finish(last)]
    return [folder.write(cut.parts, node, cut.first, cut.last) for cut in cuts]


def join(folder: Folder) -> bool:
    """Join files, if there are any to be joined."""
    chosen = to_join(folder.files(NODE))
    if chosen:
        folder.join(chosen)
    return bool(chosen)


def sealed_files(path: Path, *batches: list[StoredBatch]) -> SealedFiles:
    """A folder with a file for each list of batches, whose claims adjoin."""
    folder = Folder(path)
    first = 1
    for one in batches:
        last = one[-1].first + one[-1].count - 1
        parts = [
            LivePart(b.first, b.count, b"", b.system, b.epoch, b.source, b.stored_us, b.raw) for b in one
        ]
        folder.write(parts, NODE, first, last)
        first = last + 1
    return SealedFiles(folder, NODE)

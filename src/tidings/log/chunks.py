"""Parts of the log, as replies carry them: live ones as the sender sent them, sealed ones as Arrow tables.

A live part costs the node nothing but copying; the client makes events or columns of it. Sealed files are
named `NODE-FIRST-LAST.parquet`, which is their claim. Needs msgspec only: devices read the log too.
"""

from __future__ import annotations

import re
from array import array
from datetime import date, datetime
from typing import Final

from msgspec import Struct

from tidings.event.batch import Batch
from tidings.event.model import Event
from tidings.event.values import time_from_us
from tidings.ids import Origin
from tidings.store.interface import StoredBatch

POSITION_DIGITS: Final = 20

_NAME = re.compile(r"(?P<node>[A-Za-z0-9_-]{1,64})-(?P<first>\d{20})-(?P<last>\d{20})\.parquet")


class LivePart(Struct, array_like=True, tag="live", frozen=True):
    """Events of one origin that were stored together: all of them, or the requested rows."""

    first: int
    count: int  # of positions from `first` on that the batch has in the store
    rows: bytes  # b"": all; else little-endian uint32 offsets, ascending: position = first + row
    system: str | None
    epoch: int
    source: str | None
    stored_us: int
    raw: bytes  # an array of events with its head (`tidings.event.wire`), only the rows that matched

    @property
    def origin(self) -> Origin:
        """Origin of the events."""
        return Origin(self.system, self.epoch, self.source)

    def positions(self) -> list[int]:
        """Return the position of each event in `raw`."""
        if not self.rows:
            return list(range(self.first, self.first + self.count))
        return [self.first + row for row in row_offsets(self.rows)]

    def events(self) -> list[Event]:
        """Return the events, in the order of their positions; CodecError if the bytes are invalid."""
        return list(Batch(self.raw, self.origin).events)


class SealedPart(Struct, array_like=True, tag="sealed", frozen=True):
    """Events that were read from sealed files."""

    table: bytes  # an Arrow IPC stream with the columns of the files (`tidings.log.segment_file`)


class CollapsedPart(Struct, array_like=True, tag="collapsed", frozen=True):
    """Partial rows of a collapse, which was requested."""

    table: bytes  # an Arrow IPC stream with the columns of the result (`tidings.log.collapse`)


Part = LivePart | SealedPart
"""Part of a reply that has events."""
ReplyPart = Part | CollapsedPart


def date_of(stored_us: int) -> date:
    """Return the date, in UTC, under which events stored at that time are kept."""
    moment: datetime = time_from_us(stored_us)
    return moment.date()


def live_part(batch: StoredBatch) -> LivePart:
    """Return all events of a stored batch."""
    return LivePart(
        batch.first, batch.count, b"", batch.system, batch.epoch, batch.source, batch.stored_us, batch.raw
    )


def row_offsets(rows: bytes) -> array[int]:
    """Return the offsets in `LivePart.rows`."""
    offsets = array("I", rows)
    if _BIG_ENDIAN:
        offsets.byteswap()
    return offsets


def rows_bytes(offsets: array[int]) -> bytes:
    """Return row offsets (of typecode "I") as bytes for `LivePart.rows`."""
    if not _BIG_ENDIAN:
        return offsets.tobytes()
    swapped = array("I", offsets)
    swapped.byteswap()
    return swapped.tobytes()


_BIG_ENDIAN = array("I", [1]).tobytes()[0] == 0


# Files


class FileClaim(Struct, frozen=True, order=True):
    """Claim of a file: it has all events in the log of a node from one position to another."""

    node: str
    first: int
    last: int

    @property
    def file_name(self) -> str:
        """Name of the file."""
        return f"{self.node}-{self.first:0{POSITION_DIGITS}}-{self.last:0{POSITION_DIGITS}}.parquet"

    def covers(self, other: FileClaim) -> bool:
        """Whether this claim contains the other."""
        return self.node == other.node and self.first <= other.first and other.last <= self.last


class FileInfo(Struct, frozen=True):
    """Sealed file, as listed in its folder."""

    path: str
    """Path within the folder."""
    claim: FileClaim
    date: date
    """Date when its events were stored."""
    size: int


def claim_in(file_name: str) -> FileClaim | None:
    """Return the claim in the name of a file, or None if it is no file of the log."""
    found = _NAME.fullmatch(file_name)
    if found is None or int(found["first"]) > int(found["last"]):
        return None
    return FileClaim(found["node"], int(found["first"]), int(found["last"]))

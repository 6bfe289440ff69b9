"""Parts of the log, as answers carry them: live ones as the sender sent them, sealed ones as Arrow tables.

A live part costs the node nothing but copying; whoever asked makes events or columns of it. Needs msgspec
only: devices read the log too.
"""

from __future__ import annotations

from array import array
from datetime import date, datetime

from msgspec import Struct

from tidings.event.batch import Batch
from tidings.event.model import Event
from tidings.event.values import time_from_us
from tidings.ids import Origin
from tidings.store.interface import StoredBatch


class LivePart(Struct, array_like=True, tag="live", frozen=True):
    """Events of one origin that were stored together, all of them or the rows that were asked for."""

    first: int
    count: int  # of the positions from `first` on, which the batch has in the store
    rows: bytes  # b"": all; else little-endian uint32 offsets, ascending: position = first + row
    system: str | None
    epoch: int
    source: str | None
    stored_us: int
    raw: bytes  # an array of events with its head (`tidings.event.wire`), only the rows that matched

    @property
    def origin(self) -> Origin:
        """Where the events come from."""
        return Origin(self.system, self.epoch, self.source)

    def positions(self) -> list[int]:
        """The position of each event in `raw`."""
        if not self.rows:
            return list(range(self.first, self.first + self.count))
        return [self.first + row for row in row_offsets(self.rows)]

    def events(self) -> list[Event]:
        """The events, in the order of their positions; CodecError where the bytes are none."""
        return list(Batch(self.raw, self.origin).events)


class SealedPart(Struct, array_like=True, tag="sealed", frozen=True):
    """Events that were read from sealed files."""

    table: bytes  # an Arrow IPC stream with the columns of the files (`tidings.log.files`)


Part = LivePart | SealedPart


def date_of(stored_us: int) -> date:
    """The date, in UTC, under which events stored at that time are kept."""
    moment: datetime = time_from_us(stored_us)
    return moment.date()


def live_part(batch: StoredBatch) -> LivePart:
    """All events of a stored batch."""
    return LivePart(
        batch.first, batch.count, b"", batch.system, batch.epoch, batch.source, batch.stored_us, batch.raw
    )


def row_offsets(rows: bytes) -> array[int]:
    """The offsets that `LivePart.rows` holds."""
    offsets = array("I", rows)
    if _BIG_ENDIAN:
        offsets.byteswap()
    return offsets


def rows_bytes(offsets: array[int]) -> bytes:
    """Row offsets (of typecode "I") as `LivePart.rows` holds them."""
    if not _BIG_ENDIAN:
        return offsets.tobytes()
    swapped = array("I", offsets)
    swapped.byteswap()
    return swapped.tobytes()


_BIG_ENDIAN = array("I", [1]).tobytes()[0] == 0

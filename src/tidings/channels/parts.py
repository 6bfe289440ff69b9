"""Stored events of a channel on their way to a reader, as clients and nodes exchange them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tidings.event import Batch, Event
from tidings.ids import Origin


class HistoryPart(Struct, array_like=True, frozen=True):
    """Events of one origin, which their first node has taken in under these numbers.

    `after` names what comes before them in a causal channel.
    """

    node: str
    epoch: int
    numbers: bytes  # of each, little-endian uint64
    system: str | None
    origin_epoch: int
    source: str | None
    stored_us: int  # when the first node took them in, by the clock of who has them
    raw: bytes
    after: bytes = b""

    def events(self) -> Sequence[Event]:
        """Return the events; CodecError if the bytes are invalid."""
        return Batch(self.raw, Origin(self.system, self.origin_epoch, self.source)).events


class HistoryPage(Struct, frozen=True):
    """Parts that were read at one node, where to go on there, and where it ends."""

    parts: list[HistoryPart] = []
    next: int = 0
    end: int = 0

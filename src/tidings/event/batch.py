"""A batch of events: the sender's bytes, unchanged, and views of them made on first use.

A node passes most events on without reading them, so a batch keeps the bytes and decodes nothing until a
caller requests events, one event or columns. Taking events out and joining batches copies runs of bytes and
writes a new head.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

from tidings.errors import EventError
from tidings.event.model import HEADER_READERS, Event
from tidings.event.wire import (
    COUNT_MAX,
    HEAD_SIZE,
    array_head,
    count_in_head,
    decode_event,
    decode_events,
    encode_events,
    offsets_of,
)
from tidings.ids import Origin

FEW = 16
"""Rows up to which `raw_of` copies them one by one."""
_HEAD_OF_ONE = array_head(1)


class Batch:
    """Events of one origin, as bytes; `Batch(raw)` checks the head only, views raise CodecError.

    A caller that has checked the events passes their `offsets`.
    """

    __slots__ = ("_count", "_events", "_offsets", "_parts", "origin", "raw")
    is_late = False
    """Whether its events come after they were reported as missed."""
    after = b""
    """What comes before its events in their channel, if that is ordered: see `channels/causal.py`."""
    is_repeat = False
    """Whether their publisher has sent them before, to another node that may have them."""

    def __init__(self, raw: bytes, origin: Origin | None = None, offsets: array[int] | None = None) -> None:
        self.raw = bytes(raw)
        self.origin = origin
        self._count = count_in_head(self.raw)
        self._events: list[Event] | None = None
        self._offsets = offsets
        self._parts: dict[Any, Batch] | None = None  # see `part`

    @staticmethod
    def of(events: Iterable[Event]) -> Batch:
        """Return the batch of these events, which must share one origin."""
        held = list(events)
        origin = held[0].origin if held else None
        for row, event in enumerate(held):
            if event.origin is not origin and event.origin != origin:
                raise EventError(f"$[{row}]", f"comes from {event.origin}, the first one from {origin}")
        batch = Batch(encode_events(held), origin)
        batch._events = held
        return batch

    @staticmethod
    def join(batches: Sequence[Batch]) -> Batch:
        """Return one batch of all events in order; the batches must share one origin."""
        origin = batches[0].origin if batches else None
        for number, batch in enumerate(batches):
            if batch.origin != origin:
                raise EventError(f"$[{number}]", f"comes from {batch.origin}, the first one from {origin}")
        count = sum(len(batch) for batch in batches)
        assert count <= COUNT_MAX
        return Batch(array_head(count) + b"".join(batch.raw[HEAD_SIZE:] for batch in batches), origin)

    @property
    def offsets(self) -> array[int]:
        """The offset of each event in `raw`, and the end of the last one."""
        if self._offsets is None:
            self._offsets = offsets_of(self.raw)
        return self._offsets

    @property
    def events(self) -> list[Event]:
        """All events, decoded and checked on first use; the list must not be changed."""
        if self._events is None:
            self._events = decode_events(self.raw, self.origin)
        return self._events

    @property
    def is_decoded(self) -> bool:
        """Whether the events were decoded already."""
        return self._events is not None

    def take(self, rows: Iterable[int]) -> Batch:
        """Return the batch of the events in these rows, in that order; IndexError if a row is missing."""
        if isinstance(rows, range) and rows.step == 1 and 0 <= rows.start < rows.stop <= self._count:
            return self.slice(rows.start, rows.stop)
        wanted = [int(row) for row in rows]
        if wanted and (min(wanted) < 0 or max(wanted) >= self._count):
            raise IndexError(f"a row is not within 0..{self._count - 1}")
        offsets = self.offsets
        parts = [self.raw[offsets[first] : offsets[last + 1]] for first, last in _runs(wanted)]
        taken = Batch(array_head(len(wanted)) + b"".join(parts), self.origin)
        if self._events is not None:
            taken._events = [self._events[row] for row in wanted]
        return taken

    def slice(self, start: int, end: int) -> Batch:
        """Return the batch of the rows from `start` to before `end`, which must exist."""
        offsets = self.offsets
        part = Batch(array_head(end - start) + self.raw[offsets[start] : offsets[end]], self.origin)
        if self._events is not None:
            part._events = self._events[start:end]
        return part

    def cut(self, rows: Sequence[int], size_max: int) -> Iterator[Batch]:
        """Yield these ascending rows in batches of at most `size_max` bytes, except for a larger event.

        On the hot path: most often all rows are wanted, and then none of them is examined by itself.
        """
        if len(self.raw) <= size_max or not rows:
            yield self if len(rows) == self._count else self.take(rows)
        elif rows[-1] - rows[0] + 1 == len(rows):
            yield from self._cut_run(int(rows[0]), int(rows[-1]) + 1, size_max - HEAD_SIZE)
        else:
            offsets = self.offsets
            ends = list(accumulate(offsets[row + 1] - offsets[row] for row in rows))
            begin = size = 0
            while begin < len(rows):
                end = max(begin + 1, bisect_right(ends, size + size_max - HEAD_SIZE, begin))
                yield self.take(rows[begin:end])
                begin, size = end, ends[end - 1]

    def _cut_run(self, start: int, stop: int, size_max: int) -> Iterator[Batch]:
        offsets = self.offsets
        while start < stop:
            end = bisect_right(offsets, offsets[start] + size_max, start) - 1
            end = min(max(end, start + 1), stop)
            yield self.slice(start, end)
            start = end

    def part(self, rows: Sequence[int]) -> Batch:
        """Return the batch of these rows, the same object for the same rows; for all rows, this batch.

        Parts are cached until `forget`.
        """
        if len(rows) == self._count:
            return self
        parts = self._parts
        if parts is None:
            parts = self._parts = {}
        key = tuple(rows) if isinstance(rows, list | tuple | range) else bytes(rows)  # an array's own bytes
        known = parts.get(key)
        if known is None:
            known = parts[key] = self.take(rows)
        return known

    def forget(self) -> None:
        """Drop all that was derived from the bytes, for a batch that is kept."""
        self._events = self._parts = None

    def raw_of(self, rows: Sequence[int]) -> bytes:
        """Return the bytes of these rows, which must exist, as an array with its head.

        On the hot path: most often few rows are wanted, and then searching for runs costs more than it saves.
        """
        count = len(rows)
        if count > FEW:
            run = isinstance(rows, range) and rows.step == 1
            return Batch.slice(self, rows[0], rows[-1] + 1).raw if run else self.take(rows).raw
        raw, offsets = self.raw, self._offsets or self.offsets
        if count == 1:
            row = rows[0]
            return _HEAD_OF_ONE + raw[offsets[row] : offsets[row + 1]]
        return array_head(count) + b"".join([raw[offsets[row] : offsets[row + 1]] for row in rows])

    @property
    def raws(self) -> list[bytes]:
        """The bytes of each event."""
        if self._count == 1:
            return [self.raw[HEAD_SIZE:]]
        raw = self.raw
        return [raw[start:end] for start, end in pairwise(self.offsets)]

    def columns(self, names: Iterable[str]) -> dict[str, list[Any]]:
        """Return the values of each attribute or header field, one per event; None where it has none."""
        columns: dict[str, list[Any]] = {}
        for name in names:
            read = HEADER_READERS.get(name)
            if read is None:
                columns[name] = [event.values.get(name) for event in self.events]
            else:
                columns[name] = [read(event) for event in self.events]
        return columns

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: int) -> Event:
        """Return one event, decoded alone unless all are decoded already."""
        if not -self._count <= row < self._count:
            raise IndexError(f"there is no row {row} in a batch of {self._count}")
        if self._events is not None:
            return self._events[row]
        row %= self._count
        offsets = self.offsets
        return decode_event(self.raw[offsets[row] : offsets[row + 1]], self.origin, f"$[{row}]")

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Batch) and (self.raw, self.origin) == (other.raw, other.origin)

    def __hash__(self) -> int:
        return hash((self.raw, self.origin))

    def __reduce__(self) -> tuple[type[Batch], tuple[bytes, Origin | None]]:
        return Batch, (self.raw, self.origin)

    def __repr__(self) -> str:
        return f"<Batch of {self._count} events, {len(self.raw)} bytes, {self.origin}>"


def _runs(rows: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of each run of consecutive rows."""
    first = 0
    for place in range(1, len(rows) + 1):
        if place == len(rows) or rows[place] != rows[place - 1] + 1:
            yield rows[first], rows[place - 1]
            first = place

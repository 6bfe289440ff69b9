"""Matching of many events against blocks of entries: the half of the engine that changes no filter.

Events are matched in *tiles*. The values of a tile stand in one matrix, a row for each event and a column for
each lane; the scan of raw events fills it, or a reader of Arrow columns. `Engine` makes its blocks from
filters that come and go, `SavedEngine` finds them in a file.

One thread at a time; all methods but the compiled loops hold the interpreter lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from tidings.errors import CodecError
from tidings.event import Event
from tidings.event.scan import ScanPlan, scan_rows
from tidings.event.texts import Bytes, Floats, Ints, Longs, address
from tidings.event.wire import HEAD_SIZE, count_in_head
from tidings.matching import kernel
from tidings.matching.block import CAPACITY
from tidings.matching.lanes import Lanes

VALUES_MAX: Final = 1 << 21
"""Values of one tile: that many events are scanned and matched at a time."""
TILE_MIN, TILE_MAX = 16, 1024
TILE_VALUES: Final = 1 << 14
"""Values up to which a tile has more than TILE_MAX events: with few lanes calls cost more than work."""
MATCHES_ROOM: Final = 1 << 17

Fill = Callable[[int, int, Floats], None]
"""Writes the values of some events, from one on, into the first rows of a matrix with a column per lane."""


class Evaluated(Protocol):
    """Filter that is evaluated on candidates."""

    def matches(self, event: Event) -> bool:
        """Whether the condition is true for the event."""


class CellBounds(Protocol):
    """Bounds of all lanes, laid out: those of lane n are `bounds[starts[n]:starts[n + 1]]`."""

    @property
    def starts(self) -> Ints:
        """Place of the first bound of each lane, and the end."""

    @property
    def bounds(self) -> Floats:
        """Bounds, those of a lane ascending."""


class ScanLanes(NamedTuple):
    """Lanes of an engine as a reader of columns needs them, with the plan of the scan of raw events."""

    numbers: Mapping[tuple[str, int], int]
    plan: ScanPlan


class TileMatcher:
    """Filters by slot, matched against events; a subclass provides the blocks, lanes, keys and filters."""

    _lanes: Lanes
    _plan: ScanPlan | None
    _plan_words: Longs
    _words: Longs
    _keys: Any  # by slot, an array
    _rough: Mapping[int, Evaluated]  # by slot: filters that must be evaluated themselves
    _stamps: Longs
    _counts: Ints
    _has_parts: bool  # whether a key has several filters
    _lead_of: Ints  # by slot: the one that stands for its key in results
    _patience: float  # how many events may be matched before `_sync` has to be called; below 0: none

    def _make_room(self) -> None:
        """Allocate the arrays that compiled code writes into, and pass it their addresses."""
        self._out_rows: Ints = np.empty(max(MATCHES_ROOM, 2 * CAPACITY), np.int32)
        self._out_slots: Ints = np.empty_like(self._out_rows)
        self._out_blocks: Ints = np.empty_like(self._out_rows)
        self._left = np.zeros(64, np.uint64)
        self._control: Longs = np.zeros(kernel.CONTROL_WORDS, np.int64)
        self._control[kernel.OUT_ROWS] = address(self._out_rows)
        self._control[kernel.OUT_SLOTS] = address(self._out_slots)
        self._control[kernel.OUT_BLOCKS] = address(self._out_blocks)
        self._control[kernel.OUT_ROOM] = len(self._out_rows)
        self._control[kernel.LEFT] = address(self._left)
        self._values: Floats = np.empty((0, 0))

    def _size_tiles(self) -> None:
        lanes = max(1, self._lanes.size)
        self._tile = max(TILE_MIN, min(max(TILE_MAX, TILE_VALUES // lanes), VALUES_MAX // lanes))
        if self._values.shape != (self._tile, lanes):
            self._values = np.empty((self._tile, lanes))
            self._cells = np.zeros((2, self._tile, lanes), np.uint16)
            self._present: Longs = np.zeros(self._tile, np.int64)
            self._picked: Longs = np.zeros(lanes + 64, np.int64)
            control = self._control
            control[kernel.VALUES] = address(self._values)
            control[kernel.PRESENT] = address(self._present)
            control[kernel.CELLS] = address(self._cells)
            control[kernel.CELLS_SIZE] = self._cells[0].nbytes
            control[kernel.PICKED] = address(self._picked)

    def _write_control(self, grids: Mapping[int, CellBounds]) -> None:
        control, known = self._control, self._lanes
        control[kernel.LANES_COUNT] = known.size
        for parity, place in ((0, kernel.STARTS), (1, kernel.OTHER_STARTS)):
            grid = grids.get(parity)
            control[place] = 0 if grid is None else address(grid.starts)
            control[place + 1] = 0 if grid is None else address(grid.bounds)
        self._ordered, self._ranks = known.ordered, known.cuts.ranks  # kept alive while compiled code reads
        control[kernel.ORDERED] = address(self._ordered)
        control[kernel.RANKS] = address(self._ranks)
        control[kernel.STAMPS] = address(self._stamps)

    def _sync(self) -> None:
        """Update the input of compiled code, and say for how many events it will do."""
        raise NotImplementedError

    @property
    def rough(self) -> int:
        """Number of filters that must be evaluated themselves when their entries match."""
        return len(self._rough)

    # Matching

    def match(self, raw: bytes, source: str | None, event_at: Callable[[int], Event]) -> tuple[Ints, Ints]:
        """Return all matches of a batch as (rows, slots); `event_at` decodes an event for a filter."""
        count, at, done = count_in_head(raw), HEAD_SIZE, 0
        self._patience -= count
        if self._patience < 0:
            self._sync()
        self._lanes.set_source(source)
        data: Bytes = np.frombuffer(raw, np.uint8)
        found: list[tuple[Ints, Ints]] = []
        while done < count:
            size = min(self._tile, count - done)
            read, at = scan_rows(data, at, size, self._plan_words, self._values)
            if read < size:
                raise CodecError(f"$[{done + read}]", "is cut short or no event")
            self._match_tile(size, done, found)
            done += size
        if at != len(raw):
            raise CodecError("$", f"{len(raw) - at} bytes follow the last event")
        rows, slots = found[0] if len(found) == 1 else _joined(found)
        if self._rough:
            rows, slots = self._verify(rows, slots, event_at)
        return self._once(rows, slots, count) if self._has_parts else (rows, slots)

    def match_values(self, count: int, fill: Fill, event_at: Callable[[int], Event]) -> tuple[Ints, Ints]:
        """Return the same for events whose values `fill` writes; see `scan_lanes` for their columns."""
        self._patience -= count
        if self._patience < 0:
            self._sync()
        found: list[tuple[Ints, Ints]] = []
        for done in range(0, count, self._tile):
            size = min(self._tile, count - done)
            fill(done, size, self._values)
            self._match_tile(size, done, found)
        rows, slots = _joined(found)
        if self._rough:
            rows, slots = self._verify(rows, slots, event_at)
        return self._once(rows, slots, count) if self._has_parts else (rows, slots)

    def scan_lanes(self) -> ScanLanes:
        """Return the lanes, and the plan whose defaults are those of an event without a source."""
        if self._patience < 0:
            self._sync()
        assert self._plan is not None
        self._lanes.set_source(None)
        return ScanLanes(self._lanes.numbers, self._plan)

    def match_one(self, raw: bytes, event: Event) -> list[Any]:
        """Return the keys that match the one event of a batch; short, because it is called for each event.

        A key with several filters comes once for each that matches.
        """
        self._patience -= 1
        if self._patience < 0:
            self._sync()
        self._lanes.set_source(event.source)
        read, _ = scan_rows(np.frombuffer(raw, np.uint8), HEAD_SIZE, 1, self._plan_words, self._values)
        assert read == 1, "an event that was encoded here"
        number = row = 0
        keys: list[Any] = []
        while number < len(self._words):
            number, row, used = kernel.match_rows(self._control, self._words, 1, number, row)
            slots = self._out_slots[:used]
            if self._rough:
                own = [slot for slot in slots.tolist() if slot >= 0 or self._rough[~slot].matches(event)]
                slots = np.array([slot if slot >= 0 else ~slot for slot in own], int)
            keys += self._keys[slots].tolist()
        return keys

    def _match_tile(self, size: int, done: int, found: list[tuple[Ints, Ints]]) -> None:
        number, row = 0, 0
        while True:
            number, row, used = kernel.match_rows(self._control, self._words, size, number, row)
            if used or not found:
                rows = self._out_rows[:used] + np.int32(done)
                found.append((rows, self._out_slots[:used].copy()))
            if number == len(self._words):
                return

    def _verify(self, rows: Ints, slots: Ints, event_at: Callable[[int], Event]) -> tuple[Ints, Ints]:
        """Evaluate the filters of rough entries."""
        rough = np.flatnonzero(slots < 0)
        if not len(rough):
            return rows, slots
        keep = np.ones(len(rows), np.bool_)
        slots[rough] = ~slots[rough]
        events: dict[int, Event] = {}  # each is decoded once, however many filters need it
        for place, row, slot in zip(rough.tolist(), rows[rough].tolist(), slots[rough].tolist(), strict=True):
            event = events.get(row)
            if event is None:
                event = events[row] = event_at(row)
            keep[place] = self._rough[slot].matches(event)
        return rows[keep], slots[keep]

    def _once(self, rows: Ints, slots: Ints, count: int) -> tuple[Ints, Ints]:
        """Return each key once for each row, however many of its filters match."""
        offsets, grouped = np.empty(count + 1, np.int32), np.empty_like(slots)
        used = kernel.once(self._control, rows, slots, self._lead_of, offsets, grouped)
        return rows[:used], slots[:used]

    def keys_of(self, slots: Ints) -> list[Any]:
        """Return the keys of slots."""
        keys: list[Any] = self._keys[slots].tolist()
        return keys

    def by_row(self, rows: Ints, slots: Ints, count: int) -> list[list[Any]]:
        """Return the keys of each row."""
        offsets = np.empty(count + 1, np.int32)
        grouped = np.empty_like(slots)
        kernel.by_row(rows, slots, offsets, grouped)
        keys = self.keys_of(grouped)
        ends = offsets.tolist()
        return [keys[begin:end] for begin, end in pairwise(ends)]

    def by_key(self, rows: Ints, slots: Ints) -> tuple[list[Any], Ints, Ints]:
        """Return the keys hit, the offsets of each one's rows (and the end), and these rows."""
        hit, offsets = np.empty_like(slots), np.empty(len(slots) + 1, np.int32)
        grouped = np.empty_like(rows)
        found = kernel.by_slot(rows, slots, self._counts, hit, offsets, grouped)
        return self.keys_of(hit[:found]), offsets[: found + 1], grouped

    def settle(self) -> None:
        """Update the input of compiled code; matching does so too, if it was not done before."""
        if self._patience < 0:
            self._sync()


def _joined(found: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    if not found:
        return np.zeros(0, np.int32), np.zeros(0, np.int32)
    rows, slots = zip(*found, strict=True)
    return np.concatenate(rows), np.concatenate(slots)

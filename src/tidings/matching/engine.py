"""The compiled index of very many filters: entries are added, become blocks, and are removed.

New entries wait in a small *pending* lot that is tried one by one; when it is large enough, or has been tried
often enough, it becomes a block, together with the newest block if that has room. A removed entry is cleared
in its block, and a block that is less than half alive is rewritten, with another one if both fit. Grids age:
when GROWTH times as many entries have been added as there were when the grids were made, a new *generation*
of them is made from a sample, and each flush converts two old blocks. Every CLUSTERED full blocks, their
entries are sorted among each other by the value that most of them test, such as a type, so that an event
concerns few of these blocks. So no single step builds more than a few blocks, however many filters there are.

One thread at a time; all methods but the compiled loops hold the interpreter lock.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tidings.event.scan import ScanPlan
from tidings.event.texts import Ints, Longs
from tidings.matching import kernel
from tidings.matching.block import CAPACITY, EntryBlock, build
from tidings.matching.entries import MARK_BITS, EntryArrays, Pending, count_texts
from tidings.matching.grid import LaneGrid
from tidings.matching.lanes import Lanes
from tidings.matching.parts import FilterPart
from tidings.matching.tiles import TileMatcher

if TYPE_CHECKING:
    from tidings.filters import Filter

PENDING: Final = -1
PENDING_MAX: Final = 512
"""Entries that wait, tried one by one, while events are matched in between."""
TRIED_MAX: Final = 1 << 18
"""How often entries are tried one by one before they become a block, which costs about as much."""
GROWTH: Final = 3
MIGRATIONS: Final = 2
SAMPLED_BLOCKS: Final = 4
CLUSTERED: Final = 8
_PLACED: Final = frozenset({
    "_control", "_out_rows", "_out_slots", "_out_blocks", "_left", "_values", "_cells", "_present", "_picked",
    "_plan_words", "_words", "_waiting", "_ordered", "_ranks", "_tile",
})  # fmt: skip
"""Attributes of an engine that are made again when needed."""


class EngineState(NamedTuple):
    """Input of compiled code, and the keys and filters of the slots."""

    plan: ScanPlan
    lanes: dict[tuple[str, int], int]
    lanes_size: int
    ranks: Longs
    grids: Mapping[int, LaneGrid]  # by parity of the generation
    blocks: list[EntryBlock]
    keys: list[Any]  # by slot
    free: list[int]  # slots without a key
    rough: Mapping[int, Filter]
    leads: Ints | None  # by slot, if a key has several filters


class Engine(TileMatcher):
    """Filters by key, matched against raw events, as the module describes."""

    def __init__(self, seed: int, capacity: int = CAPACITY, pending_max: int = PENDING_MAX) -> None:
        assert 0 < capacity <= CAPACITY
        self._capacity = capacity
        self._pending_max = min(pending_max, capacity)
        self._lanes = Lanes(seed)
        self._pending = Pending(self._lanes)
        self._patience = -inf
        self._slots: dict[Hashable, int] = {}
        self._free: list[int] = []
        self._keys = np.empty(64, object)
        self._homes: Ints = np.full(64, PENDING, np.int32)  # by slot: the number of its block
        self._leads: dict[Hashable, int] = {}  # by key with parts: a slot without entries of its own
        self._lead_of: Ints = np.zeros(64, np.int32)
        self._has_parts = False
        self._lead_uses: dict[int, int] = {}  # by slot of a lead: number of parts
        self._rough: dict[int, Filter] = {}  # by slot: filters that must be evaluated themselves
        self._blocks: dict[int, EntryBlock] = {}  # by number, the newest last
        self._blocks_made = 0
        self._block_words: Longs | None = None
        self._loose: list[int] = []  # full blocks that were not sorted among others yet
        self._grids = {0: LaneGrid(self._lanes.cuts)}
        self._generation = 0
        self._added = 0  # entries since the generation began
        self._founded = 0  # number of entries at that time
        self._stamps: Longs = np.zeros(64, np.int64)
        self._counts: Ints = np.zeros(64, np.int32)
        self._plan: ScanPlan | None = None
        self._make_room()

    # Copies

    def __getstate__(self) -> dict[str, Any]:
        """Leave out addresses, their holders, and arrays to write in: a copy lies elsewhere in memory."""
        state = {name: value for name, value in vars(self).items() if name not in _PLACED}
        return state | {"_plan": None, "_block_words": None, "_patience": -inf}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._stamps = np.zeros_like(self._stamps)  # the copy counts them from the beginning
        self._make_room()

    # Adding and removing

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._slots

    def add(self, key: Hashable, wanted: Filter) -> bool:
        """Add a filter under an unused key; return False, and leave it out, if it can't match."""
        if len(self._pending) + len(wanted.normal) > self._capacity:
            self._flush()  # before its entries, which stay together, would leave a block of their own over
        slot = self._take_slot()
        before = len(self._pending)
        is_exact = self._pending.add(slot, wanted.normal)
        if len(self._pending) == before:
            self._free.append(slot)
            return False
        if not is_exact:
            self._rough[slot] = wanted
        self._slots[key] = slot
        self._keys[slot] = key
        self._lead_of[slot] = slot
        if type(key) is FilterPart:
            self._keys[slot] = key.owner
            self._lead_of[slot] = self._lead(key.owner)
        self._homes[slot] = PENDING
        self._added += len(self._pending) - before
        self._patience = -inf
        if len(self._pending) >= self._capacity:
            self._flush()
        return True

    def _take_slot(self) -> int:
        slot = self._free.pop() if self._free else len(self._slots) + len(self._leads)
        if slot >= len(self._keys):
            self._keys = np.concatenate([self._keys, np.empty_like(self._keys)])
            self._stamps = np.concatenate([self._stamps, np.zeros_like(self._stamps)])
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
            self._lead_of = np.concatenate([self._lead_of, np.zeros_like(self._lead_of)])
            self._homes = np.concatenate([self._homes, np.full_like(self._homes, PENDING)])
            self._patience = -inf  # compiled code must not read the old arrays
        return slot

    def _lead(self, owner: Hashable) -> int:
        """Return the slot that stands for all parts of a key, which has one more now."""
        lead = self._leads.get(owner)
        if lead is None:
            lead = self._take_slot()
            self._leads[owner], self._keys[lead], self._lead_uses[lead] = lead, owner, 0
            self._has_parts = True
        self._lead_uses[lead] += 1
        return lead

    def _leave_lead(self, lead: int) -> None:
        self._lead_uses[lead] -= 1
        if not self._lead_uses[lead]:
            del self._lead_uses[lead], self._leads[self._keys[lead]]
            self._keys[lead] = None
            self._free.append(lead)
            self._has_parts = bool(self._leads)

    def remove(self, key: Hashable) -> None:
        """Remove a filter; KeyError if it is not there."""
        slot = self._slots.pop(key)
        home = int(self._homes[slot])
        if home == PENDING:
            self._pending.remove(slot)
            self._patience = -inf
        else:
            self._remove_from(home, slot)
        if type(key) is FilterPart:
            self._leave_lead(int(self._lead_of[slot]))
        self._keys[slot] = None
        self._rough.pop(slot, None)
        self._free.append(slot)

    def _remove_from(self, home: int, slot: int) -> None:
        block = self._blocks[home]
        entries = block.entries
        for place in block.remove(slot):
            tests = entries.tests[entries.first[place] : entries.first[place + 1]]
            count_texts(self._lanes, tests.ravel().tolist(), -1)
        if 2 * block.living < len(block):
            self._rewrite(home)

    def _rewrite(self, home: int) -> None:
        """Rebuild the rest of a block, together with another that has room if there is one."""
        self._refresh()
        living = self._blocks[home].living
        others = (
            number
            for number, other in self._blocks.items()
            if number != home and other.living + living <= self._capacity
        )
        old = [home, *islice(others, 1)] if living else [home]
        self._replace(old, [])

    # Blocks

    def _flush(self) -> None:
        """Make a block of the pending entries, with the newest block if both fit one."""
        self._refresh()
        entries = self._pending.entries()
        living = np.flatnonzero(entries.owners >= 0)
        self._pending.clear()
        if len(living):
            self._begin_generation()
            self._flush_entries(entries.only(living))
        self._migrate()
        self._patience = -inf

    def _flush_entries(self, entries: EntryArrays) -> None:
        size = len(entries.owners)
        newest = islice(reversed(self._blocks.items()), 1)
        merged = [number for number, block in newest if block.living + size <= self._capacity]
        for start, end in _lots(entries.owners, self._capacity):
            lot = entries.only(np.arange(start, end)) if (start, end) != (0, size) else entries
            self._replace(merged, [lot])
            merged = []
        if self._blocks[self._blocks_made].living > self._capacity // 2:
            self._loose.append(self._blocks_made)
        if len(self._loose) >= CLUSTERED:
            self._cluster()

    def _cluster(self) -> None:
        """Sort the entries of the loose blocks among each other, if they mostly test single values."""
        loose = [number for number in self._loose if number in self._blocks]
        self._loose = []
        entries = EntryArrays.join([self._blocks[number].living_entries() for number in loose])
        order = entries.clustered()
        if order is not None:
            for number in loose:
                del self._blocks[number]
            entries = entries.only(order)
            for start, end in _lots(entries.owners, self._capacity):
                self._replace([], [entries.only(np.arange(start, end))])

    def _replace(self, old: list[int], more: list[EntryArrays]) -> None:
        """Replace old blocks by one of these entries and of their own living ones."""
        gone = [self._blocks.pop(number) for number in old]
        self._patience, self._block_words = -inf, None
        parts = more + [block.living_entries() for block in gone if block.living]
        if not parts:
            return
        grid, known = self._grids[self._generation & 1], self._lanes
        entries = EntryArrays.join(parts)
        new = build(entries, grid, known.ordered, known.kinds, known.cuts.ranks, self._generation)
        self._blocks_made += 1
        self._blocks[self._blocks_made] = new
        self._homes[new.entries.owners >> MARK_BITS] = self._blocks_made

    def _begin_generation(self) -> None:
        if len(self._grids) > 1 or not self._blocks or self._added <= GROWTH * self._founded:
            return
        self._added, self._founded = 0, sum(block.living for block in self._blocks.values())
        self._generation += 1
        grid = self._grids[self._generation & 1] = LaneGrid(self._lanes.cuts)
        step = -(-len(self._blocks) // SAMPLED_BLOCKS)
        sampled = islice(self._blocks.values(), 0, None, step)
        sample = EntryArrays.join([block.living_entries() for block in sampled])
        grid.learn(sample, self._lanes.ordered, max(8, len(sample.owners) >> 6))

    def _migrate(self) -> None:
        """Convert some blocks to the present generation; with the last one, the old grids go."""
        if len(self._grids) == 1:
            return
        old = [number for number, block in self._blocks.items() if block.generation != self._generation]
        for number in old[:MIGRATIONS]:
            self._replace([number], [])
        if len(old) <= MIGRATIONS:
            self._grids.pop((self._generation - 1) & 1).close(self._lanes.ordered)
            self._forget_lanes()

    def _forget_lanes(self) -> None:
        used = set(self._pending.entries().lanes.tolist())
        used.update(*(block.lanes for block in self._blocks.values()))
        if 2 * len(used) < len(self._lanes.numbers):
            freed = self._lanes.forget_others(used)
            self._grids[self._generation & 1].forget(freed, self._lanes.ordered)
            self._refresh()

    # Saving

    def saved(self) -> EngineState:
        """Return all that matching needs, with the pending entries in blocks; valid until the next change."""
        if len(self._pending):
            self._flush()
        self.settle()
        assert self._plan is not None
        size = len(self._slots) + len(self._leads) + len(self._free)
        return EngineState(
            plan=self._plan,
            lanes=dict(self._lanes.numbers),
            lanes_size=self._lanes.size,
            ranks=self._lanes.cuts.ranks,
            grids=self._grids,
            blocks=list(self._blocks.values()),
            keys=self._keys[:size].tolist(),
            free=sorted(self._free),
            rough=self._rough,
            leads=self._lead_of[:size] if self._leads else None,
        )

    # Updating the input of compiled code

    def _refresh(self) -> None:
        """Add the lanes and texts of pending entries to the plan."""
        if self._lanes.is_stale or self._plan is None:
            self._plan = self._lanes.refresh()
            self._plan_words = self._plan.words()
            self._patience = -inf

    def _sync(self) -> None:
        is_tried_much = self._patience > -inf and len(self._pending) > 0
        if len(self._pending) >= self._pending_max or is_tried_much:
            self._flush()
        self._refresh()
        pending = self._pending.entries()
        self._waiting = [EntryBlock(pending, self._generation)] if len(self._pending) else []
        if self._block_words is None:
            words = [block.words for block in self._blocks.values()]
            self._block_words = np.array(words, np.int64).reshape(-1, kernel.BLOCK_WORDS)
        self._words = np.vstack([self._block_words, *(block.words for block in self._waiting)])
        self._size_tiles()
        for grid in self._grids.values():
            grid.flatten(self._lanes.ordered)
        self._write_control(self._grids)
        self._patience = TRIED_MAX / len(self._pending) if len(self._pending) else inf

    @property
    def memory(self) -> dict[str, int]:
        """Bytes by part; those of Python's own objects are estimated."""
        return {
            "entries": sum(block.entries.memory for block in self._blocks.values())
            + self._pending.entries().memory,
            "bitmaps": sum(block.bitmap_memory for block in self._blocks.values()),
            "grids": sum(grid.memory for grid in self._grids.values()),
            "texts": self._lanes.texts.memory + self._lanes.cuts.memory,
            "keys": self._keys.nbytes + self._homes.nbytes + self._lead_of.nbytes + 132 * len(self._slots),
            "scratch": self._stamps.nbytes
            + self._counts.nbytes
            + 3 * self._out_rows.nbytes
            + (self._values.nbytes + self._cells.nbytes if self._patience > -inf else 0),
        }


def _lots(owners: Ints, most: int) -> list[tuple[int, int]]:
    """Return beginnings and ends of runs of at most so many entries, each slot's in one run."""
    slots = owners >> MARK_BITS
    lots: list[tuple[int, int]] = []
    start = 0
    while len(owners) - start > most:
        end = start + most
        while end > start and slots[end - 1] == slots[end]:
            end -= 1
        if end == start:  # a filter has more entries than a block, which tests make small
            end = start + int(np.count_nonzero(slots == slots[start]))
        lots.append((start, end))
        start = end
    return [*lots, (start, len(owners))]

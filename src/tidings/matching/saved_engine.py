"""The engine in a saved index: its arrays lie in the sections, and only scratch arrays are its own."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np

from tidings.event.scan import KINDS
from tidings.event.texts import Bytes, Cuts, Floats, Ints, Longs, TextTable, address, find
from tidings.matching import kernel
from tidings.matching.block import GROUPS, EntryBlock
from tidings.matching.entries import MARK_BITS, SPAN_SHIFT
from tidings.matching.lanes import CutTexts, Lanes, Texts
from tidings.matching.saved import LazyFilter
from tidings.matching.sections import ALIGNMENT, Sections
from tidings.matching.tiles import TileMatcher

if TYPE_CHECKING:
    from tidings.matching.engine import EngineState

LAYOUT: Final = (kernel.BLOCK_WORDS, kernel.FIRST_ADDRESS, KINDS, GROUPS, SPAN_SHIFT, MARK_BITS)
"""Numbers on which the meaning of the sections rests; a file with others is of another version."""


class EngineFacts(msgspec.Struct, frozen=True):
    """Numbers of a saved engine."""

    layout: tuple[int, ...]
    lanes: list[tuple[str, int, int]]  # name, kind, number
    lanes_size: int
    slots: int
    free: list[int]
    has_numbers: bool  # whether all keys are numbers
    grids: list[int]  # parities


# Saving


def engine_sections(
    state: EngineState, checked: Callable[[Sequence[Any]], list[int | str]]
) -> tuple[EngineFacts, dict[str, Any]]:
    """Return the facts and sections of an engine; `checked` raises an error for a key that can't be saved."""
    free = set(state.free)
    taken = checked([key for slot, key in enumerate(state.keys) if slot not in free])
    has_numbers = all(isinstance(key, int) for key in taken)
    keys = [0 if slot in free else key for slot, key in enumerate(state.keys)]
    words, blocks = _laid_out(state.blocks)
    plan = state.plan
    sections: dict[str, Any] = {
        "keys": np.array(keys, np.int64) if has_numbers else msgspec.msgpack.encode(keys),
        "rough": msgspec.msgpack.encode({slot: str(wanted) for slot, wanted in state.rough.items()}),
        "words": words,
        "blocks": blocks,
        "strings": plan.strings.slots,
        "string_spans": plan.strings.spans,
        "string_pool": plan.strings.pool,
        "cuts": plan.cuts.order,
        "cut_segments": plan.cuts.segments,
        "cut_spans": plan.cuts.spans,
        "cut_pool": plan.cuts.pool,
        "ranks": state.ranks,
    }
    if state.leads is not None:
        sections["leads"] = state.leads
    for parity, grid in state.grids.items():
        sections |= {f"grid_starts{parity}": grid.starts, f"grid_bounds{parity}": grid.bounds}
    lanes = [(name, kind, lane) for (name, kind), lane in state.lanes.items()]
    facts = EngineFacts(
        LAYOUT, lanes, state.lanes_size, len(keys), state.free, has_numbers, list(state.grids)
    )
    return facts, sections


def _laid_out(blocks: list[EntryBlock]) -> tuple[Longs, bytearray]:
    """Return the words of blocks, with places for addresses, and the arrays that lie there."""
    words: Longs = np.zeros((len(blocks), kernel.BLOCK_WORDS), np.int64)
    content = bytearray()
    for row, block in zip(words, blocks, strict=True):
        row[:] = block.words
        for word, part in enumerate(block.arrays, kernel.FIRST_ADDRESS):
            row[word] = len(content)
            content += part.tobytes()
            content += bytes(-len(content) % ALIGNMENT)
    return words, content


# Reading


class _Bounds(NamedTuple):
    starts: Ints
    bounds: Floats


class _SavedTexts(Texts):
    """Texts of equalities in a saved table."""

    def __init__(self, table: TextTable) -> None:
        super().__init__(table.seed)
        self._table = table
        self._words: Longs = np.array(table.words(), np.int64)

    def table(self) -> TextTable:
        return self._table

    def find(self, text: bytes) -> int:
        sought: Bytes = np.frombuffer(bytearray(text) or bytearray(1), np.uint8)
        number: int = find(address(self._words), address(sought), len(text))
        return number


class _SavedCuts(CutTexts):
    """Texts at the ends of ranges in a saved order."""

    def __init__(self, cuts: Cuts, ranks: Longs) -> None:
        super().__init__()
        self._cuts = cuts
        self.ranks = ranks

    def update(self, _lanes: int) -> Cuts:
        return self._cuts

    def coordinate(self, lane: int, text: bytes) -> float:
        begin, end = self._cuts.segments[lane : lane + 2].tolist()
        place = bisect_left(range(end), text, begin, end, key=self._text)
        return 2.0 * place + (place < end and self._text(place) == text)

    def _text(self, place: int) -> bytes:
        begin, size = self._cuts.spans[self._cuts.order[place]].tolist()
        return self._cuts.pool[begin : begin + size].tobytes()


class _SavedLanes(Lanes):
    """Lanes with saved texts."""

    def __init__(self, facts: EngineFacts, texts: Texts, cuts: CutTexts, seed: int) -> None:
        super().__init__(seed)
        self.texts, self.cuts = texts, cuts
        self.uses.extend([0] * facts.lanes_size)
        self.numbers = {(name, kind): lane for name, kind, lane in facts.lanes}
        self._index_names()


class SavedEngine(TileMatcher):
    """Filters by slot, matched against events from the sections of a saved index."""

    def __init__(self, sections: Sections, packed: bytes, seed: int) -> None:
        facts: EngineFacts = sections.decode(packed, EngineFacts, "header")
        if facts.layout != LAYOUT:
            raise sections.error("has the layout of another version of tidings; save it again")
        self._sections = sections
        self._facts = facts
        self._seed = seed
        self._stamps: Longs = np.zeros(facts.slots + 1, np.int64)
        self._counts: Ints = np.zeros(facts.slots + 1, np.int32)
        self._has_parts = "leads" in sections
        if self._has_parts:
            self._lead_of: Ints = sections.array("leads", np.int32)
        self._make_room()
        self._patience = -inf
        self._sync()

    def _sync(self) -> None:
        """Find everything in the sections; once, as nothing changes afterwards."""
        sections, facts = self._sections, self._facts
        self._lanes = self._open_lanes()
        self._plan = self._lanes.refresh()
        self._plan_words = self._plan.words()
        self._blocks = sections.array("blocks", np.uint8)
        self._words: Longs = sections.array("words", np.int64, -1, kernel.BLOCK_WORDS).copy()
        self._words[:, kernel.FIRST_ADDRESS :] += address(self._blocks)
        self._grids: Mapping[int, _Bounds] = {
            parity: _Bounds(
                sections.array(f"grid_starts{parity}", np.int32),
                sections.array(f"grid_bounds{parity}", np.float64),
            )
            for parity in facts.grids
        }
        self._size_tiles()
        self._write_control(self._grids)
        self._patience = inf

    def _open_lanes(self) -> Lanes:
        array = self._sections.array
        strings = TextTable(
            array("strings", np.int32),
            array("string_spans", np.int64, -1, 2),
            array("string_pool", np.uint8),
            self._seed,
        )
        cuts = Cuts(
            array("cuts", np.int32),
            array("cut_segments", np.int32),
            array("cut_spans", np.int64, -1, 2),
            array("cut_pool", np.uint8),
        )
        saved_cuts = _SavedCuts(cuts, array("ranks", np.int64))
        return _SavedLanes(self._facts, _SavedTexts(strings), saved_cuts, self._seed)

    @cached_property
    def _keys(self) -> Any:  # made on first use
        if self._facts.has_numbers:
            return self._sections.array("keys", np.int64)
        keys = np.empty(self._facts.slots, object)
        keys[:] = self._sections.unpacked("keys", list[int | str])
        return keys

    @cached_property
    def _rough(self) -> dict[int, LazyFilter]:  # type: ignore[override]  # the same
        texts = self._sections.unpacked("rough", dict[int, str])
        return {slot: LazyFilter(text) for slot, text in texts.items()}

    @cached_property
    def _held(self) -> frozenset[Hashable]:
        free = set(self._facts.free)
        return frozenset(key for slot, key in enumerate(self._keys.tolist()) if slot not in free)

    def __len__(self) -> int:
        return self._facts.slots - len(self._facts.free)

    def __contains__(self, key: object) -> bool:
        return key in self._held

    @property
    def memory(self) -> dict[str, int]:
        """Bytes by part; those of a mapped file are shared by all processes that have it open."""
        return {
            "blocks": self._blocks.nbytes,
            "scratch": self._stamps.nbytes + self._counts.nbytes + 3 * self._out_rows.nbytes,
        }

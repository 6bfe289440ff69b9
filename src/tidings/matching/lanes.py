"""Columns that the filters of an index need, and the texts they know: the input of the scan of events.

A lane is one kind of value of one attribute (see `tidings.event.scan`). Lanes, texts of equalities, and texts
that are ends of ranges (*cuts*) are numbered as filters name them and forgotten when none does.

Numbers never shift under filters that use them. The order of the cuts does, as new ones come between; so
filters hold numbers of cuts, and `ranks` has the present place of each. To add new cuts costs O(all cuts), at
the speed of copying memory.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

import numpy as np

from tidings.errors import CodecError
from tidings.event import Batch
from tidings.event.header import PRIORITY_DEFAULT
from tidings.event.scan import (
    BLOB_ORDER,
    KINDS,
    NUMBER,
    PLACE_ADDRESS_BITS,
    PLACE_SIZE_BITS,
    PLACE_SIZE_MAX,
    PRESENCE,
    STRING,
    STRING_ORDER,
    TEXT_PLACE,
    ScanPlan,
    scan_rows,
)
from tidings.event.texts import Bytes, Cuts, Floats, Ints, Longs, TextTable, address, insert
from tidings.event.wire import HEAD_SIZE
from tidings.matching.clues import SCANNED_HEADER

_DEFAULT_WORDS: Final = {"delivery": "transient", "route": "auto"}
INSERTED_MAX: Final = 64
"""New cuts that are inserted one by one; more are merged, which reads every cut."""
_ADDRESS_MASK = (1 << PLACE_ADDRESS_BITS) - 1
_WORD_PADDING: Final = 8  # the last text may be read in whole words
UNUSED_MIN = 256
"""Unused numbers that are not worth collecting."""

Thing = TypeVar("Thing", bound=Hashable)


class CountedNumbers(Generic[Thing]):
    """Small numbers for things that come and go, with the number of uses of each.

    A number stays with its thing until `collect` is called, even when it is unused; so a thing that comes
    back soon gets its number again, and collecting is worth its cost only when much is unused.
    """

    def __init__(self) -> None:
        self.numbers: dict[Thing, int] = {}
        self.uses = array("q")
        self.fresh: list[Thing] = []  # numbered since the owner last read this
        self.used = 0  # things that are in use at all
        self._free: list[int] = []

    def number(self, thing: Thing) -> int:
        """Return the number of a thing, a new one if it has none; `use` counts its uses."""
        known = self.numbers.get(thing)
        if known is not None:
            return known
        if self._free:
            new = self._free.pop()
        else:
            new = len(self.uses)
            self.uses.append(0)
        self.numbers[thing] = new
        self.fresh.append(thing)
        return new

    @property
    def size(self) -> int:
        """One more than the highest number ever used."""
        return len(self.uses)

    @property
    def is_wasteful(self) -> bool:
        """Whether more than half of the things are unused, and not just a few."""
        unused = len(self.numbers) - self.used
        return unused > UNUSED_MIN and 2 * unused > len(self.numbers)

    def collect(self) -> list[int]:
        """Forget the unused things; their numbers may be used again."""
        gone = [thing for thing, number in self.numbers.items() if not self.uses[number]]
        freed = [self.numbers.pop(thing) for thing in gone]
        self._free += freed
        return freed

    def use(self, number: int, times: int) -> None:
        """Count a number as used so many times more, or less if negative."""
        before = self.uses[number]
        after = before + times
        assert after >= 0
        self.uses[number] = after
        self.used += (after > 0) - (before > 0)


class TextPool:
    """Texts one behind the other in one array of bytes, by number."""

    def __init__(self) -> None:
        self.spans: Longs = np.zeros((64, 2), np.int64)
        self.bytes: Bytes = np.zeros(1024, np.uint8)
        self._end = 0

    def add(self, number: int, text: bytes) -> None:
        """Store the text of a number."""
        while number >= len(self.spans):
            self.spans = np.concatenate([self.spans, np.zeros_like(self.spans)])
        end = self._end + len(text)
        if end + _WORD_PADDING > len(self.bytes):
            more = np.zeros(max(len(self.bytes), len(text) + _WORD_PADDING), np.uint8)
            self.bytes = np.concatenate([self.bytes, more])
        self.bytes[self._end : end] = np.frombuffer(text, np.uint8)
        self.spans[number] = self._end, len(text)
        self._end = end


class Texts(CountedNumbers[bytes]):
    """Texts of equalities, in a table for the scan."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed
        self._pool = TextPool()
        self._slots: Ints = np.full(16, -1, np.int32)

    def table(self) -> TextTable:
        """Update and return the table of all texts."""
        if self.is_wasteful:
            self.collect()
            self._pool = TextPool()
            self._slots = np.full(16, -1, np.int32)
            self.fresh = list(self.numbers)
        for text in self.fresh:
            self._pool.add(self.numbers[text], text)
        if not self._enter(self.fresh):
            self._grow()
        self.fresh = []
        return TextTable(self._slots, self._pool.spans, self._pool.bytes, self._seed)

    def find(self, text: bytes) -> int:
        """Return the number that the scan writes for this text, -1 if no filter names it."""
        return self.numbers.get(text, -1)

    def _enter(self, texts: list[bytes]) -> bool:
        if 2 * len(self.numbers) > len(self._slots):
            return False
        numbers = np.fromiter(map(self.numbers.__getitem__, texts), np.int32, len(texts))
        return bool(insert(self._slots, self._pool.spans, address(self._pool.bytes), self._seed, numbers))

    def _grow(self) -> None:
        size = 2 * len(self._slots)
        while size < 4 * len(self.numbers):
            size *= 2
        self._slots = np.full(size, -1, np.int32)
        if not self._enter(list(self.numbers)):
            self._grow()

    @property
    def memory(self) -> int:
        """Bytes held, the dictionary estimated."""
        return int(self._slots.nbytes + self._pool.spans.nbytes + self._pool.bytes.nbytes) + 150 * self.size


class CutTexts(CountedNumbers[tuple[int, bytes]]):
    """Texts at which ranges begin or end, each with its lane, in order."""

    def __init__(self) -> None:
        super().__init__()
        self._sorted: list[tuple[int, bytes]] = []
        self._order: Ints = np.zeros(0, np.int32)
        self._lanes: Ints = np.zeros(0, np.int32)
        self._pool = TextPool()
        self.ranks: Longs = np.zeros(1, np.int64)

    def update(self, lanes: int) -> Cuts:
        """Insert new cuts into the order; `lanes` is the number of lanes."""
        if self.is_wasteful:
            self.collect()
            self._sorted, self._pool = [], TextPool()
            self._order, self._lanes = self._order[:0], self._lanes[:0]
            self.fresh = list(self.numbers)
        if self.fresh:
            self._merge(sorted(self.fresh))
            self.fresh = []
        segments = np.searchsorted(self._lanes, np.arange(lanes + 1)).astype(np.int32)
        return Cuts(self._order, segments, self._pool.spans, self._pool.bytes)

    def _merge(self, fresh: list[tuple[int, bytes]]) -> None:
        numbers = [self.numbers[cut] for cut in fresh]
        places = [bisect_left(self._sorted, cut) for cut in fresh]
        self._order = np.insert(self._order, places, numbers).astype(np.int32)
        self._lanes = np.insert(self._lanes, places, [lane for lane, _ in fresh]).astype(np.int32)
        if len(fresh) < INSERTED_MAX:
            for cut in fresh:
                insort(self._sorted, cut)
        else:
            self._sorted += fresh
            self._sorted.sort()  # two sorted runs: one merge
        for number, (_, text) in zip(numbers, fresh, strict=True):
            self._pool.add(number, text)
        self.ranks = np.zeros(self.size + 1, np.int64)
        self.ranks[self._order] = np.arange(len(self._order))

    def coordinate(self, lane: int, text: bytes) -> float:
        """Return the coordinate that the scan writes for this text."""
        place = bisect_left(self._sorted, (lane, text))
        known = place < len(self._sorted) and self._sorted[place] == (lane, text)
        return 2.0 * place + known

    @property
    def memory(self) -> int:
        """Bytes held, the dictionary and its keys estimated."""
        held = self._order.nbytes + self._pool.spans.nbytes + self._pool.bytes.nbytes + self.ranks.nbytes
        return int(held) + 250 * self.size


class Lanes(CountedNumbers[tuple[str, int]]):
    """The lanes in use, by (name, kind), with the texts they know."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed
        self.texts = Texts(seed)
        self.cuts = CutTexts()
        self.ordered: Bytes = np.zeros(1, np.uint8)  # by lane: whether its bounds are numbers of cuts
        self.kinds = array("b")
        self.number_lanes: dict[str, int] = {}  # by name, the lanes used most
        self._source: str | None = None
        self._is_collected = False
        self._index_names()

    def number(self, thing: tuple[str, int]) -> int:
        """Return the lane of (name, kind)."""
        lane = super().number(thing)
        if lane == len(self.kinds):
            self.kinds.append(0)
        self.kinds[lane] = thing[1]
        if thing[1] == NUMBER:
            self.number_lanes[thing[0]] = lane
        return lane

    @property
    def is_stale(self) -> bool:
        """Whether the plan must be made anew."""
        return bool(self.fresh or self.texts.fresh or self.cuts.fresh or self._is_collected)

    def forget_others(self, used: set[int]) -> list[int]:
        """Forget all lanes but these, and return the forgotten ones; their numbers may be used again.

        Lanes are not counted as texts are: there are few, and the blocks know theirs.
        """
        for lane in self.numbers.values():
            self.uses[lane] = lane in used
        freed = self.collect()
        self.number_lanes = {name: lane for (name, kind), lane in self.numbers.items() if kind == NUMBER}
        self._is_collected = True
        return freed

    def refresh(self) -> ScanPlan:
        """Return the plan for scanning, with everything named so far."""
        if self.fresh or self._is_collected:
            self._index_names()
            self.fresh, self._is_collected = [], False
        strings = self.texts.table()
        cuts = self.cuts.update(self.size)
        type_name, time_name = self._names.get("type", -1), self._names.get("time", -1)
        self._plan = ScanPlan(
            self._name_table,
            strings,
            cuts,
            self._lane_of,
            self._in_header,
            type_name,
            time_name,
            self._defaults,
        )
        self._fill_defaults()
        return self._plan

    def _index_names(self) -> None:
        self._names = {name: number for number, name in enumerate({name for name, _ in self.numbers})}
        table = Texts(self._seed)
        for name in self._names:
            table.use(table.number(name.encode("utf-8", "surrogatepass")), 1)
        self._name_table = table.table()
        self._lane_of = np.full((len(self._names), KINDS), -1, np.int32)
        for (name, kind), lane in self.numbers.items():
            self._lane_of[self._names[name], kind] = lane
        self._in_header = np.array([name in SCANNED_HEADER for name in self._names], np.uint8)
        self._defaults: Floats = np.empty(self.size)
        self.ordered = np.zeros(self.size, np.uint8)
        for (_, kind), lane in self.numbers.items():
            self.ordered[lane] = kind in (STRING_ORDER, BLOB_ORDER)

    def _fill_defaults(self) -> None:
        self._defaults[:] = np.nan
        for (name, kind), lane in self.numbers.items():
            if kind == PRESENCE:
                self._defaults[lane] = name in _DEFAULT_WORDS or name == "priority"
            if kind == NUMBER and name == "priority":
                self._defaults[lane] = PRIORITY_DEFAULT
        for name, word in _DEFAULT_WORDS.items():
            self._set_constant(name, word)
        self._set_constant("source", self._source)

    def set_source(self, source: str | None) -> None:
        """Set the source of the events that are scanned next."""
        if source != self._source:
            self._source = source
            self._set_constant("source", source)

    def _set_constant(self, name: str, word: str | None) -> None:
        text = None if word is None else word.encode()
        known: Any = np.nan if text is None else self.texts.find(text)
        for kind, value in ((STRING, known), (PRESENCE, text is not None)):
            lane = self.numbers.get((name, kind))
            if lane is not None:
                self._defaults[lane] = value
        lane = self.numbers.get((name, STRING_ORDER))
        if lane is not None:
            self._defaults[lane] = np.nan if text is None else self.cuts.coordinate(lane, text)


class TextPlaces:
    """Reads texts of attributes, or header fields that are texts, out of the bytes: no event is decoded."""

    def __init__(self, names: Iterable[str], seed: int) -> None:
        self._names = list(names)
        self._lanes = Lanes(seed)
        for name in self._names:
            self._lanes.number((name, TEXT_PLACE))
        self._plan = self._lanes.refresh()  # keeps alive what its words point to
        self._words = self._plan.words()

    def read(self, batch: Batch) -> Iterator[tuple[str, list[bytes | None]]]:
        """Yield each name with its text in every event, None if it has none; CodecError as `Batch.events`."""
        values: Floats = np.empty((len(batch), max(1, len(self._names))))
        data = np.frombuffer(batch.raw, np.uint8)
        done, end = scan_rows(data, HEAD_SIZE, len(batch), self._words, values)
        if done < len(batch):
            raise CodecError(f"$[{done}]", "is cut short or no event")
        if end != len(batch.raw):
            raise CodecError("$", f"{len(batch.raw) - end} bytes follow the last event")
        for name in self._names:
            lane = self._lanes.numbers[name, TEXT_PLACE]
            yield name, _cut(batch, name, values[:, lane], address(data))


def _cut(batch: Batch, name: str, column: Floats, base: int) -> list[bytes | None]:
    """Return the texts at these places in the bytes of a batch, which lie at an address."""
    raw = batch.raw
    is_there = ~np.isnan(column)
    places = np.where(is_there, column, 0).astype(np.int64)
    sizes = places & PLACE_SIZE_MAX
    begins = np.where(is_there, ((places >> PLACE_SIZE_BITS) - base) & _ADDRESS_MASK, 0)
    spans = zip(begins.tolist(), (begins + sizes).tolist(), strict=True)
    texts = [raw[begin:end] if begin else None for begin, end in spans]  # before the first is the head
    for row in np.flatnonzero(sizes == PLACE_SIZE_MAX).tolist():
        texts[row] = str(batch[row].get(name)).encode()
    return texts

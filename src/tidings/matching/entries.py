"""Conjunctions as flat numbers, from which blocks are built and by which candidates are verified.

An *entry* is a list of tests that must all hold; a *test* is a row of three numbers (head, low, high): a lane
and a closed interval that must contain its value. If one of several intervals must, they follow each other,
and the head says how many are still to come. One filter has an entry for each alternative of its normal form,
more if an attribute may be of several kinds.

The rule kept: an entry admits every event its conjunction admits. Where it may admit more (integers past
2^53, header fields that are not scanned, residues, too many alternatives) it is marked ROUGH, and its filter
is evaluated after a match.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec.structs import astuple

from tidings.event.scan import (
    BLOB,
    BLOB_ORDER,
    BOOLEAN,
    NUMBER,
    PRESENCE,
    STRING,
    STRING_ORDER,
    TIME,
)
from tidings.event.texts import Floats, Ints, Longs
from tidings.event.values import EXACT_MAX, us_from_time
from tidings.filters.constraint import FALSE, PRESENT, TRUE, Constraint
from tidings.filters.intervals import AFTER, BEFORE, NOTHING, Intervals
from tidings.filters.normal import Conjunction
from tidings.matching.clues import UNSCANNED
from tidings.matching.lanes import Lanes

INFINITY: Final = math.inf
ALTERNATIVES_MAX: Final = 16
"""Entries that one conjunction may become; past that, attributes of several kinds are tested roughly."""
LANES_MAX: Final = 4096
"""Lanes of one index; attributes past that are left to the filter itself."""
SPAN_SHIFT: Final = 16
SPAN_UNIT: Final = 1 << SPAN_SHIFT
LANE_MASK: Final = SPAN_UNIT - 1
"""The head of a test: its lane in the lower bits, above them the intervals to come, this one among them."""
MARK_BITS: Final = 2
ROUGH, SHARED = 1, 2
"""Marks of an entry: its filter must be evaluated; its filter has other entries too."""


Interval = tuple[float, float]
EntryTest = tuple[int, list[Interval]]


class EntryArrays(NamedTuple):
    """Entries as arrays: the tests of entry n are `tests[first[n]:first[n + 1]]`.

    `owners` holds slot << MARK_BITS | marks, or -1 for an entry that was removed.
    """

    first: Ints
    owners: Ints
    tests: Floats

    def take(self, order: Any) -> tuple[EntryArrays, Ints]:
        """Return these entries in this order, and the old index of each of their tests."""
        begins = self.first[:-1][order]
        sizes = np.diff(self.first)[order]
        first = np.zeros(len(sizes) + 1, np.int32)
        np.cumsum(sizes, out=first[1:])
        places = np.repeat(begins - first[:-1], sizes) + np.arange(first[-1], dtype=np.int32)
        return EntryArrays(first, self.owners[order], self.tests[places]), places

    def only(self, chosen: Any) -> EntryArrays:
        """Return these entries."""
        return self.take(chosen)[0]

    @property
    def lanes(self) -> Longs:
        """Return the lane of each test."""
        return self.tests[:, 0].astype(np.int64) & LANE_MASK

    def clustered(self) -> Ints | None:
        """Return an order in which entries that want the same value of the most tested lane stand together.

        The entries of a slot stay together. None if fewer than half of the entries want single values.
        """
        is_point = self.tests[:, 1] == self.tests[:, 2]
        lanes = self.lanes
        counts = np.bincount(lanes[is_point], minlength=1)
        lane = int(counts.argmax())
        if 2 * counts[lane] < len(self.owners):
            return None
        wanted = np.full(len(self.owners), np.inf)
        entry_of = np.repeat(np.arange(len(self.owners)), np.diff(self.first))
        chosen = is_point & (lanes == lane)
        wanted[entry_of[chosen]] = self.tests[chosen, 1]
        _, begins, groups = np.unique(self.owners >> MARK_BITS, return_index=True, return_inverse=True)
        order: Ints = np.lexsort((groups, wanted[begins][groups])).astype(np.int32)
        return order

    @staticmethod
    def join(parts: list[EntryArrays]) -> EntryArrays:
        """Join the entries of several lots."""
        if len(parts) == 1:
            return parts[0]
        ends = np.cumsum([0] + [int(part.first[-1]) for part in parts])
        shifted = [part.first[:-1] + end for part, end in zip(parts, ends, strict=False)]
        first = np.append(np.concatenate(shifted), ends[-1]).astype(np.int32)
        return EntryArrays(
            first, *(np.concatenate(columns) for columns in zip(*(p[1:] for p in parts), strict=True))
        )

    @property
    def memory(self) -> int:
        """Bytes held."""
        return sum(part.nbytes for part in self)


class Pending:
    """Added entries: arrays that grow cheaply, and hold no Python objects."""

    def __init__(self, lanes: Lanes) -> None:
        self._known = lanes
        self.clear()

    def clear(self) -> None:
        """Forget all entries."""
        self.owners = array("i")
        self._ends = array("i", [0])
        self._tests = array("d")

    def __len__(self) -> int:
        return len(self.owners)

    def entries(self) -> EntryArrays:
        """Return a copy of the pending entries, removed ones included."""
        return EntryArrays(
            np.array(self._ends, np.int32),
            np.array(self.owners, np.int32),
            np.array(self._tests, np.float64).reshape(-1, 3),
        )

    def remove(self, slot: int) -> None:
        """Remove the entries of a slot."""
        place = len(self.owners) - 1  # an entry that is removed soon was added late
        while self.owners[place] >> MARK_BITS != slot:
            place -= 1
        while place >= 0 and self.owners[place] >> MARK_BITS == slot:
            count_texts(self._known, self._tests[3 * self._ends[place] : 3 * self._ends[place + 1]], -1)
            self.owners[place] = -1
            place -= 1

    def add(self, slot: int, normal: Iterable[Conjunction]) -> bool:
        """Add the entries of a filter, none if it can't match; return False if the filter must be kept."""
        begin = len(self.owners)
        for conjunction in normal:
            self._add_conjunction(slot, conjunction)
        if len(self.owners) > begin + 1:
            for place in range(begin, len(self.owners)):
                self.owners[place] |= SHARED
        return not any(owner & ROUGH for owner in self.owners[begin:])

    def _add_conjunction(self, slot: int, conjunction: Conjunction) -> None:
        begin = len(self._tests)
        rough = bool(conjunction.residues)
        several: list[list[EntryTest]] = []
        others = self._add_ranges(conjunction.constraints)
        for name, constraint in others:
            if name in UNSCANNED or (len(self._known.numbers) >= LANES_MAX and not self._is_known(name)):
                rough = True
                continue
            if constraint.is_empty:
                del self._tests[begin:]
                return
            alternatives, inexact = self._alternatives(name, constraint)
            rough |= inexact
            if len(alternatives) == 1:
                self._add_test(*alternatives[0])
            elif alternatives:
                several.append(alternatives)
        if math.prod(map(len, several)) > ALTERNATIVES_MAX:
            rough, several = True, []
        if several:
            self._multiply(slot, begin, rough, several)
        else:
            self._finish(slot, begin, rough, has_texts=bool(others))

    def _add_ranges(self, constraints: dict[str, Constraint]) -> list[tuple[str, Constraint]]:
        """Add the tests for plain ranges of numbers, most tests by far; return the other constraints."""
        left = []
        lanes, extend = self._known.number_lanes, self._tests.extend
        for name, constraint in constraints.items():
            numbers, strings, times, blobs, booleans, nan, missing = astuple(constraint)
            if strings is times is blobs is NOTHING and not (booleans or nan or missing) and name in lanes:
                cuts = numbers.cuts
                if len(cuts) == 2 and not numbers.inside:
                    (low, low_side), (high, high_side) = cuts
                    if low > -EXACT_MAX and high < EXACT_MAX:
                        low = math.nextafter(low, INFINITY) if low_side else low
                        high = high if high_side else math.nextafter(high, -INFINITY)
                        extend((SPAN_UNIT + lanes[name], low, high))
                        continue
            left.append((name, constraint))
        return left

    def _is_known(self, name: str) -> bool:
        return any((name, kind) in self._known.numbers for kind in range(PRESENCE + 1))

    def _add_test(self, lane: int, intervals: list[Interval]) -> None:
        for place, (low, high) in enumerate(intervals):
            self._tests.extend(((len(intervals) - place) * SPAN_UNIT + lane, low, high))

    def _multiply(self, slot: int, begin: int, rough: bool, several: list[list[EntryTest]]) -> None:
        """Add one entry for each choice among the alternatives, each with the tests found so far."""
        common = self._tests[begin:]
        del self._tests[begin:]
        for choice in product(*several):
            begin = len(self._tests)
            self._tests.extend(common)
            for lane, intervals in choice:
                self._add_test(lane, intervals)
            self._finish(slot, begin, rough, has_texts=True)

    def _finish(self, slot: int, begin: int, rough: bool, has_texts: bool) -> None:
        if has_texts:
            count_texts(self._known, self._tests[begin:], 1)
        self.owners.append(slot << MARK_BITS | (ROUGH if rough else 0))
        self._ends.append(len(self._tests) // 3)

    def _alternatives(self, name: str, constraint: Constraint) -> tuple[list[EntryTest], bool]:
        """Return the tests of which one must hold, none for no test at all; and whether they are rough."""
        number = self._known.number
        if constraint.missing and constraint.covers(PRESENT):
            return [], False
        tests: list[EntryTest] = []
        if constraint.missing:
            tests.append((number((name, PRESENCE)), [(0.0, 0.0)]))
        if constraint.nan:  # no lane parts NaN from other numbers; it comes with presence, or hardly ever
            if constraint.missing:
                return [], True
            return [(number((name, PRESENCE)), [(1.0, 1.0)])], not constraint.covers(PRESENT)
        rough = False
        for kind, line in ((NUMBER, constraint.numbers), (TIME, _in_us(constraint.times))):
            if not line.is_empty:
                intervals, wide = _intervals_of(line, _number_low, _number_high)
                tests.append((number((name, kind)), intervals))
                rough |= wide
        if constraint.booleans:
            ends = (0.0 if constraint.booleans & FALSE else 1.0, 1.0 if constraint.booleans & TRUE else 0.0)
            tests.append((number((name, BOOLEAN)), [ends]))
        for kind, ordered, line in (
            (STRING, STRING_ORDER, constraint.strings),
            (BLOB, BLOB_ORDER, constraint.blobs),
        ):
            if not line.is_empty:
                tests.append(self._text_test(name, kind, ordered, line))
        return tests, rough

    def _text_test(self, name: str, kind: int, ordered: int, line: Intervals) -> EntryTest:
        points = (line.complement() if line.inside else line).points()
        if points is None:
            return self._order_test(self._known.number((name, ordered)), line)
        lane = self._known.number((name, kind))
        numbers = sorted(float(self._known.texts.number(_bytes(text))) for text in points)
        if not line.inside:
            return lane, [(number, number) for number in numbers]
        lows = [-INFINITY] + [number + 1 for number in numbers]
        highs = [number - 1 for number in numbers] + [INFINITY]
        return lane, list(zip(lows, highs, strict=True))

    def _order_test(self, lane: int, line: Intervals) -> EntryTest:
        def code(text: Any, step: int) -> float:
            return 4.0 * self._known.cuts.number((lane, _bytes(text))) + step

        intervals, _ = _intervals_of(
            line,
            lambda cut: (code(cut[0], 1 + cut[1]), False),
            lambda cut: (code(*cut), False),
        )
        return lane, intervals


def count_texts(known: Lanes, tests: Sequence[float], times: int) -> None:
    """Count the texts that the tests of one entry use, or (-1) no longer use."""
    place = 0
    while place < len(tests):
        head = int(tests[place])
        following = place + 3 * (head >> SPAN_SHIFT)
        kind = known.kinds[head & LANE_MASK]
        lows, highs = tests[place + 1 : following : 3], tests[place + 2 : following : 3]
        if kind in (STRING, BLOB):
            inside = lows[0] == -INFINITY
            for number in [high + 1 for high in highs[:-1]] if inside else lows:
                known.texts.use(int(number), times)
        elif kind in (STRING_ORDER, BLOB_ORDER):
            for bound in (*lows, *highs):
                if math.isfinite(bound):
                    known.cuts.use(int(bound) >> 2, times)
        place = following


def _bytes(text: str | bytes) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


# Sets of numbers and times as closed intervals of float64. Open ends move to the next float. An end that no
# float64 represents exactly (2^53 and beyond) is widened, and reported as such: below it, rounding an integer
# to float64 never carries it across an end.


def _intervals_of(
    line: Intervals,
    low_of: Callable[[Any], tuple[float, bool]],
    high_of: Callable[[Any], tuple[float, bool]],
) -> tuple[list[Interval], bool]:
    """Return the pieces of a set as closed intervals, and whether one had to be widened."""
    ends: list[tuple[float, bool]] = [(-INFINITY, False)] if line.inside else []
    for cut in line.cuts:
        ends.append(high_of(cut) if len(ends) & 1 else low_of(cut))
    if len(ends) & 1:
        ends.append((INFINITY, False))
    lows, highs = ends[::2], ends[1::2]
    return [(low, high) for (low, _), (high, _) in zip(lows, highs, strict=True)], any(
        wide for _, wide in ends
    )


def _end(cut: tuple[Any, int], outside: float, admitting: int) -> tuple[float, bool]:
    """Return the outermost float64 within a cut, and whether that admits more than the cut does.

    `outside` is the infinity beyond it; a cut on the `admitting` side of a value admits the value.
    """
    value, side = cut
    bound = _float(value)
    if not -EXACT_MAX < bound < EXACT_MAX or bound != value:
        return math.nextafter(bound, outside), True
    return (bound if side == admitting else math.nextafter(bound, -outside)), False


_number_low = partial(_end, outside=-INFINITY, admitting=BEFORE)
_number_high = partial(_end, outside=INFINITY, admitting=AFTER)


def _in_us(line: Intervals) -> Intervals:
    """Return a set of times as one of microseconds."""
    return Intervals(line.inside, tuple((us_from_time(moment), side) for moment, side in line.cuts))


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(INFINITY, value)

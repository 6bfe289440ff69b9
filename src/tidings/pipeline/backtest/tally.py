"""The counters of a back-test: how often each case matched, first and last, by type, and samples.

A task has one tally, adds the matches of each chunk of events to it, and returns the counters; pairs of a
case and an event never leave the task. Tallies are merged in any order to the same result.

Samples are the matches with the lowest hash of seed, node and position: the same for the same seed, however
the history was cut into tasks. They are kept for the first SAMPLED_CASES cases; nobody looks at more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct, json

from tidings.event.json import to_json

if TYPE_CHECKING:
    from tidings.event import Event
    from tidings.matching import Matches

SAMPLED_CASES: Final = 1_000
"""Cases, the first of a file, of which samples and types are kept."""
SAMPLES_MAX: Final = 100
"""Samples of one case."""
SAMPLE_SIZE_MAX: Final = 1 << 14
"""Bytes of a sample as JSON; of a larger event the body is left out."""
TYPES_MAX: Final = 1_000
"""Types that are counted by themselves for one case; the events of all others are counted together."""
OTHER_TYPES: Final = "(others)"
TOTAL: Final = -1
"""Number of the row that counts all events."""
LATEST_US: Final = np.iinfo(np.int64).max
EARLIEST_US: Final = np.iinfo(np.int64).min

Longs = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


class Sample(Struct, frozen=True, order=True, array_like=True):
    """Event that a case matched; samples are sorted by their hash."""

    hash: int
    node: str
    position: int
    event: str  # as JSON


class TallyPlan(Struct, frozen=True):
    """Options of the counting in a task."""

    cases: int
    samples: int = 3
    seed: int = 0
    by_type: bool = False


class Detail(Struct, frozen=True):
    """Samples of a case, and its matches by type."""

    samples: list[Sample] = []
    types: dict[str, int] = {}


class Chunk(NamedTuple):
    """Events that were matched together: columns of them, and one by one on demand."""

    node: str
    positions: Longs
    times_us: Longs
    types: list[str] | None  # if they are counted
    event_at: Callable[[int], Event]


class CounterRow(NamedTuple):
    """Counters of one case, or of all events under TOTAL; `detail` is JSON of Detail, or empty."""

    case: int
    matched: int
    first_us: int
    last_us: int
    detail: str


class Tally:
    """Counters by case."""

    def __init__(self, plan: TallyPlan) -> None:
        self._plan = plan
        self._counts: Longs = np.zeros(plan.cases + 1, np.int64)  # the last one is TOTAL
        self._firsts: Longs = np.full(plan.cases + 1, LATEST_US)
        self._lasts: Longs = np.full(plan.cases + 1, EARLIEST_US)
        self._worst: list[int | None] = [None] * min(plan.cases, SAMPLED_CASES)  # None: there is room
        self._samples: dict[int, list[Sample]] = {}
        self._types: dict[int, Counter[str]] = {}

    # In a task

    def add(self, matches: Matches[int], chunk: Chunk) -> None:
        """Count the matches of a chunk, whose rows are those of the chunk."""
        self._count(TOTAL, chunk.times_us)
        cases = np.fromiter(matches.keys, np.int64, len(matches.keys))
        if not len(cases):
            return
        offsets: Longs = np.asarray(matches.offsets, np.int64)
        rows: Longs = np.asarray(matches.rows, np.int64)
        times = chunk.times_us[rows]
        self._counts[cases] += np.diff(offsets)
        self._firsts[cases] = np.minimum(self._firsts[cases], np.minimum.reduceat(times, offsets[:-1]))
        self._lasts[cases] = np.maximum(self._lasts[cases], np.maximum.reduceat(times, offsets[:-1]))
        hashes = _hashes(chunk, self._plan.seed)
        for place in np.flatnonzero(cases < len(self._worst)).tolist():
            own = rows[offsets[place] : offsets[place + 1]]
            self._sample(int(cases[place]), own, hashes, chunk)
            if chunk.types is not None:
                found = Counter(map(chunk.types.__getitem__, own.tolist()))
                self._add_types(int(cases[place]), found)

    def _count(self, case: int, times: Longs) -> None:
        if len(times):
            self._counts[case] += len(times)
            self._firsts[case] = min(self._firsts[case], times.min())
            self._lasts[case] = max(self._lasts[case], times.max())

    def _sample(self, case: int, rows: Longs, hashes: Hashes, chunk: Chunk) -> None:
        wanted, worst = self._plan.samples, self._worst[case]
        own = hashes[rows]
        if not wanted or (worst is not None and own.min() >= worst):
            return
        best = [
            place
            for place in np.argsort(own, kind="stable")[:wanted].tolist()
            if worst is None or own[place] < worst
        ]
        made = [self._made(int(own[place]), int(rows[place]), chunk) for place in best]
        self._add_samples(case, made)

    def _made(self, hash: int, row: int, chunk: Chunk) -> Sample:
        return Sample(hash, chunk.node, int(chunk.positions[row]), _text(chunk.event_at(row)))

    # Merging

    def _add_samples(self, case: int, more: list[Sample]) -> None:
        kept = sorted([*self._samples.get(case, ()), *more])[: self._plan.samples]
        self._samples[case] = kept
        if len(kept) == self._plan.samples:
            self._worst[case] = kept[-1].hash

    def _add_types(self, case: int, more: Counter[str]) -> None:
        counts = self._types.setdefault(case, Counter())
        for kind, count in more.items():
            known = kind in counts or len(counts) < TYPES_MAX
            counts[kind if known else OTHER_TYPES] += count

    def merge(self, row: CounterRow) -> None:
        """Add the counters that a task has returned for a case."""
        self._counts[row.case] += row.matched
        self._firsts[row.case] = min(self._firsts[row.case], row.first_us)
        self._lasts[row.case] = max(self._lasts[row.case], row.last_us)
        if row.detail:
            detail = json.decode(row.detail, type=Detail)
            if detail.samples:
                self._add_samples(row.case, detail.samples)
            if detail.types:
                self._add_types(row.case, Counter(detail.types))

    def rows(self) -> list[CounterRow]:
        """Return the counters of the cases that matched, and those of all events."""
        hit: list[int] = np.flatnonzero(self._counts[:-1]).tolist()
        return [self.row(case) for case in [*hit, TOTAL]]

    def row(self, case: int) -> CounterRow:
        """Return the counters of a case, whether or not it matched."""
        detail = Detail(self._samples.get(case, []), dict(self._types.get(case, {})))
        text = json.encode(detail).decode() if detail.samples or detail.types else ""
        bounds = int(self._firsts[case]), int(self._lasts[case])
        return CounterRow(case, int(self._counts[case]), *bounds, text)


def _hashes(chunk: Chunk, seed: int) -> Hashes:
    """Return a hash of each row (the finalizer of SplitMix64)."""
    salt = blake2b(f"{seed} {chunk.node}".encode(), digest_size=8).digest()
    mixed = chunk.positions.astype(np.uint64) + np.uint64(int.from_bytes(salt, "big"))
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    hashes: Hashes = mixed ^ (mixed >> np.uint64(31))
    return hashes


def _text(event: Any) -> str:
    text = to_json(event)
    if len(text) > SAMPLE_SIZE_MAX:
        text = to_json(event.evolve(body=None))
    return text.decode()

"""The log as one, against a list: whatever is stored, sealed, discarded, joined, pruned, or restored."""

from __future__ import annotations

import math
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from effort import often
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from log import sealers
from log.sealers import DAY_US, NODE, NOON_US, join, numbers_in, read_all, seal, sealed_files, stored
from msgspec.structs import replace

from tidings.errors import Refused
from tidings.event import Batch, Event
from tidings.filters import Filter
from tidings.ids import make_id
from tidings.log import history as history_module
from tidings.log import sealing
from tidings.log import segments as sealed_module
from tidings.log.chunks import LivePart
from tidings.log.history import LogHistory
from tidings.log.segment_folder import Folder
from tidings.log.segments import SealedFiles
from tidings.matching import Index
from tidings.protocol.frames import FRAME_MAX
from tidings.store.interface import Append, Discard, Operation, StoredBatch, Trim
from tidings.store.memory import MemoryStore, SimulatedDisk, SimulatedStore

LEAP = 1_000_000
SIZES = st.sampled_from([1, 100, 400, 1 << 20])


class Logs(RuleBasedStateMachine):
    """A store and a folder, and what must be in them."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp())
        self.disk = SimulatedDisk()
        self.position, self.n, self.time_us, self.trimmed = 0, 0, NOON_US, 0
        self.batches: list[StoredBatch] = []  # that the store has
        self.filed: dict[int, int] = {}  # position to n, of what files have
        self.backup: tuple[bytes, list[StoredBatch], int] | None = None

    @initialize()
    def begin(self) -> None:
        self.open()

    def open(self) -> None:
        self.store = SimulatedStore(self.disk, bytes)
        self.folder = Folder(self.home)
        self.sealed = SealedFiles(self.folder, NODE)
        self.history = LogHistory(self.store, self.sealed)

    def teardown(self) -> None:
        shutil.rmtree(self.home)

    def commit(self, *operations: Operation) -> None:
        self.store.commit(operations)
        self.store.sync()

    # What happens

    @rule(count=st.integers(1, 4), persistent=st.booleans(), later=st.sampled_from([0, 1, DAY_US // 3]))
    def append(self, count: int, persistent: bool, later: int) -> None:
        self.time_us += later
        numbers = range(self.n, self.n + count)
        one = stored(self.position + 1, numbers, self.time_us, persistent, f"s{count % 2}")
        self.n, self.position = self.n + count, self.position + count
        self.batches.append(one)
        self.commit(Append(one))

    @rule(back=st.integers(0, 10))
    def trim(self, back: int) -> None:
        limit = max(0, self.position - back)
        self.trimmed = max(self.trimmed, limit)
        self.batches = [one for one in self.batches if one.persistent or last_of(one) > limit]
        self.commit(Trim(limit))

    @rule(persistent=st.booleans())
    def live_on_and_restore(self, persistent: bool) -> None:
        """A backup is made, more is sealed, and the backup is restored, after which there is more again."""
        self.append(2, True, 0)
        self.back_up()
        self.append(3, True, 0)
        self.append(1, persistent, 0)
        self.seal(0)
        self.append(1, True, 0)
        self.restore()
        self.append(1, True, 0)

    @rule(back=st.integers(0, 6))
    def seal(self, back: int) -> None:
        first = max(self.sealed.refresh().last, self.store.discarded) + 1
        ends = [last_of(one) for one in self.batches if one.persistent and last_of(one) >= first]
        if ends:
            last = ends[max(0, len(ends) - 1 - back)]
            seal(self.history, self.folder, first, last)
            held = numbers_in(one for one in self.batches if one.persistent)
            self.filed |= {position: n for position, n in held if first <= position <= last}
            self.sealed.refresh()

    @rule(back=st.integers(0, 6))
    def discard(self, back: int) -> None:
        limit = min(max(0, self.sealed.span().last - back), self.trimmed)
        self.commit(Discard(limit))
        self.batches = [one for one in self.batches if last_of(one) > self.store.discarded]

    @rule()
    def join(self) -> None:
        join(self.folder)  # who reads does not know of it

    @rule(back=st.integers(0, 20))
    def prune(self, back: int) -> None:
        limit = min(self.sealed.span().last - back, self.store.discarded + 1)
        span = self.sealed.prune(limit, None, None)
        if span.files:
            self.filed = {position: n for position, n in self.filed.items() if position >= span.first}
        else:
            self.filed = {}

    @rule()
    def restart(self) -> None:
        self.open()

    @rule()
    def back_up(self) -> None:
        self.backup = self.disk.content, list(self.batches), self.trimmed

    @precondition(lambda self: self.backup is not None)
    @rule()
    def restore(self) -> None:
        """What files have of the time after the backup is there still; positions leap."""
        assert self.backup is not None
        content, self.batches, self.trimmed = self.backup
        self.batches = list(self.batches)
        self.disk = SimulatedDisk()
        self.disk.append(content)
        self.disk.sync()
        self.position += LEAP
        self.open()

    # What must hold

    @property
    def end(self) -> int:
        return self.position + 1

    @property
    def logged(self) -> dict[int, int]:
        """All of the log, by position."""
        held = dict(numbers_in(one for one in self.batches if one.persistent))
        return {p: n for p, n in sorted((held | self.filed).items()) if p >= self.history.first}

    @rule(data=st.data(), size=SIZES, is_filtered=st.booleans())
    def read(self, data: Any, size: int, is_filtered: bool) -> None:
        start = data.draw(st.sampled_from([self.history.first, *self.logged, self.end]))
        expected = [(p, n) for p, n in self.logged.items() if p >= start and not (is_filtered and n % 2)]
        where = "even = TRUE" if is_filtered else ""
        assert read_all(self.history, start, self.end, where, size) == expected

    @rule(data=st.data(), size=SIZES, is_filtered=st.booleans())
    def subscribe(self, data: Any, size: int, is_filtered: bool) -> None:
        """As a subscription reads that wants history."""
        filter = Filter("even = TRUE") if is_filtered else None
        everything = sorted((dict(numbers_in(self.batches)) | self.filed).items())
        position = start = data.draw(st.sampled_from([1, *(p for p, _ in everything), self.end]))
        told: list[tuple[int, int]] = []
        while found := self.history.batches(position, size, filter):
            told += [one for one in numbers_in(found) if one[0] >= position]
            assert last_of(found[-1]) >= position
            position = last_of(found[-1]) + 1
        if is_filtered:
            told = [one for one in told if one[1] % 2 == 0]
            everything = [one for one in everything if one[1] % 2 == 0]
        assert told == [one for one in everything if one[0] >= start]

    @rule(data=st.data(), size=SIZES)
    def subscribe_newest(self, data: Any, size: int) -> None:
        """As one reads that wants the newest first."""
        everything = sorted((dict(numbers_in(self.batches)) | self.filed).items(), reverse=True)
        position = start = data.draw(st.sampled_from([1, *(p for p, _ in everything), self.end]))
        told: list[tuple[int, int]] = []
        while found := self.history.batches_before(position, size):
            for one in found:
                told += [held for held in reversed(numbers_in([one])) if held[0] <= position]
                position = one.first - 1
        assert told == [one for one in everything if one[0] <= start]

    @rule(data=st.data())
    def find(self, data: Any) -> None:
        wanted = data.draw(st.lists(st.sampled_from(range(self.n)), max_size=3)) if self.n else []
        ids = [make_id(system, 1, n + 1) for n in wanted for system in ("s0", "s1")]
        found = find_all(self.history, ids, self.end, "even = TRUE")
        there = {n for n in wanted if n % 2 == 0 and n in self.logged.values()}
        assert {n for _, n in found} == there

    @rule()
    def verify(self) -> None:
        position = 1
        while position < self.end:
            problems, position = self.history.verify(position, self.end)
            assert not problems


def find_all(history: LogHistory, ids: list[str], end: int, where: str = "") -> list[tuple[int, int]]:
    """All that is found of these ids, asked for piece by piece."""
    told: list[tuple[int, int]] = []
    start = 0
    while start < end:
        answer = history.find(ids, Filter(where), start, end)
        told += sealers.numbers_of(answer.parts)
        start = answer.next
    return told


def last_of(batch: StoredBatch) -> int:
    return batch.first + batch.count - 1


Logs.TestCase.settings = settings(max_examples=often(40), stateful_step_count=30)


@pytest.fixture(autouse=True, scope="module")
def _small_files() -> Any:
    """Files that are cut and joined with few events."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealing, "FILE_SIZE_MAX", 150)
        patch.setattr(sealing, "JOIN_AT", 3)
        patch.setattr(sealed_module, "SCAN_MAX", 5)
        patch.setattr(history_module, "POSITION_LEAP", LEAP)
        patch.setattr(history_module, "READ_S_MAX", math.inf)
        patch.setattr(sealed_module, "READ_S_MAX", math.inf)
        yield


class TestTheLogIsWhatWasStored(Logs.TestCase):  # type: ignore[misc, name-defined]
    """Runs the machine."""


def store_of(*batches: StoredBatch, discarded: int = 0) -> MemoryStore:
    store = MemoryStore(NODE)
    store.commit([Append(one) for one in batches])
    store.commit([Trim(discarded)])
    store.commit([Discard(discarded)])
    return store


def test_what_was_pruned_is_refused_with_the_first_position_there_is(tmp_path: Path) -> None:
    one, two = stored(1, range(2)), stored(3, range(2, 4))
    segments = sealed_files(tmp_path, [one], [two])
    history = LogHistory(store_of(one, two, discarded=4), segments)
    segments.prune(3, None, None)
    with pytest.raises(Refused, match="position 1 was pruned: the log begins at 3") as refused:
        history.read(1, 5, Filter(), 1000, False)
    assert refused.value.code == "pruned"
    assert read_all(history, 1, 5, skip=True) == [(3, 2), (4, 3)]


def test_a_log_whose_files_were_all_pruned_begins_where_the_store_does(tmp_path: Path) -> None:
    one, two = stored(1, range(2)), stored(3, range(2, 4))
    segments = sealed_files(tmp_path, [one])
    history = LogHistory(store_of(one, two, discarded=2), segments)
    segments.prune(3, None, None)
    assert history.first == 3
    assert read_all(history, 3, 5) == [(3, 2), (4, 3)]


def test_files_that_are_gone_are_told_and_do_not_stop_who_skips(tmp_path: Path) -> None:
    one, two, three = (stored(first, range(first, first + 2)) for first in (1, 3, 5))
    segments = sealed_files(tmp_path, [one], [two])
    history = LogHistory(store_of(one, two, three, discarded=4), segments)
    segments.folder.remove(segments.folder.files()[1:])
    segments.refresh()
    with pytest.raises(Refused, match="positions 3 to 4 are in no file"):
        read_all(history, 1, 7)
    assert read_all(history, 1, 7, skip=True) == [(1, 1), (2, 2), (5, 5), (6, 6)]
    assert numbers_in(history.batches(3, 1 << 20)) == [(5, 5), (6, 6)]


def test_a_grant_holds_for_what_is_found_in_files_too(tmp_path: Path) -> None:
    one = stored(1, range(4))
    history = LogHistory(store_of(one, discarded=4), sealed_files(tmp_path, [one]))
    ids = [make_id("s", 1, n + 1) for n in range(4)]
    assert find_all(history, ids, 5, "even = TRUE") == [(1, 0), (3, 2)]


def test_many_ids_are_found_sealed_or_not_and_no_ids_find_nothing(tmp_path: Path) -> None:
    one, two = stored(1, range(600)), stored(601, range(600, 1200))
    history = LogHistory(store_of(one, two, discarded=600), sealed_files(tmp_path, [one]))
    ids = [make_id("s", 1, n + 1) for n in range(100, 1100)]
    assert find_all(history, ids, 1201) == [(n + 1, n) for n in range(100, 1100)]
    assert find_all(history, [], 1201) == []


def test_an_event_is_found_once_while_its_file_is_there_and_the_node_does_not_know(tmp_path: Path) -> None:
    one, two = stored(1, range(2)), stored(3, range(2, 4))
    segments = sealed_files(tmp_path, [one])
    history = LogHistory(store_of(one, two), segments)
    assert segments.span().last == 2
    sealed_files(tmp_path, [one], [two])
    found = find_all(history, [make_id("s", 1, n + 1) for n in range(4)], 5)
    assert found == [(1, 0), (2, 1), (3, 2), (4, 3)]


def test_reading_ends_when_its_time_is_over_and_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "READ_S_MAX", 0.0)
    monkeypatch.setattr(history_module, "PIECE_SIZE", 1)
    history = LogHistory(store_of(*(stored(first, [first]) for first in range(1, 6))))
    answer = history.read(1, 6, Filter("n = 5"), 1 << 20, False)
    assert (answer.parts, answer.next) == ([], 2)
    assert read_all(history, 1, 6, "n = 5") == [(5, 5)]


TYPES = st.sampled_from(["air", "own", "own.a", "disown.a", "ow"])


@given(st.lists(st.lists(st.tuples(TYPES, st.sampled_from(["", "own.x"])), min_size=1), max_size=4))
def test_a_type_that_is_left_out_is_so_wherever_its_name_stands(batches: list[list[tuple[str, str]]]) -> None:
    first, held, wanted = 1, list[StoredBatch](), list[int]()
    filter = Filter("NOT STARTS_WITH(type, 'own.')")
    for pairs in batches:
        events = [replace(Event(type, text=text), counter=n + 1) for n, (type, text) in enumerate(pairs)]
        raw = Batch.of(events).raw
        held.append(StoredBatch(first, len(events), "s", 1, "ann", NOON_US, True, raw))
        wanted += [first + row for row, event in enumerate(events) if filter.matches(event)]
        first += len(events)
    parts = LogHistory(store_of(*held)).read(1, first, filter, 1 << 20, False).parts
    assert [place for part in parts if isinstance(part, LivePart) for place in part.positions()] == wanted


def test_batches_that_can_not_have_a_type_that_is_left_out_are_not_evaluated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Index, "match_rows", None)
    history = LogHistory(store_of(stored(1, [1, 2]), stored(3, [3])))
    answer = history.read(1, 4, Filter("NOT STARTS_WITH(type, 'own.')"), 1 << 20, False)
    assert len(answer.parts) == 2


def test_who_passes_over_damage_is_still_told_of_what_was_pruned(tmp_path: Path) -> None:
    one, two = stored(1, range(2)), stored(3, range(2, 4))
    segments = sealed_files(tmp_path, [one], [two])
    history = LogHistory(store_of(one, two, discarded=4), segments)
    segments.prune(3, None, None)
    with pytest.raises(Refused, match="pruned"):
        history.read(1, 5, Filter(), 1000, skip=True)
    segments.folder.remove(segments.folder.files())
    with pytest.raises(Refused, match="in no file"):
        history.read(1, 5, Filter(), 1000, skip=False, skip_pruned=True)


def test_the_time_of_an_event_leads_to_it_wherever_it_lies(tmp_path: Path) -> None:
    one, two = stored(1, range(2), NOON_US), stored(3, range(2), NOON_US + DAY_US)
    history = LogHistory(store_of(one, two, discarded=2), sealed_files(tmp_path, [one]))
    times = [NOON_US - 1, NOON_US, NOON_US + 1, NOON_US + DAY_US, NOON_US + 2 * DAY_US]
    assert [history.position_at(time_us) for time_us in times] == [1, 1, 3, 3, 5]


@pytest.mark.parametrize("sizes", [[9] * 3, [1, 15], [15, 1, 1, 15], [4] * 9], ids=str)
def test_an_answer_fits_into_a_frame_however_large_batches_are(sizes: list[int]) -> None:
    bodies = [bytes(size << 20) for size in sizes]
    events = [replace(Event("t", {"n": n}, body=body), counter=n + 1) for n, body in enumerate(bodies)]
    one = StoredBatch(9, len(events), "s", 1, "ann", NOON_US, True, Batch.of(events).raw)
    history = LogHistory(store_of(stored(8, [8]), one, stored(90, [90])))
    told: list[tuple[int, int]] = []
    start = 8
    while start < 91:
        answer = history.read(start, 91, Filter(), 1 << 20, False)
        assert sum(len(part.raw) for part in answer.parts if isinstance(part, LivePart)) < FRAME_MAX - 1024
        told += sealers.numbers_of(answer.parts)
        start = answer.next
    assert told == [(8, 8), *((9 + n, n) for n in range(len(sizes))), (90, 90)]

"""The files of a node as it reads them: changed by others, damaged, too old, too many."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from log.sealers import DAY_US, NODE, NOON_US, join, numbers_in, numbers_of, sealed_files, stored
from msgspec.structs import replace

from tidings.errors import Refused
from tidings.event import Batch, Event
from tidings.filters import Filter
from tidings.log import sealing
from tidings.log import segments as sealed_module
from tidings.log.arguments import ReadRequest
from tidings.log.chunks import SealedPart
from tidings.log.history import SealedSpan
from tidings.log.paging import COUNT_KEPT, Rest, size_of
from tidings.log.segment_folder import Folder
from tidings.log.segments import SealedFiles
from tidings.store.interface import StoredBatch


def read(
    segments: SealedFiles, first: int, end: int, size_max: int = 1 << 20, skip: bool = False
) -> list[int]:
    """The positions that are read, piece by piece."""
    told: list[int] = []
    while first < end:
        tables, first = segments.read(first, end, Filter(), size_max, skip)
        told += [position for position, _ in numbers_of(SealedPart(table) for table in tables)]
    return told


def test_a_folder_that_is_not_there_has_nothing(tmp_path: Path) -> None:
    segments = SealedFiles(Folder(tmp_path / "none"), NODE)
    assert segments.span() == SealedSpan()
    assert segments.position_at(0) is None
    assert segments.batches(1, 10, 1000) == []
    assert segments.batches_before(10, 1000) == []


def test_a_row_group_is_given_in_pieces_of_the_size_that_is_asked_for(tmp_path: Path) -> None:
    segments = sealed_files(tmp_path, [stored(1, range(1000))])
    tables, following = segments.read(1, 1001, Filter(), 50_000, False)
    assert 40_000 < size_of(pa.ipc.open_stream(tables[0]).read_all()) < 70_000
    assert following < 500
    assert read(segments, 1, 1001, 50_000) == list(range(1, 1001))


def test_large_events_among_small_ones_do_not_make_an_answer_large(tmp_path: Path) -> None:
    bodies = [bytes(10)] * 50 + [os.urandom(300_000)] * 4 + [bytes(10)] * 50
    events = [replace(Event("t", {"n": n}, body=body), counter=n + 1) for n, body in enumerate(bodies)]
    one = StoredBatch(1, len(events), "s", 1, "ann", NOON_US, True, Batch.of(events).raw)
    segments, position, told = sealed_files(tmp_path, [one]), 1, []
    while position < 105:
        streams, position = segments.read(position, 105, Filter(), 100_000, False)
        assert sum(map(len, streams)) < 400_000
        told += [place for place, _ in numbers_of(SealedPart(stream) for stream in streams)]
    assert told == list(range(1, 105))


def test_who_reads_again_with_another_end_gets_no_more_than_that(tmp_path: Path) -> None:
    segments = sealed_files(tmp_path, [stored(1, range(1000))])
    _, following = segments.read(1, 1001, Filter(), 20_000, False)
    assert read(segments, following, following + 3) == [following, following + 1, following + 2]
    assert read(segments, following, 1001) == list(range(following, 1001))


def test_files_that_are_joined_while_they_are_read_are_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "JOIN_AT", 2)
    segments = sealed_files(tmp_path, [stored(1, range(2))], [stored(3, range(2, 4))])
    assert segments.span().files == 2
    assert join(Folder(tmp_path))
    assert read(segments, 1, 5) == [1, 2, 3, 4]
    assert segments.span().files == 1


def test_what_was_added_by_others_is_found(tmp_path: Path) -> None:
    segments = sealed_files(tmp_path, [stored(1, range(2))])
    assert segments.span().last == 2
    sealed_files(tmp_path, [stored(1, range(2))], [stored(3, range(2, 4))])
    assert read(segments, 1, 5) == [1, 2, 3, 4]


def test_a_filter_that_matches_nothing_does_not_go_through_all_files_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealed_module, "SCAN_MAX", 10)
    segments = sealed_files(tmp_path, *([stored(first, range(4))] for first in range(1, 41, 4)))
    asked, position = [], 1
    while position < 41:
        streams, position = segments.read(position, 41, Filter("n = 99"), 1 << 20, False)
        assert streams == []
        asked.append(position)
    assert asked == [13, 25, 37, 41]


def test_positions_that_have_leapt_within_a_file_are_passed_over_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealed_module, "SCAN_MAX", 10)
    segments = sealed_files(tmp_path, [stored(1, [1]), stored(1 << 40, [2])])
    assert segments.read(1, 2 << 40, Filter("n = 2"), 1 << 20, True) == ([], 1 << 40)
    assert read(segments, 2, (1 << 40) + 1) == [1 << 40]


def test_what_is_kept_for_who_reads_on_is_bounded_in_number() -> None:
    rest = Rest()
    for number in range(2 * COUNT_KEPT):
        rest.put(1, str(number), pa.table({"position": [1]}), 2)
    assert rest.take(1, str(COUNT_KEPT - 1)) is None
    assert rest.take(1, str(COUNT_KEPT)) is not None


@pytest.mark.parametrize("columns", [["c"] * 1_001, ["c" * 256]], ids=["many", "long"])
def test_columns_are_asked_for_within_limits(columns: list[str]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"start": 1, "columns": columns}, ReadRequest)
    assert msgspec.convert({"start": 1, "columns": ["c" * 255] * 1_000}, ReadRequest).columns is not None


def test_a_damaged_file_is_told_with_its_positions(tmp_path: Path) -> None:
    segments = sealed_files(tmp_path, *([stored(first, range(2))] for first in (1, 3, 5)))
    damaged = segments.files[1]
    damage(tmp_path / damaged.path)
    assert read(segments, 1, 3) == [1, 2]
    with pytest.raises(Refused, match=f"{damaged.path}.*positions 3 to 4") as refused:
        read(segments, 1, 7)
    assert refused.value.code == "corrupt"
    assert read(segments, 1, 7, skip=True) == [1, 2, 5, 6]
    problems, following = segments.verify(3)
    assert len(problems) == 1
    assert damaged.path in problems[0]
    assert following == 5


def test_subscriptions_pass_over_damage_which_is_reported_once(tmp_path: Path) -> None:
    segments = sealed_files(tmp_path, *([stored(first, [first])] for first in (1, 2, 3)))
    damage(tmp_path / segments.files[1].path)
    for _ in range(2):
        assert numbers_in(segments.batches(2, 4, 1 << 20)) == [(3, 3)]
        assert numbers_in(segments.batches_before(2, 1 << 20)) == [(1, 1)]
    assert len(segments.damage) == 1
    assert "positions 2 to 2" in str(segments.damage[0])


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    path.write_bytes(content)


def test_the_batches_before_a_position_come_last_first(tmp_path: Path) -> None:
    segments = sealed_files(tmp_path, [stored(1, range(2)), stored(4, [4], system="r")], [stored(6, [6])])
    found = segments.batches_before(5, 1 << 20)
    assert [one.first for one in found] == [4, 1]
    assert segments.batches_before(0, 1 << 20) == []


# Retention


def test_files_go_that_end_before_the_position(tmp_path: Path) -> None:
    segments = sealed_files(tmp_path, *([stored(first, range(2))] for first in (1, 3, 5)))
    assert segments.prune(4, None, None).first == 3  # the second file has position 4 too
    assert segments.prune(5, None, None).first == 5
    assert read(segments, 5, 7) == [5, 6]


def test_files_go_that_are_older_than_the_time(tmp_path: Path) -> None:
    days = [[stored(first, range(2), NOON_US + first * DAY_US)] for first in (1, 3, 5)]
    segments = sealed_files(tmp_path, *days)
    assert segments.prune(100, NOON_US + 3 * DAY_US, None).first == 3
    assert segments.prune(100, NOON_US + 3 * DAY_US + 1, None).first == 5
    assert segments.prune(5, NOON_US + 100 * DAY_US, None).first == 5


def test_the_oldest_files_go_until_the_size_is_right(tmp_path: Path) -> None:
    segments = sealed_files(tmp_path, *([stored(first, range(2))] for first in (1, 3, 5)))
    sizes = [file.size for file in segments.files]
    assert segments.prune(100, None, sum(sizes)).files == 3
    assert segments.prune(100, None, sum(sizes) - 1).first == 3
    assert segments.prune(4, None, 0).first == 3
    assert segments.prune(100, None, 0) == SealedSpan()


def test_a_file_goes_if_it_is_too_old_or_too_much(tmp_path: Path) -> None:
    days = [[stored(first, range(2), NOON_US + first * DAY_US)] for first in (1, 3, 5)]
    segments = sealed_files(tmp_path, *days)
    last = segments.files[-1].size
    assert segments.spent(100, NOON_US, last) == 4
    assert segments.spent(100, NOON_US + 2 * DAY_US, 1 << 30) == 2
    assert segments.prune(100, NOON_US, last).first == 5


def test_other_nodes_files_are_left_alone(tmp_path: Path) -> None:
    segments = sealed_files(tmp_path, [stored(1, range(2))])
    other = SealedFiles(segments.folder, "other")
    assert other.prune(100, None, None) == SealedSpan()
    assert segments.refresh().files == 1


def test_answers_have_the_columns_of_the_files(tmp_path: Path) -> None:
    segments = sealed_files(tmp_path, [stored(1, range(2))])
    (stream,), _ = segments.read(1, 3, Filter(), 1 << 20, False)
    assert pa.ipc.open_stream(stream).read_all().column("n").to_pylist() == [0, 1]

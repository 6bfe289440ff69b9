"""When the log is sealed, how it is cut into files, and which of these are joined."""

from __future__ import annotations

from array import array
from datetime import date, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log.sealers import DAY_US, NOON_US, stored
from msgspec import Struct
from msgspec.structs import replace

from tidings.log import sealing
from tidings.log.chunks import FileClaim, FileInfo, LivePart, live_part, rows_bytes
from tidings.log.sealing import (
    JOIN_AT,
    JOINED_SIZE_MAX,
    LIVE_SIZE_MAX,
    FileCut,
    FileCutter,
    SealSchedule,
    holes,
    reach,
    to_join,
)

# When


def test_nothing_is_sealed_before_its_time() -> None:
    schedule = SealSchedule(300, sealed=0, now=1000)
    assert schedule.due(5000) == 0
    schedule.grown(7, 100, now=6000)
    schedule.grown(9, 200, now=6100)
    assert schedule.due(6299) == 0
    assert schedule.due(6300) == 9


def test_what_came_while_it_was_sealed_waits_anew() -> None:
    schedule = SealSchedule(300, sealed=0, now=0)
    schedule.grown(9, 0, now=0)
    schedule.grown(12, 0, now=310)
    schedule.sealed(9, now=320)
    assert schedule.due(619) == 0
    assert schedule.due(620) == 12
    schedule.sealed(12, now=630)
    assert schedule.due(10_000) == 0


def test_a_large_log_is_sealed_at_once() -> None:
    schedule = SealSchedule(300, sealed=0, now=0)
    schedule.grown(9, LIVE_SIZE_MAX, now=1)
    assert schedule.due(1) == 9
    schedule.sealed(9, now=2)
    schedule.grown(10, LIVE_SIZE_MAX + 1, now=3)
    assert schedule.due(3) == 0


def test_who_asks_has_it_sealed_up_to_what_there_was() -> None:
    schedule = SealSchedule(300, sealed=5, now=0)
    schedule.grown(9, 0, now=0)
    schedule.ask(9)
    schedule.grown(12, 0, now=1)
    assert schedule.due(1) == 9
    schedule.sealed(9, now=2)
    assert schedule.due(2) == 0


def test_what_waited_before_the_node_was_started_counts() -> None:
    schedule = SealSchedule(300, sealed=5, now=1000)
    schedule.grown(9, 0, now=1000)
    schedule.waited(800)
    assert schedule.due(1099) == 0
    assert schedule.due(1100) == 9


def test_a_node_that_seals_nothing_never_wants_it() -> None:
    schedule = SealSchedule(None, sealed=0, now=0)
    schedule.grown(9, 1 << 40, now=0)
    schedule.ask(9)
    assert schedule.due(1e9) == 0


# Into which files


def parts(*days: int, first: int = 1, gap: int = 0) -> list[LivePart]:
    """Parts of two events each, stored on these days, with so many positions between them."""
    return [
        live_part(stored(first + place * (2 + gap), range(2), NOON_US + day * DAY_US))
        for place, day in enumerate(days)
    ]


def cuts(first: int, last: int, *pieces: list[LivePart]) -> list[FileCut]:
    cutter = FileCutter(first)
    return [cut for piece in pieces for cut in cutter.add(piece)] + list(cutter.finish(last))


def test_a_file_has_one_date_and_claims_adjoin() -> None:
    found = cuts(1, 20, parts(0, 0, 1, gap=1), parts(2, first=10))
    assert [(cut.first, cut.last, len(cut.parts)) for cut in found] == [(1, 6, 2), (7, 9, 1), (10, 20, 1)]


def test_a_clock_that_was_set_back_makes_another_file() -> None:
    assert [cut.day for cut in cuts(1, 6, parts(1, 0, 1))] == [day(1), day(0), day(1)]


def test_a_large_file_is_cut_at_the_end_of_a_batch() -> None:
    size = sealing.FILE_SIZE_MAX // 2
    some = [LivePart(first, 1, b"", None, 0, None, NOON_US, bytes(size)) for first in range(1, 6)]
    assert [(cut.first, cut.last) for cut in cuts(1, 5, some)] == [(1, 2), (3, 4), (5, 5)]


def test_nothing_makes_no_file() -> None:
    assert cuts(5, 9) == []


# Which are joined


class Sized(Struct, frozen=True):
    claim: FileClaim
    date: date
    size: int


def day(number: int) -> date:
    return date(2024, 10, 4) + timedelta(days=number)


def sized(*files: tuple[int, int]) -> list[Sized]:
    """Files of these days and sizes that adjoin."""
    return [
        Sized(FileClaim("n", 10 * place, 10 * place + 9), day(number), size)
        for place, (number, size) in enumerate(files)
    ]


def test_few_files_of_the_last_date_are_left_alone() -> None:
    assert to_join(sized(*[(0, 1)] * (JOIN_AT - 1))) == []
    assert len(to_join(sized(*[(0, 1)] * JOIN_AT))) == JOIN_AT


def test_all_files_of_a_date_that_is_over_are_joined() -> None:
    files = sized((0, 1), (0, 1 << 20), (0, 5), (1, 1))
    assert to_join(files) == files[:3]


def test_files_that_do_not_adjoin_are_not_joined() -> None:
    files = sized((0, 1), (0, 1), (0, 1), (1, 1))
    assert to_join([files[0], files[2], files[3]]) == []


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([1, 70_000, 1 << 20, 100 << 20])), max_size=60))
def test_joining_comes_to_an_end_and_keeps_all(kinds: list[tuple[int, int]]) -> None:
    files = sized(*sorted(kinds, key=lambda one: one[0]))
    total = sum(file.size for file in files)
    while chosen := to_join(files):
        assert len({file.date for file in chosen}) == 1
        size = sum(file.size for file in chosen)
        assert size <= JOINED_SIZE_MAX
        place = files.index(chosen[0])
        assert files[place : place + len(chosen)] == chosen
        claim = FileClaim("n", chosen[0].claim.first, chosen[-1].claim.last)
        files[place : place + len(chosen)] = [Sized(claim, chosen[0].date, size)]
    assert sum(file.size for file in files) == total
    over = [file for file in files if file.date != files[-1].date]
    pairs = [(one, two) for one, two in pairwise(over) if one.date == two.date]
    assert all(one.size + two.size > JOINED_SIZE_MAX for one, two in pairs)


def test_an_event_is_written_again_a_few_times_only() -> None:
    count = 2000
    files: list[Sized] = []
    written = 0
    for place in range(count):
        files.append(Sized(FileClaim("n", place, place), day(0), 20_000))
        while chosen := to_join(files):
            at, size = files.index(chosen[0]), sum(file.size for file in chosen)
            claim = FileClaim("n", chosen[0].claim.first, chosen[-1].claim.last)
            files[at : at + len(chosen)] = [Sized(claim, day(0), size)]
            written += chosen[-1].claim.last - chosen[0].claim.first + 1
    assert written <= 4 * count
    assert len(files) < 30


# Parted, and gone


def test_a_batch_that_was_told_in_pieces_is_not_cut_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "FILE_SIZE_MAX", 1)
    whole = live_part(stored(1, range(4)))
    halves = [replace(whole, rows=rows_bytes(array("I", rows))) for rows in ([0, 1], [2, 3])]
    cutter = FileCutter(1)
    assert list(cutter.add(halves)) == []
    (cut,) = cutter.add([live_part(stored(5, range(2)))])
    assert (cut.first, cut.last, cut.parts) == (1, 4, halves)


def test_files_count_as_far_as_they_adjoin_or_nothing_is_between_them() -> None:
    files = [claiming(1, 3), claiming(4, 6), claiming(9, 10)]
    assert reach(files, 0, 10, lambda *_: False) == 6
    assert reach(files, 0, 10, lambda first, last: (first, last) == (7, 8)) == 10
    assert reach(files, 0, 9, lambda *_: True) == 6  # the last one claims what was never there
    assert reach(files[1:], 2, 10, lambda *_: False) == 2
    assert list(holes(files, 1, 13)) == [(7, 9), (11, 13)]
    assert list(holes(files, 8, 9)) == [(8, 9)]


def test_a_log_whose_files_are_gone_is_to_be_sealed_again() -> None:
    schedule = SealSchedule(300, sealed=9, now=0)
    schedule.lost(4, now=100)
    assert (schedule.due(399), schedule.due(400)) == (0, 9)


def claiming(first: int, last: int) -> FileInfo:
    return FileInfo("", FileClaim("n1", first, last), date(2026, 1, 1), 1)

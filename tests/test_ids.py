"""Ids: one text for one id, in order, and systems that count."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import systems

from tidings.errors import EventError
from tidings.ids import ClockIds, Ids, Origin, StoredIds, make_id, new_system, parse_id
from tidings.store.sqlite import SqliteStore

numbers = st.integers(0, 2**63 - 1)


@given(systems, numbers, numbers)
def test_an_id_is_read_as_it_was_made(system: str, epoch: int, counter: int) -> None:
    assert parse_id(make_id(system, epoch, counter)) == (system, epoch, counter)


@given(st.tuples(numbers, numbers), st.tuples(numbers, numbers))
def test_ids_of_one_system_sort_as_text_like_their_numbers(
    first: tuple[int, int], second: tuple[int, int]
) -> None:
    assert (make_id("s", *first) < make_id("s", *second)) == (first < second)


@given(st.text(st.sampled_from("s.0123456789abcdefg-"), max_size=40) | st.text())
def test_a_text_that_parses_is_the_only_one_for_its_id(text: str) -> None:
    parsed = parse_id(text)
    assert parsed is None or make_id(*parsed) == text


@pytest.mark.parametrize(
    "text",
    ["", "s", "s.1", "s.11", "s.11.", "s.11.200", "s.11.201", "s.11.1g", ".11.11", "a b.11.11", "s.11.11.11"],
)
def test_a_text_that_make_id_does_not_make_is_no_id(text: str) -> None:
    assert parse_id(text) is None


def test_a_number_of_more_than_63_bits_is_no_id() -> None:
    assert parse_id(f"s.11.g{2**63 - 1:x}") == ("s", 1, 2**63 - 1)
    assert parse_id(f"s.11.g{2**63:x}") is None
    assert parse_id("s.11.g" + "1" * 17) is None


def test_counters_follow_each_other_from_one() -> None:
    ids: Ids = StoredIds("s", 7)
    assert [ids.next_counter() for _ in range(3)] == [1, 2, 3]
    assert ids.origin == Origin("s", 7, None)


def test_ids_of_a_store_grow_from_start_to_start_without_a_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("time", "time_ns", "monotonic", "monotonic_ns"):
        monkeypatch.setattr(time, name, lambda: pytest.fail("a clock was read"))
    made: list[str] = []
    for _ in range(3):
        with closing(SqliteStore(tmp_path)) as store:
            ids = StoredIds(store.state.node, store.state.boot)
        made += [make_id(store.state.node, ids.origin.epoch, ids.next_counter()) for _ in range(2)]
    assert made == sorted(set(made))
    assert len({parse_id(one)[:2] for one in made}) == 3  # type: ignore[index]


def test_a_later_start_by_the_clock_has_a_higher_epoch() -> None:
    earlier, later = ClockIds("s", now=1_700_000_000.0), ClockIds("s", now=1_700_000_000.5)
    assert earlier.origin.epoch == 1_700_000_000_000_000
    assert later.origin.epoch == earlier.origin.epoch + 500_000


@pytest.mark.parametrize("system", ["", "a.b", "a b", "ü", "x" * 65])
def test_what_would_make_ids_ambiguous_names_no_system(system: str) -> None:
    with pytest.raises(EventError):
        StoredIds(system, 1)


@pytest.mark.parametrize("epoch", [-1, 2**63])
def test_an_epoch_out_of_range_is_refused(epoch: int) -> None:
    with pytest.raises(EventError):
        StoredIds("s", epoch)


@given(st.binary(min_size=10, max_size=10), st.binary(min_size=10, max_size=10))
def test_a_new_system_is_as_distinct_as_its_random_bytes(first: bytes, second: bytes) -> None:
    made = [new_system(lambda size: first[:size]), new_system(lambda size: second[:size])]
    assert all(len(name) == 16 for name in made)
    assert (made[0] == made[1]) == (first == second)
    StoredIds(made[0], 0)

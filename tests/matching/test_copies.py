"""Copies of an index: pickled, also for another process, and deep."""

from __future__ import annotations

import copy
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Hashable
from pathlib import Path

import pytest

from tests.matching.test_index import mixed_event, mixed_filter
from tidings import Event, Filter
from tidings.event import Batch
from tidings.matching import Index


def pickled(index: Index[Hashable]) -> Index[Hashable]:
    made: Index[Hashable] = pickle.loads(pickle.dumps(index))
    return made


def sized(plain_max: int) -> Index[Hashable]:
    return Index(plain_max=plain_max, capacity=64, pending_max=16)


def sorted_matches(index: Index[Hashable], made: list[Event]) -> list[list[str]]:
    return [sorted(map(repr, keys)) for keys in index.match_batch(made)]


@pytest.mark.parametrize("copied", [pickled, copy.deepcopy])
@pytest.mark.parametrize("plain_max", [0, 10_000])
def test_a_copy_matches_the_same_and_goes_its_own_way(
    plain_max: int, copied: Callable[[Index[Hashable]], Index[Hashable]]
) -> None:
    rng = random.Random(plain_max)
    index = sized(plain_max)
    keys: list[Hashable] = [None, "text", ("a", 1), *range(500)]
    for key in keys:
        index.add(key, mixed_filter(rng))
    made = [mixed_event(rng) for _ in range(30)]
    index.match_batch(made)
    for key in keys[::3]:
        index.remove(key)
    twin = copied(index)
    assert len(twin) == len(index)
    assert sorted_matches(twin, made) == sorted_matches(index, made)
    before = sorted_matches(index, made)
    for key in keys[::3]:
        twin.add(key, Filter(""))
    for key in keys[1::3]:
        twin.remove(key)
    assert [len(found) for found in twin.match_batch(made)] >= [len(keys[::3])] * len(made)
    assert sorted_matches(index, made) == before


def test_a_filter_with_alternatives_matches_in_a_copy_what_it_matched_before() -> None:
    index = sized(0)
    index.add("either", Filter("x > 0 OR y > 0"))
    event = Event("t", x=1, y=1)
    assert index.match(event) == ["either"]
    assert pickled(index).match(event) == ["either"]


def test_a_copy_of_a_copy_whose_original_is_gone_matches() -> None:
    rng = random.Random(3)
    index = sized(0)
    for key in range(300):
        index.add(key, mixed_filter(rng))
    made = [mixed_event(rng) for _ in range(10)]
    wanted = sorted_matches(index, made)
    index = pickled(pickled(index))
    assert sorted_matches(index, made) == wanted


@pytest.mark.parametrize("plain_max", [0, 10_000])
def test_another_process_matches_with_a_copy_as_this_one_does(plain_max: int, tmp_path: Path) -> None:
    rng = random.Random(5)
    index = sized(plain_max)
    for key in range(400):
        index.add(key, mixed_filter(rng))
    batch = Batch.of([mixed_event(rng) for _ in range(40)])
    wanted = {key: list(rows) for key, rows in index.match_rows(batch).items()}
    (tmp_path / "index").write_bytes(pickle.dumps((index, batch)))
    code = """
import pickle, sys
with open(sys.argv[1], "rb") as file:
    index, batch = pickle.load(file)
print(sorted((key, [int(row) for row in rows]) for key, rows in index.match_rows(batch).items()))
"""
    run = [sys.executable, "-c", code, str(tmp_path / "index")]
    told = subprocess.run(run, check=True, capture_output=True, text=True).stdout
    assert told.strip() == str(sorted((key, [int(row) for row in rows]) for key, rows in wanted.items()))

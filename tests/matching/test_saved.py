"""Saved indexes: they match as the index that was saved, and no fault in a file goes unseen."""

from __future__ import annotations

import copy
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from effort import often
from hypothesis import given
from hypothesis import strategies as st

from tests.filters.conditions import filters
from tests.matching.test_index import all_events, mixed_event, mixed_filter
from tidings import Event, Filter
from tidings.errors import IndexFileError, MissingExtra, StoreError, UserError
from tidings.event import Batch
from tidings.index_files import open_index, save_index
from tidings.matching import Index
from tidings.matching.sections import ALIGNMENT, HEAD


def sized(plain_max: int) -> Index[Any]:
    return Index(plain_max=plain_max, capacity=64, pending_max=16)


@contextmanager
def reopened(index: Index[Any]) -> Iterator[Index[Any]]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "filters.index"
        save_index(index, path)
        yield open_index(path)


def sorted_matches(index: Index[Any], made: list[Event]) -> list[list[Any]]:
    return [sorted(keys, key=str) for keys in index.match_batch(made)]


def rows_by_key(index: Index[Any], batch: Batch) -> dict[Any, list[int]]:
    return {key: list(rows) for key, rows in index.match_items(batch)}


@given(st.lists(filters, max_size=40), st.lists(all_events, max_size=5), st.sampled_from([0, 10_000]))
def test_a_saved_index_matches_as_the_one_that_was_saved(
    some: list[Filter], made: list[Event], plain_max: int
) -> None:
    index: Index[int] = Index(plain_max=plain_max, capacity=16, pending_max=4)
    for key, wanted in enumerate(some):
        index.add(key, wanted)
    with reopened(index) as again:
        assert len(again) == len(index)
        assert sorted_matches(again, made) == sorted_matches(index, made)
        for event in made:
            assert sorted(again.match(event)) == sorted(index.match(event))
            assert rows_by_key(again, Batch.of([event])) == rows_by_key(index, Batch.of([event]))


@pytest.mark.parametrize("plain_max", [0, 10_000])
def test_filters_of_all_kinds_are_saved_after_some_were_removed(plain_max: int) -> None:
    rng = random.Random(plain_max)
    index = sized(plain_max)
    keys: list[Any] = ["text", "é", "", -1, 2**63 - 1, *range(often(700))]
    for key in keys:
        index.add(key, mixed_filter(rng))
    made = [mixed_event(rng) for _ in range(60)]
    index.match_batch(made)
    for key in keys[::3]:
        index.remove(key)
    with reopened(index) as again:
        assert sorted_matches(again, made) == sorted_matches(index, made)
        assert {key for key in keys if key in again} == set(keys) - set(keys[::3])
        assert (again.unindexed, len(again)) == (index.unindexed, len(index))
        assert set(again.memory) == ({"blocks", "scratch"} if plain_max == 0 else set())
        before = sorted_matches(again, made)
    for key in keys[1::3]:
        index.remove(key)  # the file goes its own way
    assert sorted_matches(index, made) != before


def test_the_source_of_events_is_found_among_saved_texts() -> None:
    index = sized(0)
    for key, text in enumerate(
        ["source = 'a'", "source > 'aa'", "source = ''", "delivery = 'transient'"] * 20
    ):
        index.add(key, Filter(text))
    with reopened(index) as again:
        for source in ("a", "ab", "aa", "b", "é", "a" * 99):
            event = Event("t", source=source)
            assert sorted(again.match(event)) == sorted(index.match(event))


def test_another_process_opens_the_file(tmp_path: Path) -> None:
    index = sized(0)
    for key in range(200):
        index.add(f"key {key}", Filter("x > :x AND MATCHES(s, 'a+') OR s LIKE '%b'", x=key))
    save_index(index, tmp_path / "filters.index")
    code = (
        "from tidings import Event; from tidings.index_files import open_index; import sys;"
        "print(len(open_index(sys.argv[1]).match(Event('t', x=100, s='aa'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "filters.index")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == len(index.match(Event("t", x=100, s="aa"))) == 100


def test_without_numba_plain_filters_are_saved_and_compiled_ones_name_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = sized(0)
    index.add(1, Filter("x > 1"))
    save_index(index, tmp_path / "compiled")
    found = find_spec
    for module in ("index", "saved"):
        monkeypatch.setattr(
            f"tidings.matching.{module}.find_spec", lambda name: None if name == "numba" else found(name)
        )
    with pytest.raises(MissingExtra, match=r"a saved index of compiled filters needs the 'node' extra"):
        open_index(tmp_path / "compiled")
    plain: Index[int] = Index()
    for key in range(100):
        plain.add(key, Filter("x > :x", x=key))
    save_index(plain, tmp_path / "plain")
    assert len(open_index(tmp_path / "plain").match(Event("t", x=50))) == 50


# Refused


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    rng = random.Random(1)
    index = sized(0)
    for key in range(150):
        index.add(key, mixed_filter(rng))
    path = tmp_path_factory.mktemp("saved") / "filters.index"
    save_index(index, path)
    assert not list(path.parent.glob(".*"))
    return path.read_bytes()


def problem_of(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(IndexFileError) as caught:
        open_index(path)
    assert isinstance(caught.value, StoreError)
    assert str(path) in str(caught.value)
    return caught.value.problem


def test_a_file_that_was_cut_is_refused_wherever_it_ends(packed: bytes, tmp_path: Path) -> None:
    rng = random.Random(2)
    ends = {
        0,
        1,
        HEAD.size - 1,
        HEAD.size,
        *(rng.randrange(len(packed) - ALIGNMENT) for _ in range(often(50))),
    }
    for end in sorted(ends):
        problem = problem_of(tmp_path / "cut", packed[:end])
        assert "is cut" in problem or "no saved index" in problem
    assert "section 'grid_bounds" in problem_of(tmp_path / "cut", packed[: -ALIGNMENT - 1])


def test_a_changed_byte_is_found_wherever_it_is(packed: bytes, tmp_path: Path) -> None:
    rng = random.Random(3)
    found = set()
    for _ in range(often(150)):
        place = rng.randrange(len(packed))
        changed = bytearray(packed)
        changed[place] ^= 1 << rng.randrange(8)
        (tmp_path / "changed").write_bytes(changed)
        try:
            open_index(tmp_path / "changed")
        except IndexFileError as error:
            found.add(error.problem.split(":")[0])
        else:
            assert not any(packed[place : place + 1]), "only the padding between sections is not checked"
    assert any("damaged in section 'blocks', bytes" in problem for problem in found)


def test_files_of_other_kinds_and_versions_are_refused(packed: bytes, tmp_path: Path) -> None:
    assert problem_of(tmp_path / "other", b"PAR1" * 100) == "is no saved index"
    newer = packed[:8] + (99).to_bytes(4, "little") + packed[12:]
    assert problem_of(tmp_path / "newer", newer) == "version 99 of a saved index, not 1 or 2; save it again"
    with pytest.raises(FileNotFoundError):
        open_index(tmp_path / "missing")


def test_a_layout_of_another_version_is_refused(
    packed: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidings.matching.saved_engine.LAYOUT", (0,))
    assert "layout of another version" in problem_of(tmp_path / "layout", packed)


def test_a_key_that_is_no_number_or_text_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    for key in (("a", 1), None, True, 2**63):
        for plain_max, text in ((0, "x > 1"), (9, "x > 1"), (0, ""), (0, "s LIKE '%ab'")):
            index = sized(plain_max)
            index.add(key, Filter(text))
            with pytest.raises(UserError, match="a key of a saved index is an int of 64 bits or a str"):
                save_index(index, tmp_path / "filters.index")
    assert not list(tmp_path.iterdir())


def test_a_saved_index_does_not_change_and_is_not_copied(packed: bytes, tmp_path: Path) -> None:
    (tmp_path / "filters.index").write_bytes(packed)
    index = open_index(tmp_path / "filters.index")
    with pytest.raises(UserError, match="read-only"):
        index.add(1, Filter("x > 1"))
    with pytest.raises(UserError, match="read-only"):
        index.remove(1)
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="open its file again"):
            copied(index)

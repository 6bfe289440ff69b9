"""The journal of a gateway: what a successor knows of the one before it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import StoreError
from tidings.gateway.networks import WINDOW
from tidings.node.gateway import journal as journal_module
from tidings.node.gateway.journal import Journal, Life

NUMBERS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50)), min_size=1, max_size=5)


def begun(path: Path, life: Life, counter: int = 0) -> tuple[Journal, list[tuple[str, int]]]:
    journal = Journal(path)
    return journal, journal.begin(life, counter)


@given(batches=st.lists(NUMBERS, max_size=20), had=st.integers(0, 20))
def test_a_successor_knows_what_the_node_has_had_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[str, int]]], had: int
) -> None:
    path = tmp_path_factory.mktemp("journal") / "gateway"
    journal, recalled = begun(path, Life("s", 1))
    assert recalled == []
    for counter, numbers in enumerate(batches, start=1):
        journal.note(counter, numbers)
    journal.close()
    journal, recalled = begun(path, Life("s", 2), had)
    stored = {one for numbers in batches[:had] for one in numbers}
    assert journal.previous == Life("s", 1)
    assert set(recalled) == stored
    journal.close()
    # A third one, too, even if the second has noted nothing and its node says 0 of it.
    journal, recalled = begun(path, Life("s", 3), 0)
    journal.close()
    assert set(recalled) == stored


@given(cut=st.integers(1, 200))
def test_a_journal_that_ends_within_a_record_is_read_up_to_there(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("journal") / "gateway"
    journal, _ = begun(path, Life("s", 1))
    for counter in range(1, 11):
        journal.note(counter, [("n", counter)])
    journal.close()
    data = path.read_bytes()
    path.write_bytes(data[: max(len(data) - cut, 0)])
    journal, recalled = begun(path, Life("s", 2), 10)
    journal.close()
    assert recalled == [("n", counter) for counter in range(1, len(recalled) + 1)]


def test_a_journal_that_grows_keeps_what_matters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "SIZE_MAX", 4_000)
    path = tmp_path / "gateway"
    journal = Journal(path)
    journal._size_max = 4_000
    journal.begin(Life("s", 1), 0)
    last = 5 * WINDOW
    for counter in range(1, last + 1):
        journal.note(counter, [("n", counter)])
    journal.close()
    assert path.stat().st_size < 100_000
    journal, recalled = begun(path, Life("s", 2), last - 1)
    journal.close()
    assert recalled == [("n", seq) for seq in range(last - len(recalled), last)]
    assert len(recalled) >= WINDOW - 1


def test_what_is_no_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gateway"
    path.write_bytes(b"\0\0\0\1x")
    with pytest.raises(StoreError, match="no journal of a gateway"):
        Journal(path)
    with pytest.raises(StoreError, match="can't be read"):
        Journal(tmp_path)

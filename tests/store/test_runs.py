"""Runs: how messages are divided into them, found in them, and how little of the disk they waste."""

from __future__ import annotations

from array import array
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.samples import Model, message
from tidings.store import runs
from tidings.store.database import connect
from tidings.store.interface import Dequeue, Enqueue, Operation, Revise, StoredMessage
from tidings.store.runs import (
    RUN_BYTES_MAX,
    RUN_COUNT_MAX,
    SHARED_BYTES_MAX,
    MessageRun,
    Stock,
    gone_of,
    messages_of,
    run_of,
    run_row,
    runs_of,
    settled_row,
    spans,
)
from tidings.store.salvage import rebuild
from tidings.store.sqlite import SqliteStore

# -- a run


@given(
    sizes=st.lists(st.sampled_from([0, 900, SHARED_BYTES_MAX, SHARED_BYTES_MAX + 1, 200_000]), max_size=200)
)
def test_runs_keep_the_order_and_the_limits(sizes: list[int]) -> None:
    messages = [message(number, raw=bytes(size)) for number, size in enumerate(sizes, start=1)]
    found = list(runs_of(messages))
    assert [one for run in found for one in run] == messages
    for run in found:
        assert 1 <= len(run) <= RUN_COUNT_MAX
        assert len(run) == 1 or all(len(one.raw) <= SHARED_BYTES_MAX for one in run)
        assert len(run) == 1 or sum(len(one.raw) for one in run) <= RUN_BYTES_MAX


def test_no_run_is_smaller_than_it_must_be() -> None:
    messages = [message(number) for number in range(1, 151)]
    assert [len(run) for run in runs_of(messages)] == [64, 64, 22]


@given(numbers=st.sets(st.integers(1, 2**63 - 1), min_size=1, max_size=64), gone=st.integers(0, 2**64 - 1))
def test_rows_say_what_they_were_told(numbers: set[int], gone: int) -> None:
    messages = [message(number) for number in sorted(numbers)]
    row = run_row(5, 7, messages)
    assert messages_of(row) == messages
    run = run_of(row)
    assert (run.key, list(run.numbers), run.gone) == (5, sorted(numbers), 0)
    assert gone_of(settled_row(5, 7, gone)) == gone


@given(
    numbers=st.sets(st.integers(1, 40), min_size=1),
    asked=st.sets(st.integers(1, 41), min_size=1),
    gone=st.integers(0),
)
def test_bits_stand_for_messages(numbers: set[int], asked: set[int], gone: int) -> None:
    run = MessageRun(1, 1, 1, array("Q", sorted(numbers)))
    run.gone = gone & run.all
    assert run.gone | run.bits_of(run.left or [0]) == run.all
    bits = run.bits_of(sorted(asked))
    assert {number for index, number in enumerate(run.numbers) if bits >> index & 1} == numbers & asked


def test_numbers_are_told_in_spans() -> None:
    assert spans([]) == ""
    assert spans([1]) == "1"
    assert spans([1, 2, 3, 7, 9, 10]) == "1 to 3, 7, 9 to 10"


# -- the stock


@given(data=st.data())
def test_a_stock_knows_where_the_last_message_of_every_number_is(data: st.DataObject) -> None:
    known, where = Stock(), dict[int, int]()
    for key in range(1, data.draw(st.integers(1, 12))):
        numbers = sorted(data.draw(st.sets(st.integers(1, 30), min_size=1, max_size=5)))
        known.add(MessageRun(key, key, 100, array("Q", numbers)))
        where.update(dict.fromkeys(numbers, key))
        taken = sorted(data.draw(st.sets(st.integers(1, 31), max_size=8)))
        for run_key, bits in known.locate(taken).items():
            run = known.runs[run_key]
            if run.gone | bits == run.all:
                known.remove(run)
            else:
                known.settle(run, run.gone | bits, 1)
        for number in taken:
            where.pop(number, None)
        left = {number: run.key for run in known.runs.values() for number in run.left}
        assert left == where
        assert [known.has(number) for number in range(32)] == [number in where for number in range(32)]


# -- in a store


def rows(path: Path, table: str) -> int:
    connection = connect(path / "tidings.db", read_only=True)
    (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    connection.close()
    return int(count)


def test_the_messages_of_a_commit_are_one_row_which_goes_with_the_last_of_them(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.commit([Enqueue(message(number)) for number in range(1, 61)])
    assert (rows(tmp_path, "run"), rows(tmp_path, "settled")) == (1, 0)
    store.commit([Dequeue(number) for number in range(1, 31)])
    store.commit([Dequeue(number) for number in range(32, 61)])
    assert (rows(tmp_path, "run"), rows(tmp_path, "settled")) == (1, 1)
    store.commit([Dequeue(31)])
    assert (rows(tmp_path, "run"), rows(tmp_path, "settled")) == (0, 0)
    store.close()


def test_the_messages_that_a_commit_changes_are_one_row_more(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.commit([Enqueue(message(number)) for number in range(1, 61)])
    store.commit([Revise(message(number, 1)) for number in range(1, 21)])
    assert (rows(tmp_path, "run"), rows(tmp_path, "settled")) == (2, 1)
    store.commit([Dequeue(number) for number in range(1, 61)])
    assert (rows(tmp_path, "run"), rows(tmp_path, "settled")) == (0, 0)
    store.close()


def test_what_is_put_and_taken_in_one_commit_is_never_written(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.commit([*(Enqueue(message(number)) for number in (1, 2)), Dequeue(1), Dequeue(2)])
    assert rows(tmp_path, "run") == 0
    store.close()


@given(data=st.data())
def test_a_few_messages_that_stay_for_long_are_there_once_and_as_they_were_last(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "RUN_COUNT_MAX", 12)
        patch.setattr(runs, "SPARSE_BYTES_MAX", 0)  # so no run stays sparse for long
        store, model = SqliteStore(Path(folder)), Model()
        for commit in range(1, data.draw(st.integers(3, 7))):
            there = sorted(model.messages)
            stay = data.draw(st.sets(st.sampled_from(there), max_size=4)) if there else set()
            changed = [number for number in sorted(stay) if data.draw(st.booleans())]
            put = range(20 * commit, 20 * commit + data.draw(st.integers(1, 15)))
            operations: list[Operation] = [
                *(Revise(message(number, commit, compress=number % 5 == 0)) for number in changed),
                *(Dequeue(number) for number in there if number not in stay),
                *(Enqueue(message(number, compress=number % 3 == 0)) for number in put),
            ]
            store.commit(operations)
            model.commit(operations)
            again = data.draw(st.sampled_from(["go on", "go on", "open", "rebuild"]))
            if again != "go on":
                store.close()
                assert again == "open" or rebuild(Path(folder) / "tidings.db", None) == []
                store = SqliteStore(Path(folder))
            assert list(store.messages()) == [one for _, one in sorted(model.messages.items())]
        assert store.damage == []
        store.close()


def test_the_file_does_not_grow_though_one_message_of_every_run_is_never_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "SPARSE_BYTES_MAX", 200_000)
    store = SqliteStore(tmp_path)
    stay: list[StoredMessage] = []
    before: list[StoredMessage] = []
    for commit in range(100):
        put = [message(50 * commit + index, size=1000) for index in range(1, 51)]
        store.commit([*map(Enqueue, put), *(Dequeue(one.number) for one in before[1:])])
        stay += before[:1]
        before = put
    assert list(store.messages()) == stay + before
    store.close()
    assert (tmp_path / "tidings.db").stat().st_size < 1_000_000  # of the five million that were written
    store = SqliteStore(tmp_path)
    assert list(store.messages()) == stay + before
    assert store.damage == []
    store.close()


def test_of_a_sparse_run_only_what_is_left_after_the_commit_is_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "SPARSE_BYTES_MAX", 0)
    store = SqliteStore(tmp_path)
    store.commit([Enqueue(message(number)) for number in range(1, 21)])
    store.commit([Dequeue(number) for number in range(1, 18)])
    assert (rows(tmp_path, "run"), rows(tmp_path, "settled")) == (1, 1)
    store.commit([Dequeue(18), Revise(message(19, 1)), Enqueue(message(21))])
    assert list(store.messages()) == [message(19, 1), message(20), message(21)]
    assert (rows(tmp_path, "run"), rows(tmp_path, "settled")) == (3, 0)
    store.commit([Dequeue(19), Dequeue(20), Dequeue(21)])
    assert (rows(tmp_path, "run"), rows(tmp_path, "settled")) == (0, 0)
    store.close()


def test_a_sparse_run_that_turns_out_bad_is_lost_alone_and_the_commit_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "SPARSE_BYTES_MAX", 0)
    store = SqliteStore(tmp_path)
    for begin in (1, 11):
        store.commit([Enqueue(message(number, size=900)) for number in range(begin, begin + 10)])
    store.commit([Dequeue(number) for number in range(1, 10)])
    store.close()
    data = (tmp_path / "tidings.db").read_bytes()
    at = data.index(message(10, size=900).raw[:20])
    (tmp_path / "tidings.db").write_bytes(data[:at] + b"????" + data[at + 4 :])
    store = SqliteStore(tmp_path)
    store.commit([Enqueue(message(21))])
    assert [one.number for one in store.messages()] == list(range(11, 22))
    assert "message 10: run 1 is not as it was written" in [one.problem for one in store.damage]
    store.close()

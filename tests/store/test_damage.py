"""Damaged files: what is bad is found, reported and never served; what is good is not lost with it."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from effort import often
from msgspec.structs import replace

from tests.store.damage import Found, Made, copy, cut, flip, found, make, run_of, zero
from tests.store.samples import batch, everything, last
from tidings.errors import StoreDamaged, StoreFailed
from tidings.store import sqlite
from tidings.store.database import connect
from tidings.store.interface import Append, Trim
from tidings.store.pages import PAGE_SIZE
from tidings.store.records import Row
from tidings.store.salvage import POSITION_LEAP, rebuild
from tidings.store.sqlite import SqliteStore

FILE, LOG = "tidings.db", "tidings.db-wal"
# The soak of the project takes more of everything that is random.
SEEDS = range(often(25))
# The first leaf moves when the tree grows: after so many more batches a batch lies where it stays.
SETTLED = 20


@pytest.fixture(scope="module")
def at_rest(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("at-rest"), seed=1)


@pytest.fixture(scope="module")
def untrimmed(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("untrimmed"), seed=2, trims=False)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("crashed"), seed=3, commits=20, logged=True)


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("migrated"), seed=4, version=2)


def lost(made: Made, result: Found) -> set[int]:
    """Which batches are gone, after seeing that what is there is right and what is gone was reported."""
    ever = {one.first: one for one in made.ever}
    assert all(ever[one.first] == one for one in result.batches)
    gone = {one.first for one in made.batches} - {one.first for one in result.batches}
    assert result.damage or not gone
    return gone


def lost_records(made: Made, result: Found) -> int:
    gone = [one for one in made.durables if one not in result.durables]
    gone_counters = [one for one in made.counters if one not in result.counters]
    gone_queues = [one for one in made.queues if one not in result.queues]
    gone_records = [one for one in made.records.items() if one not in result.records.items()]
    total = len(gone) + len(gone_counters) + len(gone_queues) + len(gone_records)
    assert result.damage or not total
    return total


def lost_runs(made: Made, result: Found) -> int:
    """Of how many runs messages are gone, and whether others have come back, if all that was reported."""
    gone = {run_of(one) for one in made.messages if one not in result.messages}
    assert result.damage or not gone
    back = [one for one in result.messages if one not in made.messages]
    assert all(any(one in state for state in made.message_states) for one in back)
    assert not back or any("taken away before" in problem for problem in result.damage)
    return len(gone) + bool(back)


# -- the file


@pytest.mark.parametrize("seed", SEEDS)
def test_a_flipped_bit_costs_one_record_at_most(at_rest: Made, tmp_path: Path, seed: int) -> None:
    path = copy(at_rest, tmp_path / "node")
    flip(path / FILE, Random(seed))
    result = found(path)
    assert len(lost(at_rest, result)) + lost_records(at_rest, result) + lost_runs(at_rest, result) <= 1
    assert result.node == at_rest.node


@pytest.mark.parametrize("seed", SEEDS)
def test_a_flipped_bit_costs_one_record_of_a_store_that_was_made_with_fewer_tables(
    migrated: Made, tmp_path: Path, seed: int
) -> None:
    test_a_flipped_bit_costs_one_record_at_most(migrated, tmp_path, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_many_flipped_bits_cost_no_more_records_than_bits(at_rest: Made, tmp_path: Path, seed: int) -> None:
    path = copy(at_rest, tmp_path / "node")
    flip(path / FILE, Random(seed), count=20)
    result = found(path)
    assert len(lost(at_rest, result)) + lost_records(at_rest, result) <= 20
    versions = [one for state in at_rest.message_states for one in state]
    assert all(one in versions for one in result.messages)
    assert len({run_of(one) for one in at_rest.messages if one not in result.messages}) <= 20


@pytest.mark.parametrize("damage", [cut, zero])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_lay_before_a_cut_or_zeroed_tail_is_served(
    untrimmed: Made, tmp_path: Path, seed: int, damage: object
) -> None:
    path = copy(untrimmed, tmp_path / "node")
    size = Random(seed).randrange((path / FILE).stat().st_size)
    damage(path / FILE, size)  # type: ignore[operator]
    result = found(path)
    settled = zip(untrimmed.ever, untrimmed.sizes[SETTLED:], strict=False)
    before = {one.first for one, end in settled if end <= size}
    assert not lost(untrimmed, result) & before


@pytest.mark.parametrize("page", range(1, 11))
def test_the_loss_of_any_of_the_first_pages_costs_only_what_lay_on_it(
    at_rest: Made, tmp_path: Path, page: int
) -> None:
    path = copy(at_rest, tmp_path / "node")
    data = (path / FILE).read_bytes()
    begin = (page - 1) * PAGE_SIZE
    (path / FILE).write_bytes(data[:begin] + bytes(PAGE_SIZE) + data[begin + PAGE_SIZE :])
    result = found(path)
    assert result.node == at_rest.node
    assert result.damage
    if page <= 9:  # the schema and the roots of the tables; those of stream and runs have no rows by now
        assert not lost(at_rest, result)
        assert [one for one in result.messages if one in at_rest.messages] == at_rest.messages
        assert lost_runs(at_rest, result) == (page == 9)  # where it stands which messages are gone


def test_a_schema_that_is_no_text_any_more_costs_nothing(at_rest: Made, tmp_path: Path) -> None:
    path = copy(at_rest, tmp_path / "node")
    data = (path / FILE).read_bytes()
    for known, damaged in ((b"CREATE TABLE meta", b"CREATE T\xceBLE meta"), (b"boot INT", b"b\xceot INT")):
        (path / FILE).write_bytes(data.replace(known, damaged))
        result = found(path)
        assert (result.batches, result.messages) == (at_rest.batches, at_rest.messages)
        assert result.damage


# -- the log


@pytest.mark.parametrize("seed", SEEDS)
def test_a_flipped_bit_in_the_log_costs_one_record_or_the_last_commit(
    crashed: Made, tmp_path: Path, seed: int
) -> None:
    path = copy(crashed, tmp_path / "node")
    flip(path / LOG, Random(seed))
    result = found(path)
    if result.damage:
        assert len(lost(crashed, result)) <= 4
    else:
        assert result.batches == crashed.states[-2]
        assert result.messages == crashed.message_states[-2]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cut_log_leaves_whole_commits(crashed: Made, tmp_path: Path, seed: int) -> None:
    path = copy(crashed, tmp_path / "node")
    cut(path / LOG, Random(seed).randrange((path / LOG).stat().st_size))
    result = found(path)
    assert result.messages == crashed.message_states[crashed.states.index(result.batches)]


@pytest.mark.parametrize("seed", range(20))
def test_a_log_with_a_zeroed_tail_leaves_whole_commits_and_is_reported(
    crashed: Made, tmp_path: Path, seed: int
) -> None:
    path = copy(crashed, tmp_path / "node")
    zero(path / LOG, Random(seed).randrange((path / LOG).stat().st_size - 2 * PAGE_SIZE))
    result = found(path)
    assert result.messages == crashed.message_states[crashed.states.index(result.batches)]
    assert "zeros" in result.damage[0]


@pytest.mark.parametrize("byte", range(0, 32, 3))
def test_a_bad_header_of_the_log_costs_nothing(crashed: Made, tmp_path: Path, byte: int) -> None:
    path = copy(crashed, tmp_path / "node")
    data = bytearray((path / LOG).read_bytes())
    data[byte] ^= 0x40
    (path / LOG).write_bytes(data)
    result = found(path)
    assert result.batches == crashed.batches
    assert result.messages == crashed.messages
    assert "the log holds pages" in result.damage[0]


@pytest.mark.parametrize("size", [0, 10, 100, 4096, 5000, 10_000])
def test_a_cut_file_beside_a_whole_log_costs_nothing(crashed: Made, tmp_path: Path, size: int) -> None:
    path = copy(crashed, tmp_path / "node")
    cut(path / FILE, size)
    result = found(path)
    assert result.batches == crashed.batches
    assert result.messages == crashed.messages
    assert result.node == crashed.node


def test_a_whole_log_is_no_damage(crashed: Made, tmp_path: Path) -> None:
    result = found(copy(crashed, tmp_path / "node"))
    assert result.batches == crashed.batches
    assert result.messages == crashed.messages
    assert result.damage == []


# -- the rebuilding


def test_the_damaged_file_is_kept_and_no_lost_position_is_used_again(crashed: Made, tmp_path: Path) -> None:
    path = copy(crashed, tmp_path / "node")
    (path / LOG).unlink()
    (path / FILE).write_bytes(b"\0" * 50_000)
    store = SqliteStore(path)
    assert store.state.position == POSITION_LEAP
    assert store.state.node != crashed.node
    assert all(isinstance(one, StoreDamaged) for one in store.damage)
    store.close()
    assert (path / "tidings.db.damaged-1").read_bytes() == b"\0" * 50_000


def test_an_exchange_that_was_cut_short_is_finished_by_the_next_opening(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.commit([Append(batch(1))])
    store.close()
    (tmp_path / FILE).rename(tmp_path / "tidings.db.rebuilt")
    (tmp_path / FILE).write_bytes(b"damaged")
    (tmp_path / LOG).write_bytes(b"damaged log")
    store = SqliteStore(tmp_path)
    assert list(everything(store)) == [batch(1)]
    assert store.damage == []
    store.close()
    assert (tmp_path / "tidings.db.damaged-1").read_bytes() == b"damaged"
    assert (tmp_path / "tidings.db.damaged-1-wal").read_bytes() == b"damaged log"


def test_rebuilding_a_sound_database_changes_nothing(at_rest: Made, tmp_path: Path) -> None:
    path = copy(at_rest, tmp_path / "node")
    assert rebuild(path / FILE, None) == []
    result = found(path)
    assert result.batches == at_rest.batches
    assert lost_records(at_rest, result) == lost_runs(at_rest, result) == 0
    assert result.damage == []


def test_rows_that_users_put_into_an_event_are_not_taken_for_rows(at_rest: Made, tmp_path: Path) -> None:
    hostile = (at_rest.path / FILE).read_bytes()
    store = SqliteStore(tmp_path)
    for first in range(1, 20):
        store.commit([Append(replace(batch(first), raw=hostile[first:]))])
    expected = list(everything(store))
    store.close()
    assert rebuild(tmp_path / FILE, None) == []
    store = SqliteStore(tmp_path)
    assert list(everything(store)) == expected
    assert store.state.durables == []
    store.close()


# -- while it runs


def test_damage_met_while_running_is_reported_once_and_passed_over(tmp_path: Path) -> None:
    made = make(tmp_path, seed=5, trims=False)
    store = SqliteStore(made.path)
    bad = made.batches[10]
    data = (made.path / FILE).read_bytes()
    at = data.index(bad.raw[:20])
    with (made.path / FILE).open("r+b") as file:
        file.seek(at)
        file.write(b"\0" * 10)
    for _ in range(2):
        assert list(everything(store)) == [one for one in made.batches if one != bad]
    assert [str(one) for one in store.damage] == [
        f"{made.path / FILE}: stream {bad.first}: is not as it was written"
    ]
    store.close()


@pytest.mark.parametrize("lost", [2, 3, 5])
def test_a_batch_that_was_to_be_kept_is_missed_below_and_above_the_trim(tmp_path: Path, lost: int) -> None:
    batches = [batch(first, persistent=first != 4) for first in range(1, 7)]
    store = SqliteStore(tmp_path)
    store.commit([Append(one) for one in batches] + [Trim(4)])
    store.close()
    with closing(connect(tmp_path / FILE)) as connection:
        connection.execute("DELETE FROM stream WHERE first = ?", (lost,))
    with closing(SqliteStore(tmp_path)) as store:
        assert [one.first for one in everything(store)] == [n for n in (1, 2, 3, 5, 6) if n != lost]
        assert store.damage


class Unsynced:
    """The connection of a store whose next commit is written into the log, which can't be synced then."""

    def __init__(self, writer: sqlite3.Connection, path: Path, clone: Path) -> None:
        self._writer = writer
        self._path = path
        self._done: list[tuple[str, list[Row]]] = []
        shutil.copytree(path, clone)
        self._clone = clone

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def executemany(self, statement: str, rows: list[Row]) -> sqlite3.Cursor:
        self._done.append((statement, rows))
        return self._writer.executemany(statement, rows)

    def execute(self, statement: str) -> sqlite3.Cursor:
        if statement == "COMMIT":
            (self._path / LOG).write_bytes(self._log())
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error
        return self._writer.execute(statement)

    def _log(self) -> bytes:
        """The log with the commit in it, which is made once more beside the store."""
        with closing(connect(self._clone / FILE)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for statement, rows in self._done:
                connection.executemany(statement, rows)
            connection.execute("COMMIT")
            return (self._clone / LOG).read_bytes()


def test_a_commit_that_could_not_be_synced_is_not_there_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "node"
    store = SqliteStore(path)
    store.commit([Append(batch(1))])
    database = store._open_database()
    writer = database._writer
    database._writer = Unsynced(writer, path, tmp_path / "clone")  # type: ignore[assignment]
    with pytest.raises(StoreFailed, match="disk I/O error"):
        store.commit([Append(batch(2))])
    database._writer = writer
    shutil.copytree(path, tmp_path / "killed")
    store.close()
    with closing(SqliteStore(tmp_path / "killed")) as killed:
        assert list(everything(killed)) == [batch(1)]
        assert killed.damage == []


def test_a_tree_that_breaks_while_running_is_rebuilt_and_nothing_else_is_lost(tmp_path: Path) -> None:
    made = make(tmp_path, seed=6, trims=False)
    store = SqliteStore(made.path)
    root = 5 * PAGE_SIZE  # of the stream
    with (made.path / FILE).open("r+b") as file:
        file.seek(root)
        file.write(b"\0" * PAGE_SIZE)
    assert list(everything(store)) == made.batches
    assert store.damage
    new = batch(last(made.batches[-1]) + 1)
    store.commit([Append(new)])
    assert list(everything(store)) == [*made.batches, new]
    store.close()


def test_a_commit_that_meets_a_broken_tree_is_done_after_the_rebuilding(tmp_path: Path) -> None:
    made = make(tmp_path, seed=7, trims=False)
    store = SqliteStore(made.path)
    with (made.path / FILE).open("r+b") as file:
        file.seek(5 * PAGE_SIZE)
        file.write(b"\0" * PAGE_SIZE)
    new = batch(last(made.batches[-1]) + 1)
    store.commit([Append(new)])
    assert list(everything(store)) == [*made.batches, new]
    assert store.damage
    store.close()


def test_a_disk_that_damages_the_file_again_and_again_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(tmp_path, seed=8, commits=5)
    store = SqliteStore(made.path)
    monkeypatch.setattr(sqlite, "REBUILDS_MAX", 0)
    with (made.path / FILE).open("r+b") as file:
        file.seek(5 * PAGE_SIZE)
        file.write(b"\0" * PAGE_SIZE)
    with pytest.raises(StoreFailed, match="damaged after"):
        store.read(0, 1)
    store.close()

"""Backups of stores that are at work, and what is restored from them."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from effort import often
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store.samples import Model, batch, everything, message, operations, records_of
from tests.store.test_directory import set_format
from tests.store.test_processes import CHILD, ENVIRONMENT
from tidings.errors import InternalError, StoreDamaged, StoreError, StoreInUse, StoreTooNew
from tidings.store.backup import BackupSummary, back_up, restore
from tidings.store.directory import Directory
from tidings.store.interface import (
    Append,
    Counter,
    CountProducer,
    Durable,
    Enqueue,
    PutCursor,
    PutQueue,
    QueueRecord,
    SetRecord,
)
from tidings.store.sqlite import SqliteStore

NOW = 1.8e9
NOW_US = int(NOW * 1e6)
KILLS = often(5)


def filled(path: Path, count: int = 50) -> SqliteStore:
    """A store with so many events and messages, which is at work."""
    store = SqliteStore(path)
    store.commit(
        [PutCursor(Durable("behind", "ann", "", 3, 5)), PutCursor(Durable("up", "ann", "", count, count))]
    )
    store.commit([PutQueue(QueueRecord(1, "jobs", 4, b"")), CountProducer(Counter("child", 1, 7, 0))])
    store.commit([SetRecord("sink", key, b"value") for key in ("one", "two", "three")])
    for number in range(1, count + 1):
        store.commit([Append(batch(number)), Enqueue(message(number, size=3000))])
    return store


def restored(file: Path, directory: Path, now: float = NOW, **options: bool) -> SqliteStore:
    restore(file, directory, now, **options)
    return SqliteStore(directory)


# -- backups


def test_a_backup_of_a_store_at_work_holds_all_that_was_committed_before(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "node")) as store:
        summary = back_up(tmp_path / "node", tmp_path / "backup")
        store.commit([Append(batch(51))])
    size = (tmp_path / "backup").stat().st_size
    assert summary == BackupSummary(store.state.node, 1, 50, size, 50, 50, 1, 2, 3)
    with closing(restored(tmp_path / "backup", tmp_path / "copy")) as copy:
        assert list(everything(copy)) == [batch(number) for number in range(1, 51)]
        assert records_of(copy) == {("sink", key): b"value" for key in ("one", "two", "three")}
        assert list(copy.messages()) == [message(number, size=3000) for number in range(1, 51)]
        assert copy.state.counters == [Counter("child", 1, 7, 0)]
        assert copy.damage == []


def test_what_is_committed_while_the_pages_are_copied_is_not_in_the_backup(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "node", count=800)) as store:
        steps: list[tuple[int, int]] = []

        def commit(done: int, total: int) -> None:
            steps.append((done, total))
            store.commit([Append(batch(800 + len(steps)))])

        summary = back_up(tmp_path / "node", tmp_path / "backup", progress=commit)
        assert store.state.position + 800 + len(steps) == list(everything(store))[-1].first
    assert (summary.events, summary.position) == (800, 800)
    assert len(steps) > 2
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert steps[-1][0] == steps[-1][1] == summary.size


def test_a_stopped_store_is_backed_up_with_what_a_killed_process_left_in_its_log(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*CHILD, str(tmp_path / "node"), "commit"], stdout=subprocess.PIPE, env=ENVIRONMENT
    ) as child:
        assert child.stdout is not None
        told = [child.stdout.readline() for _ in range(5)]
        child.kill()
    assert (tmp_path / "node" / "tidings.db-wal").stat().st_size > 0
    summary = back_up(tmp_path / "node", tmp_path / "backup")
    assert summary.events >= int(told[-1].split()[1])
    assert summary.damage == []
    SqliteStore(tmp_path / "node").close()


def test_a_backup_is_for_its_owner_only_and_nothing_else_is_left(tmp_path: Path) -> None:
    filled(tmp_path / "node").close()
    back_up(tmp_path / "node", tmp_path / "backup")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "node"]
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_there_is_replaced_only_if_it_may_be(tmp_path: Path) -> None:
    filled(tmp_path / "node", count=5).close()
    (tmp_path / "backup").write_text("precious")
    with pytest.raises(StoreError, match="backup: exists already"):
        back_up(tmp_path / "node", tmp_path / "backup")
    assert (tmp_path / "backup").read_text() == "precious"
    assert back_up(tmp_path / "node", tmp_path / "backup", replaces=True).events == 5
    assert restore(tmp_path / "backup", tmp_path / "copy", NOW).events == 5


def test_a_backup_that_is_given_up_leaves_nothing_behind(tmp_path: Path) -> None:
    filled(tmp_path / "node").close()

    def give_up(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        back_up(tmp_path / "node", tmp_path / "backup", progress=give_up)
    assert [path.name for path in tmp_path.iterdir()] == ["node"]


def test_two_backups_to_one_file_are_not_made_at_once(tmp_path: Path) -> None:
    filled(tmp_path / "node", count=5).close()
    other = Directory(tmp_path / "backup.partial")
    with pytest.raises(StoreInUse, match=f"process {os.getpid()} uses it"):
        back_up(tmp_path / "node", tmp_path / "backup")
    other.release()
    assert back_up(tmp_path / "node", tmp_path / "backup").events == 5


def test_places_where_nothing_can_be_are_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="node: there is no store in it"):
        back_up(tmp_path / "node", tmp_path / "backup")
    assert not (tmp_path / "node").exists()
    SqliteStore(tmp_path / "node").close()
    with pytest.raises(StoreError, match="far: there is no such directory"):
        back_up(tmp_path / "node", tmp_path / "far" / "backup")
    with pytest.raises(StoreError, match="backup: there is no such file"):
        restore(tmp_path / "backup", tmp_path / "copy", NOW)


def test_a_store_of_a_later_format_is_refused(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "node").close()
    set_format(tmp_path / "node", 7)
    with pytest.raises(StoreTooNew, match="has format 7"):
        back_up(tmp_path / "node", tmp_path / "backup")
    with pytest.raises(StoreTooNew, match="has format 7"):
        restore(tmp_path / "node" / "tidings.db", tmp_path / "copy", NOW)
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["lock"]


def spoil_event(database: Path, first: int) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("UPDATE stream SET raw = x'00' WHERE first = ?", (first,))
        connection.commit()


def test_a_damaged_record_is_told_and_all_others_are_in_the_backup(tmp_path: Path) -> None:
    filled(tmp_path / "node").close()
    spoil_event(tmp_path / "node" / "tidings.db", 20)
    summary = back_up(tmp_path / "node", tmp_path / "backup")
    assert (summary.events, summary.damage) == (49, ["stream 20: is not as it was written"])
    with closing(restored(tmp_path / "backup", tmp_path / "copy")) as copy:
        assert [one.first for one in everything(copy)] == [*range(1, 20), *range(21, 51)]


def test_a_backup_with_damage_replaces_none(tmp_path: Path) -> None:
    filled(tmp_path / "node").close()
    back_up(tmp_path / "node", tmp_path / "backup")
    before = (tmp_path / "backup").read_bytes()
    spoil_event(tmp_path / "node" / "tidings.db", 20)
    with pytest.raises(StoreDamaged, match=r"stream 20: is not as it was written; .*backup was not replaced"):
        back_up(tmp_path / "node", tmp_path / "backup", replaces=True)
    assert (tmp_path / "backup").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "node"]


def test_a_store_that_contradicts_itself_is_not_backed_up(tmp_path: Path) -> None:
    filled(tmp_path / "node").close()
    with closing(sqlite3.connect(tmp_path / "node" / "tidings.db")) as connection:
        connection.execute("DELETE FROM durable WHERE id = 1")
        connection.commit()
    with pytest.raises(StoreDamaged, match="durable: rows are missing"):
        back_up(tmp_path / "node", tmp_path / "backup")
    assert [path.name for path in tmp_path.iterdir()] == ["node"]


def test_a_backup_that_does_not_fit_is_a_failure_and_leaves_nothing_behind(tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (90_000, 90_000))"
    with closing(filled(tmp_path / "node")):
        command = [sys.executable, "-c", f"{limit}; {BACKUP} back_up(*map(Path, sys.argv[1:]))"]
        places = [str(tmp_path / "node"), str(tmp_path / "backup")]
        run = subprocess.run(
            [*command, *places], capture_output=True, text=True, check=False, env=ENVIRONMENT
        )
        assert f"StoreFailed: {tmp_path}/backup: " in run.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["node"]


BACKUP = "import sys; from pathlib import Path; from tidings.store.backup import back_up;"
HEARD = "progress=lambda done, _: print(done, flush=True) or sys.stdin.readline()"
SLOWLY = f"{BACKUP} back_up(*map(Path, sys.argv[1:]), {HEARD})"


def test_a_killed_backup_leaves_no_half_file_and_the_next_one_is_whole(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "node", count=2000)):
        for kills in range(KILLS):
            kill_after(kills % 6, tmp_path)
            assert not (tmp_path / "backup").exists()
        assert back_up(tmp_path / "node", tmp_path / "backup").events == 2000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "node"]


def kill_after(steps: int, home: Path) -> None:
    """Begin a backup and kill it when it has told of so many steps; it waits to be heard after each."""
    command = [sys.executable, "-c", SLOWLY, str(home / "node"), str(home / "backup")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=ENVIRONMENT, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        for _ in range(steps):
            assert process.stdout.readline().strip().isdigit()
            process.stdin.write("\n")
            process.stdin.flush()
        process.send_signal(signal.SIGKILL)


# -- what is restored


@settings(max_examples=settings.default.max_examples // 5)
@given(st.data())
def test_whatever_was_stored_is_restored(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    home, model = tmp_path_factory.mktemp("backup"), Model()
    with closing(SqliteStore(home / "node")) as store:
        for _ in range(data.draw(st.integers(0, 5))):
            commit = data.draw(operations(model))
            model.commit(commit)
            store.commit(commit)
        back_up(home / "node", home / "backup")
    with closing(restored(home / "backup", home / "copy")) as copy:
        assert list(everything(copy)) == model.batches
        assert list(copy.messages()) == [model.messages[number] for number in sorted(model.messages)]
        assert {(one.system, one.epoch): one for one in copy.state.counters} == model.counters
        assert {one.key: one.name for one in copy.state.queues} == {
            key: one.name for key, one in model.queues.items()
        }
        assert {(one.owner, one.name) for one in copy.state.durables} == set(model.durables)
        assert records_of(copy) == model.records


def test_a_directory_with_a_store_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    filled(tmp_path / "node").close()
    back_up(tmp_path / "node", tmp_path / "backup")
    before = (tmp_path / "node" / "tidings.db").read_bytes()
    with pytest.raises(StoreError, match=r"node: has a store already: 'tidings.db' lies in it"):
        restore(tmp_path / "backup", tmp_path / "node", NOW)
    assert (tmp_path / "node" / "tidings.db").read_bytes() == before
    with closing(SqliteStore(tmp_path / "node")), pytest.raises(StoreInUse):
        restore(tmp_path / "backup", tmp_path / "node", NOW)


def test_a_directory_with_only_a_damaged_store_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "node").close()
    back_up(tmp_path / "node", tmp_path / "backup")
    (tmp_path / "node" / "tidings.db").rename(tmp_path / "node" / "tidings.db.damaged-1")
    with pytest.raises(StoreError, match=r"has a store already: 'tidings.db.damaged-1' lies in it"):
        restore(tmp_path / "backup", tmp_path / "node", NOW)


def test_a_restoring_that_was_cut_short_is_begun_again(tmp_path: Path) -> None:
    filled(tmp_path / "node").close()
    back_up(tmp_path / "node", tmp_path / "backup")
    (tmp_path / "copy").mkdir()
    for name in ("lock", "tidings.db.new", "tidings.db.new-wal"):
        (tmp_path / "copy" / name).write_bytes(b"SQLite form")
    assert restore(tmp_path / "backup", tmp_path / "copy", NOW).events == 50
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == ["lock", "tidings.db"]


def test_no_boot_and_no_position_is_used_twice_however_often_a_backup_is_restored(tmp_path: Path) -> None:
    filled(tmp_path / "node").close()
    back_up(tmp_path / "node", tmp_path / "backup")
    boot, position = 1, 50
    for times in range(3):
        with closing(restored(tmp_path / "backup", tmp_path / f"copy-{times}", NOW + times)) as copy:
            assert copy.state.boot > boot
            assert copy.state.position > position
            position = copy.state.position + 900_000
            copy.commit([Append(batch(position))])
        for _ in range(3):
            with closing(SqliteStore(tmp_path / f"copy-{times}")) as copy:
                boot = copy.state.boot
        assert copy.state.position == position


def test_a_restored_store_takes_no_batch_at_a_position_that_it_gave_up(tmp_path: Path) -> None:
    filled(tmp_path / "node").close()
    back_up(tmp_path / "node", tmp_path / "backup")
    with closing(restored(tmp_path / "backup", tmp_path / "copy")) as copy:
        position = copy.state.position
        for given_up in (51, position):
            with pytest.raises(InternalError, match=f"can't follow position {position}"):
                copy.commit([Append(batch(given_up))])
        copy.commit([Append(batch(position + 1))])


def test_a_clock_that_stands_still_does_not_bring_back_what_was_given_out_before(tmp_path: Path) -> None:
    filled(tmp_path / "node").close()
    back_up(tmp_path / "node", tmp_path / "backup")
    with closing(restored(tmp_path / "backup", tmp_path / "copy", now=0.0)) as copy:
        assert copy.state.boot > 1
        assert copy.state.position > 2**32


def test_whatever_may_have_been_delivered_since_is_marked(tmp_path: Path) -> None:
    filled(tmp_path / "node").close()
    back_up(tmp_path / "node", tmp_path / "backup")
    with closing(restored(tmp_path / "backup", tmp_path / "copy")) as copy:
        durables = {one.name: one for one in copy.state.durables}
        assert (durables["behind"].cursor, durables["behind"].handed) == (3, copy.state.position)
        assert (durables["up"].cursor, durables["up"].handed) == (copy.state.position, copy.state.position)
        assert copy.state.queues == [QueueRecord(1, "jobs", NOW_US, b"")]


@pytest.mark.parametrize("renames", [False, True])
def test_a_restored_node_keeps_its_name_unless_it_is_to_have_another(tmp_path: Path, renames: bool) -> None:
    filled(tmp_path / "node").close()
    name = back_up(tmp_path / "node", tmp_path / "backup").node
    with closing(restored(tmp_path / "backup", tmp_path / "copy", renames=renames)) as copy:
        assert (copy.state.node == name) is not renames
    with closing(SqliteStore(tmp_path / "copy")) as again:
        assert again.state.node == copy.state.node


def test_of_a_backup_that_was_damaged_what_is_sound_is_restored_and_the_rest_is_told(tmp_path: Path) -> None:
    filled(tmp_path / "node").close()
    back_up(tmp_path / "node", tmp_path / "backup")
    with closing(sqlite3.connect(tmp_path / "backup")) as connection:
        connection.execute("DELETE FROM durable WHERE id = 1")
        connection.commit()
    summary = restore(tmp_path / "backup", tmp_path / "copy", NOW)
    assert (summary.events, summary.messages, summary.durables) == (50, 50, 1)
    assert summary.damage[0].startswith("durable: rows are missing")
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == ["lock", "tidings.db"]


def test_the_database_of_a_store_at_work_is_no_backup(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "node")), pytest.raises(StoreError, match="has a log beside it"):
        restore(tmp_path / "node" / "tidings.db", tmp_path / "copy", NOW)
    assert not (tmp_path / "copy").exists()


def test_a_file_that_is_no_backup_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear all" * 1000)
    with pytest.raises(StoreDamaged, match=r"letter\.txt: holds nothing that a node has written"):
        restore(tmp_path / "letter.txt", tmp_path / "copy", NOW)
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["lock"]

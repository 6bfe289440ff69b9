"""Opening a store: the directory, who has it, and which format it has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tidings
from tests.store.samples import batch
from tidings.errors import StoreError, StoreFailed, StoreInUse, StoreTooNew
from tidings.store import directory
from tidings.store.database import StoreDatabase, connect
from tidings.store.directory import Directory
from tidings.store.interface import Append
from tidings.store.records import META, Meta, meta_row
from tidings.store.sqlite import SqliteStore

CHILD = {**os.environ, "PYTHONPATH": str(Path(tidings.__file__).parent.parent)}
GONE = "was removed or replaced while the node runs; stop the node"


def test_the_directory_is_made_for_its_owner_only(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "deep" / "node").close()
    assert (tmp_path / "deep" / "node").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("made", ["nothing", "directory", "node"])
def test_the_name_of_a_directory_is_synced_until_there_is_a_database_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    node = tmp_path / "deep" / "node"
    if made == "directory":
        node.mkdir(parents=True)  # as a process leaves it that was killed before it synced the name
    elif made == "node":
        SqliteStore(node).close()
    synced: list[Path] = []
    monkeypatch.setattr(directory, "sync_directory", synced.append)
    Directory(node).release()
    expected = {"nothing": {node.parent, tmp_path}, "directory": {node.parent}, "node": set()}
    assert set(synced) == expected[made]


def test_a_second_opener_is_told_who_has_the_directory(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "node")
    code = f"from tidings.store.sqlite import *; SqliteStore(Path({str(tmp_path / 'node')!r}))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=CHILD)
    assert f"process {os.getpid()} uses it" in run.stderr
    with pytest.raises(StoreInUse, match=f"process {os.getpid()} uses it"):
        SqliteStore(tmp_path / "node")
    store.commit([Append(batch(1))])
    store.close()
    SqliteStore(tmp_path / "node").close()


def test_an_opening_that_failed_lets_go_of_the_directory(tmp_path: Path) -> None:
    SqliteStore(tmp_path).close()
    set_format(tmp_path, 7)
    for _ in range(2):
        with pytest.raises(StoreTooNew):
            SqliteStore(tmp_path)


def set_format(path: Path, version: int) -> None:
    connection = connect(path / "tidings.db")
    connection.execute(META.put, meta_row(Meta("node", 1, version)))
    connection.close()


def test_a_newer_format_is_refused_by_both_numbers_and_left_as_it_is(tmp_path: Path) -> None:
    SqliteStore(tmp_path).close()
    set_format(tmp_path, 7)
    before = (tmp_path / "tidings.db").read_bytes()
    with pytest.raises(StoreTooNew, match="has format 7, this tidings knows formats up to 3"):
        SqliteStore(tmp_path)
    assert (tmp_path / "tidings.db").read_bytes() == before


def test_a_newer_format_with_other_tables_is_refused_not_rebuilt(tmp_path: Path) -> None:
    SqliteStore(tmp_path).close()
    set_format(tmp_path, 4)
    connection = connect(tmp_path / "tidings.db")
    connection.execute("DROP TABLE stream")
    connection.close()
    with pytest.raises(StoreTooNew):
        SqliteStore(tmp_path)
    assert not list(tmp_path.glob("*damaged*"))


def test_a_directory_of_somebody_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("hello")
    with pytest.raises(StoreError, match=r"not empty and not a tidings directory: 'thesis.tex' lies in it"):
        SqliteStore(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_the_place_of_the_directory_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "node").write_text("hello")
    with pytest.raises(StoreFailed, match="File exists"):
        SqliteStore(tmp_path / "node")


def test_a_making_that_was_cut_short_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / "tidings.db.new").write_bytes(b"SQLite form")
    store = SqliteStore(tmp_path)
    assert (store.state.boot, store.damage) == (1, [])
    store.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "tidings.db"]


def test_a_closed_store_refuses_and_may_be_closed_again(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.close()
    store.close()
    with pytest.raises(StoreFailed, match="is closed"):
        store.commit([])
    with pytest.raises(StoreFailed, match="is closed"):
        store.read(0, 1)


# Files that are removed, moved or replaced while the store is open


def test_a_directory_that_was_removed_fails_the_next_commit(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "node")
    store.commit([Append(batch(1))])
    shutil.rmtree(tmp_path / "node")
    for _ in range(2):
        with pytest.raises(StoreFailed, match=GONE):
            store.commit([Append(batch(2))])
    store.close()
    assert not (tmp_path / "node").exists()


@pytest.mark.parametrize("name", ["lock", "tidings.db", "tidings.db-wal"])
def test_a_file_that_was_removed_or_replaced_fails_the_next_commit(tmp_path: Path, name: str) -> None:
    store = SqliteStore(tmp_path / "node")
    path = tmp_path / "node" / name
    copy = shutil.copy(path, tmp_path / "copy")
    path.unlink()
    with pytest.raises(StoreFailed, match=f"{name}: {GONE}"):
        store.commit([Append(batch(1))])
    shutil.copy(copy, path)
    with pytest.raises(StoreFailed, match=GONE):
        store.commit([Append(batch(1))])
    store.close()


@pytest.mark.parametrize("name", ["node", "node/tidings.db", "node/tidings.db-wal"])
def test_what_was_moved_away_and_back_goes_on(tmp_path: Path, name: str) -> None:
    store = SqliteStore(tmp_path / "node")
    (tmp_path / name).rename(tmp_path / "elsewhere")
    with pytest.raises(StoreFailed, match=GONE):
        store.commit([Append(batch(1))])
    (tmp_path / "elsewhere").rename(tmp_path / name)
    store.commit([Append(batch(1))])
    assert [one.first for one in store.read(1, 1 << 20)] == [1]
    store.close()


def test_nothing_is_committed_after_a_commit_during_which_the_files_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "node")
    write = StoreDatabase._write

    def write_and_lose(database: StoreDatabase, *arguments: Any) -> None:
        write(database, *arguments)
        (tmp_path / "node").rename(tmp_path / "elsewhere")

    monkeypatch.setattr(StoreDatabase, "_write", write_and_lose)
    with pytest.raises(StoreFailed, match=GONE):
        store.commit([Append(batch(1))])
    monkeypatch.undo()
    (tmp_path / "elsewhere").rename(tmp_path / "node")
    with pytest.raises(StoreFailed, match=GONE):
        store.commit([Append(batch(2))])
    store.close()

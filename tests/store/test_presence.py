"""Files of a store that are removed, moved or replaced while it is open."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.store.samples import batch
from tidings.errors import StoreFailed
from tidings.store.database import Database
from tidings.store.interface import Append
from tidings.store.sqlite import SqliteStore

GONE = "was removed or replaced while the node runs; stop the node"


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
    write = Database._write

    def write_and_lose(database: Database, *arguments: Any) -> None:
        write(database, *arguments)
        (tmp_path / "node").rename(tmp_path / "elsewhere")

    monkeypatch.setattr(Database, "_write", write_and_lose)
    with pytest.raises(StoreFailed, match=GONE):
        store.commit([Append(batch(1))])
    monkeypatch.undo()
    (tmp_path / "elsewhere").rename(tmp_path / "node")
    with pytest.raises(StoreFailed, match=GONE):
        store.commit([Append(batch(2))])
    store.close()

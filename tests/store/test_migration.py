"""Stores of earlier formats are brought to ours when they are opened: all of it, or nothing."""

from __future__ import annotations

import lzma
import shutil
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from scripts.make_format_fixture import FOLDER
from tests.store.damage import flip
from tests.store.samples import records_of
from tidings.errors import StoreFailed
from tidings.store import database as database_module
from tidings.store.backup import back_up, restore
from tidings.store.database import StoreDatabase, connect
from tidings.store.pages import PAGE_SIZE
from tidings.store.records import FORMAT, META, meta_of
from tidings.store.sqlite import SqliteStore

FRAME_SIZE = PAGE_SIZE + 24
OLD = 2
SINK = ("sink", '["bob","s"]')


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The directory of a node that has had clients of all kinds, in the format before records."""
    home = tmp_path / "node"
    home.mkdir()
    (home / "tidings.db").write_bytes(lzma.decompress((FOLDER / f"node-{OLD}.db.xz").read_bytes()))
    return home


def format_of(file: Path) -> int:
    with closing(connect(file, read_only=True)) as connection:
        return meta_of(connection.execute(f"SELECT * FROM {META.name}").fetchone()).format


def unheard(problem: str) -> None:
    raise AssertionError(problem)


def check(home: Path) -> None:
    """The store has all that it had, in our format."""
    with closing(SqliteStore(home)) as store:
        assert store.damage == []
        assert SINK in records_of(store)
        assert {one.system for one in store.state.counters} == {"reader/bob", "spark/bob"}
        assert [one.name for one in store.state.queues] == ["jobs", "to:jobs@far"]
        assert len(list(store.messages())) == 3
    assert format_of(home / "tidings.db") == FORMAT


def test_a_store_without_records_gets_them_when_it_is_opened(old: Path) -> None:
    check(old)
    check(old)


def test_a_crash_at_any_moment_of_a_migration_leaves_the_old_store_or_the_new_one(
    old: Path, tmp_path: Path
) -> None:
    log = "tidings.db-wal"
    with closing(StoreDatabase(old / "tidings.db", unheard)) as database:
        database.migrate()
        written = (old / log).read_bytes()
        shutil.copytree(old, tmp_path / "crashed")
    assert len(written) > 2 * FRAME_SIZE
    seen = set()
    for size in (*range(0, len(written), FRAME_SIZE // 2), len(written)):
        home = tmp_path / "copy"
        shutil.copytree(tmp_path / "crashed", home)
        (home / log).write_bytes(written[:size])
        with closing(StoreDatabase(home / "tidings.db", unheard)) as database:
            seen.add(database.books.meta.format)
        check(home)
        shutil.rmtree(home)
    assert seen == {OLD, FORMAT}


def test_a_migration_that_fails_leaves_the_store_as_it_was(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def __contains__(self, statement: str) -> bool:
            raise StoreFailed("disk", "no space left on device")

    monkeypatch.setattr(database_module, "COUNTED", Full())  # it is asked for after each statement
    with pytest.raises(StoreFailed):
        SqliteStore(old)
    assert format_of(old / "tidings.db") == OLD
    monkeypatch.undo()
    check(old)


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_store_of_the_old_format_is_rebuilt_and_migrated(old: Path, seed: int) -> None:
    flip(old / "tidings.db", Random(seed))
    with closing(SqliteStore(old)) as store:
        kept = [*records_of(store), *store.state.durables, *store.state.counters, *store.state.queues]
        assert not any(one.system.startswith("sink:") for one in store.state.counters)
        # What a sink has done was kept in four rows, which one record has now.
        assert len(kept) + len(list(store.messages())) >= 1 + 5 + 2 + 2 + 3 - 1
    assert format_of(old / "tidings.db") == FORMAT


def test_a_backup_leaves_an_old_store_as_it_is_and_is_migrated_when_it_is_restored(
    old: Path, tmp_path: Path
) -> None:
    back_up(old, tmp_path / "backup")
    assert format_of(old / "tidings.db") == format_of(tmp_path / "backup") == OLD
    restore(tmp_path / "backup", tmp_path / "copy", now=2e3)
    check(tmp_path / "copy")

"""Stores that were written by earlier releases, one for each format, are opened and hold what they held."""

from __future__ import annotations

import lzma
import re
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from scripts.make_format_fixture import FOLDER, Content, write
from tests.store.samples import batch, everything, message, records_of
from tidings.store.backup import back_up, restore
from tidings.store.interface import Append, Enqueue
from tidings.store.records import FORMAT
from tidings.store.sqlite import SqliteStore


def formats(folder: Path) -> list[int]:
    """The formats of which a store lies in the folder."""
    names = [path.name for path in folder.glob("format-*.db.xz")]
    return sorted(int(number) for name in names for number in re.findall(r"\d+", name))


def unpacked(folder: Path, number: int, home: Path) -> Content:
    """Put a store into the directory of a node; what it must hold."""
    home.mkdir()
    (home / "tidings.db").write_bytes(lzma.decompress((folder / f"format-{number}.db.xz").read_bytes()))
    return msgspec.json.decode((folder / f"format-{number}.json").read_bytes(), type=Content)


def check(store: SqliteStore, content: Content) -> None:
    assert (store.state.node, store.damage) == (content.node, [])
    assert list(everything(store)) == content.batches
    assert list(store.messages()) == content.messages
    assert store.state.durables == content.durables
    assert store.state.counters == content.counters
    assert store.state.queues == content.queues
    assert records_of(store) == {(one.kind, one.key): one.value for one in content.records}


def check_all(folder: Path, number: int, home: Path) -> None:
    """The store is opened, written, opened again, backed up and restored."""
    content = unpacked(folder, number, home / "node")
    with closing(SqliteStore(home / "node")) as store:
        assert (store.state.position, store.state.boot) == (content.position, 2)
        check(store, content)
        store.commit([Append(batch(10**6)), Enqueue(message(10**6))])
    content.batches.append(batch(10**6))
    content.messages.append(message(10**6))
    with closing(SqliteStore(home / "node")) as store:
        check(store, content)
    back_up(home / "node", home / "backup")
    assert restore(home / "backup", home / "copy", now=0.0).messages == len(content.messages)
    with closing(SqliteStore(home / "copy")) as store:
        assert list(everything(store)) == content.batches


def test_there_is_a_store_of_every_format_that_there_ever_was() -> None:
    found = formats(FOLDER)
    assert found == list(range(1, FORMAT + 1)), "python -m scripts.make_format_fixture makes the newest"


def test_stores_of_all_formats_hold_what_they_held(tmp_path: Path) -> None:
    for number in formats(FOLDER):
        (tmp_path / str(number)).mkdir()
        check_all(FOLDER, number, tmp_path / str(number))


def test_a_store_that_is_written_down_now_can_be_opened_later(tmp_path: Path) -> None:
    assert write(tmp_path / "formats").name == f"format-{FORMAT}.db.xz"
    check_all(tmp_path / "formats", FORMAT, tmp_path)


def test_a_store_that_was_written_down_is_never_written_over(tmp_path: Path) -> None:
    before = write(tmp_path).read_bytes()
    with pytest.raises(FileExistsError):
        write(tmp_path)
    assert (tmp_path / f"format-{FORMAT}.db.xz").read_bytes() == before

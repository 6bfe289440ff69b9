"""Damaged messages: a bad one is reported and left out, none comes back, and the others stay."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.store.samples import message
from tidings.store.interface import Dequeue, Enqueue, PutQueue, QueueRecord, Revise
from tidings.store.pages import Pages
from tidings.store.salvage import rebuild
from tidings.store.sqlite import SqliteStore
from tidings.store.wal import PAGE_SIZE

FILE = "tidings.db"
ROOT = 8  # of the messages
MESSAGES = [message(number, size=900) for number in range(1, 201)]
LEFT = MESSAGES[60:100] + MESSAGES[150:]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A directory where many messages were, some are, and pages are free."""
    store = SqliteStore(tmp_path)
    store.commit([PutQueue(QueueRecord(1, "jobs", 0, b"")), *map(Enqueue, MESSAGES)])
    store.commit([Dequeue(one.number) for one in MESSAGES if one not in LEFT])
    store.close()
    return tmp_path


def overwrite(path: Path, at: int, data: bytes) -> None:
    with (path / FILE).open("r+b") as file:
        file.seek(at)
        file.write(data)


def place_of(path: Path, number: int) -> int:
    """Where the bytes of a message lie in the file."""
    return (path / FILE).read_bytes().index(MESSAGES[number - 1].raw)


def problems(store: SqliteStore) -> list[str]:
    return [one.problem for one in store.damage]


def test_a_bad_message_is_reported_once_and_left_out(path: Path) -> None:
    overwrite(path, place_of(path, 70) + 100, b"?")
    store = SqliteStore(path)
    for _ in range(2):
        assert list(store.messages()) == [one for one in LEFT if one.number != 70]
    assert problems(store) == ["message 70: is not as it was written"]
    store.close()


def test_the_number_of_a_bad_message_can_be_used_again(path: Path) -> None:
    overwrite(path, place_of(path, 200), b"?")
    overwrite(path, place_of(path, 199), b"?")
    store = SqliteStore(path)
    assert list(store.messages()) == LEFT[:-2]
    store.commit([Enqueue(message(200)), Enqueue(message(201)), Dequeue(199)])
    store.close()
    store = SqliteStore(path)
    assert list(store.messages()) == [*LEFT[:-2], message(200), message(201)]
    assert problems(store) == []
    store.close()


def test_a_lost_page_costs_what_lay_on_it_and_is_reported(path: Path) -> None:
    page = place_of(path, 80) // PAGE_SIZE
    overwrite(path, page * PAGE_SIZE, bytes(PAGE_SIZE))
    store = SqliteStore(path)
    found = list(store.messages())
    gone = [one.number for one in LEFT if one not in found]
    assert found == [one for one in LEFT if one.number not in gone]
    assert 80 in gone
    assert len(gone) <= 4
    assert any(f"message: {len(found)} are left" in problem for problem in problems(store))
    store.commit([*(Dequeue(number) for number in gone), Enqueue(message(201))])
    store.close()
    store = SqliteStore(path)
    assert list(store.messages()) == [*found, message(201)]
    assert problems(store) == []
    store.close()


@pytest.mark.parametrize("page", [1, ROOT])
def test_no_message_is_lost_or_comes_back_with_the_first_page_or_the_root(path: Path, page: int) -> None:
    overwrite(path, (page - 1) * PAGE_SIZE, bytes(PAGE_SIZE))
    store = SqliteStore(path)
    assert list(store.messages()) == LEFT
    assert [queue.name for queue in store.state.queues] == ["jobs"]
    assert problems(store)
    store.close()


def test_free_pages_are_known_by_the_list_and_by_the_trees(path: Path) -> None:
    with Pages(path / FILE) as found:
        rows = [(place, found.row(place)) for place in found.places()]
    old = {row[0] for place, row in rows if row and len(row) == 11 and place.is_old}
    new = {row[0] for place, row in rows if row and len(row) == 11 and not place.is_old}
    assert new == {one.number for one in LEFT}
    assert old & {one.number for one in MESSAGES if one not in LEFT}


def mislead(path: Path) -> None:
    """Let the root say of half of the messages that they lie elsewhere; every leaf is as it was."""
    root = (path / FILE).read_bytes()[(ROOT - 1) * PAGE_SIZE : ROOT * PAGE_SIZE]
    count = int.from_bytes(root[3:5], "big")
    cell = int.from_bytes(root[12 + 2 * (count // 2) :][:2], "big")
    overwrite(path, (ROOT - 1) * PAGE_SIZE + cell + 4, b"\x01")


def test_a_tree_that_leads_to_the_wrong_page_is_rebuilt_and_nothing_is_lost(path: Path) -> None:
    mislead(path)
    store = SqliteStore(path)
    assert list(store.messages()) == LEFT
    assert problems(store) == ["message: the tree is damaged"]
    store.close()


def test_what_a_misleading_tree_hides_is_taken_away_all_the_same(path: Path) -> None:
    mislead(path)
    store = SqliteStore(path)
    store.commit([Dequeue(one.number) for one in LEFT[10:]])
    assert problems(store)
    store.close()
    store = SqliteStore(path)
    assert list(store.messages()) == LEFT[:10]
    store.close()


def test_a_commit_that_meets_a_broken_tree_is_done_after_the_rebuilding(path: Path) -> None:
    overwrite(path, (ROOT - 1) * PAGE_SIZE, bytes(PAGE_SIZE))
    store = SqliteStore(path)
    store.commit([Dequeue(one.number) for one in LEFT[10:]])
    assert list(store.messages()) == LEFT[:10]
    assert problems(store)
    store.close()


def test_a_row_that_comes_back_is_noticed(path: Path) -> None:
    """As on a disk that forgets a write: the row is sound, only it should not be there any more."""
    before = (path / FILE).read_bytes()
    store = SqliteStore(path)
    leaf = place_of(path, 90) // PAGE_SIZE
    store.commit([Dequeue(90)])
    store.close()
    overwrite(path, leaf * PAGE_SIZE, before[leaf * PAGE_SIZE : (leaf + 1) * PAGE_SIZE])
    store = SqliteStore(path)
    list(store.messages())
    assert "message: rows are missing or have come back" in problems(store)
    store.close()


def test_a_rebuilding_keeps_the_newest_of_each_message_and_the_sums(path: Path) -> None:
    store = SqliteStore(path)
    changed = replace(LEFT[0], deliveries=3, raw=b"x" * 5000)
    store.commit([Revise(changed), Dequeue(LEFT[1].number)])
    store.close()
    for _ in range(2):
        assert rebuild(path / FILE, None) == []
    store = SqliteStore(path)
    assert list(store.messages()) == [changed, *LEFT[2:]]
    store.commit([Dequeue(one.number) for one in LEFT if one != LEFT[1]])
    assert list(store.messages()) == []
    assert problems(store) == []
    store.close()


def test_a_chain_of_free_pages_that_bites_its_tail_ends(path: Path) -> None:
    trunk = int.from_bytes((path / FILE).read_bytes()[32:36], "big")
    overwrite(path, (trunk - 1) * PAGE_SIZE, trunk.to_bytes(4, "big") + b"\xff" * 4)
    assert rebuild(path / FILE, None) == []
    store = SqliteStore(path)
    assert list(store.messages()) == LEFT
    store.close()

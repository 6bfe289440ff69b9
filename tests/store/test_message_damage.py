"""Damaged messages: what is bad is reported and left out, nothing comes back unsaid, and the others stay."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.store.samples import message
from tidings.store.interface import Dequeue, Enqueue, PutQueue, QueueRecord, Revise, StoredMessage
from tidings.store.pages import PAGE_SIZE, Pages
from tidings.store.records import RUN, SETTLED, is_sound
from tidings.store.salvage import rebuild
from tidings.store.sqlite import SqliteStore

FILE = "tidings.db"
ROOT, SETTLED_ROOT = 8, 9  # of the runs, and of what tells which of their messages are gone
MESSAGES = [message(number, size=900) for number in range(1, 201)]
LEFT = MESSAGES[63:98] + MESSAGES[155:]
TOGETHER = 10  # messages in a run
TAKEN_AGAIN = "settled: rows are lost, some messages may be there that were taken away before"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A directory where many messages were, some are, and pages are free; of three runs some are gone."""
    store = SqliteStore(tmp_path)
    store.commit([PutQueue(QueueRecord(1, "jobs", 0, b""))])
    for begin in range(0, len(MESSAGES), TOGETHER):
        store.commit([Enqueue(one) for one in MESSAGES[begin : begin + TOGETHER]])
    store.commit([Dequeue(one.number) for one in MESSAGES if one not in LEFT])
    store.close()
    return tmp_path


def overwrite(path: Path, at: int, data: bytes) -> None:
    with (path / FILE).open("r+b") as file:
        file.seek(at)
        file.write(data)


def place_of(path: Path, number: int) -> int:
    """Where bytes of a message lie in the file, of which others may be on the next page."""
    return (path / FILE).read_bytes().index(MESSAGES[number - 1].raw[:20])


def leaf_of(path: Path, run: int) -> int:
    """Where the page lies that has the row of a run."""
    with Pages(path / FILE) as pages:
        for place in pages.places():
            row = pages.row(place)
            if place.is_in_tree and row is not None and is_sound(RUN, row) and row[0] == run:
                return (place.leaf - 1) * PAGE_SIZE
    raise AssertionError(f"there is no run {run}")


def problems(store: SqliteStore) -> list[str]:
    return [one.problem for one in store.damage]


def without(numbers: range) -> list[StoredMessage]:
    return [one for one in LEFT if one.number not in numbers]


def test_a_bad_message_is_reported_once_and_left_out(path: Path) -> None:
    """And so are those of its run: they have one checksum."""
    overwrite(path, place_of(path, 65) + 10, b"?")
    store = SqliteStore(path)
    for _ in range(2):
        assert list(store.messages()) == without(range(61, 71))
    assert problems(store) == ["message 64 to 70: run 7 is not as it was written"]
    store.close()


def test_the_numbers_of_a_bad_run_can_be_used_again(path: Path) -> None:
    overwrite(path, place_of(path, 200), b"?")
    store = SqliteStore(path)
    assert list(store.messages()) == without(range(191, 201))
    store.commit([Enqueue(message(200)), Enqueue(message(201)), Dequeue(199)])
    store.commit([Dequeue(192), Revise(message(193)), Revise(message(200, 1))])
    store.close()
    store = SqliteStore(path)
    assert list(store.messages()) == [*without(range(191, 201)), message(200, 1), message(201)]
    assert problems(store) == ["message 191 to 199: run 20 is not as it was written"]
    store.close()


def test_a_bad_run_whose_numbers_are_all_used_again_is_no_longer_told_of(path: Path) -> None:
    overwrite(path, place_of(path, 200), b"?")
    store = SqliteStore(path)
    list(store.messages())
    again = [message(number, 1) for number in range(191, 201)]
    store.commit([Enqueue(one) for one in again])
    store.close()
    for _ in range(2):
        store = SqliteStore(path)
        assert list(store.messages()) == [*without(range(191, 201)), *again]
        assert problems(store) == []
        store.close()


def test_a_lost_page_of_a_run_costs_that_run_and_is_reported(path: Path) -> None:
    overwrite(path, place_of(path, 75) // PAGE_SIZE * PAGE_SIZE, bytes(PAGE_SIZE))
    store = SqliteStore(path)
    found = list(store.messages())
    assert found == without(range(71, 81))
    assert any("message 71 to 80: run 8" in problem for problem in problems(store))
    store.close()


def test_a_lost_page_costs_what_lay_on_it_and_is_reported(path: Path) -> None:
    overwrite(path, leaf_of(path, 8), bytes(PAGE_SIZE))
    store = SqliteStore(path)
    found = list(store.messages())
    gone = [one.number for one in LEFT if one not in found]
    assert found == [one for one in LEFT if one.number not in gone]
    assert 75 in gone
    assert len({(number - 1) // TOGETHER for number in gone}) <= 4
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


def test_without_what_tells_which_are_gone_messages_come_back_and_it_is_said(path: Path) -> None:
    overwrite(path, (SETTLED_ROOT - 1) * PAGE_SIZE, bytes(PAGE_SIZE))
    store = SqliteStore(path)
    assert list(store.messages()) == MESSAGES[60:100] + MESSAGES[150:]
    assert TAKEN_AGAIN in problems(store)
    assert not any(problem.startswith("message") for problem in problems(store))
    store.commit([Dequeue(number) for number in (61, 62, 63, 99, 100, *range(151, 156))])
    store.close()
    store = SqliteStore(path)
    assert list(store.messages()) == LEFT
    assert problems(store) == []
    store.close()


def test_a_bad_row_of_what_is_gone_concerns_one_run_only(path: Path) -> None:
    data = (path / FILE).read_bytes()
    page = data[(SETTLED_ROOT - 1) * PAGE_SIZE : SETTLED_ROOT * PAGE_SIZE]
    cell = int.from_bytes(page[8:10], "big")
    overwrite(path, (SETTLED_ROOT - 1) * PAGE_SIZE + cell + 8, bytes([page[cell + 8] ^ 1]))
    store = SqliteStore(path)
    assert list(store.messages()) == [*MESSAGES[60:63], *LEFT]
    assert TAKEN_AGAIN in problems(store)
    store.close()


def test_a_message_that_was_changed_is_there_once_and_as_it_was_last_whatever_is_lost(path: Path) -> None:
    store = SqliteStore(path)
    store.commit([Revise(message(66, 1)), Revise(message(67, 1))])
    store.commit([Revise(message(67, 2))])
    store.close()
    overwrite(path, (SETTLED_ROOT - 1) * PAGE_SIZE, bytes(PAGE_SIZE))
    for _ in range(2):
        store = SqliteStore(path)
        found = {one.number: one for one in store.messages()}
        assert [one.number for one in store.messages()] == sorted(found)
        assert (found[66], found[67]) == (message(66, 1), message(67, 2))
        store.close()
    store = SqliteStore(path)
    store.commit([Dequeue(number) for number in found])
    store.close()
    store = SqliteStore(path)
    assert list(store.messages()) == []
    store.close()


def test_free_pages_are_known_by_the_list_and_by_the_trees(path: Path) -> None:
    with Pages(path / FILE) as pages:
        rows = [(place, pages.row(place)) for place in pages.places()]
    runs = [(place, row) for place, row in rows if row and is_sound(RUN, row)]
    assert {row[0] for place, row in runs if not place.is_old} == {7, 8, 9, 10, 16, 17, 18, 19, 20}
    assert {row[0] for place, row in runs if place.is_old} - {7, 8, 9, 10, 16, 17, 18, 19, 20}
    settled = {row[0] for place, row in rows if row and is_sound(SETTLED, row) and not place.is_old}
    assert settled == {7, 10, 16}


def mislead(path: Path) -> None:
    """Let the root say of half of the runs that they lie elsewhere; every leaf is as it was."""
    root = (path / FILE).read_bytes()[(ROOT - 1) * PAGE_SIZE : ROOT * PAGE_SIZE]
    count = int.from_bytes(root[3:5], "big")
    cell = int.from_bytes(root[12 + 2 * (count // 2) :][:2], "big")
    overwrite(path, (ROOT - 1) * PAGE_SIZE + cell + 4, b"\x01")


def test_a_tree_that_leads_to_the_wrong_page_is_rebuilt_and_nothing_is_lost(path: Path) -> None:
    mislead(path)
    store = SqliteStore(path)
    assert list(store.messages()) == LEFT
    assert len(problems(store)) == 1
    assert "is there and is not" in problems(store)[0]
    store.close()


def test_what_a_misleading_tree_hides_is_taken_away_all_the_same(path: Path) -> None:
    mislead(path)
    store = SqliteStore(path)
    store.commit([Dequeue(one.number) for one in LEFT[10:]])
    assert problems(store) == ["run: rows that are there can't be found"]
    store.close()
    store = SqliteStore(path)
    assert list(store.messages()) == LEFT[:10]
    store.close()


def test_a_commit_that_meets_a_broken_tree_is_done_after_the_rebuilding(path: Path) -> None:
    store = SqliteStore(path)
    overwrite(path, (ROOT - 1) * PAGE_SIZE, bytes(PAGE_SIZE))
    assert store._database is not None
    store._database._writer.execute("PRAGMA shrink_memory")  # or it would go by what it has in memory
    store.commit([Dequeue(one.number) for one in LEFT[10:]])
    assert list(store.messages()) == LEFT[:10]
    assert problems(store)
    store.close()


def test_a_run_that_comes_back_is_noticed(path: Path) -> None:
    """As on a disk that forgets a write: the row is sound, only it should not be there any more."""
    leaf = leaf_of(path, 9)
    before = (path / FILE).read_bytes()[leaf : leaf + PAGE_SIZE]
    store = SqliteStore(path)
    store.commit([Dequeue(number) for number in range(81, 91)])
    store.close()
    overwrite(path, leaf, before)
    store = SqliteStore(path)
    assert any("run" in problem for problem in problems(store))
    store.close()


def test_what_is_gone_of_a_run_is_noticed_if_it_is_older_than_it_was(path: Path) -> None:
    at = (SETTLED_ROOT - 1) * PAGE_SIZE
    before = (path / FILE).read_bytes()[at : at + PAGE_SIZE]
    store = SqliteStore(path)
    store.commit([Dequeue(64)])
    store.close()
    overwrite(path, at, before)
    store = SqliteStore(path)
    assert list(store.messages()) == LEFT
    assert TAKEN_AGAIN in problems(store)
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

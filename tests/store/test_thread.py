"""The store beside the event loop: marks, group commit, failures, limits, the end."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.store.samples import batch, everything, message
from tidings.errors import InternalError, StoreFailed, TidingsError
from tidings.store import thread
from tidings.store.interface import Append, Dequeue, Enqueue, Operation, Revise, Trim
from tidings.store.memory import MemoryStore
from tidings.store.sqlite import SqliteStore
from tidings.store.thread import StoreThread


class GatedStore(MemoryStore):
    """Commits when it is let; remembers how much each commit held; fails on request."""

    def __init__(self) -> None:
        super().__init__("node")
        self.authenticator = threading.Semaphore(0)
        self.begun = threading.Semaphore(0)
        self.sizes: list[int] = []
        self.errors: list[Exception | None] = []

    def commit(self, operations: Sequence[Operation]) -> None:
        self.begun.release()
        self.authenticator.acquire()
        self.sizes.append(len(operations))
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        super().commit(operations)


class Told:
    """What the thread called back with, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.has_failed = threading.Event()
        self.was_durable = threading.Semaphore(0)

    def durable(self, mark: int) -> None:
        self.calls.append((mark,))
        self.was_durable.release()

    def failed(self, first: int, error: TidingsError) -> None:
        self.calls.append((first, str(error)))
        self.has_failed.set()


def test_marks_are_durable_in_order_and_what_waits_is_committed_together() -> None:
    store, told = GatedStore(), Told()
    commits = StoreThread(store, told.durable, told.failed)
    assert commits.submit([Append(batch(1))]) == 1
    store.begun.acquire()
    assert [commits.submit([Append(batch(n)), Trim(0)]) for n in (2, 3, 4)] == [2, 3, 4]
    store.authenticator.release(2)
    commits.close()
    assert told.calls == [(1,), (4,)]
    assert store.sizes == [1, 6]


def test_an_empty_submission_has_a_mark_too() -> None:
    told = Told()
    commits = StoreThread(MemoryStore("node"), told.durable, told.failed)
    commits.submit([])
    commits.close()
    assert told.calls == [(1,)]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (StoreFailed("disk", "is full"), "disk: is full"),
        (ValueError("oh"), "commit failed: ValueError('oh')"),
    ],
)
def test_after_a_failed_commit_nothing_is_committed_until_its_owner_has_recovered(
    error: Exception, says: str
) -> None:
    store, told = GatedStore(), Told()
    store.errors = [error]
    commits = StoreThread(store, told.durable, told.failed)
    commits.submit([Append(batch(1))])
    store.begun.acquire()
    assert commits.submit([Append(batch(2))]) == 2
    store.authenticator.release(10)
    told.has_failed.wait()
    assert commits.submit([Append(batch(3))]) == 3  # its owner has not heard of it yet
    assert commits.recover() == 3
    assert not commits.is_full
    assert commits.submit([Append(batch(1))]) == 4
    commits.close()
    assert told.calls == [(1, says), (4,)]


def test_a_wrong_operation_fails_alone_and_the_thread_goes_on(tmp_path: Path) -> None:
    errors: list[TidingsError] = []
    durable = threading.Event()
    commits = StoreThread(
        SqliteStore(tmp_path), lambda _: durable.set(), lambda _, error: errors.append(error)
    )
    commits.submit([Append(batch(5))])
    durable.wait()
    commits.submit([Append(batch(5))])
    commits.close()
    assert isinstance(errors[0], InternalError)


def test_too_much_is_refused_and_accepted_again_when_some_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread, "SUBMITTED_BYTES_MAX", 1000)
    store, told = GatedStore(), Told()
    commits = StoreThread(store, told.durable, told.failed)
    commits.submit([Append(batch(1, size=500))])
    store.begun.acquire()
    assert not commits.is_full
    commits.submit([Append(batch(2, size=500))])
    assert commits.is_full
    with pytest.raises(StoreFailed, match="1400 bytes wait"):
        commits.submit([Append(batch(3))])
    store.authenticator.release()
    store.begun.acquire()  # the second commit has begun, so the first no longer counts
    assert not commits.is_full
    assert commits.submit([Append(batch(3))]) == 3
    store.authenticator.release(2)
    commits.close()
    assert told.calls[-1] == (3,)


def test_the_bytes_of_messages_count_as_those_of_batches_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread, "SUBMITTED_BYTES_MAX", 2400)
    store, told = GatedStore(), Told()
    commits = StoreThread(store, told.durable, told.failed)
    commits.submit([Enqueue(message(1, size=1000)), Revise(message(1, 1, size=600))])
    store.begun.acquire()
    assert not commits.is_full
    commits.submit([Dequeue(1), Dequeue(2)])
    assert commits.is_full
    store.authenticator.release(2)
    commits.close()
    assert told.calls[-1] == (2,)


def test_closing_commits_what_is_pending_and_then_refuses(tmp_path: Path) -> None:
    told = Told()
    commits = StoreThread(SqliteStore(tmp_path), told.durable, told.failed)
    for n in range(1, 101):
        commits.submit([Append(batch(n))])
    commits.close()
    commits.close()
    assert told.calls[-1] == (100,)
    with pytest.raises(StoreFailed, match="is closed"):
        commits.submit([])
    store = SqliteStore(tmp_path)
    assert [one.first for one in everything(store)] == list(range(1, 101))
    store.close()


def test_reads_are_answered_while_a_commit_runs(tmp_path: Path) -> None:
    told, store = Told(), SqliteStore(tmp_path)
    store.commit([Append(batch(1)), Append(batch(2))])
    commits = StoreThread(store, told.durable, told.failed)
    with store._writing:  # as a commit holds it
        commits.submit([Append(batch(3))])
        assert commits.ask(commits.store.read, 1, 10_000).result() == [batch(1), batch(2)]
        assert commits.ask(commits.store.read_before, 1, 10_000).result() == [batch(1)]
        assert commits.ask(commits.store.position_at, 2).result() == 2
    commits.close()
    assert told.calls == [(1,)]


def test_a_read_that_fails_says_so_in_its_future(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    commits = StoreThread(store, lambda _: None, lambda *_: None)
    store.close()
    with pytest.raises(StoreFailed, match="is closed"):
        commits.ask(commits.store.read, 1, 1).result()
    commits.close()


class Watched(GatedStore):
    """Remembers in which order commits and reads were done; a read waits for `may_read`."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []
        self.may_read = threading.Event()
        self.may_read.set()

    def commit(self, operations: Sequence[Operation]) -> None:
        super().commit(operations)
        self.done.append("commit")

    def see(self, name: str) -> None:
        self.may_read.wait()
        self.done.append(name)


class Noticed(StoreThread):
    """Tells when a read has begun to wait for a commit: the next who takes the lock finds it waiting."""

    is_waited_for = threading.Event()

    @property
    def _is_idle(self) -> bool:
        if threading.current_thread().name.startswith("tidings-read"):
            self.is_waited_for.set()
        return super()._is_idle


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads wait for a commit however long it takes."""
    monkeypatch.setattr(thread, "COMMIT_FIRST_S_MAX", 60.0)


def test_commits_go_on_while_something_is_read() -> None:
    store, told = Watched(), Told()
    commits = StoreThread(store, told.durable, told.failed)
    store.may_read.clear()
    read = commits.ask(store.see, "read")
    store.authenticator.release(2)
    for number in (1, 2):
        commits.submit([Append(batch(number))])
        told.was_durable.acquire()
    assert not read.done()
    store.may_read.set()
    commits.close()
    assert store.done == ["commit", "commit", "read"]


@pytest.mark.usefixtures("patient")
def test_a_commit_that_waits_goes_before_the_next_read() -> None:
    store, told = Watched(), Told()
    commits = StoreThread(store, told.durable, told.failed)
    commits.submit([Append(batch(1))])
    store.begun.acquire()
    reads = [commits.ask(store.see, "read"), commits.ask_aside(store.see, "search")]
    assert not any(one.done() for one in reads)
    store.authenticator.release()
    for one in reads:
        one.result()
    assert store.done[0] == "commit"
    commits.close()


@pytest.mark.usefixtures("patient")
def test_a_read_waits_for_one_commit_and_not_for_all_that_come() -> None:
    store, told = Watched(), Told()
    commits = Noticed(store, told.durable, told.failed)
    commits.submit([Append(batch(1))])
    store.begun.acquire()
    read = commits.ask(store.see, "read")
    commits.is_waited_for.wait()
    commits.submit([Append(batch(2))])
    store.authenticator.release()
    read.result()
    assert store.done == ["commit", "read"]
    store.authenticator.release()
    commits.close()


@pytest.mark.usefixtures("patient")
def test_after_a_failed_commit_reading_goes_on() -> None:
    store, told = Watched(), Told()
    store.errors.append(StoreFailed("disk", "is full"))
    commits = StoreThread(store, told.durable, told.failed)
    commits.submit([Append(batch(1))])
    read = commits.ask(store.see, "read")
    store.authenticator.release()
    read.result()
    told.has_failed.wait()
    commits.ask(store.see, "read").result()
    commits.recover()
    commits.close()
    assert store.done == ["read", "read"]


def test_readers_have_their_pieces_in_turn() -> None:
    store, told = Watched(), Told()
    commits = StoreThread(store, told.durable, told.failed)
    store.may_read.clear()
    first = commits.ask(store.see, "a1")
    first.add_done_callback(lambda _: commits.ask(store.see, "a2"))
    rest = [commits.ask(store.see, name) for name in ("b1", "c1")]
    store.may_read.set()
    for one in (first, *rest):
        one.result()
    commits.ask(store.see, "end").result()
    commits.close()
    assert store.done == ["a1", "b1", "c1", "a2", "end"]


def test_a_long_search_holds_up_no_reading() -> None:
    store, told = Watched(), Told()
    commits = StoreThread(store, told.durable, told.failed)
    store.may_read.clear()
    search = commits.ask_aside(store.see, "search")
    assert commits.ask(store.read, 1, 100).result() == []
    assert not search.done()
    store.may_read.set()
    commits.close()

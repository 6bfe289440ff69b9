"""Driver of a store beside the event loop: commits in one thread, reads in others.

Operations submitted while a commit runs go together into the next one (group commit), so a busy node pays one
fdatasync for many ticks and an idle one waits for no timer.

Reads do not hold up commits: each read first waits for one commit that is pending or runs, only one, so that
reading goes on however busy the node is. A long backlog is read in pieces, each as large as its caller
requests, and a repeated request is queued after those of others: so readers get their pieces in turn. Long
work, such as a search in sealed files, has a thread of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from tidings.errors import InternalError, StoreError, StoreFailed, TidingsError
from tidings.store.interface import Append, Enqueue, Operation, Revise, Store

SUBMITTED_BYTES_MAX = 64 * 2**20
COMMIT_FIRST_S_MAX = 0.05
"""Longest wait of a read for a commit: a slow disk holds up commits, not readers."""
OPERATION_BYTES = 200  # size of an operation besides its events, about

Answer = TypeVar("Answer")
OnDurable = Callable[[int], None]
OnFailure = Callable[[int, TidingsError], None]


class StoreThread:
    """Commits submitted operations, in order.

    `on_durable(mark)` is called from the committing thread after each commit: everything submitted up to the
    mark is durable. `on_failure(first, error)` is called from it when a commit failed: nothing submitted from
    the mark `first` on has happened, and nothing more is committed until `recover` is called, because later
    operations may rest on lost ones. Neither may raise or block.
    """

    def __init__(self, store: Store, on_durable: OnDurable, on_failure: OnFailure) -> None:
        self.store = store
        self._on_durable = on_durable
        self._on_failure = on_failure
        lock = threading.Lock()
        self._changed = threading.Condition(lock)  # there is work
        self._committed = threading.Condition(lock)  # work was done
        self._pending: list[Operation] = []
        self._pending_size = 0
        self._size = 0  # of pending operations and those being committed
        self._mark = self._done = 0
        self._has_failed = False
        self._is_closing = False
        self._readers = ThreadPoolExecutor(1, thread_name_prefix="tidings-read")
        self._searchers = ThreadPoolExecutor(1, thread_name_prefix="tidings-search")
        self._thread = threading.Thread(target=self._run, name="tidings-commit", daemon=True)
        self._thread.start()

    @property
    def is_full(self) -> bool:
        """Whether `submit` would refuse: check before taking input to be stored, and withhold credit."""
        return self._size >= SUBMITTED_BYTES_MAX

    def submit(self, operations: Sequence[Operation], is_last: bool = False) -> int:
        """Queue operations to be committed together; return their mark: 1, then 2, and so on.

        Raises StoreFailed, and takes nothing, when SUBMITTED_BYTES_MAX wait already or after `close`. The
        last submission, before `close`, is taken however much waits.
        """
        with self._changed:
            if self._is_closing:
                raise StoreFailed("store", "is closed")
            if self.is_full and not is_last:
                raise StoreFailed("store", f"{self._size} bytes wait to be written: the disk is too slow")
            size = _size(operations)
            self._pending.extend(operations)
            self._pending_size += size
            self._size += size
            self._mark += 1
            self._changed.notify()
            return self._mark

    def recover(self) -> int:
        """Give up all submissions that are not durable, and go on; return the last mark given up."""
        with self._changed:
            self._pending, self._pending_size, self._size, self._done = [], 0, 0, self._mark
            self._has_failed = False
            self._changed.notify()
            self._committed.notify_all()
            return self._mark

    def ask(self, question: Callable[..., Answer], *arguments: object) -> Future[Answer]:
        """Run a read of the store off the caller's thread, after earlier ones."""
        return self._readers.submit(self._answer, question, *arguments)

    def ask_aside(self, question: Callable[..., Answer], *arguments: object) -> Future[Answer]:
        """Run a read that may take long in a thread of its own, so that short reads do not wait for it."""
        return self._searchers.submit(self._answer, question, *arguments)

    def _answer(self, question: Callable[..., Answer], *arguments: object) -> Answer:
        """Answer after the end of one commit, if there is one to be made."""
        with self._changed:
            done = self._done
            self._committed.wait_for(lambda: self._is_idle or self._done != done, COMMIT_FIRST_S_MAX)
        return question(*arguments)

    @property
    def _is_idle(self) -> bool:
        """Whether no commit runs, nor can start."""
        return self._mark == self._done or self._has_failed

    def close(self) -> None:
        """Commit what is pending, finish the read that runs, cancel those that wait, and close the store."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join()
        for readers in (self._readers, self._searchers):
            readers.shutdown(cancel_futures=True)
        with suppress(StoreError):
            self.store.close()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_closing and self._is_idle:
                    self._changed.wait()
                if self._is_idle:
                    return
                operations, self._pending = self._pending, []
                size, self._pending_size = self._pending_size, 0
                mark = self._mark
            error = self._commit(operations)
            with self._changed:
                if error is None:
                    self._size -= size
                    self._done = mark
                self._has_failed = error is not None
                first = self._done + 1
                self._committed.notify_all()
            if error is None:
                self._on_durable(mark)
            else:
                self._on_failure(first, error)

    def _commit(self, operations: list[Operation]) -> TidingsError | None:
        try:
            self.store.commit(operations)
        except TidingsError as error:
            return error
        except Exception as error:  # the one place that must survive any error of a store
            return InternalError(f"commit failed: {error!r}")
        return None


def _size(operations: Sequence[Operation]) -> int:
    size = OPERATION_BYTES * len(operations)
    for operation in operations:
        if isinstance(operation, Enqueue | Revise):
            size += len(operation.message.raw)
        elif isinstance(operation, Append):
            size += len(operation.batch.raw)
    return size

"""Jobs of the thread: added on the loop, collected, and done in groups."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct, field

from tidings.errors import QueueNotFound, TidingsError
from tidings.postgres.catalog import Catalog, Known
from tidings.postgres.connection import DELETED, PUT, RETURNED, UnitOfWork
from tidings.postgres.putting import PutJob, put_all
from tidings.postgres.readers import PostgresReader, ReaderLines
from tidings.postgres.settling import SettleJob, settle_all
from tidings.postgres.taking import serve
from tidings.replies import Deferred

GROUP_MAX = 2_000
GROUP_BYTES_MAX = 16 << 20
"""Jobs that are done in one transaction, and bytes of events."""

_Addressed = TypeVar("_Addressed", PutJob, SettleJob, PostgresReader)


class OtherJob(Struct, eq=False):
    """Job that is no put, settlement or get: done in a turn of its own, in its place between other jobs.

    `run` is called in the thread with that turn; the reply, on the loop, is its result.
    """

    run: Callable[[UnitOfWork], Any]
    deadline: float | None
    reply: Deferred[Any] = field(default_factory=Deferred)
    is_again: bool = False  # it was tried before, and may have been done

    def fail(self, error: TidingsError) -> None:
        """Give it an error instead of a result."""
        self.reply.fail(error)


Job = PutJob | SettleJob | PostgresReader | OtherJob


class Jobs:
    """Waiting jobs. `wake_fd` can be read from when one has come."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: deque[Job] = deque()
        self._is_closed = False
        self.wake_fd, self._wake_in = os.pipe()
        os.set_blocking(self.wake_fd, False)
        os.set_blocking(self._wake_in, False)

    def add(self, job: Job) -> None:
        """Add a job at the end; after `end` it is ignored."""
        with self._lock:
            if not self._is_closed:
                self._jobs.append(job)
                self.wake()

    def put_back(self, jobs: Sequence[Job]) -> None:
        """Put jobs that were not done back to the front."""
        with self._lock:
            self._jobs.extendleft(reversed(jobs))

    def take(self, most: int = GROUP_MAX) -> list[Job]:
        """Return the next jobs for one turn: one OtherJob, or many of the other kinds."""
        taken: list[Job] = []
        size = 0
        with self._lock:
            while self._jobs and len(taken) < most and size < GROUP_BYTES_MAX:
                job = self._jobs[0]
                if isinstance(job, OtherJob) and taken:
                    break
                taken.append(self._jobs.popleft())
                if isinstance(job, OtherJob):
                    break
                size += job.size if isinstance(job, PutJob) else 0
        return taken

    def take_overdue(self, now: float) -> list[Job]:
        """Return the jobs that can't wait any longer."""
        with self._lock:
            overdue = [job for job in self._jobs if job.deadline is not None and job.deadline <= now]
            if overdue:
                gone = set(map(id, overdue))
                self._jobs = deque(job for job in self._jobs if id(job) not in gone)
        return overdue

    def wake(self) -> None:
        """Wake the thread that waits at `wake_fd`."""
        with suppress(BlockingIOError):  # it is full, which wakes the thread too
            os.write(self._wake_in, b"!")

    def calm(self) -> None:
        """Clear `wake_fd` after a wake."""
        with suppress(BlockingIOError):
            while os.read(self.wake_fd, 4096):
                pass

    def end(self) -> None:
        """Accept no more jobs."""
        with self._lock:
            self._is_closed = True
        self.wake()

    def close(self) -> None:
        """Close it after `end`; no more jobs are done."""
        with self._lock:
            self._jobs.clear()
            os.close(self.wake_fd)
            os.close(self._wake_in)


class JobGroup:
    """Group of jobs in one turn: the puts first, then settlements, then gets.

    Waiting readers are served before new ones, wherever a message was put or has come back. Nothing of it
    holds before the turn is committed; `served` are the readers by then, and `rests` the seconds for which
    those at a queue have to wait because of its rate.
    """

    def __init__(self, turn: UnitOfWork, catalog: Catalog, lines: ReaderLines) -> None:
        self.served: dict[int, list[PostgresReader]] = {}
        self.rests: dict[int, float] = {}
        self._turn = turn
        self._catalog = catalog
        self._lines = lines

    def do(self, jobs: Sequence[Job], woken: Sequence[int]) -> None:
        """Do jobs, and serve the readers at the queues that were woken."""
        if jobs and isinstance(jobs[0], OtherJob):
            self._ask(jobs[0])
        self._put([job for job in jobs if isinstance(job, PutJob)])
        for known, some in self._by_queue([job for job in jobs if isinstance(job, SettleJob)]):
            settle_all(self._turn, self._catalog, known, some)
        self._serve([job for job in jobs if isinstance(job, PostgresReader)], woken)

    def _ask(self, ask: OtherJob) -> None:
        self._turn.is_again = ask.is_again
        try:
            result = ask.run(self._turn)
        except TidingsError as error:
            self._turn.after_commit(partial(ask.fail, error))
        else:
            self._turn.after_commit(partial(ask.reply.resolve, result))

    def _put(self, puts: Sequence[PutJob]) -> None:
        for known, some in self._by_queue(puts):
            try:
                put_all(self._turn, known, some)
            except QueueNotFound as error:
                self._refuse(known, some, error)

    def _serve(self, readers: Sequence[PostgresReader], woken: Sequence[int]) -> None:
        new: dict[int, list[PostgresReader]] = {}
        queues: dict[int, Known | None] = {}
        for known, some in self._by_queue(readers):
            new[known.key] = [reader for reader in some if not reader.is_cancelled]
            queues[known.key] = known
        for queue in [*woken, *self._touched()]:
            queues.setdefault(queue, self._catalog.get(queue))
        for queue in sorted(queues):  # as the rows of their rates must be locked
            here = queues[queue]
            line = self._lines.at(queue) + new.get(queue, [])
            if here is not None and line:
                self._serve_line(here, line, new.get(queue, []))

    def _touched(self) -> list[int]:
        """Return the queues with changes in this turn."""
        for notice in self._turn.notices:
            if notice.kind == RETURNED:
                self._lines.restart(notice.queue)
        return [notice.queue for notice in self._turn.notices if notice.kind in (PUT, RETURNED)]

    def _serve_line(self, known: Known, line: list[PostgresReader], new: list[PostgresReader]) -> None:
        try:
            self.rests[known.key] = serve(self._turn, known, line)
        except QueueNotFound as error:
            self._refuse(known, new, error)  # the other jobs fail when it is forgotten
        else:
            self.served[known.key] = line

    def _by_queue(self, jobs: Sequence[_Addressed]) -> list[tuple[Known, list[_Addressed]]]:
        """Return jobs by queue, in the order of the keys, so that no two nodes deadlock."""
        addresses: dict[str, list[_Addressed]] = {}
        for job in jobs:
            addresses.setdefault(job.address, []).append(job)
        found: dict[int, tuple[Known, list[_Addressed]]] = {}
        for address, some in addresses.items():
            try:
                known = self._catalog.find(self._turn, address)
            except QueueNotFound as error:
                for job in some:
                    self._turn.after_commit(partial(job.fail, error))
            else:
                found.setdefault(known.key, (known, []))[1].extend(some)
        return [found[key] for key in sorted(found)]

    def _refuse(self, known: Known, jobs: Sequence[Job], error: QueueNotFound) -> None:
        """Fail the jobs of a queue that was deleted without our knowledge."""
        for job in jobs:
            self._turn.after_commit(partial(job.fail, error))
        self._turn.notice(DELETED, known.key)

"""What the thread is to do: jobs come in on the loop, wait together, and are taken in groups."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from tidings.postgres.putting import Put
from tidings.postgres.readers import Reader
from tidings.postgres.settling import Settle
from tidings.postgres.turn import Turn
from tidings.replies import Deferred

GROUP_MAX = 2_000
GROUP_BYTES_MAX = 16 << 20
"""Jobs that are done in one transaction, and bytes of events."""


class Ask:
    """What is neither put, settled nor got: done in a turn of its own, in its place between other jobs.

    `run` is called in the thread with that turn; the reply is what it has returned, on the loop.
    """

    __slots__ = ("deadline", "fail", "is_again", "reply", "run")

    def __init__(self, run: Callable[[Turn], Any], deadline: float | None) -> None:
        self.run = run
        self.reply: Deferred[Any] = Deferred()
        self.fail = self.reply.fail
        self.is_again = False  # it was tried before, and may have been done
        self.deadline = deadline


Job = Put | Settle | Reader | Ask


class Jobs:
    """The jobs that wait. `wake_fd` can be read from when something has come."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: deque[Job] = deque()
        self._is_closed = False
        self.wake_fd, self._wake_in = os.pipe()
        os.set_blocking(self.wake_fd, False)
        os.set_blocking(self._wake_in, False)

    def add(self, job: Job) -> None:
        """One more, at the end; after `end` it is passed over."""
        with self._lock:
            if not self._is_closed:
                self._jobs.append(job)
                self.wake()

    def put_back(self, jobs: Sequence[Job]) -> None:
        """They were not done: they are the first again."""
        with self._lock:
            self._jobs.extendleft(reversed(jobs))

    def take(self, most: int = GROUP_MAX) -> list[Job]:
        """The next jobs that can be done in one turn: one that asks, or many of the other kinds."""
        taken: list[Job] = []
        size = 0
        with self._lock:
            while self._jobs and len(taken) < most and size < GROUP_BYTES_MAX:
                job = self._jobs[0]
                if isinstance(job, Ask) and taken:
                    break
                taken.append(self._jobs.popleft())
                if isinstance(job, Ask):
                    break
                size += job.size if isinstance(job, Put) else 0
        return taken

    def take_overdue(self, now: float) -> list[Job]:
        """Those that can't wait any longer."""
        with self._lock:
            overdue = [job for job in self._jobs if job.deadline is not None and job.deadline <= now]
            if overdue:
                gone = set(map(id, overdue))
                self._jobs = deque(job for job in self._jobs if id(job) not in gone)
        return overdue

    def wake(self) -> None:
        """Have whoever waits at `wake_fd` look."""
        with suppress(BlockingIOError):  # it is full: there is enough to wake up for
            os.write(self._wake_in, b"!")

    def calm(self) -> None:
        """Whoever waits has looked."""
        with suppress(BlockingIOError):
            while os.read(self.wake_fd, 4096):
                pass

    def end(self) -> None:
        """There are to be no more."""
        with self._lock:
            self._is_closed = True
        self.wake()

    def close(self) -> None:
        """Nobody does them any more; after `end`."""
        with self._lock:
            self._jobs.clear()
            os.close(self.wake_fd)
            os.close(self._wake_in)

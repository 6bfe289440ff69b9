"""The thread that uses the database: takes turns while there is a connection, and reconnects when it is lost.

All waiting jobs are done in one transaction. If the connection is lost, jobs in progress are done again on
the next one: events are counted, a settlement that finds nothing was made, and messages that were taken but
never delivered go back first. Jobs that can't wait for that fail with Disconnected.
"""

from __future__ import annotations

import random
import select
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial

import psycopg
from psycopg import errors

from tidings.errors import Disconnected, InternalError, QueueNotFound, TidingsError
from tidings.postgres import settling
from tidings.postgres.catalog import Catalog, Known
from tidings.postgres.connection import (
    CREATED,
    DELETED,
    PUT,
    RETURNED,
    Lives,
    PostgresConnection,
    PostgresNotice,
    UnitOfWork,
    end,
    problem_of,
)
from tidings.postgres.jobs import Job, JobGroup, Jobs, OtherJob
from tidings.postgres.putting import Watched
from tidings.postgres.readers import PostgresReader, ReaderLines
from tidings.postgres.taking import answer_nobody, is_served
from tidings.queues.message import QueuedMessage
from tidings.timers import Backoff

LOOK_S = 5.0
"""Time between two searches without a notice: the holder of a lock on a message may have died."""
RETRY_S_MIN = 0.1
RETRY_S_MAX = 1.0
"""First and longest delay before connecting again.

That is well below RESUME_S: so when a server is back, no node is taken for dead that has not tried yet.
"""
CLOSE_S = 10.0
"""How long a node that stops waits for its last turn."""
OVERDUE_S = 0.1
"""Time between two checks for overdue jobs, while the database is away."""

# The connection is there, but the transaction failed: it is done anew.
AGAIN = (errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable)
LOST = (psycopg.OperationalError, psycopg.InterfaceError, errors.ReadOnlySqlTransaction)

Call = Callable[[Callable[[], None]], None]
Report = Callable[[str | None], None]
OnCopies = Callable[[int, list[QueuedMessage]], None]


class PostgresWorker:
    """Thread that uses the database. `call` runs functions on the loop: answers, `report` and `on_copies`."""

    def __init__(
        self, link: PostgresConnection, catalog: Catalog, call: Call, report: Report, on_copies: OnCopies
    ) -> None:
        self.catalog = catalog
        self.jobs = Jobs()
        self.lines = ReaderLines()
        self.watched = Watched()
        self._link = link
        self._call = call
        self._report = report
        self._on_copies = on_copies
        self._lives = Lives()
        self._upkeep_at = self._tidy_at = self._look_at = 0.0
        self._was_connected = False
        self._closing = threading.Event()
        self._alone = 0  # jobs that are done one by one, since it is not known which of them fails
        self._thread = threading.Thread(target=self._run, name="tidings-postgres", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Do the waiting jobs, if the database is there, give back all messages, and end; blocks until then.

        Jobs that could not be done get no reply: a client that has put something will repeat it. A server
        that has a connection and does not reply is given up after CLOSE_S.
        """
        self._closing.set()
        self.jobs.end()
        self._thread.join(CLOSE_S)
        if not self._thread.is_alive():
            self.jobs.close()

    # The connection

    def _run(self) -> None:
        backoff, is_away = Backoff(random.random, RETRY_S_MIN, RETRY_S_MAX), False
        while not self._closing.is_set():
            problem = self._work_while_connected()
            self._link.disconnect()
            if self._closing.is_set():
                return
            if self._was_connected or not is_away:
                is_away = True
                backoff.reset()
                self._call(partial(self._report, problem))
            self._sit_out(backoff.next_s(), problem)

    def _work_while_connected(self) -> str:
        """Connect and work until the connection is lost; return why it was, or could not be opened."""
        self._was_connected = False
        try:
            self._link.connect()
            self._resume()
            self._was_connected = True
            self._call(partial(self._report, None))
            while self._work():
                pass
        except TidingsError as error:
            return str(error)
        except LOST as error:
            return problem_of(error)
        except Exception as error:  # the one place that must survive any error
            return f"{type(error).__name__}: {problem_of(error)}"
        return "the node is closing"

    def _resume(self) -> None:
        """Prepare for a new connection: anything may have happened in the meantime."""
        self._lives.forget()
        with self._link.turn() as turn:
            for number in list(self._link.unconfirmed - {turn.number}):
                settling.return_unconfirmed(turn, self.catalog, number)
            gone = self.catalog.load(turn)
            self.watched.resume(turn)
        self._link.unconfirmed.clear()
        for known in gone:
            self._deleted(known)
        for queue in self.watched:
            self._pass_copies(queue)
        self.lines.wake_all()

    def _sit_out(self, wait_s: float, problem: str) -> None:
        """Wait before the next attempt; meanwhile overdue jobs fail."""
        until = time.monotonic() + wait_s
        while not self._closing.is_set() and (now := time.monotonic()) < until:
            self._fail_overdue(now, problem)
            poll = select.poll()
            poll.register(self.jobs.wake_fd, select.POLLIN)
            poll.poll(min(until - now, OVERDUE_S) * 1000)
            self.jobs.calm()

    def _fail_overdue(self, now: float, problem: str) -> None:
        error = Disconnected(f"the database {self._link.conninfo.shown} is away: {problem}")
        for job in [*self.jobs.take_overdue(now), *self.lines.take_due(now)]:
            self._call(partial(job.fail, error))

    # Work

    def _work(self) -> bool:
        """Do one round; return whether there is to be another."""
        self.jobs.calm()
        jobs = self.jobs.take(1) if self._alone else self.jobs.take()
        if jobs:
            self._alone = max(0, self._alone - 1)
            self._do(jobs)
        elif self._closing.is_set():
            self._leave()
            return False
        self._heed(self._link.take_heard())
        self._keep_up(time.monotonic())
        if self.lines.woken:
            self._do([])
        elif not jobs:
            next_at = min(self._upkeep_at, self._look_at, self.lines.due_at)
            self._link.wait(self.jobs.wake_fd, next_at - time.monotonic())
        return True

    def _do(self, jobs: Sequence[Job]) -> None:
        """Do jobs, and serve woken readers, in one turn."""
        woken = self.lines.take_woken()
        try:
            turn, served = self._take_turn(jobs, woken)
        except AGAIN as error:
            self._undo(jobs)
            self._fail_overdue(time.monotonic(), problem_of(error))
        except LOST:
            self._undo(jobs)
            raise
        except Exception as error:  # an unexpected error must not take the others with it
            trouble = InternalError(f"{type(error).__name__}: {problem_of(error)}")
            self._blame(jobs, woken, error if isinstance(error, TidingsError) else trouble)
        else:
            self._heed(list(turn.notices), served)

    def _blame(self, jobs: Sequence[Job], woken: Sequence[int], error: TidingsError) -> None:
        """Fail the job of a turn that failed; if there were several, do them one by one."""
        if len(jobs) > 1:
            self._undo(jobs)
            self._alone = len(jobs)
            return
        self.lines.begin_all()
        failed = jobs or [reader for queue in woken for reader in self.lines.close(queue)]
        for job in failed:
            self._call(partial(job.fail, error))

    def _undo(self, jobs: Sequence[Job]) -> None:
        """Put back jobs that were not done, or may not have been."""
        for job in jobs:
            if isinstance(job, settling.SettleJob):
                job.life = self._link.life
            elif isinstance(job, OtherJob):
                job.is_again = True
            elif isinstance(job, PostgresReader):
                job.begin()
        self.jobs.put_back(jobs)
        self.lines.begin_all()

    def _take_turn(self, jobs: Sequence[Job], woken: Sequence[int]) -> tuple[UnitOfWork, Collection[int]]:
        """Run one turn; return it, and the queues whose readers were served in it."""
        with self._link.turn() as turn:
            group = JobGroup(turn, self.catalog, self.lines)
            group.do(jobs, woken)
        for known in turn.made:
            self.catalog.adopt(known)
        for queue, line in group.served.items():
            self._line_up(queue, line, group.rests[queue])
        if turn.answers:
            self._call(partial(_answer_all, turn.answers))
        return turn, group.served

    def _line_up(self, queue: int, line: Sequence[PostgresReader], rest_s: float) -> None:
        """Remove readers that were answered from the line; the others wait in it, for `rest_s` at least."""
        self.lines.remove(queue, [reader for reader in line if is_served(reader)])
        for reader in line:
            if not is_served(reader):
                self.lines.add(queue, reader)
                if reader.is_searching and (reader.is_copier or not rest_s):
                    self.lines.wake(queue)
        if rest_s:
            self.lines.rest(queue, time.monotonic() + rest_s)
        known = self.catalog.get(queue)
        held_s = None if known is None else known.description.redelivery_s
        if held_s is not None:
            self._upkeep_at = min(self._upkeep_at, time.monotonic() + held_s)

    # Notices

    def _heed(self, notices: Sequence[PostgresNotice], served: Collection[int] = ()) -> None:
        """Handle notices of this and other nodes; readers that were `served` after them need not search."""
        for kind, queue in notices:
            if kind == DELETED:
                known = self.catalog.forget(queue)
                if known is not None:
                    self._deleted(known)
            elif kind == CREATED and self.catalog.get(queue) is None:
                with self._link.turn() as turn:
                    self.catalog.learn(turn, queue)
            elif kind in (PUT, RETURNED) and queue not in served:
                self.lines.wake(queue)
                if kind == RETURNED:
                    self.lines.restart(queue)
            if kind == PUT and queue in self.watched:
                self._pass_copies(queue)

    def _deleted(self, known: Known) -> None:
        self.watched.forget(known.key)
        error = QueueNotFound(known.name, "it was deleted")
        for reader in self.lines.close(known.key):
            self._call(partial(reader.fail, error))

    def _pass_copies(self, queue: int) -> None:
        while True:
            with self._link.turn() as turn:
                copies = self.watched.read(turn, queue)
            if not copies:
                return
            self._call(partial(self._on_copies, queue, copies))

    # Time

    def _keep_up(self, now: float) -> None:
        """Do the periodic work that is due."""
        for reader in self.lines.take_due(now):
            self._call(partial(answer_nobody, reader))
        self.lines.wake_rested(now)
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            self.lines.wake_all()
        if now >= self._upkeep_at:
            self._upkeep_at = now + settling.UPKEEP_S
            with suppress(*AGAIN):
                self._give_back(now)
        if now >= self._tidy_at:
            self._tidy_at = now + settling.TIDY_S
            with self._link.turn() as turn:
                settling.tidy(turn)
            for queue in self.watched:
                self._pass_copies(queue)

    def _give_back(self, now: float) -> None:
        with self._link.turn() as turn:
            wait_s = settling.return_due(turn, self.catalog)
            settling.return_lost(turn, self.catalog, self._lives, now)
            settling.drop_expired(turn)
        for known in turn.made:
            self.catalog.adopt(known)
        self._upkeep_at = now + wait_s
        self._heed(list(turn.notices))

    def _leave(self) -> None:
        with self._link.turn() as turn:
            settling.return_all(turn, self.catalog, turn.life)
            end(turn, turn.life)


def _answer_all(answers: Sequence[Callable[[], None]]) -> None:
    for answer in answers:
        answer()

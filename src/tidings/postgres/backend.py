"""Queues in a database as the node sees them: called and answered on its loop, done by the worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from math import inf
from typing import Any

from tidings.errors import QueueError, QueueNotFound, Refused, TidingsError
from tidings.event import Batch
from tidings.event.wire import array_head
from tidings.exchange import NodeSubscription
from tidings.filters import Filter
from tidings.postgres import managing
from tidings.postgres.catalog import TYPE, Catalog, Known, completed
from tidings.postgres.connection import Conninfo, PostgresConnection, UnitOfWork
from tidings.postgres.jobs import OtherJob
from tidings.postgres.putting import PutJob
from tidings.postgres.readers import PostgresReader
from tidings.postgres.settling import SettleJob
from tidings.postgres.worker import Call, PostgresWorker, Report
from tidings.protocol.consumer import Consumer
from tidings.protocol.messages import GIVE_BACK, UNOPENED
from tidings.protocol.session import Session
from tidings.queues.arguments import FindRequest, GetRequest
from tidings.queues.backend import GetReply, QueueBackend, QueueRef
from tidings.queues.description import REASON_LENGTH_MAX, Description
from tidings.queues.getting import filter_of
from tidings.queues.message import QueuedMessage, event_bytes
from tidings.queues.waiting import WAITING_MAX
from tidings.replies import Deferred, failed

CALL_S = 5.0
"""How long other jobs wait for a database that is away."""
SEARCH_S = 2.0
"""How long a search waits."""
PUT_BYTES_MAX = 64 << 20
"""Bytes of events that may wait to be put, as they do while the database is away."""


class SharedQueues(QueueBackend):
    """All queues of one database. See `open_postgres` for the arguments."""

    types = frozenset({TYPE})

    def __init__(self, conninfo: str, node: str, call: Call, report: Report | None = None) -> None:
        self._conninfo = Conninfo(conninfo)
        self._on_problem = report
        self.problem: str | None = "it was not reached yet"
        """Reason why the database is away; None while it is there."""
        self._is_loaded = False
        self._names: dict[str, Known] = {}  # by name and by id
        self._watchers: dict[int, dict[NodeSubscription, int]] = {}  # and the last number it gets no copy of
        self._getting: set[PostgresReader] = set()
        self._bytes = 0  # of events that are not put yet
        catalog = Catalog(node, lambda come, gone: call(partial(self._changed, come, gone)))
        self._worker = PostgresWorker(
            PostgresConnection(self._conninfo, node), catalog, call, self._report, self._watched
        )
        self.jobs = self._worker.jobs

    def __repr__(self) -> str:
        return f"<SharedQueues in {self._conninfo.shown}>"

    @property
    def absent(self) -> Collection[str]:
        """Return the parts that can't be searched now, for the error of a search without a result."""
        return () if self.problem is None else (self._conninfo.shown,)

    def close(self) -> None:
        """Give back all held messages, and end the thread; blocks until then, for some seconds at most."""
        self._worker.close()

    def resolve(self, address: str) -> SharedQueue | None:
        """Return the queue of this name or id; while the database was never reached, any may exist."""
        if "@" in address or (self._is_loaded and address not in self._names):
            return None
        return SharedQueue(self, address)

    def create(self, wanted: Description) -> Deferred[Description]:
        """Create a queue."""

        def run(turn: UnitOfWork) -> Description:
            known = self._worker.catalog.create(turn, wanted)
            return self.described(turn, [known])[0]

        try:
            completed(wanted)  # an invalid description is refused at once
        except TidingsError as error:
            return failed(error)
        return self.ask(run)

    def delete(self, queue: QueueRef) -> Deferred[None]:
        """Delete a queue with all its messages."""
        catalog = self._worker.catalog

        def run(turn: UnitOfWork) -> None:
            with suppress(QueueNotFound) if turn.is_again else nullcontext():
                catalog.delete(turn, catalog.find(turn, queue.address))

        return self.ask(run)

    def search(self, sought: FindRequest) -> Deferred[list[Description]]:
        """Return the descriptions that agree."""
        catalog = self._worker.catalog

        def run(turn: UnitOfWork) -> list[Description]:
            if sought.name is not None:
                with suppress(QueueNotFound):
                    catalog.find(turn, sought.name)  # another node may have created it just now
            return self.described(turn, managing.agreeing(catalog, sought))

        return self.ask(run, SEARCH_S)

    # For the references

    def ask(self, run: Callable[[UnitOfWork], Any], wait_s: float | None = CALL_S) -> Deferred[Any]:
        """Run a job in a turn; Disconnected if the database is away for longer than it may wait."""
        ask = OtherJob(run, None if wait_s is None else time.monotonic() + wait_s)
        self.jobs.add(ask)
        return ask.reply

    def ask_of(self, address: str, run: Callable[[UnitOfWork, Known], Any]) -> Deferred[Any]:
        """Run a job on a queue; QueueNotFound if it does not exist."""
        return self.ask(lambda turn: run(turn, self._worker.catalog.find(turn, address)))

    def described(self, turn: UnitOfWork, queues: list[Known]) -> list[Description]:
        """Describe queues, with the readers of this node that wait there."""
        return managing.describe(turn, queues, self._worker.lines.lengths())

    def put(self, put: PutJob) -> None:
        """Put events; refused if too many wait."""
        if self._bytes + put.size > PUT_BYTES_MAX and self._bytes:
            put.fail(Refused("limit", f"{self._bytes} bytes wait to be put into the database"))
        elif put.raws:
            self._bytes += put.size
            put.replies[-1].then(lambda _none: self._was_put(put), lambda _error: self._was_put(put))
            self.jobs.add(put)

    def _was_put(self, put: PutJob) -> None:
        """Note that the last of some events is put or refused, and so are the others."""
        self._bytes -= put.size

    def get(self, reader: PostgresReader) -> None:
        """Let a reader wait for messages; QueueError if too many do."""
        if len(self._getting) >= WAITING_MAX:
            raise QueueError(reader.address, f"at most {WAITING_MAX} readers can wait")
        self._getting.add(reader)
        now, wait_s = time.monotonic(), reader.wanted.wait_s
        if wait_s is not None:
            reader.deadline = now + (wait_s or CALL_S)
            reader.due = now + wait_s if wait_s else inf
        self.jobs.add(reader)

    def got(self, reader: PostgresReader) -> None:
        """Forget a reader that waits no longer."""
        self._getting.discard(reader)

    def watch(self, address: str, subscription: NodeSubscription) -> Callable[[], None]:
        """Give a subscription copies of later puts into a queue; return the function that ends that."""
        catalog, watched = self._worker.catalog, self._worker.watched
        is_wanted, key = True, None

        def begin(turn: UnitOfWork) -> tuple[int, int]:
            known = catalog.find(turn, address)
            return known.key, watched.begin(turn, known)

        def begun(result: tuple[int, int]) -> None:
            nonlocal key
            key, last = result
            self._watchers.setdefault(key, {})[subscription] = last
            if not is_wanted:
                end()

        def end() -> None:
            nonlocal is_wanted
            is_wanted = False
            watchers = self._watchers.get(key, {}) if key is not None else {}
            if watchers.pop(subscription, None) is not None and not watchers and key is not None:
                ended = key
                del self._watchers[ended]
                self.ask(lambda turn: watched.end(turn, ended), None)

        self.ask(begin, None).then(begun)
        return end

    # Called on the loop by the worker

    def _report(self, problem: str | None) -> None:
        self.problem = problem
        if self._on_problem is not None:
            self._on_problem(problem)

    def _changed(self, come: Sequence[Known], gone: Sequence[Known]) -> None:
        """Note new and deleted queues; existing ones come with the first call."""
        self._is_loaded = True
        for known in gone:
            for name in (known.name, known.description.id):
                if name in self._names and self._names[name].key == known.key:
                    del self._names[name]
            for subscription in self._watchers.pop(known.key, {}):
                if isinstance(subscription.sink, Consumer):
                    subscription.sink.session.subscriptions.end(
                        subscription.sink.number, "the queue was deleted"
                    )
        for known in come:
            self._names[known.name] = self._names[known.description.id] = known

    def _watched(self, queue: int, copies: list[QueuedMessage]) -> None:
        for message in copies:
            shown = message.shown
            batch = Batch(array_head(1) + event_bytes(shown), message.origin)
            for subscription, last in list(self._watchers.get(queue, {}).items()):
                if message.number > last and subscription.filter.matches(shown):
                    subscription.sink.deliver(batch, (0,), (None,))


class SharedQueue(QueueRef):
    """Queue in a database."""

    address = ""

    def __init__(self, queues: SharedQueues, address: str) -> None:
        self._queues = queues
        self.address = address

    def __repr__(self) -> str:
        return f"<SharedQueue {self.address!r}>"

    def describe(self) -> Deferred[Description]:
        """Return the description; of readers that wait, those of this node are counted."""
        return self._queues.ask_of(self.address, lambda turn, known: self._queues.described(turn, [known])[0])

    def put(self, _session: Session, batch: Batch) -> Sequence[Deferred[None]]:
        """Put events, in their order; the reply for each comes when it is committed, or refused."""
        put = PutJob(self.address, batch.raws, batch.origin)
        self._queues.put(put)
        return put.replies

    def get(self, wanted: GetRequest) -> Deferred[GetReply]:
        """Take or read messages."""
        return self._get(wanted, None)

    def get_together(self, wanted: GetRequest, owner: str) -> Deferred[GetReply]:
        """Take messages, of each group as many as follow each other."""
        return self._get(wanted, owner)

    def _get(self, wanted: GetRequest, owner: str | None) -> Deferred[GetReply]:
        if wanted.transaction:
            return failed(QueueError(self.address, "a queue in a database can't be in a transaction"))
        try:
            filter = filter_of(wanted.where) if wanted.where else None
            reader = PostgresReader(self.address, wanted, filter, owner)
            self._queues.get(reader)
        except TidingsError as error:
            return failed(error)
        return self._awaited(reader)

    def _awaited(self, reader: PostgresReader) -> Deferred[GetReply]:
        """Return the messages of a reader; if it is cancelled, they go back when they have come."""

        def cancel() -> None:
            reader.is_cancelled = True
            self._queues.got(reader)

        def done(handed: GetReply) -> None:
            self._queues.got(reader)
            reply.resolve(handed)
            if reader.is_cancelled and not reader.is_copier:
                for one in handed.messages:
                    self.settle(one.number, one.delivery, UNOPENED, "")

        def fail(error: TidingsError) -> None:
            self._queues.got(reader)
            reply.fail(error)

        reply: Deferred[GetReply] = Deferred(cancel)
        reader.reply.then(done, fail)
        return reply

    def settle(self, number: int, delivery: int, outcome: int, text: str) -> Deferred[None]:
        """Settle a message that was got."""
        settle = SettleJob(self.address, number, delivery, outcome, text[:REASON_LENGTH_MAX])
        self._queues.jobs.add(settle)
        return settle.reply

    def release(self, number: int, delivery: int, delay_s: float) -> Deferred[None]:
        """Give back a message that was got, with a delay."""
        settle = SettleJob(self.address, number, delivery, GIVE_BACK, "", delay_s)
        self._queues.jobs.add(settle)
        return settle.reply

    def renew(self, identity: str, lease_s: float) -> Deferred[float]:
        """Extend the lease of a message; return the granted one."""
        return self._queues.ask_of(
            self.address, lambda turn, known: managing.renew(turn, known, identity, lease_s)
        )

    def watch(self, subscription: NodeSubscription) -> Callable[[], None]:
        """Give a subscription copies of later puts that match; return the function that ends that."""
        return self._queues.watch(self.address, subscription)

    def purge(self, filter: Filter | None) -> Deferred[int]:
        """Purge messages; return their number."""
        return self._queues.ask_of(self.address, lambda turn, known: managing.purge(turn, known, filter))

"""The queues in a database as the node sees them: called and answered on its loop, done by the worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from math import inf
from typing import Any

from tidings.errors import QueueError, QueueNotFound, Refused, TidingsError
from tidings.event import Batch
from tidings.event.wire import array_head
from tidings.exchange import Subscription
from tidings.postgres import managing
from tidings.postgres.catalog import TYPE, Catalog, Known, completed
from tidings.postgres.connection import Link
from tidings.postgres.conninfo import Conninfo
from tidings.postgres.jobs import Ask
from tidings.postgres.putting import Put, RowDone
from tidings.postgres.readers import Hand, Reader
from tidings.postgres.settling import Settle
from tidings.postgres.turn import Turn
from tidings.postgres.worker import Call, Tell, Worker
from tidings.protocol.calls import Answer
from tidings.protocol.messages import UNOPENED
from tidings.protocol.outlets import Outlet
from tidings.protocol.session import Session
from tidings.queues.arguments import Find, Get
from tidings.queues.description import REASON_LENGTH_MAX, Description
from tidings.queues.elsewhere import Done, Way
from tidings.queues.getting import filter_of
from tidings.queues.message import Message, event_bytes
from tidings.queues.waiting import WAITING_MAX

CALL_S = 5.0
"""How long what can't wait may wait for a database that is away."""
SEARCH_S = 2.0
"""How long a search may."""
PUT_BYTES_MAX = 64 << 20
"""Bytes of events that may wait to be put; while the database is away they do."""


class SharedQueues:
    """All queues of one database; an `Elsewhere`. See `open_postgres` for the arguments."""

    types = frozenset({TYPE})

    def __init__(self, conninfo: str, node: str, call: Call, tell: Tell | None = None) -> None:
        self._conninfo = Conninfo(conninfo)
        self._tell = tell
        self._problem: str | None = "it was not reached yet"
        self._is_loaded = False
        self._names: dict[str, Known] = {}  # by name and by id
        self._watchers: dict[int, dict[Subscription, int]] = {}  # and the last number it gets no copy of
        self._getting: set[Getting] = set()
        self._bytes = 0  # of events that are not put yet
        catalog = Catalog(node, lambda come, gone: call(partial(self._changed, come, gone)))
        self._worker = Worker(Link(self._conninfo, node), catalog, call, self._told, self._watched)

    def __repr__(self) -> str:
        return f"<SharedQueues in {self._conninfo.shown}>"

    @property
    def problem(self) -> str | None:
        """Why the database is away; None while it is there."""
        return self._problem

    @property
    def absent(self) -> Sequence[str]:
        """What can't be asked, for whoever has not found what he sought."""
        return () if self._problem is None else (self._conninfo.shown,)

    def close(self) -> None:
        """Give back all that is held, and end the thread; blocks until then, for some seconds at most."""
        self._worker.close()

    def find(self, address: str) -> SharedQueue | None:
        """The queue of this name or id; while the database was never reached, it may have any."""
        if "@" in address or (self._is_loaded and address not in self._names):
            return None
        return SharedQueue(self, address)

    def create(self, wanted: Description, answer: Answer) -> None:
        """Make a queue; answer with its Description."""

        def run(turn: Turn) -> Description:
            known = self._worker.catalog.create(turn, wanted)
            return self._described(turn, [known])[0]

        try:
            completed(wanted)  # what can't be is refused at once
        except TidingsError as error:
            answer(None, error)
        else:
            self.ask(run, answer)

    def delete(self, way: Way, answer: Answer) -> None:
        """Delete a queue with all that is in it."""
        catalog = self._worker.catalog

        def run(turn: Turn) -> None:
            with suppress(QueueNotFound) if turn.is_again else nullcontext():
                catalog.delete(turn, catalog.find(turn, way.address))

        self.ask(run, answer)

    def purge(self, way: Way, where: str, answer: Answer) -> None:
        """Throw away messages; answer with how many they were."""
        try:
            filter = filter_of(where)
        except TidingsError as error:
            answer(None, error)
        else:
            self.ask_of(way.address, lambda turn, known: managing.purge(turn, known, filter), answer)

    def search(self, sought: Find, answer: Callable[[list[Description], Any], None]) -> None:
        """Answer with the descriptions that agree; with none if the database is away."""
        catalog = self._worker.catalog

        def run(turn: Turn) -> list[Description]:
            if sought.name is not None:
                with suppress(QueueNotFound):
                    catalog.find(turn, sought.name)  # another node may have made it just now
            return self._described(turn, managing.agreeing(catalog, sought))

        self._ask(run, lambda found, error: answer([] if error is not None else found, None), SEARCH_S)

    # What the ways need

    def ask(self, run: Callable[[Turn], Any], answer: Answer) -> None:
        """Have something done in a turn; Disconnected if the database is away for too long."""
        self._ask(run, answer, CALL_S)

    def ask_of(self, address: str, run: Callable[[Turn, Known], Any], answer: Answer) -> None:
        """The same of a queue; QueueNotFound if it is not there."""
        self.ask(lambda turn: run(turn, self._worker.catalog.find(turn, address)), answer)

    def _ask(self, run: Callable[[Turn], Any], answer: Answer, wait_s: float | None) -> None:
        deadline = None if wait_s is None else time.monotonic() + wait_s
        self._worker.jobs.add(Ask(run, answer, deadline))

    def _described(self, turn: Turn, queues: list[Known]) -> list[Description]:
        return managing.describe(turn, queues, self._worker.lines.lengths())

    def describe(self, address: str, answer: Answer) -> None:
        """Answer with the description of a queue."""
        self.ask_of(address, lambda turn, known: self._described(turn, [known])[0], answer)

    def put(self, put: Put) -> None:
        """Have events put; refused if too many wait."""
        if self._bytes + put.size > PUT_BYTES_MAX and self._bytes:
            put.fail(Refused("limit", f"{self._bytes} bytes wait to be put into the database"))
            return
        self._bytes += put.size
        left, done = len(put.raws), put.done

        def put_one(row: int, error: TidingsError | None) -> None:
            nonlocal left
            left -= 1
            if not left:
                self._bytes -= put.size
            done(row, error)

        put.done = put_one
        if put.raws:
            self._worker.jobs.add(put)

    def settle(self, settle: Settle) -> None:
        """Have a message settled."""
        self._worker.jobs.add(settle)

    def get(self, getting: Getting) -> None:
        """Let someone wait for what he wants; QueueError if too many do."""
        reader = getting.reader
        if len(self._getting) >= WAITING_MAX:
            raise QueueError(reader.address, f"at most {WAITING_MAX} readers can wait")
        self._getting.add(getting)
        now, wait_s = time.monotonic(), reader.wanted.wait_s
        if wait_s is not None:
            reader.deadline = now + (wait_s or CALL_S)
            reader.due = now + wait_s if wait_s else inf
        self._worker.jobs.add(reader)

    def got(self, getting: Getting) -> None:
        """He waits no longer."""
        self._getting.discard(getting)

    def watch(self, address: str, subscription: Subscription) -> Callable[[], None]:
        """Give a subscription copies of what is put into a queue from now on; what ends that."""
        catalog, watched = self._worker.catalog, self._worker.watched
        is_wanted, key = True, None

        def begin(turn: Turn) -> tuple[int, int]:
            known = catalog.find(turn, address)
            return known.key, watched.begin(turn, known)

        def begun(result: Any, error: TidingsError | None) -> None:
            nonlocal key
            if error is None:
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
                self._ask(lambda turn: watched.end(turn, ended), lambda _result, _error: None, None)

        self._ask(begin, begun, None)
        return end

    # Called on the loop by the worker

    def _told(self, problem: str | None) -> None:
        self._problem = problem
        if self._tell is not None:
            self._tell(problem)

    def _changed(self, come: Sequence[Known], gone: Sequence[Known]) -> None:
        """Queues have come and gone; those that were there before the first time come with it."""
        self._is_loaded = True
        for known in gone:
            for name in (known.name, known.description.id):
                if name in self._names and self._names[name].key == known.key:
                    del self._names[name]
            for subscription in self._watchers.pop(known.key, {}):
                if isinstance(subscription.sink, Outlet):
                    subscription.sink.session.end(subscription.sink.number, "the queue was deleted")
        for known in come:
            self._names[known.name] = self._names[known.description.id] = known

    def _watched(self, queue: int, copies: list[Message]) -> None:
        for message in copies:
            shown = message.shown
            batch = Batch(array_head(1) + event_bytes(shown), message.origin)
            for subscription, last in list(self._watchers.get(queue, {}).items()):
                if message.number > last and subscription.filter.matches(shown):
                    subscription.sink.deliver(batch, (0,), (None,))


class SharedQueue:
    """The way to one queue in a database; a `Way`."""

    def __init__(self, queues: SharedQueues, address: str) -> None:
        self._queues = queues
        self.address = address

    def __repr__(self) -> str:
        return f"<SharedQueue {self.address!r}>"

    def describe(self, answer: Answer) -> None:
        """Answer with the Description; of readers that wait, those of this node are counted."""
        self._queues.describe(self.address, answer)

    def put(self, _session: Session, batch: Batch, done: RowDone) -> None:
        """Put events, in their order; `done` is called with each row when it is committed, or refused.

        Once one is refused, those behind it are too.
        """
        self._queues.put(Put(self.address, batch.raws, batch.origin, done))

    def get(self, wanted: Get, answer: Answer) -> Callable[[], None]:
        """Answer with messages; what cancels it, and gives back what it got."""
        if wanted.transaction:
            answer(None, QueueError(self.address, "a queue in a database can't be in a transaction"))
            return lambda: None
        try:
            getting = Getting(self._queues, self, wanted, answer)
            self._queues.get(getting)
        except TidingsError as error:
            answer(None, error)
            return lambda: None
        return getting.cancel

    def settle(self, number: int, delivery: int, outcome: int, text: str, done: Done) -> None:
        """What becomes of a message that was got."""
        text = text[:REASON_LENGTH_MAX]
        self._queues.settle(Settle(self.address, number, delivery, outcome, text, done))

    def part(self, number: int, _delivery: int, index: int, answer: Answer) -> None:
        """There are no further parts: a body here is as long as one event can be."""
        answer(None, QueueError(self.address, f"message {number} has 0 further parts, and no part {index}"))

    def renew(self, identity: str, lease_s: float, answer: Answer) -> None:
        """Let a message live so long from now on; answer with what was granted."""
        self._queues.ask_of(
            self.address, lambda turn, known: managing.renew(turn, known, identity, lease_s), answer
        )

    def watch(self, subscription: Subscription) -> Callable[[], None]:
        """Give copies of what is put from now on, and matches, to a subscription; what ends that."""
        return self._queues.watch(self.address, subscription)


class Getting:
    """A get that is to be answered, unless it is cancelled, and what it got."""

    def __init__(self, queues: SharedQueues, way: SharedQueue, wanted: Get, answer: Answer) -> None:
        filter = filter_of(wanted.where) if wanted.where else None
        self.reader = Reader(way.address, wanted, filter, self._answered)
        self._queues = queues
        self._way = way
        self._answer = answer
        self._hands: list[Hand] = []

    def _answered(self, result: Any, error: TidingsError | None) -> None:
        self._queues.got(self)
        if error is None and not self.reader.is_copier:
            self._hands = result["messages"]
        if self.reader.is_cancelled:
            self._give_back()
        else:
            self._answer(result, error)

    def cancel(self) -> None:
        """It is not wanted any more: what it got, or will get, goes back as if it had not been."""
        self._queues.got(self)
        self.reader.is_cancelled = True
        self._give_back()

    def _give_back(self) -> None:
        hands, self._hands = self._hands, []
        for number, delivery, *_ in hands:
            self._way.settle(number, delivery, UNOPENED, "", lambda _error: None)

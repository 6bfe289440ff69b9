"""The queues of this node as clients use them: everything is done at once, or in steps.

`put` and `get` are on the hot path: they work on plain calls, and the broker stores what must be stored.

A description of a queue counts the messages that the client who asks may get. A manager of the queue, and a
client that may get all of it, gets the number of all messages. A client that may get some gets the number of
these, found by a search that goes in steps; one that may get none gets 0. Whether the queue is full is
returned to every client that sees it, because a client that puts has to know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tidings.errors import MessageNotHeld, NotAllowed, QueueError, QueueNotFound
from tidings.event import Batch
from tidings.exchange import NodeSubscription
from tidings.filters import Filter
from tidings.protocol.consumer import Consumer
from tidings.protocol.service import IncomingRequest
from tidings.protocol.session import Session
from tidings.queues.arguments import GetRequest, PartRequest, Renew
from tidings.queues.description import TRANSMISSION, Description
from tidings.queues.getting import QueueReaders, both
from tidings.queues.inflight import InFlight, identity
from tidings.queues.manager import QueueManager
from tidings.queues.message import QueuedMessage, check_length, sight
from tidings.queues.queue import MessageQueue
from tidings.queues.schedule import MARK_START
from tidings.queues.serving import AT_ONCE, purge
from tidings.queues.transactions import Transactions
from tidings.steps import Steps

if TYPE_CHECKING:
    from tidings.queues.transactions import OpenTransaction

NOTHING = ~Filter()
"""Filter for a client without the right to get."""


class LocalQueue:
    """A queue of this node; a `Target` of the service, made once for each."""

    def __init__(
        self, manager: QueueManager, readers: QueueReaders, transactions: Transactions, queue: MessageQueue
    ) -> None:
        self.address = queue.name
        self.queue = queue
        self.is_transmission = queue.name.startswith(TRANSMISSION)
        self._manager = manager
        self._broker = manager.broker
        self._readers = readers
        self._transactions = transactions

    def stand_in(self) -> MessageQueue:
        """A transaction puts into the queue itself."""
        return self.queue

    # Messages

    def put(
        self,
        session: Session,
        granted: Filter | None,
        batch: Batch,
        rows: range,
        _counters: Sequence[int],
        put: list[None],
    ) -> None:
        """Put events; `put` gets one more with each, also if another is refused then."""
        queue = self.queue
        is_stored = queue.kind.persistent
        waits = is_stored or self._waits(session)
        is_bound = granted is not None or session.bound is not None
        events = batch.events if batch.is_decoded else None
        is_planned = events is None and batch.raw.find(MARK_START) >= 0
        for row, raw in zip(rows, raws_of(batch, rows), strict=True):
            if is_bound:
                session.check_put(granted, batch, row)
            check_length(raw)
            self._manager.check_size(queue.name)
            queue.check_room_for(raw)
            plan = None
            if is_planned or (events is not None and events[row].header is not None):
                plan = queue.schedule.plan(raw)
            queue.put(raw, batch.origin, undo=waits, plan=plan)
            if not put and is_stored:
                self._broker.accept_stored(session)
            elif not put and waits:
                self._broker.accept(session)
            put.append(None)

    def _waits(self, session: Session) -> bool:
        """Whether what a session does next must wait for what it did before; else it is done for good."""
        assert session.origin is not None
        ledger = self._broker.ledger
        if ledger.is_waiting(session.origin):
            return True
        ledger.needs_no_more(session.origin)
        return False

    def get(
        self,
        asked: IncomingRequest,
        wanted: GetRequest,
        granted: Filter | None,
        transaction: OpenTransaction | None,
    ) -> Any:
        """Take or read messages, now or later; the readers answer."""
        if wanted.action == "take":
            if self.is_transmission or self.queue.kind.is_own:
                problem = "its messages go to another node, each once: they can be read only"
                raise QueueError(self.address, problem)
            if transaction is not None:
                transaction.check_room_for(1)
                wanted = replace(wanted, count=min(wanted.count, transaction.room))
        return self._readers.get(asked, wanted, self.queue, granted, transaction)

    def part(self, session: Session, wanted: PartRequest, granted: Filter | None) -> bytes:
        """A part of a message that the client or one of its transactions holds, or that it may read."""
        number, queue = wanted.number, self.queue
        held = queue.held.get(number)
        if held is not None and held.delivery == wanted.delivery and _is_with(held, session):
            return _part(queue, number, wanted.index)
        if wanted.delivery == 0 and queue.shows(number, granted):
            return _part(queue, number, wanted.index)
        for transaction in self._transactions.of(session):
            part = transaction.part(number, wanted.index)
            if part is not None:
                return part
        raise MessageNotHeld(
            queue.name, f"message {number} is not in flight to this client, nor in the queue"
        )

    def renew(self, _session: Session, wanted: Renew, granted: Filter | None) -> Steps[float]:
        """Let a message on the shelf live longer."""
        queue = self.queue
        if wanted.lease_s and not queue.description.expiry:
            raise QueueError(queue.name, "its messages have no lease: it was made without expiry=True")
        for number in queue.shelf.search(both(Filter("id = :id", id=wanted.id), granted), is_bounded=True):
            if number is None:
                yield
            elif not queue.deadlines.is_expired(number):
                return queue.deadlines.renew(number, wanted.lease_s)
        raise MessageNotHeld(queue.name, f"there is no message {wanted.id}, or it is in flight")

    def watch(self, subscription: NodeSubscription) -> tuple[Callable[[], None], None]:
        """Deliver copies of what is put to a subscription; what ends that."""
        waiting, unindexed = self.queue.waiting, self._broker.exchange.unindexed
        waiting.watch(subscription)
        if waiting.is_unindexed(subscription):
            unindexed.add(subscription, subscription.user or "", subscription.filter)

        def end() -> None:
            waiting.unwatch(subscription)
            unindexed.remove(subscription)

        return end, None

    # The queue as a whole

    def describe(self, session: Session) -> Steps[Description]:
        """Describe the queue, with the messages counted that the client may get."""
        description = yield from described(session, self.queue)
        return replace(description, node=self._broker.name)

    def purge(self, filter: Filter | None) -> Steps[int]:
        """Throw away messages on the shelf; how many."""
        return purge(self.queue, filter)

    def delete(self, address: str) -> None:
        """Delete the queue, or only the alias that it is addressed by."""
        queue = self._manager.delete(address)
        if queue is not None:
            self._manager.begin(self._dismiss(queue))

    def _dismiss(self, queue: MessageQueue) -> Steps[None]:
        """Notify all who wait at a queue that it is there no longer."""
        yield from self._readers.close(queue, QueueNotFound(queue.name, "it was deleted"))
        for count, watcher in enumerate(list(queue.waiting.watching), 1):
            if isinstance(watcher.sink, Consumer):
                watcher.sink.session.subscriptions.end(watcher.sink.number, "the queue was deleted")
            if not count % AT_ONCE:
                yield


def raws_of(batch: Batch, rows: range) -> list[bytes]:
    """The bytes of the events in these rows, which follow each other."""
    if len(rows) == len(batch):
        return batch.raws
    raw, offsets = batch.raw, batch.offsets[rows.start : rows.stop + 1]
    return [raw[start:end] for start, end in pairwise(offsets)]


def _is_with(held: InFlight, session: Session) -> bool:
    """Whether a message is in flight to a client, or to one of its transactions."""
    if isinstance(held.holder, tuple):
        return held.holder == identity(session)
    return held.holder.session is session


def reach(session: Session, address: str) -> Filter | None:
    """Which messages of a queue are counted for a client; None: all."""
    try:
        session.allow("manage", address)
    except NotAllowed:
        try:
            return session.allow("get", address)
        except NotAllowed:
            return NOTHING
    return None


def described(
    session: Session, queue: MessageQueue, description: Description | None = None
) -> Steps[Description]:
    """Return the description of a queue of this node for a client."""
    description = queue.describe() if description is None else description
    granted = reach(session, queue.name)
    if granted is None:
        return description
    messages = 0
    for number in queue.shelf.search(granted, is_bounded=True):
        if number is None:
            yield
        else:
            messages += not queue.deadlines.is_expired(number)
    in_flight = yield from _matching((held.message for held in list(queue.held.values())), granted)
    delayed = yield from _matching(list(queue.schedule.delayed.values()), granted)
    if queue.schedule.groups is not None:
        behind = queue.schedule.groups.behind
        messages += yield from _matching([behind[number] for number in behind], granted)
    counts = {"messages": messages, "in_flight": in_flight, "delayed": delayed, "groups": 0}
    return replace(description, **counts, full=description.is_full)


def _matching(messages: Iterable[QueuedMessage], filter: Filter) -> Steps[int]:
    found = 0
    for count, message in enumerate(messages, 1):
        found += filter.matches(sight(message))
        if not count % AT_ONCE:
            yield
    return found


def _part(queue: MessageQueue, number: int, index: int) -> bytes:
    """Return a further part of the body of a message, counted from 0."""
    parts = queue.parts.of(number)
    if not 0 <= index < len(parts):
        problem = f"message {number} has {len(parts)} further parts, and no part {index}"
        raise QueueError(queue.name, problem)
    return parts[index]

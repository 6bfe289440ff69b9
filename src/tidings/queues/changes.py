"""Changes in clients' numbered streams: puts, settlements and commits.

They are numbered, so each is done once however often it is sent. Work that grows with the input is done in
steps. A frame is counted as received as far as it was done: if its connection ends in between, the client
sends the rest again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from tidings.errors import (
    CodecError,
    Disconnected,
    MessageNotHeld,
    NotAllowed,
    QueueNotFound,
    Refused,
    UserError,
)
from tidings.event import Batch, Origin
from tidings.event.wire import check
from tidings.filters import Filter
from tidings.ids import NUMBER_MAX
from tidings.protocol.messages import DONE, HANDLE, UNOPENED, Commit, Put, Settle
from tidings.protocol.session import Session
from tidings.queues.arguments import ADDRESS_LENGTH_MAX
from tidings.queues.description import DELAY_S_MAX, REASON_LENGTH_MAX, TRANSMISSION
from tidings.queues.getting import QueueReaders
from tidings.queues.inflight import Holding, ReaderKey, identity
from tidings.queues.local import raws_of
from tidings.queues.manager import QueueManager
from tidings.queues.message import QueuedMessage, check_length, completed
from tidings.queues.queue import MessageQueue
from tidings.queues.remote import QueueTarget, RemoteQueue, Targets, pend
from tidings.queues.serving import AT_ONCE
from tidings.queues.transactions import OpenTransaction, Transactions
from tidings.replies import Deferred
from tidings.steps import Steps

FEW = 8
"""Events up to which it is quicker to decode them than to ask what is known of them."""
HANDLES_MAX = 100_000
"""Messages that one frame can settle."""

_NOTHING: dict[int, Holding] = {}

Refusals = list[tuple[int, str]]
"""Counters of what can't be done, with the queue if it is known."""
Awaited = list[tuple[int, Deferred[None]]]
"""Counters of what is done when the reply is there."""


class Changes:
    """Puts, settlements and commits from clients' numbered streams."""

    def __init__(
        self, manager: QueueManager, readers: QueueReaders, transactions: Transactions, targets: Targets
    ) -> None:
        self._manager = manager
        self._broker = manager.broker
        self._in_flight = manager.in_flight
        self._readers = readers
        self._transactions = transactions
        self._targets = targets

    def put(self, session: Session, message: Put, events: bytes) -> Steps[None] | None:
        """Put events, less those that were had before."""
        self._see(session, message.seen)
        batch, counters = read_batch(events, session.origin)
        if len(batch) <= AT_ONCE or self._goes_together(message):
            if len(batch):
                self._put_some(session, message, batch, 0, counters)
            return None
        return self._put_in_steps(session, message, batch, counters)

    def _goes_together(self, message: Put) -> bool:
        """Whether many events are handed on in one: publications, and what goes elsewhere in one batch."""
        return not message.queue or not (message.transaction or self._manager.knows(message.queue))

    def _put_in_steps(
        self, session: Session, message: Put, batch: Batch, counters: Sequence[int]
    ) -> Steps[None]:
        for first in range(0, len(batch), AT_ONCE):
            some = counters[first : first + AT_ONCE]
            if self._put_some(session, message, batch, first, some, counters[first + AT_ONCE :]):
                return
            yield

    def _put_some(
        self,
        session: Session,
        message: Put,
        batch: Batch,
        first: int,
        counters: Sequence[int],
        rest: Sequence[int] = (),
    ) -> bool:
        """Put events from the first row on, less those that were had before; whether one was refused.

        The rest of what came with it is refused then, too.
        """
        had = self._broker.admit(session, counters)
        if had == len(counters):
            return False  # its queue, or its transaction, may be there no longer
        rows = range(first + had, first + len(counters))
        put: list[None] = []  # one for each that was put, as some may be before one is refused
        try:
            if message.transaction:
                self._put_in(self._transactions.find(session, message.transaction), message, batch, rows, put)
            else:
                target, granted = self._target(session, message)
                target.put(session, granted, batch, rows, counters[had:], put)
        except (UserError, Refused) as error:
            if len(rest):
                self._broker.admit(session, rest)
            self._broker.refuse(session, int(counters[had + len(put)]), session.last, error)
            return True
        finally:
            self._broker.count("put", len(put))
        return False

    def _target(self, session: Session, message: Put) -> tuple[QueueTarget, Filter | None]:
        """The queue that something is put into, and what a client may put there."""
        if not 1 <= len(message.queue) <= ADDRESS_LENGTH_MAX:
            raise QueueNotFound(message.queue[:100], "is no name of a queue")
        if message.is_part and not message.transaction:
            raise Refused("protocol", "parts are put in a transaction")
        target, granted = self._targets.found(session, "put", message.queue)
        if target.is_transmission:
            session.allow("manage", target.address)  # others go the way on which what they put is checked
        return target, granted

    def _put_in(
        self, transaction: OpenTransaction, message: Put, batch: Batch, rows: range, put: list[None]
    ) -> None:
        session = transaction.session
        if not message.queue:
            self._manager.check_size("")
            for row in rows:
                if not session.may_publish(batch, row):
                    raise NotAllowed(self._broker.refusal(session, batch, row))
            transaction.publish(batch if len(rows) == len(batch) else batch.take(rows))
            return
        target, granted = self._target(session, message)
        queue = target.stand_in()
        self._manager.check_size(queue.name)
        messages: list[QueuedMessage] = []
        for row, raw in zip(rows, raws_of(batch, rows), strict=True):
            if not message.is_part:
                session.check_put(granted, batch, row)
            check_length(raw)
            if message.is_part:
                transaction.put_part(queue, batch[row].body or b"")
            else:
                queue.schedule.plan(raw)  # raises what must not be raised by the commit
                number = self._manager.numbers.next(self._broker.wall)
                messages.append(QueuedMessage(number, completed(queue.description, raw), batch.origin))
                transaction.put(queue, messages[-1])
            put.append(None)
        self._readers.look_again(queue, transaction, messages)

    def settle(self, session: Session, message: Settle, _events: bytes) -> Steps[None] | None:
        """Do with messages what their holders say."""
        self._see(session, message.seen)
        if (
            not 0 < len(message.handles) <= HANDLES_MAX * HANDLE.size
            or len(message.handles) % HANDLE.size
            or not DONE <= message.outcome <= UNOPENED
        ):
            raise CodecError("$.Settle", "has no handles, or no outcome")
        if message.delay_s is not None and not 0 <= message.delay_s <= DELAY_S_MAX:
            raise CodecError("$.Settle.delay_s", f"{message.delay_s} is not within 0..{DELAY_S_MAX:.0f}")
        handles = list(HANDLE.iter_unpack(message.handles))
        counters = _numbers(message.first, len(handles))
        if len(handles) <= AT_ONCE:
            self._conclude(session, *self._settle_rows(session, message, handles, counters))
            return None
        return self._settle_in_steps(session, message, handles, counters)

    def _settle_in_steps(
        self, session: Session, message: Settle, handles: list[tuple[int, int]], counters: range
    ) -> Steps[None]:
        assert session.origin is not None
        origin, ledger = session.origin, self._broker.ledger
        refused: Refusals = []
        awaited: Awaited = []
        # Nothing is accepted before it is known what is refused.
        ledger.pend(origin, counters[0], counters[-1])
        try:
            for first in range(0, len(handles), AT_ONCE):
                rows = slice(first, first + AT_ONCE)
                some = self._settle_rows(session, message, handles[rows], counters[rows])
                refused += some[0]
                awaited += some[1]
                yield
        finally:
            ledger.settle(origin, counters[0])  # before the same counter is pending for itself
            self._conclude(session, refused, awaited)

    def _settle_rows(
        self, session: Session, message: Settle, handles: list[tuple[int, int]], counters: range
    ) -> tuple[Refusals, Awaited]:
        """Say what becomes of messages; of which that can't be, and for which it is done later."""
        client, is_stored, returned = identity(session), False, self._in_flight.returned
        outcome, text, delay_s = message.outcome, message.text[:REASON_LENGTH_MAX], message.delay_s
        refused: Refusals = []
        awaited: Awaited = []
        had = self._broker.admit(session, counters)
        for place in range(had, len(handles)):
            number, delivery = handles[place]
            held = self._held(session, number, delivery, client)
            if held is None:
                if not self._is_forgotten(session, counters[place], number):
                    refused.append((counters[place], self._name_around(session, number, delivery)))
                continue
            if returned:
                returned.settled(number, client)
            is_stored = is_stored or held.is_stored
            reply = held.settle(outcome, text, delay_s)
            if reply is not None:
                self._in_flight.await_settled(number, reply)
                awaited.append((counters[place], reply))
        if is_stored:
            # Not counted on disk: after a crash the message is there no longer, which says the same.
            session.accept_mark = self._broker.promise  # what is unopened may leave nothing to store
        if message.outcome == DONE:
            self._broker.count("acknowledged", len(handles) - had - len(refused))
        return refused, awaited

    def _is_forgotten(self, session: Session, counter: int, number: int) -> bool:
        """Refuse a settlement of a backend's message that the backend may have had before."""
        if not self._in_flight.is_forgotten(number):
            return False
        # Not that it is not held: a client takes that, of a restarted node, for having been settled.
        problem = "this node was restarted, or the queue's node has not confirmed the message's settlement"
        self._broker.refuse(session, counter, counter, Disconnected(problem))
        return True

    def _conclude(self, session: Session, refused: Refusals, awaited: Awaited) -> None:
        for counter, reply in awaited:
            pend(session, counter, reply)
        for first, last, name in _stretches(refused):
            problem = "the message is not in flight to this client, or not any more"
            self._broker.refuse(session, first, last, MessageNotHeld(name, problem))

    def _held(self, session: Session, number: int, delivery: int, client: ReaderKey) -> Holding | None:
        """Return a message in flight, in this delivery; also one that may have been before a restart.

        To which client it was in flight then is not known any more: any that could get it may say so.
        """
        held = self._in_flight.holders.get(client, _NOTHING).get(number)
        if held is None:
            queue = self._manager.doubtful.get(number)
            if queue is not None and _may_get(session, queue, number):
                held = queue.recovery.hold_again(number, delivery, client)
        return held if held is not None and held.delivery == delivery and not held.is_over else None

    def _name_around(self, session: Session, number: int, delivery: int) -> str:
        """The name of the queue of a message, where that is known without looking for it, and may be."""
        held = self._in_flight.held.get(number)
        queue = self._manager.doubtful.get(number) if held is None else None
        name = held.address if held is not None else queue.name if queue is not None else ""
        if name and session.principal.sees(name):
            return name
        return self._in_flight.returned.find(number, delivery, identity(session))

    def commit(self, session: Session, message: Commit, _events: bytes) -> Steps[None] | None:
        """Let all of a transaction be done."""
        self._see(session, message.seen)
        if self._broker.admit(session, _numbers(message.counter, 1)):
            return None
        try:
            put = self._transactions.carry_out(session, message.transaction)
            if put is not None:
                self._follow(session, message.counter, *put)
        except (UserError, Refused) as error:
            self._broker.refuse(session, message.counter, message.counter, error)
            return self._transactions.forget(session, message.transaction)
        return None

    def _follow(self, session: Session, counter: int, queue: MessageQueue, message: QueuedMessage) -> None:
        """A transaction has put one message and done nothing else: it is done when that is where it goes."""
        if not queue.name.startswith(TRANSMISSION):
            return
        try:
            target = self._targets.resolve(queue.name.removeprefix(TRANSMISSION))
        except QueueNotFound:
            return
        if isinstance(target, RemoteQueue):
            reply = target.ref.follow(session, message)
            if reply is not None:
                pend(session, counter, reply, is_stored=True)

    def _see(self, session: Session, counter: int) -> None:
        assert session.origin is not None
        self._broker.ledger.see(session.origin, counter)


def read_batch(events: bytes, origin: Origin | None) -> tuple[Batch, Sequence[int]]:
    """Events that came, with their counters; CodecError if they are not all events."""
    batch = Batch(events, origin)
    if len(batch) <= FEW:
        return batch, [event.counter for event in batch.events]
    checked = check(events)
    return Batch(events, origin, checked.offsets), checked.counters


def _may_get(session: Session, queue: MessageQueue, number: int) -> bool:
    """Whether a client may get a message that is on the shelf; nobody takes from a transmission queue."""
    if queue.name.startswith(TRANSMISSION) or queue.kind.is_own:
        return False
    try:
        return queue.shows(number, session.allow("get", queue.name))
    except NotAllowed:
        return False


def _stretches(numbers: Refusals) -> Iterator[tuple[int, int, str]]:
    """First and last of each stretch of numbers that follow each other with the same name, and that."""
    for (_, name), stretch in groupby(enumerate(numbers), key=lambda one: (one[1][0] - one[0], one[1][1])):
        found = [number for _, (number, _) in stretch]
        yield found[0], found[-1], name


def _numbers(first: int, count: int) -> range:
    """So many counters from the first one on; CodecError if these can't be."""
    if not 0 < first <= NUMBER_MAX - count:
        raise CodecError("$.first", f"{first} is not within 1..{NUMBER_MAX}")
    return range(first, first + count)

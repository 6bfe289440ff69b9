"""The queues of backends as clients use them: everything is replied to later.

What is put or settled is counted when it comes, and *pending* until it is done where the queue is: only then
is it accepted, and nothing behind it before. So the client that has put gets the backend's error.

What a client may get is said by its own node, as a filter that is added to what it asks for. Where nothing
can be added, as a message is named and not described, a client that may get some messages only is refused.

`Targets` finds a queue of either kind by its address.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tidings.errors import (
    Disconnected,
    MessageNotHeld,
    NotAllowed,
    QueueError,
    QueueNotFound,
    TidingsError,
)
from tidings.event import Batch
from tidings.exchange import NodeSubscription
from tidings.filters import Filter
from tidings.ids import Origin
from tidings.protocol.access import Action, not_allowed
from tidings.protocol.service import LATER, IncomingRequest
from tidings.protocol.session import Session
from tidings.queues.arguments import GetRequest, PartRequest, Renew
from tidings.queues.backend import DispatchAgain, GetReply, QueueBackend, QueueRef
from tidings.queues.description import Description
from tidings.queues.getting import QueueReaders, note_requests, wanted_filter
from tidings.queues.inflight import InFlightTable, RemoteInFlight, identity
from tidings.queues.local import LocalQueue, reach
from tidings.queues.manager import QueueManager
from tidings.queues.queue import MessageQueue
from tidings.replies import Deferred, failed

if TYPE_CHECKING:
    from tidings.queues.transactions import OpenTransaction, Transactions


class RemoteQueue:
    """A queue of a backend; a `Target` of the service, made for each request."""

    queue = None
    is_transmission = False

    def __init__(
        self, backend: QueueBackend, ref: QueueRef, readers: QueueReaders, in_flight: InFlightTable
    ) -> None:
        self.address = ref.address
        self.ref = ref
        self._backend = backend
        self._readers = readers
        self._in_flight = in_flight

    def stand_in(self) -> MessageQueue:
        """The queue of this node that a transaction puts into instead."""
        queue = self.ref.stand_in()
        if queue is None:
            problem = "no transaction can put into it, and no body in parts: it is elsewhere"
            raise QueueError(self.address, problem)
        return queue

    # Messages

    def put(
        self,
        session: Session,
        granted: Filter | None,
        batch: Batch,
        rows: range,
        counters: Sequence[int],
        put: list[None],
    ) -> None:
        """Put events as far as the client may, which have these counters; NotAllowed if one is left."""
        refusal: NotAllowed | None = None
        try:
            for row in rows if granted is not None or session.bound is not None else ():
                session.check_put(granted, batch, row)
                put.append(None)
        except NotAllowed as error:
            refusal = error
            rows = rows[: len(put)]
        put.extend([None] * (len(rows) - len(put)))
        if rows:
            replies = self.ref.put(session, batch.take(rows) if len(rows) < len(batch) else batch)
            for counter, reply in zip(counters[: len(rows)], replies, strict=True):
                pend(session, int(counter), reply, is_stored=self.ref.stores_puts)
        if refusal is not None:
            raise refusal

    def get(
        self,
        asked: IncomingRequest,
        wanted: GetRequest,
        granted: Filter | None,
        transaction: OpenTransaction | None,
    ) -> Any:
        """Take or read messages; answer when there are some."""
        if transaction is not None:
            problem = "it is elsewhere: a transaction can put into it, and neither get nor read there"
            raise QueueError(self.address, problem)
        self._readers.check(asked)
        as_asked, filter = wanted, wanted_filter(wanted.where)
        if granted is not None:
            wanted = replace(wanted, where=str(granted if filter is None else filter & granted))
        again = self._in_flight.take_again(asked.session, asked.number, self.address)
        held = [one for one in again if isinstance(one, RemoteInFlight)]
        if held:
            asked.answer(GetReply([one.row for one in held], held_s=held[0].lot.held_s), 0)
        else:
            reply = self._get(asked.session, wanted)
            self._readers.await_reply(asked, reply)
            reply.then(partial(self._got, asked, wanted), partial(self._failed, asked, as_asked))
        return LATER

    def _get(self, session: Session, wanted: GetRequest) -> Deferred[GetReply]:
        if not wanted.together or wanted.action == "read":
            return self.ref.get(wanted)
        system, epoch = identity(session)
        return self.ref.get_together(wanted, f"{system} {epoch}")

    def _got(self, asked: IncomingRequest, wanted: GetRequest, handed: GetReply) -> None:
        """Messages have come, or none did in time."""
        session = asked.session
        if wanted.action == "take":
            taken = self._in_flight.take(self.ref, session, asked.number, handed)
            handed = replace(handed, messages=[held.row for held in taken])
        senders = ((one.raw, Origin(one.system, one.epoch, one.source)) for one in handed.messages)
        note_requests(session, senders)
        session.broker.count("handed_out", len(handed.messages))
        asked.answer(handed, 0)

    def _failed(self, asked: IncomingRequest, wanted: GetRequest, error: TidingsError) -> None:
        if isinstance(error, DispatchAgain):
            self._readers.dispatch(asked, replace(wanted, wait_s=error.wait_s))
        else:
            asked.fail(error)

    def part(self, session: Session, wanted: PartRequest, granted: Filter | None) -> Deferred[bytes]:
        """A part of a message that the client holds, or has read.

        The backend knows this node only, which holds messages for all its clients.
        """
        if not wanted.delivery:
            self._check_all(session, granted)
            return self.ref.part(wanted.number, 0, wanted.index)
        held = self._in_flight.of(session).get(wanted.number)
        if not isinstance(held, RemoteInFlight) or held.delivery != wanted.delivery:
            problem = f"message {wanted.number} is not in flight to this client, nor in the queue"
            raise MessageNotHeld(self.address, problem)
        return self.ref.part(held.theirs, wanted.delivery, wanted.index)

    def renew(self, session: Session, wanted: Renew, granted: Filter | None) -> Deferred[float]:
        """Let a message live longer."""
        self._check_all(session, granted)
        return self.ref.renew(wanted.id, wanted.lease_s)

    def _check_all(self, session: Session, granted: Filter | None) -> None:
        if granted is not None:
            user = session.principal.user
            problem = f"{user!r} may get only what matches {granted} from queue {self.address!r}"
            raise NotAllowed(f"{problem}, which can't be checked for this message here; get it instead")

    def watch(self, subscription: NodeSubscription) -> tuple[Callable[[], None], Deferred[Any]]:
        """Deliver copies of what is put to a subscription; what ends that, and whether it has begun."""
        try:
            end = self.ref.watch(subscription)
        except Disconnected as error:
            return (lambda: None), failed(error)
        # It is replied to behind the watch: then copies are made of whatever is put next.
        return end, self.ref.describe()

    # The queue as a whole

    def describe(self, session: Session) -> Deferred[Description]:
        """Describe the queue, as far as the client may know of it."""
        return self.ref.describe().map(partial(described_elsewhere, session, self.address))

    def purge(self, filter: Filter | None) -> Deferred[int]:
        """Throw away messages; how many."""
        return self.ref.purge(filter)

    def delete(self, _address: str) -> Deferred[None]:
        """Delete the queue."""
        return self._backend.delete(self.ref)


def pend(session: Session, counter: int, reply: Deferred[None], is_stored: bool = False) -> None:
    """Accept what a client did with this counter when the reply is there, or refuse it by its error.

    `is_stored`: it will be done after a crash of this node too.
    """
    broker, origin = session.broker, session.origin
    assert origin is not None
    broker.ledger.pend(origin, counter, is_stored=is_stored)

    def done(_none: None) -> None:
        broker.ledger.settle(origin, counter)

    def refuse(error: TidingsError) -> None:
        broker.refuse(session, counter, counter, error)
        broker.ledger.settle(origin, counter)

    reply.then(done, refuse)


def described_elsewhere(session: Session, address: str, description: Description) -> Description:
    """Describe a queue elsewhere with counts of 0, as what a client may get can't be counted here."""
    if reach(session, address) is None:
        return description
    return replace(description, messages=0, in_flight=0, delayed=0, groups=0, full=description.is_full)


QueueTarget = LocalQueue | RemoteQueue
"""A queue as clients use it. Both do the same; what takes time is returned as steps, or as a reply."""


class Targets:
    """The queues of this node first, then those of its backends, in their order."""

    def __init__(self, manager: QueueManager, readers: QueueReaders, transactions: Transactions) -> None:
        self._manager = manager
        self._readers = readers
        self._transactions = transactions

    def found(self, session: Session, action: Action, address: str) -> tuple[QueueTarget, Filter | None]:
        """A queue, and for which messages a client may do this there; NotAllowed if for none.

        A client that may do nothing with a queue does not learn whether there is one.
        """
        try:
            target = self.resolve(address)
        except QueueNotFound:
            session.allow(action, address)
            raise
        try:
            return target, session.allow(action, target.address)
        except NotAllowed:
            raise not_allowed(session.principal, action, address) from None  # by no other name

    def resolve(self, address: str) -> QueueTarget:
        """The queue of an address; QueueNotFound if nobody knows of it."""
        queue = self._manager.get(address)
        if queue is not None:
            return queue.target or self._local(queue)
        try:
            return self._local(self._manager.find(address))
        except QueueNotFound as error:
            missing = error
        for backend in self._manager.backends:
            ref = backend.resolve(address)
            if ref is not None:
                return RemoteQueue(backend, ref, self._readers, self._manager.in_flight)
        raise missing

    def _local(self, queue: MessageQueue) -> LocalQueue:
        if queue.target is None:
            queue.target = LocalQueue(self._manager, self._readers, self._transactions, queue)
        return queue.target

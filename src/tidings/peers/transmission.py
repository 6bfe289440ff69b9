"""Transmission queues: messages for queues of other nodes, stored until those have them.

There is one for each queue elsewhere, an ordinary queue of this node named `to:jobs@kitchen`; what goes to
everybody at another node is in `to:@upstream`. A *forwarder* empties it (`forwarder.py`). A queue of such a
name may also be created by an administrator, say with a limit; it must keep the order of arrival.

While the other node is connected, a put returns that node's answer, so an error there is an error here.
Otherwise, and when it goes away meanwhile, a put is safe once it is stored here, and a message that the other
node refuses then becomes a dead letter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tidings.errors import QueueError, Refused, TidingsError, UserError
from tidings.event import Batch
from tidings.exchange import NodeSubscription
from tidings.filters import Filter
from tidings.protocol.messages import Failure, error_of
from tidings.protocol.service import Service
from tidings.protocol.session import Session
from tidings.queues.description import REASON_LENGTH_MAX, TRANSMISSION, Description
from tidings.queues.inflight import InFlight
from tidings.queues.manager import BoundQueue, QueueManager
from tidings.queues.message import QueuedMessage, check_length
from tidings.queues.queue import MessageQueue
from tidings.replies import Deferred, failed, resolved
from tidings.store.interface import Operation, RecordKind

if TYPE_CHECKING:
    from tidings.peers.forwarder import Forwarder

UPSTREAM = "upstream"
"""What the node is called to which everything that is published here goes on."""


class TransmissionRecord(Struct, frozen=True, omit_defaults=True):
    """The stored record of a transmission queue, beside that of every queue."""

    sweep: int = 0  # messages up to this number go the newest first
    node: str = ""  # the id of the other node, once it was there


TRANSMISSIONS: RecordKind[tuple[str], TransmissionRecord] = RecordKind("transmission", TransmissionRecord)


def _key(queue: MessageQueue) -> tuple[str]:
    return (str(queue.key),)


class AwaitedReply(NamedTuple):
    """The client that gets another node's answer to a message."""

    session: Session
    reply: Deferred[None]


class OutgoingMessage:
    """One transmission queue, and what becomes of its messages."""

    def __init__(self, manager: QueueManager, queue: MessageQueue, record: TransmissionRecord) -> None:
        address = queue.name.removeprefix(TRANSMISSION)
        self.target, _, self.peer = address.rpartition("@")
        self.queue = queue
        self.record = record
        self.manager = manager
        self.broker = manager.broker
        self.forwarder: Forwarder | None = None
        self.error = ""  # what the last attempt to reach the other node has failed with
        self.waiting: dict[int, AwaitedReply] = {}  # by the numbers of their messages

    @property
    def is_attended(self) -> bool:
        """Whether the other node is there, and takes what is put."""
        return self.forwarder is not None and self.forwarder.is_attended

    @property
    def is_deleted(self) -> bool:
        """Whether the queue is there no longer."""
        return self.manager.get(self.queue.name) is not self.queue

    @property
    def sweep(self) -> int:
        """Messages up to this number go the newest first; 0 if none do."""
        return self.record.sweep

    def begin_sweep(self) -> int:
        """Have all messages that are there go the newest first; the mark of the commit that says so."""
        queue, sweep = self.queue, self.manager.numbers.next(self.broker.wall)
        queue.pass_over(sweep)
        return self._note(replace(self.record, sweep=sweep), queue.record())

    @property
    def node(self) -> str:
        """The id of the other node, once it was there."""
        return self.record.node

    def meet(self, node: str) -> None:
        """The other node is there, and has this id."""
        if node != self.node:
            self._note(replace(self.record, node=node))

    def _note(self, record: TransmissionRecord, *beside: Operation) -> int:
        self.record = record
        is_kept = self.queue.description.keep
        return self.manager.keep([TRANSMISSIONS.set(_key(self.queue), record), *beside] if is_kept else [])

    # What becomes of messages

    def settle_held(self, held: InFlight, failure: Failure | None) -> None:
        """The other node has a message that is under way, or would not have it."""
        number = held.message.number
        if self.queue.held.get(number) is not held:
            self.answer(number, None)  # thrown away meanwhile, with all that was in the queue
        elif failure is None:
            self.queue.hand_on(held)
            self.answer(number, None)
        elif (waiting := self.waiting.get(number)) is not None and not waiting.session.is_closed:
            self.queue.hand_on(held)
            self.broker.accept(waiting.session)  # not before the message is gone from here
            self.answer(number, error_of(failure))
        else:
            self.queue.reject(held, failure.text[:REASON_LENGTH_MAX])
            self.answer(number, None)

    def settle(self, number: int, failure: Failure | None) -> None:
        """Settle a message on the shelf, which was under way before."""
        held = self.queue.take(number, (self.broker.node, self.queue.key))
        self.settle_held(held, failure)

    def answer(self, number: int, error: TidingsError | None) -> None:
        """Answer the client that has put a message."""
        waiting = self.waiting.pop(number, None)
        if waiting is not None:
            waiting.reply.take(None, error)

    def answer_all(self) -> None:
        """The other node is away: what was put is safe here."""
        for number in list(self.waiting):
            self.answer(number, None)

    def failed(self) -> None:
        """Commits were not made: nobody waits for what was not put."""
        for number in [one for one in self.waiting if not self.queue.has(one)]:
            self.answer(number, None)
        if self.forwarder is not None:
            self.forwarder.failed()

    def status(self) -> dict[str, Any]:
        """Return its state in short."""
        return {
            "queue": self.target,
            "peer": self.peer,
            "waiting": self.queue.size,
            "connected": self.is_attended,
            "error": self.error,
        }


class Transmission(Service):
    """All transmission queues of a node; a service of the broker, behind that of the queues.

    From the first of them on there is another, the pump; a node without any does nothing for them.
    """

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager
        self._broker = manager.broker
        self._outgoing: dict[str, OutgoingMessage] = {}
        self._pump: Pump | None = None
        self.begin: Callable[[OutgoingMessage], None] = lambda _outgoing: None
        """Called, at the end of each tick, with each queue that has messages and no forwarder."""
        self.is_there: Callable[[str], bool] = lambda _peer: False
        """Whether a peer is there, so that its answer can be waited for."""
        manager.on_new = self._look_at
        known = TRANSMISSIONS.known(self._broker.state)
        for queue in manager:
            self._look_at(queue, known.pop(_key(queue), None))
        for key in known:  # of queues that were deleted where nobody heard of it
            self._broker.store(TRANSMISSIONS.drop(key))

    def __iter__(self) -> Iterator[OutgoingMessage]:
        return iter(list(self._outgoing.values()))

    # Putting

    def outgoing(self, peer: str, queue: str) -> OutgoingMessage:
        """Return the queue in which what is for a queue of a peer waits, made if there is none."""
        name = f"{TRANSMISSION}{queue}@{peer}"
        if self._manager.get(name) is None:
            wanted = Description(name=name, expiry=True, redelivery_s=None, deliveries_max=None)
            self._manager.create(wanted)
        if name not in self._outgoing:
            raise QueueError(name, "it does not keep the order of arrival: nothing can be forwarded")
        return self._outgoing[name]

    def _look_at(self, queue: MessageQueue, record: TransmissionRecord | None = None) -> None:
        """See whether a queue is for another node; the record is that of one that was there before."""
        if queue.name.startswith(TRANSMISSION) and "@" in queue.name and _keeps_order(queue):
            if queue.name in self._outgoing:
                self.drop(self._outgoing[queue.name])  # it was deleted, and is made anew
            self._outgoing[queue.name] = OutgoingMessage(self._manager, queue, record or TransmissionRecord())
            if self._pump is None:
                self._pump = Pump(self)
                self._broker.add(self._pump)

    def put(self, session: Session, peer: str, queue: str, batch: Batch) -> Sequence[Deferred[None]]:
        """Put events; a reply for each, when the peer has it, or it is safe here.

        What is safe here is so with this tick's commit, for which the session's acceptance waits.
        """
        try:
            outgoing = self.outgoing(peer, queue)
        except UserError as error:
            return [failed(error)] * len(batch)
        return [self._put_one(session, outgoing, raw, batch) for raw in batch.raws]

    def _put_one(
        self, session: Session, outgoing: OutgoingMessage, raw: bytes, batch: Batch
    ) -> Deferred[None]:
        try:
            message = self._put(session, outgoing.queue, raw, batch)
        except (UserError, Refused) as error:
            return failed(error)
        return self._await(session, outgoing, message.number) or resolved(None)

    def follow(self, session: Session, peer: str, queue: str, number: int) -> Deferred[None] | None:
        """Return the peer's answer to a message that was just put; None if it is safe as it is."""
        return self._await(session, self.outgoing(peer, queue), number)

    def _await(self, session: Session, outgoing: OutgoingMessage, number: int) -> Deferred[None] | None:
        """Return the peer's answer to a message; None if it is away."""
        if not (outgoing.is_attended or self.is_there(outgoing.peer)):
            return None
        reply: Deferred[None] = Deferred()
        outgoing.waiting[number] = AwaitedReply(session, reply)
        return reply

    def _put(self, session: Session, queue: MessageQueue, raw: bytes, batch: Batch) -> QueuedMessage:
        check_length(raw)
        self._manager.check_size(queue.name)
        queue.check_room_for(raw)
        if queue.kind.persistent:
            self._broker.accept_stored(session)
        else:
            self._broker.accept(session)
        return queue.put(raw, batch.origin)

    def bind(self, filter: str) -> OutgoingMessage:
        """Have all publications that match go to the upstream, for everybody there."""
        outgoing = self.outgoing(UPSTREAM, "")
        queue, exchange = outgoing.queue, self._broker.exchange
        if queue.binding is not None:
            exchange.unsubscribe(queue.binding)
        sink = BoundQueue(self._manager, queue, leads_to=lambda: outgoing.node)
        queue.binding = NodeSubscription(Filter(filter), sink)
        queue.binding.is_local = True  # what other nodes take in is for them to send on
        exchange.subscribe(queue.binding)
        if queue.description.bind != filter:
            queue.description = replace(queue.description, bind=filter)
            self._manager.keep([queue.record()] if queue.description.keep else [])
        return outgoing

    def unbind(self) -> None:
        """Let no more go there than what waits already."""
        queue = self._manager.get(f"{TRANSMISSION}@{UPSTREAM}")
        if queue is not None and queue.binding is not None:
            self._broker.exchange.unsubscribe(queue.binding)
            queue.binding = None
            queue.description = replace(queue.description, bind=None)
            self._manager.keep([queue.record()] if queue.description.keep else [])

    def drop(self, outgoing: OutgoingMessage) -> None:
        """A queue was deleted."""
        del self._outgoing[outgoing.queue.name]
        if outgoing.queue.description.keep:
            self._broker.store(TRANSMISSIONS.drop(_key(outgoing.queue)))
        outgoing.answer_all()
        if outgoing.forwarder is not None:
            outgoing.forwarder.close()

    def status(self) -> dict[str, Any]:
        """Return the state of the transmission queues."""
        states = [outgoing.status() for outgoing in self]
        upstream = next((one for one in states if not one["queue"]), None)
        return {"forwarding": [one for one in states if one["queue"]], "upstream": upstream}


class Pump(Service):
    """Lets the forwarders of a node go on when something has changed; a service of the broker."""

    def __init__(self, transmission: Transmission) -> None:
        self._transmission = transmission

    def finish_tick(self) -> None:
        """Let forwarders go on, and have some begun."""
        self._go_on()
        for outgoing in self._transmission:
            if outgoing.is_deleted:
                self._transmission.drop(outgoing)
            elif outgoing.forwarder is None and outgoing.queue.size:
                self._transmission.begin(outgoing)

    def durable(self, mark: int) -> None:  # noqa: ARG002
        """More is on disk, and may be sent."""
        self._go_on()

    def _go_on(self) -> None:
        for outgoing in self._transmission:
            if outgoing.forwarder is not None:
                outgoing.forwarder.pump()

    def failed(self, lost: list[Operation]) -> list[Operation]:
        """Commits were not made; what of them is to be stored nonetheless is for others to say."""
        for outgoing in self._transmission:
            outgoing.failed()
        return lost


def _keeps_order(queue: MessageQueue) -> bool:
    return not queue.description.priorities and queue.kind.name in ("sqlite", "volatile")

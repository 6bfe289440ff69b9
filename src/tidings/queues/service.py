"""What clients may do with queues: puts, settlements and commits as they come, and the requests.

Each names a queue by its address. The service finds it, among the queues of this node first and then at the
backends (`backend.py`), checks what the client may do there, and has the rest done where it is: `local.py`,
`remote.py`.

Everything that changes messages comes in the numbered stream, so it is done once however often it is sent.
Whatever grows with what was sent, or with what there is, is done in steps. Of one frame so much is counted
as had as was done: if its connection ends in between, the client sends the rest again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Protocol

from msgspec.structs import replace

from tidings.errors import (
    CodecError,
    Disconnected,
    MessageNotHeld,
    NotAllowed,
    QueueAmbiguous,
    QueueNotFound,
    Refused,
    UserError,
)
from tidings.event import Batch, Origin
from tidings.event.check import check
from tidings.exchange import Subscription
from tidings.filters import Filter
from tidings.ids import NUMBER_MAX
from tidings.protocol.access import Action, not_allowed
from tidings.protocol.messages import DONE, HANDLE, UNOPENED, Commit, Put, Settle
from tidings.protocol.service import Asked, Ending
from tidings.protocol.session import Session
from tidings.queues import arguments
from tidings.queues.counting import described, described_elsewhere
from tidings.queues.description import REASON_LENGTH_MAX, TRANSMISSION, Description
from tidings.queues.getting import Readers, check_possible, filter_of
from tidings.queues.held import Holding, Identity
from tidings.queues.inflight import identity
from tidings.queues.letters import DEAD
from tidings.queues.local import LocalQueue, raws_of
from tidings.queues.manager import QueueManager
from tidings.queues.message import Message, check_length, completed
from tidings.queues.queue import Queue
from tidings.queues.remote import RemoteGets, RemoteQueue, pend
from tidings.queues.serving import AT_ONCE
from tidings.queues.transaction import Transaction
from tidings.queues.transactions import Transactions
from tidings.replies import Deferred, gathered
from tidings.steps import Steps
from tidings.store.interface import Operation

FEW = 8
"""Events up to which it is quicker to decode them than to ask what is known of them."""
HANDLES_MAX = 100_000
"""Messages whose fate can be told in one frame."""
STATUS_QUEUES_MAX = 10_000
"""Queues that are told one by one in what a node says of itself."""

_NOTHING: dict[int, Holding] = {}

Operations = dict[str, tuple[Any, Callable[[Asked, Any], Any]]]


class Target(Protocol):
    """One queue, wherever it is, as clients use it; `granted` is what may be put or got, None for all.

    What can't be returned at once is returned as steps or as a reply that comes later.
    """

    address: str

    @property
    def queue(self) -> Queue | None:
        """The queue, if it is one of this node."""

    @property
    def is_transmission(self) -> bool:
        """Whether messages wait in it for a queue elsewhere."""

    def stand_in(self) -> Queue:
        """The queue of this node that a transaction puts into; QueueError if it can't."""

    def put(
        self,
        session: Session,
        granted: Filter | None,
        batch: Batch,
        rows: range,
        counters: Sequence[int],
        put: list[None],
        /,
    ) -> None:
        """Put events, which are counted; `put` gets one more with each, also if another is refused then."""

    def get(
        self,
        asked: Asked,
        wanted: arguments.Get,
        granted: Filter | None,
        transaction: Transaction | None,
        /,
    ) -> Any:
        """Take or read messages."""

    def part(self, session: Session, wanted: arguments.Part, granted: Filter | None, /) -> Any:
        """Return a part of the body of a message."""

    def renew(self, session: Session, wanted: arguments.Renew, granted: Filter | None, /) -> Any:
        """Let a message live longer."""

    def watch(self, subscription: Subscription, /) -> Ending:
        """Deliver copies of what is put."""

    def describe(self, session: Session, /) -> Any:
        """Describe the queue."""

    def purge(self, filter: Filter | None, /) -> Any:
        """Throw away messages."""

    def delete(self, address: str, /) -> Any:
        """Delete the queue."""


class QueueService:
    """See the module; a `Service` of the broker, which sends watches of queues here."""

    def __init__(self, manager: QueueManager) -> None:
        self.manager = manager
        self._broker = manager.broker
        self._in_flight = manager.in_flight
        self._readers = Readers(manager)
        self._gets = RemoteGets(manager.in_flight)
        self._transactions = Transactions(manager, self._readers)
        self._broker.watch = self.watch

    @property
    def frames(self) -> dict[type[Any], Callable[[Session, Any, bytes], Steps[None] | None]]:
        """What clients say in the numbered stream."""
        return {Put: self._put, Settle: self._settle, Commit: self._commit}

    @property
    def operations(self) -> Operations:
        """What clients ask for."""
        return {
            "queue.create": (Description, self._create),
            "queue.delete": (arguments.Named, self._delete),
            "queue.describe": (arguments.Named, self._describe),
            "queue.find": (arguments.Find, self._find),
            "queue.alias": (arguments.Alias, self._alias),
            "queue.purge": (arguments.Purge, self._purge),
            "queue.replay": (arguments.Replay, self._replay),
            "queue.renew": (arguments.Renew, self._renew),
            "get": (arguments.Get, self._get),
            "get.cancel": (arguments.Cancel, self._cancel),
            "part": (arguments.Part, self._part),
            "begin": (arguments.Begin, self._transactions.begin),
            "rollback": (arguments.Rollback, self._transactions.roll_back),
        }

    # Clients

    def greeted(self, session: Session) -> bool:
        """A client is there, maybe again: what it holds it goes on holding, if it comes in time."""
        return self._in_flight.greeted(session)

    def parted(self, session: Session, is_clean: bool) -> None:
        """A session has ended: its readers wait no longer, its transactions are rolled back."""
        self._readers.parted(session)
        self._gets.parted(session)
        self._transactions.parted(session)
        self._in_flight.parted(session, is_clean)

    # Which queue is meant

    def _found(self, session: Session, action: Action, address: str) -> tuple[Target, Filter | None]:
        """A queue, and for which messages a client may do this there; NotAllowed if for none.

        Whoever may do nothing with a queue is not told whether there is one.
        """
        try:
            target = self._resolve(address)
        except QueueNotFound:
            session.allow(action, address)
            raise
        try:
            return target, session.allow(action, target.address)
        except NotAllowed:
            raise not_allowed(session.permit, action, address) from None  # by no other name

    def _resolve(self, address: str) -> Target:
        """The queue of an address; QueueNotFound if nobody knows of it."""
        queue = self.manager.get(address)
        if queue is not None:
            return queue.target or self._target_of(queue)
        try:
            return self._target_of(self.manager.find(address))
        except QueueNotFound as error:
            missing = error
        for backend in self.manager.backends:
            ref = backend.resolve(address)
            if ref is not None:
                return RemoteQueue(backend, ref, self._gets)
        raise missing

    def _target_of(self, queue: Queue) -> LocalQueue:
        if queue.target is None:
            queue.target = LocalQueue(self.manager, self._readers, self._transactions, queue)
        return queue.target

    # The numbered stream

    def _put(self, session: Session, message: Put, events: bytes) -> Steps[None] | None:
        self._see(session, message.seen)
        batch, counters = read_batch(events, session.origin)
        if len(batch) <= AT_ONCE or self._goes_together(message):
            if len(batch):
                self._put_some(session, message, batch, 0, counters)
            return None
        return self._put_in_steps(session, message, batch, counters)

    def _goes_together(self, message: Put) -> bool:
        """Whether many events are handed on in one: publications, and what goes elsewhere in one batch."""
        return not message.queue or not (message.transaction or self.manager.knows(message.queue))

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
                target.put(session, granted, batch, rows, counters, put)
        except (UserError, Refused) as error:
            if len(rest):
                self._broker.admit(session, rest)
            self._broker.refuse(session, int(counters[had + len(put)]), session.last, error)
            return True
        finally:
            self._broker.count("put", len(put))
        return False

    def _target(self, session: Session, message: Put) -> tuple[Target, Filter | None]:
        """The queue that something is put into, and what a client may put there."""
        if not 1 <= len(message.queue) <= arguments.ADDRESS_LENGTH_MAX:
            raise QueueNotFound(message.queue[:100], "is no name of a queue")
        if message.is_part and not message.transaction:
            raise Refused("protocol", "parts are put in a transaction")
        target, granted = self._found(session, "put", message.queue)
        if target.is_transmission:
            session.allow("manage", target.address)  # others go the way on which what they put is checked
        return target, granted

    def _put_in(
        self, transaction: Transaction, message: Put, batch: Batch, rows: range, put: list[None]
    ) -> None:
        session = transaction.session
        if not message.queue:
            self.manager.check_size("")
            for row in rows:
                if not session.may_publish(batch, row):
                    raise NotAllowed(self._broker.refusal(session, batch, row))
            transaction.publish(batch if len(rows) == len(batch) else batch.take(rows))
            return
        target, granted = self._target(session, message)
        queue = target.stand_in()
        self.manager.check_size(queue.name)
        messages: list[Message] = []
        for row, raw in zip(rows, raws_of(batch, rows), strict=True):
            if not message.is_part:
                session.check_put(granted, batch, row)
            check_length(raw)
            if message.is_part:
                transaction.put_part(queue, batch[row].body or b"")
            else:
                number = self.manager.numbers.next(self._broker.wall)
                messages.append(Message(number, completed(queue.description, raw), batch.origin))
                transaction.put(queue, messages[-1])
            put.append(None)
        self._readers.look_again(queue, transaction, messages)

    def _settle(self, session: Session, message: Settle, _events: bytes) -> Steps[None] | None:
        self._see(session, message.seen)
        if (
            not 0 < len(message.handles) <= HANDLES_MAX * HANDLE.size
            or len(message.handles) % HANDLE.size
            or not DONE <= message.outcome <= UNOPENED
        ):
            raise CodecError("$.Settle", "has no handles, or no outcome")
        handles = list(HANDLE.iter_unpack(message.handles))
        counters = _numbers(message.first, len(handles))
        if len(handles) <= AT_ONCE:
            self._settle_some(session, message, handles, counters)
            return None
        return self._settle_in_steps(session, message, handles, counters)

    def _settle_in_steps(
        self, session: Session, message: Settle, handles: list[tuple[int, int]], counters: range
    ) -> Steps[None]:
        assert session.origin is not None
        origin, ledger = session.origin, self._broker.ledger
        refused: list[tuple[int, str]] = []
        ledger.pend(origin, counters[0])  # nothing is accepted before it is known what is refused
        try:
            for first in range(0, len(handles), AT_ONCE):
                rows = slice(first, first + AT_ONCE)
                refused += self._settle_rows(session, message, handles[rows], counters[rows])
                yield
        finally:
            self._refuse_held(session, refused)
            ledger.settle(origin, counters[0])

    def _settle_some(
        self, session: Session, message: Settle, handles: list[tuple[int, int]], counters: range
    ) -> None:
        self._refuse_held(session, self._settle_rows(session, message, handles, counters))

    def _settle_rows(
        self, session: Session, message: Settle, handles: list[tuple[int, int]], counters: range
    ) -> list[tuple[int, str]]:
        """Say what becomes of messages; the counters of those that can't be, and the queue if it is known."""
        client, is_stored = identity(session), False
        outcome, text = message.outcome, message.text[:REASON_LENGTH_MAX]
        refused: list[tuple[int, str]] = []
        had = self._broker.admit(session, counters)
        for place in range(had, len(handles)):
            number, delivery = handles[place]
            held = self._held(session, number, delivery, client)
            if held is None:
                if not self._is_forgotten(session, counters[place], number):
                    refused.append((counters[place], self._name_around(session, number)))
                continue
            is_stored = is_stored or held.is_stored
            reply = held.settle(outcome, text)
            if reply is not None:
                pend(session, counters[place], reply)
        if is_stored:
            # Not counted on disk: after a crash the message is there no longer, which says the same.
            session.accept_mark = self._broker.promise  # what is unopened may leave nothing to store
        if message.outcome == DONE:
            self._broker.count("acknowledged", len(handles) - had - len(refused))
        return refused

    def _is_forgotten(self, session: Session, counter: int, number: int) -> bool:
        """Refuse what is said of a message that was held elsewhere before the node was started."""
        if not self._in_flight.is_forgotten(number):
            return False
        # Not that it is not held: a client takes that, of a restarted node, for having been settled.
        problem = "the node was started anew: whether it was said what became of the message is not known"
        self._broker.refuse(session, counter, counter, Disconnected(problem))
        return True

    def _refuse_held(self, session: Session, refused: list[tuple[int, str]]) -> None:
        for first, last, name in _stretches(refused):
            problem = "the message is not in this client's hands, or not any more"
            self._broker.refuse(session, first, last, MessageNotHeld(name, problem))

    def _held(self, session: Session, number: int, delivery: int, client: Identity) -> Holding | None:
        """A message in a client's hands, in this delivery; also one that may have been before a restart.

        Whose hands it was in then is not known any more: anyone may say so who could get the message.
        """
        held = self._in_flight.holders.get(client, _NOTHING).get(number)
        if held is None:
            queue = self.manager.doubtful.get(number)
            if queue is not None and _may_get(session, queue, number):
                held = queue.hold_again(number, delivery, client)
        return held if held is not None and held.delivery == delivery and not held.is_over else None

    def _name_around(self, session: Session, number: int) -> str:
        """The name of the queue of a message, where that is known without looking for it, and may be."""
        held = self._in_flight.held.get(number)
        queue = self.manager.doubtful.get(number) if held is None else None
        name = held.address if held is not None else queue.name if queue is not None else ""
        return name if name and session.permit.sees(name) else ""

    def _commit(self, session: Session, message: Commit, _events: bytes) -> Steps[None] | None:
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

    def _follow(self, session: Session, counter: int, queue: Queue, message: Message) -> None:
        """A transaction has put one message and done nothing else: it is done when that is where it goes."""
        if not queue.name.startswith(TRANSMISSION):
            return
        try:
            target = self._resolve(queue.name.removeprefix(TRANSMISSION))
        except QueueNotFound:
            return
        if isinstance(target, RemoteQueue):
            reply = target.ref.follow(session, message)
            if reply is not None:
                pend(session, counter, reply)

    def _see(self, session: Session, counter: int) -> None:
        assert session.origin is not None
        self._broker.ledger.see(session.origin, counter)

    # Queues

    def _create(self, asked: Asked, wanted: Description) -> Any:
        asked.session.allow("manage", wanted.name)
        for backend in self.manager.backends:
            if wanted.type and wanted.type in backend.types:
                return backend.create(wanted)
        wanted = replace(wanted, maker="")
        if wanted.bind is not None:
            wanted = self._bound(asked.session, wanted, Filter(wanted.bind))
        return self._located(self.manager.create(wanted).describe())

    def _bound(self, session: Session, wanted: Description, filter: Filter) -> Description:
        """A description of a bound queue with whose rights it has; NotAllowed if nothing would be got."""
        reach = session.narrow("subscribe", filter)
        narrowed = str(reach)
        known = self.manager.get(wanted.name)
        if known is None:
            self._broker.exchange.unindexed.check(session.bound or "", reach)
        if known is not None and not known.description.maker and known.description.bind == narrowed:
            return replace(wanted, bind=narrowed)  # as such queues were made before
        return replace(wanted, bind=str(filter), maker=session.permit.user)

    def _located(self, description: Description) -> Description:
        """A description of a queue of this node, with the name of the node."""
        return replace(description, node=self._broker.name)

    def _delete(self, asked: Asked, unwanted: arguments.Named) -> Any:
        target, _ = self._found(asked.session, "manage", unwanted.queue)
        return target.delete(unwanted.queue)

    def _purge(self, asked: Asked, unwanted: arguments.Purge) -> Any:
        target, _ = self._found(asked.session, "manage", unwanted.queue)
        return target.purge(filter_of(unwanted.where) if unwanted.where else None)

    def _alias(self, asked: Asked, wanted: arguments.Alias) -> Description:
        asked.session.allow("manage", wanted.name)
        target, _ = self._found(asked.session, "manage", wanted.target)
        if target.queue is None:
            raise NotAllowed(f"queue {target.address!r} is elsewhere: its names are given there")
        return self._located(self.manager.alias(wanted.name, wanted.target).describe())

    def _replay(self, asked: Asked, wanted: arguments.Replay) -> Steps[int]:
        """Whoever puts letters back must manage them, and be allowed to put whatever was in that queue."""
        asked.session.allow("manage", DEAD)
        if wanted.queue is not None and self._resolve(wanted.queue).queue is None:
            problem = f"queue {wanted.queue!r} is elsewhere: dead letters are put back where they lie"
            raise NotAllowed(problem)

        def check(queue: Queue) -> None:
            if asked.session.allow("put", queue.name) is not None:
                raise not_allowed(asked.session.permit, "put", queue.name)

        filter = filter_of(wanted.where) if wanted.where else None
        return self.manager.letters.replay(filter, wanted.queue, check)

    # Finding

    def _describe(self, asked: Asked, named: arguments.Named) -> Any:
        address = named.queue
        try:
            target = self._resolve(address)
        except QueueNotFound:
            if "@" in address or not self.manager.backends:
                raise
            return self._search(arguments.Find(name=address)).map(partial(self._choose, asked, address))
        if not asked.session.permit.sees(target.address):
            raise QueueNotFound(address, "there is no such queue")
        return target.describe(asked.session)

    def _choose(self, asked: Asked, name: str, found: list[Description]) -> Description:
        """The one queue of this name that was found elsewhere."""
        seen = {(one.name, one.node): one for one in self._seen(asked.session, found)}
        if not seen:
            raise QueueNotFound(name, f"there is no such queue{self._absent(asked.session, name)}")
        if len(seen) > 1:
            listed = ", ".join(sorted(address_of(one) for one in seen.values()))
            raise QueueAmbiguous(name, f"several nodes have one: {listed}")
        (one,) = seen.values()
        return one

    def _absent(self, session: Session, name: str) -> str:
        """Which backends could not be asked, for whoever may use what is there."""
        places = (one for backend in self.manager.backends for one in backend.absent)
        absent = sorted(place for place in places if session.permit.sees(f"{name}@{place}"))
        return f" (away: {', '.join(absent)})" if absent else ""

    def _find(self, asked: Asked, sought: arguments.Find) -> Steps[Any]:
        terms, session = sought.terms, asked.session  # before others are asked
        here: list[Description] = []
        if sought.scope != "remote":
            for one in (yield from self.manager.search(terms)):
                queue = self.manager.get(one.alias_of or one.name)
                if queue is not None and session.permit.sees(queue.name):
                    here.append(self._located((yield from described(session, queue, one))))
        if sought.scope == "local":
            return here
        return self._search(sought).map(lambda found: here + self._seen(session, found))

    def _search(self, sought: arguments.Find) -> Deferred[list[Description]]:
        """Search at all backends at the same time."""
        asked = gathered([backend.search(sought) for backend in self.manager.backends])
        return asked.map(lambda lists: [one for found in lists for one in found])

    def _seen(self, session: Session, found: list[Description]) -> list[Description]:
        """Those of backends' queues that a client may see, as it may see them."""
        seen = [one for one in found if session.permit.sees(address_of(one))]
        return [described_elsewhere(session, address_of(one), one) for one in seen]

    # Messages

    def _get(self, asked: Asked, wanted: arguments.Get) -> Any:
        number = wanted.transaction
        transaction = self._transactions.find(asked.session, number) if number else None
        target, granted = self._found(asked.session, "get", wanted.queue)
        return target.get(asked, wanted, granted, transaction)

    def _cancel(self, asked: Asked, unwanted: arguments.Cancel) -> Steps[None]:
        self._gets.cancel(asked.session, unwanted.number)
        yield from self._readers.cancel(asked, unwanted)
        yield from self._transactions.cancel(asked, unwanted)

    def _part(self, asked: Asked, wanted: arguments.Part) -> Any:
        target, granted = self._found(asked.session, "get", wanted.queue)
        return target.part(asked.session, wanted, granted)

    def _renew(self, asked: Asked, wanted: arguments.Renew) -> Any:
        target, granted = self._found(asked.session, "get", wanted.queue)
        return target.renew(asked.session, wanted, granted)

    def watch(self, session: Session, name: str, subscription: Subscription) -> Ending:
        """Tell a subscription of what is put into a queue, as far as it may be got; what ends that."""
        target, granted = self._found(session, "get", name)
        check_possible(subscription.filter)
        if granted is not None:
            subscription.filter &= granted
        return target.watch(subscription)

    def review(self) -> None:
        """The rules may have changed."""
        self.manager.review()

    def status(self) -> dict[str, Any]:
        """How the queues stand; of very many, the ones that were made first."""
        queues = self.manager.queues(STATUS_QUEUES_MAX)
        return {
            "queues": [queue.status() for queue in queues],
            "queues_left_out": len(self.manager) - len(queues),
            "held_elsewhere": self._in_flight.elsewhere,
        }

    # Ticks and time

    def finish_tick(self) -> None:
        """Tell readers what they have got."""
        self._readers.finish_tick()
        if self._broker.promise <= self._broker.mark_durable:
            self.manager.quiet()

    def durable(self, mark: int) -> None:
        """Everything up to this mark is on disk."""
        self.manager.durable(mark)

    def failed(self, lost: list[Operation]) -> list[Operation]:
        """These could not be stored: what clients do again is undone, the rest is to be stored."""
        return self.manager.failed(lost)


def read_batch(events: bytes, origin: Origin | None) -> tuple[Batch, Sequence[int]]:
    """Events that came, with their counters; CodecError if they are not all events."""
    batch = Batch(events, origin)
    if len(batch) <= FEW:
        return batch, [event.counter for event in batch.events]
    checked = check(events)
    return Batch(events, origin, checked.offsets), checked.counters


def address_of(description: Description) -> str:
    """By what address a queue is found again."""
    return f"{description.name}@{description.node}" if description.node else description.name


def _may_get(session: Session, queue: Queue, number: int) -> bool:
    """Whether a client may get a message that is on the shelf; nobody takes from a transmission queue."""
    if queue.name.startswith(TRANSMISSION):
        return False
    try:
        return queue.shows(number, session.allow("get", queue.name))
    except NotAllowed:
        return False


def _stretches(numbers: list[tuple[int, str]]) -> Iterator[tuple[int, int, str]]:
    """First and last of each stretch of numbers that follow each other with the same name, and that."""
    for (_, name), stretch in groupby(enumerate(numbers), key=lambda one: (one[1][0] - one[0], one[1][1])):
        found = [number for _, (number, _) in stretch]
        yield found[0], found[-1], name


def _numbers(first: int, count: int) -> range:
    """So many counters from the first one on; CodecError if these can't be."""
    if not 0 < first <= NUMBER_MAX - count:
        raise CodecError("$.first", f"{first} is not within 1..{NUMBER_MAX}")
    return range(first, first + count)

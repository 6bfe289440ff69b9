"""What clients may do with queues: puts, settlements and commits as they come, and the requests.

Everything that changes messages comes in the numbered stream, so it is done once however often it is sent.
What is in the hands of a client stays there while its connection is replaced by another, for RESUME_S; then,
or when the client says goodbye, it goes back.

Whatever grows with what was sent, or with what there is, is done in steps. Of one frame so much is counted
as had as was done: if its connection ends in between, the client sends the rest again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise
from typing import Any

from msgspec.structs import replace

from tidings.errors import (
    CodecError,
    MessageNotHeld,
    NotAllowed,
    QueueError,
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
from tidings.protocol.messages import DONE, GIVE_BACK, HANDLE, REJECT, UNOPENED, Commit, Put, Settle
from tidings.protocol.outlets import Outlet
from tidings.protocol.service import Asked
from tidings.protocol.session import Session
from tidings.queues import arguments
from tidings.queues.counting import described
from tidings.queues.description import REASON_LENGTH_MAX, TRANSMISSION, Description
from tidings.queues.elsewhere import Others
from tidings.queues.getting import Readers, both, check_possible, filter_of, identity
from tidings.queues.held import Held, Identity
from tidings.queues.letters import DEAD
from tidings.queues.manager import QueueManager
from tidings.queues.message import Message, check_length, completed
from tidings.queues.queue import Queue
from tidings.queues.serving import AT_ONCE
from tidings.queues.transaction import Transaction
from tidings.queues.transactions import Transactions
from tidings.steps import Steps
from tidings.store.interface import Operation
from tidings.timers import Alarm

FEW = 8
"""Events up to which it is quicker to decode them than to ask what is known of them."""
HANDLES_MAX = 100_000
"""Messages whose fate can be told in one frame."""
STATUS_QUEUES_MAX = 10_000
"""Queues that are told one by one in what a node says of itself."""
RESUME_S = 1.0
"""How long a client whose connection was lost may take to come back before others get what it held."""

_NOTHING: dict[int, Held] = {}

Operations = dict[str, tuple[Any, Callable[[Asked, Any], Any]]]


class QueueService:
    """See the module; a `Service` of the broker."""

    def __init__(self, manager: QueueManager) -> None:
        self.manager = manager
        self._broker = manager.broker
        self._readers = Readers(manager)
        # More than one session, if a HELLO comes late on a connection that the client has given up.
        self._present: dict[Identity, set[Session]] = {}
        self._missed: dict[Identity, Alarm] = {}  # who was lost, until it comes back or is given up
        self._transactions = Transactions(manager, self._readers)
        self.others: Others | None = None  # who knows of queues elsewhere, and what is held there

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
        client = identity(session)
        is_in_time = client in self._present or client in self._missed
        self._present.setdefault(client, set()).add(session)
        self.manager.timers.cancel(self._missed.pop(client, None))
        self._readers.greeted(session)
        return is_in_time

    def parted(self, session: Session, is_clean: bool) -> None:
        """A session has ended: its readers wait no longer, its transactions are rolled back."""
        self._readers.parted(session)
        self._transactions.parted(session)
        client = identity(session)
        sessions = self._present.get(client, set())
        sessions.discard(session)
        if not sessions:
            self._present.pop(client, None)
        if is_clean:
            self._take_back(client, "its reader has left", self._broker.now)
        elif not sessions and client in self.manager.holders:
            at = self._broker.now + RESUME_S
            self._missed[client] = self.manager.timers.at(
                at, partial(self._take_back, client, "its reader was lost")
            )

    def _take_back(self, client: Identity, reason: str, _now: float) -> None:
        """Take back all that a client holds that has gone; from now on it holds nothing of that."""
        self._missed.pop(client, None)
        hands = self.manager.holders.pop(client, None)
        if hands is not None:
            self.manager.begin(self._taken_back(list(hands.values()), reason))

    def _taken_back(self, hands: list[Held], reason: str) -> Steps[None]:
        """Take back messages, one after the other.

        What came with one request is dealt with one by one, so of that only the first was delivered for sure.
        """
        counted: set[int] = set()
        for count, held in enumerate(hands, 1):
            if held.queue.held.get(held.message.number) is held:
                held.queue.take_back(held, held.request not in counted, reason)
            counted.add(held.request)
            if not count % AT_ONCE:
                yield

    # The numbered stream

    def _put(self, session: Session, message: Put, events: bytes) -> Steps[None] | None:
        self._see(session, message.seen)
        batch, counters = read_batch(events, session.origin)
        if not message.queue or len(batch) <= AT_ONCE:  # publications are handed on together
            if len(batch):
                self._put_some(session, message, batch, 0, counters)
            return None
        return self._put_in_steps(session, message, batch, counters)

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
                self._put_at_once(session, *self._target(session, message), batch, rows, put)
        except (UserError, Refused) as error:
            if len(rest):
                self._broker.admit(session, rest)
            self._broker.refuse(session, int(counters[had + len(put)]), session.last, error)
            return True
        finally:
            self._broker.count("put", len(put))
        return False

    def _target(self, session: Session, message: Put) -> tuple[Queue, Filter | None]:
        """The queue that something is put into, and what a client may put there.

        In a transaction that may be one in which messages wait for a queue elsewhere.
        """
        if not 1 <= len(message.queue) <= arguments.ADDRESS_LENGTH_MAX:
            raise QueueNotFound(message.queue[:100], "is no name of a queue")
        if message.is_part and not message.transaction:
            raise Refused("protocol", "parts are put in a transaction")
        if message.transaction and self.others is not None:
            stand_in = self.others.stand_in(session, message.queue)
            if stand_in is not None:
                return stand_in
        queue, granted = self._found(session, "put", message.queue)
        if queue.name.startswith(TRANSMISSION):
            session.allow("manage", queue.name)  # others go the way on which what they put is checked
        return queue, granted

    def _found(self, session: Session, action: Action, address: str) -> tuple[Queue, Filter | None]:
        """A queue, and for which messages a client may do this there; NotAllowed if for none.

        Whoever may do nothing with a queue is not told whether there is one.
        """
        try:
            queue = self.manager.find(address)
        except QueueNotFound:
            session.allow(action, address)
            raise
        try:
            return queue, session.allow(action, queue.name)
        except NotAllowed:
            raise not_allowed(session.permit, action, address) from None  # by no other name

    def _put_at_once(
        self,
        session: Session,
        queue: Queue,
        granted: Filter | None,
        batch: Batch,
        rows: range,
        put: list[None],
    ) -> None:
        is_stored = queue.kind.persistent
        waits = is_stored or self._waits(session)
        is_bound = granted is not None or session.bound is not None
        for row, raw in zip(rows, raws_of(batch, rows), strict=True):
            if is_bound:
                session.check_put(granted, batch, row)
            check_length(raw)
            self.manager.check_size(queue.name)
            queue.check_room()
            queue.put(raw, batch.origin, undo=waits)
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
        queue, granted = self._target(session, message)
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
        refused: list[tuple[int, str]] = []
        had = self._broker.admit(session, counters)
        for place in range(had, len(handles)):
            number, delivery = handles[place]
            held = self._held(session, number, delivery, client)
            if held is None:
                if not self._conclude_elsewhere(session, counters[place], handles[place], message):
                    refused.append((counters[place], self._name_around(session, number)))
                continue
            self._conclude(held, message.outcome, message.text)
            is_stored = is_stored or held.queue.kind.persistent
        if is_stored:
            # Not counted on disk: after a crash the message is there no longer, which says the same.
            session.accept_mark = self._broker.promise  # what is unopened may leave nothing to store
        if message.outcome == DONE:
            self._broker.count("acknowledged", len(handles) - had - len(refused))
        return refused

    def _refuse_held(self, session: Session, refused: list[tuple[int, str]]) -> None:
        for first, last, name in _stretches(refused):
            problem = "the message is not in this client's hands, or not any more"
            self._broker.refuse(session, first, last, MessageNotHeld(name, problem))

    def _held(self, session: Session, number: int, delivery: int, client: Identity) -> Held | None:
        """A message in a client's hands, in this delivery; also one that may have been before a restart.

        Whose hands it was in then is not known any more: anyone may say so who could get the message.
        """
        held = self.manager.holders.get(client, _NOTHING).get(number)
        if held is None:
            queue = self.manager.doubtful.get(number)
            if queue is not None and _may_get(session, queue, number):
                held = queue.hold_again(number, delivery, client)
        is_meant = held is not None and held.delivery == delivery and held.queue.held.get(number) is held
        return held if is_meant else None

    def _name_around(self, session: Session, number: int) -> str:
        """The name of the queue of a message, where that is known without looking for it, and may be."""
        held = self.manager.held.get(number)
        queue = self.manager.doubtful.get(number) if held is None else held.queue
        return queue.name if queue is not None and session.permit.sees(queue.name) else ""

    def _conclude(self, held: Held, outcome: int, text: str) -> None:
        if outcome == DONE:
            held.queue.finish(held)
        elif outcome == REJECT:
            held.queue.reject(held, text[:REASON_LENGTH_MAX])
        else:
            held.queue.give_back(held, counts=outcome == GIVE_BACK, reason=text[:REASON_LENGTH_MAX])

    def _conclude_elsewhere(
        self, session: Session, counter: int, handle: tuple[int, int], message: Settle
    ) -> bool:
        """The same of a message that is held elsewhere; whether it is."""
        if self.others is None:
            return False
        text = message.text[:REASON_LENGTH_MAX]
        return self.others.conclude(session, counter, *handle, message.outcome, text)

    def _commit(self, session: Session, message: Commit, _events: bytes) -> Steps[None] | None:
        self._see(session, message.seen)
        if self._broker.admit(session, _numbers(message.counter, 1)):
            return None
        try:
            put = self._transactions.carry_out(session, message.transaction)
            if put is not None and self.others is not None:
                self.others.committed(session, message.counter, *put)
        except (UserError, Refused) as error:
            self._broker.refuse(session, message.counter, message.counter, error)
            return self._transactions.forget(session, message.transaction)
        return None

    def _see(self, session: Session, counter: int) -> None:
        assert session.origin is not None
        self._broker.ledger.see(session.origin, counter)

    # Requests

    def _create(self, asked: Asked, wanted: Description) -> Description:
        asked.session.allow("manage", wanted.name)
        wanted = replace(wanted, maker="")
        if wanted.bind is not None:
            wanted = self._bound(asked.session, wanted, Filter(wanted.bind))
        return self.manager.create(wanted).describe()

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

    def _delete(self, asked: Asked, unwanted: arguments.Named) -> None:
        self._found(asked.session, "manage", unwanted.queue)
        queue = self.manager.delete(unwanted.queue)
        if queue is not None:
            self.manager.begin(self._dismiss(queue))

    def _dismiss(self, queue: Queue) -> Steps[None]:
        """Tell all who wait at a queue that it is there no longer."""
        yield from self._readers.close(queue, QueueNotFound(queue.name, "it was deleted"))
        for count, watcher in enumerate(queue.waiting.all_watchers(), 1):
            if isinstance(watcher.sink, Outlet):
                watcher.sink.session.end(watcher.sink.number, "the queue was deleted")
            if not count % AT_ONCE:
                yield

    def _describe(self, asked: Asked, named: arguments.Named) -> Steps[Description]:
        return described(asked.session, self._seen(asked.session, named.queue))

    def _seen(self, session: Session, address: str) -> Queue:
        """A queue with which a client may do anything; for others there is none."""
        queue = self.manager.find(address)
        if not session.permit.sees(queue.name):
            raise QueueNotFound(address, "there is no such queue")
        return queue

    def _find(self, asked: Asked, sought: arguments.Find) -> Steps[list[Description]]:
        found = yield from self.manager.search(sought.terms)
        told: list[Description] = []
        for one in found:
            queue = self.manager.get(one.alias_of or one.name)
            if queue is not None and asked.session.permit.sees(queue.name):
                told.append((yield from described(asked.session, queue, one)))
        return told

    def _alias(self, asked: Asked, wanted: arguments.Alias) -> Description:
        asked.session.allow("manage", wanted.name)
        self._found(asked.session, "manage", wanted.target)
        return self.manager.alias(wanted.name, wanted.target).describe()

    def _purge(self, asked: Asked, unwanted: arguments.Purge) -> Steps[int]:
        queue, _ = self._found(asked.session, "manage", unwanted.queue)
        return queue.purge(filter_of(unwanted.where) if unwanted.where else None)

    def _replay(self, asked: Asked, wanted: arguments.Replay) -> Steps[int]:
        """Whoever puts letters back must manage them, and be allowed to put whatever was in that queue."""
        asked.session.allow("manage", DEAD)

        def check(queue: Queue) -> None:
            if asked.session.allow("put", queue.name) is not None:
                raise not_allowed(asked.session.permit, "put", queue.name)

        filter = filter_of(wanted.where) if wanted.where else None
        return self.manager.letters.replay(filter, wanted.queue, check)

    def _renew(self, asked: Asked, wanted: arguments.Renew) -> Steps[float]:
        queue, granted = self._found(asked.session, "get", wanted.queue)
        if wanted.lease_s and not queue.description.expiry:
            raise QueueError(queue.name, "its messages have no lease: it was made without expiry=True")
        for number in queue.shelf.search(both(Filter("id = :id", id=wanted.id), granted), is_bounded=True):
            if number is None:
                yield
            elif not queue.is_expired(number):
                return queue.renew(number, wanted.lease_s)
        raise MessageNotHeld(queue.name, f"there is no message {wanted.id}, or it is in someone's hands")

    def _get(self, asked: Asked, wanted: arguments.Get) -> Any:
        number = wanted.transaction
        transaction = self._transactions.find(asked.session, number) if number else None
        queue, granted = self._found(asked.session, "get", wanted.queue)
        if wanted.action == "take" and queue.name.startswith(TRANSMISSION):
            raise QueueError(queue.name, "its messages go to another node, each once: they can be read only")
        if transaction is not None and wanted.action == "take":
            transaction.check_room_for(1)
            wanted = replace(wanted, count=min(wanted.count, transaction.room))
        return self._readers.get(asked, wanted, queue, granted, transaction)

    def _cancel(self, asked: Asked, unwanted: arguments.Cancel) -> Steps[None]:
        yield from self._readers.cancel(asked, unwanted)
        yield from self._transactions.cancel(asked, unwanted)

    def _part(self, asked: Asked, wanted: arguments.Part) -> bytes:
        number, session = wanted.number, asked.session
        queue, granted = self._found(session, "get", wanted.queue)
        held = queue.held.get(number)
        if held is not None and held.delivery == wanted.delivery and _is_with(held, session):
            return queue.part(number, wanted.index)
        if wanted.delivery == 0 and queue.shows(number, granted):
            return queue.part(number, wanted.index)
        for transaction in self._transactions.of(session):
            part = transaction.part(number, wanted.index)
            if part is not None:
                return part
        raise MessageNotHeld(queue.name, f"message {number} is not in this client's hands, nor in the queue")

    def watch(self, session: Session, name: str, subscription: Subscription) -> Callable[[], None]:
        """Tell a subscription of what is put into a queue, as far as it may be got; what ends that."""
        queue, granted = self._found(session, "get", name)
        check_possible(subscription.filter)
        if granted is not None:
            subscription.filter &= granted
        waiting = queue.waiting
        waiting.watch(subscription)
        unindexed = self._broker.exchange.unindexed
        if waiting.is_unindexed(subscription):
            unindexed.add(subscription, subscription.user or "", subscription.filter)

        def end() -> None:
            waiting.unwatch(subscription)
            unindexed.remove(subscription)

        return end

    def review(self) -> None:
        """The rules may have changed."""
        self.manager.review()

    def status(self) -> dict[str, Any]:
        """How the queues stand; of very many, the ones that were made first."""
        queues = self.manager.queues(STATUS_QUEUES_MAX)
        left_out = len(self.manager) - len(queues)
        return {"queues": [queue.status() for queue in queues], "queues_left_out": left_out}

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


def raws_of(batch: Batch, rows: range) -> list[bytes]:
    """The bytes of the events in these rows, which follow each other."""
    if len(rows) == len(batch):
        return batch.raws
    raw, offsets = batch.raw, batch.offsets[rows.start : rows.stop + 1]
    return [raw[start:end] for start, end in pairwise(offsets)]


def _may_get(session: Session, queue: Queue, number: int) -> bool:
    """Whether a client may get a message that is on the shelf; nobody takes from a transmission queue."""
    if queue.name.startswith(TRANSMISSION):
        return False
    try:
        return queue.shows(number, session.allow("get", queue.name))
    except NotAllowed:
        return False


def _is_with(held: Held, session: Session) -> bool:
    """Whether a message is in the hands of a client, or of one of its transactions."""
    if isinstance(held.holder, tuple):
        return held.holder == identity(session)
    return held.holder.session is session


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

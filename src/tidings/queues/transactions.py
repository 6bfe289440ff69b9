"""Transactions: puts, takes, readings and publications that all happen at once, or not at all.

What one has put it sees itself at once, and others when it commits. What it has taken is gone for others,
and is where it was if it is rolled back. What it has read others may read, but not take, until it ends.

A transaction belongs to a connection: it ends with that, and is rolled back, unless it was committed. One
that is open for too long is rolled back too, so what it holds is never lost to others for good.

A commit is one step, or it would be seen half done; so a transaction has at most MESSAGES_MAX messages. What
is given back, and what was read and is free again, is dealt with in steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tidings.errors import QueueNotFound, Refused, TransactionLost
from tidings.event import Batch
from tidings.event.wire import check
from tidings.matching import Shelf
from tidings.protocol.service import IncomingRequest
from tidings.queues.arguments import Begin, Cancel, Rollback
from tidings.queues.inflight import give_back
from tidings.queues.message import BYTES_EACH, QueuedMessage, sight
from tidings.queues.serving import AT_ONCE
from tidings.steps import Steps
from tidings.timers import Alarm

if TYPE_CHECKING:
    from tidings.protocol.session import Session
    from tidings.queues.getting import QueueReaders
    from tidings.queues.inflight import InFlight
    from tidings.queues.manager import QueueManager
    from tidings.queues.queue import MessageQueue
    from tidings.queues.waiting import QueueReader

TRANSACTION_S = 30.0
TRANSACTION_S_MAX = 300.0
"""How long a transaction may be open, unless it asks for another time; and if it does."""
TRANSACTIONS_MAX = 1_000
"""Transactions that one client may have open."""
SIZE_MAX = 256 << 20
"""Bytes that may be put and published in one transaction."""
MESSAGES_MAX = 10_000
"""Messages that may be put, taken and published in one: all of it is done at once."""

TransactionPut = tuple["MessageQueue", QueuedMessage, Sequence[bytes]]
"""A message with its queue, and further parts of its body."""


class OpenTransaction:
    """A transaction of one client that has not ended."""

    def __init__(self, session: Session, number: int, grow: Callable[[int], None]) -> None:
        """`grow` is called with the bytes that it holds more, or fewer."""
        self.session = session
        self.number = number
        self._on_growth = grow
        self.timer: Alarm | None = None
        self.held: dict[int, InFlight] = {}
        self.locked: dict[tuple[MessageQueue, int], None] = {}
        self.waiting: dict[int, QueueReader] = {}  # by the numbers of their requests
        self.is_over = False  # what it has read is free for others
        self.publications: list[Batch] = []
        self._published = 0
        self._puts: dict[int, TransactionPut] = {}
        self._shelves: dict[MessageQueue, Shelf[int, QueuedMessage]] = {}
        self._parts: dict[MessageQueue, list[bytes]] = {}  # of the message that comes next
        # What it put and has taken, and for which request.
        self._withdrawn: dict[int, tuple[int, TransactionPut]] = {}
        self._size = 0

    @property
    def queues(self) -> set[MessageQueue]:
        """The queues in which it has read or taken something."""
        return {held.queue for held in self.held.values()} | {queue for queue, _ in self.locked}

    @property
    def puts(self) -> list[TransactionPut]:
        """Own puts that were not taken again, in order; with further parts of the bodies."""
        return list(self._puts.values())

    def shelf(self, queue: MessageQueue) -> Shelf[int, QueuedMessage] | None:
        """Return its own puts into a queue."""
        return self._shelves.get(queue)

    @property
    def room(self) -> int:
        """Number of messages that may still be put, taken or published in it."""
        return MESSAGES_MAX - len(self._puts) - len(self.held) - self._published

    def check_room_for(self, count: int) -> None:
        """Raise Refused if so many more are too many."""
        if self.room < count:
            raise Refused("limit", f"a transaction has at most {MESSAGES_MAX} messages: commit it before")

    def has_put(self, number: int) -> bool:
        """Whether it has put a message, and not taken it again."""
        return number in self._puts

    def knows(self, number: int) -> bool:
        """Whether it has put a message, taken again or not."""
        return number in self._puts or number in self._withdrawn

    def put(self, queue: MessageQueue, message: QueuedMessage) -> None:
        """Put a message; its number is for the order in which the transaction sees its own.

        Whether there is room is seen when it commits: until then nothing may be dropped for it.
        """
        self.check_room_for(1)
        self._grow(message.size)
        self._show((queue, message, self._parts.pop(queue, ())))

    def _show(self, put: TransactionPut) -> None:
        """Let the transaction see something that it has put."""
        queue, message, _ = put
        pending = self._shelves.get(queue)
        if pending is None:
            pending = self._shelves[queue] = Shelf(sight, distinct=True)
        pending.add(message.number, message, queue.kind.place(message))
        self._puts[message.number] = put

    def put_part(self, queue: MessageQueue, part: bytes) -> None:
        """Put a part of the body of the next event."""
        self._grow(len(part) + BYTES_EACH)
        self._parts.setdefault(queue, []).append(part)

    def publish(self, batch: Batch) -> None:
        """Publish events when it commits."""
        self.check_room_for(len(batch))
        self._grow(len(batch.raw))
        self._published += len(batch)
        self.publications.append(batch)

    def _grow(self, size: int) -> None:
        if self._size + size > SIZE_MAX:
            raise Refused("limit", f"a transaction holds at most {SIZE_MAX} bytes")
        self._size += size
        self._on_growth(size)

    def release(self) -> None:
        """Release its memory at its end."""
        self._on_growth(-self._size)
        self._size = 0

    def withdraw(self, queue: MessageQueue, message: QueuedMessage, request: int) -> None:
        """A message that it has put itself is taken again, by a request: it was never there."""
        self._withdrawn[message.number] = request, self._puts.pop(message.number)
        self._shelves[queue].remove(message.number)

    def put_back(self, request: int) -> None:
        """Put back its own messages that a request has taken."""
        taken = [one for one, (taker, _) in self._withdrawn.items() if taker == request]
        for number in taken:
            self._show(self._withdrawn.pop(number)[1])
        if taken:
            self._puts = dict(sorted(self._puts.items()))  # in the order in which they were put

    def parts(self, number: int) -> Sequence[bytes]:
        """The further parts of the body of a message that it has put."""
        if number in self._withdrawn:
            return self._withdrawn[number][1][2]
        put = self._puts.get(number)
        return () if put is None else put[2]

    def part(self, number: int, index: int) -> bytes | None:
        """One of these, None if there is none."""
        parts = self.parts(number)
        return parts[index] if 0 <= index < len(parts) else None

    def check_room(self) -> None:
        """Raise QueueFull if a queue has no room for what was put into it."""
        taken = Counter(held.queue for held in self.held.values())
        freed: Counter[MessageQueue] = Counter()
        for held in self.held.values():
            freed[held.queue] += held.queue.size_of(held.message)
        for queue, pending in self._shelves.items():
            size = sum(_size(message, parts) for into, message, parts in self.puts if into is queue)
            queue.check_room(len(pending) - taken[queue], size - freed[queue])


def _size(message: QueuedMessage, parts: Sequence[bytes]) -> int:
    return message.size + sum(map(len, parts))


class Locks:
    """Which messages of a queue transactions have read: others may read these, but not take them."""

    def __init__(self) -> None:
        self._locks: dict[int, set[OpenTransaction]] = {}

    def add(self, number: int, transaction: OpenTransaction) -> None:
        """A transaction has read a message."""
        self._locks.setdefault(number, set()).add(transaction)

    def remove(self, number: int, transaction: OpenTransaction) -> bool:
        """A transaction that has read it has ended; whether it had."""
        locks = self._locks.get(number)
        if locks is None:
            return False
        locks.discard(transaction)
        if not locks:
            del self._locks[number]
        return True

    def allow(self, number: int, transaction: OpenTransaction | None) -> bool:
        """Whether a message may be taken in this transaction, or in none; those that are over don't count."""
        locks = self._locks.get(number)
        return not locks or all(one is transaction or one.is_over for one in locks)

    def __contains__(self, number: object) -> bool:
        return not all(one.is_over for one in self._locks.get(number, ()))  # type: ignore[call-overload]

    def __iter__(self) -> Iterator[int]:
        return iter(self._locks)

    def __bool__(self) -> bool:
        return bool(self._locks)


class Transactions:
    """The transactions of all clients of a node: begun, found, carried out or undone."""

    def __init__(self, manager: QueueManager, readers: QueueReaders) -> None:
        self._manager = manager
        self._broker = manager.broker
        self._readers = readers
        self._begun: dict[Session, dict[int, OpenTransaction]] = {}

    def begin(self, asked: IncomingRequest, wanted: Begin) -> dict[str, float]:
        """Begin one, under the client's number; for how long it may be open."""
        begun = self._begun.setdefault(asked.session, {})
        if wanted.transaction in begun:
            raise Refused("exists", f"transaction {wanted.transaction} is open already")
        if len(begun) >= TRANSACTIONS_MAX:
            raise Refused("limit", f"a client has at most {TRANSACTIONS_MAX} transactions open")
        transaction = OpenTransaction(asked.session, wanted.transaction, self._manager.grow)
        begun[wanted.transaction] = transaction
        granted = min(TRANSACTION_S if wanted.timeout_s is None else wanted.timeout_s, TRANSACTION_S_MAX)
        act = partial(self._time_out, asked.session, wanted.transaction)
        transaction.timer = self._manager.timers.at(self._broker.now + granted, act)
        return {"timeout_s": granted}

    def _time_out(self, session: Session, number: int, _now: float) -> None:
        self.forget(session, number, "timed out")

    def find(self, session: Session, number: int) -> OpenTransaction:
        """The one that a client has begun under this number; TransactionLost if it is not open any more."""
        transaction = self._begun.get(session, {}).get(number)
        if transaction is None:
            raise TransactionLost(f"transaction {number} is not open: it took too long, or was cut off")
        return transaction

    def of(self, session: Session) -> list[OpenTransaction]:
        """All that a client has open."""
        return list(self._begun.get(session, {}).values())

    def parted(self, session: Session) -> None:
        """A session has ended."""
        for transaction in self._begun.pop(session, {}).values():
            self._undo(transaction)

    def roll_back(self, asked: IncomingRequest, unwanted: Rollback) -> Steps[None] | None:
        """Have nothing of it done; one that is not open is as well."""
        return self.forget(asked.session, unwanted.transaction)

    def cancel(self, asked: IncomingRequest, unwanted: Cancel) -> Steps[None]:
        """Undo what a request has taken in any of them."""
        for transaction in self.of(asked.session):
            yield from give_back(transaction.held, unwanted.number)
            transaction.put_back(unwanted.number)

    def carry_out(self, session: Session, number: int) -> tuple[MessageQueue, QueuedMessage] | None:
        """Let all of it be done; raise and have done nothing, if that can't be: `roll_back` it then.

        The message that it has put, and where, if that is all it did.
        """
        transaction = self.find(session, number)
        self._check(transaction)
        del self._begun[session][number]
        self._broker.accept(session)  # before anything that waits for this commit
        is_one = len(transaction.puts) == 1 and not (transaction.held or transaction.publications)
        put = self._do_all(transaction)
        self._broker.count("transactions", reason="committed")
        return put[0] if is_one else None

    def _check(self, transaction: OpenTransaction) -> None:
        transaction.check_room()
        for queue, _, _ in transaction.puts:
            if self._manager.find(queue.name) is not queue:
                raise QueueNotFound(queue.name, "it was deleted and made anew")

    def _do_all(self, transaction: OpenTransaction) -> list[tuple[MessageQueue, QueuedMessage]]:
        self._manager.timers.cancel(transaction.timer)
        self._readers.end(transaction)
        transaction.release()
        queues = transaction.queues
        for held in list(transaction.held.values()):
            if not held.is_over:
                held.queue.finish(held)
        put = [
            (queue, queue.put(message.raw, message.origin, parts, plan=queue.schedule.plan(message.raw)))
            for queue, message, parts in transaction.puts
        ]
        for batch in transaction.publications:
            self._broker.publishing.hand_on(batch, check(batch.raw), transaction.session, waits=True)
        transaction.is_over = True
        self._manager.begin(self._unlock(transaction, queues))
        return put

    def forget(self, session: Session, number: int, reason: str = "rolled back") -> Steps[None] | None:
        """Have nothing of it done; what is left of that, if there is one of this number."""
        transaction = self._begun.get(session, {}).pop(number, None)
        if transaction is None:
            return None
        self._broker.count("transactions", reason=reason)
        return self._undo(transaction)

    def _undo(self, transaction: OpenTransaction) -> Steps[None] | None:
        """Put back what was taken and forget what was put; return the steps that are left of that."""
        self._manager.timers.cancel(transaction.timer)
        self._readers.end(transaction)
        transaction.release()
        transaction.is_over = True
        return self._manager.begin(self._give_back(transaction, transaction.queues))

    def _give_back(self, transaction: OpenTransaction, queues: set[MessageQueue]) -> Steps[None]:
        for count, held in enumerate(list(transaction.held.values()), 1):
            if not held.is_over:
                held.queue.give_back(held, reason="was taken in a transaction that was rolled back")
            if not count % AT_ONCE:
                yield
        yield from self._unlock(transaction, queues)

    def _unlock(self, transaction: OpenTransaction, queues: set[MessageQueue]) -> Steps[None]:
        """Others may take what it has read; these are the queues in which it has read or taken something."""
        for count, (queue, number) in enumerate(transaction.locked, 1):
            queue.unlock(number, transaction)
            if not count % AT_ONCE:
                yield
        for queue in queues:
            self._readers.review(queue)

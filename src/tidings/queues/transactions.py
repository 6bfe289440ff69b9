"""The transactions of all clients of a node: begun, found, carried out or undone.

A transaction belongs to a connection: it ends with that, and is rolled back, unless it was committed. One
that is open for too long is rolled back too, so what it holds is never lost to others for ever.

A commit is one step, or it would be seen half done; so a transaction has at most MESSAGES_MAX messages. What
is given back, and what was read and is free again, is dealt with in steps.
"""

from __future__ import annotations

from functools import partial

from tidings.errors import QueueNotFound, Refused, TransactionLost
from tidings.event.check import check
from tidings.protocol.service import Asked
from tidings.protocol.session import Session
from tidings.queues.arguments import Begin, Cancel, Rollback
from tidings.queues.getting import Readers
from tidings.queues.inflight import give_back
from tidings.queues.manager import QueueManager
from tidings.queues.message import Message
from tidings.queues.queue import Queue
from tidings.queues.serving import AT_ONCE
from tidings.queues.transaction import Transaction
from tidings.steps import Steps

TRANSACTION_S = 30.0
TRANSACTION_S_MAX = 300.0
"""How long a transaction may be open, unless it asks for another time; and if it does."""
TRANSACTIONS_MAX = 1_000
"""Transactions that one client may have open."""


class Transactions:
    """See the module."""

    def __init__(self, manager: QueueManager, readers: Readers) -> None:
        self._manager = manager
        self._broker = manager.broker
        self._readers = readers
        self._begun: dict[Session, dict[int, Transaction]] = {}

    def begin(self, asked: Asked, wanted: Begin) -> dict[str, float]:
        """Begin one, under the client's number; for how long it may be open."""
        begun = self._begun.setdefault(asked.session, {})
        if wanted.transaction in begun:
            raise Refused("exists", f"transaction {wanted.transaction} is open already")
        if len(begun) >= TRANSACTIONS_MAX:
            raise Refused("limit", f"a client has at most {TRANSACTIONS_MAX} transactions open")
        transaction = Transaction(asked.session, wanted.transaction, self._manager.grow)
        begun[wanted.transaction] = transaction
        granted = min(TRANSACTION_S if wanted.timeout_s is None else wanted.timeout_s, TRANSACTION_S_MAX)
        act = partial(self._time_out, asked.session, wanted.transaction)
        transaction.timer = self._manager.timers.at(self._broker.now + granted, act)
        return {"timeout_s": granted}

    def _time_out(self, session: Session, number: int, _now: float) -> None:
        self.forget(session, number, "timed out")

    def find(self, session: Session, number: int) -> Transaction:
        """The one that a client has begun under this number; TransactionLost if it is not open any more."""
        transaction = self._begun.get(session, {}).get(number)
        if transaction is None:
            raise TransactionLost(f"transaction {number} is not open: it took too long, or was cut off")
        return transaction

    def of(self, session: Session) -> list[Transaction]:
        """All that a client has open."""
        return list(self._begun.get(session, {}).values())

    def parted(self, session: Session) -> None:
        """A session has ended."""
        for transaction in self._begun.pop(session, {}).values():
            self._undo(transaction)

    def roll_back(self, asked: Asked, unwanted: Rollback) -> Steps[None] | None:
        """Have nothing of it done; one that is not open is as well."""
        return self.forget(asked.session, unwanted.transaction)

    def cancel(self, asked: Asked, unwanted: Cancel) -> Steps[None]:
        """What was taken by a request in any of them is taken no longer."""
        for transaction in self.of(asked.session):
            yield from give_back(transaction.held, unwanted.number)
            transaction.put_back(unwanted.number)

    def carry_out(self, session: Session, number: int) -> tuple[Queue, Message] | None:
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

    def _check(self, transaction: Transaction) -> None:
        transaction.check_room()
        for queue, _, _ in transaction.puts:
            if self._manager.find(queue.name) is not queue:
                raise QueueNotFound(queue.name, "it was deleted and made anew")

    def _do_all(self, transaction: Transaction) -> list[tuple[Queue, Message]]:
        self._manager.timers.cancel(transaction.timer)
        self._readers.end(transaction)
        transaction.release()
        queues = transaction.queues
        for held in list(transaction.held.values()):
            if not held.is_over:
                held.queue.finish(held)
        put = [
            (queue, queue.put(message.raw, message.origin, parts))
            for queue, message, parts in transaction.puts
        ]
        for batch in transaction.publications:
            self._broker.hand_on(batch, check(batch.raw), transaction.session, waits=True)
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

    def _undo(self, transaction: Transaction) -> Steps[None] | None:
        """What was taken is where it was, what was put never was; what is left of doing that."""
        self._manager.timers.cancel(transaction.timer)
        self._readers.end(transaction)
        transaction.release()
        transaction.is_over = True
        return self._manager.begin(self._give_back(transaction, transaction.queues))

    def _give_back(self, transaction: Transaction, queues: set[Queue]) -> Steps[None]:
        for count, held in enumerate(list(transaction.held.values()), 1):
            if not held.is_over:
                held.queue.give_back(held, reason="was taken in a transaction that was rolled back")
            if not count % AT_ONCE:
                yield
        yield from self._unlock(transaction, queues)

    def _unlock(self, transaction: Transaction, queues: set[Queue]) -> Steps[None]:
        """Others may take what it has read; these are the queues in which it has read or taken something."""
        for count, (queue, number) in enumerate(transaction.locked, 1):
            queue.unlock(number, transaction)
            if not count % AT_ONCE:
                yield
        for queue in queues:
            self._readers.review(queue)

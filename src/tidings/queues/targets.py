"""Which queue an address means, wherever it is, and what a client may do there."""

from __future__ import annotations

from tidings.errors import NotAllowed, QueueNotFound
from tidings.filters import Filter
from tidings.protocol.access import Action, not_allowed
from tidings.protocol.session import Session
from tidings.queues.getting import Readers
from tidings.queues.local import LocalQueue
from tidings.queues.manager import QueueManager
from tidings.queues.queue import Queue
from tidings.queues.remote import RemoteQueue
from tidings.queues.transactions import Transactions

Target = LocalQueue | RemoteQueue
"""A queue as clients use it. Both do the same; what takes time is returned as steps, or as a reply."""


class Targets:
    """The queues of this node first, then those of its backends, in their order."""

    def __init__(self, manager: QueueManager, readers: Readers, transactions: Transactions) -> None:
        self._manager = manager
        self._readers = readers
        self._transactions = transactions

    def found(self, session: Session, action: Action, address: str) -> tuple[Target, Filter | None]:
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
            raise not_allowed(session.permit, action, address) from None  # by no other name

    def resolve(self, address: str) -> Target:
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

    def _local(self, queue: Queue) -> LocalQueue:
        if queue.target is None:
            queue.target = LocalQueue(self._manager, self._readers, self._transactions, queue)
        return queue.target

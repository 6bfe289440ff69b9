"""Finding queues: by an address or by a description, here and at all backends at the same time.

A client that says only a name means a queue of this node, or else the one that is found by asking around,
which `queue.describe` does and nothing else.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec.structs import replace

from tidings.errors import NotAllowed, QueueAmbiguous, QueueNotFound
from tidings.filters import Filter
from tidings.protocol.access import Action, not_allowed
from tidings.protocol.service import IncomingRequest
from tidings.protocol.session import Session
from tidings.queues.arguments import FindRequest, Named
from tidings.queues.description import Description
from tidings.queues.getting import QueueReaders
from tidings.queues.local import LocalQueue, described
from tidings.queues.manager import QueueManager
from tidings.queues.queue import MessageQueue
from tidings.queues.remote import RemoteQueue, described_elsewhere
from tidings.queues.transactions import Transactions
from tidings.replies import Deferred, gathered
from tidings.steps import Steps

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


class Finding:
    """Describes and searches queues, for clients that may see them."""

    def __init__(self, manager: QueueManager, targets: Targets) -> None:
        self._manager = manager
        self._targets = targets

    def describe(self, asked: IncomingRequest, named: Named) -> Any:
        """Describe a queue, as far as the client may know of it; QueueAmbiguous if several nodes have one."""
        address = named.queue
        try:
            target = self._targets.resolve(address)
        except QueueNotFound:
            if "@" in address or not self._manager.backends:
                raise
            return self._search(FindRequest(name=address)).map(partial(self._choose, asked, address))
        if not asked.session.principal.sees(target.address):
            raise QueueNotFound(address, "there is no such queue")
        return target.describe(asked.session)

    def _choose(self, asked: IncomingRequest, name: str, found: list[Description]) -> Description:
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
        """Which backends could not be asked, of those that the client may use."""
        places = (one for backend in self._manager.backends for one in backend.absent)
        absent = sorted(place for place in places if session.principal.sees(f"{name}@{place}"))
        return f" (away: {', '.join(absent)})" if absent else ""

    def find(self, asked: IncomingRequest, sought: FindRequest) -> Steps[Any]:
        """Return the descriptions that agree of all queues that the client may see."""
        terms, session = sought.terms, asked.session  # before others are asked
        here: list[Description] = []
        if sought.scope != "remote":
            for one in (yield from self._manager.search(terms)):
                queue = self._manager.get(one.alias_of or one.name)
                if queue is not None and session.principal.sees(queue.name):
                    told = yield from described(session, queue, one)
                    here.append(replace(told, node=self._manager.broker.name))
        if sought.scope == "local":
            return here
        return self._search(sought).map(lambda found: here + self._seen(session, found))

    def _search(self, sought: FindRequest) -> Deferred[list[Description]]:
        """Search at all backends at the same time."""
        asked = gathered([backend.search(sought) for backend in self._manager.backends])
        return asked.map(lambda lists: [one for found in lists for one in found])

    def _seen(self, session: Session, found: list[Description]) -> list[Description]:
        """Return the backends' queues that a client may see, as it may see them."""
        seen = [one for one in found if session.principal.sees(address_of(one))]
        return [described_elsewhere(session, address_of(one), one) for one in seen]


def address_of(description: Description) -> str:
    """By what address a queue is found again."""
    return f"{description.name}@{description.node}" if description.node else description.name

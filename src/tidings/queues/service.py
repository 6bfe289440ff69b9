"""The queue service: clients' changes in the numbered stream, and their requests.

Each names a queue by its address. The service finds the queue, checks the client's rights once, and has the
rest done where the queue is: in this node (`local.py`) or by a backend (`remote.py`).

A client that says only a name means a queue of this node, or else the one that is found by asking around,
which `queue.describe` does and nothing else.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec.structs import replace

from tidings.errors import NotAllowed, QueueAmbiguous, QueueError, QueueNotFound, Refused, UserError
from tidings.exchange import NodeSubscription
from tidings.filters import Filter
from tidings.protocol.access import not_allowed
from tidings.protocol.messages import Commit, Put, Settle
from tidings.protocol.service import LATER, IncomingRequest, Service, WatchEnding
from tidings.protocol.session import Session
from tidings.queues import arguments
from tidings.queues.changes import Changes
from tidings.queues.description import CARRIED, DEAD, Description
from tidings.queues.getting import QueueReaders, check_possible, filter_of
from tidings.queues.local import described
from tidings.queues.manager import QueueManager
from tidings.queues.queue import MessageQueue
from tidings.queues.remote import Targets, described_elsewhere
from tidings.queues.transactions import Transactions
from tidings.replies import Deferred, gathered
from tidings.steps import Steps
from tidings.store.interface import Operation

STATUS_QUEUES_MAX = 10_000
"""Queues that the status of a node lists one by one."""


class QueueService(Service):
    """Service for clients' operations on queues; the broker sends watches of queues here."""

    def __init__(self, manager: QueueManager) -> None:
        self.manager = manager
        self._broker = manager.broker
        self._in_flight = manager.in_flight
        self._readers = QueueReaders(manager)
        self._transactions = Transactions(manager, self._readers)
        self._targets = Targets(manager, self._readers, self._transactions)
        self._changes = Changes(manager, self._readers, self._transactions, self._targets)
        self._broker.watch = self.watch
        self._readers.dispatch = lambda asked, wanted: self.manager.begin(self._get_again(asked, wanted))
        self.frames = {Put: self._changes.put, Settle: self._changes.settle, Commit: self._changes.commit}
        self.operations = {
            "queue.create": (Description, self._create),
            "queue.delete": (arguments.Named, self._delete),
            "queue.describe": (arguments.Named, self._describe),
            "queue.find": (arguments.FindRequest, self._find),
            "queue.alias": (arguments.Alias, self._alias),
            "queue.purge": (arguments.Purge, self._purge),
            "queue.replay": (arguments.Replay, self._replay),
            "queue.renew": (arguments.Renew, self._renew),
            "get": (arguments.GetRequest, self._get),
            "get.cancel": (arguments.Cancel, self._cancel),
            "part": (arguments.PartRequest, self._part),
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
        self._transactions.parted(session)
        self._in_flight.parted(session, is_clean)

    # Queues

    def _create(self, asked: IncomingRequest, wanted: Description) -> Any:
        asked.session.allow("manage", wanted.name)
        for backend in self.manager.backends:
            if wanted.type and wanted.type in backend.types:
                return backend.create(wanted)
        kind = self.manager.types.get(wanted.type)
        if (kind is not None and kind.is_own) or wanted.name == CARRIED:
            raise QueueError(wanted.name, "such a queue is made by the node, if it meets hosts by chance")
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
        return replace(wanted, bind=str(filter), maker=session.principal.user)

    def _located(self, description: Description) -> Description:
        """A description of a queue of this node, with the name of the node."""
        return replace(description, node=self._broker.name)

    def _delete(self, asked: IncomingRequest, unwanted: arguments.Named) -> Any:
        target, _ = self._targets.found(asked.session, "manage", unwanted.queue)
        return target.delete(unwanted.queue)

    def _purge(self, asked: IncomingRequest, unwanted: arguments.Purge) -> Any:
        target, _ = self._targets.found(asked.session, "manage", unwanted.queue)
        return target.purge(filter_of(unwanted.where) if unwanted.where else None)

    def _alias(self, asked: IncomingRequest, wanted: arguments.Alias) -> Description:
        asked.session.allow("manage", wanted.name)
        target, _ = self._targets.found(asked.session, "manage", wanted.target)
        if target.queue is None:
            raise NotAllowed(f"queue {target.address!r} is elsewhere: its names are given there")
        return self._located(self.manager.alias(wanted.name, wanted.target).describe())

    def _replay(self, asked: IncomingRequest, wanted: arguments.Replay) -> Steps[int]:
        """Put dead letters back; needs the rights to manage them and to put any message into that queue."""
        asked.session.allow("manage", DEAD)
        if wanted.queue is not None and self._targets.resolve(wanted.queue).queue is None:
            problem = f"queue {wanted.queue!r} is elsewhere: dead letters are put back where they lie"
            raise NotAllowed(problem)

        def check(queue: MessageQueue) -> None:
            if asked.session.allow("put", queue.name) is not None:
                raise not_allowed(asked.session.principal, "put", queue.name)

        filter = filter_of(wanted.where) if wanted.where else None
        return self.manager.dead_letters.replay(filter, wanted.queue, check)

    # Finding queues: by an address or by a description, here and at all backends at the same time

    def _describe(self, asked: IncomingRequest, named: arguments.Named) -> Any:
        """Describe a queue, as far as the client may know of it; QueueAmbiguous if several nodes have one."""
        address = named.queue
        try:
            target = self._targets.resolve(address)
        except QueueNotFound:
            if "@" in address or not self.manager.backends:
                raise
            return self._search(arguments.FindRequest(name=address)).map(
                partial(self._choose, asked, address)
            )
        if not asked.session.principal.sees(target.address):
            raise QueueNotFound(address, "there is no such queue")
        return target.describe(asked.session)

    def _choose(self, asked: IncomingRequest, name: str, found: list[Description]) -> Description:
        """The one queue of this name that was found elsewhere."""
        seen = {(one.name, one.node): one for one in self._seen(asked.session, found)}
        if not seen:
            raise QueueNotFound(name, f"there is no such queue{self._absent(asked.session, name)}")
        if len(seen) > 1:
            listed = ", ".join(sorted(_address_of(one) for one in seen.values()))
            raise QueueAmbiguous(name, f"several nodes have one: {listed}")
        (one,) = seen.values()
        return one

    def _absent(self, session: Session, name: str) -> str:
        """Which backends could not be asked, of those that the client may use."""
        places = (one for backend in self.manager.backends for one in backend.absent)
        absent = sorted(place for place in places if session.principal.sees(f"{name}@{place}"))
        return f" (away: {', '.join(absent)})" if absent else ""

    def _find(self, asked: IncomingRequest, sought: arguments.FindRequest) -> Steps[Any]:
        """Return the descriptions that agree of all queues that the client may see."""
        terms, session = sought.terms, asked.session  # before others are asked
        here: list[Description] = []
        if sought.scope != "remote":
            for one in (yield from self.manager.search(terms)):
                queue = self.manager.get(one.alias_of or one.name)
                if queue is not None and session.principal.sees(queue.name):
                    description = yield from described(session, queue, one)
                    here.append(replace(description, node=self._broker.name))
        if sought.scope == "local":
            return here
        return self._search(sought).map(lambda found: here + self._seen(session, found))

    def _search(self, sought: arguments.FindRequest) -> Deferred[list[Description]]:
        """Search at all backends at the same time."""
        asked = gathered([backend.search(sought) for backend in self.manager.backends])
        return asked.map(lambda lists: [one for found in lists for one in found])

    def _seen(self, session: Session, found: list[Description]) -> list[Description]:
        """Return the backends' queues that a client may see, as it may see them."""
        seen = [one for one in found if session.principal.sees(_address_of(one))]
        return [described_elsewhere(session, _address_of(one), one) for one in seen]

    # Messages

    def _get(self, asked: IncomingRequest, wanted: arguments.GetRequest) -> Any:
        number = wanted.transaction
        transaction = self._transactions.find(asked.session, number) if number else None
        target, granted = self._targets.found(asked.session, "get", wanted.queue)
        return target.get(asked, wanted, granted, transaction)

    def _get_again(self, asked: IncomingRequest, wanted: arguments.GetRequest) -> Steps[None]:
        """Serve a get whose queue can be reached another way now."""
        try:
            searching = self._get(asked, wanted)
            if searching is not LATER:
                yield from searching
        except (UserError, Refused) as error:
            asked.fail(error)

    def _cancel(self, asked: IncomingRequest, unwanted: arguments.Cancel) -> Steps[None]:
        yield from self._readers.cancel(asked, unwanted)
        yield from self._transactions.cancel(asked, unwanted)

    def _part(self, asked: IncomingRequest, wanted: arguments.PartRequest) -> Any:
        target, granted = self._targets.found(asked.session, "get", wanted.queue)
        return target.part(asked.session, wanted, granted)

    def _renew(self, asked: IncomingRequest, wanted: arguments.Renew) -> Any:
        target, granted = self._targets.found(asked.session, "get", wanted.queue)
        return target.renew(asked.session, wanted, granted)

    def watch(self, session: Session, name: str, subscription: NodeSubscription) -> WatchEnding:
        """Notify a subscription of what is put into a queue, as far as it may be got; what ends that."""
        target, granted = self._targets.found(session, "get", name)
        check_possible(subscription.filter)
        if granted is not None:
            subscription.filter &= granted
        return target.watch(subscription)

    def review(self) -> None:
        """The rules may have changed."""
        self.manager.review()

    def status(self) -> dict[str, Any]:
        """Return the state of the queues; of very many, of those that were made first."""
        queues = self.manager.queues(STATUS_QUEUES_MAX)
        return {
            "queues": [queue.status() for queue in queues],
            "queues_left_out": len(self.manager) - len(queues),
            "held_elsewhere": self._in_flight.elsewhere,
        }

    # Ticks and time

    def finish_tick(self) -> None:
        """Answer readers that have got something."""
        self._readers.finish_tick()
        if self._broker.promise <= self._broker.mark_durable:
            self.manager.quiet()

    def durable(self, mark: int) -> None:
        """Everything up to this mark is on disk."""
        self.manager.durable(mark)

    def failed(self, lost: list[Operation]) -> list[Operation]:
        """These could not be stored: what clients do again is undone, the rest is to be stored."""
        return self.manager.failed(lost)


def _address_of(description: Description) -> str:
    """By what address a queue is found again."""
    return f"{description.name}@{description.node}" if description.node else description.name

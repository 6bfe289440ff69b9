"""Queues wherever they are, for clients of this node: those elsewhere work as its own do.

A service in front of that of the node's own queues. What is about a queue of this node goes there as it came,
at the cost of a look at the table of names; what is about a queue elsewhere goes the way there, and the
answer comes back the same way. A client that says only a name means a queue of this node, or else the one
that is found by asking around, which `queue.describe` does and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec.structs import replace

from tidings.errors import (
    Disconnected,
    NotAllowed,
    QueueAmbiguous,
    QueueError,
    QueueNotFound,
    Refused,
    TidingsError,
)
from tidings.exchange import Subscription
from tidings.filters import Filter
from tidings.peers.gets import Gets, answer
from tidings.peers.hands import Hands
from tidings.peers.puts import Puts
from tidings.protocol.arguments import Subscribe
from tidings.protocol.bystander import Bystander
from tidings.protocol.messages import Put
from tidings.protocol.service import LATER, Asked
from tidings.protocol.session import Session
from tidings.queues import arguments
from tidings.queues.counting import described_elsewhere
from tidings.queues.description import TRANSMISSION, Description, read_fields
from tidings.queues.elsewhere import Elsewhere, Forwarding, Way
from tidings.queues.getting import check_possible
from tidings.queues.message import Message
from tidings.queues.queue import Queue
from tidings.queues.service import Operations, QueueService
from tidings.steps import Steps

Found = tuple[Elsewhere, Way]


class Abroad(Bystander):
    """See the module; a service of the broker, to be added behind that of its own queues."""

    def __init__(self, queues: QueueService, places: Iterable[Elsewhere] = ()) -> None:
        self.places = list(places)
        self.hands = Hands(queues.manager)
        self.tell: Callable[[], dict[str, Any]] = dict
        """What there is to say of the places."""
        self._queues = queues
        self._manager = queues.manager
        self._broker = queues.manager.broker
        self._here = queues.operations
        self._put_here = queues.frames[Put]
        self._puts = Puts(self._broker, self.hands)
        self.conclude = self._puts.conclude
        self._gets = Gets(self.hands)
        queues.others = self
        self.frames = {Put: self._put}
        self.operations: Operations = {
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
            "subscribe": (Subscribe, self._subscribe),
        }

    def _do_here(self, operation: str, asked: Asked, wanted: Any) -> Any:
        return self._here[operation][1](asked, wanted)

    # Which queue is meant

    def _way(self, address: str) -> Found | None:
        """The way to a queue elsewhere; None for one of this node, and for one that nobody knows of."""
        if self._manager.get(address) is not None or self._manager.knows(address):
            return None
        for place in self.places:
            way = place.find(address)
            if way is not None:
                return place, way
        return None

    # Clients

    def greeted(self, session: Session) -> bool:
        """A client is there; whether it still holds what it held elsewhere."""
        return self.hands.greeted(session)

    def parted(self, session: Session, is_clean: bool) -> None:
        """A session has ended: it waits for nothing any more."""
        self._gets.parted(session)
        self.hands.parted(session, is_clean)

    # The numbered stream

    def _put(self, session: Session, message: Put, events: bytes) -> Steps[None] | None:
        address = message.queue
        if message.transaction or self._manager.get(address) is not None:
            return self._put_here(session, message, events)
        found = self._way_or_none(address)
        if found is None:
            return self._put_here(session, message, events)
        self._puts.put(session, message, events, found[1])
        return None

    def _way_or_none(self, address: str) -> Found | None:
        """The same; also None for what can't be an address, and where no such node is known."""
        if not 1 <= len(address) <= arguments.ADDRESS_LENGTH_MAX:
            return None
        try:
            return self._way(address)
        except QueueNotFound:
            return None

    def stand_in(self, session: Session, address: str) -> tuple[Queue, Filter | None] | None:
        """The queue of this node that a transaction puts into instead; None for one of this node."""
        found = self._way_or_none(address)
        if found is None:
            return None
        way = found[1]
        granted = session.allow("put", way.address)
        if not isinstance(way, Forwarding):
            raise QueueError(
                way.address, "no transaction can put into it, and no body in parts: it is elsewhere"
            )
        return way.stand_in(), granted

    def committed(self, session: Session, counter: int, queue: Queue, message: Message) -> None:
        """A transaction has put one message, and done nothing else."""
        if queue.name.startswith(TRANSMISSION):
            found = self._way_or_none(queue.name.removeprefix(TRANSMISSION))
            if found is not None and isinstance(found[1], Forwarding):
                self._puts.follow(session, counter, found[1], message)

    # Finding

    def _describe(self, asked: Asked, named: arguments.Named) -> Any:
        if self._manager.knows(named.queue):
            return self._describe_here(asked, named)
        found = self._way(named.queue)
        if found is not None:
            if not asked.session.permit.sees(found[1].address):
                raise QueueNotFound(named.queue, "there is no such queue")
            found[1].describe(partial(self._tell_of, asked, found[1].address))
            return LATER
        if "@" in named.queue:
            return self._do_here("queue.describe", asked, named)
        sought = arguments.Find(name=named.queue)
        self._search(sought, partial(self._choose, asked, named.queue))
        return LATER

    def _describe_here(self, asked: Asked, named: arguments.Named) -> Steps[Description]:
        told: Description = yield from self._do_here("queue.describe", asked, named)
        return self._located(told)

    def _tell_of(self, asked: Asked, address: str, told: Any, error: TidingsError | None) -> None:
        """Tell a client of a queue elsewhere, which was described."""
        answer(asked, None if error else described_elsewhere(asked.session, address, told), error)

    def _choose(self, asked: Asked, name: str, found: list[Description]) -> None:
        """One queue of this name was found elsewhere, or several, or none."""
        seen = {(one.name, one.node): one for one in found if asked.session.permit.sees(address_of(one))}
        if not seen:
            absent = self._absent(asked.session, name)
            asked.fail(QueueNotFound(name, f"there is no such queue{absent}"))
        elif len(seen) > 1:
            listed = ", ".join(sorted(address_of(one) for one in seen.values()))
            asked.fail(QueueAmbiguous(name, f"several nodes have one: {listed}"))
        else:
            (one,) = seen.values()
            self._tell_of(asked, address_of(one), one, None)

    def _absent(self, session: Session, name: str) -> str:
        """Which places could not be asked, for whoever may use what is there."""
        places = (one for place in self.places for one in getattr(place, "absent", ()))
        absent = sorted(place for place in places if session.permit.sees(f"{name}@{place}"))
        return f" (away: {', '.join(absent)})" if absent else ""

    def _find(self, asked: Asked, sought: arguments.Find) -> Steps[Any]:
        read_fields(sought.fields or {})  # before others are asked
        here: list[Description] = []
        if sought.scope != "remote":
            found = yield from self._do_here("queue.find", asked, sought)
            here = [self._located(one) for one in found]
        if sought.scope == "local":
            return here

        def tell(found: list[Description]) -> None:
            session = asked.session
            seen = [one for one in found if session.permit.sees(address_of(one))]
            elsewhere = [described_elsewhere(session, address_of(one), one) for one in seen]
            answer(asked, here + elsewhere, None)

        self._search(sought, tell)
        return LATER

    def _search(self, sought: arguments.Find, tell: Callable[[list[Description]], None]) -> None:
        """Search in all places elsewhere at the same time."""
        found: list[Description] = []
        left = len(self.places)

        def told(descriptions: list[Description], _error: Any) -> None:
            nonlocal left
            found.extend(descriptions)
            left -= 1
            if left == 0:
                tell(found)

        if not self.places:
            tell(found)
        for place in list(self.places):
            place.search(sought, told)

    def _located(self, description: Description) -> Description:
        """A description of a queue of this node, with the name of the node."""
        return replace(description, node=self._broker.name)

    # Managing

    def _create(self, asked: Asked, wanted: Description) -> Any:
        for place in self.places:
            if wanted.type and wanted.type in place.types:
                asked.session.allow("manage", wanted.name)
                place.create(wanted, partial(answer, asked))
                return LATER
        return self._located(self._do_here("queue.create", asked, wanted))

    def _delete(self, asked: Asked, unwanted: arguments.Named) -> Any:
        found = self._way(unwanted.queue)
        if found is None:
            return self._do_here("queue.delete", asked, unwanted)
        asked.session.allow("manage", found[1].address)
        found[0].delete(found[1], partial(answer, asked))
        return LATER

    def _purge(self, asked: Asked, unwanted: arguments.Purge) -> Any:
        found = self._way(unwanted.queue)
        if found is None:
            return self._do_here("queue.purge", asked, unwanted)
        asked.session.allow("manage", found[1].address)
        found[0].purge(found[1], unwanted.where, partial(answer, asked))
        return LATER

    def _alias(self, asked: Asked, wanted: arguments.Alias) -> Any:
        found = self._way(wanted.target)
        if found is not None:
            raise NotAllowed(f"queue {found[1].address!r} is elsewhere: its names are given there")
        return self._located(self._do_here("queue.alias", asked, wanted))

    def _replay(self, asked: Asked, wanted: arguments.Replay) -> Any:
        found = None if wanted.queue is None else self._way(wanted.queue)
        if found is not None:
            raise NotAllowed(
                f"queue {found[1].address!r} is elsewhere: dead letters are put back where they lie"
            )
        return self._do_here("queue.replay", asked, wanted)

    # Messages

    def _get(self, asked: Asked, wanted: arguments.Get) -> Any:
        if self._manager.get(wanted.queue) is not None:
            return self._do_here("get", asked, wanted)
        found = self._way(wanted.queue)
        return (
            self._do_here("get", asked, wanted) if found is None else self._gets.get(asked, wanted, found[1])
        )

    def _cancel(self, asked: Asked, unwanted: arguments.Cancel) -> Any:
        self._gets.cancel(asked.session, unwanted.number)
        return self._do_here("get.cancel", asked, unwanted)

    def _part(self, asked: Asked, wanted: arguments.Part) -> Any:
        found = self._way(wanted.queue)
        if found is None:
            return self._do_here("part", asked, wanted)
        return self._gets.part(asked, wanted, found[1])

    def _renew(self, asked: Asked, wanted: arguments.Renew) -> Any:
        found = self._way(wanted.queue)
        if found is None:
            return self._do_here("queue.renew", asked, wanted)
        return self._gets.renew(asked, wanted, found[1])

    # Copies

    def _subscribe(self, asked: Asked, wanted: Subscribe) -> Any:
        found = None if wanted.queue is None else self._way(wanted.queue)
        if found is None:
            return asked.session.subscribe(wanted)
        way = found[1]
        try:
            begun = asked.session.subscribe(replace(wanted, queue=way.address))
        except Disconnected as error:
            asked.fail(error)
            return LATER

        def told(_description: Any, error: TidingsError | None) -> None:
            if error is not None:
                with suppress(Refused):  # it was ended meanwhile
                    asked.session.unsubscribe(wanted.number)
            answer(asked, begun, error)

        # It answers behind the watch: then copies are made of whatever is put next.
        way.describe(told)
        return LATER

    def watch(
        self,
        session: Session,
        name: str,
        subscription: Subscription,
    ) -> Callable[[], None] | None:
        """Tell a subscription of what is put into a queue elsewhere, as far as it may be got.

        None for a queue of this node.
        """
        found = self._way(name)
        if found is None:
            return None
        granted = session.allow("get", found[1].address)
        check_possible(subscription.filter)
        if granted is not None:
            subscription.filter &= granted
        return found[1].watch(subscription)

    def status(self) -> dict[str, Any]:
        """How many messages elsewhere clients of this node hold, and how the places stand."""
        return {"held_elsewhere": len(self.hands), **self.tell()}


def address_of(description: Description) -> str:
    """By what address a queue is found again."""
    return f"{description.name}@{description.node}" if description.node else description.name

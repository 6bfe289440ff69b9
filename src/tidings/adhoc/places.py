"""Queues and topics that a node holds, for itself or in place of another host, or knows at others.

A node that stands in for the holder of a queue makes a queue of that name, which its clients read as any
other. When it hears of a next holder it *hands over*: each message is taken out of the queue and carried to
that host, with one commit, so it is at one host at a time; when the queue is empty it is deleted. A message
that still comes here is carried on likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tidings.adhoc.carried_events import options_of, pack, unpack, with_life
from tidings.adhoc.effects import LeavePlace, StorePlace, TakePlace
from tidings.adhoc.frames import DEPUTIES_MAX
from tidings.adhoc.messages import TTL_S_MAX, CarriedMessage
from tidings.adhoc.queue_backend import HOST_NAME
from tidings.adhoc.records import (
    LEFT,
    PLACES,
    VACANCIES,
    HeldPlaceRecord,
    LeftPlaceRecord,
    VacancyRecord,
)
from tidings.errors import QueueError, QueueNotFound, Refused, TidingsError, UserError
from tidings.event.wire import decode_event
from tidings.ids import Origin
from tidings.protocol.broker import Broker
from tidings.protocol.service import IncomingRequest
from tidings.queues.description import TRANSMISSION, Description, check_name, decode, encode
from tidings.queues.manager import QueueManager
from tidings.queues.queue import MessageQueue
from tidings.queues.schedule import as_it_leaves
from tidings.steps import Steps

if TYPE_CHECKING:
    from tidings.adhoc.registry import HeldPlace
    from tidings.adhoc.service import AdhocService

OWN = ("tidings.", TRANSMISSION)
"""How the names begin of queues in which no other host can stand in."""
HANDED_AT_ONCE = 16
"""Messages that are handed over in one step."""
TOO_LONG = "its queue is held by another host again, and it is too long to be carried there"
"""Reason of the dead letters of which that is true."""


class PlaceRequest(Struct, frozen=True):
    """The arguments of `adhoc.hold`: a queue or topic, and its host if that is another one.

    `replicas` is how many other hosts may stand in for this one; `follow`: it goes to its main reader.
    """

    name: str
    kind: str = "queue"
    host: str = ""
    replicas: int = 0
    follow: bool = False


class NamedPlace(Struct, frozen=True):
    """The arguments of `adhoc.release`."""

    name: str


class NodePlaces:
    """Queues and topics of one node."""

    def __init__(self, service: AdhocService, broker: Broker, queues: QueueManager) -> None:
        self._service = service
        self._broker = broker
        self._queues = queues
        self._left: dict[str, LeftPlaceRecord] = {}
        self._made: dict[str, str] = {}  # the ids of queues that were made for other hosts
        self._handed_out: dict[str, int] = {}  # by the queues that follow their readers, at the last look
        self._handing: set[str] = set()  # queues of which messages are handed over just now
        self.operations: Mapping[str, tuple[Any, Callable[[IncomingRequest, Any], Any]]] = {
            "adhoc.hold": (PlaceRequest, self._hold),
            "adhoc.release": (NamedPlace, self._release),
        }
        registry = service.host.registry
        registry.may_stand_in = self._may_stand_in
        service.host.may_deputise = self._may_deputise
        service.messaging.following.describe = self._describe
        self._restore()

    # The start

    def _restore(self) -> None:
        broker, messaging = self._broker, self._service.messaging
        for (name,), place in PLACES.known(broker.state).items():
            held = self._put(name, place.kind, place.holder, place.replicas)
            held.deputies, held.naming, held.follows = place.deputies, place.naming, place.follows
            if place.queue:
                self._made[name] = place.queue
        for (name,), vacancy in VACANCIES.known(broker.state).items():
            ends_at = broker.deadline(vacancy.ends, TTL_S_MAX)
            messaging.host.registry.vacancies.note(name, vacancy.kind, vacancy.naming, ends_at)
        for (name,), left in LEFT.known(broker.state).items():
            if left.ends > broker.wall:
                self._left[name] = left
                messaging.namings[name] = left.naming
            else:
                broker.store(LEFT.drop((name,)))

    # Held here

    def _hold(self, asked: IncomingRequest, request: PlaceRequest) -> None:
        """Hold a queue or topic here, or enter that another host does."""
        asked.session.principal.check_manage()
        if request.kind not in ("queue", "topic") or not 0 < len(request.name) <= 255:
            raise Refused("protocol", "a place is a queue or a topic, with a name of 1 to 255 characters")
        if request.host and HOST_NAME.fullmatch(request.host) is None:
            raise Refused("protocol", f"{request.host!r} is no name of a host")
        if not 0 <= request.replicas <= DEPUTIES_MAX or (request.replicas and request.host):
            raise Refused("protocol", f"a place that is held here has 0 to {DEPUTIES_MAX} replicas")
        if request.follow and (request.host or request.kind != "queue"):
            raise Refused("protocol", "only a queue that is held here can follow its main reader")
        service = self._service
        host = request.host or service.host.name
        self.hold(request.name, request.kind, host, request.replicas, request.follow)
        service.do(service.host.wake(self._broker.now))

    def hold(self, name: str, kind: str, host: str, replicas: int = 0, follow: bool = False) -> None:
        """Have a queue or topic held here, with so many deputies, or known at another host for good."""
        self._put(name, kind, host, replicas).follows = follow
        self._forget_left(name)
        self._made.pop(name, None)
        self._store(name)
        self._service.topics.look()

    def _release(self, asked: IncomingRequest, request: NamedPlace) -> None:
        """Hold a place no longer, or forget it."""
        asked.session.principal.check_manage()
        registry, name = self._service.host.registry, request.name
        if registry.find(name, self._broker.now) is None:
            raise QueueNotFound(name, "no host is known to hold it")
        registry.remove(name)
        self._made.pop(name, None)
        self._store(name)
        self._service.topics.drop_subscribers(name)
        self._service.topics.look()

    def _put(self, name: str, kind: str, host: str, replicas: int) -> HeldPlace:
        messaging = self._service.messaging
        registry = messaging.host.registry
        if host != messaging.host.name:
            return registry.add(name, host, kind)
        if kind == "topic":
            messaging.hold_topic(name, replicas)
        else:
            messaging.hold_queue(name, replicas)
        place = registry.holding(name)
        assert place is not None
        return place

    def _store(self, name: str) -> None:
        """Store what is known of a place, as far as that lasts."""
        broker, registry = self._broker, self._service.host.registry
        place, vacancy = registry.holding(name), registry.vacancies.get(name)
        if place is None:
            broker.store(PLACES.drop((name,)))
        else:
            about = place.kind, place.holder, place.replicas, place.deputies, place.naming
            kept = HeldPlaceRecord(*about, self._made.get(name, ""), place.follows)
            broker.store(PLACES.set((name,), kept))
        if vacancy is None:
            broker.store(VACANCIES.drop((name,)))
        else:
            ends = vacancy.ends_at - broker.now + broker.wall
            record = VacancyRecord(vacancy.kind, vacancy.naming, ends)
            broker.store(VACANCIES.set((name,), record))

    # In place of others

    def _may_deputise(self, place: HeldPlace, host: str) -> bool:
        """Only hosts that may put or publish here get what comes for others."""
        return self._service.deliveries.may_hold(place.name, place.kind, host)

    def _may_stand_in(self, name: str, kind: str, holder: str) -> bool:
        """A host that may put or publish here has this one stand in, unless it has a queue of its own."""
        if not self._service.deliveries.may_hold(name, kind, holder):
            return False
        if kind != "queue":
            return True
        try:
            check_name(name)
        except QueueError:
            return False
        is_free = not self._queues.knows(name) or self._queue_left(name) is not None
        return is_free and not name.startswith(OWN)

    def _queue_left(self, name: str) -> MessageQueue | None:
        """The queue that another host holds now, as long as it is here too."""
        left = self._left.get(name)
        queue = self._queues.get(left.queue) if left is not None and left.queue else None
        return queue if queue is not None and queue.name == name else None

    def do(self, effect: TakePlace | LeavePlace | StorePlace) -> None:
        """Carry out what has become of a place."""
        match effect:
            case TakePlace():
                self._take(effect)
            case LeavePlace():
                self._leave(effect)
            case StorePlace():
                pass
        self._store(effect.name)
        self._service.topics.look()

    def _take(self, effect: TakePlace) -> None:
        name, kind = effect.name, effect.kind
        self._service.host.tallies["stood_in", kind] += 1
        made = self._queue_left(name)
        self._forget_left(name)
        if kind == "topic":
            self._service.topics.keep_subscribers(self._service.messaging.topics[name])
            return
        try:
            queue = made or self._queues.create(_description(name, effect.about))
            self._made[name] = queue.description.id
        except TidingsError:  # there are too many, or this node has no such type
            self._service.host.tallies["refused", "stand in"] += 1
            self._service.host.registry.remove(name)

    def _leave(self, effect: LeavePlace) -> None:
        ends = self._broker.wall + TTL_S_MAX
        queue, own = self._made.pop(effect.name, ""), self._queues.get(effect.name)
        if effect.naming.is_moved and effect.naming.holder == self._service.host.name and own is not None:
            queue = own.description.id
        left = LeftPlaceRecord(effect.kind, effect.naming, effect.holder, queue, ends)
        self._left[effect.name] = left
        self._broker.store(LEFT.set((effect.name,), left))
        self.hand_over()

    def _forget_left(self, name: str) -> None:
        if self._left.pop(name, None) is not None:
            self._broker.store(LEFT.drop((name,)))

    # Readers

    def wish(self, queue: str) -> None:
        """A client here wants to read a queue to which there is no path."""
        self._service.do(self._service.messaging.wish(queue, self._broker.now))

    def _describe(self, name: str) -> bytes | None:
        """What the next holder of a queue has to know, None for a queue that belongs to this node."""
        queue = self._queues.get(name)
        if queue is None or queue.kind.is_own or queue.binding is not None:
            return None
        return encode(replace(queue.description, id="", maker="", node=""))

    def _note_readers(self) -> None:
        """Note which queues that follow their readers are read here."""
        service, now = self._service, self._broker.now
        for name, place in service.host.registry.held.items():
            queue = self._queues.get(name) if place.follows else None
            if queue is None:
                self._handed_out.pop(name, None)
                continue
            before = self._handed_out.get(name, 0)
            self._handed_out[name] = queue.handed_out
            if len(queue.waiting) or queue.handed_out > before:
                service.messaging.following.note(name, service.host.name, now)
        service.do(service.messaging.offer(now))

    def look(self) -> None:
        """Do what is to be done now and then."""
        self._note_readers()
        self.hand_over()

    # Handing over

    def hand_over(self) -> None:
        """Hand over what is in queues that other hosts hold now; to be called now and then."""
        for name, left in list(self._left.items()):
            if left.ends <= self._broker.wall:
                self._forget_left(name)
            elif name not in self._handing and (queue := self._queue_left(name)) is not None:
                self._handing.add(name)
                self._queues.begin(self._hand_over(queue))

    def _holder(self, name: str) -> str | None:
        """The host that holds a queue which was held here; None if it was not, or is held here."""
        left = self._left.get(name)
        known = self._service.holder_of(name) or (None if left is None else left.holder)
        return None if left is None or known == self._service.host.name else known

    def _hand_over(self, queue: MessageQueue) -> Steps[None]:
        name = queue.name
        try:
            for count, number in enumerate(list(queue.shelf), 1):
                queue.deadlines.sweep()
                holder = self._holder(name)
                if holder is None or queue.is_closed:
                    return
                if number in queue.shelf and not self._hand_on(queue, number, holder):
                    return
                if not count % HANDED_AT_ONCE:
                    yield
            if not queue.size and self._holder(name) is not None and not queue.is_closed:
                self._queues.delete(name)
        finally:
            self._handing.discard(name)

    def _hand_on(self, queue: MessageQueue, number: int, holder: str) -> bool:
        """Take a message out of a queue, and carry it to the holder; False if there is no room for it."""
        message = queue.shelf[number]
        raw = as_it_leaves(queue, message, self._broker.wall)
        try:
            sent = None if queue.parts.of(number) else self._send(queue.name, holder, raw, message.origin)
        except UserError:  # its life is over, and the queue lets it go
            return True
        if sent is None:
            queue.bury(queue.pick(number), TOO_LONG, 0)
        elif sent:
            queue.drop(number)
        return sent is not False

    def _send(self, queue: str, holder: str, raw: bytes, origin: Origin | None) -> bool | None:
        """Carry an event to a queue; False if there is no room for it now, None if there never is.

        UserError if its life is over.
        """
        event = decode_event(raw)
        options = options_of(event)
        options["ttl_s"] = TTL_S_MAX if event.ttl_s is None else min(event.ttl_s, TTL_S_MAX)
        options["persistent"] = True
        return self._service.carry_on(queue, holder, pack(raw, origin), options)

    def pass_on(self, name: str, message: CarriedMessage, left_s: float) -> bool:
        """Carry on a message for a queue that was held here; False if it is for this host."""
        holder = None if self._queues.get(name) is not None else self._holder(name)
        if holder is None or self._service.deliveries.problem(name, message):
            return False
        carried = with_life(unpack(message.raw), left_s)
        origin = carried.origin_from(message.id.system)
        try:
            return bool(self._send(name, holder, carried.raw, origin))
        except UserError:  # its life is over
            return False


def _description(name: str, about: bytes) -> Description:
    """The queue of another host, as it was described with an offer."""
    plain = Description(name=name, priorities=True, expiry=True)
    if not about:
        return plain
    try:
        told = decode(about)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return plain
    return replace(told, name=name, id="", maker="", node="", bind=None, alias_of=None)

"""The service of a node that meets hosts by chance: what it carries goes over its links, and into its queues.

    bus.queue("jobs@far").put(…) ──► no path ──► AdhocHost.send ──► replica in the store
    a beacon ──► candidate ──► link ──► `link.adhoc` frames ──► AdhocHost ──► Deliveries, or another replica

The decisions are those of the cores (`host.py`, `messaging.py`); this module carries out their effects with
the node's own parts: records in its store, requests on its links, its queues and their reports.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_address
from math import inf
from typing import Any

from msgspec import Struct

from tidings.adhoc.beacons import FoundHost, HeardBeacons, is_beacon, read_beacon
from tidings.adhoc.carried_events import options_of, pack, without_report
from tidings.adhoc.casting import AREA, AreaCasts
from tidings.adhoc.datagrams import DatagramCopies
from tidings.adhoc.deliveries import Deliveries, SenderReports
from tidings.adhoc.effects import (
    DeliverMessage,
    DropReplica,
    LeavePlace,
    ReportOutcome,
    SendFrame,
    StorePlace,
    StoreReplica,
    TakePlace,
)
from tidings.adhoc.frames import decode_frame
from tidings.adhoc.host import AdhocHost
from tidings.adhoc.link_meetings import FrameRequest, LinkMeetings
from tidings.adhoc.messages import HEAD_SIZE, CarriedMessage, MessageId, Replica
from tidings.adhoc.messaging import NEWS, QUEUE, AdhocMessaging, ForwardMessage, MessagingEffect, SendOptions
from tidings.adhoc.paths import NodePaths
from tidings.adhoc.places import NodePlaces
from tidings.adhoc.proofs import Unsigned
from tidings.adhoc.queue_backend import HOST_NAME, AdhocQueues
from tidings.adhoc.queued_buffer import QueuedReplicas, check_carried
from tidings.adhoc.records import SEEN_GAPS_MAX, HostStore, next_epoch
from tidings.adhoc.registry import HeldPlace, PlaceRegistry
from tidings.adhoc.ring import AcknowledgementRing
from tidings.adhoc.seen_ids import SeenIds
from tidings.adhoc.settings import AdhocSettings
from tidings.adhoc.sketches import SALT_SIZE
from tidings.adhoc.strategies import strategy_type
from tidings.adhoc.topic_feeds import TopicFeeds
from tidings.adhoc.waiting_gets import WaitingGets
from tidings.errors import CodecError, ConfigError, QueueFull, Refused
from tidings.event import Event
from tidings.ids import StoredIds, parse_id
from tidings.overlay.neighbours import Neighbour
from tidings.overlay.service import NoArguments, Overlay
from tidings.peers.backend import Peers
from tidings.peers.peering import Peering
from tidings.protocol.broker import Broker
from tidings.protocol.service import IncomingRequest, Service
from tidings.protocol.session import Session
from tidings.queues.manager import QueueManager
from tidings.queues.message import BYTES_EACH
from tidings.queues.queue import MessageQueue
from tidings.replies import Deferred
from tidings.store.interface import Operation

ACKNOWLEDGEMENTS_MAX = 4_000
"""Acknowledgements that a node remembers: each has a signature, which is checked when it comes."""
PLACES_MAX = 1_000
"""Queues and topics that a node knows, each with a signature."""
POSTED_MAX = 1_000
"""Datagrams that wait for the disk; further ones are left to meetings."""
EVENTS_MAX = 10_000
"""Events of this host that are found by their own ids, too."""
LISTED_MAX = 1_000
"""Replicas, and neighbours, that one answer lists."""


class WhyRequest(Struct, frozen=True):
    """The arguments of `adhoc.why`: the id of a message, or of an event that is carried in one."""

    id: str


class AdhocService(Service):
    """Exchange of a node with the hosts that it meets."""

    def __init__(
        self,
        broker: Broker,
        queues: QueueManager,
        peers: Peers,
        peering: Peering,
        overlay: Overlay,
        settings: AdhocSettings,
        entropy: Callable[[int], bytes],
    ) -> None:
        """`entropy` returns random bytes."""
        if HOST_NAME.fullmatch(broker.name) is None:
            problem = f"{broker.name!r}: a host that meets others is named by 1 to 64 letters, digits, _ or -"
            raise ConfigError("the settings", "name", problem)
        self._broker = broker
        self._queues = queues
        self._peering = peering
        self._overlay = overlay
        self._settings = settings
        self.paths = NodePaths(peering.registry, overlay.topology)
        self.buffer = QueuedReplicas(queues, settings.buffer_bytes)
        self.buffer.on_purged = self._purged
        self.host = self._make_host(settings, entropy)
        self.messaging = AdhocMessaging(self.host, self.paths.is_linked)
        self.meetings = LinkMeetings(broker, self.host, settings.rate, overlay.later)
        self.meetings.on_error = self._end
        self.beacons = HeardBeacons(broker.name, broker.node, settings.beacon_s)
        self.deliveries = Deliveries(queues)
        self._reports = SenderReports(queues)
        self._store = HostStore(broker, self.buffer)
        self.send_datagram: Callable[[bytes, tuple[str, int] | None], None] = lambda _data, _target: None
        """Sends a datagram to an address, or to all in reach; the driver sets it."""
        self._posted: deque[tuple[int, bytes, tuple[str, int] | None]] = deque()  # behind these marks
        self._events: dict[str, MessageId] = {}  # messages that are carried, by the ids of their events
        self.host.place = settings.place
        self._store.restore(self.host)
        self._datagrams = DatagramCopies(self.host)
        for id, pending, at in self._reports.restore():
            self.host.awaited.resume(id, pending, at)
        self.messaging.may_publish = self._publish_held
        self.places = NodePlaces(self, broker, queues)
        self.waiting_gets = WaitingGets(broker)
        self.topics = TopicFeeds(self, broker)
        queues.backends.insert(0, AdhocQueues(self, peers))
        made = queues.on_new

        def on_new(queue: MessageQueue) -> None:
            made(queue)
            overlay.later(0.0, lambda: self.deliveries.made(queue))

        queues.on_new = on_new
        linking = overlay.linking
        linking.meets, linking.on_met, linking.on_parted = True, self._met, self._parted
        self.casts = AreaCasts(self, broker)
        self.operations = {
            "link.adhoc": (FrameRequest, self._receive),
            "adhoc.status": (NoArguments, self._tell_status),
            "adhoc.neighbours": (NoArguments, self._tell_neighbours),
            "adhoc.why": (WhyRequest, self._tell_why),
            **self.places.operations,
            **self.casts.operations,
        }
        self._sweep_later()
        self._wake_later()

    def _make_host(self, settings: AdhocSettings, entropy: Callable[[int], bytes]) -> AdhocHost:
        name = self._broker.name
        proofs = Unsigned() if settings.proofs is None else settings.proofs
        ids = StoredIds(name, next_epoch(self._broker))
        return AdhocHost(
            ids,
            strategy_type(settings.strategy)(name),
            self.buffer,
            ring=AcknowledgementRing(ACKNOWLEDGEMENTS_MAX),
            seen=SeenIds(gaps_max=SEEN_GAPS_MAX),
            proofs=proofs,
            registry=PlaceRegistry(name, proofs, ids.origin.epoch, settings.lease_s, PLACES_MAX),
            origin_bytes=settings.origin_bytes,
            meeting_bytes=settings.meeting_bytes,
            heard_max=ACKNOWLEDGEMENTS_MAX,
            salts=lambda: entropy(SALT_SIZE),
            check=check_carried,
        )

    # Beacons

    def hear(self, data: bytes, sender: str, is_secured: bool, port: int = 0) -> None:
        """A datagram has come from this address; `is_secured` says whether this node has certificates."""
        if not is_beacon(data):
            self._receive_datagram(data, sender, is_secured)
            return
        found = read_beacon(data, sender, is_secured, port)
        if found is None:
            self.host.tallies["refused", "beacon"] += 1
        else:
            self.find(found)

    def find(self, found: FoundHost) -> None:
        """A host says that it is there: dial it, unless it has a link."""
        if self.beacons.is_own(found):
            return
        if not self.beacons.note(found, self._broker.now):
            self.host.tallies["refused", "beacon"] += 1
        elif found.name not in self.meetings:
            self._peering.met(found.name, found.address)
            if self._settings.datagrams:
                for data in self._datagrams.offer(found.name, self._broker.now):
                    self._post(data, found.heard_at)

    def _receive_datagram(self, data: bytes, sender: str, is_secured: bool) -> None:
        """A short message, or an acknowledgement, has come without a connection."""
        if not self._settings.datagrams or not (is_secured or ip_address(sender).is_loopback):
            self.host.tallies["refused", "datagram"] += 1
            return
        effects, answer = self._datagrams.receive(data, self._broker.now)
        self.do(effects)
        if answer is not None:
            self._post(answer, None)

    def _post(self, data: bytes, target: tuple[str, int] | None) -> None:
        """Send a datagram when all is on disk that was done before it; without a target, to all in reach."""
        if len(self._posted) < POSTED_MAX:
            self._posted.append((self._broker.promise, data, target))
            self._send_posted()

    def _send_posted(self) -> None:
        while self._posted and self._posted[0][0] <= self._broker.mark_durable:
            _, data, target = self._posted.popleft()
            self.send_datagram(data, target)

    def _sweep_later(self) -> None:
        self._overlay.later(self._settings.beacon_s * 2, self._sweep)

    def _sweep(self) -> None:
        """Forget the hosts whose beacons come no more, and part from those that are silent."""
        now = self._broker.now
        self.beacons.sweep(now)
        for peer in [one for one in self._peering.registry if one.is_met]:
            if peer.name not in self.beacons and not peer.is_there:
                self._peering.gone(peer.name)
        for neighbour in self.meetings.hosts.values():
            link = neighbour.link
            if link is None or not link.is_meeting_only or neighbour.name in self.beacons:
                continue
            if now - link.received_at > self.beacons.life_s:
                link.hang_up()
        self.topics.look()
        self.places.look()
        self.waiting_gets.look()
        self._sweep_later()

    # Meetings

    def _met(self, neighbour: Neighbour) -> None:
        """The link to a host is there."""
        name = neighbour.name
        if HOST_NAME.fullmatch(name) is None or name == self.host.name or name in self.meetings:
            self.host.tallies["refused", "name"] += 1
            return
        self.meetings.begin(neighbour)
        self.do(self.host.meet(name, self._broker.now))

    def _parted(self, neighbour: Neighbour) -> None:
        name = self.meetings.name_of(neighbour)
        if name is not None:
            self._end(name)

    def _end(self, name: str) -> None:
        self.host.part(name, self._broker.now)
        self.meetings.end(name)

    def _receive(self, asked: IncomingRequest, request: FrameRequest) -> Deferred[None]:
        """A frame of a meeting has come."""
        name = self.meetings.name_of(self._overlay.linking.met(asked.session))
        if name is None:
            raise Refused("exists", "another host of this name is here")
        self.meetings.check_window(name)
        try:
            frame = decode_frame(request.frame)
        except CodecError:
            self.host.tallies["refused", "frame"] += 1
            raise
        self.do(self.host.receive(name, frame, self._broker.now))
        return self.meetings.answer(name, len(request.frame))

    # Sending

    def carry(self, session: Session, queue: str, host: str, event: Event) -> None:
        """Have an event carried to a queue of another host; UserError or QueueFull if it can't be."""
        asks = event.reply_to is not None and isinstance(event.values.get("report"), str)
        options = options_of(event)
        options["persistent"] = asks or options["persistent"]
        raw = pack(without_report(event, options["persistent"]), event.origin)
        message = self.host.compose((host,), raw, destination=QUEUE + queue, **options)
        self._reports.watch(message, f"{queue}@{host}", event, message.ttl_s)
        self.do(self.host.send(message, self._broker.now))
        if message.id not in self.host.buffer:
            problem = f"the buffer of this host has no room for {message.size} bytes"
            raise QueueFull(f"{queue}@{host}", problem)
        if self._queues.lasts:
            self._broker.accept_stored(session)
        else:
            self._broker.accept(session)
        if event.id is not None:
            self._events[event.id] = message.id
            if len(self._events) > EVENTS_MAX:
                del self._events[next(iter(self._events))]

    def carry_on(self, queue: str, host: str, raw: bytes, options: SendOptions) -> bool | None:
        """Have what was put here carried to a queue of another host, UserError for a life that is over.

        False: there is no room for it; None: there never is.
        """
        buffer, taken = self.host.buffer, len(raw) + HEAD_SIZE + BYTES_EACH
        if taken > (buffer.bytes_max or 0):
            return None
        if taken > buffer.room[1]:
            return False  # nothing is to be displaced by what has a place already
        message = self.host.compose((host,), raw, destination=QUEUE + queue, **options)
        if check_carried(message):
            return None
        self.do(self.host.send(message, self._broker.now))
        return message.id in buffer

    def holder_of(self, name: str) -> str | None:
        """Return the host that holds a queue of this name, None if none is known."""
        place = self.host.registry.find(name, self._broker.now)
        return None if place is None or place.kind != "queue" else place.holder

    def announced_queues(self) -> Iterator[HeldPlace]:
        """Yield the queues that other hosts hold."""
        for place in self.host.registry:
            if place.kind == "queue" and place.holder != self.host.name:
                yield place

    # Effects

    def do(self, effects: Sequence[MessagingEffect]) -> None:
        """Carry out effects in their order, then offer what there is to the hosts that are here."""
        for effect in effects:
            if isinstance(effect, DeliverMessage):
                self._store.note_seen(self.host, effect.message.id)
        for effect in self.messaging.take(effects, self._broker.now):
            match effect:
                case SendFrame(peer, frame):
                    self.meetings.send(peer, frame)
                case DeliverMessage(message, _hops, left_s):
                    self._deliver(message, left_s)
                case ReportOutcome():
                    self._reports.report(effect)
                case StoreReplica(replica):
                    self._store.keep(replica)
                    self._datagrams.add(replica)
                case DropReplica(replica, _reason):
                    self._store.drop(replica.id)
                    self._datagrams.drop(replica)
                case ForwardMessage():
                    pass  # the network of the node does it
                case TakePlace() | LeavePlace() | StorePlace():
                    self.places.do(effect)
        self._store.follow_ring(self.host)
        self._store.follow_partial(self.host)
        self.meetings.pump()
        self.meetings.durable()
        self._wake_later()

    def _wake_later(self) -> None:
        if self.host.wake_at < inf:
            self._broker.timers.at(max(self.host.wake_at, self._broker.now), self._wake)

    def _deliver(self, message: CarriedMessage, left_s: float) -> None:
        """Let the application have a message; its id is stored with the same commit."""
        kind, _, name = message.destination.partition(":")
        if kind + ":" == QUEUE:
            is_passed = self.places.pass_on(name, message, left_s)
            problem = "" if is_passed else self.deliveries.put(name, message, left_s)
        elif kind + ":" == NEWS and message.id.system == self.host.name:
            problem = ""  # it was published here before it was sent to the subscribers
        elif kind + ":" == NEWS:
            problem = self.deliveries.publish(message, left_s, is_sent_on=True)
        elif kind + ":" == AREA:
            is_own = message.id.system == self.host.name
            problem = self.deliveries.publish(message, left_s, is_own=is_own)
        else:
            problem = "destination"
        if problem:
            self.host.tallies["undelivered", problem] += 1

    def _publish_held(self, message: CarriedMessage, left_s: float) -> bool:
        """Publish here what came for a topic that is held here; what is from here was published before."""
        is_own = message.id.system == self.host.name
        problem = "" if is_own else self.deliveries.publish(message, left_s)
        if problem:
            self.host.tallies["undelivered", problem] += 1
        return not problem

    def _purged(self, replica: Replica) -> None:
        """A client has thrown away what this node carries."""
        self.host.tallies["dropped", "purged"] += 1
        self._store.drop(replica.id)
        self._datagrams.drop(replica)

    def _wake(self, now: float) -> None:
        self.do(self.host.wake(now))

    def durable(self, mark: int) -> None:  # noqa: ARG002
        """More is on disk: frames may leave that say so."""
        self.meetings.durable()
        self._send_posted()

    def finish_tick(self) -> None:
        """Send what depends on no commit."""
        self.meetings.durable()
        self._send_posted()

    def failed(self, lost: list[Operation]) -> list[Operation]:
        """Commits were not made: nothing is said that depends on them, and what they had is stored later."""
        self._posted.clear()
        return lost

    # For people

    def status(self) -> dict[str, Any]:
        """Return how the exchange stands, for the node's status and metrics."""
        host = self.host
        counted: dict[str, dict[str, int]] = {}
        for (what, reason), times in sorted(host.tallies.items()):
            counted.setdefault(what, {})[reason or "all"] = times
        return {
            "adhoc": {
                "host": host.name,
                "strategy": host.strategy.name,
                "signed": self._settings.proofs is not None,
                "messages": len(host.buffer),
                "bytes": host.buffer.held,
                "bytes_max": host.buffer.bytes_max,
                "acknowledgements": len(host.ring),
                "awaited": len(host.awaited),
                "places": len(host.registry),
                "place": host.place,
                "here": sorted(self.meetings.hosts),
                "counted": counted,
            }
        }

    def _tell_status(self, asked: IncomingRequest, _none: NoArguments) -> dict[str, Any]:
        asked.session.principal.check_manage()
        now = self._broker.now
        carried = [
            {
                **self.host.why(replica.id, now),
                "from": replica.id.system,
                "to": replica.message.destination,
                "bytes": replica.size,
                "priority": replica.message.priority,
                "persistent": replica.message.persistent,
            }
            for replica in list(self.host.buffer)[:LISTED_MAX]
        ]
        places = [
            {
                "name": place.name,
                "kind": place.kind,
                "holder": place.holder,
                "deputies": list(place.deputies),
                "stands_in_for": place.stands_in_for,
            }
            for place in list(self.host.registry)[:LISTED_MAX]
        ]
        return {**self.status()["adhoc"], "carried": carried, "known": places}

    def _tell_neighbours(self, asked: IncomingRequest, _none: NoArguments) -> list[dict[str, Any]]:
        """Return the hosts that are here, or were met, the last one first."""
        asked.session.principal.check_manage()
        now, here = self._broker.now, self.host.meetings
        met = {**self.host.met_at, **dict.fromkeys(here, now)}
        listed = sorted(met, key=lambda name: (-met[name], name))[:LISTED_MAX]
        return [
            {
                "host": name,
                "here": name in here,
                "ago_s": round(max(0.0, now - met[name]), 1),
                "bytes_received": here[name].bytes_received if name in here else 0,
                "bytes_sent": here[name].bytes_sent if name in here else 0,
                "beacon": name in self.beacons,
            }
            for name in listed
        ]

    def _tell_why(self, asked: IncomingRequest, request: WhyRequest) -> dict[str, Any]:
        """Return where a message is as far as this host knows, who has it, and why it waits."""
        asked.session.principal.check_manage()
        parsed = parse_id(request.id)
        if parsed is None:
            raise Refused("protocol", f"{request.id[:100]!r} is no id of a message or an event")
        id = self._events.get(request.id, MessageId(*parsed))
        return {**self.host.why(id, self._broker.now), "awaited": sorted(self.host.awaited.pending(id))}

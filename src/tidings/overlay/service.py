"""The overlay of a node: its links to others, the tree they agree on, and what they announce to each other.

    subscribed here, or announced by a neighbour ──► covering set of each other neighbour ──► its table there
    published here, or relayed by a neighbour    ──► the exchange ──► LinkConsumer of each other neighbour

`linking.py` makes links of connections. On each the nodes compare what they know of all nodes
(`topology.py`), from which all compute the same tree. `routing.py` lets events go over the links of the tree;
a link that would close a cycle stands by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from tidings.errors import Refused, UserError
from tidings.event import Batch
from tidings.event.wire import check
from tidings.filters import Filter
from tidings.overlay.bereaved import Bereavement, LastRequest
from tidings.overlay.coordinating import Coordinating
from tidings.overlay.draining import Draining
from tidings.overlay.keeping import GapRequest, Keeping
from tidings.overlay.linking import Greeting, Linking
from tidings.overlay.liveness import HeardRequest, Liveness
from tidings.overlay.moving import Sides
from tidings.overlay.neighbours import KnownNeighbours, Neighbour, NeighbourLink
from tidings.overlay.numbers import Numbers
from tidings.overlay.offered import OfferedElsewhere
from tidings.overlay.reading import NodeReading
from tidings.overlay.rebuilding import Rebuilding
from tidings.overlay.receiving import TableChange
from tidings.overlay.record_exchange import RecordExchange, TopologyNews, stored_nodes
from tidings.overlay.relaying import LinkConsumer
from tidings.overlay.routing import Routing
from tidings.overlay.settings import OverlaySettings
from tidings.overlay.topology import Topology
from tidings.overlay.tracing import TraceRequest, follow, local_matches, traced
from tidings.overlay.waiting import HeldRequest, Holding, Settling, after, ask, joined
from tidings.overlay.weighing import PADDING, Weighing, wait_s
from tidings.peers.peering import Peering
from tidings.protocol.arguments import InForce, SubscribeRequest
from tidings.protocol.broker import Broker
from tidings.protocol.elsewhere import NodePage, TakesValues
from tidings.protocol.messages import Reverse
from tidings.protocol.service import IncomingRequest, Service
from tidings.protocol.session import Session
from tidings.replies import Deferred
from tidings.steps import Steps
from tidings.store.interface import Operation


class ProbeRequest(Struct, frozen=True):
    """The arguments of `link.probe`: bytes that show how much the link carries."""

    padding: Annotated[bytes, Meta(max_length=PADDING)] = b""


class InForceRequest(Struct, frozen=True):
    """The arguments of `in_force`: whether offers are meant, or what is wanted."""

    of_offers: bool = False


class InForceBehind(InForceRequest, frozen=True):
    """The arguments of `link.in_force`."""

    settled: bool = False  # whether the caller is to have stored all up to these numbers
    sides: Sides | None = None  # of the link, as the caller has them; not there in releases before


class WholeRequest(Struct, frozen=True):
    """The arguments of `link.whole`: the sides of the link, as the caller has them."""

    sides: Sides


class RemoveRequest(Struct, frozen=True):
    """The arguments of `topology.remove`: the name or id of a neighbour."""

    node: str


class NoArguments(Struct, frozen=True):
    """The arguments of a request that has none."""


class Overlay(Service):
    """Service that joins this node to others. `system` is its id as a client of them, in this life."""

    def __init__(
        self,
        broker: Broker,
        peering: Peering,
        system: str,
        settings: OverlaySettings,
    ) -> None:
        self._broker = broker
        self._peering = peering
        self._log = peering.dialling.log
        self.numbers = Numbers(broker)
        known, newest = stored_nodes(broker)
        about = broker.node, broker.name, self.numbers.epoch
        rebuilding = Rebuilding(broker.node, settings.rebuild_threshold, wait_s(settings))
        coordinating = Coordinating(broker.node, settings.subnet, settings.finds)
        rules = settings.reroute_s, rebuilding, coordinating
        self.topology = Topology(*about, settings.leaf, known, "", newest, *rules)
        self.topology.start(broker.now)
        self.neighbours = KnownNeighbours(self.later, self._refused, settings.merge_waste > 0)
        self.records = RecordExchange(broker, self.topology, self.neighbours, peering, self.numbers)
        known_here = self.neighbours, self.topology, self.numbers
        self.routing = Routing(broker, *known_here, self.later, settings)
        self.routing.new_offers.log = self._log
        self.linking = Linking(broker, peering, self.neighbours, system)
        self.linking.on_up, self.linking.on_down = self._up, self._down
        self.linking.on_answer = self.routing.tables.answered
        self.linking.records_digest = self.topology.comparing.digest
        around = self.topology, self.neighbours, self.linking
        self.liveness = Liveness(broker, *around, self._log, settings)
        self.liveness.on_lost = self._lose
        self._weighing = Weighing(settings, broker, self.linking, self.liveness.pinging, self.topology)
        self._weighing.tell, self._weighing.report = self._weighed, self._disagree
        self._draining = Draining(broker, *around, self.records.is_of_use)
        self._holding = Holding(lambda: self.neighbours.cursors, max(0, settings.tolerate - 1))
        self._settling = Settling()
        self.on_link: Callable[[Neighbour], None] = lambda _neighbour: None
        """Called with each neighbour whose link has come up or gone down."""
        self.keeping = Keeping(broker, *known_here, settings, self._log, self._holding.dropped)
        self._bereavement = Bereavement(broker, self.neighbours, self.topology, self.later, settings.tolerate)
        self.routing.took = self._bereavement.took
        about_links = self.linking, self.routing, self.numbers
        self.reading = NodeReading(broker, self.topology, self.neighbours, *about_links, self.later)
        self.offered = OfferedElsewhere(self.reading, broker.advertised)
        broker.elsewhere = self
        self.records.on_tree = self._follow_tree
        broker.open_link = self._open_link
        broker.refuges = self._draining.places
        broker.is_linked = bool(broker.cursors.of_links)
        broker.epoch = self.numbers.epoch
        self.records.carry_out([])
        self.frames = {Reverse: self.linking.reversed}
        self.operations = {
            "link.hello": (Greeting, self.linking.greeted),
            "link.table": (TableChange, self._change_table),
            "link.offers": (TableChange, self._change_offers),
            "link.topology": (TopologyNews, self._learn),
            "link.probe": (ProbeRequest, self._probed),
            "link.whole": (WholeRequest, self._ask_whole),
            "link.gap": (GapRequest, self._hear_gap),
            "link.last": (LastRequest, self._hear_last),
            "link.in_force": (InForceBehind, self._ask_behind),
            "link.trace": (TraceRequest, self._trace_on),
            "link.heard": (HeardRequest, self._ask_heard),
            "in_force": (InForceRequest, self._ask_all),
            "held": (HeldRequest, self._wait_held),
            "topology": (NoArguments, self._tell_topology),
            "node.drain": (NoArguments, self._drain),
            "topology.remove": (RemoveRequest, self._remove),
            "topology.trace": (TraceRequest, self._trace),
            **self.reading.operations,
            **self.offered.operations,
        }

    def __iter__(self) -> Iterator[Neighbour]:
        return iter(self.neighbours)

    def later(self, delay_s: float, act: Callable[[], None]) -> None:
        """Call a function after so many seconds, and have sent what comes of it."""

        def done(_now: float) -> None:
            act()
            self._work()

        self._broker.timers.at(self._broker.now + delay_s, done)

    def _refused(self, node: str, problem: str) -> None:
        self._broker.count("announcements_refused")
        self._log("warning", "a neighbour takes no filters", node=node, problem=problem)

    # Links

    def listens_at(self, address: str) -> None:
        """Let other nodes know where this one can be reached."""
        self.records.carry_out(self.topology.set_address(address, self._broker.now))

    def found_near(self, name: str, node: str) -> None:
        """A node was found on the local network, or with no id is not found there any more."""
        self.topology.found_near(name, node, self._broker.now)
        self.records.carry_out([])

    def _up(self, neighbour: Neighbour) -> None:
        """A link is there: compare what both know of all nodes, and go on over it if it is active."""
        self.numbers.keep()
        self._broker.is_linked = True
        wall_us, now = int(self._broker.wall * 1e6), self._broker.now
        try:
            theirs = b"" if neighbour.link is None else neighbour.link.records_digest
            effects = self.topology.link_up(neighbour.node, wall_us, now, theirs)
        except UserError as error:
            self._log("warning", "no link to a node", node=neighbour.node, problem=str(error))
            self.linking.part(neighbour)
            return
        if neighbour.link is not None:
            self.liveness.link_up(neighbour, neighbour.link)
        self._weighing.begin(self.later)
        if self.topology.is_active(neighbour.node) and not neighbour.is_in_tree:
            self.routing.follow_tree()
        elif neighbour.is_in_tree:
            self.routing.join(neighbour)
        self.records.carry_out(effects)
        self.offered.link_changed(neighbour.node)
        self.on_link(neighbour)

    def _down(self, neighbour: Neighbour, link: NeighbourLink) -> None:
        self.routing.leave(neighbour)
        self.liveness.link_down(neighbour)
        if link.is_up:
            is_dead = self.liveness.dying is neighbour
            self.records.carry_out(self.topology.link_down(neighbour.node, self._broker.now, is_dead))
            self.offered.link_changed(neighbour.node)
            self.on_link(neighbour)

    def _lose(self, neighbour: Neighbour) -> None:
        """A link, or the node behind it, was found dead."""
        self.records.carry_out(self.topology.lose(neighbour.node, self._broker.now))

    def _ask_heard(self, asked: IncomingRequest, request: HeardRequest) -> Deferred[dict[str, Any]]:
        self.linking.caller(asked.session)
        return self.liveness.heard(request)

    def parted(self, session: Session, is_clean: bool) -> None:  # noqa: ARG002
        """A session has ended; it may be that of a neighbour."""
        self.reading.parted(session)
        self.linking.parted(session)

    def _open_link(self, session: Session, wanted: SubscribeRequest) -> LinkConsumer:
        return self.routing.open_link(self.linking.caller(session), session, wanted)

    def _ask_whole(self, asked: IncomingRequest, request: WholeRequest) -> Deferred[None]:
        return self.routing.wholeness.answer(self.linking.caller(asked.session), request.sides)

    def _hear_gap(self, asked: IncomingRequest, request: GapRequest) -> None:
        self.keeping.hear(self.linking.caller(asked.session), request)

    def _hear_last(self, asked: IncomingRequest, request: LastRequest) -> None:
        self._bereavement.hear(self.linking.caller(asked.session), request)

    def _change_table(self, asked: IncomingRequest, change: TableChange) -> Steps[dict[str, Any]]:
        neighbour = self.linking.caller(asked.session)
        self.routing.active(neighbour)
        return self.routing.tables.change_table(neighbour, change)

    def _change_offers(self, asked: IncomingRequest, change: TableChange) -> Steps[dict[str, Any]]:
        neighbour = self.linking.caller(asked.session)
        self.routing.active(neighbour)
        return self.routing.tables.change_offers(neighbour, change)

    def review(self) -> None:
        """The rules may have changed."""
        self.routing.tables.review()

    # The tree

    def _probed(self, asked: IncomingRequest, _probe: ProbeRequest) -> None:
        """A neighbour measures the link."""
        self.linking.caller(asked.session)

    def _learn(self, asked: IncomingRequest, news: TopologyNews) -> None:
        """A neighbour tells what it knows of nodes."""
        self.records.hear(self.linking.caller(asked.session).node, news)

    def _follow_tree(self) -> None:
        """Other links are in the tree than before."""
        self.routing.follow_tree()
        self._bereavement.look()

    def _weighed(self, node: str, weight: int) -> None:
        self.records.carry_out(self.topology.measured(node, weight, self._broker.now))

    def _disagree(self, neighbour: Neighbour, own: int, other: int) -> None:
        self._broker.count("weights_disagree")
        weights = {"here": own / 1000, "there": other / 1000}
        self._log("warning", "both ends weigh a link differently", node=neighbour.node, **weights)

    # What other nodes have, for clients: see `Elsewhere`

    @property
    def others(self) -> dict[str, str]:
        """The names of the other nodes, or their ids, by their ids."""
        return self.reading.others

    def last_values(self, filter: Filter, take: TakesValues) -> Deferred[list[str]]:
        """Have the last values of all other nodes taken; the names of those that are missing."""
        return self.reading.last_values(filter, take)

    def stored(self, node: str, filter: Filter, since_us: int, start: int, end: int) -> Deferred[NodePage]:
        """Return a page of what another node has stored of its own events."""
        return self.reading.stored(node, filter, since_us, start, end)

    def advertisements(self, node: str, filter: Filter, after: int) -> Deferred[Any]:
        """Return a page of what is advertised at another node."""
        return self.offered.page_of(node, filter, after)

    @property
    def offers_changed(self) -> int:
        """Number that grows when what is advertised at other nodes changes."""
        return self.offered.changed()

    # Waiting for the network

    def _ask_all(self, _asked: IncomingRequest, request: InForceRequest) -> Deferred[Any]:
        """From which numbers on all that the clients of this node want, or offer, is in force."""
        return self.in_force(None, request.of_offers).map(msgspec.to_builtins)

    def _ask_behind(self, asked: IncomingRequest, request: InForceBehind) -> Deferred[Any]:
        """The same of all that a neighbour has announced, at this node and those behind it."""
        neighbour = self.linking.caller(asked.session)
        if request.sides is not None:
            self.routing.check_sides(neighbour, request.sides)
        found = self.in_force(neighbour, request.of_offers, request.settled)
        if request.settled:
            found = after(found, partial(self._settling.wait, neighbour))
        if request.of_offers:  # it is to know what they want of it
            found = after(found, neighbour.announcer.barrier)
        return found.map(msgspec.to_builtins)

    def in_force(
        self, asking: Neighbour | None = None, of_offers: bool = False, settled: bool = False
    ) -> Deferred[InForce]:
        """Return from which numbers on all that is wanted here, and by a neighbour that asks, is in force.

        `settled`: the reply comes when this node has all that other nodes have for it up to these numbers.
        """
        broker = self._broker
        is_alone = self.topology.names.get(broker.name) is not None  # two nodes may have one name
        own = InForce({broker.name if is_alone else broker.node: (self.numbers.epoch, broker.position)})
        others = [one for one in self.neighbours.in_tree if one is not asking]
        about = self.later, self.routing.sides
        asked = [ask(one, of_offers, self._names_behind(one), *about, settled) for one in others]
        if of_offers:
            heard = self.routing.new_offers.heard
            asked = [reply.map(partial(heard, one)) for one, reply in zip(others, asked, strict=True)]
        self._work()
        return joined(own, asked)

    def settled(self, neighbour: Neighbour) -> Deferred[None]:
        """Return a reply that comes when a neighbour has confirmed all that is stored for it by now."""
        return self._settling.wait(neighbour)

    def _names_behind(self, neighbour: Neighbour) -> list[str]:
        behind = self.topology.behind(neighbour.node) or {neighbour.node}
        return sorted(self.topology.name_of(node) or node for node in behind)

    def _wait_held(self, _asked: IncomingRequest, request: HeldRequest) -> Deferred[bool | None]:
        """Wait until all that was published here so far is held by the neighbours that want it, or by all."""
        return self._holding.wait(self._broker.position, request, self.later)

    # Ticks

    def finish_tick(self) -> None:
        """Announce what has changed, and have the links send."""
        if self.neighbours:
            self._work()

    def _work(self) -> None:
        self.routing.work()
        self.keeping.work()
        self.offered.work(self.neighbours.in_tree)
        self._flush()

    def _flush(self) -> None:
        for link, neighbour in self.linking:
            if neighbour.intake is not None:
                neighbour.intake.go_on()
                neighbour.intake.confirm_beyond()
            link.flush()
        self._holding.look()
        self._settling.look()

    def durable(self, mark: int) -> None:
        """Acknowledge to neighbours what is on disk."""
        if self.neighbours:
            self.routing.durable(mark)
            self._flush()

    def failed(self, lost: list[Operation]) -> list[Operation]:
        """Commits were not made: neighbours are to send again what was in them."""
        for link, neighbour in self.linking:
            self.linking.part(neighbour)
            link.hang_up()
        return lost

    # For people

    def _tell_topology(self, asked: IncomingRequest, _none: NoArguments) -> dict[str, Any]:
        """Return what is known of all nodes."""
        asked.session.principal.check_manage()
        return {
            "node": self._broker.node,
            "records": msgspec.to_builtins(self.topology.records),
            "tree": sorted([one, other] for _, one, other in self.topology.tree.edges),
            "coordinators": self.topology.subnets.coordinators,
            **self.status(),
        }

    @property
    def is_draining(self) -> bool:
        """Whether this node is taken out of the network."""
        return self._draining.has_begun

    def hand_over_lead(self) -> None:
        """Let the next node coordinate the subnet at once, if this one does and is about to stop."""
        if self._broker.node in self.topology.subnets.members:
            self.records.carry_out(self.topology.drain(self._broker.now))
            self._work()

    def _drain(self, asked: IncomingRequest, _none: NoArguments) -> dict[str, Any]:
        """Take this node out of the network, or say how far that is."""
        asked.session.principal.check_manage_all("drain this node")
        if not self._draining.has_begun:
            self._draining.has_begun = True
            self._log("warning", "draining", clients=len(self._broker.sessions))
            self.records.carry_out(self.topology.drain(self._broker.now))
        return self._draining.look(asked.session)

    def _remove(self, asked: IncomingRequest, request: RemoveRequest) -> None:
        """Forget a neighbour that is gone for good, and what is kept for it."""
        asked.session.principal.check_manage_all("remove a link")
        named = [one for one in self.neighbours if request.node in (one.name, one.node)]
        for link in self.topology.own.links:  # one may be known by the records only, since the last start
            node, name = link.neighbour, self.topology.name_of(link.neighbour)
            if self.neighbours.get(node) is None and request.node in (name, node):
                named.append(self.neighbours.meet(node))
        if not named:
            raise Refused("not-found", f"there is no link to {request.node!r}")
        for neighbour in named:
            if neighbour.link is not None:
                raise Refused("exists", f"the link to {request.node!r} is there; stop that node first")
            self.routing.forget(neighbour)
            self.neighbours.forget(neighbour.node)
            self._holding.look()  # nobody has to hold anything for it any more
            self.linking.forget(neighbour)
            self.liveness.forget(neighbour)
            self.records.carry_out(self.topology.link_removed(neighbour.node, self._broker.now))

    def _trace(self, asked: IncomingRequest, request: TraceRequest) -> Deferred[dict[str, Any]]:
        """Return which way an event would take."""
        asked.session.principal.check_manage()
        return self._traced(None, request)

    def _trace_on(self, asked: IncomingRequest, request: TraceRequest) -> Deferred[dict[str, Any]]:
        return self._traced(self.linking.caller(asked.session), request)

    def _traced(self, came_from: Neighbour | None, request: TraceRequest) -> Deferred[dict[str, Any]]:
        broker = self._broker
        check(request.raw)
        batch = Batch(request.raw)
        if len(batch) != 1:
            raise Refused("protocol", f"one event is traced at a time, not {len(batch)}")
        of_links = {cursor.subscription for cursor in self.neighbours.cursors}
        local = local_matches(broker, batch, of_links.__contains__)
        others = [one for one in self.neighbours if one is not came_from]
        hops = [follow(one, batch, request.hops, self.later) for one in others]
        return traced(broker.name or broker.node, int(broker.wall * 1e6), local, hops)

    def status(self) -> dict[str, Any]:
        """How the links stand."""
        suspected, position = set(self.liveness.suspicion.suspected), self._broker.position
        links = [
            {
                **one.status(position),
                **self.keeping.status(one.cursor),
                "suspected": one.node in suspected,
            }
            for one in self.neighbours
        ]
        return {"links": links}

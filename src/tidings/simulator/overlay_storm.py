"""Storm over an overlay: nodes that are linked by a tree and a few links more, and applications at each.

Links are slow, cut and parted, nodes and applications crash, disks are full and clocks go wrong, while events
are published at all nodes and subscriptions come and go. When all is healed, every promised event has
arrived once and in order (`overlay_account.py`), all nodes agree on one tree, their tables are those of the
subscriptions that are there, nothing is kept for a link, and new events flow between all nodes.

With *subnets* most nodes are on one of two local networks, whose coordinators carry the events of the others;
then it is a coordinator that dies.

With *deaths* some nodes never come back, with all their applications. What was accepted at one of them and
had not left it is lost; all other promises hold between those that live, which form one network again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from tidings.filters import Filter
from tidings.node.assembly import CoreSettings
from tidings.overlay.covering import CoveringSet
from tidings.overlay.relaying import LinkCursor
from tidings.peers.registry import Neighbours
from tidings.protocol.cursor import Cursor
from tidings.protocol.subscriber import Wanted
from tidings.simulator.account import EventIdentity
from tidings.simulator.client import SimulatedClient, must_not
from tidings.simulator.node import SimulatedNode, address_of
from tidings.simulator.overlay_account import OverlayAccount, OverlayWatch
from tidings.simulator.overlay_client import Application, AppSubscription
from tidings.simulator.storm import STORM_S, Weather, run_storm
from tidings.simulator.world import SimulatedLink, World
from tidings.transport.credentials import Credentials

NODES_MIN = 3
NODES_MAX = 7
NAMES = ("ash", "birch", "cedar", "elm", "fir", "hazel", "oak")
"""Names of the nodes, and so their largest number."""
APPS_MAX = 9
"""Applications of all nodes together; each node has one at least."""
ACT_S = 0.4
"""Mean time between two actions of an application."""
QUIET_S = 5.0
"""Time for the nodes to link, and for the first subscriptions to be announced."""
CALM_S = 75.0
"""Time for everything to recover, at most."""
PROBE_S = 12.0
"""Time for a subscription to be announced to all nodes, or for an event to reach all, at most."""
LOOK_S = 1.0
"""How often it is looked whether all is as it must be in the end."""
HELD_S = 3.0
"""How long it must have been so before the storm goes on."""
PATIENT = 8
"""One storm of so many waits as long as it may, for what goes wrong late."""
AHEAD_S = (0.0, 0.0, 1.0, 7_200.0)
"""Largest errors of wall clocks at first; each storm chooses one."""
REROUTE_S = (0.3, 1.0, 5.0)
"""How long a link may be cut before events go another way; each node chooses one."""
WEIGH_S = (0.0, 0.5, 2.0)
"""How often links are weighed, 0 for never; each storm chooses one. Trees change when links get slow."""
MOURNING_S = 60.0
"""Time in which a dead node is gone round, before another may die."""
LIVING_MIN = 2
"""Nodes that do not die."""
SUBNETS = ("hall", "hall", "shed", "")
"""Labels of subnets, of which each node chooses one."""
TRIMS = (1, 20, 1_000)
"""Positions after which the stream is trimmed; each node chooses one."""

Edge = tuple[str, str]
"""Names of the node that dials and of the one that is dialled."""
AnnouncedText = tuple[str, bool]
"""A filter in a table, and whether it is passive."""


class OverlayWeather(Weather):
    """Weather that prefers links between nodes."""

    def __init__(
        self,
        world: World,
        nodes: Sequence[SimulatedNode],
        apps: Sequence[Application],
        links: Sequence[SimulatedLink],
    ) -> None:
        self._apps = apps
        self._links = links
        super().__init__(world, nodes, apps, self._burst_somewhere)

    def _burst_somewhere(self) -> SimulatedClient:
        app = self.world.random.choice(self._apps)
        app.burst(10)
        return app

    def _link(self) -> SimulatedLink:
        return self.world.random.choice(self._links) if self.world.random.random() < 0.8 else super()._link()


class OverlayVerdict(Struct, frozen=True):
    """Outcome of a storm."""

    seed: int
    trace: str
    nodes: int
    links: int
    published: int
    accepted: int
    promised: int
    delivered: int
    marked: int
    subscriptions: int
    relayed: int
    linked: int
    steps: int
    faults: int

    def __str__(self) -> str:
        return (
            f"{self.nodes} nodes with {self.links} links, {self.faults} faults, {self.published} events "
            f"published, {self.accepted} accepted, {self.promised} promised to subscriptions elsewhere and "
            f"here, {self.delivered} deliveries to {self.subscriptions} subscriptions"
        )


class OverlayStorm:
    """Run of a storm: `rage`, then `calm`; `nodes` is their number, 0 for one that the seed chooses.

    So many nodes die in it as `deaths` says, one after the other: each when the repair of the last is over.
    With `subnets` there are coordinators. `declared`: nodes offer what is advertised or published at them,
    not everything. `waste`: part of the events over a link that may come for nobody.
    """

    def __init__(
        self,
        seed: int,
        nodes: int = 0,
        deaths: int = 0,
        subnets: bool = False,
        declared: bool = False,
        waste: float = 0.0,
    ) -> None:
        self._deaths = deaths
        self._waste = waste
        self._subnets = subnets
        self._declared = declared
        self.dead: list[str] = []
        """Names of the nodes that have died."""
        self.world = World(seed)
        random = self.world.random
        names = NAMES[: nodes or random.randint(NODES_MIN, NODES_MAX)]
        self.edges = self._edges(names)
        self.nodes = self._nodes(names)
        self.account = OverlayAccount({node.name: node for node in self.nodes})
        self.apps = [self._app(node, 0) for node in self.nodes]
        for number in range(random.randint(0, APPS_MAX - len(self.nodes))):
            self.apps.append(self._app(random.choice(self.nodes), number + 1))
        late = [edge for edge in self.edges[len(names) - 1 :] if random.random() < 0.5]
        for edge in late:
            self.world.network.part(self.world.network.link(*edge))
        self._run(QUIET_S)
        for app in self.apps:
            for _ in range(random.randint(0, 2)):
                app.subscribe_somehow(is_durable=random.random() < 0.7)
        self._run(random.choice((0.1, QUIET_S)))
        links = [self.world.network.link(*edge) for edge in self.edges]
        self.weather = OverlayWeather(self.world, self.nodes, self.apps, links)
        self._late = [self.world.network.link(*edge) for edge in late]

    def _edges(self, names: Sequence[str]) -> list[Edge]:
        """Choose a tree, in which some dial and some are dialled, and a few edges more."""
        random = self.world.random
        tree = [(name, random.choice(names[:place])) for place, name in enumerate(names) if place]
        edges = [(one, other) if random.random() < 0.5 else (other, one) for one, other in tree]
        taken = {frozenset(edge) for edge in edges}
        pairs = [(one, other) for one in names for other in names if one < other]
        others = [edge for edge in pairs if frozenset(edge) not in taken]
        count = min(len(others), random.choice((0, 1, 1, 2)))
        return edges + random.sample(others, count)

    def _nodes(self, names: Sequence[str]) -> list[SimulatedNode]:
        random = self.world.random
        ahead_s, weigh_s = random.choice(AHEAD_S), random.choice(WEIGH_S)
        both = [(far, near) for near, far in self.edges if random.random() < 0.2]
        nodes = []
        for name in names:
            dialled = {far: address_of(far) for near, far in [*self.edges, *both] if near == name}
            peers = Neighbours(dialled, Credentials())
            reroute_s, subnet = random.choice(REROUTE_S), random.choice(SUBNETS) if self._subnets else ""
            settings = CoreSettings(
                name=name,
                peers=peers,
                reroute_s=reroute_s,
                weigh_s=weigh_s,
                subnet=subnet,
                offers_all=not self._declared,
                merge_waste=self._waste,
            )
            watch = OverlayWatch(random.choice(TRIMS))
            node = SimulatedNode(
                self.world, name, watch, settings=settings, ahead_s=random.uniform(-ahead_s, ahead_s)
            )
            watch.node = node
            nodes.append(node)
        return nodes

    def _app(self, node: SimulatedNode, number: int) -> Application:
        return Application(self.world, f"{node.name}-{number}", node, self.account)

    def _run(self, seconds: float) -> None:
        self.world.clock.run(self.world.clock.now + seconds)

    # The storm

    def rage(self, duration_s: float = STORM_S) -> None:
        """Publish, subscribe and break things for a while."""
        random = self.world.random
        for app in self.apps:
            self.world.clock.after(0.0, partial(self._act, app))
        for link in self._late:
            self.world.clock.after(random.uniform(0, duration_s), partial(self.world.network.heal, link))
        for number in range(self._deaths):
            self.world.clock.after(random.uniform(0, duration_s) + number * MOURNING_S, self._kill)
        self.weather.rage(duration_s + max(0, self._deaths - 1) * MOURNING_S)

    def _kill(self) -> None:
        """Let a node die, with all its applications; two at least live on."""
        living = [node for node in self.nodes if not node.is_dead]
        if len(living) <= LIVING_MIN:
            return
        leading = {one for node in living for one in node.core.overlay.topology.subnets.members}
        node = self.world.random.choice([one for one in living if one.broker.node in leading] or living)
        self.world.note("fault", "dead", node.name)
        self.dead.append(node.name)
        node.die()
        for app in [app for app in self.apps if app.node is node]:
            app.die()
        self.account.died(node)

    def _act(self, app: Application) -> None:
        if self.weather.is_raging and not app.node.is_dead:
            app.act()
            self.world.clock.after(self.world.random.expovariate(1 / ACT_S), partial(self._act, app))

    # What holds afterwards

    def calm(self) -> OverlayVerdict:
        """Heal everything, and check what was promised and how the nodes stand."""
        self.weather.calm(CALM_S if self._deaths else 0.0)
        if self._deaths:
            self._bury()
        self._settle(CALM_S, self._check)
        for node in self.nodes:
            self.account.check_log(node)
        self._check_flow()
        return self._verdict()

    def _settle(self, limit_s: float, check: Callable[[], None]) -> None:
        """Let time pass until a check has held for a while; AssertionError if it does not hold in the end."""
        end, held_s = self.world.clock.now + limit_s, 0.0
        is_patient = self.world.seed % PATIENT == 0 or self._declared or self._waste > 0
        while self.world.clock.now < end and (is_patient or held_s < HELD_S):
            self._run(LOOK_S)
            held_s = held_s + LOOK_S if not is_patient and _holds(check) else 0.0
        check()

    def _check(self) -> None:
        """Check that everything promised has come, and that all nodes are at rest."""
        for app in self.apps:
            assert app.connection.publications.is_empty, f"{app.name} still waits"
        missing = self.account.missing()
        assert not missing, f"{len(missing)} events are missing, the first: {missing[:3]}"
        self._check_trees()
        self._check_coordinators()
        self._check_tables()
        self._check_kept()

    def _bury(self) -> None:
        """Go on with those that live, which forget the dead as an operator has them do."""
        dead = {node.broker.node for node in self.nodes if node.is_dead}
        self.nodes = [node for node in self.nodes if not node.is_dead]
        self.apps = [app for app in self.apps if not app.node.is_dead]
        for node in self.nodes:
            overlay = node.core.overlay
            known = {neighbour.node for neighbour in overlay}
            known |= {link.neighbour for link in overlay.topology.own.links}
            for one in sorted(known & dead):
                connection = next(app for app in self.apps if app.node is node).connection
                connection.request("topology.remove", {"node": one}).then(lambda _none: None, must_not)
        for app in self.apps:
            app.pump()

    def _check_trees(self) -> None:
        """Check that all nodes know the same tree of all nodes, and use the links that are in it."""
        trees = {node.name: node.core.overlay.topology.tree for node in self.nodes}
        edges = trees[self.nodes[0].name].edges
        for name, tree in trees.items():
            assert tree.edges == edges, f"{name} knows another tree than {self.nodes[0].name}"
            assert len(tree) == len(self.nodes), f"{name} knows {len(tree)} nodes"
        for node in self.nodes:
            for neighbour in node.core.overlay:
                is_named = {node.name, neighbour.name} in map(set, self.edges)
                is_there = neighbour.is_up or not is_named  # others were made to go round a node
                assert is_there, f"the link of {node.name} to {neighbour.name} is not there"
                is_in_tree = neighbour.node in trees[node.name].neighbours
                assert neighbour.is_active is is_in_tree, f"{neighbour.name} is active at {node.name}, or not"

    def _check_coordinators(self) -> None:
        """Check that each node of a subnet is the smallest of it, or has that one as its only neighbour."""
        smallest: dict[str, str] = {}
        for node in sorted(self.nodes, key=lambda node: node.broker.node):
            topology = node.core.overlay.topology
            if topology.own.subnet:
                first = smallest.setdefault(topology.own.subnet, node.broker.node)
                is_led = first == node.broker.node or topology.tree.neighbours == [first]
                assert is_led, f"{node.name} is no leaf of the coordinator of its subnet"

    def _check_tables(self) -> None:
        """Check that each table is what its neighbour must announce, hop by hop, for all behind it."""
        if self._declared or self._waste:
            return  # what it must announce depends on what was published where
        for node in self.nodes:
            for neighbour in node.core.overlay:
                found: set[AnnouncedText] = set()
                if neighbour.table is not None:
                    found = {(text, entry.passive) for text, entry in neighbour.table.entries.items()}
                wanted: set[AnnouncedText] = set()
                if neighbour.node in node.core.overlay.topology.tree.neighbours:
                    wanted = self._announced(neighbour.node, node.broker.node)
                values = f"{sorted(found)}; it is {sorted(wanted)}"
                assert found == wanted, f"{node.name} believes that {neighbour.name} wants {values}"

    def _announced(self, node: str, to: str) -> set[AnnouncedText]:
        """Return what a node announces to a neighbour: the covering set of its own wants and of all others'.

        Filters are merged at each hop with those that come together there, so what is announced follows from
        the subscriptions and the tree.
        """
        near = next(one for one in self.nodes if one.broker.node == node)
        covering = CoveringSet()
        for one in self.account.subscriptions:
            if one.node == near.name:
                covering.add(one, Filter(one.wanted.filter), one.wanted.passive)
        for cursor in self._revived:
            if cursor.broker is near.broker:
                covering.add(cursor, cursor.filter, cursor.subscription.passive)
        for other in near.core.overlay.topology.tree.neighbours:
            if other != to:
                for text, passive in self._announced(other, node):
                    covering.add((other, text), Filter(text), passive)
        for _ in covering.steps():
            pass
        covering.take_changes()
        return {(str(one.filter), one.passive) for one in covering}

    @property
    def _revived(self) -> list[Cursor]:
        """Durable subscriptions that a late request of an application's former life has made again."""
        known = {(one.name.partition("/")[0], one.wanted.durable) for one in self.account.subscriptions}
        cursors = [cursor for node in self.nodes for cursor in node.broker.cursors.named]
        return [one for one in cursors if not isinstance(one, LinkCursor) and one.key not in known]

    def _check_kept(self) -> None:
        """Check that nothing is kept for anybody, as all have had everything."""
        revived = self._revived
        for node in self.nodes:
            position = node.broker.position
            for cursor in node.broker.cursors.named:
                if cursor in revived:
                    continue
                what = "link to" if isinstance(cursor, LinkCursor) else "subscription"
                kept = position - cursor.released
                assert kept == 0, f"{node.name} keeps {kept} positions for the {what} {cursor.name}"

    def _check_flow(self) -> None:
        """Check that what is published at any node now reaches each node, and leaves no trace."""
        # The first transient event of a type that is not declared may be lost.
        kinds = [("transient", None), ("reliable", "probe")][self._declared :]
        for kind, durable in kinds:
            probes = [app.subscribe(Wanted(durable=durable)) for app in self._first_apps()]
            self._settle(PROBE_S, self._check_tables)
            before, refused = set(self.account.events), self._refused()
            for app in self._first_apps():
                app.publish("transient" if kind == "transient" else "reliable")
            self._settle(PROBE_S, partial(self._check_probes, probes, before))
            assert self._refused() == refused, "events were relayed to nodes that refuse them"
            for app, probe in zip(self._first_apps(), probes, strict=True):
                app.unsubscribe(probe)
            self._settle(PROBE_S, self._check_tables)
        self._settle(PROBE_S, self._check_kept)

    def _check_probes(self, probes: Sequence[AppSubscription], before: set[EventIdentity]) -> None:
        """Check that all probes have had all events that were published since."""
        for identity in set(self.account.events) - before:
            for probe in probes:
                where = f"{self.account.places[identity[0]]} to {probe.noted.node}"
                assert identity in probe.noted.had, f"an event does not get from {where}"

    def _refused(self) -> int:
        """Relayed events that nodes have refused so far, in their current lives."""
        counts = [node.broker.tallies for node in self.nodes]
        return sum(times for one in counts for (what, _), times in one.items() if what == "relays_refused")

    def _first_apps(self) -> list[Application]:
        return self.apps[: len(self.nodes)]

    def _verdict(self) -> OverlayVerdict:
        account, tallies = self.account, [node.broker.tallies for node in self.nodes]
        every = [*account.subscriptions, *account.ended]
        return OverlayVerdict(
            seed=self.world.seed,
            trace=self.world.trace,
            nodes=len(self.nodes),
            links=len(self.edges),
            published=len(account.events),
            accepted=len(account.taken),
            promised=sum(len(one.promised) for one in account.subscriptions),
            delivered=sum(len(one.had) for one in every),
            marked=sum(one.marked for one in every),
            subscriptions=len(every),
            relayed=sum(one["relayed", ""] for one in tallies),
            linked=sum(one["links_up", ""] for one in tallies),
            steps=self.world.clock.steps,
            faults=self.weather.faults,
        )


def _holds(check: Callable[[], None]) -> bool:
    try:
        check()
    except AssertionError:
        return False
    return True


def overlay_storm(
    seed: int,
    duration_s: float = STORM_S,
    nodes: int = 0,
    deaths: int = 0,
    subnets: bool = False,
    declared: bool = False,
    waste: float = 0.0,
) -> OverlayVerdict:
    """Run one storm over linked nodes; AssertionError names the broken rule, and the seed that repeats it."""
    return run_storm(OverlayStorm(seed, nodes, deaths, subnets, declared, waste), duration_s)

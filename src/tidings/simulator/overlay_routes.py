"""Routes in a large overlay: the cores of routing alone, for a thousand nodes, beside flooding and an oracle.

Nodes are linked at random and use the tree that all of them compute. Each has, for each neighbour, what a
node has: the announcers of offers and of filters, pruning, and a table. Requests between two nodes are passed
on in their order. There is no store, no session and no client, and no link is cut.

Each type of event has a few advertisers, and a few nodes advertise everything. Subscriptions are to types by
Zipf's law, most of them with a bound. When all is announced, events are sent along the tables. They must
arrive at each node with a subscription that matches, and at no other one twice. The links they pass are
compared with those of an *oracle* that knows every subscription: the smallest part of the tree that joins the
publisher and all these nodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from random import Random
from typing import Any

from msgspec import Struct

from tidings.event import Event
from tidings.filters import Filter
from tidings.overlay.announcing import Announcer
from tidings.overlay.covering import digest_of, number_of_text
from tidings.overlay.pruning import Pruning
from tidings.overlay.receiving import Receiving, TableChange
from tidings.overlay.tree import Edge, spanning_tree
from tidings.replies import Deferred, ignore
from tidings.steps import finish

LINKS_EACH = 2
"""Links that each node has to earlier ones, of which one or none is in the tree."""
ADVERTISERS = 3
"""Nodes that advertise each type."""
UNLIMITED = 10
"""Nodes that advertise everything."""
BOUNDS = 100
"""Different bounds of subscriptions to one type."""
SUBSCRIPTIONS_EACH = 10
"""Subscriptions for each node; there are as many types as nodes."""
EVENTS = 2_000

Show = Callable[[str], None]


class RoutesVerdict(Struct, frozen=True):
    """Sizes of all tables and traffic of all links."""

    seed: int
    nodes: int
    subscriptions: int
    filters: int
    entries: int
    unmerged: int
    flooded: int
    requests: int
    events: int
    deliveries: int
    passed: int
    needed: int

    @property
    def saved(self) -> float:
        """Share of the entries of flooding that the tables do not have."""
        return 1 - self.entries / self.flooded

    @property
    def excess(self) -> float:
        """Share of events over links above those of the oracle."""
        return self.passed / self.needed - 1 if self.needed else 0.0

    def __str__(self) -> str:
        return (
            f"{self.nodes:,} nodes, {self.subscriptions:,} subscriptions with {self.filters:,} filters: "
            f"{self.entries:,} entries in all tables ({self.unmerged:,} without merging), {self.saved:.2%} "
            f"less than the {self.flooded:,} of flooding, after {self.requests:,} requests. {self.events:,} "
            f"events to {self.deliveries:,} nodes passed {self.passed:,} links, {self.excess:.2%} above the "
            f"{self.needed:,} of the oracle"
        )


class _Wire:
    """Connection of one node to a neighbour, as far as announcers use it."""

    def __init__(self, post: Callable[[str, dict[str, Any], Deferred[Any]], None]) -> None:
        self._post = post

    def request(self, operation: str, arguments: dict[str, Any], _on_cut: str) -> Deferred[Any]:
        reply: Deferred[Any] = Deferred()
        self._post(operation, arguments, reply)
        return reply


class _Link:
    """What a node keeps of one neighbour."""

    def __init__(self, wire: Any) -> None:
        self.wire = wire
        self.announcer = Announcer("link.table", _never, _refused)
        self.offerer = Announcer("link.offers", _never, _refused)
        self.wants = Pruning(self.announcer)
        self.table = _Table()
        self.wanting, self.offering = Receiving(), Receiving()
        self.is_settled = self.has_offered = False


def _never(_seconds: float, _call: Callable[[], None]) -> None:
    """Nothing is tried again, as nothing is refused."""


def _refused(problem: str) -> None:
    raise AssertionError(f"a neighbour has refused what was announced: {problem}")


@lru_cache(1 << 16)
def _read(text: str) -> Filter:
    """Return a filter, the same for all nodes: it never changes."""
    return Filter(text)


class _Table:
    """Filters of a neighbour, by the types that they want."""

    def __init__(self) -> None:
        self.filters: dict[str, Filter] = {}
        self._by_type: dict[str | None, dict[str, Filter]] = {}
        self._sum = 0

    def __len__(self) -> int:
        return len(self.filters)

    @property
    def digest(self) -> str:
        return f"{digest_of(self._sum):x}"

    def add(self, text: str) -> bool:
        if text in self.filters:
            return False
        filter = self.filters[text] = _read(text)
        self._sum += number_of_text(text, passive=False)
        for kind in _types_of(filter):
            self._by_type.setdefault(kind, {})[text] = filter
        return True

    def remove(self, text: str) -> None:
        self._sum -= number_of_text(text, passive=False)
        for kind in _types_of(self.filters.pop(text)):
            del self._by_type[kind][text]

    def wants(self, event: Event) -> bool:
        """Whether one of the filters matches."""
        return _is_matched(self._by_type, event)


def _is_matched(by_type: Mapping[str | None, Mapping[Any, Filter]], event: Event) -> bool:
    """Whether a filter of the event's type, or of any type, matches."""
    found = (by_type.get(kind, {}).values() for kind in (event.type, None))
    return any(filter.matches(event) for some in found for filter in some)


def _types_of(filter: Filter) -> Iterable[str | None]:
    """Return the types that a filter names, None for any."""
    wanted = [one.constraints.get("type") for one in filter.normal]
    names = [None if one is None else one.strings.points() for one in wanted]
    return [None] if None in names else {kind for some in names if some for kind in some}


class RoutedNode:
    """Node of which only the routing is there."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.links: dict[str, _Link] = {}
        self._subscriptions: dict[int, Filter] = {}
        self._by_type: dict[str | None, dict[int, Filter]] = {}
        self._offers = 0

    def link(self, neighbour: str, wire: _Wire) -> None:
        """Have a link to a neighbour, which knows nothing yet."""
        link = self.links[neighbour] = _Link(wire)
        link.offerer.up(link.wire, "")

    def advertise(self, text: str) -> None:
        """Offer what a client of this node advertises."""
        self._offers += 1
        for link in self.links.values():
            link.offerer.add(self._offers, Filter(text), passive=False)

    def subscribe(self, key: int, filter: Filter) -> None:
        """Want what a client of this node wants."""
        self._subscriptions[key] = filter
        for kind in _types_of(filter):
            self._by_type.setdefault(kind, {})[key] = filter
        for link in self.links.values():
            link.wants.add(key, filter, passive=False)

    def unsubscribe(self, key: int) -> None:
        """Want it no longer."""
        for kind in _types_of(self._subscriptions.pop(key)):
            del self._by_type[kind][key]
        for link in self.links.values():
            link.wants.remove(key)

    def hear(self, neighbour: str, operation: str, change: TableChange) -> dict[str, str]:
        """Take a request of a neighbour, and tell the others what follows; return the reply."""
        link = self.links[neighbour]
        others = [other for name, other in self.links.items() if name != neighbour]
        if operation == "link.offers":
            self._hear_offers(neighbour, change, others)
            return {"digest": link.wants.digest}

        def add(text: str, passive: bool) -> None:
            if link.table.add(text):
                for other in others:
                    other.wants.add((neighbour, text), link.table.filters[text], passive)

        def remove(text: str) -> None:
            link.table.remove(text)
            for other in others:
                other.wants.remove((neighbour, text))

        finish(link.wanting.steps(change, link.table.filters, add, remove))
        link.is_settled = link.is_settled or change.done
        self._settle()
        return {"digest": link.table.digest}

    def _hear_offers(self, neighbour: str, change: TableChange, others: Sequence[_Link]) -> None:
        link = self.links[neighbour]

        def add(text: str, _passive: bool) -> None:
            if link.wants.offer(text):
                for other in others:
                    other.offerer.add((neighbour, text), link.wants.offers[text], passive=False)

        def remove(text: str) -> None:
            link.wants.withdraw(text)
            for other in others:
                other.offerer.remove((neighbour, text))

        finish(link.offering.steps(change, link.wants.offers, add, remove))
        if change.done and not link.has_offered:
            link.has_offered = True
            link.announcer.up(link.wire, "")
        self._settle()

    def _settle(self) -> None:
        """See to which neighbours less may be announced than before."""
        for link in self.links.values():
            others = [other for other in self.links.values() if other is not link]
            link.announcer.may_narrow = all(other.is_settled for other in others)
            link.offerer.may_narrow = all(other.has_offered for other in others)

    def work(self) -> None:
        """Announce what has changed."""
        for link in self.links.values():
            for announcer in (link.offerer, link.announcer):
                if announcer.is_due:
                    finish(announcer.steps())
                    announcer.flush()

    @property
    def is_due(self) -> bool:
        """Whether there is anything to announce."""
        return any(link.offerer.is_due or link.announcer.is_due for link in self.links.values())

    def wants(self, event: Event) -> bool:
        """Whether a client of this node wants an event."""
        return _is_matched(self._by_type, event)


class RoutedNetwork:
    """Nodes linked by a tree."""

    def __init__(self, edges: Iterable[tuple[str, str]]) -> None:
        self.edges = list(edges)
        self.nodes = {name: RoutedNode(name) for edge in self.edges for name in edge}
        self.requests = 0
        self._waiting: deque[tuple[str, str, str, dict[str, Any], Deferred[Any]]] = deque()
        self._busy: dict[str, None] = dict.fromkeys(self.nodes)
        for edge in self.edges:
            for near, far in (edge, edge[::-1]):
                self.nodes[near].link(far, _Wire(self._poster(near, far)))
        for node in self.nodes.values():
            node._settle()  # a leaf of the tree knows all others' tables already

    def _poster(self, near: str, far: str) -> Callable[[str, dict[str, Any], Deferred[Any]], None]:
        def post(operation: str, arguments: dict[str, Any], reply: Deferred[Any]) -> None:
            self._waiting.append((near, far, operation, arguments, reply))

        return post

    def touch(self, name: str) -> RoutedNode:
        """Return a node that is about to be changed."""
        self._busy[name] = None
        return self.nodes[name]

    def settle(self, show: Show = ignore) -> None:
        """Pass on requests until nobody has anything to announce."""
        while self._busy or self._waiting:
            show(f"{self.requests:,} requests, {self.entries:,} entries in tables")
            busy, self._busy = self._busy, {}
            for name in busy:
                self.nodes[name].work()
            for _ in range(len(self._waiting)):
                near, far, operation, arguments, reply = self._waiting.popleft()
                self.requests += 1
                told = self.touch(far).hear(near, operation, TableChange(**arguments))
                reply.resolve(told)
                self._busy[near] = None
        assert not any(node.is_due for node in self.nodes.values()), "a node has something left to announce"

    def publish(self, event: Event, at: str) -> tuple[list[str], int]:
        """Send an event along the tables; return the nodes it came to that want it, and the links passed."""
        reached: list[str] = []
        passed = 0
        ways = [(at, "")]
        while ways:
            name, source = ways.pop()
            node = self.nodes[name]
            if node.wants(event):
                reached.append(name)
            for far, link in node.links.items():
                if far != source and link.table.wants(event):
                    passed += 1
                    ways.append((far, name))
        return reached, passed

    @property
    def entries(self) -> int:
        """Entries of all tables."""
        return sum(len(link.table) for node in self.nodes.values() for link in node.links.values())

    @property
    def unmerged(self) -> int:
        """Entries that they would have if nothing was merged."""
        links = [link for node in self.nodes.values() for link in node.links.values()]
        return sum(link.announcer.covering.unmerged for link in links)


class Oracle:
    """Knows every subscription, and the tree."""

    def __init__(self, edges: Iterable[tuple[str, str]]) -> None:
        beside: dict[str, list[str]] = {}
        for one, other in edges:
            beside.setdefault(one, []).append(other)
            beside.setdefault(other, []).append(one)
        start = next(iter(beside))
        self._above: dict[str, str] = {}
        order = [start]
        for name in order:
            for other in beside[name]:
                if other != self._above.get(name):
                    self._above[other] = name
                    order.append(other)
        self._upwards = order[:0:-1]

    def links_needed(self, ends: Iterable[str]) -> int:
        """Return how many links join these nodes: those with some of them on either side."""
        counts = dict.fromkeys(ends, 1)
        total = len(counts)
        needed = 0
        for name in self._upwards:
            count = counts.get(name, 0)
            if count:
                needed += count < total
                above = self._above[name]
                counts[above] = counts.get(above, 0) + count
        return needed


def random_tree(random: Random, count: int) -> list[tuple[str, str]]:
    """Return the links that are used, of nodes that have joined one after the other at random places."""
    names = [f"n{number:05}" for number in range(count)]
    edges: set[Edge] = set()
    for number in range(1, count):
        for place in random.sample(range(number), min(number, LINKS_EACH)):
            edges.add((random.randrange(1 << 40), names[place], names[number]))
    return [(one, other) for _, one, other in spanning_tree(edges)]


def overlay_routes(seed: int, nodes: int, show: Show = ignore) -> RoutesVerdict:
    """Let nodes announce what they want, and send events; AssertionError if one does not arrive."""
    random = Random(seed)
    edges = random_tree(random, nodes)
    network, oracle = RoutedNetwork(edges), Oracle(edges)
    names = sorted(network.nodes)
    types = [f"t{number}" for number in range(nodes)]
    weights = list(accumulate(1 / rank for rank in range(1, len(types) + 1)))
    advertisers = {kind: random.sample(names, min(ADVERTISERS, nodes)) for kind in types}
    everywhere = random.sample(names, max(1, min(UNLIMITED, nodes // 4)))
    for kind, some in advertisers.items():
        for name in some:
            network.touch(name).advertise(f"type = '{kind}'")
    for name in everywhere:
        network.touch(name).advertise("")
    network.settle(show)
    show(f"{nodes:,} nodes have offered {len(types):,} types: {network.requests:,} requests")
    wanted = nodes * SUBSCRIPTIONS_EACH
    filters: dict[str, Filter] = {}
    for number in range(wanted):
        kind = random.choices(types, cum_weights=weights)[0]
        bound = random.randrange(BOUNDS)
        text = f"type = '{kind}' AND value >= {bound / BOUNDS}" if bound else f"type = '{kind}'"
        network.touch(random.choice(names)).subscribe(number, filters.setdefault(text, Filter(text)))
    network.settle(show)
    deliveries = passed = needed = 0
    for number in range(EVENTS):
        kind = random.choices(types, cum_weights=weights)[0]
        at = random.choice(everywhere if random.random() < 0.1 else advertisers[kind])
        event = Event(kind, {"value": random.random()})
        reached, links = network.publish(event, at)
        due = [name for name in names if network.nodes[name].wants(event)]
        assert sorted(reached) == due, f"{event} of {at} came to {reached}, and is wanted at {due}"
        deliveries += len(due)
        passed += links
        needed += oracle.links_needed([at, *due])
        if number % (EVENTS // 4) == EVENTS // 4 - 1:
            show(f"{number + 1:,} events over {passed:,} links, {needed:,} needed")
    return RoutesVerdict(
        seed=seed,
        nodes=nodes,
        subscriptions=wanted,
        filters=len(filters),
        entries=network.entries,
        unmerged=network.unmerged,
        flooded=nodes * len(filters),
        requests=network.requests,
        events=EVENTS,
        deliveries=deliveries,
        passed=passed,
        needed=needed,
    )

"""Account of the events that cross nodes, and the watch over what each of these nodes has on its disk.

At each delivery: the event was published and is unchanged, the subscription wants it, it has not had it (if
it is durable: not unmarked), and the events of a publisher come in its order, those that are stored and the
transient ones each by themselves. On each disk an event is stored at most once, save what comes again for a
neighbour. At the end each reliable
event that a durable subscription was promised has arrived there.

A promise begins where the subscription is *in force*: the table of its node there, and at each hop between,
covers its filter on the disk and in memory, and so does what the hop before has announced last; and each hop
knows that as its way back to the subscription. Or its own node has replied that it is. From then on only the
subscription's end may take that back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from tidings.event import Batch, Event
from tidings.event.relayed import was_had
from tidings.filters import Filter
from tidings.ids import Origin
from tidings.overlay.table import TABLE, TableEntry
from tidings.protocol.broker import Broker
from tidings.protocol.service import Service
from tidings.protocol.subscriber import Wanted
from tidings.simulator.account import EventIdentity
from tidings.simulator.node import SimulatedNode
from tidings.simulator.watch import DiskWatch
from tidings.store.interface import Append, DropRecord, Operation, SetRecord, StoredBatch, StoreState

READ_MAX = 1 << 30


class SubscriptionAccount:
    """Account of one subscription, over all lives of its application."""

    def __init__(self, name: str, wanted: Wanted, node: str) -> None:
        self.name = name
        self.wanted = wanted
        self.node = node
        self.filter = Filter(wanted.filter)
        self.is_open = False  # the node has confirmed it
        self.promising: set[str] = set()  # nodes where it is in force
        self.promised: dict[EventIdentity, None] = {}
        self.had: Counter[EventIdentity] = Counter()
        self.marked = 0
        self._last: dict[tuple[str, int, bool], int] = {}  # counter, in this life of its application

    @property
    def is_durable(self) -> bool:
        """Whether it outlives its application."""
        return self.wanted.durable is not None

    def begin(self) -> None:
        """Begin a new life of its application."""
        self._last = {}

    def delivered(self, identity: EventIdentity, event: Event, redelivered: bool) -> None:
        """Check and note the delivery of an event that was published."""
        assert self.filter.matches(event), f"{self.name} got {identity}, which it does not want"
        is_transient = event.delivery == "transient"
        may_repeat = redelivered and self.is_durable  # a transient one too, if it is stored for who spills
        assert may_repeat or identity not in self.had, f"{self.name} got {identity} twice"
        system, epoch, counter = identity
        last = self._last.get((system, epoch, is_transient), 0)
        assert counter > last, f"{self.name} got {identity} after {last}"
        self._last[system, epoch, is_transient] = counter
        self.had[identity] += 1
        self.marked += redelivered


class OverlayAccount:
    """Account of all events and subscriptions in a simulation."""

    def __init__(self, nodes: dict[str, SimulatedNode]) -> None:
        self._nodes = nodes
        self.places: dict[str, str] = {}  # applications, each with its node
        self.events: dict[EventIdentity, Event] = {}
        self.taken: dict[EventIdentity, None] = {}  # those that were accepted
        self.subscriptions: list[SubscriptionAccount] = []
        self.ended: list[SubscriptionAccount] = []

    def subscribe(self, name: str, wanted: Wanted, node: str) -> SubscriptionAccount:
        """Note that an application subscribes at a node."""
        self.subscriptions.append(SubscriptionAccount(name, wanted, node))
        return self.subscriptions[-1]

    def end(self, subscription: SubscriptionAccount) -> None:
        """Note that a subscription is wanted no longer: from now on nothing is promised to it."""
        self.subscriptions.remove(subscription)
        self.ended.append(subscription)

    def died(self, node: SimulatedNode) -> None:
        """Note that a node is dead: nothing is promised to its subscriptions, nor of what it has accepted.

        What had left it arrives everywhere, or nowhere: events of a publisher have no gaps.
        """
        for one in [one for one in self.subscriptions if one.node == node.name]:
            self.end(one)
        for one in self.subscriptions:
            one.promised = {
                identity: None for identity in one.promised if self.places[identity[0]] != node.name
            }

    def published(self, identity: EventIdentity, event: Event) -> None:
        """Note that an event is being published, and to which subscriptions it is promised."""
        self.events[identity] = event
        node = self.places[identity[0]]
        if event.delivery != "transient":
            for one in self.subscriptions:
                if one.is_durable and one.filter.matches(event) and self._is_in_force(one, node):
                    one.promised[identity] = None

    def accepted(self, identity: EventIdentity) -> None:
        """Note that the node has accepted an event."""
        self.taken[identity] = None

    def delivered(self, one: SubscriptionAccount, event: Event, redelivered: bool) -> EventIdentity:
        """Check and note a delivery."""
        assert event.origin is not None
        identity = event.origin.system or "", event.origin.epoch, event.counter
        sent = self.events.get(identity)
        assert sent is not None, f"{one.name} got {identity}, which nobody published"
        assert event.values == sent.values, f"{one.name} got {identity} changed"
        one.delivered(identity, event, redelivered)
        return identity

    # Promises

    def _is_in_force(self, one: SubscriptionAccount, node: str) -> bool:
        if node not in one.promising and one.is_open and self._reaches(one, node):
            one.promising.add(node)
        return node in one.promising

    def _reaches(self, one: SubscriptionAccount, node: str) -> bool:
        """Whether all tables on the way from a subscription to a node cover its filter."""
        here, there = self._nodes[one.node], self._nodes[node]
        home = here
        known = {other.broker.node: other for other in self._nodes.values() if other.is_up}
        for _ in self._nodes:
            if here is there:
                return True
            if not (here.is_up and there.is_up):
                return False
            following = known.get(here.core.overlay.topology.way(there.broker.node) or "")
            if following is None or not _is_announced(one.filter, here, following):
                return False
            if following.core.overlay.topology.way(home.broker.node) != here.broker.node:
                return False  # what it has is not for the subscription: the nodes know other trees for now
            here = following
        return False

    # Final checks

    def missing(self) -> list[str]:
        """Name the events that were promised and accepted, and did not come."""
        return [
            f"{one.name} at {one.node} misses {identity} of {self.places[identity[0]]}"
            for one in self.subscriptions
            for identity in one.promised
            if identity in self.taken and identity not in one.had
        ]

    def check_log(self, node: SimulatedNode) -> None:
        """Check that the log of a node has each persistent event that was accepted there, and no other."""
        logged: Counter[EventIdentity] = Counter()
        for stored in node.core.history.batches(1, READ_MAX, Filter("")):
            if stored.persistent:
                logged.update(_identities(stored))
        for identity, event in self.events.items():
            least = most = 0
            if event.delivery == "persistent" and self.places[identity[0]] == node.name:
                least, most = int(identity in self.taken), 1
            count = logged[identity]
            assert least <= count <= most, f"{identity} is {count} times in the log of {node.name}"


def _is_announced(filter: Filter, near: SimulatedNode, far: SimulatedNode) -> bool:
    """Whether one node has announced a filter to a neighbour for good."""
    there = next((one for one in far.core.overlay if one.node == near.broker.node), None)
    here = next((one for one in near.core.overlay if one.node == far.broker.node), None)
    if there is None or there.table is None or here is None or not isinstance(far.watch, OverlayWatch):
        return False
    tables: Sequence[Iterable[str]] = (
        far.watch.table(near.broker.node),
        there.table.entries,
        [str(announced.filter) for announced in here.announcer.covering],
    )
    return all(any(Filter(text).covers(filter) for text in table) for table in tables)


def _identities(stored: StoredBatch) -> list[EventIdentity]:
    batch = Batch(stored.raw, Origin(stored.system, stored.epoch, stored.source))
    return [(stored.system or "", stored.epoch, event.counter) for event in batch]


class Trimming(Service):
    """Has the stored stream trimmed each time that so many positions were passed, few or many."""

    def __init__(self, broker: Broker, after: int) -> None:
        self._broker = broker
        self._after = after

    def finish_tick(self) -> None:
        """Trim, if there is enough."""
        for operation in self._broker.cursors.trim(self._after):
            self._broker.store(operation)


class OverlayWatch(DiskWatch):
    """Account of the events and tables on the disk of one node; `trim_after` makes it trim early."""

    def __init__(self, trim_after: int) -> None:
        super().__init__()
        self.node: SimulatedNode | None = None  # set once it is there
        self._trim_after = trim_after
        self._stored: dict[EventIdentity, int] = {}
        self._tables: dict[str, dict[str, TableEntry]] = {}

    def table(self, node: str) -> list[str]:
        """Return the filters on the disk that a neighbour wants."""
        return [entry.filter for entry in self._tables.get(node, {}).values()]

    def started(self, state: StoreState) -> None:
        """Begin a life of the node with what its disk has, also what was not reported as synced."""
        if self.node is not None:
            for batch in self.node.store.read(self.position + 1, READ_MAX):
                if batch.first > self.position:
                    self._note(batch)
        super().started(state)
        self._tables = {}
        for (node, key), entry in TABLE.known(state).items():
            self._tables.setdefault(node, {})[key] = entry

    def join(self, broker: Broker) -> None:
        """Have the broker trim early."""
        broker.add(Trimming(broker, self._trim_after))

    def synced(self, commits: Iterable[Sequence[Operation]]) -> None:
        """Note that the disk has these; no event may be among them that it has."""
        taken = list(commits)
        for operation in (one for operations in taken for one in operations):
            if isinstance(operation, Append):
                self._note(operation.batch)
            elif isinstance(operation, SetRecord | DropRecord):
                self._change(operation)
        super().synced(taken)

    def _note(self, batch: StoredBatch) -> None:
        if was_had(batch.provenance):
            return
        for position, identity in enumerate(_identities(batch), batch.first):
            known = self._stored.setdefault(identity, position)
            assert known == position, f"{identity} is stored twice, at {known} and {position}"

    def _change(self, operation: SetRecord | DropRecord) -> None:
        key = TABLE.key_of(operation)
        if key is None:
            return
        table = self._tables.setdefault(key[0], {})
        if isinstance(operation, SetRecord):
            table[key[1]] = msgspec.msgpack.decode(operation.value, type=TableEntry)
        else:
            table.pop(key[1], None)

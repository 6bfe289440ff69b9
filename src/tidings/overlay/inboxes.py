"""Answers on their way to inboxes at other nodes.

The name of an inbox says at which node it is (`protocol/inboxes.py`), and the tree says through which
neighbour that node is reached. So an answer goes to one neighbour at each hop, whatever the tables of the
neighbours match, and filters for inboxes are in no table. On its way it is for nobody else: subscribers at
the nodes in between do not receive it. An event may be ahead of the record by which its first node gets into
the tree; until that comes, answers go back the way that the event has come.

If no way leads to the node, the answerer's publication is refused. A reliable answer waits for a link that is
cut; a transient one is refused if that is the first link of the way, and lost if it is a later one.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidings.event import Batch, Event
from tidings.event.relayed import RelayedBatch
from tidings.exchange import NodeSubscription, Rows
from tidings.filters import Filter
from tidings.overlay.neighbours import KnownNeighbours, Neighbour, rights_of
from tidings.overlay.topology import Topology
from tidings.protocol.broker import Broker
from tidings.protocol.inboxes import NODE_INBOX, NODE_INBOXES, InboxAddress

NEWCOMERS_MAX = 1_000
"""Nodes that are not in the tree and whose events have come."""


class InboxRoutes:
    """Ways to the inboxes at other nodes, as the tree has them."""

    def __init__(self, broker: Broker, known: KnownNeighbours, topology: Topology) -> None:
        self._broker = broker
        self._known = known
        self._topology = topology
        self._came_by: dict[str, str] = {}  # of nodes that are not in the tree yet: the neighbour

    def came_by(self, node: str, neighbour: str) -> None:
        """Note by which neighbour an event came of a first node that is not in the tree."""
        if len(self._came_by) < NEWCOMERS_MAX:
            self._came_by[node] = neighbour

    def problem(self, address: InboxAddress, event: Event) -> str:
        """Return why an answer that is published here can't be sent to this address; empty if it can."""
        if address.node == self._broker.node:
            return ""
        neighbour = self._way(address.node)
        node = self._topology.name_of(address.node) or address.node
        if neighbour is None:
            return f"no way leads to node {node!r}, where the request comes from"
        if not self._may_have(neighbour, event):
            return f"node {neighbour.name!r}, on the way to {node!r}, may not subscribe to this"
        if event.delivery == "transient" and not neighbour.is_up:
            return f"the link to {neighbour.name!r}, on the way to node {node!r}, is cut"
        return ""

    def routed(
        self,
        batch: Batch,
        addresses: Mapping[int, InboxAddress],
        matches: list[tuple[NodeSubscription, Rows]],
        is_stored: bool,
    ) -> list[tuple[NodeSubscription, Rows]]:
        """Return the matches of a batch, with answers to these addresses on their ways and nowhere else."""
        of_links = {cursor.subscription: set[int]() for cursor in self._known.cursors}
        not_here: set[int] = set()
        for row, address in addresses.items():
            if isinstance(batch, RelayedBatch) and not self._is_here(address):
                not_here.add(row)
            if address.node == self._broker.node:
                problem = "former" if row in not_here else ""
            else:
                neighbour, problem = self._onward(batch, row, address)
                if neighbour is not None and neighbour.cursor is not None:
                    of_links[neighbour.cursor.subscription].add(row)
            if problem and not is_stored:
                self._broker.count("answers_dropped", reason=problem)
        routed: list[tuple[NodeSubscription, Rows]] = []
        for subscription, rows in matches:
            if subscription in of_links:
                onward = of_links.pop(subscription)
                rows = sorted(onward.union(int(row) for row in rows if row not in addresses))
            elif not_here:
                rows = [row for row in rows if row not in not_here]
            if len(rows):
                routed.append((subscription, rows))
        return routed + [(subscription, sorted(rows)) for subscription, rows in of_links.items() if rows]

    def _is_here(self, address: InboxAddress) -> bool:
        """Whether an inbox was named by this node, since its start."""
        return address == (self._broker.node, str(self._broker.epoch))

    def _onward(self, batch: Batch, row: int, address: InboxAddress) -> tuple[Neighbour | None, str]:
        """Return the neighbour to which an answer goes on, or why it goes nowhere."""
        neighbour = self._way(address.node)
        if neighbour is None:
            return None, "no-way"
        if not self._may_have(neighbour, batch[row]):
            return None, "not-allowed"
        if isinstance(batch, RelayedBatch) and self._topology.way(batch.first.node) == neighbour.node:
            return None, "no-way"  # it has come from there
        return neighbour, ""

    def _way(self, node: str) -> Neighbour | None:
        way = self._topology.way(node)
        if way is not None:
            self._came_by.pop(node, None)
        neighbour = self._known.get(way or self._came_by.get(node, ""))
        return neighbour if neighbour is not None and neighbour.is_in_tree else None

    def _may_have(self, neighbour: Neighbour, event: Event) -> bool:
        principal = rights_of(self._broker, neighbour)
        return principal.rules is None or principal.reach(Filter()).matches(event)


def is_for_inboxes(filter: Filter) -> bool:
    """Whether a filter matches answers to inboxes with a node in their names, and nothing else."""
    return NODE_INBOX in str(filter) and NODE_INBOXES.covers(filter)

"""Bereavement: gaps in the events of nodes that are gone for good, when more than `tolerate` are.

An event is kept until all nodes behind a link have it, so one that dies takes with it only what no other node
has had. If those died too from which this node took its events, others that live may have had some that were
still to come here, and nobody is left who keeps them for this node. So the nodes tell each other up to which
number they have had the events of those that are gone. A node that has had fewer notes a gap, if the
neighbour from which it took them is gone, too; else that neighbour knows that there was nothing for it. A
neighbour of the first node itself notes none: what that had stored and not sent was not held by any other.

    more than `tolerate` nodes are out of the tree ──► link.last to all neighbours ──► the highest goes on
                                                                                  └──► a gap, where it is one

What comes after all, since one of them is back, is in the gap and so marked as late (`protocol/missed.py`).
"""

from __future__ import annotations

from msgspec import Struct

from tidings.overlay.neighbours import KnownNeighbours, Later, Neighbour
from tidings.overlay.topology import Topology
from tidings.protocol.broker import Broker
from tidings.protocol.missed import MissedRange

SETTLE_S = 5.0
"""How long after nodes have left the tree the others tell each other what they have had of them."""
LASTS_MAX = 500
"""Nodes of which one message tells the last numbers."""


class LastNumber(Struct, frozen=True, array_like=True):
    """Number up to which events of a node were had, in its last epoch."""

    node: str
    epoch: int
    number: int

    @property
    def order(self) -> tuple[int, int]:
        """By which two of one node are compared."""
        return self.epoch, self.number


class LastRequest(Struct, frozen=True):
    """The arguments of `link.last`."""

    lasts: list[LastNumber]


class Bereavement:
    """Nodes that one node has lost for good. More than `tolerate` of them must be gone at a time."""

    def __init__(
        self, broker: Broker, neighbours: KnownNeighbours, topology: Topology, later: Later, tolerate: int
    ) -> None:
        self._broker = broker
        self._neighbours = neighbours
        self._topology = topology
        self._later = later
        self._tolerate = tolerate
        self._upstream: dict[str, str] = {}  # from which neighbour new events of a first node came last
        self._gone: set[str] = set()
        self._lasts: dict[str, LastNumber] = {}  # the highest that others have had, of nodes that are known

    def took(self, node: str, epoch: int, last: int, neighbour: str) -> None:
        """Note from which neighbour events of a first node come, if they are new."""
        if self._upstream.get(node) != neighbour and last > self._broker.relays.had_up_to(node, epoch):
            self._upstream[node] = neighbour

    def look(self) -> None:
        """Look which nodes are gone, as the tree is now."""
        tree = self._topology.tree
        gone = {record.node for record in self._topology.records if record.node not in tree}
        came, self._gone = gone - self._gone, gone
        self._lasts = {node: last for node, last in self._lasts.items() if self._is_known(node)}
        if came and len(gone) > self._tolerate:
            self._later(SETTLE_S, self._tell)
            self._judge()

    def _is_known(self, node: str) -> bool:
        return self._topology.name_of(node) is not None

    def _tell(self) -> None:
        """Tell all neighbours what was had of those that are gone."""
        if len(self._gone) > self._tolerate:
            had = [one for node in sorted(self._gone) if (one := self._had(node)) is not None]
            self._spread([max(one, self._lasts.get(one.node, one), key=_order) for one in had], None)

    def _had(self, node: str) -> LastNumber | None:
        epoch = self._broker.relays.first_epoch(node)
        return (
            None
            if epoch is None
            else LastNumber(node, epoch, int(self._broker.relays.had_up_to(node, epoch)))
        )

    def hear(self, neighbour: Neighbour, request: LastRequest) -> None:
        """Take what others have had, and pass on what is higher than known; of nodes in the tree nothing."""
        news = []
        for last in request.lasts[:LASTS_MAX]:
            known = self._lasts.get(last.node) or self._had(last.node)
            is_in_tree = last.node in self._topology.tree
            if is_in_tree or not self._is_known(last.node) or last.number < 0:
                self._broker.count("relays_refused", reason="gap")
            elif known is None or last.order > known.order:
                self._lasts[last.node] = last
                news.append(last)
        if news:
            self._judge()
            self._spread(news, neighbour)

    def _judge(self) -> None:
        """Note gaps in the events of nodes that are gone, with those from which they came."""
        for node, last in self._lasts.items():
            had = self._had(node)
            is_orphan = self._upstream.get(node) in self._gone - {node}
            if node in self._gone and is_orphan and had is not None:
                first = had.number + 1 if had.epoch == last.epoch else 1
                if last.order > had.order:
                    name = self._topology.name_of(node) or ""
                    count = last.number - first + 1
                    self._broker.missed.note(
                        MissedRange(node, last.epoch, first, last.number, count, (), name)
                    )

    def _spread(self, lasts: list[LastNumber], source: Neighbour | None) -> None:
        for start in range(0, len(lasts), LASTS_MAX):
            for call in self._neighbours.send(
                "link.last", {"lasts": lasts[start : start + LASTS_MAX]}, source
            ):
                call.then(_done, _done)  # one of an earlier release does not know it


def _order(last: LastNumber) -> tuple[int, int]:
    return last.order


def _done(_told: object) -> None: ...

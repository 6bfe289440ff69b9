"""Draining: how a node is taken out of its network before it stops, so that no other node waits for it.

Its links count as lost, so the tree goes round it, and its neighbours make links to each other where there is
no other way. When nothing passes through it any more it sends its clients the addresses of other nodes:
they leave when all other nodes have what they sent (`protocol/leaving.py`). Those with durable subscriptions
stay, as their places are stored here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidings.overlay.linking import Linking
from tidings.overlay.neighbours import KnownNeighbours
from tidings.overlay.topology import Topology
from tidings.protocol.broker import Broker
from tidings.protocol.frames import encode
from tidings.protocol.messages import Notice
from tidings.protocol.session import Session

PLACES_MAX = 8
"""Addresses that a client is sent."""
LEAVE_S = 5.0
"""How long clients that may leave are waited for, from when other nodes have all that is kept for them."""


class Draining:
    """Progress of a node that is taken out of its network; `is_of_use` judges addresses of others."""

    def __init__(
        self,
        broker: Broker,
        topology: Topology,
        neighbours: KnownNeighbours,
        linking: Linking,
        is_of_use: Callable[[str], bool],
    ) -> None:
        self._broker = broker
        self._topology = topology
        self._neighbours = neighbours
        self._linking = linking
        self._is_of_use = is_of_use
        self._notified: set[Session] = set()
        self._clear_since: float | None = None  # since when nothing passes, and nothing is kept for others
        self.has_begun = False

    def look(self, asking: Session) -> dict[str, Any]:
        """Return how far it is; once nothing passes through this node, send clients where to go."""
        between = self._topology.tree.neighbours
        kept = max((self._broker.position - one.released for one in self._neighbours.cursors), default=0)
        places = self.places()
        linked = {link.session for link, _ in self._linking}
        clients = [one for one in self._broker.sessions if one.is_let_in and one not in {*linked, asking}]
        passes = len(between) > 1
        if not passes and places:
            for session in clients:
                if session not in self._notified:
                    session.post(encode(Notice("drain", 0, {"places": places})))
            self._notified = set(clients)
        names = sorted(self._topology.name_of(one) or one for one in between)
        is_clear = not passes and not kept
        leaving = self._leaving(is_clear)
        return {
            "between": names if passes else [],
            "kept": kept,
            "clients": len(clients),
            "leaving": leaving,
            "places": places,
            "done": is_clear and not leaving,
        }

    def _leaving(self, is_clear: bool) -> int:
        """Return how many clients were sent elsewhere and may go, and are waited for."""
        now = self._broker.now
        self._clear_since = (now if self._clear_since is None else self._clear_since) if is_clear else None
        if self._clear_since is not None and now >= self._clear_since + LEAVE_S:
            return 0  # they wait for something else, or do not understand the notice
        return sum(not one.subscriptions.has_place for one in self._notified)

    def places(self) -> list[str]:
        """Return the addresses of neighbours, at which clients may go on: those in the tree first."""
        up = [one for one in self._neighbours if one.is_up]
        up.sort(key=lambda one: not one.is_in_tree)
        known = {record.node: record.address for record in self._topology.records}
        found = [known.get(one.node, "") for one in up]
        return [one for one in found if one and self._is_of_use(one)][:PLACES_MAX]

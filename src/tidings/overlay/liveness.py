"""Liveness of neighbours: the pings on the links of a node, sent and answered as those of every client."""

from __future__ import annotations

from tidings.overlay.neighbours import KnownNeighbours, Neighbour
from tidings.overlay.pinging import Pinging
from tidings.overlay.settings import OverlaySettings
from tidings.protocol.broker import Broker


class Liveness:
    """Pings on all links of a node. `pinging` has the round trips."""

    def __init__(self, broker: Broker, neighbours: KnownNeighbours, settings: OverlaySettings) -> None:
        self._broker = broker
        self._neighbours = neighbours
        self.pinging = Pinging(settings.ping_s)

    def link_up(self, neighbour: Neighbour) -> None:
        """A link is there."""
        link, node = neighbour.link, neighbour.node
        if link is not None:
            link.connection.on_pong = lambda number: self.pinging.answered(node, number, self._broker.now)
        self.pinging.link_up(node, self._broker.now)
        self._watch()

    def link_down(self, neighbour: Neighbour) -> None:
        """A link is gone."""
        self.pinging.link_down(neighbour.node)
        self._watch()

    def forget(self, neighbour: Neighbour) -> None:
        """A link was removed."""
        self.pinging.forget(neighbour.node)
        self._watch()

    def _watch(self) -> None:
        self._broker.timers.at(self.pinging.wake_at, self._wake)

    def _wake(self, now: float) -> None:
        for ping in self.pinging.wake(now):
            neighbour = self._neighbours.get(ping.neighbour)
            if neighbour is not None and neighbour.link is not None:
                neighbour.link.connection.ping(ping.number)
                neighbour.link.flush()
        self._watch()

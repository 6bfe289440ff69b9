"""Driver of a simulated node's outbound connections.

The host of an address is the name of its node. No node shows a certificate.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from tidings.peers.dialling import LOST, Dial, HangUp, LogEvent, OutboundConnection
from tidings.simulator.network import End
from tidings.transport.address import parse

if TYPE_CHECKING:
    from tidings.simulator.node import SimulatedNode


class SimulatedCalls:
    """Driver of a simulated node's outbound connections; each life of a node has its own."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._world = node.world
        self._dialling = node.core.dialling
        self._attempts: dict[OutboundConnection, Dial] = {}
        self._ends: dict[OutboundConnection, End] = {}
        self._outbound: dict[End, OutboundConnection] = {}

    @property
    def ends(self) -> Iterable[End]:
        """Near ends of all connections."""
        return self._outbound

    def carry_out(self) -> None:
        """Carry out the effects of the core."""
        for outbound in self._dialling.take_due():
            if outbound in self._ends:
                self.send(self._ends[outbound])
        for effect in self._dialling.take_effects():
            match effect:
                case Dial():
                    self._dial(effect)
                case HangUp(outbound):
                    self._hang_up(outbound)
                case LogEvent(_level, event, values):
                    self._world.note(self._node.name, event, *values.values())

    def _dial(self, dial: Dial) -> None:
        self._node.dialled += 1
        self._attempts[dial.outbound] = dial
        far = self._world.nodes[parse(dial.outbound.reach.address).host]
        link = self._world.network.link(self._node.name, far.name)
        self._world.network.connect(link, self._node, far, partial(self._answer, dial))

    def _answer(self, dial: Dial, end: End | None) -> None:
        outbound = dial.outbound
        if self._attempts.get(outbound) is not dial or not self._is_current:
            if end is not None:
                end.close()
            return
        del self._attempts[outbound]
        self._node.time()
        if end is None:
            outbound.lost("nobody answers")
        else:
            self._ends[outbound], self._outbound[end] = end, outbound
            outbound.answered(None)
        self._node.schedule()

    @property
    def _is_current(self) -> bool:
        return self._node.calls is self

    def _hang_up(self, outbound: OutboundConnection) -> None:
        self._attempts.pop(outbound, None)
        end = self._ends.pop(outbound, None)
        if end is not None:
            del self._outbound[end]
            end.close()

    # Called by the network

    def receive(self, end: End, data: bytes) -> None:
        """Pass bytes on to the outbound connection."""
        outbound = self._outbound.get(end)
        if outbound is not None:
            self._node.time()
            outbound.receive(data)
            self._node.schedule()

    def lost(self, end: End) -> None:
        """Report the loss of a connection to the core."""
        outbound = self._outbound.pop(end, None)
        if outbound is not None:
            del self._ends[outbound]
            self._node.time()
            outbound.lost(LOST)
            self._node.schedule()

    def send(self, end: End) -> None:
        """Send the output of a connection, unless it is paused."""
        if end in self._outbound and not end.is_paused:
            end.send(b"".join(self._outbound[end].output()))

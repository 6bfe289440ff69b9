"""A simulated gateway: its hub and its uplink between simulated networks and a simulated node.

It carries what the gateway's own driver carries: bytes of networks go into the hub, what that says goes out,
and a network that is held up for the sake of others, or of the node, is not read.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from tidings.gateway.gateway import Gateway
from tidings.gateway.hub import Clocks, Hub
from tidings.gateway.uplink import Uplink
from tidings.protocol.access import Caller
from tidings.simulator.client import SimulatedClient
from tidings.simulator.network import End
from tidings.simulator.node import STEP_S, SimulatedNode

if TYPE_CHECKING:
    from tidings.simulator.clock import Action
    from tidings.simulator.world import World

WAKE_S = 1.0
EPOCH_S = 1_800_000_000
"""The time of day at which a world begins, in seconds since 1970."""

_decode = msgspec.json.Decoder().decode


class SimulatedGateway(SimulatedClient):
    """One gateway, which is a client of its node; `to_networks` takes the connections of networks."""

    def __init__(self, world: World, name: str, node: SimulatedNode) -> None:
        self.core = Gateway(world.random.randbytes(16))
        self.said: Counter[str] = Counter()
        """Messages to networks, by their kind."""
        self.named = 0
        """Sensors that were named in them."""
        self._worked_s = 0.0
        super().__init__(world, name, node)
        self._uplink = Uplink(self.connection, self._complain)
        self._uplink.flush = self._uplink.flush_soon = self.pump
        clocks = Clocks(lambda: world.clock.now, lambda: EPOCH_S + world.clock.now, self._working_time)
        self.hub = Hub(self.core, self._uplink, self._soon, clocks, self._complain)
        self.to_networks = ToNetworks(self)
        world.clock.after(WAKE_S, self._look)

    def _working_time(self) -> float:
        """The clock of turns, which each look at it moves on."""
        self._worked_s += STEP_S
        return self._worked_s

    def _soon(self, act: Action) -> None:
        self.world.clock.after(0.0, act)

    def _complain(self, level: str, event: str, **values: object) -> None:
        assert level == "debug", f"{event}: {values}"

    def arrived(self) -> None:
        """The node may have taken something."""
        self._uplink.on_progress()

    def say(self, end: End, lines: bytes) -> None:
        """Tell a network something."""
        for line in lines.splitlines():
            ((kind, message),) = _decode(line).items()
            assert kind != "error", f"the gateway does not understand a network: {message}"
            self.said[kind] += 1
            self.named += len(message.get("sensors") or ())
        if end.is_open:
            end.send(lines)

    def _look(self) -> None:
        self.hub.wake()
        self.world.clock.after(WAKE_S, self._look)


class ToNetworks:
    """The side of a gateway where networks connect."""

    is_up = True

    def __init__(self, gateway: SimulatedGateway) -> None:
        self._gateway = gateway
        self._unread: dict[End, list[bytes]] = {}  # of those that are held up

    def connected(self, end: End) -> None:
        """A network has connected."""
        say, close, pause = (partial(act, end) for act in (self._gateway.say, _must_stay, self._pause))
        self._gateway.hub.opened(end, Caller("city", "city"), say, close, pause)

    def _pause(self, end: End, is_paused: bool) -> None:
        if is_paused:
            self._unread.setdefault(end, [])
            return
        for data in self._unread.pop(end, []):
            self.receive(end, data)

    def receive(self, end: End, data: bytes) -> None:
        """Bytes of a network have arrived."""
        if end in self._unread:
            self._unread[end].append(data)
        else:
            self._gateway.hub.feed(end, data)

    def lost(self, end: End) -> None:
        """The connection is gone; what was not read of it is read first, as of a socket."""
        for data in self._unread.pop(end, []):
            self._gateway.hub.feed(end, data)
        self._gateway.hub.closed(end)

    def resume(self, end: End) -> None:
        """What is said to networks is little, and does not wait."""


def _must_stay(end: End) -> None:
    raise AssertionError(f"no network gives a reason to close {end}")

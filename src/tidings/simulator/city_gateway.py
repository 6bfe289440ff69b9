"""A simulated gateway: its core between simulated networks and a simulated node, in virtual time.

It does what the gateway's own driver does: bytes of networks go in, readings go to the node as events, and
what the node says is demanded goes back as what each network is asked for.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from tidings.errors import TidingsError
from tidings.event import Batch
from tidings.gateway.effects import Advertise, Close, Effect, Say, Widen, Withdraw
from tidings.gateway.gateway import Gateway
from tidings.gateway.intake import Intake
from tidings.gateway.messages import Deregister, Error, Register, Sensing, encode
from tidings.gateway.networks import Caller
from tidings.gateway.reading import Mapper
from tidings.protocol.offer import Offer
from tidings.simulator.client import SimulatedClient
from tidings.simulator.network import End
from tidings.simulator.node import SimulatedNode

if TYPE_CHECKING:
    from tidings.simulator.world import World

WAKE_S = 1.0
EPOCH_S = 1_800_000_000
"""The time of day at which a world begins, in seconds since 1970."""


class SimulatedGateway(SimulatedClient):
    """One gateway, which is a client of its node; `to_networks` takes the connections of networks."""

    def __init__(self, world: World, name: str, node: SimulatedNode) -> None:
        self.core = Gateway(world.random.randbytes(16))
        self.to_networks = ToNetworks(self)
        self.said: Counter[str] = Counter()
        """Messages to networks, by their kind."""
        self.named = 0
        """Sensors that were named in them."""
        self._mapper = Mapper()
        self._demands: dict[int, Demand] = {}
        self._promises: deque[tuple[int, str, int, End]] = deque()  # counter, then what is acknowledged
        super().__init__(world, name, node)
        world.clock.after(WAKE_S, self._look)

    def take(self, end: End, said: Register | Deregister | Sensing | Error) -> None:
        """A network has said something."""
        now = self.world.clock.now
        match said:
            case Register():
                self.carry_out(self.core.registered(end, said, now))
            case Deregister():
                self.carry_out(self.core.deregistered(end, said, now))
            case Sensing():
                self._sense(end, said, now)
            case Error():
                raise AssertionError(f"the gateway does not understand a network: {said}")

    def _sense(self, end: End, message: Sensing, now: float) -> None:
        readings = self.core.sensing(end, message, now)
        if readings:
            moment_us = int((EPOCH_S + now) * 1e6)
            mapped = self._mapper.map([Sensing(message.sensing_id, readings)], 1, moment_us)
            assert not mapped.errors, mapped.errors
            counters = [self.connection.publish(event) for event in Batch(mapped.raw).events]
            if message.seq is not None:
                self._promises.append((counters[-1], message.sensing_id, message.seq, end))
        self.carry_out(self.core.said())
        self.pump()

    def arrived(self) -> None:
        """Acknowledge what the node has accepted."""
        accepted = self.connection.publications.accepted
        while self._promises and self._promises[0][0] <= accepted:
            _, sensing_id, seq, end = self._promises.popleft()
            self.carry_out(self.core.accepted(sensing_id, seq, end))

    def carry_out(self, effects: list[Effect]) -> None:
        """Do what is to be done, in order."""
        for effect in effects:
            match effect:
                case Say(End() as end, message):
                    self.said[type(message).__name__.lower()] += 1
                    self.named += len(getattr(message, "sensors", ()))
                    if end.is_open:
                        end.send(encode(message))
                case Advertise(number, filter) | Widen(number, filter):
                    self._advertise(number, filter)
                case Withdraw(number):
                    self._withdraw(self._demands.pop(number))
                case Say() | Close():
                    raise AssertionError(f"no network gives a reason for {effect}")
        self.pump()

    def _advertise(self, number: int, filter: str) -> None:
        """Advertise a filter; the one before it under that number is withdrawn once this one stands."""
        before = self._demands.get(number)
        demand = self._demands[number] = Demand(self, number)

        def advertised(_result: object, error: TidingsError | None) -> None:
            assert error is None, error
            if before is not None:
                self._withdraw(before)

        demand.offer = self.connection.advertise(filter, demand, advertised)

    def _withdraw(self, demand: Demand) -> None:
        assert demand.offer is not None
        self.connection.withdraw(demand.offer, lambda _result, _error: None)
        self.pump()

    def demanded(self, demand: Demand, filters: list[str]) -> None:
        """The node has said what is demanded; what it says of an advertisement that is replaced is old."""
        if self._demands.get(demand.number) is demand:
            self.carry_out(self.core.demanded(demand.number, filters))

    def _look(self) -> None:
        while self.core.wake_at <= self.world.clock.now:
            self.carry_out(self.core.wake(self.world.clock.now))
        self.world.clock.after(WAKE_S, self._look)


class Demand:
    """What the node says of one advertisement."""

    def __init__(self, gateway: SimulatedGateway, number: int) -> None:
        self.number = number
        self.offer: Offer | None = None
        self._gateway = gateway

    def changed(self, filters: list[str]) -> None:
        """These filters demand it now."""
        self._gateway.demanded(self, filters)

    def ended(self, reason: str) -> None:
        """Nobody ends an advertisement in a simulation."""
        raise AssertionError(f"advertisement {self.number} was ended: {reason}")


class ToNetworks:
    """The side of a gateway where networks connect."""

    is_up = True

    def __init__(self, gateway: SimulatedGateway) -> None:
        self._gateway = gateway
        self._intakes: dict[End, Intake] = {}

    def connected(self, end: End) -> None:
        """A network has connected."""
        self._intakes[end] = Intake()
        self._gateway.core.connected(end, Caller("city"))

    def receive(self, end: End, data: bytes) -> None:
        """Bytes of a network have arrived."""
        for said in self._intakes[end].feed(data):
            self._gateway.take(end, said)

    def lost(self, end: End) -> None:
        """The connection is gone."""
        del self._intakes[end]
        self._gateway.carry_out(self._gateway.core.lost(end, self._gateway.world.clock.now))

    def resume(self, end: End) -> None:
        """What is said to networks is little, and does not wait."""

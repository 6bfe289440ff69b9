"""Simulated city against a real gateway: thousands of networks in one process.

One timer wheel schedules all networks; there is no timer or task for each. Requests of the gateway are obeyed
at once: only readings in demand are sent, unless the load is to be sent always.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from random import Random

from msgspec import Struct

from tidings.errors import UserError
from tidings.sensors.city import CityNetwork, Load
from tidings.sensors.link import GatewayLink, GatewayPlace, sensing_id_of, wait_connected
from tidings.sensors.network import Heard, SendLine, SensorEffect, Switched, Troubled
from tidings.timers import Alarms

CONNECTING_MAX = 64
"""Connections that are being opened at the same time."""
LEASE_S = 60.0
"""Lease of networks that send datagrams."""
LEASE_LOOK_S = 1.0
"""Time between two wake-ups of a network that sends datagrams."""
CHUNK_MESSAGES = 512
"""Messages that are made in advance for each connection if they go as fast as they can."""
DATAGRAMS_PER_TURN = 64
IDLE_S = 0.05
TICK_S = 0.01
"""Time between two ticks of the wheel."""
CONNECT_S_MAX = 30.0
REPORT_S = 1.0


class CityTally(Struct):
    """Counters so far."""

    networks: int = 0
    connections: int = 0
    messages: int = 0
    readings: int = 0
    switched: int = 0
    heard: int = 0
    errors: int = 0
    unwanted: int = 0
    withheld: int = 0
    left: int = 0
    elapsed_s: float = 0.0
    last_error: str = ""


class Simulation:
    """Simulated city against a real gateway. `report` is called about once a second; `tally` is current."""

    def __init__(
        self, place: GatewayPlace, load: Load, report: Callable[[CityTally], None] | None = None
    ) -> None:
        if load.networks < 1 or load.sensors < 1 or load.readings < 1 or not load.types:
            raise UserError("a simulation needs at least one network, sensor, type and reading a message")
        self.tally = CityTally()
        self._place = place
        self._load = load
        self._report = report or (lambda _: None)
        self._random = Random(f"{load.seed}/churn")
        self._numbers = 0
        gate = asyncio.Semaphore(CONNECTING_MAX)
        wanted = min(load.connections or load.networks, load.networks)
        self.groups = [SensorGroup(self, place, gate) for _ in range(wanted)]
        """Connections, each with its networks."""
        self._begin = time.monotonic()
        self._timers = Alarms()

    async def run(self) -> CityTally:
        """Connect, send until the time is over, and deregister."""
        for index in range(self._load.networks):
            self.groups[index % len(self.groups)].add(self._new_network())
        tasks = [asyncio.ensure_future(group.link.run()) for group in self.groups]
        try:
            await wait_connected(self._is_connected, self._place, CONNECT_S_MAX)
            await self._work()
        finally:
            for group in self.groups:
                group.leave()
            self._report(self.tally)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self.tally

    def _is_connected(self) -> bool:
        return any(group.link.is_connected for group in self.groups)

    async def _work(self) -> None:
        self._begin = time.monotonic()
        self._schedule()
        flood = asyncio.ensure_future(self._flood()) if self._load.rate == 0 else None
        try:
            is_over, now = False, self._begin
            while not is_over:
                await asyncio.sleep(max(0.0, now + TICK_S - time.monotonic()))
                is_over = self._is_over() or bool(flood and flood.done())  # due actions are run even so
                now = time.monotonic()
                self.tally.elapsed_s = now - self._begin
                for act in list(self._timers.due(now)):  # actions added meanwhile come with the next tick
                    act(now)
        finally:
            if flood is not None:
                flood.cancel()
                await asyncio.gather(flood, return_exceptions=True)

    def _is_over(self) -> bool:
        limit_s = self._load.duration_s
        return limit_s is not None and time.monotonic() - self._begin >= limit_s

    def _schedule(self) -> None:
        """Schedule all networks, spread over one period, so that they don't send all at once."""
        begin = self._begin
        self._every(begin, REPORT_S, lambda _: self._report(self.tally))
        if self._load.rate:
            seats = [(group, seat) for group in self.groups for seat in range(len(group.networks))]
            for index, (group, seat) in enumerate(seats):
                start = begin + self._load.period_s * index / len(seats)
                self._every(start, self._load.period_s, partial(group.speak, seat))
        if self._place.udp:
            for index, group in enumerate(self.groups):
                start = begin + LEASE_LOOK_S * index / len(self.groups)
                self._every(start, LEASE_LOOK_S, group.wake)
        if self._load.churn:
            self._every(begin, 60.0 / self._load.churn, self._churn)

    def _every(self, start: float, period_s: float, act: Callable[[float], None]) -> None:
        """Schedule a periodic action; missed periods are not made up for."""
        due = start + period_s

        def again(now: float) -> None:
            nonlocal due
            due = max(due + period_s, now - 1.0)
            act(now)
            self._timers.at(due, again)

        self._timers.at(due, again)

    def _churn(self, now: float) -> None:
        """Replace a network by another; or break a connection, which is reopened."""
        group = self._random.choice(self.groups)
        self.tally.left += 1
        if self._random.random() < 0.5 and not self._place.udp:
            group.link.cut()
        else:
            group.replace(self._random.randrange(len(group.networks)), self._new_network(), now)

    def _new_network(self) -> CityNetwork:
        self._numbers += 1
        return CityNetwork(self._numbers, self._load, LEASE_S if self._place.udp else None)

    async def _flood(self) -> None:
        """Send on each connection as much as it takes."""
        while not self._is_over():
            sent = [group.flood() for group in self.groups if group.link.has_room]
            await asyncio.sleep(0 if any(sent) else IDLE_S)


class SensorGroup:
    """Connection, or socket for datagrams, and its networks."""

    def __init__(self, simulation: Simulation, place: GatewayPlace, gate: asyncio.Semaphore) -> None:
        self._tally = simulation.tally
        self._place = place
        self.link = GatewayLink(place, self, self._trouble, gate)
        self.networks: list[CityNetwork] = []
        self._by_id: dict[str, CityNetwork] = {}
        self._chunk: list[bytes] = []
        self._counts = (0, 0, 0)
        self._is_stale = True
        self._has_left = False

    def add(self, network: CityNetwork) -> None:
        """Add a network, before there is a connection."""
        self.networks.append(network)
        self._by_id[network.core.sensing_id] = network
        self._tally.networks += 1

    def replace(self, seat: int, network: CityNetwork, now: float) -> None:
        """Replace a network that leaves for good by another one."""
        old = self.networks[seat]
        self._retire(old)
        del self._by_id[old.core.sensing_id]
        self.networks[seat] = self._by_id[network.core.sensing_id] = network
        self._is_stale = True
        if self.link.is_connected:
            self._do(network, network.core.connect(now))

    def leave(self) -> None:
        """Deregister all networks."""
        self._has_left = True
        for network in self.networks:
            self._retire(network)

    def _retire(self, network: CityNetwork) -> None:
        self._tally.withheld += 0 if network.core.always else network.core.unwanted
        self._do(network, network.core.remove(list(network.core.sensors)))

    def speak(self, seat: int, now: float) -> None:
        """Send the next message of a network, if it is in demand and the connection takes it."""
        if not self.link.has_room:
            return
        message = self.networks[seat].message(stamp_of(int(time.time())), now)
        if message is not None:
            self.link.send(message.line.encode())
            self._count(1, message.readings, message.unwanted)

    def flood(self) -> bool:
        """Send messages made in advance; return whether there were any."""
        if self._is_stale:
            self._fill()
        for part in self._chunk:
            self.link.send(part)
        self._count(*self._counts)
        return bool(self._chunk)

    def _fill(self) -> None:
        rounds = max(1, CHUNK_MESSAGES // len(self.networks))
        if self._place.udp:
            rounds = max(1, DATAGRAMS_PER_TURN // len(self.networks))
        made = [network.message("", 0.0) for _ in range(rounds) for network in self.networks]
        messages = [message for message in made if message is not None]
        lines = [message.line.encode() for message in messages]
        self._chunk = lines if self._place.udp else [b"".join(lines)] if lines else []
        readings = sum(message.readings for message in messages)
        self._counts = len(messages), readings, sum(message.unwanted for message in messages)
        self._is_stale = False

    def _count(self, messages: int, readings: int, unwanted: int) -> None:
        self._tally.messages += messages
        self._tally.readings += readings
        self._tally.unwanted += unwanted

    def wake(self, now: float) -> None:
        """Renew leases."""
        for network in self.networks:
            self._do(network, network.core.wake(now))

    # Called by the link

    def connected(self) -> None:
        """Register all networks."""
        self._tally.connections += 1
        now = time.monotonic()
        for network in self.networks:
            self._do(network, network.core.connect(now))

    def disconnected(self) -> None:
        """Note that the connection is gone."""
        self._tally.connections -= not self._has_left
        for network in self.networks:
            network.core.disconnect()

    def heard(self, message: Heard) -> None:
        """Pass a message of the gateway to its network."""
        self._tally.heard += 1
        network = self._by_id.get(sensing_id_of(message) or "")
        if network is not None:
            self._do(network, network.core.hear(message, time.monotonic()))
        elif problem := getattr(message, "problem", None):
            self._trouble(problem, counts=True)

    def _do(self, network: CityNetwork, effects: list[SensorEffect]) -> None:
        for effect in effects:
            match effect:
                case SendLine():
                    self.link.send(effect.line)
                case Switched():
                    self._tally.switched += len(effect.names)
                    self._is_stale = True
                    network.switched()
                case Troubled():
                    self._trouble(effect.problem, counts=True)

    def _trouble(self, problem: str, counts: bool = False) -> None:
        self._tally.errors += counts
        self._tally.last_error = problem


_stamps: dict[int, str] = {}


def stamp_of(second: int) -> str:
    """Return a second in the form of readings; the last one is cached."""
    stamp = _stamps.get(second)
    if stamp is None:
        _stamps.clear()
        stamp = _stamps[second] = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return stamp

"""Simulated sensor networks, in a street or on a bus, and their gateway: the cores in virtual time.

A network measures periodically and sends the requested readings. A bus registers again whenever it enters
another district. Connections break, and are reopened with growing pauses.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from random import Random
from typing import Any

import msgspec

from tidings.gateway.gateway import Gateway
from tidings.gateway.hub import Clocks, Hub
from tidings.gateway.messages import Point, Sensor
from tidings.gateway.uplink import Uplink
from tidings.protocol.access import PeerInfo
from tidings.sensors.city import DAY_S, KINDS, MORNING_S, SIZE_M, Signal, Spot
from tidings.sensors.network import Ear, SendLine, SensorEffect, SensorNetwork, Troubled
from tidings.simulator.city_account import Box, CityAccount, MadeReading, OfferedSensor
from tidings.simulator.client import SimulatedClient
from tidings.simulator.node import STEP_S, SimulatedNode
from tidings.simulator.world import Conditions, End, World
from tidings.timers import Backoff

PERIOD_S = 1.0
"""Time between two measurements of a sensor."""
DISTRICT_M = SIZE_M / 10
SPEED = 15.0
"""Speed of a bus in metres per second."""
RETRY_S_MIN = 0.1
DELAY_S, JITTER_S = (0.005, 0.02, 0.06), (0.0, 0.01, 0.03)
SENSORS = 5
WAKE_S = 1.0
EPOCH_S = 1_800_000_000
"""Wall-clock time at which a world begins, in seconds since 1970."""

_decode = msgspec.json.Decoder().decode


class SimulatedGateway(SimulatedClient):
    """Gateway, a client of its node; `to_networks` accepts the connections of networks.

    It does what the gateway's own driver does: it feeds bytes of networks to the hub, sends the hub's output,
    and does not read from a network that the hub has paused, for the sake of other networks or of the node.
    """

    def __init__(self, world: World, name: str, node: SimulatedNode) -> None:
        self.core = Gateway(world.random.randbytes(16))
        self.messages: Counter[str] = Counter()
        """Number of messages to networks, by kind."""
        self.named = 0
        """Number of sensors named in these messages."""
        self._worked_s = 0.0
        super().__init__(world, name, node)
        self._uplink = Uplink(self.connection, self._complain)
        self._uplink.flush = self._uplink.flush_soon = self.pump
        clocks = Clocks(lambda: world.clock.now, lambda: EPOCH_S + world.clock.now, self._working_time)
        self.hub = Hub(self.core, self._uplink, partial(world.clock.after, 0.0), clocks, self._complain)
        self.to_networks = ToNetworks(self)
        world.clock.after(WAKE_S, self._look)

    def _working_time(self) -> float:
        """Clock of the turns; every call advances it."""
        self._worked_s += STEP_S
        return self._worked_s

    def _complain(self, level: str, event: str, **values: object) -> None:
        assert level == "debug", f"{event}: {values}"

    def arrived(self) -> None:
        """Let the uplink go on: the node may have accepted something."""
        self._uplink.on_progress()

    def say(self, end: End, lines: bytes) -> None:
        """Count and send messages to a network; an error message fails the run."""
        for line in lines.splitlines():
            ((kind, message),) = _decode(line).items()
            assert kind != "error", f"the gateway does not understand a network: {message}"
            self.messages[kind] += 1
            self.named += len(message.get("sensors") or ())
        if end.is_open:
            end.send(lines)

    def _look(self) -> None:
        self.hub.wake()
        self.world.clock.after(WAKE_S, self._look)


class ToNetworks:
    """Listener of a gateway for networks."""

    is_up = True

    def __init__(self, gateway: SimulatedGateway) -> None:
        self._gateway = gateway
        self._unread: dict[End, list[bytes]] = {}  # of networks that the hub has paused

    def connected(self, end: End) -> None:
        """Open a connection in the hub."""
        say, close, pause = (partial(act, end) for act in (self._gateway.say, _must_stay, self._pause))
        self._gateway.hub.opened(end, PeerInfo("city", "city"), say, close, pause)

    def _pause(self, end: End, is_paused: bool) -> None:
        if is_paused:
            self._unread.setdefault(end, [])
            return
        for data in self._unread.pop(end, []):
            self.receive(end, data)

    def receive(self, end: End, data: bytes) -> None:
        """Feed bytes of a network to the hub, or hold them while it is paused."""
        if end in self._unread:
            self._unread[end].append(data)
        else:
            self._gateway.hub.feed(end, data)

    def lost(self, end: End) -> None:
        """Close the connection in the hub, after feeding the bytes that were held, as a socket does."""
        for data in self._unread.pop(end, []):
            self._gateway.hub.feed(end, data)
        self._gateway.hub.closed(end)

    def resume(self, end: End) -> None:
        """Do nothing: messages to networks are few, and never wait."""


def _must_stay(end: End) -> None:
    raise AssertionError(f"no network gives a reason to close {end}")


class Station:
    """Sensor network, present until it leaves."""

    def __init__(self, world: World, number: int, gateway: SimulatedGateway, account: CityAccount) -> None:
        self.world = world
        self.gateway = gateway
        self.account = account
        self.is_gone = False
        self.moves = 0
        random = Random(f"{world.seed}/{number}")
        self.spot = Spot(random, SPEED if number % 4 == 0 else 0.0)
        self.is_numbered = not self.spot.moves and number % 3 == 0
        name = f"{'bus' if self.spot.moves else 'street'}-{number}"
        types = random.sample(list(KINDS), SENSORS)
        has_ranges = random.random() < 0.8
        self._area = self._around()
        self.core = SensorNetwork(
            name,
            [_sensor(type, has_ranges) for type in types],
            area=_corners(self._area),
            seq=0 if self.is_numbered else None,
        )
        self._signals = {
            sensor.name: Signal(KINDS[sensor.type], random) for sensor in self.core.sensors.values()
        }
        self._ear = Ear()
        self._end: End | None = None
        self._backoff = Backoff(world.random.random, RETRY_S_MIN)
        self.link = world.network.link(name, gateway.name)
        self.link.conditions = Conditions(random.choice(DELAY_S), random.choice(JITTER_S), 1e6, 1_500)
        account.troubles.begin(name, world.clock.now)
        self._connect()
        world.clock.after(random.uniform(0, PERIOD_S), self._measure)

    @property
    def name(self) -> str:
        """Sensing-id of the network."""
        return self.core.sensing_id

    # Faults and departure

    def cut(self) -> None:
        """Cut its connection; both sides notice in their own time."""
        self.world.note(self.name, "cut")
        self.account.troubles.begin(self.name, self.world.clock.now)
        self.world.network.cut(self.link)

    def leave(self) -> None:
        """Remove all sensors, and leave for good."""
        self.world.note(self.name, "left")
        self.is_gone = True
        self._do(self.core.remove(list(self.core.sensors)))
        self.core.disconnect()
        if self._end is not None:
            self._end.close()
            self._end = None

    # Connection

    def receive(self, end: End, data: bytes) -> None:
        """Pass messages of the gateway to the core."""
        if end is self._end:
            for message in self._ear.feed(data):
                self._do(self.core.hear(message, self.world.clock.now))

    def lost(self, end: End) -> None:
        """Note the loss of the connection, and reconnect after a pause."""
        if end is self._end:
            self._end = None
            self.core.disconnect()
            self._retry()

    def resume(self, end: End) -> None:
        """Do nothing: its messages never wait."""

    def _connect(self) -> None:
        if not self.is_gone:
            self.world.network.connect(self.link, self, self.gateway.to_networks, self._connected)

    def _connected(self, end: End | None) -> None:
        if self.is_gone or end is None:
            if end is not None:
                end.close()
            self._retry()
            return
        self._end, self._ear = end, Ear()
        self._backoff.reset()
        self.account.troubles.end(self.name, self.world.clock.now)
        self._do(self.core.connect(self.world.clock.now))

    def _retry(self) -> None:
        self.world.clock.after(self._backoff.next_s(), self._connect)

    def _do(self, effects: list[SensorEffect]) -> None:
        """Carry out effects, and note the readings that are really in a message."""
        for effect in effects:
            assert not isinstance(effect, Troubled), f"{self.name}: {effect}"
            if isinstance(effect, SendLine) and self._end is not None:
                readings = _decode(effect.line).get("sensing", {}).get("sensors", ())
                self.account.sent.update(reading["n"] for reading in readings)
                self._end.send(effect.line)

    # Measuring

    def _measure(self) -> None:
        """Measure with all sensors, and send the requested readings."""
        if self.is_gone:
            return
        now = self.world.clock.now
        self._drive(now)
        self._do(self.core.offer([self._reading(sensor, now) for sensor in self.core.sensors.values()], now))
        self.world.clock.after(PERIOD_S, self._measure)

    def _drive(self, now: float) -> None:
        self.spot.advance(PERIOD_S)
        area = self._around()
        if area != self._area:
            self.moves += 1
            self._area, self.core.area = area, _corners(area)
            self.account.troubles.pass_by(self.name, now)
            if self._end is not None:
                self._do(self.core.connect(now))  # register with the new area

    def _reading(self, sensor: Sensor, now: float) -> dict[str, Any]:
        value = self._signals[sensor.name].next((MORNING_S + now) % DAY_S)
        made = MadeReading(now, self.name, sensor.name, sensor.type, value, self.spot.x, self.spot.y)
        span = None if sensor.min_value is None else (KINDS[sensor.type].low, KINDS[sensor.type].high)
        number = self.account.measured(made, OfferedSensor(self.name, sensor.type, span, self._area))
        area = [{"x": self.spot.x, "y": self.spot.y}]
        return {"name": sensor.name, "type": sensor.type, "value": value, "area": area, "n": number}

    def _around(self) -> Box:
        """Return the area to register: its place, or the district that a bus is in."""
        x, y = self.spot.x, self.spot.y
        if not self.spot.moves:
            return x, y, x, y
        left, below = x // DISTRICT_M * DISTRICT_M, y // DISTRICT_M * DISTRICT_M
        return left, below, left + DISTRICT_M, below + DISTRICT_M


def _sensor(type: str, has_range: bool) -> Sensor:
    name, kind = type.rpartition(".")[2], KINDS[type]
    return Sensor(name, type, min_value=kind.low, max_value=kind.high) if has_range else Sensor(name, type)


def _corners(area: Box) -> list[Point]:
    left, below, right, above = area
    if area[:2] == area[2:]:
        return [Point(left, below)]
    return [Point(left, below), Point(right, below), Point(right, above), Point(left, above)]

"""A gateway between a node and networks that are plain dicts: effects are carried out, nothing is sent."""

from __future__ import annotations

from collections import deque

from tidings.filters import Filter
from tidings.gateway.effects import AdvertiseFilter, Close, GatewayEffect, SendMessage, Widen, Withdraw
from tidings.gateway.gateway import Gateway
from tidings.gateway.messages import (
    Deregister,
    GatewayMessage,
    Point,
    Reading,
    Register,
    Sensing,
    Sensor,
    SubscribeSensors,
    UnsubscribeSensors,
)
from tidings.gateway.networks import Key, NetworkCaller
from tidings.gateway.policy import Policy
from tidings.steps import finish

Range = tuple[float | None, float | None]


def is_known(gateway: Gateway, sensing_id: str, name: str) -> bool:
    """Whether a sensor is registered."""
    network = gateway._table.get(sensing_id)
    return network is not None and name in network.instruments


class World:
    """The node's advertisements and demands, and what each network has been told."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.gateway = Gateway(b"secret", policy)
        self.now = 0.0
        self.said: list[tuple[Key, GatewayMessage]] = []
        self.closed: list[Key] = []
        self.done: list[GatewayEffect] = []
        self.due: deque[GatewayEffect] = deque()
        self.offers: dict[int, Filter] = {}
        self.filters: list[str] = []
        self.on: dict[str, dict[str, Range]] = {}  # by network, the sensors that it was asked for

    def heard(self) -> list[GatewayMessage]:
        """What was said since the last time this was called."""
        said, self.said = self.said, []
        return [message for _, message in said]

    def connect(self, key: Key, host: str = "host", user: str = "") -> None:
        self.gateway.connected(key, NetworkCaller(host, user))

    def register(
        self, key: Key, sensing_id: str, *sensors: Sensor, area: list[Point] | None = None, **more: object
    ) -> None:
        message = Register(sensing_id, list(sensors), area=area, **more)  # type: ignore[arg-type]
        self.hear(key, message)

    def deregister(self, key: Key, sensing_id: str, *names: str) -> None:
        sensors = [Sensor(name) for name in names] or None
        self.hear(key, Deregister(sensing_id, sensors))
        known = self.on.get(sensing_id, {})
        for name in names or list(known):
            known.pop(name, None)

    def hear(self, key: Key, message: Register | Deregister) -> None:
        """A network says this, and the gateway does all that follows."""
        if isinstance(message, Register):
            finish(self.gateway.registering(key, message, self.now))
        else:
            finish(self.gateway.deregistering(key, message, self.now))
        self.carry_out(self.gateway.said())

    def lose(self, key: Key, *sensing_ids: str) -> None:
        self.carry_out(self.gateway.lost(key, self.now))
        for sensing_id in sensing_ids:
            self.on.pop(sensing_id, None)

    def sense(
        self, key: Key, sensing_id: str, *readings: Reading, seq: int | None = None, cookie: str | None = None
    ) -> list[Reading]:
        taken = self.gateway.sensing(key, Sensing(sensing_id, list(readings), seq, cookie), self.now)
        self.carry_out(self.gateway.said())
        return taken

    def demand(self, *filters: str) -> None:
        self.filters = list(filters)
        for number in list(self.offers):
            self._tell(number)

    def advance(self, to: float) -> None:
        """Let time pass, with every wake on its moment."""
        while self.gateway.wake_at <= to:
            self.now = max(self.now, self.gateway.wake_at)
            self.carry_out(self.gateway.wake(self.now))
        self.now = to

    def _tell(self, number: int) -> None:
        offered = self.offers[number]
        wanted = [text for text in self.filters if offered.overlaps(Filter(text))]
        self.carry_out(self.gateway.demanded(number, wanted))

    def carry_out(self, effects: list[GatewayEffect]) -> None:
        """Do what is to be done, in order; what the node answers to that comes behind all of it."""
        self.done += effects
        is_at_it = bool(self.due)
        self.due += effects
        while self.due and not is_at_it:
            match effect := self.due[0]:
                case SendMessage(key, message):
                    self.said.append((key, message))
                    self._obey(message)
                case AdvertiseFilter(number, filter) | Widen(number, filter):
                    assert isinstance(effect, Widen) == (number in self.offers)
                    self.offers[number] = Filter(filter)
                    self._tell(number)
                case Withdraw(number):
                    del self.offers[number]
                case Close(key, _):
                    self.closed.append(key)
            self.due.popleft()

    def _obey(self, message: GatewayMessage) -> None:
        match message:
            case SubscribeSensors(sensing_id, sensors):
                asked = {sensor.name: (sensor.min_value, sensor.max_value) for sensor in sensors}
                self.on.setdefault(sensing_id, {}).update(asked)
            case UnsubscribeSensors(sensing_id, sensors):
                for sensor in sensors:
                    self.on.get(sensing_id, {}).pop(sensor.name, None)


def names(sensors: list[Sensor]) -> list[str]:
    return [sensor.name for sensor in sensors]


def box(x_low: float, y_low: float, x_high: float, y_high: float) -> list[Point]:
    return [Point(x_low, y_low), Point(x_high, y_low), Point(x_high, y_high), Point(x_low, y_high)]

"""Registry: admission of networks, and the consequences when their sensors come and go.

A registration is first checked, beyond its form. Then each sensor is noted in the interest in it and in the
advertisements. A network may have thousands of sensors, so they are added and removed in steps. Between two
of these the network may go: nothing is added to one that is gone.

Networks that never registered are known by the readings they sent last, and are advertised by these. They can
get no requests.

For people there is a report: networks, sensors, why each is on, how far a network serves a filter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isfinite
from typing import Any, Literal

from msgspec import Struct

from tidings.errors import EventError
from tidings.event.values import check_type
from tidings.filters.intervals import EVERYTHING, NOTHING, Intervals
from tidings.gateway.advertisement import NetworkAdvertisements
from tidings.gateway.areas import AreaBox
from tidings.gateway.demand import Want
from tidings.gateway.effects import GatewayEffect
from tidings.gateway.interest import SensorInterest
from tidings.gateway.messages import NAME_LENGTH_MAX, SENSORS_MAX, Error, Reading, Register, Sensor
from tidings.gateway.networks import Instrument, Key, Network, NetworkCaller, Networks
from tidings.steps import Steps
from tidings.timers import Leases

COORDINATE_MAX = 1e15
"""Largest distance of a place from the origin."""
CHECKED_AT_ONCE = 100
"""Sensors that are checked in one step."""
STRANGERS_MAX = 10_000
"""Known networks that never registered; readings of more are accepted, but not advertised."""
TYPES_MAX = 20
"""Types of readings of one of them that are advertised."""
SILENT_S_MAX = 300.0
"""How long one of them is known after its last reading."""
ALL_SENSORS_MAX = 1_000_000
"""Sensors of all networks together."""
ADDED_AT_ONCE = 50
"""Sensors that are added or removed in one step."""


Served = Literal["full", "part", "none"]


class MessageRefusal(Exception):
    """A mistake in a message, and its member; the gateway makes an error message of it."""

    def __init__(self, member: str, problem: str) -> None:
        super().__init__(f"{member}: {problem}")
        self.member = member
        self.problem = problem

    def message(self, title: str, sensing_id: str) -> Error:
        """Return the error as it is sent to the network."""
        return Error(self.problem, f"$.{title}.{self.member}", sensing_id[:NAME_LENGTH_MAX])


def check_register(message: Register) -> Steps[None]:
    """Refuse an invalid registration."""
    _check_text("sensing-id", message.sensing_id)
    if not message.sensors:
        raise MessageRefusal("sensors", "a network has one sensor at least")
    if len(message.sensors) > SENSORS_MAX:
        raise MessageRefusal("sensors", f"{len(message.sensors)} sensors; at most {SENSORS_MAX} are allowed")
    for index, sensor in enumerate(message.sensors):
        _check_sensor(f"sensors[{index}]", sensor)
        if index % CHECKED_AT_ONCE == CHECKED_AT_ONCE - 1:
            yield
    for index, point in enumerate(message.area or ()):
        if not (abs(point.x) <= COORDINATE_MAX and abs(point.y) <= COORDINATE_MAX):
            raise MessageRefusal(f"area[{index}]", f"a place has coordinates up to {COORDINATE_MAX:g}")


def _check_sensor(place: str, sensor: Sensor) -> None:
    _check_text(f"{place}.name", sensor.name)
    try:
        check_type(sensor.type)
    except EventError as error:
        raise MessageRefusal(f"{place}.type", error.problem) from None
    low, high = sensor.min_value, sensor.max_value
    for member, value in (("min-value", low), ("max-value", high)):
        if isinstance(value, float) and not isfinite(value):
            raise MessageRefusal(f"{place}.{member}", "is no number")
    if low is not None and high is not None and low > high:
        raise MessageRefusal(f"{place}.min-value", f"{low} is more than the max-value {high}")


def is_type(text: str) -> bool:
    """Whether events may have this type; readings of others are refused when they become events."""
    try:
        check_type(text)
    except EventError:
        return False
    return True


def _check_text(place: str, text: str) -> None:
    if not text:
        raise MessageRefusal(place, "is empty")
    if len(text) > NAME_LENGTH_MAX:
        raise MessageRefusal(place, f"{len(text)} characters; at most {NAME_LENGTH_MAX} are allowed")
    if not text.isprintable():
        raise MessageRefusal(place, "holds a control character")


class Unregistered(Struct, eq=False):
    """Network that never registered."""

    heard_at: float
    types: set[str] = set()


class UnregisteredNetworks:
    """All networks that never registered."""

    def __init__(self, offers: NetworkAdvertisements) -> None:
        self._offers = offers
        self._strangers: dict[str, Unregistered] = {}
        self._leases: Leases[str] = Leases(lambda one: self._strangers[one].heard_at + SILENT_S_MAX)

    def heard(self, sensing_id: str, types: Iterable[str], now: float) -> list[GatewayEffect]:
        """Note readings of these types."""
        stranger = self._strangers.get(sensing_id)
        if stranger is None:
            if len(self._strangers) >= STRANGERS_MAX:
                return []
            stranger = self._strangers[sensing_id] = Unregistered(now)
            self._leases.watch(sensing_id)
        stranger.heard_at = now
        effects: list[GatewayEffect] = []
        for type in types:
            if type not in stranger.types and len(stranger.types) < TYPES_MAX and is_type(type):
                stranger.types.add(type)
                effects += self._offers.add(type, None, None)
        return effects

    def forget(self, sensing_id: str, now: float) -> None:
        """Forget one that has registered, or was silent for too long, if it is known."""
        self._leases.cancel(sensing_id)
        stranger = self._strangers.pop(sensing_id, None)
        for type in stranger.types if stranger is not None else ():
            self._offers.remove(type, now)

    def wake(self, now: float) -> None:
        """Forget those that were silent for too long."""
        for sensing_id in self._leases.ended(now):
            self.forget(sensing_id, now)

    @property
    def wake_at(self) -> float:
        """Return when there is one to forget."""
        return self._leases.wake_at

    def __iter__(self) -> Iterator[tuple[str, Unregistered]]:
        return iter(self._strangers.items())


class NetworkRegistry:
    """Keeps networks, interest and advertisements in step."""

    def __init__(self, networks: Networks, interest: SensorInterest, offers: NetworkAdvertisements) -> None:
        self._networks = networks
        self._interest = interest
        self._offers = offers
        self._sensors = 0

    def find(self, sensing_id: str, caller: NetworkCaller, key: Key) -> Network | None:
        """Return the network of that id, if it is registered; refuse a caller to whom it does not belong."""
        network = self._networks.table.get(sensing_id)
        if network is not None and not network.belongs_to(key, caller):
            raise MessageRefusal("sensing-id", "belongs to someone else")
        return network

    def find_or_make(
        self, sensing_id: str, caller: NetworkCaller, keys: tuple[Key, Key], box: AreaBox | None, now: float
    ) -> Network:
        """Return the network of that id, or a new one; `keys`: where the caller sends, and is reached.

        It is refused to a caller to whom it does not belong, and if there is no room for one more.
        """
        network = self.find(sensing_id, caller, keys[0])
        if not self._networks.has_room(network, keys[1]):
            raise MessageRefusal("sensing-id", "there is no room for another network")
        return network or Network(sensing_id, caller, box, now, now)

    def add(self, network: Network, sensors: list[Sensor], effects: list[GatewayEffect]) -> Steps[None]:
        """Add the sensors that the network lacks; those it has stay as they are."""
        new = {sensor.name: sensor for sensor in sensors if sensor.name not in network.instruments}
        if len(network.instruments) + len(new) > SENSORS_MAX:
            raise MessageRefusal("sensors", f"a network has at most {SENSORS_MAX} sensors")
        if self._sensors + len(new) > ALL_SENSORS_MAX:
            raise MessageRefusal("sensors", "there is no room for more sensors")
        self._networks.add(network)
        for number, sensor in enumerate(new.values(), 1):
            if sensor.name not in network.instruments:
                self._add(network, sensor, effects)
            if number % ADDED_AT_ONCE == 0:
                yield
                if self._networks.table.get(network.sensing_id) is not network:
                    return

    def _add(self, network: Network, sensor: Sensor, effects: list[GatewayEffect]) -> None:
        instrument = Instrument(network.sensing_id, sensor, network.box)
        effects += self._offers.add(sensor.type, instrument.span, network.box)
        self._sensors += 1
        network.instruments[sensor.name] = instrument
        network.known[sensor.name] = sensor.type
        self._interest.add(instrument)

    def move(self, network: Network, box: AreaBox | None, effects: list[GatewayEffect]) -> Steps[None]:
        """Move the network; its sensors keep their requests until these change."""
        network.box = box
        for instrument in network.instruments.values():
            effects += self._offers.widen(instrument.type, instrument.span, box)
        yield from self._interest.move(network.instruments.values(), box)

    def meet(self, network: Network, readings: Iterable[Reading]) -> list[GatewayEffect]:
        """Advertise unregistered readings that a network sends, until the network goes."""
        effects: list[GatewayEffect] = []
        for reading in readings:
            stray = reading.name, reading.type
            if network.known.get(reading.name) == reading.type or not is_type(reading.type):
                continue
            has_room = len(network.strays) < SENSORS_MAX and self._sensors < ALL_SENSORS_MAX
            if stray not in network.strays and has_room:
                self._sensors += 1
                network.strays.add(stray)
                effects += self._offers.add(reading.type, None, None)
            if stray in network.strays:
                network.known.setdefault(*stray)
        return effects

    def retire(self, network: Network, names: Iterable[str], now: float) -> Steps[None]:
        """Remove sensors, ignoring unknown ones; with the last of them the network goes too."""
        for number, name in enumerate(list(names), 1):
            instrument = network.instruments.pop(name, None)
            if instrument is not None:
                self._sensors -= 1
                del network.known[name]
                self._interest.remove(instrument)
                self._offers.remove(instrument.type, now)
            if number % ADDED_AT_ONCE == 0:
                yield
        if not network.instruments and self._networks.table.get(network.sensing_id) is network:
            self._drop(network, now)

    def _drop(self, network: Network, now: float) -> None:
        for _, type in network.strays:
            self._sensors -= 1
            self._offers.remove(type, now)
        self._networks.drop(network)


# Reports for people


def describe(network: Network, interest: SensorInterest) -> Steps[dict[str, Any]]:
    """Describe a network with its sensors, the state of each, its request and the demanding filters."""
    sensors = []
    for one in list(network.instruments.values()):
        if one in interest:
            sensors.append(_described(one, interest))
            yield
    state = "lost" if network.key is None else "asked" if network.is_asked else "here"
    return {
        "sensing-id": network.sensing_id,
        "state": state,
        "owner": network.caller.user,
        "area": None if network.box is None else list(network.box),
        "sensors": sensors,
    }


def describe_stranger(sensing_id: str, stranger: Unregistered) -> dict[str, Any]:
    """Describe a network that never registered, and what it sends."""
    sensors = [{"type": type} for type in sorted(stranger.types)]
    return {"sensing-id": sensing_id, "state": "unregistered", "owner": "", "area": None, "sensors": sensors}


def _described(one: Instrument, interest: SensorInterest) -> dict[str, Any]:
    return {
        "name": one.name,
        "type": one.type,
        "range": None if one.span is None else list(one.span.ends),
        "on": one.is_on,
        "asked": None if one.asked is None or one.span is None else list(one.asked.ends),
        "filters": interest.why(one),
    }


def serves(wants: list[Want], sensors: Iterable[Instrument]) -> Served:
    """Fully: every reading that the filter wants, of whatever value and place, could come from these."""
    sensors = list(sensors)
    levels = {_level(want, sensors) for want in wants}
    if len(levels) == 1:
        return levels.pop()
    return "part" if levels else "none"


def _level(want: Want, sensors: list[Instrument]) -> Served:
    admitted = [one for one in sensors if _may_serve(want, one)]
    if not admitted:
        return "none"
    types = want.types.strings.points()  # if they are given in another way, some are surely not here
    everywhere = [one for one in admitted if one.box is None or one.box.covers(want.box)]
    is_full = types is not None and all(
        _serves_type(want, type, everywhere) for type in types if want.admits_type(type)
    )
    return "full" if is_full else "part"


def _may_serve(want: Want, one: Instrument) -> bool:
    return (
        want.admits_type(one.type)
        and want.admits_sensor(one.sensing_id, one.name, one.type, one.box)
        and want.clip(one.span) is not None
    )


def _serves_type(want: Want, type: str, admitted: list[Instrument]) -> bool:
    lines = [EVERYTHING if one.span is None else one.span.line for one in admitted if one.type == type]
    delivered: Intervals = NOTHING
    for line in lines:
        delivered = delivered.union(line)
    has_others = not want.takes_others or any(one.span is None and one.type == type for one in admitted)
    return has_others and bool(lines) and delivered.covers(want.numbers)

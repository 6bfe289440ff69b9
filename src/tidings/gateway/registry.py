"""The registry: what follows when sensors come and go, in the interest in them and in the advertisements.

A network may have thousands of sensors, so they are added and taken away in steps. Between two of these the
network may go: nothing is added to one that is not there.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidings.gateway.areas import Box
from tidings.gateway.checks import Refusal, is_type
from tidings.gateway.effects import Effect
from tidings.gateway.interest import Interest
from tidings.gateway.messages import SENSORS_MAX, Reading, Sensor
from tidings.gateway.networks import Caller, Instrument, Key, Network, Networks
from tidings.gateway.offers import Offers
from tidings.steps import Steps

ALL_SENSORS_MAX = 1_000_000
"""Sensors of all networks together."""
STEP = 50
"""Sensors that are added or taken away in one step."""


class Registry:
    """Keeps networks, interest and advertisements in step."""

    def __init__(self, networks: Networks, interest: Interest, offers: Offers) -> None:
        self._networks = networks
        self._interest = interest
        self._offers = offers
        self._sensors = 0

    def find_or_make(
        self, sensing_id: str, caller: Caller, keys: tuple[Key, Key], box: Box | None, now: float
    ) -> Network:
        """The network of that id, or a new one; `keys`: where the caller speaks, and where it is reached.

        It is refused to whom it does not belong, and where there is no room for one more.
        """
        network = self._networks.get(sensing_id)
        if network is not None and not network.belongs_to(keys[0], caller):
            raise Refusal("sensing-id", "belongs to someone else")
        if not self._networks.has_room(network, keys[1]):
            raise Refusal("sensing-id", "there is no room for another network")
        return network or Network(sensing_id, caller, box, now)

    def add(self, network: Network, sensors: list[Sensor], effects: list[Effect]) -> Steps[None]:
        """Add the sensors that the network has not got yet; those it has stay as they are."""
        new = {sensor.name: sensor for sensor in sensors if sensor.name not in network.instruments}
        if len(network.instruments) + len(new) > SENSORS_MAX:
            raise Refusal("sensors", f"a network has at most {SENSORS_MAX} sensors")
        if self._sensors + len(new) > ALL_SENSORS_MAX:
            raise Refusal("sensors", "there is no room for more sensors")
        self._networks.add(network)
        for number, sensor in enumerate(new.values(), 1):
            if sensor.name not in network.instruments:
                self._add(network, sensor, effects)
            if number % STEP == 0:
                yield
                if self._networks.get(network.sensing_id) is not network:
                    return

    def _add(self, network: Network, sensor: Sensor, effects: list[Effect]) -> None:
        instrument = Instrument(network.sensing_id, sensor, network.box)
        effects += self._offers.add(sensor.type, instrument.span, network.box)
        self._sensors += 1
        network.instruments[sensor.name] = instrument
        network.known[sensor.name] = sensor.type
        self._interest.add(instrument)

    def move(self, network: Network, box: Box | None, effects: list[Effect]) -> Steps[None]:
        """The network is somewhere else now; its sensors keep what they were asked for until that changes."""
        network.box = box
        for instrument in network.instruments.values():
            effects += self._offers.widen(instrument.type, instrument.span, box)
        yield from self._interest.move(network.instruments.values(), box)

    def meet(self, network: Network, readings: Iterable[Reading]) -> list[Effect]:
        """Advertise what a network sends readings of without having registered it, until the network goes."""
        effects: list[Effect] = []
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
        """Take sensors away, unknown ones passed over; with the last of them the network goes too."""
        for number, name in enumerate(list(names), 1):
            instrument = network.instruments.pop(name, None)
            if instrument is not None:
                self._sensors -= 1
                del network.known[name]
                self._interest.remove(instrument)
                self._offers.remove(instrument.type, now)
            if number % STEP == 0:
                yield
        if not network.instruments and self._networks.get(network.sensing_id) is network:
            self._drop(network, now)

    def _drop(self, network: Network, now: float) -> None:
        for _, type in network.strays:
            self._sensors -= 1
            self._offers.remove(type, now)
        self._networks.drop(network)

"""Coverage of subscriptions by sensors: whether what a filter wants can be measured by the known networks.

It is judged from the gateway's report on its networks, by the types, ranges and areas that these have given;
other conditions of a filter may be true of any reading. Networks that are lost serve nothing. Of one that
never registered only the types are known, so it serves a filter in part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from tidings.gateway.areas import AreaBox
from tidings.gateway.demand import Want, wants_of
from tidings.gateway.interest import read
from tidings.gateway.messages import Sensor
from tidings.gateway.network_registry import Served, serves
from tidings.gateway.networks import Instrument


class Coverage(Struct, frozen=True):
    """Service of a filter by all sensors together, and by each network that serves any of it."""

    filter: str
    served: Served
    networks: dict[str, Served]


class KnownSensors:
    """Sensors of a gateway's report."""

    def __init__(self, networks: Iterable[Mapping[str, Any]]) -> None:
        self._networks: dict[str, list[Instrument]] = {}
        self._unregistered: dict[str, list[str]] = {}  # the types that each of them sends
        for network in networks:
            sensing_id, state = network["sensing-id"], network.get("state")
            if state == "unregistered":
                self._unregistered[sensing_id] = [one["type"] for one in network["sensors"]]
            elif state != "lost":
                area = network.get("area")
                box = None if area is None else AreaBox(*area)
                self._networks[sensing_id] = [_sensor(sensing_id, one, box) for one in network["sensors"]]

    def coverage(self, text: str) -> Coverage:
        """Return how far a filter is served."""
        wants = wants_of(read(text), text)
        levels = {sensing_id: serves(wants, sensors) for sensing_id, sensors in self._networks.items()}
        for sensing_id, types in self._unregistered.items():
            levels[sensing_id] = (
                "part" if any(_may_send(want, sensing_id, types) for want in wants) else "none"
            )
        some: dict[str, Served] = {
            sensing_id: level for sensing_id, level in levels.items() if level != "none"
        }
        together = serves(wants, [one for id in some for one in self._networks.get(id, ())])
        served: Served = "part" if some and together == "none" else together
        return Coverage(text, served, some)


def _sensor(sensing_id: str, sensor: Mapping[str, Any], box: AreaBox | None) -> Instrument:
    low, high = sensor.get("range") or (None, None)
    return Instrument(sensing_id, Sensor(sensor["name"], sensor["type"], low, high), box)


def _may_send(want: Want, sensing_id: str, types: Iterable[str]) -> bool:
    return want.ids.admits(sensing_id) and any(want.admits_type(type) for type in types)

"""Report of a gateway for people: networks, sensors, why each is on, how far a network serves a filter."""

from __future__ import annotations

from typing import Any, Literal

from tidings.filters.intervals import EVERYTHING, NOTHING, Intervals
from tidings.gateway.demand import Want
from tidings.gateway.interest import SensorInterest
from tidings.gateway.network_registry import Unregistered
from tidings.gateway.networks import Instrument, Network
from tidings.steps import Steps

Served = Literal["full", "part", "none"]


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


def serves(wants: list[Want], network: Network) -> Served:
    """Fully: every reading that the filter wants, of whatever value and place, could come from there."""
    levels = {_level(want, network) for want in wants}
    if len(levels) == 1:
        return levels.pop()
    return "part" if levels else "none"


def _level(want: Want, network: Network) -> Served:
    admitted = [one for one in network.instruments.values() if _may_serve(want, one)]
    if not admitted:
        return "none"
    types = want.types.strings.points()  # if they are given in another way, some are surely not here
    is_full = (
        types is not None
        and all(_serves_type(want, type, admitted) for type in types if want.admits_type(type))
        and (network.box is None or network.box.covers(want.box))
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

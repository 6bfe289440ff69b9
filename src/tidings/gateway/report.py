"""What a gateway knows, for people: networks, sensors, and why each is on."""

from __future__ import annotations

from typing import Any

from tidings.gateway.interest import Interest
from tidings.gateway.networks import Instrument, Network
from tidings.gateway.registry import Stranger
from tidings.steps import Steps


def describe(network: Network, interest: Interest) -> Steps[dict[str, Any]]:
    """A network with its sensors, which of these are on, what they were asked for and by which filters."""
    sensors = []
    for one in list(network.instruments.values()):
        if one in interest:
            sensors.append(_described(one, interest))
            yield
    state = "lost" if network.key is None else "asked" if network.is_asked else "here"
    return {
        "sensing-id": network.sensing_id,
        "state": state,
        "owner": network.owner,
        "area": None if network.box is None else list(network.box),
        "sensors": sensors,
    }


def describe_stranger(sensing_id: str, stranger: Stranger) -> dict[str, Any]:
    """A network that never registered, and what it sends."""
    sensors = [{"type": type} for type in sorted(stranger.types)]
    return {"sensing-id": sensing_id, "state": "unregistered", "owner": "", "area": None, "sensors": sensors}


def _described(one: Instrument, interest: Interest) -> dict[str, Any]:
    return {
        "name": one.name,
        "type": one.type,
        "range": None if one.span is None else list(one.span.ends),
        "on": one.is_on,
        "asked": None if one.asked is None or one.span is None else list(one.asked.ends),
        "filters": interest.why(one),
    }

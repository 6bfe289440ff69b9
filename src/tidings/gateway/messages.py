"""Messages between sensor networks and the gateway: JSON objects with one member, their type.

`{"register": {…}}`, `{"deregister": {…}}` and `{"sensing": {…}}` come from a network; `subscribe`,
`unsubscribe`, `ack`, `error` and `redirect` go to it. Unknown members are ignored, so that either side may be
older than the other. An outgoing message is a Struct until it is sent: `encode` makes the line.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.json import Encoder

NAME_LENGTH_MAX = 255
"""Characters of a sensing-id, and of a sensor's name and type."""
SENSORS_MAX = 10_000
"""Sensors of one network, and in one message."""

Number = int | float


class Point(Struct, frozen=True, gc=False):
    """Place in the plane, in whatever unit the networks agree on."""

    x: float
    y: float


class Sensor(Struct, frozen=True, gc=False, rename="kebab", omit_defaults=True):
    """Sensor in a message: `min_value` and `max_value` are the range that it delivers, or that is requested.

    `deregister` and `unsubscribe` need its name only.
    """

    name: str
    type: str = ""
    min_value: Number | None = None
    max_value: Number | None = None
    max_rate: Number | None = None
    max_age_s: Number | None = None


class Reading(Struct, frozen=True, gc=False):
    """Measurement; an unknown place is no area."""

    name: str
    type: str
    value: Any = None
    timestamp: str | Number | None = None
    area: list[Point] | None = None


# Messages of networks


class Register(Struct, gc=False, rename="kebab"):
    """Registration of sensors; those registered before stay as they are.

    `area`: one point, a line, or the corners of a polygon; None is everywhere. `cookie` is the one that the
    gateway gave to this address. `token` identifies the user of the network, if there are users.
    """

    sensing_id: str
    sensors: list[Sensor]
    address: str | None = None
    area: list[Point] | None = None
    lease_s: Number | None = None
    cookie: str | None = None
    token: str | None = None

    def __repr__(self) -> str:
        return f"Register({self.sensing_id!r}, {self.sensors}, {self.address!r}, {self.area})"  # no secret


class Deregister(Struct, gc=False, rename="kebab"):
    """Deregistration of sensors; None is all of them, and the network with them."""

    sensing_id: str
    sensors: list[Sensor] | None = None
    cookie: str | None = None


class Sensing(Struct, gc=False, rename="kebab"):
    """Readings; with a `seq` they are acknowledged, and counted once however often they are repeated."""

    sensing_id: str
    sensors: list[Reading]
    seq: int | None = None
    cookie: str | None = None


# Messages of the gateway


class SubscribeSensors(Struct, frozen=True, rename="kebab"):
    """Request for these sensors' readings; a range replaces the one requested before."""

    sensing_id: str
    sensors: list[Sensor]
    cookie: str | UnsetType = UNSET


class UnsubscribeSensors(Struct, frozen=True, rename="kebab"):
    """End of the request for these sensors' readings."""

    sensing_id: str
    sensors: list[Sensor]
    cookie: str | UnsetType = UNSET


class Ack(Struct, frozen=True, rename="kebab"):
    """Acknowledgement that the readings of this number are stored."""

    sensing_id: str
    seq: int
    cookie: str | UnsetType = UNSET


class Error(Struct, frozen=True, rename="kebab"):
    """Mistake in a message, and its place."""

    problem: str
    place: str = "$"
    sensing_id: str | UnsetType = UNSET


class Redirect(Struct, frozen=True, rename="kebab"):
    """Notice that another gateway serves this network: it is to be registered there."""

    sensing_id: str
    address: str


GatewayMessage = SubscribeSensors | UnsubscribeSensors | Ack | Error | Redirect

_TITLES: dict[type[GatewayMessage], str] = {
    SubscribeSensors: "subscribe",
    UnsubscribeSensors: "unsubscribe",
    Ack: "ack",
    Error: "error",
    Redirect: "redirect",
}
_encode = Encoder().encode


def encode(message: GatewayMessage) -> bytes:
    """Encode the message as one line of JSON, with its end."""
    return _encode({_TITLES[type(message)]: message}) + b"\n"

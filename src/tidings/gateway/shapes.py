"""Shapes of networks' messages, which msgspec checks while it decodes.

The plain forms allow the usual members and nothing else, so nothing in them can be nested or ignored unseen;
other messages are examined by hand. The strict forms are for messages that come seldom.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from tidings.event.values import INT_MAX, INT_MIN
from tidings.filters.geometry import PLACE_POINTS_MAX
from tidings.gateway.messages import (
    NAME_LENGTH_MAX,
    SENSORS_MAX,
    Deregister,
    Point,
    Reading,
    Register,
    Sensing,
    Sensor,
)

POINTS_MAX = PLACE_POINTS_MAX - 1
"""Points of an area; a polygon repeats its first one, and filters read no longer ones."""

Name = Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH_MAX)]
Int = Annotated[int, Meta(ge=INT_MIN, le=INT_MAX)]

# mypy: disable-error-code="assignment"
# Lists of narrower things stand where Structs have lists: no code adds to the list of a message.


class PlainPoint(Point, frozen=True, gc=False, forbid_unknown_fields=True):
    """A point and nothing else."""


class PlainReading(Reading, frozen=True, gc=False, forbid_unknown_fields=True):
    """A reading of the usual members, its value a scalar."""

    name: Name
    type: Name
    value: str | Int | float | bool
    timestamp: str | Int | float | None = None
    area: Annotated[list[PlainPoint], Meta(max_length=POINTS_MAX)] | None = None


class OddReading(Reading, frozen=True, gc=False):
    """A reading with other members, or of unusual form; `index` is its place in the message.

    Its area is never None, so that the loop over plain readings steps aside: an empty one is no place.
    """

    others: dict[str, Any] = field(default_factory=dict)
    index: int = 0


class PlainSensing(Sensing, gc=False, forbid_unknown_fields=True):
    """Plain readings."""

    sensing_id: Name
    sensors: Annotated[list[PlainReading], Meta(max_length=SENSORS_MAX)]
    seq: Int | None = None


class Plain(Struct, gc=False, forbid_unknown_fields=True):
    """The object with plain readings."""

    sensing: PlainSensing


class LooseSensing(Sensing, gc=False, forbid_unknown_fields=True):
    """Readings of any form."""

    sensing_id: Name
    sensors: Annotated[list[dict[str, Any]], Meta(max_length=SENSORS_MAX)]
    seq: Int | None = None


class Loose(Struct, gc=False, forbid_unknown_fields=True):
    """The object with readings of any form."""

    sensing: LooseSensing


class StrictSensing(Sensing, gc=False):
    """Any readings."""

    sensing_id: Name
    seq: Int | None = None


class StrictSensor(Sensor, frozen=True, gc=False):
    """A sensor with numbers that an event can hold."""

    name: Name
    type: Annotated[str, Meta(max_length=NAME_LENGTH_MAX)] = ""
    min_value: Int | float | None = None
    max_value: Int | float | None = None
    max_rate: Int | float | None = None
    max_age_s: Int | float | None = None


class StrictRegister(Register):
    """A registration with an area that is not too long."""

    sensing_id: Name
    area: Annotated[list[Point], Meta(max_length=POINTS_MAX)] | None = None
    lease_s: Int | float | None = None


class StrictDeregister(Deregister):
    """A deregistration of a network that has a name."""

    sensing_id: Name

"""Shapes of networks' messages, and the reader of an object's members.

The shapes are what msgspec checks while it decodes. The plain forms allow the usual members and nothing else,
so nothing in them can be nested or ignored unseen; the strict forms are for messages that come seldom.

The reader returns the message, as far as it is valid, and the mistakes in the rest. It examines everything by
hand, one thing after the other, so that each mistake has its place and no valid part is lost by it. Unknown
members of a reading are kept, others ignored. An object may have thousands of sensors, so this is done in
steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, field

from tidings.errors import EventError
from tidings.event.values import INT_MAX, INT_MIN, check_type, place_of
from tidings.filters.geometry import PLACE_POINTS_MAX
from tidings.gateway.messages import (
    NAME_LENGTH_MAX,
    SENSORS_MAX,
    Deregister,
    Error,
    Point,
    Reading,
    Register,
    Sensing,
    Sensor,
)
from tidings.steps import Steps

NESTING_MAX = 32
"""Levels of an object."""
TOO_DEEP = f"is nested deeper than {NESTING_MAX} levels"
ERRORS_MAX = 10
"""Mistakes that are reported for one object."""
STEP = 32
"""Sensors or readings that are examined in one step."""
POINTS_MAX = PLACE_POINTS_MAX - 1
"""Points of an area; a polygon repeats its first one, and filters read no longer ones."""

Name = Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH_MAX)]
Int = Annotated[int, Meta(ge=INT_MIN, le=INT_MAX)]

Said = Sensing | Register | Deregister | Error
"""Message of a network, or a mistake in one."""
Members = dict[str, Any]
StructT = TypeVar("StructT", bound=Struct)
T = TypeVar("T")

BAD: Final = object()
"""Placeholder for a part that could not be decoded, which was noted."""
_WHERE = re.compile(r"(?P<problem>.*) - at `\$(?P<place>.*)`", re.DOTALL)


# Shapes. Lists of narrower things stand where messages have lists: no code adds to the list of a message.


class PlainPoint(Point, frozen=True, gc=False, forbid_unknown_fields=True):
    """A point and nothing else."""


class PlainReading(Reading, frozen=True, gc=False, forbid_unknown_fields=True):
    """A reading of the usual members, its value a scalar."""

    name: Name
    type: Name
    value: str | Int | float | bool
    timestamp: str | Int | float | None = None
    area: Annotated[list[PlainPoint], Meta(max_length=POINTS_MAX)] | None = None  # type: ignore[assignment]


class OddReading(Reading, frozen=True, gc=False):
    """A reading with other members, or of unusual form; `index` is its place in the message.

    Its area is never None, so that the loop over plain readings steps aside: an empty one is no place.
    """

    others: dict[str, Any] = field(default_factory=dict)
    index: int = 0


class PlainSensing(Sensing, gc=False, forbid_unknown_fields=True):
    """Plain readings."""

    sensing_id: Name
    sensors: Annotated[list[PlainReading], Meta(max_length=SENSORS_MAX)]  # type: ignore[assignment]
    seq: Int | None = None


class Plain(Struct, gc=False, forbid_unknown_fields=True):
    """The object with plain readings."""

    sensing: PlainSensing


class LooseSensing(Sensing, gc=False, forbid_unknown_fields=True):
    """Readings of any form."""

    sensing_id: Name
    sensors: Annotated[list[dict[str, Any]], Meta(max_length=SENSORS_MAX)]  # type: ignore[assignment]
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


# The reader


class _Noted(Exception):
    """The requested member is bad, which was noted before."""


def read_message(members: Any, noted: list[EventError]) -> Steps[list[Said]]:
    """Return the message with these members, if any part is valid, and all mistakes."""
    sensing_id = None
    message: list[Said] = []
    try:
        title, body = _message_in(_good(members))
        sensing_id = _text(body, "sensing-id", f"$.{title}")
        message = [(yield from _READERS[title](body, f"$.{title}", noted))]
    except EventError as error:
        noted.append(error)
    except _Noted:
        pass
    return [*message, *errors_of(noted, sensing_id)]


def errors_of(noted: list[EventError], sensing_id: str | None = None) -> list[Error]:
    """Return the mistakes in one object as sent to the network; of very many, only their number."""
    of = UNSET if sensing_id is None else sensing_id
    errors = [Error(mistake.problem, mistake.place, of) for mistake in noted[:ERRORS_MAX]]
    if len(noted) > ERRORS_MAX:
        errors[-1] = Error(f"{len(noted) - ERRORS_MAX + 1} more mistakes are in this object", "$", of)
    return errors


def _good(value: T) -> T:
    if value is BAD:
        raise _Noted
    return value


def _message_in(members: object) -> tuple[str, Members]:
    """Return type and members of the message in an object."""
    if not isinstance(members, dict):
        raise EventError("$", f"{type(members).__name__} is not an object")
    titles = [title for title in members if title in _READERS]
    if not titles:
        place = place_of(next(iter(members))) if members else "$"
        raise EventError(place, f"is no message: its type is one of {', '.join(_READERS)}")
    if len(titles) > 1:
        raise EventError("$", f"is {' and '.join(titles)}: an object is one message")
    (title,) = titles
    body = _good(members[title])
    if not isinstance(body, dict):
        raise EventError(f"$.{title}", f"{type(body).__name__} is not an object")
    _check_depth(members, title, NESTING_MAX - 1, "$")
    _check_depth(body, "sensors", NESTING_MAX - 2, f"$.{title}")
    return title, body


def _check_depth(members: Members, known: str | None, levels: int, root: str) -> None:
    """Refuse members of more levels, except the one that is examined by itself."""
    for name, one in members.items():
        if (one.__class__ is dict or one.__class__ is list) and name != known and _is_deeper(one, levels):
            raise EventError(place_of(name, root), TOO_DEEP)


def _is_deeper(value: dict[str, Any] | list[Any], levels: int) -> bool:
    """Whether an object or array has more levels than so many."""
    for one in value.values() if isinstance(value, dict) else value:
        if (one.__class__ is dict or one.__class__ is list) and (levels == 1 or _is_deeper(one, levels - 1)):
            return True
    return False


def _text(members: Members, name: str, root: str) -> str:
    """Return a member that is text, as names are."""
    value = members.get(name)
    if isinstance(value, str) and 0 < len(value) <= NAME_LENGTH_MAX:
        return value
    if _good(value) is None:
        raise EventError(f"{root}.{name}", "is missing")
    if not isinstance(value, str):
        raise EventError(f"{root}.{name}", f"{type(value).__name__} is not text")
    raise EventError(f"{root}.{name}", f"has 1 to {NAME_LENGTH_MAX} characters")


def _sensing(body: Members, root: str, noted: list[EventError]) -> Steps[Said]:
    readings: list[Reading] = list((yield from _each(body.get("sensors"), _reading, root, noted)))
    message = _converted(body, StrictSensing, root)
    message.sensors = readings
    return message


def loose_sensing(message: LooseSensing) -> Steps[Sensing]:
    """Return the message with its readings checked; EventError if one of them is invalid."""
    readings: list[OddReading] = []
    for members in message.sensors:
        readings.append(_reading(members, len(readings)))
        if len(readings) % STEP == 0:
            yield
    return StrictSensing(message.sensing_id, [*readings], message.seq, message.cookie)


def _register(body: Members, root: str, noted: list[EventError]) -> Steps[Said]:
    message = _converted(body, StrictRegister, root)
    message.sensors = yield from _each(body.get("sensors"), _offered, root, noted)
    return message


def _deregister(body: Members, root: str, noted: list[EventError]) -> Steps[Said]:
    message = _converted(body, StrictDeregister, root)
    message.sensors = None
    if body.get("sensors") is not None:
        message.sensors = yield from _each(body["sensors"], _sensor, root, noted)
    return message


_READERS: dict[str, Callable[[Members, str, list[EventError]], Steps[Said]]] = {
    "register": _register,
    "deregister": _deregister,
    "unregister": _deregister,
    "sensing": _sensing,
}
TITLES = tuple(_READERS)
"""Types of messages."""


def _converted(body: Members, kind: type[StructT], root: str) -> StructT:
    """Return the message without its sensors, which are examined one by one."""
    known = {name: _good(body[name]) for name in kind.__struct_encode_fields__ if name in body}
    return _convert({**known, "sensors": []}, kind, root)


def _convert(value: object, kind: type[StructT], root: str) -> StructT:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        problem, place = problem_and_place(error)
        raise EventError(root + place, problem) from None


def problem_and_place(error: Exception) -> tuple[str, str]:
    """Return msgspec's error and its place, below the given one."""
    found = _WHERE.fullmatch(str(error))
    return (found["problem"], found["place"]) if found else (str(error), "")


def _each(
    sensors: object, read: Callable[[Any, int], T], root: str, noted: list[EventError]
) -> Steps[list[T]]:
    """Return the valid sensors of a message; if there is none, the message is not valid either."""
    place = f"{root}.sensors"
    if sensors is None:
        raise EventError(place, "is missing")
    if not isinstance(sensors, list):
        raise EventError(place, f"{type(_good(sensors)).__name__} is not an array")
    if len(sensors) > SENSORS_MAX:
        raise EventError(place, f"has at most {SENSORS_MAX} elements")
    good = []
    for index, members in enumerate(sensors):
        if index % STEP == STEP - 1:
            yield
        try:
            good.append(read(members, index))
        except EventError as error:
            noted.append(EventError(f"{place}[{index}]{error.place[1:]}", error.problem))
        except _Noted:
            continue
    if sensors and not good:
        raise _Noted
    return good


# Sensors and readings


def _members_of(value: object) -> Members:
    """Return the members of an object, all of them valid."""
    if not isinstance(value, dict):
        raise EventError("$", f"{type(_good(value)).__name__} is not an object")
    if BAD in value.values():
        raise _Noted
    _check_depth(value, None, NESTING_MAX - 4, "$")
    return value


def _sensor(members: object, _index: int) -> Sensor:
    return _convert(_members_of(members), StrictSensor, "$")


def _offered(members: object, index: int) -> Sensor:
    """Return a sensor with a type, and a valid range."""
    sensor = _sensor(members, index)
    check_type(sensor.type)
    if sensor.min_value is not None and sensor.max_value is not None and sensor.min_value > sensor.max_value:
        raise EventError("$.min-value", "is above max-value")
    return sensor


def _reading(value: object, index: int) -> OddReading:
    others = _members_of(value)
    name, kind, value = _text(others, "name", "$"), _text(others, "type", "$"), others.get("value")
    if value is None:
        raise EventError("$.value", "is missing")
    del others["name"], others["type"], others["value"]
    timestamp = others.get("timestamp")
    if timestamp.__class__ is str or timestamp.__class__ is int or timestamp.__class__ is float:
        del others["timestamp"]
    else:
        timestamp = None
    area = _points_of(others["area"]) if "area" in others else None
    if area is not None:
        del others["area"]
    return OddReading(name, kind, value, timestamp, area or [], others, index)


def _points_of(value: object) -> list[Point] | None:
    """Return the points of an area decoded from JSON, None if it is something else; EventError: too many."""
    if not isinstance(value, list):
        return None
    if len(value) > POINTS_MAX:
        raise EventError("$.area", f"an area has at most {POINTS_MAX} points")
    points = [_point_of(one) for one in value]
    return None if None in points else [point for point in points if point is not None]


def _point_of(value: object) -> Point | None:
    if not isinstance(value, dict):
        return None
    x: Any = value.get("x")
    y: Any = value.get("y")
    if type(x) not in (int, float) or type(y) not in (int, float):
        return None
    try:
        return Point(float(x), float(y))
    except OverflowError:  # an int past the range of a float
        return None

"""What a message of a network must be, beyond its form."""

from __future__ import annotations

from math import isfinite

from tidings.errors import EventError
from tidings.event.values import check_type
from tidings.gateway.messages import NAME_LENGTH_MAX, SENSORS_MAX, Error, Register, Sensor
from tidings.steps import Steps

COORDINATE_MAX = 1e15
"""How far from the origin a place may be."""
STEP = 100
"""Sensors that are checked in one step."""


class Refusal(Exception):
    """What is wrong with a message, and at which member; the gateway makes an error message of it."""

    def __init__(self, member: str, problem: str) -> None:
        super().__init__(f"{member}: {problem}")
        self.member = member
        self.problem = problem

    def message(self, title: str, sensing_id: str) -> Error:
        """The error as the network is told it."""
        return Error(self.problem, f"$.{title}.{self.member}", sensing_id[:NAME_LENGTH_MAX])


def check_register(message: Register) -> Steps[None]:
    """Refuse what no network may register."""
    _check_text("sensing-id", message.sensing_id)
    if not message.sensors:
        raise Refusal("sensors", "a network has one sensor at least")
    if len(message.sensors) > SENSORS_MAX:
        raise Refusal("sensors", f"{len(message.sensors)} sensors; at most {SENSORS_MAX} are allowed")
    for index, sensor in enumerate(message.sensors):
        _check_sensor(f"sensors[{index}]", sensor)
        if index % STEP == STEP - 1:
            yield
    for index, point in enumerate(message.area or ()):
        if not (abs(point.x) <= COORDINATE_MAX and abs(point.y) <= COORDINATE_MAX):
            raise Refusal(f"area[{index}]", f"a place has coordinates up to {COORDINATE_MAX:g}")


def _check_sensor(place: str, sensor: Sensor) -> None:
    _check_text(f"{place}.name", sensor.name)
    try:
        check_type(sensor.type)
    except EventError as error:
        raise Refusal(f"{place}.type", error.problem) from None
    low, high = sensor.min_value, sensor.max_value
    for member, value in (("min-value", low), ("max-value", high)):
        if isinstance(value, float) and not isfinite(value):
            raise Refusal(f"{place}.{member}", "is no number")
    if low is not None and high is not None and low > high:
        raise Refusal(f"{place}.min-value", f"{low} is more than the max-value {high}")


def is_type(text: str) -> bool:
    """Whether events may have this type; readings of others are refused where they become events."""
    try:
        check_type(text)
    except EventError:
        return False
    return True


def _check_text(place: str, text: str) -> None:
    if not text:
        raise Refusal(place, "is empty")
    if len(text) > NAME_LENGTH_MAX:
        raise Refusal(place, f"{len(text)} characters; at most {NAME_LENGTH_MAX} are allowed")
    if not text.isprintable():
        raise Refusal(place, "holds a control character")

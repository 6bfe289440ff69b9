"""Classes of events: their fields are attributes and header fields, both ways."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidings
from tidings import Event, Typed
from tidings.errors import CodecError, EventError, UserError

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


class Level(Enum):
    LOW = "low"
    HIGH = "high"


class Place(msgspec.Struct, frozen=True):
    x: float
    y: float
    floor: int | None = None


class Reading(Typed, type="air.pm10"):
    value: float
    unit: str = "µg/m³"
    level: Level = Level.LOW
    at: datetime | None = None
    raw: bytes = b""
    ok: bool = True


class Placed(Typed, type="air.placed"):
    place: Place
    priority: int = 4
    time: datetime = NOON
    subject: str | None = None


class Renamed(Typed, type="device", rename="kebab"):
    sensing_id: str


READINGS = st.builds(
    Reading,
    value=st.floats(allow_nan=False),
    unit=st.text(),
    level=st.sampled_from(Level),
    at=st.none() | st.datetimes(timezones=st.just(UTC)),
    raw=st.binary(),
    ok=st.booleans(),
)
PLACED = st.builds(
    Placed,
    place=st.builds(
        Place, st.floats(allow_nan=False), st.floats(allow_nan=False), st.none() | st.integers(0, 9)
    ),
    priority=st.integers(0, 9),
    time=st.datetimes(timezones=st.just(UTC)),
    subject=st.none() | st.text(),
)


@given(READINGS | PLACED)
def test_an_instance_comes_back_from_its_event(made: Typed) -> None:
    event = made.to_event()
    assert event.type == made.event_type
    assert type(made).from_event(event) == made


def test_fields_are_attributes_and_header_fields() -> None:
    event = Placed(Place(1.5, 2.5), priority=7, subject="quay").to_event()
    assert event.attributes == {"place.x": 1.5, "place.y": 2.5}
    assert (event.priority, event.subject, event.time) == (7, "quay", NOON)
    assert Reading(1.5, level=Level.HIGH).to_event()["level"] == "high"


def test_a_field_may_have_another_name_in_events() -> None:
    event = Renamed("net-1").to_event()
    assert event.attributes == {"sensing-id": "net-1"}
    assert Renamed.from_event(event) == Renamed("net-1")


def test_further_attributes_are_ignored_and_defaults_hold() -> None:
    assert Reading.from_event(Event("air.pm10", value=3, color="blue")) == Reading(3.0)


def test_an_attribute_may_be_named_like_a_near_miss_of_a_header_field() -> None:
    class Leased(Typed, type="lease"):
        ttl: int

    assert Leased(5).to_event().attributes == {"ttl": 5}


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (Event("air.pm10", value="x"), "$.value: expected float, got str; the event is read as Reading"),
        (Event("air.pm10"), "$.value: is missing; the event is read as Reading"),
        (Event("air.pm10", value=1, level="mid"), "$.level: invalid enum value 'mid'; the event is read as"),
        (Event("air.pm25", value=1), "$.type: 'air.pm25' is not Reading's, 'air.pm10'"),
    ],
)
def test_an_event_that_contradicts_the_class_is_refused_with_place_and_type(event: Event, said: str) -> None:
    with pytest.raises((CodecError, EventError)) as caught:
        Reading.from_event(event)
    assert str(caught.value).startswith(said)


def test_a_nested_place_that_is_none_is_refused_with_its_place() -> None:
    for attributes in ({"place.x": 1, "place.y": "a"}, {"place.x": 1, "place.y": {"deep": 1}}):
        with pytest.raises(
            CodecError, match=r"^\$\.place\.y: expected float, got (str|object); the event is"
        ):
            Placed.from_event(Event("air.placed", attributes))
    with pytest.raises(CodecError, match=r"^\$\.place: (is missing|expected )"):
        Placed.from_event(Event("air.placed", {"place.x": 1, "place.x.z": 2}))


def test_an_instance_never_changes_and_can_be_pickled() -> None:
    reading = Reading(1.5)
    with pytest.raises(AttributeError):
        reading.value = 2.5  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(reading)) == reading
    assert len({reading, Reading(1.5)}) == 1


def test_a_class_of_its_own_inherits_type_and_fields() -> None:
    class Calibrated(Reading):
        factor: float = 1.0

    class Fine(Reading, type="air.pm25"):
        pass

    assert Calibrated(1.5).to_event().type == "air.pm10"
    assert Fine(1.5).to_event().type == "air.pm25"
    assert Reading(1.5).to_event().type == "air.pm10"


def define(name: str = "Bad", kind: str | None = "t", **fields: Any) -> Any:
    return type(Typed)(name, (Typed,), {"__annotations__": fields}, type=kind)


def test_a_class_that_can_be_none_is_refused_when_it_is_written() -> None:
    with pytest.raises(
        UserError, match=r"^Bad\.type: the type belongs to the class; write class Bad\(Typed,"
    ):
        define(type=str)
    with pytest.raises(EventError, match=r"^\$\.JMSPriority: is a header field"):
        define(JMSPriority=int)
    with pytest.raises(EventError, match=r"^\$\.type: 'a\.\.b' has an empty segment"):
        define(kind="a..b")


def test_a_class_without_a_type_makes_no_event() -> None:
    with pytest.raises(UserError, match=r"^Bad has no type; write class Bad\(Typed, type='…'\)$"):
        define(kind=None, n=int)(1).to_event()


def test_a_value_that_no_attribute_can_be_is_refused() -> None:
    with pytest.raises(EventError, match=r"^\$\.n: a list is not a value"):
        define(n=list)([1]).to_event()


def test_it_is_among_the_names_of_the_package() -> None:
    assert tidings.Typed is Typed

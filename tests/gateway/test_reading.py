"""Readings to events: against a plain reference, at its edges, and as a node would check them."""

from __future__ import annotations

import csv
import gzip
import json
import math
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.whole import decode_object
from tidings import Event, Filter
from tidings.event.check_compiled import check_certain
from tidings.event.values import RESERVED, time_from_us
from tidings.event.wire import check, decode_events
from tidings.gateway.message_reader import ERRORS_MAX
from tidings.gateway.messages import Error, Sensing
from tidings.gateway.reading import KEPT_MAX, Mapped, Mapper, number_of

DATA = Path(os.environ.get("TIDINGS_DATA") or Path(__file__).parents[3] / "shared" / "data")
NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
NOW_US = int(NOW.timestamp()) * 1_000_000
DAY = timedelta(days=1)


def message(*readings: dict[str, Any], sensing_id: str = "net") -> Sensing:
    raw = json.dumps({"sensing": {"sensing-id": sensing_id, "sensors": list(readings)}}).encode()
    (said,) = decode_object(raw)
    assert isinstance(said, Sensing)
    return said


def reading(**members: Any) -> dict[str, Any]:
    return {"name": "a", "type": "t", "value": 5} | {
        name.replace("_", "-"): one for name, one in members.items()
    }


def mapped(*messages: Sensing, counter: int = 1) -> Mapped:
    return Mapper().map(messages, counter, NOW_US)


def event_of(**members: Any) -> Event:
    raw, total, errors = mapped(message(reading(**members)))
    assert (total, errors) == (1, [])
    return decode_events(raw)[0]


def trouble(**members: Any) -> tuple[str, str]:
    raw, total, errors = mapped(message(reading(**members)))
    assert (total, decode_events(raw)) == (0, [])
    assert [error.sensing_id for error in errors] == ["net"]
    return errors[0].place, errors[0].problem


# A reference, slow and plain

NUMERIC = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class Refused(Exception):
    """The reading can't be an event."""


def reference(sensing_id: str, members: dict[str, Any]) -> tuple[str, int, dict[str, Any]]:
    """(type, time, attributes) of the event of a reading, as the mapping is described."""
    rest = dict(members)
    kind, name, value = rest.pop("type"), rest.pop("name"), rest.pop("value")
    if any(character.isspace() or not character.isprintable() for character in kind) or "" in kind.split("."):
        raise Refused
    if isinstance(value, str) and NUMERIC.fullmatch(value):
        value = json.loads(value)
    attributes = {"sensing-id": sensing_id, "name": name, "value": reference_value(value)}
    time_us = NOW_US
    timestamp = rest.pop("timestamp", None)
    if timestamp is not None:
        moment = reference_time(timestamp)
        if moment is None or not datetime(2000, 1, 1, tzinfo=UTC) <= moment <= NOW + DAY:
            attributes["timestamp"] = reference_value(timestamp)
        else:
            time_us = round((moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))
    area = rest.pop("area", None) or []
    for other, held in rest.items():
        if held is not None:
            attributes[f"reading-{other}" if other in {*RESERVED, "sensing-id"} else other] = reference_value(
                held
            )
    points = [f"{float(point['x'])!r} {float(point['y'])!r}" for point in area]
    if len(area) == 1:
        attributes |= {"posx": float(area[0]["x"]), "posy": float(area[0]["y"])}
    elif len(area) == 2:
        attributes["area"] = f"LINESTRING ({', '.join(points)})"
    elif area:
        attributes["area"] = f"POLYGON (({', '.join([*points, points[0]])}))"
    return kind, time_us, attributes


def reference_value(value: Any) -> Any:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise Refused
    if isinstance(value, float) and math.isinf(value):
        raise Refused
    return (
        json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        if isinstance(value, dict | list)
        else value
    )


def reference_time(timestamp: Any) -> datetime | None:
    try:
        if isinstance(timestamp, str):
            moment = datetime.fromisoformat(timestamp)
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        divisor = 1 if timestamp < 1e11 else 1000 if timestamp < 1e14 else 1_000_000
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=timestamp / divisor)
    except (ValueError, OverflowError):
        return None


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
TYPES = st.sampled_from(["t", "air.pm10", "räume", "a b", ".", "a..b"])
NUMBERS = st.integers(-(2**64), 2**64) | st.floats(allow_nan=False, allow_infinity=False)
NUMERICS = st.from_regex(NUMERIC, fullmatch=True).filter(lambda text: len(text) < 30)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["1_0", "+1", " 1", "1 ", "01", ".5", "5.", "0x1", "nan", "inf", "-", "1e", "١", "1e999", "-1e999"]
)
MOMENTS = st.datetimes(timezones=st.just(UTC)).map(
    lambda moment: moment.replace(year=1999 + moment.year % 29, day=min(moment.day, 28), tzinfo=None)
)
TIMES = st.one_of(
    MOMENTS.map(lambda moment: moment.isoformat()),
    MOMENTS.map(lambda moment: moment.isoformat() + "Z"),
    MOMENTS.map(lambda moment: moment.isoformat(timespec="milliseconds") + "+02:00"),
    st.integers(900_000_000, 1_900_000_000),
    st.integers(900_000_000_000, 1_900_000_000_000),
    st.integers(900_000_000_000_000, 1_900_000_000_000_000),
    st.sampled_from(["", "noon", "2026-13-01", "2026-11-15 08:00", "20261115T080000Z", 0, -5, 7.5, 10**18]),
)
POINTS = st.lists(st.fixed_dictionaries({"x": st.integers(-9, 9), "y": st.floats(-1e9, 1e9)}), max_size=4)
NESTED = st.lists(st.integers(-9, 9) | TEXTS, max_size=3) | st.dictionaries(NAMES, st.booleans(), max_size=2)
MEMBERS = st.dictionaries(
    (NAMES | st.sampled_from(["unit", "priority", "id", "source", "time", "JMSType", "sensing-id"])).filter(
        lambda name: name not in ("name", "type", "value", "timestamp", "area")
    ),
    st.booleans() | NUMBERS | TEXTS | NESTED | st.none(),
    max_size=3,
)
READINGS = st.builds(
    lambda usual, others: usual | others,
    st.fixed_dictionaries(
        {"name": NAMES, "type": TYPES, "value": st.booleans() | NUMBERS | NUMERICS | TEXTS},
        optional={"timestamp": TIMES, "area": POINTS},
    ),
    st.just({}) | MEMBERS,
)


@given(st.lists(st.lists(READINGS, min_size=1, max_size=4), max_size=4), st.integers(1, 2**40))
def test_events_are_what_the_mapping_says(batches: list[list[dict[str, Any]]], counter: int) -> None:
    messages = [message(*readings, sensing_id=f"net-{at}") for at, readings in enumerate(batches)]
    expected: list[tuple[str, int, dict[str, Any]]] = []
    refused = []
    for at, readings in enumerate(batches):
        for index, members in enumerate(readings):
            try:
                expected.append(reference(f"net-{at}", members))
            except Refused:
                refused.append((f"net-{at}", f"$.sensing.sensors[{index}]"))
    raw, total, errors = mapped(*messages, counter=counter)
    events = decode_events(raw)
    assert [event.counter for event in events] == list(range(counter, counter + total))
    assert [(event.type, event.time_us, shown(event.values)) for event in events] == [
        (kind, time_us, shown(attributes)) for kind, time_us, attributes in expected
    ]
    assert [(error.sensing_id, re.sub(r"(\])[.\[].*", r"\1", error.place)) for error in errors] == refused
    assert list(check(raw).counters) == [event.counter for event in events]
    assert check(raw).is_plain


def shown(attributes: Any) -> dict[str, str]:
    """With the kind of each value: 1, 1.0 and True are not the same."""
    return {name: repr(value) for name, value in attributes.items()}


@given(st.lists(READINGS, min_size=1, max_size=6))
def test_what_is_remembered_changes_nothing(readings: list[dict[str, Any]]) -> None:
    mapper = Mapper()
    one = message(*readings)
    assert mapper.map([one], 1, NOW_US) == mapper.map([one], 1, NOW_US) == Mapper().map([one], 1, NOW_US)


# Examples


def test_the_reading_of_the_books_becomes_an_event() -> None:
    raw, total, errors = mapped(
        message({"name": "Knoten 1", "type": "Temperatur", "area": [{"x": 10, "y": 10}], "value": "5"}),
        counter=7,
    )
    assert (total, errors) == (1, [])
    assert msgspec.msgpack.decode(raw) == [
        [
            7,
            "Temperatur",
            NOW_US,
            {"sensing-id": "net", "name": "Knoten 1", "value": 5, "posx": 10, "posy": 10},
            None,
            None,
        ]
    ]


def test_no_readings_are_no_events() -> None:
    for nothing in (mapped(), mapped(Sensing("net", []))):
        assert nothing == Mapped(b"\xdd\0\0\0\0", 0, [])


@pytest.mark.parametrize("count", [1, 15, 16, 70_000])
def test_the_array_has_its_fixed_head_whatever_its_length(count: int) -> None:
    raw, total, _ = mapped(*(count * [message(reading())]))
    assert (total, len(check(raw).counters)) == (count, count)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5", 5),
        ("-0", 0),
        ("5.0", 5.0),
        ("1e2", 100.0),
        ("-1.5E-1", -0.15),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_numeric_text_is_a_number(text: str, number: float) -> None:
    assert repr(number_of(text)) == repr(number)
    assert repr(event_of(value=text)["value"]) == repr(number)


@pytest.mark.parametrize(
    "text", ["", " 5", "5 ", "+5", "05", ".5", "5.", "1_000", "NaN", "Infinity", "0x10", "٥", "on"]
)
def test_other_text_stays_text(text: str) -> None:
    assert event_of(value=text)["value"] == text


def test_only_the_value_turns_from_text_to_a_number() -> None:
    event = event_of(name="7", height="7")
    assert (event["name"], event["height"]) == ("7", "7")


def test_truth_stays_truth_also_where_one_is_remembered() -> None:
    batch = mapped(message(reading(value=1), reading(value=True), reading(value=1.0), reading(value="1")))
    assert [repr(event["value"]) for event in decode_events(batch.raw)] == ["1", "True", "1.0", "1"]


@pytest.mark.parametrize(
    ("members", "place", "problem"),
    [
        ({"value": 2**63}, "value", "9223372036854775808 does not fit 64 bits"),
        ({"value": "9223372036854775808"}, "value", "9223372036854775808 does not fit 64 bits"),
        ({"value": "1" * 5000}, "value", "an int of 5000 characters does not fit 64 bits"),
        ({"value": "1e999"}, "value", "is out of the range of a float"),
        ({"height": -(2**64)}, "height", "-18446744073709551616 does not fit 64 bits"),
        ({"timestamp": 2**64}, "timestamp", "18446744073709551616 does not fit 64 bits"),
        ({"type": "a b"}, "type", "'a b' contains a space or a control character"),
        ({"type": "x" * 300}, "type", "has 1 to 255 characters"),
        ({"": 1}, "['']", "a name may not be empty"),
        ({"a\0": 1}, "['a\\x00']", "a name may not hold NUL or half a character"),
    ],
)
def test_what_no_event_can_hold_is_told_at_its_place(
    members: dict[str, Any], place: str, problem: str
) -> None:
    raw = json.dumps({"sensing": {"sensing-id": "net", "sensors": [reading(), reading() | members]}}).encode()
    said = decode_object(raw)
    assert isinstance(said[0], Sensing)
    batch = mapped(said[0])
    found = [*(one for one in said if isinstance(one, Error)), *batch.errors]
    dotted = place if place.startswith("[") else f".{place}"
    assert [(one.place, one.problem) for one in found] == [(f"$.sensing.sensors[1]{dotted}", problem)]
    assert batch.total == 1


def test_bad_readings_leave_no_gap_among_the_counters() -> None:
    bad = message(reading(), reading(type="."), reading(value="1e999", unit="C"), reading())
    batch = mapped(message(reading()), bad, message(reading()), counter=10)
    assert [event.counter for event in decode_events(batch.raw)] == [10, 11, 12, 13]
    assert [error.place for error in batch.errors] == [
        "$.sensing.sensors[1].type",
        "$.sensing.sensors[2].value",
    ]


def test_a_node_needs_no_second_look_at_the_events() -> None:
    batch = mapped(message(reading(), reading(value="2.5", area=[{"x": 1, "y": 2}]), reading(unit="C", n=1)))
    checked = check_certain(batch.raw)
    assert checked is not None
    assert list(checked.counters) == [1, 2, 3]


def test_real_readings_come_through() -> None:
    path = DATA / "luftdaten-aberdeen-2019-05.csv.gz"
    if not path.exists():
        pytest.skip(f"{path} is not there; set TIDINGS_DATA to the folder that has it")
    with gzip.open(path, "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file) if not row["pm25"] or row["timestamp"] < "2019-05-01T02"]
    assert any(not row["pm25"] for row in rows)
    readings = [
        {"name": row["sensor"], "type": "air.pm25", "value": row["pm25"], "timestamp": row["timestamp"]}
        | {"area": [{"x": float(row["lat"]), "y": float(row["lon"])}], "location": int(row["location"])}
        for row in rows
    ]
    raw, total, errors = mapped(*map(message, readings))
    assert (total, errors) == (len(rows), [])
    for event, row in zip(decode_events(raw), rows, strict=True):
        assert event["value"] == (float(row["pm25"]) if row["pm25"] else "")
        assert event.time.replace(tzinfo=None).isoformat() == row["timestamp"]
        assert (event["posx"], event["posy"]) == (float(row["lat"]), float(row["lon"]))


def test_of_very_many_readings_that_are_no_events_so_many_are_told() -> None:
    batch = mapped(message(*(50 * [reading(type="a b")])), message(reading(type="a b")))
    assert len(batch.errors) == ERRORS_MAX + 1
    assert batch.errors[ERRORS_MAX - 1] == Error("41 more mistakes are in this object", "$", "net")


# Time


@pytest.mark.parametrize(
    "timestamp",
    [
        "2026-11-15T11:00:00Z", "2026-11-15T11:00:00", "2026-11-15 11:00", "20261115T110000Z",
        "2026-11-15T12:00:00+01:00", "2026-11-15T11:00:00.000000Z",
        1794740400, 1794740400.0, 1794740400_000, 1794740400_000_000,
        "1794740400", "1794740400.0", "1794740400000",
    ],
)  # fmt: skip
def test_a_timestamp_is_the_time_of_the_event(timestamp: str | float) -> None:
    event = event_of(timestamp=timestamp)
    assert event.time == NOW - timedelta(hours=1)
    assert "timestamp" not in event.attributes


def test_fractions_of_a_second_are_kept() -> None:
    assert event_of(timestamp="2026-11-15T11:00:00.123456Z").time.microsecond == 123456
    assert event_of(timestamp=1794740400.25).time.microsecond == 250_000
    assert event_of(timestamp=1794740400_125).time.microsecond == 125_000


@pytest.mark.parametrize(
    "timestamp",
    ["", "noon", "1970-01-01T00:00:05Z", "1999-12-31T23:59:59Z", "2026-11-16T12:00:01Z",
     "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999-14:00",
     0, 5, -5, 1e300, "1e9", "9" * 100, True, [1], {"at": 5}],
)  # fmt: skip
def test_without_a_time_that_can_be_believed_it_is_that_of_arrival(timestamp: Any) -> None:
    event = event_of(timestamp=timestamp)
    assert event.time == NOW
    kept = json.dumps(timestamp, separators=(",", ":")) if isinstance(timestamp, dict | list) else timestamp
    assert repr(event["timestamp"]) == repr(kept)


def test_without_a_timestamp_the_time_is_that_of_arrival() -> None:
    assert event_of().time == event_of(timestamp=None).time == NOW
    assert event_of(timestamp=None).attributes == {"sensing-id": "net", "name": "a", "value": 5}


def test_a_day_ahead_is_believed_and_a_second_more_is_not() -> None:
    assert event_of(timestamp=(NOW + DAY).isoformat()).time == NOW + DAY
    assert event_of(timestamp=(NOW + DAY + timedelta(seconds=1)).isoformat()).time == NOW


def test_what_is_believed_goes_by_the_clock_of_each_call() -> None:
    mapper = Mapper()
    ahead = message(reading(timestamp=(NOW + DAY).isoformat()))
    for now_us, expected in (
        (NOW_US - 1, NOW_US - 1),
        (NOW_US, NOW_US + 86_400_000_000),
        (NOW_US - 1, NOW_US - 1),
    ):
        (event,) = decode_events(mapper.map([ahead], 1, now_us).raw)
        assert event.time == time_from_us(expected)
    later = mapper.map([message(reading())], 1, NOW_US + 5)
    assert decode_events(later.raw)[0].time_us == NOW_US + 5


# Places and other members


def test_a_place_is_told_as_filters_want_it() -> None:
    pytest.importorskip("shapely")
    inside = Filter("WITHIN(area, 'POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0))')")
    at = Filter("WITHIN(posx, posy, 'POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0))')")
    corners = [{"x": 1, "y": 1}, {"x": 2.5, "y": 1}, {"x": 2, "y": 1e-7}]
    assert event_of(area=corners[:2])["area"] == "LINESTRING (1.0 1.0, 2.5 1.0)"
    assert event_of(area=corners)["area"] == "POLYGON ((1.0 1.0, 2.5 1.0, 2.0 1e-07, 1.0 1.0))"
    assert inside.matches(event_of(area=corners[:2]))
    assert inside.matches(event_of(area=corners))
    assert not inside.matches(event_of(area=[*corners, {"x": 99, "y": 1}]))
    assert at.matches(event_of(area=corners[:1]))


@pytest.mark.parametrize(
    "area", ["POINT (1 2)", {"x": 1}, [{"x": 1}], [[1, 2]], [{"x": "1", "y": 2}], [{"x": True, "y": 1}], 5]
)
def test_an_area_of_another_form_goes_along(area: Any) -> None:
    kept = json.dumps(area, separators=(",", ":")) if isinstance(area, dict | list) else area
    assert event_of(area=area)["area"] == kept


def test_an_area_has_so_many_points() -> None:
    points = [{"x": at, "y": at * at} for at in range(1000)]
    assert event_of(area=points[:999])["area"].startswith("POLYGON")  # type: ignore[union-attr]
    said = decode_object(
        json.dumps({"sensing": {"sensing-id": "net", "sensors": [reading(area=points)]}}).encode()
    )
    assert said == [Error("an area has at most 999 points", "$.sensing.sensors[0].area", "net")]


def test_members_called_like_header_fields_or_the_id_are_prefixed() -> None:
    event = event_of(priority=9, id="x", source="me", JMSPriority=1, sensing_id="forged")
    assert event.priority == 4
    assert event.id is None
    assert event.attributes == {
        "sensing-id": "net", "name": "a", "value": 5, "reading-priority": 9, "reading-id": "x",
        "reading-source": "me", "reading-JMSPriority": 1, "reading-sensing-id": "forged",
    }  # fmt: skip


def test_no_prefixed_member_hides_another() -> None:
    members = {"id": 1, "reading-id": 2, "reading-reading-id": 3}
    event = event_of(**members)
    assert sorted(
        value for name, value in event.attributes.items() if "id" in name and name != "sensing-id"
    ) == [1, 2, 3]


def test_a_place_goes_before_members_that_say_one() -> None:
    event = event_of(posx=1, posy=2, area=[{"x": 3, "y": 4}])
    assert (event["posx"], event["posy"]) == (3, 4)


def test_nested_members_go_along_as_json() -> None:
    event = event_of(value={"r": 1}, list=[1, None, "ä"])
    assert (event["value"], event["list"]) == ('{"r":1}', '[1,null,"ä"]')


def test_a_reading_of_very_many_members_is_refused() -> None:
    assert trouble(**{f"m{at}": at for at in range(998)}) == (
        "$.sensing.sensors[0]",
        "an event has at most 1000 attributes",
    )


def test_what_is_remembered_is_bounded() -> None:
    mapper = Mapper()
    long = "x" * 1000
    for first in range(0, 3 * KEPT_MAX, 1000):
        readings = [
            reading(value=f"{at}.5", timestamp=1_700_000_000 + at, type=f"t{at}")
            for at in range(first, first + 1000)
        ]
        mapper.map([message(*readings, reading(value=long))], 1, NOW_US)
    for kept in (mapper._numbers, mapper._times, mapper._types, mapper._names, mapper._moments):
        assert len(kept) <= KEPT_MAX
        assert long not in kept

"""What attributes may hold and be called, and how nested input becomes flat."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import names, values

from tidings.errors import EventError, FilterError
from tidings.event import RESERVED, Event, Value
from tidings.event.values import (
    ATTRIBUTES_MAX,
    MEMBERS_MAX,
    NAMES_KEPT_MAX,
    NESTING_MAX,
    time_from_us,
    us_from_time,
)
from tidings.filters import Filter


class Color(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Celsius(float):
    """A float with a unit."""


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (True, True),
        (-(2**63), -(2**63)),
        (1.5, 1.5),
        ("ü", "ü"),
        (Color.RED, "red"),
        (Level.HIGH, 3),
        (Celsius(2.5), 2.5),
        (bytearray(b"x"), b"x"),
        (memoryview(b"x"), b"x"),
        (datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1))), datetime(2025, 12, 31, 23, tzinfo=UTC)),
    ],
)
def test_a_value_is_stored_as_its_plain_kind(value: object, stored: Value) -> None:
    held = Event("t", {"v": value})["v"]
    assert (type(held), held) == (type(stored), stored)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({1}, "set is not a value"),
        ([1], "a list is not a value; put it into the body"),
        (2**63, "9223372036854775808 does not fit 64 bits"),
        (-(2**63) - 1, "-9223372036854775809 does not fit 64 bits"),
        pytest.param(2**100_000, "an int of 100001 bits does not fit 64 bits", id="huge"),
        ("\ud800", "half a character (a lone surrogate) can't be written"),
        (Decimal("1.5"), "Decimal is not a value"),
        (date(2026, 1, 1), "date is not a value"),
        (timedelta(1), "timedelta is not a value"),
        (object(), "object is not a value"),
        (1j, "complex is not a value"),
    ],
)
def test_what_is_no_value_is_refused_by_place(value: object, problem: str) -> None:
    with pytest.raises(EventError) as caught:
        Event("t", {"ok": 1, "pos": {"z": value}})
    assert str(caught.value) == f"$.pos.z: {problem}"


NAIVE = datetime(2026, 1, 1, 8)  # noqa: DTZ001 - without a zone on purpose
NO_ZONE = (
    "2026-01-01 08:00:00 has no time zone; use datetime.now(UTC), or .replace(tzinfo=UTC) if it is in UTC"
)


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda: Event("t", {"at": NAIVE}), "$.at"),
        (lambda: Event("t", at=NAIVE), "$.at"),
        (lambda: Event("t", time=NAIVE), "$.time"),
        (lambda: Event("t", received=NAIVE), "$.received"),
        (lambda: Event("t").evolve(time=NAIVE), "$.time"),
        (lambda: Event.from_dict({"type": "t", "pos": {"at": NAIVE}}), "$.pos.at"),
    ],
)
def test_a_time_without_a_zone_is_refused_with_a_hint(make: Callable[[], Event], place: str) -> None:
    with pytest.raises(EventError) as caught:
        make()
    assert str(caught.value) == f"{place}: {NO_ZONE}"


def test_a_time_without_a_zone_is_refused_in_a_filter_too() -> None:
    with pytest.raises(FilterError, match=r"column 8: :at can't be used: .* has no time zone; use "):
        Filter("time > :at", at=NAIVE)


def test_a_text_without_a_zone_is_in_utc() -> None:
    assert Event("t", time="2026-01-01T08:00").time == NAIVE.replace(tzinfo=UTC)


def test_a_time_that_leaves_the_calendar_in_utc_is_refused() -> None:
    with pytest.raises(EventError, match=r"^\$\.v: .* is not a time"):
        Event("t", v=datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))))


def test_scalars_of_numpy_are_taken_where_they_are_exact() -> None:
    np = pytest.importorskip("numpy")
    day = np.datetime64("2026-11-15T08:00:00.000001")
    given_values = {"i": np.int32(5), "u": np.uint64(7), "f": np.float32(0.1), "d": np.float64(0.1)}
    event = Event("t", given_values, b=np.bool_(True), s=np.str_("x"), t=day)
    expected = {"i": 5, "u": 7, "f": float(np.float32(0.1)), "d": 0.1, "b": True, "s": "x"}
    expected["t"] = datetime(2026, 11, 15, 8, 0, 0, 1, tzinfo=UTC)
    assert event.attributes == expected
    assert [type(event[name]) for name in expected] == [int, int, float, float, bool, str, datetime]
    for refused in (
        np.uint64(2**63),
        np.longdouble(1),
        np.datetime64("2026-11-15T08:00:00.000000001"),
        np.datetime64("NaT", "us"),
        np.timedelta64(1, "s"),
        np.array([1]),
        np.array(1.0j)[()],
    ):
        with pytest.raises(EventError):
            Event("t", v=refused)


def test_none_means_not_there() -> None:
    assert Event("t", {"a": None, "b": {"c": None}, "d": 1}).attributes == {"d": 1}


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("", "$['']"),
        ("a\0", "$['a\\x00']"),
        ("\ud800", "$['\\ud800']"),
        ("x" * 256, "$." + "x" * 80 + "…"),
        (5, "$.5"),
    ],
)
def test_what_is_no_name_is_refused_by_place(name: object, place: str) -> None:
    with pytest.raises(EventError) as caught:
        Event("t", {name: 1})  # type: ignore[dict-item]
    assert caught.value.place == place


def test_an_empty_name_inside_is_refused() -> None:
    with pytest.raises(EventError, match="a name may not be empty"):
        Event("t", {"a": {"": 1}})


def test_the_longest_name_and_the_most_attributes_are_taken_and_no_more() -> None:
    assert Event("t", {"x" * 255: 1})
    assert len(Event("t", {f"a{n}": n for n in range(ATTRIBUTES_MAX)}).attributes) == ATTRIBUTES_MAX
    for again in range(2):
        with pytest.raises(EventError, match="at most 1000 attributes"):
            Event("t", {f"a{n}": again for n in range(ATTRIBUTES_MAX + 1)})


def nested(depth: int, inside: object) -> Any:
    for _ in range(depth):
        inside = {"a": inside}
    return inside


def test_nesting_has_a_limit() -> None:
    assert Event("t", nested(NESTING_MAX, 1))["a" + ".a" * (NESTING_MAX - 1)] == 1
    for depth in (NESTING_MAX + 1, 10_000):
        with pytest.raises(EventError, match=f"deeper than {NESTING_MAX} levels"):
            Event("t", nested(depth, 1))


def test_input_that_holds_itself_is_refused() -> None:
    cyclic: dict[str, Any] = {}
    cyclic["a"] = cyclic
    with pytest.raises(EventError, match="nested deeper"):
        Event("t", cyclic)
    with pytest.raises(EventError, match="nested deeper"):
        Event.from_dict({"type": "t", **cyclic})


def test_empty_input_shared_many_times_over_is_refused() -> None:
    shared: dict[str, Any] = {}
    for _ in range(NESTING_MAX - 1):
        shared = {"a": shared, "b": shared}
    with pytest.raises(EventError, match=f"more than {MEMBERS_MAX} members"):
        Event("t", shared)


@pytest.mark.parametrize("attributes", [[1], "text", 5, [("a", 1)]])
def test_attributes_are_a_mapping(attributes: Any) -> None:
    with pytest.raises(EventError, match="is not a mapping"):
        Event("t", attributes)
    with pytest.raises(EventError, match="is not a mapping"):
        Event("t", attributes, n=1)


trees = st.recursive(values(), lambda inner: st.dictionaries(names, inner, max_size=3), max_leaves=8)


def leaves(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    """The flattening, said plainly."""
    found = []
    for name, value in tree.items():
        found += leaves(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
    return found


@given(st.dictionaries(names, trees, max_size=4))
def test_flat_names_are_the_paths_joined_by_dots(tree: dict[str, Any]) -> None:
    expected = leaves(tree)
    clash = len(dict(expected)) != len(expected) or any(name in RESERVED for name, _ in expected)
    try:
        event = Event("t", tree)
    except EventError:
        assert clash
        return
    assert not clash
    assert list(event.values) == [name for name, _ in expected]


@given(st.datetimes(timezones=st.just(UTC)))
def test_times_and_microseconds_are_the_same_thing(moment: datetime) -> None:
    assert time_from_us(us_from_time(moment)) == moment


def test_very_many_different_names_do_not_pile_up() -> None:
    from tidings.event import values as module

    for n in range(NAMES_KEPT_MAX + 10):
        Event("t", {f"passing{n}": 1})
    assert len(module._good_names) <= NAMES_KEPT_MAX

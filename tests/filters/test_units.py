from __future__ import annotations

import math
import sys
from contextlib import suppress
from operator import eq, ge, gt, le, lt, ne

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tidings import Event, Filter
from tidings.errors import FilterError, MissingExtra
from tidings.filters import Converter, Quantity, Taxonomy, units
from tidings.filters.known_units import KNOWN_UNITS
from tidings.filters.parser import NESTING_MAX, QUANTITIES_MAX
from tidings.filters.units import UNIT_LENGTH_MAX, UNITS_ALIKE_MAX, UNITS_MAX, Units

TAXONOMY = Taxonomy()
OPERATORS = {"<": lt, "<=": le, ">": gt, ">=": ge, "=": eq, "<>": ne}

SPELLINGS = [spelling for spellings in KNOWN_UNITS.values() for spelling in spellings]
integers = st.integers(-(2**63), 2**63 - 1) | st.integers(-100, 100)
numbers = st.floats(allow_nan=False) | integers | st.floats(-1000, 1000).map(lambda x: round(x, 2))
bounds = st.floats(allow_nan=False, allow_infinity=False) | integers


def measured(text: str, **values: object) -> Filter:
    return Filter(text, taxonomy=TAXONOMY, **values)


@st.composite
def units_alike(draw: st.DrawFn) -> tuple[str, str]:
    """A spelling of a unit, and one of a unit that can be converted to it."""
    target = draw(st.sampled_from(SPELLINGS))
    return target, draw(st.sampled_from(sorted(TAXONOMY.units.conversions(target))))


def test_dust_in_milligrams_is_taken_and_given_in_micrograms() -> None:
    dust = measured("value > 50 'µg/m³'")
    event = Event("air.pm10", value=0.06, unit="mg/m³")
    assert dust.matches(event)
    assert not dust.matches(Event("air.pm10", value=0.05, unit="mg/m³"))
    converted = Converter({"value": "µg/m³"})(event)
    assert converted.attributes == {
        "value": 60.0,
        "unit": "µg/m³",
        "original.value": 0.06,
        "original.unit": "mg/m³",
    }


def test_a_filter_with_a_unit_is_text_without_units() -> None:
    dust = measured("value > 50 'µg/m³'")
    assert "unit IN ('mg m-3', 'mg/m3', 'mg/m^3', 'mg/m³'," in str(dust)
    assert ") AND value > 0.05 OR unit IN (" in str(dust)
    assert Filter(str(dust)) == dust
    assert Filter.from_json(dust.to_json()).condition == dust.condition


@given(units_alike(), numbers, bounds, st.sampled_from(sorted(OPERATORS)), st.booleans())
@example(("m", "m"), 2**53 + 1, 2**53, ">", False)
@example(("m", "m"), 2**53, 2**53 + 1, "=", False)
@example(("km", "m"), 2**63 - 1, 2**63 // 1000, ">=", False)
@example(("°F", "°C"), -40, -40, "=", True)
@example(("nm", "km"), 1e308, 1e300, "<", False)
@example(("km", "nm"), sys.float_info.max, sys.float_info.max, "<>", False)
def test_a_filter_takes_a_value_exactly_if_its_conversion_meets_the_comparison(
    units: tuple[str, str], value: float, bound: float, operator: str, is_negated: bool
) -> None:
    target, unit = units
    event = Event("x", value=value, unit=unit)
    converted = TAXONOMY.units.conversions(target)[unit](value)
    wanted = OPERATORS[operator](converted, bound) is not is_negated
    taken = False
    with suppress(FilterError):  # no number meets this condition: an integer that is no double
        said = measured(f"{'NOT ' * is_negated}value {operator} :limit", limit=Quantity(bound, target))
        taken = said.matches(event)
        assert Filter(str(said)) == said
    assert taken is wanted


@given(units_alike(), numbers, bounds, bounds, st.booleans())
def test_between_takes_a_value_exactly_if_its_conversion_is_between(
    units: tuple[str, str], value: float, low: float, high: float, is_negated: bool
) -> None:
    target, unit = units
    converted = TAXONOMY.units.conversions(target)[unit](value)
    text = f"value {'NOT ' * is_negated}BETWEEN :low AND :high :unit"
    taken = False
    with suppress(FilterError):  # no number meets this condition
        taken = measured(text, low=low, high=high, unit=target).matches(Event("x", value=value, unit=unit))
    assert taken is ((low <= converted <= high) is not is_negated)


@given(units_alike(), bounds, st.sampled_from(sorted(OPERATORS)), st.integers(-3, 3))
def test_filter_and_conversion_agree_right_beside_the_bound(
    units: tuple[str, str], bound: float, operator: str, steps: int
) -> None:
    target, unit = units
    table = TAXONOMY.units.conversions(target)
    back = TAXONOMY.units.conversions(unit)
    assume(unit in table and target in back)
    value = back[target](bound)
    for _ in range(abs(steps)):
        value = math.nextafter(value, math.copysign(math.inf, steps))
    assume(math.isfinite(value))
    wanted = OPERATORS[operator](table[unit](value), bound)
    taken = False
    with suppress(FilterError):  # no number meets this condition
        said = measured(f"value {operator} :limit :unit", limit=bound, unit=target)
        taken = said.matches(Event("x", value=value, unit=unit))
    assert taken is wanted


@pytest.mark.parametrize("text", ["value > 5 'm'", "NOT value > 5 'm'", "NOT (value > 5 'm' AND type = 'x')"])
@pytest.mark.parametrize("unit", [None, "kg", "parsec", "", 5])
def test_a_value_without_a_known_unit_meets_neither_a_comparison_nor_its_opposite(
    text: str, unit: object
) -> None:
    event = Event("x", value=1) if unit is None else Event("x", value=1, unit=unit)
    assert not measured(text).matches(event)


def test_temperatures_are_converted_with_their_offset() -> None:
    warm = measured("value >= 20 '°C'")
    for value, unit, is_warm in [(68, "degF", True), (67.9, "°F", False), (293.15, "K", True)]:
        assert warm.matches(Event("t", value=value, unit=unit)) is is_warm
    table = TAXONOMY.units.conversions("°C")
    assert (table["°F"](212), table["K"](0), table["Cel"](21.5)) == (100.0, -273.15, 21.5)


def test_the_unit_of_an_attribute_stands_beside_it() -> None:
    wide = measured("box.width > 1 'm' AND height < 3 'm'")
    assert wide.matches(Event("x", {"box": {"width": 120, "unit": "cm"}, "height": 2, "unit": "m"}))
    assert not wide.matches(Event("x", {"box": {"width": 120}, "height": 2, "unit": "cm"}))


def test_a_unit_that_no_list_has_is_taken_as_it_is_spelled() -> None:
    heavy = measured("value > 1 'grain/ft³'")
    assert heavy.matches(Event("x", value=2, unit="grain/ft³"))
    assert heavy.matches(Event("x", value=2.3, unit="g/m³"))
    assert not heavy.matches(Event("x", value=2.2, unit="g/m³"))


def test_degrees_and_percent_are_not_alike() -> None:
    assert not measured("value > 1 '%'").matches(Event("x", value=90, unit="°"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("value > 5 'bogus'", "line 1, column 11: there is no unit 'bogus'"),
        ("value > 5 'mg/m^33'", "line 1, column 11: 'mg/m^33' is no unit; did you mean 'mg/m^3'?"),
        ("a = 1 AND\nvalue > 5 'dB'", "line 2, column 11: 'dB' can't be converted: its scale is not linear"),
        ("value > 5 ''", "line 1, column 11: a unit has 1 to 64 characters"),
        ("value > 5 m", "line 1, column 11: expected AND, OR or the end, found m"),
        (
            "value + 1 > 5 'm'",
            "line 1, column 1: only an attribute can be compared with a unit",
        ),
        (
            "value > 5 'm' + 1",
            "line 1, column 9: a number with a unit can't be calculated with",
        ),
        (
            "value IN (5 'm')",
            "line 1, column 11: a number in a list has no unit (write = and OR)",
        ),
        ("5 'm'", "line 1, column 1: a number with a unit is no condition (compare it with something)"),
        (
            "value BETWEEN 1 'm' AND 2",
            "line 1, column 25: the second end of BETWEEN needs a unit, as the first has one",
        ),
        (
            "value BETWEEN 1 'm' AND 2 'km'",
            "line 1, column 25: the ends of BETWEEN have two units, 'm' and 'km'",
        ),
        ("value BETWEEN 'a' AND 2 'm'", "line 1, column 23: a unit goes with two numbers"),
        ("ttl_s > 5 's'", "line 1, column 1: ttl_s is a header field, which has no unit"),
    ],
)
def test_a_wrong_unit_is_refused_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(FilterError) as raised:
        measured(text)
    assert str(raised.value) == problem


def test_a_unit_without_a_taxonomy_is_refused() -> None:
    with pytest.raises(FilterError, match="line 1, column 11: a unit needs a taxonomy"):
        Filter("value > 5 'm'")
    with pytest.raises(FilterError, match="a unit needs a taxonomy"):
        Filter("value > :limit", limit=Quantity(5, "m"))


def test_a_filter_with_many_units_or_brackets_is_refused() -> None:
    many = " AND ".join(["value > 5 'm'"] * (QUANTITIES_MAX + 1))
    with pytest.raises(FilterError, match=f"more than {QUANTITIES_MAX} comparisons with units"):
        measured(many)
    deep = "(" * NESTING_MAX + "value > 5 'm'" + ")" * NESTING_MAX
    with pytest.raises(FilterError, match=f"nested more than {NESTING_MAX} deep"):
        measured(deep)
    less = measured("(a = 1 OR " * (NESTING_MAX - 1) + "value > 5 'm' AND b = 1" + ")" * (NESTING_MAX - 1))
    assert Filter(str(less)) == less


def test_a_taxonomy_adds_spellings_and_units() -> None:
    taxonomy = Taxonomy({"units": {"mcg/m3": "µg/m³", "gr/cf": "grain/ft³", "C": "°C"}})
    dust = Filter("value > 50 'mcg/m3'", taxonomy=taxonomy)
    assert dust.matches(Event("x", value=51, unit="mcg/m3"))
    assert dust.matches(Event("x", value=0.051, unit="mg/m³"))
    assert dust.matches(Event("x", value=1, unit="gr/cf"))
    assert not measured("value > 50 'µg/m³'").matches(Event("x", value=51, unit="mcg/m3"))


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ([], "$.units: must be a table of units by their spellings"),
        ({"a": 5}, "$.units['a']: must be a unit as a string"),
        ({"a": "bogus"}, "$.units['a']: there is no unit 'bogus'"),
        (
            {"a" * (UNIT_LENGTH_MAX + 1): "m"},
            f"$.units['{'a' * UNIT_LENGTH_MAX}']: a unit has 1 to 64 characters",
        ),
        ({f"u{n}": "m" for n in range(UNITS_MAX + 1)}, f"$.units: more than {UNITS_MAX} units"),
        (
            {f"u{a}{b}": f"{a}m/{b}" for a in "pnµmkMGTPE" for b in ("s", "min", "h", "d", "week", "year")},
            f"$.units: more than {UNITS_ALIKE_MAX} units are of the kind of 'u",
        ),
    ],
)
def test_a_wrong_table_of_units_is_refused_with_its_place(table: object, problem: str) -> None:
    with pytest.raises(FilterError) as raised:
        Taxonomy({"units": table})
    assert str(raised.value).startswith(problem)


def test_without_pint_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pint", None)
    for cached in (units._registry, units._scale):
        cached.cache_clear()
    try:
        with pytest.raises(MissingExtra, match=r"tidings\[concepts\]"):
            measured("value > 5 'm'")
    finally:
        units._registry.cache_clear()


def test_all_spellings_mean_their_unit() -> None:
    table = Units()
    for unit, spellings in KNOWN_UNITS.items():
        for spelling in spellings:
            assert table.scale(spelling) == table.scale(unit)
        assert unit in table.conversions(spellings[-1])


# Values of events


def test_an_event_that_can_not_be_converted_stays_as_it_is() -> None:
    convert = Converter({"value": "µg/m³"})
    for values in (
        {"value": 1.0},
        {"value": 1, "unit": "kg"},
        {"value": "x", "unit": "mg/m³"},
        {"unit": "mg/m³"},
    ):
        event = Event("x", values)
        assert convert(event) is event
    same = Event("x", value=60, unit="µg/m³")
    assert convert(same) is same


def test_values_beside_one_unit_are_converted_together() -> None:
    convert = Converter({"pos.x": "m", "pos.y": "m", "value": "°C"})
    event = convert(
        Event("x", {"pos": {"x": 1, "y": 2, "unit": "km"}, "value": 50, "unit": "°F"}, priority=7)
    )
    assert (event["pos.x"], event["pos.y"], event["pos.unit"], event["value"]) == (1000.0, 2000.0, "m", 10.0)
    assert (event["original.pos.x"], event["original.pos.unit"], event["original.unit"]) == (1, "km", "°F")
    assert event.priority == 7
    with pytest.raises(FilterError, match=r"pos\.y: pos\.unit can't be both 'm' and 'km'"):
        Converter({"pos.x": "m", "pos.y": "km"})
    with pytest.raises(FilterError, match="there is no unit 'bogus'"):
        Converter({"value": "bogus"})


def test_an_event_converted_twice_keeps_its_first_value() -> None:
    once = Converter({"value": "g/m³"})(Event("x", value=60, unit="µg/m³"))
    assert Converter({"value": "mg/m³"})(once)["original.value"] == 60

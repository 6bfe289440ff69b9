"""The language: what JMS says, what tidings adds, and what is said to those who mistype."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tidings import Event, Filter
from tidings.errors import FilterError
from tidings.filters import Taxonomy
from tidings.filters.parser import ALTERNATIVES_MAX, CALCULATIONS_MAX, LIST_MAX, NESTING_MAX
from tidings.filters.tokens import LENGTH_MAX

DATA = Path(os.environ.get("TIDINGS_DATA") or Path(__file__).parents[3] / "shared" / "data")
FACTS = DATA / "selector_cases.json"

# JMS leaves ordering to numbers and IN to strings; tidings allows both for every kind of value.
ALLOWED_HERE = ("myProp > 'foo'", "myProp >= 'foo'", "myProp < 'foo'", "myProp <= 'foo'")
ALLOWED_HERE += ("myProp BETWEEN 'foo' and 'test'", "myProp NOT IN (1,2,3)")


def matches(text: str, **attributes: Any) -> bool:
    return Filter(text).matches(Event("t", attributes))


def answer(text: str, **attributes: Any) -> bool | None:
    return Filter(text).test(Event("t", attributes))


def complaint(text: str, **parameters: Any) -> str:
    with pytest.raises(FilterError) as caught:
        Filter(text, **parameters)
    return str(caught.value)


# Some of those facts, of the Jakarta Messaging TCK and of ActiveMQ Artemis, for where they are not at hand.
KNOWN: list[tuple[str, dict[str, Any], bool | str]] = [
    ("age BETWEEN 15 and 19", {"age": 17}, True),
    ("age BETWEEN 15 and 19", {"age": 20}, False),
    ("age NOT BETWEEN 15 and 19", {}, False),
    ("myProp BETWEEN 5 and 10", {"myProp": "7"}, False),
    ("Country IN ('UK', 'US', 'France')", {"Country": "UK"}, True),
    ("Country IN ('UK', 'US', 'France')", {"Country": "Peru"}, False),
    ("myNullProp NOT IN ('foo','jms','test')", {}, False),
    ("myNullProp NOT IN ('foo','jms','test')", {"myNullProp": "JMS"}, True),
    ("word LIKE 'l_se'", {"word": "lose"}, True),
    ("word LIKE 'l_se'", {"word": "loose"}, False),
    ("phone NOT LIKE '12%3'", {}, False),
    ("myProp LIKE '1_3'", {"myProp": 123}, False),
    ("JMSType LIKE 'A_fo_A%f%' ESCAPE 'A'", {"JMSType": "_foo%foo"}, True),
    ("JMSType NOT LIKE 'A_fooA%' ESCAPE 'A'", {"JMSType": "_foo%"}, False),
    ("JMSType NOT LIKE 'A_fooA%' ESCAPE 'A'", {"JMSType": "jms"}, True),
    ("prop_name IS NULL", {}, True),
    ("prop_name IS NULL", {"prop_name": "not null"}, False),
    ("prop_name IS NOT NULL", {}, False),
    ("myProp IS NOT NULL", {"myProp": 10.0}, True),
    ("NOT myNullProp", {}, False),
    ("NOT myNullProp", {"myNullProp": False}, True),
    ("NULL = 0", {}, "invalid"),
    ("myProp LIKE 7", {}, "invalid"),
    ("1uncorrect IS NULL", {}, "invalid"),
]


@pytest.mark.parametrize(("text", "properties", "expected"), KNOWN)
def test_selectors_do_what_the_conformance_suites_say(
    text: str, properties: dict[str, Any], expected: bool | str
) -> None:
    if expected == "invalid":
        assert complaint(text)
    else:
        assert Filter(text).matches(Event("t", properties)) is expected


@pytest.mark.skipif(not FACTS.exists(), reason="the conformance facts are not beside the project")
def test_the_facts_of_the_conformance_suites_hold() -> None:
    facts = json.loads(FACTS.read_text())
    assert len(facts) > 100
    for fact in facts:
        text, event = fact["selector"], Event("t", fact["properties"])
        if fact["expected"] == "invalid" and text not in ALLOWED_HERE:
            complaint(text)
        else:
            assert Filter(text).matches(event) is (fact["expected"] is True), fact
            assert Filter(str(Filter(text))) == Filter(text)
            assert Filter(text).simplify().matches(event) is (fact["expected"] is True), fact


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x = 'it''s'", "it's"),
        ("x = 7.", 7.0),
        ("x = .5", 0.5),
        ("x = -95.7", -95.7),
        ("x = 7E3", 7000),
        ("x = 7e+3", 7000.0),
        ("x = 12e-1", 1.2),
        ("x = 1.5f", 1.5),
        ("x = 2d", 2),
        ("x = 0x1D", 29),
        ("x = 0x1dL", 29),
        ("x = 0x1E+3", 33),
        ("x = 035", 29),
        ("x = 0", 0),
        ("x = 62L", 62),
        ("x = -9223372036854775808", -(2**63)),
        ("x = 9223372036854775807l", 2**63 - 1),
        ("x = TRUE", True),
        ("x = false", False),
        ("x = X'00ff'", b"\x00\xff"),
        ("x = TIMESTAMP '2026-11-15 08:00:00'", datetime(2026, 11, 15, 8, tzinfo=UTC)),
        ("x = timestamp '2026-11-15T09:00:00+01:00'", datetime(2026, 11, 15, 8, tzinfo=UTC)),
        ("x = DATE '2026-11-15'", datetime(2026, 11, 15, tzinfo=UTC)),
    ],
)
def test_literals_of_every_kind_are_read(text: str, value: Any) -> None:
    assert matches(text, x=value)
    assert not matches(text, x="something else")
    assert not matches(f"NOT ({text})", x=value)


def test_precedence_is_not_then_and_then_or_and_products_before_sums() -> None:
    assert matches("NOT a AND b OR c", a=True, b=True, c=True)
    assert not matches("NOT (a AND b OR c)", a=True, b=True, c=True)
    assert matches("TRUE OR FALSE AND FALSE")
    assert matches("x = 2 + 3 * 4 - 6 / 3", x=12)
    assert matches("x = (2 + 3) * 4", x=20)
    assert matches("x - 1 - 1 = 8", x=10)
    assert matches("-x * 2 = -10", x=5)


def test_keywords_are_case_insensitive_and_names_are_not() -> None:
    assert matches("x Between 1 aNd 3 and not y iS nUlL", x=2, y=1)
    assert not matches("X = 1", x=1)


def test_names_may_be_dotted_quoted_or_those_of_header_fields() -> None:
    event = Event(
        "air.pm10", {"pos": {"x": 1}, "sensing-id": "n", "select": 2, 'q"': 3}, priority=7, subject="s"
    )
    other = Event("air.pm10", {"pos": {"x": 2}, "sensing-id": "m", "select": 3, 'q"': 4}, subject="n")
    for text in (
        "pos.x = 1",
        "\"sensing-id\" = 'n'",
        "select = 2",
        '"q""" = 3',
        "priority = 7",
        "subject = 's'",
    ):
        assert Filter(text).matches(event), text
        assert not Filter(text).matches(other), text
        assert Filter(str(Filter(text))) == Filter(text)
    assert Filter("type = 'air.pm10' AND time > DATE '2020-01-01' AND channel IS NULL").matches(event)


def test_the_jms_names_are_other_spellings_of_header_fields() -> None:
    event = Event("car", priority=7, delivery="reliable", correlation_id="c", id="i", reply_to="q")
    event = event.evolve(time=datetime(2026, 1, 1, tzinfo=UTC))
    for text in (
        "JMSType = 'car'",
        "JMSPriority > 6",
        "JMSDeliveryMode = 'PERSISTENT'",
        "JMSTimestamp = 1767225600000",
        "JMSCorrelationID = 'c' AND JMSMessageID = 'i' AND JMSReplyTo = 'q'",
    ):
        assert Filter(text).matches(event), text
    assert str(Filter("JMSType = 'car'")) == "type = 'car'"


def test_what_is_missing_or_of_another_kind_is_unknown_and_so_is_its_opposite() -> None:
    for text in ("x = 1", "x <> 1", "x < 1", "x IN (1, 2)", "x BETWEEN 0 AND 2", "x + 1 = 2", "x = y"):
        for value in ("1", True, b"1", float("nan")):
            assert answer(text, x=value) is None, (text, value)
            assert answer(f"NOT ({text})", x=value) is None, (text, value)
        assert answer(text) is None
    assert answer("x LIKE '1'", x=1) is None
    assert answer("x", x=1) is None
    assert answer("x IN ('a', 1)", x="b") is None
    assert answer("x > y", x=True, y=False) is None


def test_three_valued_logic_has_the_tables_of_sql() -> None:
    for left, right, both, either in [
        (True, None, None, True),
        (False, None, False, None),
        (None, None, None, None),
        (True, False, False, True),
    ]:
        given = {name: value for name, value in (("a", left), ("b", right)) if value is not None}
        assert answer("a AND b", **given) is both
        assert answer("b AND a", **given) is both
        assert answer("a OR b", **given) is either
        assert answer("b OR a", **given) is either


def test_literals_of_unlike_kinds_are_unknown_together() -> None:
    for text in ("'a' = 1", "'a' <> 1", "x + 1 = 'a'", "1 < 'a'", "'a' BETWEEN 1 AND 2"):
        assert answer(text, x=1) is None, text
        assert answer(f"NOT ({text})", x=1) is None, text
        assert not Filter(text).normal


def test_what_brokers_disagree_about_is_settled() -> None:
    assert matches("x = 5 / 2", x=2.5)
    assert answer("1 / 0 = 1") is None
    assert matches("x < 'b'", x="a")
    assert matches("x BETWEEN 'a' AND 'c'", x="b")
    assert matches("x IN (1, 2.5, TRUE, 'a')", x=2.5)
    assert matches("x != 1", x=2)
    assert matches("")
    assert matches(" \n\t")
    assert matches("x LIKE 'a_c'", x="a\U0001f600c")
    assert matches("x LIKE 'a%c'", x="a\n\nc")
    assert matches("x = 1 AND y = 1.0", x=1.0, y=1)
    for text in ("5", "'a'", "a + 1", "x = 1 OR 3", "NOT 2"):
        complaint(text)


def test_large_integers_compare_exactly_with_floats() -> None:
    assert not matches("x = 9007199254740993", x=9007199254740992.0)
    assert matches("x > 9007199254740992.0", x=9007199254740993)
    assert matches("x = y - 1", x=9007199254740992, y=9007199254740993)
    assert matches("x + 1 > 9.2e18", x=2**63 - 1)


def test_parameters_are_bound_never_pasted() -> None:
    text = "x' OR TRUE OR y = '"
    assert Filter("color = :c AND n > :n", c=text, n=3).matches(Event("t", color=text, n=4))
    assert not Filter("color = :c", c=text).matches(Event("t", color="x"))
    later = timezone(timedelta(hours=1))
    assert Filter("x = :t", t=datetime(2026, 1, 1, 1, tzinfo=later)) == Filter("x = DATE '2026-01-01'")
    assert Filter("x IN :many", many=["b", "a", "b"]) == Filter("x IN ('a', 'b')")
    assert Filter("x LIKE :p ESCAPE :e", p="a!%%", e="!").matches(Event("t", x="a%b"))
    assert Filter("x IN (:one)", one=1) == Filter("x = 1")


def test_a_mistake_is_named_with_its_place_what_was_expected_and_a_hint() -> None:
    said = "line 1, column 7: expected AND, OR or the end, found => (did you mean >=)"
    assert complaint("value => 3") == said
    assert complaint("a = 1\nAND b == 2").startswith("line 2, column 7: expected AND, OR or the end")
    assert complaint("x = 'abc").startswith("line 1, column 5: ")
    assert "no end" in complaint("x = 'abc")
    assert "did you mean STARTS_WITH" in complaint("START_WITH(x, 'a')")
    assert "reserved word" in complaint("order = 1 AND like = 2")
    assert "booleans have no order" in complaint("x > TRUE")
    assert 'written "sensing-id"' in complaint("sensing-id = 'a'")
    assert "can never be true" in complaint("TRUE = 0")
    assert "IS NULL" in complaint("x = NULL")
    assert complaint("x IN :v") == "line 1, column 6: no value was given for the parameter :v"
    assert "pairs of hexadecimal digits" in complaint("x = X'0'")
    assert len(complaint("x = TIMESTAMP '" + "9" * 100_000 + "'")) < 300
    assert complaint(None) == "a filter is text, not NoneType"  # type: ignore[arg-type]
    assert "is no condition" in complaint("5")
    assert "found the end" in complaint("a = 1 AND")
    assert complaint("x = :p") == "line 1, column 5: no value was given for the parameter :p"
    assert complaint("x = 1", p=1) == "the filter has no parameter :p"
    assert ":p can't be used" in complaint("x = :p", p={1})
    assert ":p can't be used" in complaint("x = :p", p=float("nan"))
    assert "IS_A" in complaint("IS_A(type)")
    assert "half a surrogate" in complaint("x = '\ud800'")
    with pytest.raises(FilterError) as caught:
        Filter("a =\n  = 2")
    error = caught.value
    assert (error.line, error.column, error.problem) == (2, 3, "expected a name, a value or (, found =")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = '" + "a" * LENGTH_MAX + "'", f"more than {LENGTH_MAX}"),
        ("(" * 50_000, f"nested more than {NESTING_MAX} deep"),
        ("(" * 50_000 + "a" + ")" * 50_000, f"nested more than {NESTING_MAX} deep"),
        ("x IN (" + ", ".join(map(str, range(LIST_MAX + 1))) + ")", f"more than {LIST_MAX}"),
        (" OR ".join(f"a{i} = 1" for i in range(ALTERNATIVES_MAX + 1)), f"more than {ALTERNATIVES_MAX}"),
        ("x = 1" + " + 1" * (CALCULATIONS_MAX + 1), f"more than {CALCULATIONS_MAX} calculations"),
        ("x = " + "9" * 5_000, "too large for a 64-bit integer"),
        ("x = 0x" + "f" * 5_000, "too large for a 64-bit integer"),
        ("x = 1e999", "too large for a floating-point number"),
        ("x = 9223372036854775808", "too large for a 64-bit integer"),
        ("NOT " * 50_000, "found the end"),
        ("-" * 50_000, "expected a name, a value or ("),
        ("x LIKE '" + "%a" * 2_000 + "'", "too long"),
        ("a" * 300_000, f"more than {LENGTH_MAX}"),
    ],
)
def test_limits_have_a_message_of_their_own(text: str, says: str) -> None:
    assert says in complaint(text)


def test_long_filters_within_the_limits_are_read() -> None:
    assert matches("NOT " * 50_000 + "x", x=True)
    assert matches("(" * NESTING_MAX + "x" + ")" * NESTING_MAX, x=True)
    assert matches("x = " + "-" * 50_000 + "5", x=5)
    assert matches(" AND ".join(["x > 1"] * 10_000), x=2)
    assert matches(" OR ".join(f"x = {i}" for i in range(ALTERNATIVES_MAX)), x=999)
    many = Filter("x IN :many", many=list(range(LIST_MAX)))
    assert many.matches(Event("t", x=LIST_MAX - 1))
    assert Filter(str(many)) == many
    assert matches("x = 1" + " + 1" * CALCULATIONS_MAX, x=1 + CALCULATIONS_MAX)


@pytest.mark.parametrize(
    "text",
    [
        "x = 1" + " " * 250_000,
        " AND ".join(f"x <> {i}" for i in range(15_000)),
        " AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(8_000)),
        " AND ".join(f"a < b{i}" for i in range(16_000)),
        " OR ".join(f"(a IN ({i}, {i + 1}, {i + 2}) AND b = {i})" for i in range(1_000)),
        "x LIKE '%a%a%a%a%a%a%b' AND y NOT LIKE '" + "_%" * 499 + "'",
        "NOT (" + " OR ".join(f"x BETWEEN {i} AND {i}.5" for i in range(1_000)) + ")",
    ],
)
def test_hostile_filters_within_the_limits_are_dealt_with(text: str) -> None:
    filter = Filter(text)
    assert filter.covers(filter)
    assert len(filter.normal) <= 64
    assert filter.merge(Filter("z = 1")).covers(Filter("z = 1"))
    assert not filter.matches(Event("t", x="a" * 100_000, y="b"))


def test_a_pattern_of_many_levels_is_refused_by_its_length() -> None:
    for function in ("UNDER", "TOPIC"):
        assert "too long" in complaint(f"{function}(t, '{'.'.join('a' * 1_000)}')")


def test_names_of_python_are_only_names() -> None:
    assert not matches("__class__ = 'str' OR x.__class__.__mro__ IS NOT NULL OR values IS NOT NULL")
    assert matches("__class__ = 'c'", __class__="c")


def test_a_taxonomy_is_written_out_when_the_filter_is_made() -> None:
    taxonomy = Taxonomy({"vehicle": {"narrower": ["car"], "synonyms": ["Fahrzeug"]}})
    filter = Filter("IS_A(type, 'vehicle')", taxonomy=taxonomy)
    for kind, taken in (("car", True), ("car.fast", True), ("Fahrzeug", True), ("carrot", False)):
        assert filter.matches(Event(kind)) is taken
        assert Filter(str(filter)).matches(Event(kind)) is taken


def test_a_filter_never_changes() -> None:
    with pytest.raises(AttributeError, match="never changes"):
        Filter("x = 1").exact = False

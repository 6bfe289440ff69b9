"""Covering, overlapping, merging and simplifying, by the examples of the literature."""

from __future__ import annotations

import pytest

from tidings import Event, Filter
from tidings.errors import FilterError
from tidings.filters.evaluate import condition_test
from tidings.filters.normal import condition_of
from tidings.filters.relations import UNITED_MAX


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("x > 3", "x > 5"),
        ("x > 3", "x = 4 AND y = 1"),
        ("x >= 1 AND x <= 10", "x BETWEEN 5 AND 7"),
        ("x <> 3", "x IN (1, 2)"),
        ("x IS NOT NULL", "x LIKE '%a'"),
        ("x LIKE 'a%'", "x LIKE 'ab%'"),
        ("STARTS_WITH(x, 'a')", "x = 'abc'"),
        ("x LIKE '%c'", "x IN ('abc', 'c')"),
        ("x NOT LIKE '%c'", "x = 'b'"),
        ("IS_A(type, 'air')", "IS_A(type, 'air.pm10')"),
        ("UNDER(type, 'iit.sales')", "type = 'iit'"),
        ("x < 5 OR x >= 5", "x = 4"),
        ("a = 1 AND x < 5 OR a = 1 AND x >= 5", "a = 1 AND x BETWEEN 0 AND 9"),
        ("x = 1 OR y = 1", "x = 1 AND y = 2"),
        ("a < b", "a < b AND c = 1"),
        ("x", "x = TRUE"),
        ("NOT (x < 5)", "x > 6"),
        ("x >= ''", "x LIKE '_'"),
        ("", "a = 1"),
        ("a = 1", "FALSE"),
    ],
)
def test_the_wider_filter_covers_the_narrower(wide: str, narrow: str) -> None:
    assert Filter(wide).covers(Filter(narrow))
    assert Filter(wide).overlaps(Filter(narrow)) is (narrow != "FALSE")


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("x > 5", "x > 3"),
        ("x > 5", "y > 5"),
        ("x = 1 AND y = 1", "x = 1"),
        ("x <> 3", "x IS NOT NULL"),
        ("x > 3", "x > '3'"),
        ("x LIKE '%c'", "x IN ('abc', 'd')"),
        ("x IS NULL", ""),
        ("x = 1", "x = TRUE"),
    ],
)
def test_what_is_not_wider_does_not_cover(wide: str, narrow: str) -> None:
    assert not Filter(wide).covers(Filter(narrow))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x > 5", "x < 5"),
        ("x > 5", "x = '6'"),
        ("x = 'a'", "x = 'b'"),
        ("x LIKE 'a%'", "x LIKE 'b%'"),
        ("x IS NULL", "x > 3"),
        ("x = TRUE", "NOT x"),
        ("type = 'a' AND x > 1", "IS_A(type, 'b')"),
        ("x NOT IN (1, 2)", "x IN (1, 2)"),
    ],
)
def test_filters_without_a_common_event_do_not_overlap(one: str, other: str) -> None:
    assert not Filter(one).overlaps(Filter(other))
    assert not Filter(other).overlaps(Filter(one))


@pytest.mark.parametrize(
    ("one", "other", "merged"),
    [
        ("x > 10", "x = 10", "x >= 10"),
        ("x > 3", "x > 5", "x > 3"),
        ("x = 1", "x = 2", "x IN (1, 2)"),
        ("x < 5", "x > 5", "x <> 5"),
        ("a = 1 AND x BETWEEN 0 AND 5", "a = 1 AND x BETWEEN 5 AND 9", "a = 1 AND x BETWEEN 0 AND 9"),
        ("a = 1", "b = 2", "a = 1 OR b = 2"),
        ("x IS NULL", "x IS NOT NULL", "TRUE"),
        ("x LIKE 'a%'", "x = 'b'", "x = 'b' OR x >= 'a' AND x < 'b'"),
        ("x > 1", "FALSE", "x > 1"),
    ],
)
def test_an_exact_merge_is_the_shortest_that_takes_just_both(one: str, other: str, merged: str) -> None:
    result = Filter(one).merge(Filter(other))
    assert result.exact
    assert result == Filter(merged) or result == Filter(merged).simplify(), str(result)


def test_a_merge_of_many_stays_bounded_and_says_that_it_is_wider() -> None:
    merged = Filter("FALSE")
    filters = [Filter(f"a{i} = 1 AND b > {i}") for i in range(5 * UNITED_MAX)]
    for filter in filters:
        merged = merged.merge(filter)
        assert len(merged.normal) <= UNITED_MAX
    assert not merged.exact
    assert all(merged.covers(filter) for filter in filters)


def test_what_differs_in_more_than_one_attribute_is_not_joined() -> None:
    for other in ("a = 2 AND n LIKE '%y%'", "a = 2 AND b = 2", "a = 2"):
        one = "a = 1 AND n LIKE '%x%' AND b = 1" if "b" in other else "a = 1 AND n LIKE '%x%'"
        merged = Filter(one).merge(Filter(other))
        assert merged.exact
        assert len(merged.normal) == 2
        assert not merged.matches(Event("t", a=1, b=2, n="y"))


def test_a_coarse_merge_demands_only_what_both_demand() -> None:
    texts = [[f"{name}{i} = 1 AND n LIKE '%{name}{i}%'" for i in range(UNITED_MAX - 4)] for name in "km"]
    one, other = (Filter(" OR ".join(alternatives)) for alternatives in texts)
    merged = one.merge(other)
    assert not merged.exact
    assert len(merged.normal) <= UNITED_MAX
    for name in "km":
        for i in range(UNITED_MAX - 4):
            assert merged.matches(Event("t", {f"{name}{i}": 1, "n": f"{name}{i}"}))


def merged_in_two_thick_parts() -> Filter:
    low, high = list(range(6_000)), list(range(7_000, 13_000))
    return Filter("x IN :low", low=low).merge(Filter("x IN :high", high=high))


def test_a_merge_of_very_many_single_values_stays_readable() -> None:
    merged = merged_in_two_thick_parts()
    assert not merged.exact
    assert merged.matches(Event("t", x=6_500))
    assert Filter(str(merged)) == merged


def test_an_inexact_merge_stays_inexact_when_merged_again() -> None:
    wide = merged_in_two_thick_parts()
    assert not wide.exact
    assert not wide.merge(Filter("y = 1")).exact


def test_simplifying_removes_what_says_nothing() -> None:
    assert str(Filter("x > 1 AND x > 3 AND x < 9").simplify()) == "x > 3 AND x < 9"
    assert str(Filter("x = 1 OR x = 2 OR x = 1").simplify()) == "x IN (1, 2)"
    assert str(Filter("x > 1 AND x < 0").simplify()) == "FALSE"
    assert str(Filter("a = 1 OR a = 1 AND b = 2").simplify()) == "a = 1"
    assert str(Filter("NOT (x > 3 OR y = 1)").simplify()) == "x <= 3 AND y <> 1"


def test_lists_of_unlike_kinds_are_told_apart() -> None:
    assert Filter("x IN (TRUE, 2)") != Filter("x IN (1, 2)")
    assert not Filter("x IN (TRUE, 2)").covers(Filter("x IN (1, 2)"))
    assert Filter("x IN (1.0, 2)") == Filter("x IN (1, 2)")


def test_joined_filters_stay_within_the_nesting_a_filter_may_have() -> None:
    filter = Filter("a = 1")
    for _ in range(25):
        filter = (filter & Filter("b = 1")) | Filter("c = 1")
    with pytest.raises(FilterError, match="nested more than 50 deep"):
        filter & Filter("b = 1")


def test_a_long_simplified_list_is_still_text_that_can_be_read() -> None:
    filter = Filter("x IN :a OR x IN :b", a=range(9_000), b=range(9_000, 18_000)).simplify()
    assert Filter(str(filter)) == filter
    assert Filter(str((~filter).simplify())).matches(Event("t", x=-1))


def test_filters_are_joined_with_and_and_or() -> None:
    one, other = Filter("x > 1 OR y = 1"), Filter("z = 2")
    assert str(one & other) == "(x > 1 OR y = 1) AND z = 2"
    assert str(one | other) == "x > 1 OR y = 1 OR z = 2"
    assert str(~one) == "NOT (x > 1 OR y = 1)"
    assert str(~~other) == "z = 2"


def test_a_normal_form_that_would_explode_keeps_a_residue_and_its_meaning() -> None:
    text = " AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(20))
    filter = Filter(text)
    assert len(filter.normal) <= 64
    assert filter.matches(Event("t", {f"a{i}": 1 for i in range(20)}))
    assert filter.covers(filter)
    assert filter.covers(Filter(f"({text}) AND c = 1"))


def test_a_normal_form_that_would_explode_under_a_not_keeps_the_opposite() -> None:
    factors = [" AND ".join(f"{name}{i} = 1" for i in range(5)) for name in "abc"]
    filter = Filter("NOT (" + " OR ".join(factors) + ")")
    rebuilt = condition_test(condition_of(filter.normal))
    none = {f"{name}{i}": 0 for name in "abc" for i in range(5)}
    for name in ("", *"abc"):
        event = Event("t", {key: int(key[0] == name) for key in none})
        assert rebuilt(event) is filter.matches(event) is (name == ""), name

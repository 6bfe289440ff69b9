from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tidings.event.values import Value
from tidings.filters.functions import FUNCTIONS, Function

SQUARE = "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))"
CALLS: list[tuple[str, int, tuple[Value, ...]]] = [
    ("STARTS_WITH", 1, ("ab",)),
    ("ENDS_WITH", 1, ("ab",)),
    ("CONTAINS", 1, ("ab",)),
    ("LIKE", 1, ("a%_b!%", "!")),
    ("LIKE", 1, ("ab%",)),
    ("MATCHES", 1, ("^ab",)),
    ("TOPIC", 1, ("a.*.b",)),
    ("TOPIC", 1, ("a/#",)),
    ("UNDER", 1, ("a.b",)),
    ("IS_A", 1, ("a", "b.c")),
    ("WITHIN", 1, (SQUARE,)),
    ("WITHIN", 2, (SQUARE,)),
    ("DISTANCE", 2, (1, 2.5)),
    ("DISTANCE", 2, (1, 2.5, "m")),
]
calls = st.sampled_from(CALLS)
values: st.SearchStrategy[Value] = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text("ab.c/$%\0\n\U0010ffff", max_size=8) | st.text(),
    st.sampled_from(["POINT (1 1)", "POINT (1 x)", "a.x.b", "a/b"]),
    st.datetimes(timezones=st.just(UTC)),
    st.binary(max_size=8),
)


def test_the_table_has_every_function_under_its_name() -> None:
    assert {name for name, _, _ in CALLS} == set(FUNCTIONS)
    assert all(name == function.name for name, function in FUNCTIONS.items())


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_every_function_says_how_it_is_used(function: Function) -> None:
    assert function.name in function.usage
    assert (function.implied is None) == (function.gives == "number")


@given(calls, values, values)
@example(("WITHIN", 2, (SQUARE,)), 2**63 - 1, float("-inf"))
def test_no_value_makes_a_function_fail(
    call: tuple[str, int, tuple[Value, ...]], first: Value, second: Value
) -> None:
    name, names, constants = call
    function = FUNCTIONS[name]
    result = function.prepare(*constants)(*(first, second)[:names])
    kinds = (bool,) if function.gives == "condition" else (float,)
    assert result is None or type(result) in kinds


@given(calls, values, values)
def test_a_condition_is_true_only_where_it_implies_it_may_be(
    call: tuple[str, int, tuple[Value, ...]], first: Value, second: Value
) -> None:
    name, names, constants = call
    function = FUNCTIONS[name]
    if function.implied is None:
        return
    given_values = (first, second)[:names]
    constraints, exact = function.implied(names, *constants)
    admitted = all(c.admits(value) for c, value in zip(constraints, given_values, strict=True))
    holds = function.prepare(*constants)(*given_values) is True
    assert admitted or not holds
    if exact:
        assert holds == admitted


@given(calls, values)
def test_a_string_condition_is_unknown_for_every_other_kind(
    call: tuple[str, int, tuple[Value, ...]], value: Value
) -> None:
    name, names, constants = call
    assume(names == 1 and not isinstance(value, str))
    assert FUNCTIONS[name].prepare(*constants)(value) is None


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - {"DISTANCE"}))
@pytest.mark.parametrize("constant", [5, 1.5, True, datetime(2026, 1, 1, tzinfo=UTC), b"ab"])
def test_a_constant_of_the_wrong_kind_is_refused(name: str, constant: Value) -> None:
    function = FUNCTIONS[name]
    assert function.implied is not None
    with pytest.raises(ValueError, match="not "):
        function.prepare(constant)
    with pytest.raises(ValueError, match="not "):
        function.implied(1, constant)

"""Functions of the filter language: one table, which the parser, the evaluation and the normal form read.

A function has attribute names first and constants after them. Its constants are checked once, when the filter
is made; the result is a plain test of the attributes' values. The rule kept: a test is total. It takes any
values an event can have and returns true, false or, for values of another kind, None: unknown. The demands of
a condition on each single attribute are given apart from the test, as sets of values, so that filters can be
compared and indexed without knowing the function.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import methodcaller
from typing import Literal

from msgspec import Struct

from tidings.event.values import Value
from tidings.filters.constraint import Constraint
from tidings.filters.geometry import implied_by_within, prepare_distance, prepare_within
from tidings.filters.intervals import EVERYTHING, Intervals, prefixed
from tidings.filters.patterns import (
    implied_by_like,
    implied_by_matches,
    prepare_like,
    prepare_matches,
)
from tidings.filters.taxonomy import implied_by_is_a, prepare_is_a
from tidings.filters.topics import implied_by_topic, implied_by_under, prepare_topic, prepare_under

ARGUMENTS_MAX = 10_000
"""Most constants of one call: a broad term of a taxonomy stands for thousands."""

FunctionTest = Callable[..., bool | float | None]
Implied = tuple[tuple[Constraint, ...], bool]


class Function(Struct, frozen=True):
    """Function: its syntax, its computation, and what its being true says of each attribute.

    `names` and `constants` are the least and the most of each. `prepare(*constants)` gives the test, which
    takes the attributes' values, none of them None. `implied(names, *constants)`, with the number of names
    in the call, gives one set for each name, in their order, outside of which the condition is never true,
    and whether these sets are exact: then the condition is true exactly where each value lies in its set,
    and for one name it is false for all other values of the kind the set has. Both raise ValueError
    with a sentence for the user when the constants are bad; numbers have no `implied`.
    """

    name: str
    names: tuple[int, int]
    constants: tuple[int, int]
    gives: Literal["condition", "number"]
    prepare: Callable[..., FunctionTest]
    implied: Callable[..., Implied] | None
    usage: str


def _string_function(
    name: str,
    usage: str,
    constants_max: int,
    prepare: Callable[..., Callable[[str], bool]],
    implied: Callable[..., tuple[Intervals, bool]],
) -> Function:
    """Return a condition on one string, given by strings: unknown for every other kind of value."""

    def prepare_texts(*constants: Value) -> FunctionTest:
        holds = prepare(*_texts(name, constants))

        def test(value: Value) -> bool | None:
            return holds(value) if isinstance(value, str) else None

        return test

    def implied_by_texts(_names: int, *constants: Value) -> Implied:
        values, exact = implied(*_texts(name, constants))
        return (Constraint(strings=values),), exact

    return Function(name, (1, 1), (1, constants_max), "condition", prepare_texts, implied_by_texts, usage)


def _method(name: str, usage: str, method: str, implied: Callable[[str], tuple[Intervals, bool]]) -> Function:
    """Return a condition that is a method of the string, given the constant."""
    return _string_function(name, usage, 1, partial(methodcaller, method), implied)


def _any_string(part: str) -> tuple[Intervals, bool]:
    """Return all strings: exact for the empty part only."""
    return EVERYTHING, not part


def _texts(name: str, constants: tuple[Value, ...]) -> tuple[str, ...]:
    for constant in constants:
        if not isinstance(constant, str):
            raise ValueError(f"{name} takes strings, not {constant!r}")
    return tuple(map(str, constants))


FUNCTIONS: dict[str, Function] = {
    function.name: function
    for function in (
        _method(
            "STARTS_WITH", "STARTS_WITH(name, 'prefix')", "startswith", lambda text: (prefixed(text), True)
        ),
        _method("ENDS_WITH", "ENDS_WITH(name, 'suffix')", "endswith", _any_string),
        _method("CONTAINS", "CONTAINS(name, 'part')", "__contains__", _any_string),
        _string_function(
            "MATCHES", "MATCHES(name, 'regular expression')", 1, prepare_matches, implied_by_matches
        ),
        _string_function("TOPIC", "TOPIC(name, 'city.*.air.>')", 1, prepare_topic, implied_by_topic),
        _string_function("UNDER", "UNDER(name, 'topic' [, 'escape'])", 2, prepare_under, implied_by_under),
        _string_function("IS_A", "IS_A(name, 'term' [, …])", ARGUMENTS_MAX, prepare_is_a, implied_by_is_a),
        _string_function(
            "LIKE", "name LIKE 'pattern' [ESCAPE 'character']", 2, prepare_like, implied_by_like
        ),
        Function(
            name="WITHIN",
            names=(1, 2),
            constants=(1, 1),
            gives="condition",
            prepare=prepare_within,
            implied=implied_by_within,
            usage="WITHIN(x, y, 'POLYGON ((…))') or WITHIN(area, 'POLYGON ((…))')",
        ),
        Function(
            name="DISTANCE",
            names=(2, 2),
            constants=(2, 3),
            gives="number",
            prepare=prepare_distance,
            implied=None,
            usage="DISTANCE(x, y, x0, y0) or DISTANCE(latitude, longitude, latitude0, longitude0, 'm')",
        ),
    )
}
"""Every function by its name in capitals; LIKE is among them, though it has a syntax of its own."""

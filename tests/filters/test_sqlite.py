"""SQLite as the oracle: on the grammar it shares with ours, both must give the same three answers.

Columns have one kind of value each, since SQLite compares numbers with strings where we say unknown, and
there is no division, since it divides integers without a rest.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidings import Event, Filter
from tidings.filters.text import write_literal

NUMBERS = [-2, -1, 0, 1, 2, 3, 0.5, 2.5, -0.25, 2**53 + 1, 2**62, -(2**63), 9.007199254740993e15, 1e300]
STRINGS = ["", "a", "b", "ab", "ba", "a%", "a_b", "ü", "\U0001f600", "it's"]

number_names = st.sampled_from(["n", "m"])
string_names = st.sampled_from(["s", "t"])
# The least integer can't have its sign taken away: as a literal it would be refused.
numbers = st.sampled_from([number for number in NUMBERS if number != -(2**63)]).map(write_literal)
strings = st.sampled_from(STRINGS).map(write_literal)
comparing = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
maybe_not = st.sampled_from(["", "NOT "])

sums = st.recursive(
    st.one_of(number_names, numbers),
    lambda parts: st.one_of(
        st.builds("({} {} {})".format, parts, st.sampled_from("+-*"), parts),
        parts.map("(- {})".format),
    ),
    max_leaves=4,
)
# The left side has a name in it: what is constant is refused or calculated by us at once.
leaves = st.one_of(
    st.builds("({} + {}) {} {}".format, number_names, sums, comparing, sums),
    st.builds("{} {} {}".format, number_names, comparing, sums),
    st.builds("{} {} {}".format, string_names, comparing, st.one_of(strings, string_names)),
    st.builds("{} {}BETWEEN {} AND {}".format, number_names, maybe_not, sums, sums),
    st.builds("{} {}BETWEEN {} AND {}".format, string_names, maybe_not, strings, strings),
    st.builds("{} {}IN ({}, {})".format, number_names, maybe_not, numbers, numbers),
    st.builds("{} {}IN ({}, {})".format, string_names, maybe_not, strings, strings),
    st.builds(
        "{} {}LIKE {}".format,
        string_names,
        maybe_not,
        st.sampled_from(["'a%'", "'%b'", "'_'", "'%'", "''", "'a_%'", "'%a%b%'"]),
    ),
    st.builds("{} LIKE {} ESCAPE '!'".format, string_names, st.sampled_from(["'a!%'", "'a!_b'", "'%!%%'"])),
    st.builds("{} IS {}NULL".format, st.one_of(number_names, string_names), maybe_not),
)
conditions = st.recursive(
    leaves,
    lambda parts: st.one_of(
        st.builds("{} AND {}".format, parts, parts),
        st.builds("({} OR {})".format, parts, parts),
        parts.map("NOT ({})".format),
    ),
    max_leaves=6,
)
rows = st.fixed_dictionaries(
    {
        "n": st.one_of(st.none(), st.sampled_from(NUMBERS)),
        "m": st.one_of(st.none(), st.sampled_from(NUMBERS)),
        "s": st.one_of(st.none(), st.sampled_from(STRINGS)),
        "t": st.one_of(st.none(), st.sampled_from(STRINGS)),
    }
)


def sqlite_answer(database: sqlite3.Connection, condition: str, row: dict[str, Any]) -> bool | None:
    columns = ", ".join(f"? AS {name}" for name in row)
    answer = database.execute(f"SELECT {condition} FROM (SELECT {columns})", list(row.values())).fetchone()[0]
    return None if answer is None else bool(answer)


@given(conditions, st.lists(rows, min_size=3, max_size=8))
def test_evaluation_is_that_of_sqlite(condition: str, sample: list[dict[str, Any]]) -> None:
    filter = Filter(condition)
    database = sqlite3.connect(":memory:")
    database.execute("PRAGMA case_sensitive_like = ON")
    for row in sample:
        expected = sqlite_answer(database, condition, row)
        assert filter.test(Event("t", row)) is expected, (condition, row)
        assert sqlite_answer(database, str(filter), row) is expected, str(filter)
    database.close()

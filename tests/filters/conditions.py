"""Random filters and random events that are likely to meet them: few names, few values, all kinds."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import strategies as st

from tidings import Event, Filter
from tidings.filters.text import write_literal

NUMBERS = [-1, 0, 1, 2, 3, 0.5, 2.5, -0.0, 1e300, 2**53, 2**53 + 1, float(2**53), -(2**63), 2**63 - 1]
STRINGS = ["", "a", "ab", "abc", "b", "a.b", "a.b.c", "a%c", "it's", "ü\U0010ffff", "\U0010ffff", "\ud7ff"]
TIMES = [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 11, 15, 8, 30, 0, 1, tzinfo=UTC)]
BLOBS = [b"", b"\x00", b"ab"]
CONSTANTS = [*NUMBERS, *STRINGS, True, False, *TIMES, *BLOBS]
ODD = [float("nan"), float("inf"), float("-inf")]
NAMES = ["a", "b", "c", "priority", "type", '"odd-name"']

names = st.sampled_from(NAMES)
literals = st.sampled_from(CONSTANTS).map(write_literal)
ordered = st.sampled_from([*NUMBERS, *STRINGS, *TIMES, *BLOBS]).map(write_literal)
strings = st.sampled_from(STRINGS).map(write_literal)
patterns = st.sampled_from(["a%", "%b", "a_c", "%", "_", "", "a.%", "ab", "%a%b%"]).map(write_literal)
maybe_not = st.sampled_from(["", "NOT "])


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    name = draw(names)
    if draw(st.booleans()):
        return f"{name} {draw(st.sampled_from(['=', '<>', '!=']))} {draw(literals)}"
    return f"{name} {draw(st.sampled_from(['<', '<=', '>', '>=']))} {draw(ordered)}"


@st.composite
def calculations(draw: st.DrawFn) -> str:
    left = (
        f"{draw(names)} {draw(st.sampled_from('+-*/'))} {draw(st.sampled_from(['1', '2', '0', 'a', '-b']))}"
    )
    return (
        f"{left} {draw(st.sampled_from(['=', '<', '>=', '<>']))} {draw(st.sampled_from(['1', 'b', '2.5']))}"
    )


@st.composite
def memberships(draw: st.DrawFn) -> str:
    listed = ", ".join(draw(st.lists(literals, min_size=1, max_size=4)))
    return f"{draw(names)} {draw(maybe_not)}IN ({listed})"


@st.composite
def functions(draw: st.DrawFn) -> str:
    function = draw(st.sampled_from(["STARTS_WITH", "ENDS_WITH", "CONTAINS", "UNDER", "IS_A"]))
    text = draw(st.sampled_from(["a", "ab", "a.b", "a.b.c", "b"]))
    return f"{draw(maybe_not)}{function}({draw(names)}, '{text}')"


leaves = st.one_of(
    comparisons(),
    comparisons(),
    calculations(),
    memberships(),
    functions(),
    st.builds("{} {}LIKE {}".format, names, maybe_not, patterns),
    st.builds("{} IS {}NULL".format, names, maybe_not),
    st.builds("{} {}BETWEEN {} AND {}".format, names, maybe_not, ordered, ordered),
    st.builds("{} = {}".format, names, names),
    names,
    st.sampled_from(["TRUE", "FALSE"]),
)


def joined(conditions: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    parts = st.lists(conditions, min_size=2, max_size=3)
    return st.one_of(
        parts.map(" AND ".join),
        parts.map(lambda texts: "(" + " OR ".join(texts) + ")"),
        conditions.map("NOT ({})".format),
    )


texts = st.recursive(leaves, joined, max_leaves=8)
filters = texts.map(Filter)

values = st.sampled_from([*CONSTANTS, *ODD])
events = st.builds(
    lambda kind, attributes, priority: Event(kind, attributes, priority=priority),
    st.sampled_from(["a", "a.b", "b"]),
    st.dictionaries(st.sampled_from(["a", "b", "c", "odd-name"]), values, max_size=4),
    st.sampled_from([0, 1, 2, 4, 9]),
)

# Filters with many alternatives over few values, and events of which about half match: what is left out of
# a normal form, or put into it in vain, shows.
dense_leaves = st.one_of(
    st.builds("{} = {}".format, st.sampled_from("abcd"), st.sampled_from("01")),
    st.builds("s {}LIKE {}".format, maybe_not, st.sampled_from(["'%x%'", "'%y%'", "'%z%'"])),
)
dense_groups = st.lists(st.lists(dense_leaves, min_size=2, max_size=3), min_size=2, max_size=4)
dense_filters = st.one_of(
    dense_groups.map(lambda groups: " OR ".join(" AND ".join(group) for group in groups)),
    dense_groups.map(lambda groups: " AND ".join(f"({' OR '.join(group)})" for group in groups)),
).map(Filter)
dense_events = st.builds(
    lambda attributes, text: Event("t", {**attributes, "s": text}),
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from([0, 1]), min_size=2),
    st.sampled_from(["x", "xy", "yz", ""]),
)

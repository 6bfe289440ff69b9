"""The algebra of value sets, against plain sets of sample values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidings.filters.intervals import (
    EVERYTHING,
    NOTHING,
    Intervals,
    between,
    compared,
    points,
    prefixed,
    union_of,
)

VALUES = list(range(-1, 12))
SAMPLES = sorted([*VALUES, *(value + 0.5 for value in VALUES), -100, 100])

simple = st.one_of(
    st.builds(compared, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), st.sampled_from(VALUES)),
    st.builds(between, st.sampled_from(VALUES), st.sampled_from(VALUES)),
    st.lists(st.sampled_from(VALUES), max_size=4).map(points),
    st.sampled_from([NOTHING, EVERYTHING]),
)
sets = st.recursive(
    simple,
    lambda parts: st.one_of(
        st.builds(Intervals.union, parts, parts),
        st.builds(Intervals.intersect, parts, parts),
        parts.map(Intervals.complement),
    ),
    max_leaves=6,
)


def members(values: Intervals) -> set[float]:
    return {sample for sample in SAMPLES if sample in values}


@given(sets, sets)
def test_union_intersection_and_complement_are_those_of_sets(a: Intervals, b: Intervals) -> None:
    assert members(a.union(b)) == members(a) | members(b)
    assert members(a.intersect(b)) == members(a) & members(b)
    assert members(a.complement()) == set(SAMPLES) - members(a)
    assert a.complement().complement() == a


@given(sets, sets)
def test_equal_sets_have_one_form(a: Intervals, b: Intervals) -> None:
    assert (members(a) == members(b)) == (a == b)
    assert a.covers(b) == (members(a) >= members(b))
    assert a.overlaps(b) == bool(members(a) & members(b))


@given(sets)
def test_pieces_put_together_give_the_set_again(values: Intervals) -> None:
    rebuilt = NOTHING
    for piece in values.pieces():
        part = EVERYTHING
        if piece.low is not None:
            part = part.intersect(compared(">=" if piece.low_closed else ">", piece.low))
        if piece.high is not None:
            part = part.intersect(compared("<=" if piece.high_closed else "<", piece.high))
        rebuilt = rebuilt.union(part)
    assert rebuilt == values


@given(sets)
def test_the_hull_is_in_one_piece_and_covers_the_set(values: Intervals) -> None:
    assert values.hull().covers(values)
    assert len(list(values.hull().pieces())) <= 1


@given(st.lists(sets, min_size=1, max_size=5))
def test_the_union_of_many_is_the_union_of_all(many: list[Intervals]) -> None:
    assert members(union_of(many)) == set().union(*map(members, many))


letters = st.text(st.sampled_from(["a", "b", "\ud7ff", "\ue000", "\U0010ffff"]), max_size=4)


@given(letters, letters)
def test_a_prefix_holds_just_the_strings_that_start_with_it(prefix: str, text: str) -> None:
    assert (text in prefixed(prefix)) == text.startswith(prefix)
    assert (prefix + text) in prefixed(prefix)


def test_single_values_are_found_again() -> None:
    assert points([3, 1, 3]).points() == [1, 3]
    assert points(["", "a"]).points() == ["", "a"]
    assert between(1, 2).points() is None
    assert between(2, 1) == NOTHING
    assert compared(">=", "") == EVERYTHING
    assert compared("<", b"") == NOTHING

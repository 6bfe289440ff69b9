"""What must hold for every filter and every event, tried on random ones."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from effort import often
from hypothesis import event as note
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.filters.conditions import dense_events, dense_filters, events, filters
from tidings import Event, Filter
from tidings.filters import normal as normal_module
from tidings.filters import relations
from tidings.filters.evaluate import condition_test
from tidings.filters.normal import Normal

many_events = st.lists(events, min_size=10, max_size=30)
many_dense_events = st.lists(dense_events, min_size=10, max_size=10)
limits = st.sampled_from([2, 4, 6])


@contextmanager
def limited(alternatives: int) -> Iterator[None]:
    """Let normal forms and merged filters have so many alternatives, which drawn filters can pass."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(normal_module, "DISJUNCTS_MAX", alternatives)
        patch.setattr(relations, "UNITED_MAX", alternatives)
        yield


def admitted(normal: Normal, event: Event) -> bool:
    """Read a normal form by its definition."""
    return any(
        all(constraint.admits(event.get(name)) for name, constraint in conjunction.constraints.items())
        and all(condition_test(residue)(event) is True for residue in conjunction.residues)
        for conjunction in normal
    )


@given(filters)
def test_text_gives_the_same_filter_again(filter: Filter) -> None:
    assert Filter(str(filter)) == filter
    assert hash(Filter(str(filter))) == hash(filter)


@given(filters)
def test_json_gives_the_same_filter_again(filter: Filter) -> None:
    assert Filter.from_json(filter.to_json()) == filter


@given(filters)
def test_a_filter_survives_pickling(filter: Filter) -> None:
    assert pickle.loads(pickle.dumps(filter)) == filter


@given(filters, many_events)
def test_the_normal_form_takes_what_the_condition_takes(filter: Filter, sample: list[Event]) -> None:
    for event in sample:
        assert admitted(filter.normal, event) == filter.matches(event), event


@settings(max_examples=often(30))
@given(dense_filters, many_dense_events, limits)
def test_a_normal_form_past_its_limit_takes_what_the_condition_takes(
    filter: Filter, sample: list[Event], most: int
) -> None:
    for one in (filter, Filter(f"NOT ({filter})")):
        with limited(most):
            normal = one.normal
        assert len(normal) <= most
        for event in sample:
            assert admitted(normal, event) == one.matches(event), event


@given(filters, many_events)
def test_the_opposite_matches_what_is_false(filter: Filter, sample: list[Event]) -> None:
    opposite = Filter(f"NOT ({filter})")
    for event in sample:
        answer = filter.test(event)
        assert opposite.test(event) is (None if answer is None else not answer), event
        assert admitted(opposite.normal, event) == opposite.matches(event), event


@given(filters, many_events)
def test_simplifying_changes_no_match(filter: Filter, sample: list[Event]) -> None:
    simple = filter.simplify()
    assert Filter(str(simple)) == simple
    for event in sample:
        assert simple.matches(event) == filter.matches(event), event


def test_covering_is_never_contradicted_and_not_always_denied() -> None:
    claimed: list[tuple[Filter, Filter]] = []

    @given(filters, filters, many_events)
    def check(wide: Filter, narrow: Filter, sample: list[Event]) -> None:
        both = Filter(f"({wide}) AND ({narrow})")
        for one, other in ((wide, narrow), (wide, both), (Filter(f"({wide}) OR ({narrow})"), narrow)):
            if one.covers(other):
                claimed.append((one, other))
                for event in sample:
                    assert one.matches(event) or not other.matches(event), (one, other, event)

    check()
    assert len(claimed) > often(20)  # of 150 that are asked at an effort of 1, most are so


def test_overlapping_never_misses_a_common_event_and_is_not_always_claimed() -> None:
    denied: list[tuple[Filter, Filter]] = []

    @settings(max_examples=often(100, at_least=60))
    @given(filters, filters, many_events)
    def check(one: Filter, other: Filter, sample: list[Event]) -> None:
        if not one.overlaps(other):
            denied.append((one, other))
            for event in sample:
                assert not (one.matches(event) and other.matches(event)), event

    check()
    assert denied  # of 100 that are asked, about 20 are so


def check_merged(merged: Filter, one: Filter, other: Filter, sample: list[Event]) -> None:
    assert Filter(str(merged)) == merged
    for event in sample:
        wanted = one.matches(event) or other.matches(event)
        assert merged.matches(event) or not wanted, event
        assert merged.exact is False or merged.matches(event) == wanted, event


@given(filters, filters, many_events)
def test_a_merged_filter_covers_both_and_nothing_more_when_exact(
    one: Filter, other: Filter, sample: list[Event]
) -> None:
    check_merged(one.merge(other), one, other, sample)


@settings(max_examples=often(30))
@given(dense_filters, dense_filters, many_dense_events, limits)
def test_a_filter_that_is_merged_past_its_limit_covers_both(
    one: Filter, other: Filter, sample: list[Event], most: int
) -> None:
    with limited(most):
        merged = one.merge(other)
    note(f"exact: {merged.exact}")
    assert len(merged.normal) <= most
    check_merged(merged, one, other, sample)


@given(filters)
def test_a_filter_covers_itself_and_its_narrower_forms(filter: Filter) -> None:
    assert filter.covers(filter)
    assert Filter("").covers(filter)
    assert filter.covers(Filter("FALSE"))
    assert not filter.normal or filter.overlaps(Filter(""))

"""Logical clocks, against the history of messages they stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.clocks import LamportClock, VectorClock

NODES = ("a", "b", "c")
clocks = st.dictionaries(st.sampled_from(NODES), st.integers(0, 4)).map(VectorClock)
# A history: each step is taken by a node, after hearing of an earlier step or of none.
histories = st.lists(st.tuples(st.sampled_from(NODES), st.none() | st.integers(0, 30)), max_size=20)


def causes(history: list[tuple[str, int | None]]) -> list[set[int]]:
    """For each step the steps that led to it, found by following messages and nodes."""
    before: list[set[int]] = []
    last: dict[str, int] = {}
    for step, (node, heard) in enumerate(history):
        direct = [last[node]] if node in last else []
        direct += [heard % step] if heard is not None and step else []
        before.append({cause for one in direct for cause in {one, *before[one]}})
        last[node] = step
    return before


def vector_times(history: list[tuple[str, int | None]]) -> list[VectorClock]:
    held = {node: VectorClock() for node in NODES}
    times: list[VectorClock] = []
    for step, (node, heard) in enumerate(history):
        if heard is not None and step:
            held[node] = held[node].merge(times[heard % step])
        held[node] = held[node].tick(node)
        times.append(held[node])
    return times


@given(histories)
def test_vector_clocks_tell_exactly_what_led_to_what(history: list[tuple[str, int | None]]) -> None:
    before, times = causes(history), vector_times(history)
    for one in range(len(history)):
        for other in range(len(history)):
            expected = (
                "equal" if one == other
                else "before" if one in before[other]
                else "after" if other in before[one]
                else "concurrent"
            )  # fmt: skip
            assert times[one].compare(times[other]) == expected


@given(histories)
def test_lamport_clocks_grow_along_every_cause(history: list[tuple[str, int | None]]) -> None:
    held = {node: LamportClock() for node in NODES}
    times: list[int] = []
    for step, (node, heard) in enumerate(history):
        received = heard is not None and step
        times.append(held[node].observe(times[heard % step]) if received else held[node].tick())
    for step, led_here in enumerate(causes(history)):
        assert all(times[cause] < times[step] for cause in led_here)


@given(clocks, clocks, clocks)
def test_merging_is_commutative_associative_and_idempotent(
    a: VectorClock, b: VectorClock, c: VectorClock
) -> None:
    assert a.merge(b) == b.merge(a)
    assert a.merge(b).merge(c) == a.merge(b.merge(c))
    assert a.merge(a) == a


@given(clocks, clocks)
def test_a_merge_is_the_earliest_clock_not_before_either(a: VectorClock, b: VectorClock) -> None:
    merged = a.merge(b)
    assert a <= merged
    assert b <= merged
    assert all(merged[node] in (a[node], b[node]) for node in NODES)


@given(clocks, st.sampled_from(NODES))
def test_a_tick_comes_after_and_leaves_the_old_clock_alone(clock: VectorClock, node: str) -> None:
    counts = clock.to_dict()
    assert clock.tick(node).compare(clock) == "after"
    assert clock < clock.tick(node)
    assert clock.to_dict() == counts


@given(clocks)
def test_a_clock_comes_back_from_its_dict_and_is_a_key(clock: VectorClock) -> None:
    again = VectorClock(clock.to_dict())
    assert again == clock
    assert {clock: 1}[again] == 1


def test_a_node_without_steps_is_a_node_never_heard_of() -> None:
    assert VectorClock({"a": 0}) == VectorClock()
    assert list(VectorClock({"a": 0, "b": 2})) == ["b"]


@pytest.mark.parametrize("count", [-1, 1.5, True, "1"])
def test_what_is_no_count_is_refused(count: object) -> None:
    with pytest.raises(ValueError, match="counts from 0"):
        VectorClock({"a": count})  # type: ignore[dict-item]

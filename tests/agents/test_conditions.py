"""Conditions of groups: what they say while members run, and when none is left that could meet them."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest
from agents.test_many import ask, enter, logged, show
from hypothesis import given
from hypothesis import strategies as st
from protocol.rig import Rig

from tidings.agents.conditions import (
    AnyCondition,
    Facts,
    Outcome,
    all_of,
    any_of,
    at_least,
    decode_condition,
    seen,
    text_of,
)
from tidings.errors import FilterError, UserError

OUTCOMES: list[Outcome] = ["running", "done", "failed"]
NAMES = ["a", "b", "c"]


def facts(*outcomes: Outcome, sealed: bool = True, counts: dict[str, int] | None = None) -> Facts:
    made = Facts(is_sealed=sealed, counts=counts or {})
    for name, outcome in zip(NAMES, outcomes, strict=False):
        made.count(name, outcome)
    return made


def conditions() -> st.SearchStrategy[AnyCondition]:
    leaf = st.one_of(
        st.just(any_of()),
        st.just(all_of()),
        st.just(at_least(2)),
        st.sampled_from(NAMES).map(any_of),
        st.just(seen("value > 1", 2)),
    )

    def nested(inner: st.SearchStrategy[AnyCondition]) -> st.SearchStrategy[AnyCondition]:
        parts = st.lists(inner, min_size=1, max_size=3)
        return st.one_of(
            parts.map(lambda these: any_of(*these)),
            parts.map(lambda these: all_of(*these)),
            parts.map(lambda these: at_least(len(these), *these)),
        )

    return st.recursive(leaf, nested, max_leaves=6)


def test_any_of_needs_one_all_of_needs_all_and_at_least_so_many() -> None:
    for outcomes in product(OUTCOMES, repeat=3):
        done, running = outcomes.count("done"), outcomes.count("running")
        for condition, needed in ((any_of(), 1), (at_least(2), 2), (all_of(), 3)):
            expected = "met" if done >= needed else "open" if done + running >= needed else "impossible"
            assert condition.verdict(facts(*outcomes)) == expected


def test_all_of_waits_until_nobody_is_added_any_more() -> None:
    assert all_of().verdict(facts("done", sealed=False)) == "open"
    assert all_of().verdict(facts("done")) == "met"
    assert all_of().verdict(facts(sealed=False)) == "open"
    assert all_of().verdict(facts()) == "met", "nobody was started"
    assert any_of().verdict(facts("failed", sealed=False)) == "open"


def test_names_and_nested_conditions() -> None:
    trip = any_of("a", all_of("b", "c"))
    assert trip.verdict(facts("failed", "done", "done")) == "met"
    assert trip.verdict(facts("failed", "done", "failed")) == "impossible"
    assert trip.verdict(facts("running", "done", "failed")) == "open"
    assert (any_of("a") & any_of("b")) == all_of(any_of("a"), any_of("b"))
    assert (any_of("a") | any_of("b")) == any_of(any_of("a"), any_of("b"))


def test_events_that_were_seen() -> None:
    found = seen("type = 'found'", 2)
    assert found.verdict(facts("running", counts={found.where: 1})) == "open"
    assert found.verdict(facts("done", counts={found.where: 2})) == "met"
    assert found.verdict(facts("done", counts={found.where: 1})) == "impossible"


@given(conditions(), st.lists(st.sampled_from(OUTCOMES), max_size=3), st.booleans(), st.integers(0, 3))
def test_a_verdict_is_final(
    condition: AnyCondition, outcomes: list[Outcome], sealed: bool, count: int
) -> None:
    """What is met stays so, and what is impossible too, whatever those who run do next."""
    before = condition.verdict(facts(*outcomes, sealed=sealed, counts={"value > 1": count}))
    if before == "open" or not sealed:
        return
    for ends in product(OUTCOMES, repeat=len(outcomes)):
        later = [new if old == "running" else old for old, new in zip(outcomes, ends, strict=True)]
        assert condition.verdict(facts(*later, counts={"value > 1": count})) == before


@given(conditions())
def test_a_condition_travels(condition: AnyCondition) -> None:
    data = msgspec.msgpack.decode(msgspec.msgpack.encode(condition))
    assert decode_condition(data) == condition
    assert eval(
        text_of(condition), {"any_of": any_of, "all_of": all_of, "at_least": at_least, "seen": seen}
    ) == (condition)


def test_what_can_never_be_met_or_is_no_condition_is_refused() -> None:
    with pytest.raises(UserError, match=r"at_least\(3\) of 2 can never be met"):
        at_least(3, "a", "b")
    with pytest.raises(UserError, match="from 1 on, not 0"):
        at_least(0)
    with pytest.raises(FilterError):
        seen("value >")
    for bad in (None, {"is": "at_least", "count": 0}, {"is": "nothing"}, {"is": "seen", "where": "a >"}, 3):
        with pytest.raises(UserError):
            decode_condition(bad)
    deep: dict[str, object] = {"is": "member", "name": "a"}
    for _ in range(40):
        deep = {"is": "at_least", "count": 1, "parts": [deep]}
    with pytest.raises(UserError, match="nested 16 deep"):
        decode_condition(deep)


def test_a_condition_that_counts_the_events_of_its_own_group_does_not_count_that_it_counts() -> None:
    rig = Rig()
    owner = rig.peer("o")
    condition = msgspec.to_builtins(seen("type LIKE 'agent.%'", 50))
    ask(owner, "agent.open", group="trip", name="trip", condition=condition)
    for number in range(3):
        enter(owner, str(number))
    assert (show(owner).phase, logged(rig, "entered")) == ("open", ["trip.1", "trip.2", "trip.3"])

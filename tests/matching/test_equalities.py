"""Conditions by the values they demand: the same answers as asking each of them, with few of them asked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings import Event, Filter
from tidings.matching.equalities import NAMES_MAX, Equalities

values = st.sampled_from([0, 1, 1.0, True, False, "a", "", b"a", 2**53, 2**53 + 1, float(2**53)])
names = st.sampled_from(["a", "b", "c", "type", "priority"])
terms = st.one_of(
    st.tuples(names, st.just("="), values),
    st.tuples(names, st.sampled_from(["<", ">="]), st.sampled_from([1, "a"])),
    st.tuples(names, st.sampled_from(["any", "missing"])),
)
conditions = st.lists(terms, min_size=1, max_size=3).map(Filter.from_terms)


def event_of(attributes: dict[str, Any]) -> Event:
    return Event("a", attributes, priority=1)


@given(
    st.lists(st.one_of(conditions, st.tuples(conditions, conditions).map(lambda two: two[0] | two[1]))),
    st.data(),
)
def test_those_who_are_found_are_those_who_match(filters: list[Filter], data: st.DataObject) -> None:
    equalities: Equalities[int] = Equalities()
    taken = {key: wanted for key, wanted in enumerate(filters) if equalities.add(key, wanted)}
    for key in data.draw(st.sets(st.sampled_from(sorted(taken)))) if taken else ():
        equalities.remove(key)
        del taken[key]
    assert [key in equalities for key in range(len(filters))] == [key in taken for key in range(len(filters))]
    event = event_of(data.draw(st.dictionaries(st.sampled_from("abc"), values)))
    assert sorted(equalities.match(event)) == [key for key, wanted in taken.items() if wanted.matches(event)]


@pytest.mark.parametrize(
    "text", ["n > 1", "n = 1 OR m = 2", "n IS NULL", "n = m", "NOT n = 1", "n IN (1, 2)"]
)
def test_a_condition_that_demands_no_value_is_not_taken_in(text: str) -> None:
    equalities: Equalities[int] = Equalities()
    assert not equalities.add(1, Filter(text))
    assert 1 not in equalities


def test_a_condition_stands_where_the_fewest_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    equalities: Equalities[int] = Equalities()
    for n in range(1_000):
        assert equalities.add(n, Filter("correlation_id = :n AND type = 'answer'", n=str(n)))
    asked: list[Filter] = []
    matches = Filter.matches

    def noted(filter: Filter, event: Event) -> bool:
        asked.append(filter)
        return matches(filter, event)

    monkeypatch.setattr(Filter, "matches", noted)
    assert equalities.match(Event("answer", correlation_id="500")) == [500]
    assert equalities.match(Event("answer", correlation_id="none of these")) == []
    assert len(asked) <= 3


def test_there_is_room_for_so_many_names_only() -> None:
    equalities: Equalities[int] = Equalities()
    for n in range(NAMES_MAX):
        assert equalities.add(n, Filter(f"name{n} = 1"))
    assert not equalities.add(NAMES_MAX, Filter("other = 1"))
    assert equalities.add(NAMES_MAX, Filter("other = 1 AND name3 = 2"))
    equalities.remove(5)
    assert equalities.add(5, Filter("other = 1"))
    assert equalities.match(Event("a", other=1, name3=2)) == [NAMES_MAX, 5]

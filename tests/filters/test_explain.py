from __future__ import annotations

import pytest
from hypothesis import given

from tests.filters.conditions import events, filters
from tidings import Event, Filter
from tidings.filters.explain import TEXT_MAX

READING = Event("air.pm10", value=12, sensor="quay", level="high")


@given(filters, events)
def test_an_explanation_says_that_an_event_matches_exactly_when_it_does(filter: Filter, event: Event) -> None:
    found = filter.explain(event)
    assert found.matches is filter.matches(event)
    assert (found.distance == 0, str(found) == "matches") == (found.matches, found.matches)


@given(filters, events)
def test_each_reason_is_a_condition_with_that_outcome(filter: Filter, event: Event) -> None:
    outcomes = {False: "false", None: "unknown"}
    for reason in filter.explain(event).reasons:
        assert outcomes[Filter(reason.condition).test(event)] == reason.outcome
        assert repr(reason.values) == repr({name: event.get(name) for name in reason.values})


@pytest.mark.parametrize(
    ("filter", "text"),
    [
        ("value > 40", "value > 40 is false: value is 12"),
        ("sensor LIKE 'q%' AND value > 40", "value > 40 is false: value is 12"),
        (
            "type = 'air.no2' AND value > 40",
            "type = 'air.no2' is false: type is 'air.pm10'; value > 40 is false: value is 12",
        ),
        ("humidity > 40", "humidity > 40 is unknown: humidity is absent"),
        ("level > 40", "level > 40 is unknown: level is 'high'"),
        ("NOT sensor = 'quay'", "sensor <> 'quay' is false: sensor is 'quay'"),
        ("NOT (value < 20 AND sensor = 'quay')", None),
        ("value + 1 > priority * 10", "value + 1 > priority * 10 is false: priority is 4, value is 12"),
        ("value BETWEEN 20 AND 30", "value BETWEEN 20 AND 30 is false: value is 12"),
        ("sensor = 'park' OR value > 40", None),
        ("FALSE", "FALSE is false"),
        ("type LIKE 'air.%'", "matches"),
        ("", "matches"),
    ],
)
def test_reasons_are_read_as_sentences(filter: str, text: str | None) -> None:
    whole = f"{Filter(filter)} is false: sensor is 'quay', value is 12"  # of what is not taken apart
    assert str(Filter(filter).explain(READING)) == (text or whole)


def test_of_alternatives_the_nearest_is_explained() -> None:
    filter = Filter("(type = 'a' AND value > 40 AND sensor = 'x') OR (type = 'air.pm10' AND value > 40)")
    assert str(filter.explain(READING)) == "value > 40 is false: value is 12"


def test_another_type_is_further_away_than_another_value() -> None:
    filter = Filter("type = 'air.pm10' AND value > 40")
    other_value, other_type = Event("air.pm10", value=12), Event("air.no2", value=41)
    assert filter.explain(other_value).distance < filter.explain(other_type).distance


def test_long_texts_are_cut_short() -> None:
    said = str(Filter("text = :given", given="x" * 10_000).explain(Event("t", text="y" * 10_000)))
    assert len(said) < 3 * TEXT_MAX

"""Rows of stored batches that match a filter, by plain and by compiled code."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidings import Event, Filter
from tidings.event import Batch, scan, wire
from tidings.log.history import Selection
from tidings.matching import index
from tidings.store.interface import StoredBatch

FILTERS = ["value >= 3", "TRUE", "FALSE", "NOT STARTS_WITH(type, 'tidings.')", "s = 'aa' AND value > 0", "n"]
readings = st.builds(
    lambda type, values: Event(type, values, delivery="persistent"),
    st.sampled_from(["air.pm10", "tidings.node", "note"]),
    st.fixed_dictionaries(
        {"value": st.floats(-5, 5) | st.integers(-5, 5)},
        optional={"s": st.sampled_from(["", "a", "aa"]), "n": st.booleans()},
    ),
)


@pytest.mark.parametrize("is_compiled", [False, True])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(readings, min_size=1, max_size=40), min_size=1, max_size=3),
    st.sampled_from(FILTERS),
    st.data(),
)
def test_a_selection_has_the_events_that_the_filter_matches(
    monkeypatch: pytest.MonkeyPatch,
    is_compiled: bool,
    made: list[list[Event]],
    text: str,
    data: st.DataObject,
) -> None:
    monkeypatch.setattr(index, "_is_prepared", is_compiled)
    monkeypatch.setattr(wire, "_offsets_compiled", scan.offsets if is_compiled else None)
    monkeypatch.setattr(wire, "COMPILED_SIZE_MIN", 0)
    stored, first = [], 1
    for events in made:
        raw = Batch.of(events).raw
        stored.append(StoredBatch(first, len(events), None, 0, None, 0, True, raw))
        first += len(events)
    start = data.draw(st.integers(1, first))
    end = data.draw(st.integers(start, first))
    wanted = Filter(text)
    every = [(place, event) for place, event in enumerate([one for some in made for one in some], 1)]
    chosen = [(place, event) for place, event in every if start <= place < end and wanted.matches(event)]
    parts = list(Selection(wanted).parts(stored, start, end))
    found = [pair for part in parts for pair in zip(part.positions(), part.events(), strict=True)]
    assert [place for place, _ in found] == [place for place, _ in chosen]
    assert [event.values for _, event in found] == [event.values for _, event in chosen]

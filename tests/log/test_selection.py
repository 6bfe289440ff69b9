"""Rows of stored batches that match a filter, by plain and by compiled code."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tidings import Event, Filter
from tidings.errors import CodecError
from tidings.event import Batch, scan, wire
from tidings.event.wire import array_head
from tidings.ids import Origin, make_id
from tidings.log.selection import Selection
from tidings.matching import Index, index
from tidings.store.interface import StoredBatch

ORIGINS = [Origin("a", 1, "me"), Origin("a", 2, "me"), Origin("b", 1, "you"), Origin()]
FILTERS = [
    "value >= 3",
    "TRUE",
    "FALSE",
    "NOT STARTS_WITH(type, 'tidings.')",
    "s = 'aa' AND value > 0",
    "n",
    "source = 'me'",
    "source IS NULL OR value > 4",
    f"id IN ('{make_id('a', 1, 1)}', '{make_id('b', 1, 2)}')",
    "value > 0 AND s LIKE '%a'",
]
readings = st.builds(
    lambda type, values: Event(type, values, delivery="persistent"),
    st.sampled_from(["air.pm10", "tidings.node", "note"]),
    st.fixed_dictionaries(
        {"value": st.floats(-5, 5) | st.integers(-5, 5)},
        optional={"s": st.sampled_from(["", "a", "aa"]), "n": st.booleans()},
    ),
)
stored_ones = st.tuples(
    st.lists(readings, min_size=1, max_size=40),
    st.sampled_from(ORIGINS),
    st.sampled_from([7, 8]),  # when they were stored
    st.sampled_from([0, 0, 1, 2**32]),  # positions that are left out before them
)


def stored(
    made: list[tuple[list[Event], Origin, int, int]],
) -> tuple[list[StoredBatch], dict[int, tuple[Event, int]]]:
    """Batches as a store returns them, and by position their events with the time when they were stored."""
    batches, every, first = [], {}, 1
    for events, origin, stored_us, left_out in made:
        first += left_out
        numbered = [replace(event, counter=number, origin=origin) for number, event in enumerate(events, 1)]
        fields = origin.system, origin.epoch, origin.source, stored_us, True
        batches.append(StoredBatch(first, len(events), *fields, Batch.of(numbered).raw))
        every |= {first + row: (event, stored_us) for row, event in enumerate(numbered)}
        first += len(events)
    return batches, every


@pytest.mark.parametrize("is_compiled", [False, True])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(stored_ones, min_size=1, max_size=5), st.sampled_from(FILTERS), st.data())
def test_a_selection_has_the_events_that_the_filter_matches(
    monkeypatch: pytest.MonkeyPatch,
    is_compiled: bool,
    made: list[tuple[list[Event], Origin, int, int]],
    text: str,
    data: st.DataObject,
) -> None:
    monkeypatch.setattr(index, "_is_prepared", is_compiled)
    monkeypatch.setattr(wire, "_offsets_compiled", scan.offsets if is_compiled else None)
    monkeypatch.setattr(wire, "COMPILED_SIZE_MIN", 0)
    batches, every = stored(made)
    end = data.draw(st.sampled_from([*every, max(every) + 1]))
    start = data.draw(st.sampled_from([one for one in every if one <= end] or [1]))
    wanted = Filter(text)
    chosen = [
        (place, event, stored_us)
        for place, (event, stored_us) in every.items()
        if start <= place < end and wanted.matches(event)
    ]
    parts = list(Selection(wanted).parts(batches, start, end))
    found = [
        (place, event, part.stored_us)
        for part in parts
        for place, event in zip(part.positions(), part.events(), strict=True)
    ]
    assert found == chosen
    assert all(part.positions()[-1] < part.first + part.count for part in parts)


def test_short_batches_are_matched_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    matched: list[int] = []
    match_rows = Index.match_rows

    def counted(self: Index[str], batch: Batch) -> Any:
        matched.append(len(batch))
        return match_rows(self, batch)

    monkeypatch.setattr(Index, "match_rows", counted)
    events = [Event("air.pm10", {"value": value}) for value in range(3)]
    batches, _ = stored([(events, ORIGINS[number % 2], number // 4, 0) for number in range(8)])
    parts = list(Selection(Filter("value = 1")).parts(batches, 1, 25))
    assert matched == [24]
    assert [part.positions() for part in parts] == [[2], [5], [8], [11], [14], [17], [20], [23]]
    same, _ = stored([(events, ORIGINS[0], number // 4, 0) for number in range(8)])
    parts = list(Selection(Filter("value = 1")).parts(same, 1, 25))
    assert [part.positions() for part in parts] == [[2, 5, 8, 11], [14, 17, 20, 23]]
    matched.clear()
    list(Selection(Filter("value = 1 AND source = 'me'")).parts(batches, 1, 25))
    assert matched == [3] * 8, "batches of several origins can't be matched as one by their source"


def test_batches_whose_positions_lie_far_apart_are_several_parts() -> None:
    events = [Event("air.pm10", {"value": value}) for value in range(3)]
    batches, _ = stored([(events, ORIGINS[0], 7, left_out) for left_out in (0, 0, 2**32, 0)])
    parts = list(Selection(Filter("value = 1")).parts(batches, 1, 2**40))
    assert [part.positions() for part in parts] == [[2, 5], [2**32 + 8, 2**32 + 11]]


def test_batches_that_have_not_as_many_events_as_they_say_are_refused() -> None:
    batches, _ = stored([([Event("a", {"value": 1})] * 3, ORIGINS[0], 7, 0) for _ in range(2)])
    one, other = batches
    raws = Batch(one.raw).slice(0, 2).raw, Batch.join([Batch(one.raw), Batch(one.raw).slice(0, 1)]).raw
    shifted = [
        replace(batch, raw=array_head(3) + raw[5:]) for batch, raw in zip((one, other), raws, strict=True)
    ]
    with pytest.raises(CodecError, match="is not where it should be"):
        list(Selection(Filter("value = 1")).parts(shifted, 1, 7))

"""Events as Arrow record batches: there and back, through Parquet, and batches that are no events."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import identical, numbered_events

from tidings.errors import CodecError, MissingExtra
from tidings.event import Event, Header, Origin
from tidings.event.arrow import from_arrow, schema, to_arrow

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

EVENT = Event.unchecked(5, "t", 7, {"n": 1, "s": "x"}, Header(priority=7), b"b", Origin("sys", 3, "alice"))


def with_column(name: str, column: Any) -> Any:
    """A batch of one event with one column replaced."""
    batch = to_arrow([EVENT])
    return batch.set_column(batch.schema.get_field_index(name), name, column)


@given(st.lists(numbered_events(), max_size=6))
def test_events_come_back_the_same(events: list[Event]) -> None:
    back = from_arrow(to_arrow(events))
    assert len(back) == len(events)
    assert all(map(identical, back, events))


@given(st.lists(numbered_events(), max_size=6), st.data())
def test_a_slice_holds_the_events_of_its_rows(events: list[Event], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(events)))
    length = data.draw(st.integers(0, len(events) - start))
    back = from_arrow(to_arrow(events).slice(start, length))
    assert len(back) == length
    assert all(map(identical, back, events[start : start + length]))


@given(st.lists(numbered_events(), min_size=1, max_size=4))
def test_events_come_back_the_same_through_parquet(events: list[Event]) -> None:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_batches([to_arrow(events)]), file)
    (batch,) = pq.read_table(file).combine_chunks().to_batches()
    assert all(map(identical, from_arrow(batch), events))


def test_columns_are_typed_and_read_as_the_event_does() -> None:
    row = to_arrow([EVENT]).to_pylist()[0]
    assert (row["type"], row["priority"], row["id"], row["source"]) == ("t", 7, "sys.13.15", "alice")
    assert row["time"] == EVENT.time
    assert [(name, value["i"], value["s"]) for name, value in row["attributes"]] == [
        ("n", 1, None),
        ("s", None, "x"),
    ]


def test_a_missing_column_and_one_of_another_type_are_refused() -> None:
    batch = to_arrow([EVENT])
    with pytest.raises(CodecError, match=r"^\$\.priority: the column is missing$"):
        from_arrow(batch.drop_columns(["priority"]))
    with pytest.raises(CodecError, match=r"^\$\.priority: is string, not int8$"):
        from_arrow(with_column("priority", pa.array(["7"])))


@pytest.mark.parametrize(
    ("name", "value", "place"),
    [
        ("priority", 12, "$[0].priority"),
        ("type", "a..b", "$[0].type"),
        ("type", None, "$[0]"),
        ("delivery", "fast", "$[0].delivery"),
        ("ttl_s", -1.0, "$[0].ttl_s"),
        ("counter", -1, "$[0]"),
        ("id", "", "$[0].id"),
    ],
)
def test_a_bad_cell_is_named_by_row_and_column(name: str, value: object, place: str) -> None:
    column = pa.array([value], schema().field(name).type)
    with pytest.raises(CodecError) as caught:
        from_arrow(with_column(name, column))
    assert caught.value.place == place


@pytest.mark.parametrize("name", ["time", "received"])
def test_a_time_past_the_calendar_is_refused(name: str) -> None:
    column = pa.array([2**62], pa.int64()).cast(schema().field(name).type)
    with pytest.raises(CodecError, match=r"^\$\[0\]"):
        from_arrow(with_column(name, column))


@pytest.mark.parametrize(
    ("entries", "place"),
    [
        ([("n", {"i": 1, "s": "x"})], "$[0].n"),
        ([("n", {})], "$[0].n"),
        ([("n", {"i": 1}), ("n", {"i": 2})], "$[0].n"),
        ([("priority", {"i": 1})], "$[0].priority"),
    ],
)
def test_attributes_that_no_event_has_are_refused(entries: list[Any], place: str) -> None:
    column = pa.array([entries], schema().field("attributes").type)
    with pytest.raises(CodecError) as caught:
        from_arrow(with_column("attributes", column))
    assert caught.value.place == place


def test_without_pyarrow_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra) as caught:
        to_arrow([EVENT])
    assert caught.value.extra == "node"

"""Batches: views of bytes that stay as the sender wrote them."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import identical, numbered_events

from tidings.errors import CodecError, EventError
from tidings.event import Batch, Event, Header, Origin
from tidings.event.wire import array_head, encode_events

ORIGIN = Origin("sys", 3, "alice")
placed = st.lists(
    numbered_events().map(lambda event: msgspec.structs.replace(event, origin=ORIGIN)), max_size=8
)


def numbers(batch: Batch) -> list[int]:
    return [event["n"] for event in batch]


def counted(count: int) -> Batch:
    """A batch that has decoded nothing yet."""
    return Batch(encode_events([Event("t", n=n) for n in range(count)]), ORIGIN)


@given(placed)
def test_a_batch_gives_back_its_events_all_at_once_and_one_by_one(events: list[Event]) -> None:
    held = Batch.of(events)
    fresh = Batch(held.raw, held.origin)
    assert len(fresh) == len(events)
    assert all(identical(fresh[row], events[row]) for row in range(len(events)))
    assert all(map(identical, fresh, events))
    assert all(map(identical, held, events))
    assert fresh == held


@given(placed, st.data())
def test_taking_rows_is_the_batch_of_those_events(events: list[Event], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(events) - 1), max_size=12)) if events else []
    whole = Batch.of(events)
    expected = encode_events([events[row] for row in rows])
    assert whole.take(rows).raw == expected
    assert Batch(whole.raw, ORIGIN).take(iter(rows)) == Batch(expected, ORIGIN)
    assert all(map(identical, whole.take(rows), [events[row] for row in rows]))


@given(st.lists(placed, max_size=4))
def test_joining_batches_is_the_batch_of_all_their_events(groups: list[list[Event]]) -> None:
    joined = Batch.join([Batch(encode_events(group), ORIGIN) for group in groups])
    assert joined.raw == encode_events([event for group in groups for event in group])


@pytest.mark.parametrize("is_run", [False, True])
@given(placed, st.integers(1, 500), st.data())
def test_a_batch_is_cut_into_all_rows_in_order_and_none_is_larger_unless_it_is_one_event(
    is_run: bool, events: list[Event], size_max: int, data: st.DataObject
) -> None:
    batch = Batch.of(events)
    rows = sorted(data.draw(st.sets(st.sampled_from(range(len(events))))) if events else [])
    if is_run and rows:
        rows = list(np.arange(rows[0], rows[-1] + 1, dtype=np.int32))  # as compiled code gives them
    pieces = list(batch.cut(rows, size_max))
    assert Batch.join(pieces) == batch.take(rows)
    assert all(len(piece) == 1 or len(piece.raw) <= size_max for piece in pieces if len(piece))
    full = [len(Batch.join([one, other.take([0])]).raw) for one, other in pairwise(pieces)]
    assert all(size > size_max for size in full)  # no more pieces than needed


def test_taking_runs_keeps_order_and_doubles() -> None:
    assert numbers(counted(10).take([0, 1, 2, 7, 8, 3, 3])) == [0, 1, 2, 7, 8, 3, 3]
    assert len(counted(10).take([])) == 0


@pytest.mark.parametrize("rows", [[3], [-1], [0, 5]])
def test_a_row_that_is_not_there_is_an_index_error(rows: list[int]) -> None:
    with pytest.raises(IndexError):
        counted(3).take(rows)


def test_a_batch_is_indexed_like_a_list() -> None:
    batch = counted(3)
    assert batch[-1]["n"] == batch[2]["n"] == 2
    assert batch[-1].origin == ORIGIN
    for row in (3, -4):
        with pytest.raises(IndexError):
            batch[row]


def test_events_and_batches_of_several_origins_do_not_mix() -> None:
    other = Event("t", source="bob")
    with pytest.raises(EventError, match=r"^\$\[1\]: comes from"):
        Batch.of([Event("t", source="alice"), other])
    with pytest.raises(EventError, match=r"^\$\[1\]: comes from"):
        Batch.join([counted(1), Batch.of([other])])
    assert len(Batch.of([Event("t", source="bob"), other])) == 2


def test_columns_hold_attributes_and_header_fields_with_none_for_what_is_absent() -> None:
    events = [
        Event.unchecked(1, "t", 0, {"a": 1}, Header(priority=7), None, ORIGIN),
        Event.unchecked(2, "u", 1, {"b": "x"}, None, None, ORIGIN),
    ]
    assert Batch.of(events).columns(["a", "b", "type", "priority", "id", "time", "JMSPriority", "no"]) == {
        "a": [1, None],
        "b": [None, "x"],
        "type": ["t", "u"],
        "priority": [7, 4],
        "id": ["sys.13.11", "sys.13.12"],
        "time": [datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)],
        "JMSPriority": [7, 4],
        "no": [None, None],
    }


def test_only_the_head_is_looked_at_until_a_view_is_asked_for() -> None:
    batch = Batch(array_head(2) + b"\xc1junk")
    assert len(batch) == 2
    for view in (lambda: batch.events, lambda: batch.offsets, lambda: batch[0], lambda: batch.take([0])):
        with pytest.raises(CodecError):
            view()
    with pytest.raises(CodecError):
        Batch(b"junk!")


def test_one_bad_event_is_named_by_its_row() -> None:
    good = msgspec.msgpack.encode([0, "t", 0, {}, None, None])
    bad = msgspec.msgpack.encode([0, "t", 0, {"n": [1]}, None, None])
    batch = Batch(array_head(2) + good + bad)
    assert batch[0].type == "t"
    for view in (lambda: batch[1], lambda: batch.events):
        with pytest.raises(CodecError, match=r"^\$\[1\]\.n: list is not a value$"):
            view()


def test_a_batch_keeps_its_own_bytes_and_can_be_pickled() -> None:
    buffer = bytearray(counted(2).raw)
    batch = Batch(buffer, ORIGIN)
    buffer[:] = b"x" * len(buffer)
    assert numbers(batch) == [0, 1]
    assert pickle.loads(pickle.dumps(batch)) == batch
    assert hash(pickle.loads(pickle.dumps(batch))) == hash(batch)
    assert "2 events" in repr(batch)

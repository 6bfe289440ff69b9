"""What every store does, on disk, in memory and on the simulated disk."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.openers import LASTING, Opener, openers, reopened
from tests.store.samples import Model, batch, everything, operations, records_of
from tidings.errors import InternalError
from tidings.store.interface import (
    Append,
    Counter,
    CountProducer,
    Discard,
    Drop,
    Durable,
    Operation,
    PutCursor,
    Store,
    Trim,
)

# -- the stream


def test_a_new_store_knows_nothing(opener: Opener) -> None:
    state = opener().state
    assert (state.boot, state.position, state.durables, state.counters) == (1, 0, [], [])
    assert (state.queues, state.records("sink")) == ([], {})


def test_what_is_appended_is_read_from_the_position_on(opener: Opener) -> None:
    store, batches = opener(), [batch(1, 3), batch(4, 2), batch(8, 1)]
    store.commit([Append(one) for one in batches])
    assert store.read(1, 10_000) == store.read(0, 10_000) == store.read(3, 10_000) == batches
    assert store.read(4, 10_000) == store.read(5, 10_000) == batches[1:]
    assert store.read(6, 10_000) == store.read(8, 10_000) == batches[2:]
    assert store.read(9, 10_000) == []


def test_a_read_gives_one_batch_at_least_and_no_more_bytes_than_asked_for(opener: Opener) -> None:
    store, batches = opener(), [batch(n, size=100) for n in range(1, 5)]
    store.commit([Append(one) for one in batches])
    assert store.read(1, 0) == batches[:1]
    assert store.read(1, 299) == batches[:2]
    assert store.read(1, 300) == batches[:3]
    assert store.read_before(4, 299) == [batches[3], batches[2]]


def test_reading_before_a_position_gives_the_last_batch_first(opener: Opener) -> None:
    store, batches = opener(), [batch(1, 3), batch(4, 2), batch(8, 1)]
    store.commit([Append(one) for one in batches])
    assert store.read_before(100, 10_000) == store.read_before(8, 10_000) == batches[::-1]
    assert store.read_before(7, 10_000) == [batches[1], batches[0]]
    assert store.read_before(0, 10_000) == []


def test_trimming_gives_up_what_ended_and_is_not_persistent(opener: Opener) -> None:
    store = opener()
    batches = [batch(1, 2, persistent=False), batch(3, 2), batch(5, 4, persistent=False)]
    store.commit([Append(one) for one in batches])
    store.commit([Trim(6)])
    assert store.read(0, 10_000) == batches[1:]
    store.commit([Trim(8)])
    assert store.read(0, 10_000) == batches[1:2]


def test_trimming_ahead_of_the_stream_spares_what_comes_later(opener: Opener) -> None:
    store = opener()
    store.commit([Append(batch(1, persistent=False)), Trim(1000)])
    store.commit([Append(batch(2, persistent=False)), Append(batch(3))])
    store.commit([Discard(3)])  # what was not trimmed is not discarded
    assert store.read(0, 10_000) == [batch(2, persistent=False), batch(3)]
    store.commit([Trim(3)])
    assert store.read(0, 10_000) == [batch(3)]


def test_discarding_gives_up_whole_batches_that_earlier_commits_have_trimmed(opener: Opener) -> None:
    store = opener()
    batches = [batch(1, 2), batch(3, 3), batch(6)]
    store.commit([Append(one) for one in batches])
    store.commit([Trim(6), Discard(6)])
    assert store.read(0, 10_000) == batches
    store.commit([Discard(4)])
    assert (store.read(0, 10_000), store.discarded) == (batches[1:], 2)
    store.commit([Discard(5)])
    assert (store.read(0, 10_000), store.discarded) == (batches[2:], 5)


def test_a_position_is_found_by_the_time_even_where_the_clock_was_set_back(opener: Opener) -> None:
    store = opener()
    times = [(1, 100), (2, 300), (3, 200), (4, 400)]
    store.commit([Append(batch(first, stored_us=time_us)) for first, time_us in times])
    asked = [0, 100, 101, 300, 301, 400, 401]
    assert [store.position_at(time_us) for time_us in asked] == [1, 1, 2, 2, 4, 4, 5]


def test_a_batch_at_a_position_that_was_used_is_refused_and_nothing_is_done(opener: Opener) -> None:
    store = opener()
    store.commit([Append(batch(1, 5))])
    with pytest.raises(InternalError, match="can't follow position 7"):
        store.commit([Append(batch(6, 2)), Trim(9), Append(batch(7))])
    assert store.read(0, 10_000) == [batch(1, 5)]
    store.commit([Append(batch(6, 2))])


def test_an_empty_commit_changes_nothing(opener: Opener) -> None:
    store = opener()
    store.commit([])
    assert store.read(0, 10_000) == []


# -- what an opening tells


def test_the_node_keeps_its_name_and_counts_its_openings(lasting: Opener) -> None:
    store = lasting()
    node = store.state.node
    assert len(node) == 16
    for boot in (2, 3):
        store = reopened(store, lasting)
        assert (store.state.node, store.state.boot) == (node, boot)
    store.close()


def test_durables_and_counters_are_told_as_they_were_last(lasting: Opener) -> None:
    store = lasting()
    kept, dropped = Durable("a", "ann", "x > 1", 5, 9, b"o"), Durable("b", "ann", "", 0, 0)
    counter = Counter("sensor", 7, 99, 1)
    store.commit([PutCursor(dropped), PutCursor(kept), CountProducer(Counter("sensor", 7, 1, 0))])
    store.commit([Drop("b", "ann"), CountProducer(counter), Drop("nobody", "ann")])
    store = reopened(store, lasting)
    assert (store.state.durables, store.state.counters) == ([kept], [counter])
    store.close()


def test_the_last_position_is_known_when_everything_was_trimmed(lasting: Opener) -> None:
    store = lasting()
    store.commit([Append(batch(1, 9, persistent=False)), Trim(9)])
    store = reopened(store, lasting)
    assert store.state.position == 9
    assert store.read(0, 10_000) == []
    assert store.position_at(0) == 10
    store.close()


# -- against the model


@given(data=st.data(), kind=st.sampled_from(["sqlite", "simulated", "memory"]))
def test_a_store_is_what_a_plain_list_would_be(data: st.DataObject, kind: str) -> None:
    with TemporaryDirectory() as folder:
        opener, model = openers(Path(folder) / "node")[kind], Model()
        store = opener()
        for _ in range(data.draw(st.integers(1, 8))):
            commit: list[Operation] = data.draw(operations(model))
            store.commit(commit)
            model.commit(commit)
            if kind in LASTING and data.draw(st.booleans()):
                store = reopened(store, opener)
                assert_same_state(store, model)
            assert_same_content(store, model, data)
        store.close()


def assert_same_state(store: Store, model: Model) -> None:
    assert store.state.position == model.position
    assert {(one.owner, one.name): one for one in store.state.durables} == model.durables
    assert {(one.system, one.epoch): one for one in store.state.counters} == model.counters
    assert {one.key: one for one in store.state.queues} == model.queues
    assert records_of(store) == model.records


def assert_same_content(store: Store, model: Model, data: st.DataObject) -> None:
    position, size_max = data.draw(st.integers(0, model.position + 2)), data.draw(st.integers(0, 30_000))
    assert store.read(position, size_max) == model.read(position, size_max)
    assert store.read_before(position, size_max) == model.read_before(position, size_max)
    time_us = data.draw(st.integers(0, 61))
    assert store.position_at(time_us) == model.position_at(time_us)
    assert list(everything(store)) == model.batches
    assert list(store.messages()) == [one for _, one in sorted(model.messages.items())]

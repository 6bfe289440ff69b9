"""How far a stream has come: what is read next, in which pieces, and what is told to be lost."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tidings.pipeline.offsets import (
    NodeExtent,
    Offset,
    OffsetRange,
    advance,
    begun,
    later,
    losses,
    offset_of,
    places_of,
    readers_of,
    share,
    spans,
    split,
)

A, B = "a:1", "b:2"


def at(**places: int) -> Offset:
    return offset_of({f"{name}:{1 + 'ab'.index(name)}": place for name, place in places.items()}, IDS)


IDS = {A: "idA", B: "idB"}
labels = st.sampled_from([A, B, "c:3"])
standings = st.dictionaries(
    labels,
    st.tuples(st.sampled_from(["one", "two"]), st.integers(1, 50), st.integers(0, 100)).map(
        lambda told: NodeExtent(told[0], told[1], told[1] + told[2])
    ),
    min_size=1,
)
offsets = st.dictionaries(labels, st.tuples(st.integers(0, 200), st.sampled_from(["one", "two"]))).map(
    lambda told: offset_of(
        {label: place for label, (place, _) in told.items()},
        {label: node for label, (_, node) in told.items()},
    )
)


def test_an_offset_is_the_same_text_whatever_order_its_nodes_come_in() -> None:
    assert json.dumps(offset_of({A: 1, B: 2}, IDS)) == json.dumps(offset_of({B: 2, A: 1}, IDS))
    assert json.dumps(at(a=1)) == '{"a:1": 1, "ID a:1": "idA"}'


def test_a_batch_reads_all_there_is() -> None:
    there = {A: NodeExtent("idA", 1, 11), B: NodeExtent("idB", 5, 21)}
    assert advance(at(a=1, b=10), there) == at(a=11, b=21)
    assert spans(at(a=1, b=10), at(a=11, b=21)) == [
        OffsetRange(A, "idA", 1, 11),
        OffsetRange(B, "idB", 10, 21),
    ]


def test_a_limit_is_shared_in_proportion_to_what_waits() -> None:
    there = {A: NodeExtent("idA", 1, 101), B: NodeExtent("idB", 1, 301)}
    assert advance(at(a=1, b=1), there, limit=40) == at(a=11, b=31)
    assert advance(at(a=1, b=1), there, limit=1) == at(a=1, b=2)


def test_nothing_new_is_the_same_offset() -> None:
    there = {A: NodeExtent("idA", 1, 11)}
    assert advance(at(a=11), there, limit=5) == at(a=11)
    assert spans(at(a=11), at(a=11)) == []


def test_what_comes_after_the_target_is_left() -> None:
    there = {A: NodeExtent("idA", 1, 101)}
    assert advance(at(a=1), there, targets={A: 50}) == at(a=50)
    assert advance(at(a=60), there, targets={A: 50}) == at(a=60)


def test_of_a_node_that_is_new_to_a_query_nothing_is_read_before_its_place_is_in_the_checkpoint() -> None:
    there = {A: NodeExtent("idA", 1, 11), B: NodeExtent("idB", 1, 21)}
    end = advance(at(a=1), there)
    assert end == at(a=11, b=21)
    assert spans(at(a=1), end) == [OffsetRange(A, "idA", 1, 11)]


def test_another_node_at_an_address_is_read_from_its_beginning() -> None:
    new = offset_of({A: 9}, {A: "idX"})
    assert spans(at(a=5), new) == [OffsetRange(A, "idX", 0, 9)]
    assert spans(at(a=12), at(a=9)) == [OffsetRange(A, "idA", 0, 9)]


def test_losses_are_told_with_the_place_and_the_reason() -> None:
    def told(place: int, standing: NodeExtent | None) -> str:
        (loss,) = losses(at(a=place), {} if standing is None else {A: standing})
        return loss.problem

    assert "position 5 at node a:1" in told(5, NodeExtent("idA", 7, 9))
    assert "begins at 7" in told(5, NodeExtent("idA", 7, 9))
    assert "ends at 9" in told(15, NodeExtent("idA", 7, 9))
    assert "its id is 'idX', and was 'idA'" in told(8, NodeExtent("idX", 7, 9))
    assert "no longer names it" in told(8, None)
    assert losses(at(a=9), {A: NodeExtent("idA", 7, 9)}) == []
    assert losses(at(a=7), {A: NodeExtent("idA", 7, 9), B: NodeExtent("idB", 1, 2)}) == []


def test_another_node_at_the_address_is_read_from_its_first_position() -> None:
    there = {A: NodeExtent("idX", 3, 9)}
    end = advance(at(a=500), there)
    assert end == {A: 9, f"ID {A}": "idX"}
    assert spans(at(a=500), end) == [OffsetRange(A, "idX", 0, 9)]


def test_a_node_that_lost_its_disk_is_read_from_its_first_position() -> None:
    end = advance(at(a=500), {A: NodeExtent("idA", 1, 9)})
    assert spans(at(a=500), end) == [OffsetRange(A, "idA", 0, 9)]


@given(offsets, standings, st.none() | st.integers(1, 50))
def test_batch_after_batch_everything_is_read_once(
    start: Offset, there: dict[str, NodeExtent], limit: int | None
) -> None:
    read: dict[str, list[int]] = {label: [] for label in there}
    before = start
    for _ in range(500):
        end = advance(before, there, limit)
        taken = 0
        for span in spans(before, end):
            first = max(span.first, there[span.label].first)
            read[span.label] += range(first, span.end)
            taken += span.end - first
        assert limit is None or taken <= limit
        if end == before:
            break
        before = end
    for label, standing in there.items():
        assert places_of(before)[label] == standing.end
        assert read[label] == list(range(standing.end - len(read[label]), standing.end))
        if label in start and losses(start, there) == []:
            assert len(read[label]) == standing.end - int(start[label])


@given(st.integers(1, 1000), st.dictionaries(st.text(max_size=3), st.integers(0, 500)))
def test_shares_are_never_more_than_wanted_and_use_up_the_limit(limit: int, wanted: dict[str, int]) -> None:
    shares = share(limit, wanted)
    assert all(0 <= shares[label] <= much for label, much in wanted.items())
    assert sum(shares.values()) == min(limit, sum(wanted.values()))


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=4),
    st.integers(1, 20),
    st.integers(1, 200),
)
def test_pieces_are_the_same_positions_in_order(
    given_spans: list[tuple[int, int]], pieces: int, least: int
) -> None:
    whole = [
        OffsetRange(f"n{at}", "id", first, first + length) for at, (first, length) in enumerate(given_spans)
    ]
    cut = split(whole, pieces, least)
    assert all(piece.first < piece.end for piece in cut)
    assert len(cut) <= pieces + len(whole)
    for span in whole:
        own = [piece for piece in cut if piece.label == span.label]
        assert [place for piece in own for place in range(piece.first, piece.end)] == list(
            range(span.first, span.end)
        )


def test_the_first_batch_begins_where_its_end_says_whatever_is_answered_later() -> None:
    end = begun(at(a=5), at(a=2))
    for start in (at(a=2), at(a=5), at(a=9)):
        assert spans(start, end) == [OffsetRange(A, "idA", 2, 5)]
    assert spans(end, end) == []
    assert spans(end, at(a=7)) == [OffsetRange(A, "idA", 5, 7)]
    assert later(end) == at(a=5)


def test_an_offset_names_the_reader_at_each_node() -> None:
    told = offset_of({A: 1, B: 2}, IDS, "spark-1")
    assert readers_of(told) == {A: "spark-1", B: "spark-1"}
    assert places_of(told) == {A: 1, B: 2}
    assert readers_of(at(a=1)) == {}

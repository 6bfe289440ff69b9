"""Tables of the log matched with an index: as the bytes of the same events are."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from log.parting import all_events, part_of, parts

from tests.filters.conditions import events as likely_events
from tests.filters.conditions import filters
from tidings import Event, Filter, Index
from tidings.errors import UserError
from tidings.log.arrow.table_events import DECODED_AT_ONCE, TableEvents, match_table
from tidings.log.chunks import LivePart
from tidings.log.columns import table_of

likely_parts = st.lists(likely_events, min_size=1, max_size=8).map(lambda made: [part_of(made)])
odd_filters = st.sampled_from([
    "value = 1", "value > 1", "value <> 1", "value IS NULL", "value = 'a'", "value < 'b'", "value = TRUE",
    "sensor = 's1' AND value > 0", "sensor LIKE '%1'", "id LIKE '%0'", "source > 'a'", "source IS NULL",
    "position = 1 OR stored IS NOT NULL OR date = 'x'", "priority > 3", "delivery = 'persistent'",
    "subject = 'x' OR channel IS NULL", "ttl_s > 1 OR keep_s IS NULL",
    "time > TIMESTAMP '2000-01-01T00:00:00Z'",
    "JMSType LIKE '%a%'", "value > sensor", "über = 1 OR Über <> 1", "value = 9007199254740993",
    "reliability > 0.5", "correlation_id < 'm'", "received IS NOT NULL", "type = 'a'", "",
]).map(Filter)  # fmt: skip


def matches(index: Index[int], table: Any) -> dict[int, list[int]]:
    return {key: list(rows) for key, rows in match_table(index, table).items()}


def tried(held: list[Filter], several: list[LivePart]) -> dict[int, list[int]]:
    made = [event for _, event in all_events(several)]
    rows = {
        key: [row for row, event in enumerate(made) if one.matches(event)] for key, one in enumerate(held)
    }
    return {key: found for key, found in rows.items() if found}


@given(st.lists(filters | odd_filters, max_size=40), parts() | likely_parts, st.sampled_from([0, 10_000]))
def test_a_table_is_matched_as_its_events_are(
    held: list[Filter], several: list[LivePart], plain_max: int
) -> None:
    index: Index[int] = Index(plain_max=plain_max, capacity=16, pending_max=4)
    for key, wanted in enumerate(held):
        index.add(key, wanted)
    assert matches(index, table_of(several)) == tried(held, several)


def test_integers_that_no_float_equals_are_told_apart_by_their_events() -> None:
    index: Index[int] = Index(plain_max=0)
    for key in range(2**53 - 2, 2**53 + 3):
        index.add(key, Filter("n = :n", n=key))
    table = table_of([part_of([Event("t", n=n) for n in range(2**53 - 2, 2**53 + 3)])])
    assert {key - 2**53: rows for key, rows in matches(index, table).items()} == {
        -2: [0], -1: [1], 0: [2], 1: [3], 2: [4],
    }  # fmt: skip


def test_only_events_that_must_be_evaluated_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    lots: list[int] = []
    decode = TableEvents._decode_lot
    monkeypatch.setattr(TableEvents, "_decode_lot", lambda self, lot: lots.append(lot) or decode(self, lot))
    late = 2 * DECODED_AT_ONCE
    made = [
        Event("t", {"n": n, "s": f"s{n}", "k" if n >= late else "other": n + 1}) for n in range(late + 100)
    ]
    index: Index[str] = Index(plain_max=0)
    for text in ("n > 9", "s = 's7'", "s < 's3'", "s LIKE '%77'", "n IS NOT NULL", "type = 't'"):
        index.add(text, Filter(text))
    found = matches(index, table_of([part_of(made)]))  # type: ignore[arg-type]
    assert (len(found["n > 9"]), found["s = 's7'"]) == (len(made) - 10, [7])
    assert lots == []
    index.add("rough", Filter("n < k"))
    found = matches(index, table_of([part_of(made)]))  # type: ignore[arg-type]
    assert (len(found["rough"]), lots) == (100, [2])


def test_record_batches_and_pieces_of_tables_are_matched_too() -> None:
    index: Index[int] = Index(plain_max=0)
    index.add(1, Filter("s = 'b' AND n > 1"))
    table = table_of([part_of([Event("t", n=n, s=s) for n in range(4) for s in "abc"])])
    assert matches(index, table) == {1: [7, 10]}
    assert matches(index, table.slice(6, 3)) == {1: [1]}
    assert matches(index, pa.concat_tables([table.slice(6), table.slice(0, 9)])) == {1: [1, 4, 13]}
    assert matches(index, table.to_batches()[0].slice(5, 5)) == {1: [2]}
    assert matches(index, table.slice(0, 0)) == {}


def test_a_column_that_a_filter_reads_must_be_there() -> None:
    index: Index[int] = Index(plain_max=0)
    index.add(1, Filter("n > 1"))
    table = table_of([part_of([Event("t", n=n) for n in range(4)])])
    assert matches(index, table.select(["n", "attributes"])) == {1: [2, 3]}
    with pytest.raises(UserError, match="the table has no column 'attributes', which a filter reads"):
        matches(index, table.select(["n"]))
    index.add(2, Filter("source = 'me'"))
    with pytest.raises(UserError, match="the table has no column 'source'"):
        matches(index, table.select(["n", "attributes"]))
    texts = pa.table({"attributes": pa.array([[("n", "1")]], pa.map_(pa.string(), pa.string()))})
    with pytest.raises(UserError, match="column 'attributes' must be map"):
        matches(index, texts)

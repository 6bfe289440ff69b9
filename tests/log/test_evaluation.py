"""Filters on sealed rows: the rows that match are those whose events do, and no group is wrongly left out."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from effort import often
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.filters import conditions
from tests.log.parting import STORED_US, events, part_of
from tidings import Event, Filter
from tidings.ids import Origin
from tidings.log.chunks import FileClaim
from tidings.log.columns import table_of
from tidings.log.evaluation import columns_for, mask
from tidings.log.row_groups import may_match, statistics_of
from tidings.log.segment_file import open_file, read_footer, tables_of, write_file
from tidings.log.segment_folder import Folder

MOMENT = datetime.fromtimestamp(STORED_US / 1e6, UTC)
HEADERS = [
    "time > TIMESTAMP '2026-01-01 00:00:00'", "JMSTimestamp >= 0", "JMSDeliveryMode = 'PERSISTENT'",
    "id IS NULL",
    "delivery IN ('reliable', 'persistent')", "NOT (subject LIKE 'a%')", "ttl_s < 10", "body IS NOT NULL",
    "source = 'me'", "source <> 'me'", "received IS NULL", "JMSPriority BETWEEN 3 AND 7", "id LIKE 'node.%'",
    "reliability * 2 > 1", "STARTS_WITH(type, 'a')", "correlation_id = reply_to", "UNDER(type, 'a')",
    "value > 1", "value = 'a' OR sensor = 's1'", "value IS NOT NULL", "NOT value", "Value = value", "n = 1",
    "DISTANCE(value, n, 0, 0) < 3", "value + n > 2", "value IN (1, 'a', TRUE)", "TRUE", "FALSE", "-value < 0",
]  # fmt: skip


def brute(filter: Filter, held: list[Event]) -> list[bool]:
    return [filter.matches(event) for event in held]


def checked(filter: Filter, held: list[Event]) -> None:
    """The mask, of the whole table or the needed columns, is what the events say, and statistics agree."""
    part = part_of(held)
    held = part.events()
    table = table_of([part])
    assert mask(filter, table).tolist() == brute(filter, held)
    narrow = table.select(columns_for(filter, table.schema))
    if narrow.num_columns:
        assert mask(filter, narrow).tolist() == brute(filter, held)
    sink = io.BytesIO()
    write_file(sink, tables_of([part]), FileClaim("n", 1, len(held)))
    file = open_file(pa.BufferReader(sink.getvalue()), "x")
    known = statistics_of(file.metadata, 0, read_footer(file, "x").map_names)
    assert may_match(filter, known) >= any(brute(filter, held))


@settings(max_examples=often(300))
@given(conditions.filters, st.lists(conditions.events, min_size=1, max_size=12))
def test_the_mask_is_what_the_filter_says_of_each_event(filter: Filter, held: list[Event]) -> None:
    checked(filter, held)


@settings(max_examples=often(100))
@given(conditions.filters, conditions.events, st.integers(1, 5))
def test_rows_that_are_all_alike_are_told_by_their_statistics(
    filter: Filter, event: Event, count: int
) -> None:
    checked(filter, [event] * count)


@settings(max_examples=often(150))
@given(st.sampled_from(HEADERS), st.lists(events(), min_size=1, max_size=5))
def test_header_fields_mean_what_they_mean_in_an_event(text: str, held: list[Event]) -> None:
    checked(Filter(text), held)


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("value > 100", False),
        ("value >= 99", True),
        ("value < 0 OR type = 'b'", False),
        ("type = 'a' AND value = 5", True),
        ("type = 'z'", False),
        ("type LIKE 'a%'", True),
        ("value = 'text'", False),
        ("unknown = 1", False),
        ("unknown IS NULL", True),
        ("value IS NULL", False),
        ("note = 'x'", True),
        ("time < TIMESTAMP '1980-01-01 00:00:00'", False),
        ("priority = 9", False),
        ("subject = 'x'", False),
        ("NOT (value BETWEEN 0 AND 99)", False),
        ("good = FALSE", False),
        ("good", True),
        ("value * 2 > 1000", True),
    ],
)
def test_row_groups_are_passed_over_by_their_statistics(text: str, may: bool) -> None:
    held = [Event("a", value=n, good=True, time=MOMENT) for n in range(100)] + [Event("a", value=1, note="x")]
    sink = io.BytesIO()
    held[-1] = held[-1].evolve(good=True)
    write_file(sink, tables_of([part_of(held)]), FileClaim("n", 1, 101))
    file = open_file(pa.BufferReader(sink.getvalue()), "x")
    known = statistics_of(file.metadata, 0, read_footer(file, "x").map_names)
    assert may_match(Filter(text), known) is may


def test_rows_with_values_of_another_kind_are_asked_one_by_one() -> None:
    held = [Event("a", value=float(n)) for n in range(50)] + [Event("a", value=7), Event("a", value="7")]
    table = table_of([part_of(held, origin=Origin("s", 1, "me"))])
    assert [n for n, hit in enumerate(mask(Filter("value = 7"), table)) if hit] == [7, 50]
    assert [n for n, hit in enumerate(mask(Filter("value = '7'"), table)) if hit] == [51]


def test_a_filter_reads_only_the_columns_it_names() -> None:
    schema = table_of([part_of([Event("a", value=1, other=2)])]).schema
    assert columns_for(Filter("JMSType = 'a' AND priority > 3"), schema) == ["type", "priority"]
    assert columns_for(Filter("value > 3"), schema) == ["value", "attributes"]
    assert columns_for(Filter("received IS NULL"), schema) == ["received", "stored"]
    assert columns_for(Filter(), schema) == []


def test_whole_numbers_of_a_file_are_integers_to_a_filter_that_calculates(tmp_path: Path) -> None:
    part = part_of([Event("a", value=n) for n in (2**53, 2**53 - 2, 0.5)])
    filter = Filter("value + 1 > 9007199254740992")  # as floats 2^53 + 1 is 2^53
    folder = Folder(tmp_path)
    folder.write([part], "n")
    tables, _ = folder.read(0, part.first + part.count, filter)
    found = [n for table in tables for n in table.column("position").to_pylist()]
    matching = zip(part.positions(), brute(filter, part.events()), strict=True)
    assert found == [position for position, is_match in matching if is_match]
    assert len(found) == 1

"""Sealed files: lossless, small, and readable by pandas and DuckDB as they stand."""

from __future__ import annotations

import csv
import io
from datetime import date
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from effort import often
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import identical

from tests.log.parting import STORED_US, all_events, part_of, parts
from tidings import Event
from tidings.errors import CodecError, StoreDamaged, StoreTooNew
from tidings.event.batch import Batch
from tidings.event.header import Header
from tidings.event.json import to_json
from tidings.ids import Origin
from tidings.log import segment_file
from tidings.log.arrow.decode_rows import events_of, raw_batches
from tidings.log.arrow.map_column import alike, counts_of, reshaped
from tidings.log.chunks import FileClaim, LivePart, claim_in, live_part
from tidings.log.columns import table_of
from tidings.log.schema import ATTRIBUTES, TIME, own_columns
from tidings.log.segment_file import open_file, read_footer, tables_of, write_file
from tidings.sensors.recording import make_recording

CLAIM = FileClaim("node-1", 1, 1_000_000)


def through_a_file(several: list[LivePart], claim: FileClaim = CLAIM) -> pa.Table:
    sink = io.BytesIO()
    count = write_file(sink, tables_of(several), claim)
    file = open_file(pa.BufferReader(sink.getvalue()), "x")
    footer = read_footer(file, "x")
    assert (footer.claim, footer.count) == (claim, count)
    return file.read()


@settings(max_examples=often(40))
@given(parts())
def test_any_events_come_back_the_same(several: list[LivePart]) -> None:
    table = through_a_file(several)
    wanted = all_events(several)
    assert table.column("position").to_pylist() == [position for position, _ in wanted]
    for event, (_, stored) in zip(events_of(table), wanted, strict=True):
        assert identical(event, stored)


@settings(max_examples=often(40))
@given(parts())
def test_rows_become_the_batches_of_a_store_again(several: list[LivePart]) -> None:
    restored = [live_part(batch) for batch in raw_batches(through_a_file(several))]
    for (left, event), (right, stored) in zip(all_events(restored), all_events(several), strict=True):
        assert left == right
        assert identical(event, stored)
    times = {position: part.stored_us for part in several for position in part.positions()}
    assert all(times[position] == part.stored_us for part in restored for position in part.positions())


@settings(max_examples=often(40))
@given(st.lists(parts(), min_size=2, max_size=3))
def test_tables_made_alike_hold_the_same_events(several: list[list[LivePart]]) -> None:
    tables = [table_of(each) for each in several]
    united = alike(tables)
    assert len({str(table.schema) for table in united}) == 1
    for table, each in zip(united, several, strict=True):
        assert all(map(identical, events_of(table), [event for _, event in all_events(each)]))
        assert counts_of(table) == counts_of(reshaped(table, {}))


def test_a_row_group_is_of_many_parts_and_has_the_columns_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_file, "GROUP_ROWS", 10)
    several = [part_of([Event("a", {f"n{at // 20}": at})], at) for at in range(1, 41)]
    tables = tables_of(several)
    assert [len(table) for table in tables] == [10, 10, 10, 10]
    assert {tuple(own_columns(table.schema)) for table in tables} == {("n0", "n1")}
    assert through_a_file(several).column("n1").null_count == 20


def test_frequent_attributes_have_columns_and_the_rest_are_in_the_map() -> None:
    several = [part_of([Event("a", value=at / 2, seldom=1) if at == 7 else Event("a", value=at / 2)], at)
               for at in range(1, 101)]  # fmt: skip
    table = through_a_file([*several, part_of([Event("a", value="text")], 101)])
    assert own_columns(table.schema) == {"value": "f"}
    assert table.column("value").null_count == 1
    assert table.column("attributes").null_count == 99


@pytest.mark.parametrize(
    "name", ["date", "Node", "position", "ATTRIBUTES", "mismatches", "jmstype", "time.zone", "a b", "", "'"]
)
def test_a_name_that_readers_would_mistake_gets_no_column(name: str) -> None:
    table = through_a_file([part_of([Event.unchecked(1, "a", 0, {name or "`": 1})])])
    assert own_columns(table.schema) == {}
    assert events_of(table)[0].values == {name or "`": 1}


def test_of_names_that_differ_in_case_only_the_more_frequent_gets_the_column() -> None:
    held = [Event("a", {"Value": 1, "value": 2.0}), Event("a", {"value": 3.0})]
    assert own_columns(through_a_file([part_of(held)]).schema) == {"value": "f"}


def test_an_empty_file_claims_that_there_is_nothing() -> None:
    table = through_a_file([], FileClaim("n", 5, 9))
    assert len(table) == 0
    assert raw_batches(table) == []


def test_names_tell_claims() -> None:
    name = CLAIM.file_name
    assert name == "node-1-00000000000000000001-00000000000001000000.parquet"
    assert claim_in(name) == CLAIM
    for other in (
        "." + name,
        name[:-1],
        "x.parquet",
        FileClaim("n", 9, 1).file_name,
        f"a/{name}",
        "part-0.parquet",
    ):
        assert claim_in(other) is None
    assert CLAIM.covers(FileClaim("node-1", 5, 6))
    assert not CLAIM.covers(FileClaim("node-2", 5, 6))
    assert not FileClaim("n", 2, 5).covers(FileClaim("n", 1, 3))


def test_the_footer_names_the_attributes_in_the_map() -> None:
    sink = io.BytesIO()
    write_file(sink, tables_of([part_of([Event("a", {"date": "x", "value": 1})])]), CLAIM)
    footer = read_footer(open_file(pa.BufferReader(sink.getvalue()), "x"), "x")
    assert footer.map_names == {"date"}


def test_what_is_no_file_of_the_log_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(StoreDamaged, match=r"x\.parquet: is no Parquet file"):
        open_file(path, str(path))
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(StoreDamaged, match="no footer of a file of the log"):
        read_footer(open_file(path, str(path)), str(path))


def test_a_file_of_a_newer_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = io.BytesIO()
    monkeypatch.setattr(segment_file, "FORMAT", 2)
    write_file(sink, tables_of([]), CLAIM)
    monkeypatch.setattr(segment_file, "FORMAT", 1)
    with pytest.raises(StoreTooNew, match="format 2"):
        read_footer(open_file(pa.BufferReader(sink.getvalue()), "x"), "x")


def test_a_changed_byte_is_found() -> None:
    sink = io.BytesIO()
    write_file(sink, tables_of([part_of([Event("a", value=n * 1.1) for n in range(1000)])]), CLAIM)
    column = open_file(pa.BufferReader(sink.getvalue()), "x").metadata.row_group(0).column(23)
    assert column.path_in_schema == "value"
    raw = bytearray(sink.getvalue())
    raw[column.data_page_offset + column.total_compressed_size // 2] ^= 0x10
    with pytest.raises(OSError, match=r"(?i)crc|checksum|corrupt"):
        open_file(pa.BufferReader(bytes(raw)), "x").read()


def test_parts_are_cut_where_the_date_changes() -> None:
    def stored(first: int, day: int) -> LivePart:
        return LivePart(first, 1, b"", "s", 1, None, day * 86_400_000_000, Batch.of([Event("a")]).raw)

    runs = segment_file.by_date([stored(1, 0), stored(2, 0), stored(3, 1), stored(4, 0)])
    assert [(day, [part.first for part in held]) for day, held in runs] == [
        (date(1970, 1, 1), [1, 2]),
        (date(1970, 1, 2), [3]),
        (date(1970, 1, 1), [4]),
    ]


def _entries(*entries: tuple[str, dict[str, object]]) -> pa.Array:
    return pa.array([list(entries)], ATTRIBUTES)


@pytest.mark.parametrize(
    ("name", "column", "problem"),
    [
        ("type", pa.array(["a..b"]), "empty segment"),
        ("type", pa.array([None], pa.string()), "missing"),
        ("counter", pa.array([-1]), "below 0"),
        ("epoch", pa.array([-1]), "below 0"),
        ("system", pa.array(["not a system"]), "letters"),
        ("priority", pa.array([12], pa.int8()), "0..9"),
        ("delivery", pa.array(["slowly"]), "is not one of transient"),
        ("time", pa.array([2**62], TIME), "can't be read"),
        ("attributes", _entries(("value", {"i": 1})), "given twice"),
        ("attributes", _entries(("other", {"i": 1, "s": "x"})), "several"),
        ("attributes", _entries(("other", {})), "no value"),
        ("attributes", _entries(("priority", {"i": 1})), "header field"),
    ],
)
def test_rows_that_are_no_events_are_told(name: str, column: pa.Array, problem: str) -> None:
    table = table_of([part_of([Event("a", value=1)])])
    strange = table.set_column(table.schema.get_field_index(name), name, column)
    with pytest.raises(CodecError, match=problem):
        events_of(strange)


def test_a_day_of_readings_takes_a_fraction_of_its_json(tmp_path: Path) -> None:
    recording = tmp_path / "readings.csv"
    make_recording(recording, seed=1, sensors=5, days=1.0)
    held = [
        Event.unchecked(
            n,
            "air.pm10",
            STORED_US + 1_000_000 * n,
            {"name": row["sensor"], "value": float(row["pm10"]), "posx": float(row["lon"])},
            Header(delivery="persistent"),
        )
        for n, row in enumerate(csv.DictReader(recording.read_text().splitlines()), 1)
        if row["pm10"]
    ]
    several = [part_of(held[at : at + 100], at + 1) for at in range(0, len(held), 100)]
    sink = io.BytesIO()
    write_file(sink, tables_of(several), CLAIM)
    assert 5 * len(sink.getvalue()) < sum(len(to_json(event)) for _, event in all_events(several))


@pytest.fixture(scope="module")
def readings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of readings, some of which have values of another kind and attributes of their own."""
    path = tmp_path_factory.mktemp("files") / CLAIM.file_name
    held = [
        Event.unchecked(
            n + 1, "air.pm10", STORED_US + n, {"value": n / 4, "pos.x": 1.5, "sensor": f"s{n % 7}"}
        )
        for n in range(5000)
    ]
    held += [Event("air.pm10", value="broken", note="x"), Event("alarm", date="2026-01-01")]
    write_file(path, tables_of([part_of(held, origin=Origin("abc", 3, "me"))]), CLAIM)
    return path


def test_pandas_reads_a_file(readings: Path) -> None:
    frame = pd.read_parquet(readings)
    assert len(frame) == 5002
    assert frame["value"].sum() == sum(range(5000)) / 4
    assert frame["id"][17] == "abc.13.212"
    assert frame["time"][3] == pd.Timestamp(STORED_US + 3, unit="us", tz="UTC")


def test_duckdb_reads_a_file(readings: Path) -> None:
    query = f"""SELECT count(*), sum(value), count(DISTINCT id), max(position), min("pos.x"), max(counter),
        count(CASE WHEN map_contains(attributes, 'note') THEN 1 END)
        FROM '{readings}' WHERE type = 'air.pm10'"""
    assert duckdb.sql(query).fetchall() == [(5001, sum(range(5000)) / 4, 5000, 5001, 1.5, 5000, 1)]


def test_statistics_stand_for_position_time_and_type(readings: Path) -> None:
    metadata = pq.read_metadata(readings)
    named = {
        metadata.row_group(0).column(at).path_in_schema: metadata.row_group(0).column(at)
        for at in range(metadata.num_columns)
    }
    assert all(named[name].statistics.has_min_max for name in ("position", "time", "type", "value", "id"))


def test_numbers_stand_in_one_column_of_doubles_whether_or_not_they_are_whole() -> None:
    for values in ([41, 41.2, 40], [41, 42], [41, 41.0, 0.5], [0.5, 3.0], [2**53 + 1, 0.5, 7]):
        several = [part_of([Event("a", value=value) for value in values])]
        table = through_a_file(several)
        assert table.schema.field("value").type == pa.float64()
        exact = [float(value) if abs(value) < 2**53 else None for value in values]
        assert table.column("value").to_pylist() == exact
        found = [event["value"] for event in events_of(table)]
        assert [(type(one), one) for one in found] == [(type(one), one) for one in values]


def test_files_of_whole_and_of_broken_numbers_join_to_one_column() -> None:
    several = [part_of([Event("a", value=value) for value in some]) for some in ([1, 2], [0.5, 3.0])]
    tables = [table_of([part]) for part in several]
    joined = pa.concat_tables(alike(tables))
    assert joined.column("value").to_pylist() == [1.0, 2.0, 0.5, 3.0]
    assert [type(event["value"]) for event in events_of(joined)] == [int, int, float, float]

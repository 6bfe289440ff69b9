"""Rows of DataFrames as events: every kind of column, and what is refused by column and row."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from tidings import Event
from tidings.errors import ConfigError, EventError
from tidings.event.values import RESERVED
from tidings.event.wire import count_in_head, decode_events
from tidings.log.sinks import PIECE_SIZE_MAX
from tidings.pipeline.encode_rows import EVENT_SIZE_MAX, PIECE_SIZE, RowConverter
from tidings.pipeline.shape import SET_BY_NODES, shape_of

MOMENT = datetime(2026, 11, 15, 8, tzinfo=UTC)


INTS = spark.ArrayType(spark.IntegerType())
NESTED: dict[str, spark.DataType] = {
    "int": spark.IntegerType(),
    "array<int>": INTS,
    "map<string,int>": spark.MapType(spark.StringType(), spark.IntegerType()),
    "map<int,int>": spark.MapType(spark.IntegerType(), spark.IntegerType()),
    "map<string,long>": spark.MapType(spark.StringType(), spark.LongType()),
    "map<string,string>": spark.MapType(spark.StringType(), spark.StringType()),
    "map<string,array<int>>": spark.MapType(spark.StringType(), INTS),
    "struct<a:array<int>>": spark.StructType().add("a", INTS),
    "struct<x:double>": spark.StructType().add("x", "double"),
    "struct<x:double,at:struct<day:date>>": spark.StructType()
    .add("x", "double")
    .add("at", spark.StructType().add("day", "date")),
}
"""Types that Spark reads as text only while it runs."""


def schema_of(text: str) -> spark.StructType:
    """Columns as in DDL, without Spark running: `type string, n long`."""
    schema = spark.StructType()
    for part in text.split(", "):
        name, kind = part.split(" ", 1)
        schema.add(name, NESTED.get(kind, kind))
    return schema


def batch_of(schema: spark.StructType, rows: Sequence[dict[str, Any]]) -> Any:
    return pa.RecordBatch.from_pylist(list(rows), schema=to_arrow_schema(schema, timezone="UTC"))


def convert(schema: spark.StructType, *rows: dict[str, Any], **options: Any) -> list[Event]:
    converter = RowConverter(shape_of(schema, **options))
    return [event for raw in converter.pieces([batch_of(schema, rows)]) for event in decode_events(raw)]


def midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


ints = st.integers(-(2**63), 2**63 - 1)
moments = st.datetimes(timezones=st.just(UTC))
texts = st.text(max_size=20)
KINDS: dict[str, tuple[spark.DataType, st.SearchStrategy[Any], Any]] = {
    "boolean": (spark.BooleanType(), st.booleans(), None),
    "byte": (spark.ByteType(), st.integers(-128, 127), None),
    "int": (spark.IntegerType(), st.integers(-(2**31), 2**31 - 1), None),
    "long": (spark.LongType(), ints, None),
    "float": (spark.FloatType(), st.floats(width=32, allow_nan=False), None),
    "double": (spark.DoubleType(), st.floats(allow_nan=False), None),
    "string": (spark.StringType(), texts, None),
    "binary": (spark.BinaryType(), st.binary(max_size=20), None),
    "timestamp": (spark.TimestampType(), moments, None),
    "ntz": (spark.TimestampNTZType(), st.datetimes(), lambda moment: moment.replace(tzinfo=UTC)),
    "date": (spark.DateType(), st.dates(), midnight),
    "whole": (spark.DecimalType(18, 0), st.integers(-(10**18) + 1, 10**18 - 1).map(Decimal), int),
    "decimal": (
        spark.DecimalType(15, 4),
        st.integers(-(10**15) + 1, 10**15 - 1).map(lambda n: Decimal(n).scaleb(-4)),
        float,
    ),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[spark.StructType, list[dict[str, Any]], list[dict[str, Any]]]:
    """Columns of several kinds, rows of them, and the attributes that the events are to have."""
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=5))
    schema = spark.StructType()
    count = draw(st.integers(0, 6))
    rows: list[dict[str, Any]] = [{} for _ in range(count)]
    wanted: list[dict[str, Any]] = [{} for _ in range(count)]
    for place, kind in enumerate(kinds):
        type, values, change = KINDS[kind]
        name = f"{kind} {place}"
        schema.add(name, type)
        for row, want in zip(rows, wanted, strict=True):
            row[name] = draw(st.none() | values)
            if row[name] is not None:
                want[name] = row[name] if change is None else change(row[name])
    return schema, rows, wanted


@given(tables())
def test_every_row_becomes_the_event_that_its_columns_say(table: Any) -> None:
    schema, rows, wanted = table
    events = convert(schema, *rows, type="t")
    assert [event.attributes for event in events] == wanted
    assert [event.counter for event in events] == list(range(1, len(rows) + 1))
    assert {(event.type, event.delivery) for event in events} <= {("t", "persistent")}
    for event, attributes in zip(events, wanted, strict=True):
        kinds = {name: type(value) for name, value in attributes.items()}
        assert {name: type(value) for name, value in event.attributes.items()} == kinds


names = st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=9).filter(
    lambda name: name not in RESERVED
)


@given(
    st.lists(st.tuples(st.none() | st.dictionaries(names, ints, max_size=3), st.none() | ints), max_size=5)
)
def test_the_map_of_attributes_is_merged_and_columns_go_before_it(rows: Any) -> None:
    schema = schema_of("attributes map<string,long>, n long")
    events = convert(schema, *({"attributes": row, "n": n} for row, n in rows), type="t")
    wanted = [(row or {}) | ({} if n is None else {"n": n}) for row, n in rows]
    assert [event.attributes for event in events] == wanted


def test_a_map_whose_values_have_a_member_for_each_kind_keeps_their_kinds() -> None:
    values = spark.StructType().add("b", "boolean").add("i", "long").add("s", "string").add("t", "timestamp")
    schema = spark.StructType().add("attributes", spark.MapType(spark.StringType(), values))
    empty: dict[str, Any] = dict.fromkeys("bist")
    row = {
        "a": {**empty, "b": True},
        "c": {**empty, "i": 3},
        "d": {**empty, "t": MOMENT},
        "e": empty,
        "f": None,
    }
    (event,) = convert(schema, {"attributes": row}, type="t")
    assert event.attributes == {"a": True, "c": 3, "d": MOMENT}


def test_a_batch_that_is_a_part_of_another_has_its_own_rows_only() -> None:
    schema = schema_of("type string, attributes map<string,string>, p struct<x:double>")
    rows = [{"type": f"t{n}", "attributes": {"n": str(n)}, "p": {"x": n / 2}} for n in range(6)]
    part = batch_of(schema, rows).slice(2, 3)
    events = [e for raw in RowConverter(shape_of(schema)).pieces([part]) for e in decode_events(raw)]
    assert [(e.type, e["n"], e["p.x"]) for e in events] == [(f"t{n}", str(n), n / 2) for n in (2, 3, 4)]


def test_members_of_structs_are_attributes_with_dotted_names() -> None:
    schema = schema_of("type string, pos struct<x:double,at:struct<day:date>>")
    rows = [
        {"type": "t", "pos": {"x": 1.5, "at": {"day": date(2026, 11, 15)}}},
        {"type": "t", "pos": {"x": None, "at": None}},
        {"type": "t", "pos": None},
    ]
    found = [event.attributes for event in convert(schema, *rows)]
    assert found == [{"pos.x": 1.5, "pos.at.day": datetime(2026, 11, 15, tzinfo=UTC)}, {}, {}]


def test_header_columns_are_header_fields() -> None:
    schema = schema_of(
        "type string, time timestamp, id string, subject string, priority int, ttl_s int, "
        "reliability double, delivery string, route string, body binary, content_type string"
    )
    row = {
        "type": "t",
        "time": MOMENT,
        "id": "one",
        "subject": "s",
        "priority": 7,
        "ttl_s": 60,
        "reliability": 0.5,
        "delivery": "reliable",
        "route": "direct",
        "body": b"\x00",
        "content_type": "x/y",
    }
    found, bare = convert(schema, row, {"type": "t", "time": MOMENT})
    assert {name: getattr(found, name) for name in row} == row
    assert (bare.priority, bare.delivery, bare.route, bare.id) == (4, "persistent", "auto", None)
    assert bare.header == convert(schema_of("type string"), {"type": "t"})[0].header


def test_an_event_without_a_time_has_that_of_its_writing() -> None:
    before = datetime.now(UTC)
    for schema in (schema_of("type string, time timestamp"), schema_of("type string, time void")):
        (event,) = convert(schema, {"type": "t", "time": None})
        assert before - timedelta(milliseconds=1) <= event.time <= datetime.now(UTC)


def test_a_row_without_a_type_has_that_of_the_option() -> None:
    schema = schema_of("type string")
    found = convert(schema, {"type": None}, {"type": "own"}, type="other")
    assert [event.type for event in found] == ["other", "own"]


def test_not_a_number_and_the_infinities_stay_what_they_are() -> None:
    found = convert(schema_of("v double"), {"v": float("nan")}, {"v": float("-inf")}, {"v": None}, type="t")
    assert [repr(event.attributes.get("v")) for event in found] == ["nan", "-inf", "None"]


@pytest.mark.parametrize("delivery", ["transient", "reliable", "persistent"])
def test_the_delivery_is_that_of_the_option(delivery: str) -> None:
    (event,) = convert(schema_of("type string"), {"type": "t"}, delivery=delivery)
    assert event.delivery == delivery


def test_pieces_are_of_about_one_size_and_hold_all_rows_in_order() -> None:
    schema = schema_of("type string, n long, body binary")
    batches = [
        batch_of(schema, [{"type": "t", "n": n, "body": bytes(3_000)} for n in range(first, first + 700)])
        for first in (0, 700)
    ]
    pieces = list(RowConverter(shape_of(schema)).pieces(batches))
    assert len(pieces) > 3
    assert all(len(piece) <= PIECE_SIZE + 5 for piece in pieces)
    found = [event for piece in pieces for event in decode_events(piece)]
    assert [event["n"] for event in found] == list(range(1_400))
    assert [event.counter for event in found] == list(range(1, 1_401))
    assert sum(map(count_in_head, pieces)) == 1_400


def test_a_long_event_has_a_piece_of_its_own_and_a_longer_one_is_refused_by_its_row() -> None:
    schema = schema_of("type string, body binary")
    long, longer = bytes(EVENT_SIZE_MAX - 100), bytes(EVENT_SIZE_MAX)
    rows = [{"type": "t", "body": body} for body in (b"", long, b"")]
    pieces = list(RowConverter(shape_of(schema)).pieces([batch_of(schema, rows)]))
    assert [count_in_head(piece) for piece in pieces] == [1, 1, 1]
    assert max(map(len, pieces)) <= PIECE_SIZE_MAX
    with pytest.raises(EventError, match=r"^row 1 of partition 4: makes an event of .* bytes"):
        list(
            RowConverter(shape_of(schema), " of partition 4").pieces(
                [batch_of(schema, [rows[0], {"type": "t", "body": longer}])]
            )
        )


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("n long", "column 'type': is missing: give every row a type"),
        ("type long", "column 'type': is bigint, and must be text"),
        ("type string, a array<int>", "column 'a': is array<int>, which no attribute can hold; use explode"),
        ("type string, m map<string,int>", "column 'm': is map<string,int>, which no attribute can hold"),
        (
            "type string, d decimal(20,2)",
            "column 'd': is decimal(20,2), which no attribute can hold; more than 15",
        ),
        (
            "type string, i interval day to second",
            "column 'i': is interval day to second, which no attribute",
        ),
        ("type string, s struct<a:array<int>>", "column 's.a': is array<int>, which no attribute can hold"),
        ("type string, attributes string", "column 'attributes': is string, and must be a map"),
        ("type string, attributes map<int,int>", "column 'attributes': is map<int,int>, and must be a map"),
        ("type string, attributes map<string,array<int>>", "column 'attributes': has values of array<int>"),
        ("type string, priority double", "column 'priority': is double, and must be integer"),
        ("type string, JMSType string", "column 'JMSType': can't be an attribute: is the name of a header"),
        ("type string, n long, n long", "column 'n': is there twice"),
        ("type string, n long, N long", "column 'N': differs from 'n' by case only; rename one"),
        ("type string, Time timestamp", "column 'Time': differs from 'time' by case only; rename it to that"),
        ("type string, type string", "column 'type': is there twice"),
        *((f"type string, {name} string", f"column '{name}': is set by the nodes") for name in SET_BY_NODES),
    ],
    ids=lambda text: text.split(":")[0][:50],
)
def test_what_no_event_can_hold_is_refused_by_its_column_before_anything_runs(
    columns: str, told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        shape_of(schema_of(columns))
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize(
    ("columns", "bad", "problem"),
    [
        ("type string", {"type": None}, "is null, and there is no option 'type'"),
        ("type string", {"type": "secret word"}, "is no type"),
        ("type string, priority int", {"priority": 10}, "is not within 0..9"),
        ("type string, ttl_s double", {"ttl_s": -1.0}, "is not a number of seconds from 0 on"),
        ("type string, reliability double", {"reliability": float("nan")}, "is not within 0..1"),
        (
            "type string, delivery string",
            {"delivery": "secret"},
            "is not one of transient, reliable, persist",
        ),
        ("type string, route string", {"route": "secret"}, "is not one of auto, direct, epidemic"),
        ("type string, id string", {"id": ""}, "is not a text that says something"),
    ],
    ids=["null", "type", "priority", "ttl_s", "reliability", "delivery", "route", "id"],
)
def test_a_bad_row_is_refused_by_column_and_row_and_its_value_is_not_told(
    columns: str, bad: dict[str, Any], problem: str
) -> None:
    good = {"type": "t"}
    column = next(iter(bad))
    with pytest.raises(EventError) as caught:
        convert(schema_of(columns), good, good, good | bad)
    assert str(caught.value).startswith(f"column {column!r}, row 2: {problem}")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["time", "other"])
def test_a_time_that_events_do_not_know_is_refused(name: str) -> None:
    schema = schema_of(f"type string, {name} timestamp")
    micros = pa.array([0, 2**58], pa.int64()).cast(pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_arrays([pa.array(["t", "t"]), micros], names=["type", name])
    with pytest.raises(EventError, match=rf"^column '{name}', row 1: is not within the years 1 to 9999"):
        list(RowConverter(shape_of(schema)).pieces([batch]))

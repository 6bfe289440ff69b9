"""Which columns a query may have."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types

from tidings.errors import ConfigError
from tidings.event.header import FIELD_CHECKS
from tidings.pipeline.batch import arrow_schema, default_schema

VALUES = types.StructType(
    [
        types.StructField("b", types.BooleanType()),
        types.StructField("i", types.LongType()),
        types.StructField("f", types.DoubleType()),
        types.StructField("s", types.StringType()),
        types.StructField("t", types.TimestampType()),
        types.StructField("x", types.BinaryType()),
    ]
)


def columns(*fields: tuple[str, types.DataType], nullable: bool = True) -> types.StructType:
    return types.StructType([types.StructField(name, kind, nullable) for name, kind in fields])


def refusal(schema: types.StructType) -> str:
    with pytest.raises(ConfigError) as caught:
        arrow_schema(schema)
    return str(caught.value)


def test_without_columns_of_its_own_a_query_has_place_header_and_attributes() -> None:
    names = default_schema().fieldNames()
    assert names[:4] == ["node", "position", "type", "time"]
    assert names[-1] == "attributes"
    assert {"type", *FIELD_CHECKS} < set(names)
    assert arrow_schema(default_schema()).names == names


@pytest.mark.parametrize(
    ("kind", "arrow"),
    [
        (types.BooleanType(), pa.bool_()),
        (types.ByteType(), pa.int8()),
        (types.IntegerType(), pa.int32()),
        (types.LongType(), pa.int64()),
        (types.FloatType(), pa.float32()),
        (types.DoubleType(), pa.float64()),
        (types.StringType(), pa.string()),
        (types.BinaryType(), pa.binary()),
        (types.TimestampType(), pa.timestamp("us", "UTC")),
        (types.TimestampNTZType(), pa.timestamp("us")),
        (types.DateType(), pa.date32()),
        (types.DecimalType(10, 2), pa.decimal128(10, 2)),
    ],
    ids=str,
)
def test_an_attribute_may_be_a_column_of_each_simple_type(kind: types.DataType, arrow: pa.DataType) -> None:
    assert arrow_schema(columns(("value", kind))).field("value").type == arrow


@pytest.mark.parametrize(
    "kind",
    [
        types.ArrayType(types.LongType()),
        types.StructType([types.StructField("a", types.LongType())]),
        types.MapType(types.StringType(), types.LongType()),
        types.DayTimeIntervalType(),
        types.YearMonthIntervalType(),
        types.VariantType(),
        types.NullType(),
    ],
    ids=lambda kind: type(kind).__name__,
)
def test_a_type_that_no_value_of_an_event_has_is_refused(kind: types.DataType) -> None:
    told = refusal(columns(("value", kind)))
    assert told.startswith("schema: ")
    assert "no value of an event" in told


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("type", types.DoubleType()),
        ("time", types.LongType()),
        ("priority", types.StringType()),
        ("body", types.StringType()),
        ("position", types.StringType()),
        ("node", types.IntegerType()),
        ("mismatches", types.StringType()),
        ("ttl_s", types.IntegerType()),
    ],
)
def test_a_header_field_is_refused_as_what_it_never_is(name: str, kind: types.DataType) -> None:
    assert refusal(columns((name, kind))).startswith(f"schema: {name}: is ")


def test_a_header_field_may_be_a_wider_column() -> None:
    wide = columns(
        ("time", types.DateType()), ("priority", types.DoubleType()), ("position", types.DecimalType(20, 0))
    )
    assert arrow_schema(wide).names == ["time", "priority", "position"]


def test_all_attributes_come_as_texts_or_with_their_kinds() -> None:
    texts = types.MapType(types.StringType(), types.StringType())
    typed = types.MapType(types.StringType(), VALUES)
    for kind in (texts, typed):
        assert arrow_schema(columns(("attributes", kind))).names == ["attributes"]
    assert "attributes" in refusal(columns(("attributes", types.StringType())))


def test_what_an_event_may_lack_can_not_be_not_null() -> None:
    assert refusal(columns(("value", types.DoubleType()), nullable=False)) == (
        "schema: value: can't be NOT NULL: an event may be without it"
    )
    always = columns(("type", types.StringType()), ("position", types.LongType()), nullable=False)
    assert not arrow_schema(always).field("type").nullable


def test_names_that_spark_can_not_tell_apart_are_refused() -> None:
    twice = columns(("value", types.LongType()), ("Value", types.LongType()))
    assert "same name to Spark as 'value'" in refusal(twice)


@pytest.mark.parametrize("name", ["Type", "TIME", "Position", "Attributes"])
def test_a_column_of_the_source_is_refused_in_another_case(name: str) -> None:
    told = refusal(columns((name, types.StringType())))
    assert told.startswith(f"schema: {name}: differs from '{name.lower()}' by case only; write that")

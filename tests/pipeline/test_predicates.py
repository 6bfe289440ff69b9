"""Spark's conditions as filters: no row that Spark would take may be lost, and where Spark is not asked
again none may be taken too many."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipeline.frames import answers, drawn
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.connect import functions as connected
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.datasource import Filter as SparkFilter

from tidings import Event, Filter
from tidings.errors import FilterError
from tidings.log.arrow.casts import fit_for
from tidings.pipeline.predicates import neighbours

A = ("a",)
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
JOINED = "STARTS_WITH(s, 'x') AND NOT ENDS_WITH(s, 'y')"
BERLIN = datetime(2026, 11, 15, 13, tzinfo=timezone(timedelta(hours=1)))


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (EqualTo(("type",), "air.pm10"), "type = 'air.pm10'"),
        (EqualTo(A, "it's"), "a = 'it''s'"),
        (EqualTo(A, "' OR TRUE OR '"), "a = ''' OR TRUE OR '''"),
        (Not(EqualTo(A, "x")), "a <> 'x'"),
        (EqualNullSafe(A, "x"), "a = 'x'"),
        (LessThan(A, "x"), "a < 'x'"),
        (Not(LessThan(A, "x")), "a >= 'x'"),
        (EqualTo(A, True), "a = TRUE"),
        (GreaterThan(("time",), NOON), "time > TIMESTAMP '2026-11-15T12:00:00+00:00'"),
        (GreaterThan(("time",), BERLIN), "time > TIMESTAMP '2026-11-15T12:00:00+00:00'"),
        (EqualTo(A, bytearray(b"ab")), "a = X'6162'"),
        (In(A, ("x", None, "y")), "a IN ('x', 'y')"),
        (Not(In(A, ("x", "y"))), "a NOT IN ('x', 'y')"),
        (StringStartsWith(A, "x"), "STARTS_WITH(a, 'x')"),
        (Not(StringEndsWith(A, "x")), "NOT ENDS_WITH(a, 'x')"),
        (StringContains(A, "%"), "CONTAINS(a, '%')"),
        (EqualTo(("pos.x",), "n"), "pos.x = 'n'"),
        (EqualTo(("odd name",), "n"), "\"odd name\" = 'n'"),
        (LessThanOrEqual(A, date(2026, 11, 15)), "a < TIMESTAMP '2026-11-16T00:00:00+00:00'"),
    ],
    ids=str,
)
def test_what_means_the_same_is_not_left_to_spark(condition: SparkFilter, text: str) -> None:
    made, left = Filter.from_spark([condition])
    assert (made, made.exact, left) == (Filter(text), True, [])


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (GreaterThan(A, 3), "a > 3"),
        (Not(In(A, (1, 2))), "a NOT IN (1, 2)"),
        (IsNotNull(A), "a IS NOT NULL"),
        (Not(IsNull(A)), "a IS NOT NULL"),
        (LessThan(A, 0.1), "a <= 0.10000000000000002"),
        (GreaterThan(A, 40.0), "a IS NOT NULL"),
        (Not(EqualTo(A, 40.0)), "a IS NOT NULL"),
        (In(A, (1.5, 2.5)), "a IS NOT NULL"),
    ],
    ids=str,
)
def test_what_takes_more_is_left_to_spark_too(condition: SparkFilter, text: str) -> None:
    made, left = Filter.from_spark([condition])
    assert (made, made.exact, left) == (Filter(text), False, [condition])


@pytest.mark.parametrize(
    "condition",
    [
        IsNull(A),
        EqualNullSafe(A, None),
        Not(EqualNullSafe(A, "x")),
        EqualTo(A, float("inf")),
        EqualTo(A, float("nan")),
        EqualTo(A, Decimal("2.5")),
        EqualTo(A, 2**63),
        EqualTo(A, [1, 2]),
        EqualTo(A, "\ud800"),
        GreaterThan(A, False),
        Not(In(A, ("x", None))),
        In(A, ()),
        EqualTo(("pos", "x"), 1),
        EqualTo(("position",), 1),
        EqualTo(("node",), "n"),
        EqualTo(("JMSPriority",), 4),
        GreaterThan(("received",), NOON),
    ],
    ids=ascii,
)
def test_what_no_filter_can_tell_is_left_to_spark(condition: SparkFilter) -> None:
    made, left = Filter.from_spark([condition])
    assert made == Filter()
    assert [each is condition for each in left] == [True]


def test_times_without_a_zone_count_as_utc() -> None:
    naive = datetime(2026, 1, 1)  # noqa: DTZ001 - as Spark gives those of timestamp_ntz
    said = "TIMESTAMP '2026-01-01T00:00:00+00:00'"
    assert str(Filter.from_spark([LessThan(("at",), naive)])[0]) == f"at < {said}"
    assert str(Filter.from_spark([In(("at",), (naive,))])[0]) == f"at = {said}"


def test_conditions_are_joined_and_only_what_is_needed_is_left() -> None:
    conditions = [EqualTo(("type",), "air"), GreaterThan(A, 3), IsNull(("b",))]
    made, left = Filter.from_spark(conditions)
    assert made == Filter("type = 'air' AND a > 3")
    assert left == conditions[1:]
    assert Filter.from_spark([]) == (Filter(), [])


def test_without_nan_a_lower_end_is_told() -> None:
    made, left = Filter.from_spark([GreaterThan(A, 40.0)], nan=False)
    assert made == Filter("a >= :low", low=neighbours(40.0)[0])
    assert len(left) == 1


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**63), 2**63 - 1))
def test_what_is_rounded_to_a_number_lies_between_its_neighbours(real: float, whole: int) -> None:
    for number in (real, whole):
        for short in (False, True):
            if short and abs(number) > 3e38:
                continue
            rounded = float(number)
            rounded = pa.scalar(rounded, pa.float64()).cast(pa.float32()).as_py() if short else rounded
            low, high = neighbours(rounded)
            assert low <= number <= high


# Against Spark

COLUMNS = {
    "n": "bigint",
    "m": "int",
    "v": "double",
    "w": "float",
    "s": "string",
    "t": "timestamp",
    "d": "date",
    "b": "boolean",
    "x": "binary",
}
ARROW = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
}
REALS = [0.0, -0.0, 0.1, 0.25, 3.0, 1e30, 2.0**53, math.nan, math.inf, 0.10000000149011612, 16777216.0]
WHOLES = [0, 1, 3, 2**31 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 16777217]
STRINGS = ["", "a", "ab", "it's", "3", "\U0010ffff"]
TIMES = [NOON, datetime(2026, 11, 15, tzinfo=UTC), datetime(2026, 11, 15, 23, 59, 59, 999999, tzinfo=UTC)]
DATES = [date(2026, 11, 14), date(2026, 11, 15), date(2026, 11, 16)]
BLOBS = [b"", b"a", b"ab"]
VALUES: dict[str, list[Any]] = {
    "bigint": WHOLES,
    "int": [number for number in WHOLES if abs(number) < 2**31],
    "double": REALS,
    "float": [number for number in REALS if pa.scalar(number).cast(pa.float32()).as_py() == number],
    "string": STRINGS,
    "timestamp": TIMES,
    "date": DATES,
    "boolean": [True, False],
    "binary": BLOBS,
}
ANY_VALUE = st.sampled_from([*REALS, *WHOLES, *STRINGS, *TIMES, *BLOBS, True, False])
COMPARING = [EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]


@st.composite
def conditions(draw: st.DrawFn) -> SparkFilter:
    name = draw(st.sampled_from(list(COLUMNS)))
    values = st.sampled_from(VALUES[COLUMNS[name]])
    simple = [
        st.builds(draw(st.sampled_from(COMPARING)), st.just((name,)), values),
        st.builds(In, st.just((name,)), st.lists(values, min_size=1, max_size=3).map(tuple)),
        st.sampled_from([IsNull((name,)), IsNotNull((name,))]),
    ]
    if name == "s":
        functions = st.sampled_from([StringStartsWith, StringEndsWith, StringContains])
        simple.append(st.builds(draw(functions), st.just((name,)), values))
    condition = draw(st.one_of(simple))
    return Not(condition) if draw(st.booleans()) else condition


def as_column(condition: Any) -> Column:
    """What Spark itself makes of the condition."""
    if isinstance(condition, Not):
        return ~as_column(condition.child)
    (name,) = condition.attribute
    column, kind = sf.col(name), COLUMNS[name]
    if isinstance(condition, IsNull | IsNotNull):
        return column.isNull() if isinstance(condition, IsNull) else column.isNotNull()
    if isinstance(condition, In):
        return column.isin(*(constant(value, kind) for value in condition.value))
    method = {
        EqualTo: "__eq__",
        EqualNullSafe: "eqNullSafe",
        GreaterThan: "__gt__",
        GreaterThanOrEqual: "__ge__",
        LessThan: "__lt__",
        LessThanOrEqual: "__le__",
        StringStartsWith: "startswith",
        StringEndsWith: "endswith",
        StringContains: "contains",
    }[type(condition)]
    answer: Column = getattr(column, method)(constant(condition.value, kind))
    return answer


def constant(value: Any, kind: str) -> Column:
    if isinstance(value, datetime):
        return sf.timestamp_micros(sf.lit(int(value.timestamp()) * 1_000_000 + value.microsecond))
    return sf.lit(value).cast(kind)


def test_no_row_that_spark_takes_is_lost_and_what_is_exact_takes_none_more(spark: SparkSession) -> None:
    told = drawn(conditions(), 150)
    attributes = st.dictionaries(st.sampled_from(list(COLUMNS)), ANY_VALUE)
    events = [Event("t", held) for held in drawn(attributes, 200)]
    columns = {}
    for name, kind in COLUMNS.items():
        fit = fit_for(name, ARROW[kind])
        cells, _ = fit.fit([event.values.get(name) for event in events])
        as_floats = [None if cell is None else float(cell) for cell in cells] if float in fit.kinds else cells
        columns[name] = fit.array(as_floats)
    said = answers(spark.createDataFrame(pa.table(columns)), [as_column(condition) for condition in told])
    for number, condition in enumerate(told):
        made, left = Filter.from_spark([condition])
        for event, row in zip(events, said, strict=True):
            if row[number]:
                assert made.matches(event), (condition, event)
            elif not left:
                assert not made.matches(event), (condition, event)


class Pushed(DataSource):
    """A source that writes down what is pushed to it; its one row meets the test's conditions."""

    def schema(self) -> str:
        return "type string, value double, n int, s string, time timestamp, d date, b boolean"

    def reader(self, schema: object) -> DataSourceReader:
        return PushedReader(self.options["told"])


class PushedReader(DataSourceReader):
    """Takes all conditions that a filter tells exactly."""

    def __init__(self, told: str) -> None:
        self.told = told

    def pushFilters(self, filters: list[SparkFilter]) -> Iterator[SparkFilter]:  # noqa: N802 - Spark's name
        made, left = Filter.from_spark(filters)
        Path(self.told).write_text(str(made))
        yield from left

    def read(self, partition: object) -> Iterator[tuple[Any, ...]]:
        yield "air", 41.5, 3, "it's", NOON, NOON.date(), True


def test_what_spark_really_pushes_becomes_a_filter(spark: SparkSession, tmp_path: Path) -> None:
    told = tmp_path / "told"
    spark.dataSource.register(Pushed)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = spark.read.format("Pushed").option("told", str(told)).load()
        parts = [
            sf.col("type") == "air",
            sf.col("value") < 42.25,
            sf.col("n").isin(3, 4),
            sf.col("s") == "it's",
            sf.col("time") >= sf.timestamp_seconds(sf.lit(int(NOON.timestamp()))),
            sf.col("d") == sf.lit(NOON.date()),
            sf.col("b"),
        ]
        rows = frame.where(reduce(and_, parts)).collect()
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    assert [row["s"] for row in rows] == ["it's"]
    made = Filter(told.read_text())
    day = "d >= DATE '2026-11-15' AND d < DATE '2026-11-16'"
    time = f"time >= TIMESTAMP '{NOON.isoformat()}'"
    for text in ("type = 'air'", "value < 42.26", "n IN (3, 4)", "s = 'it''s'", time, day, "b = TRUE"):
        assert Filter(text).covers(made), (text, made)


# One Column


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda f: f.col("a") > 3, "a > 3"),
        (lambda f: ~(f.col("a") > 3), "a <= 3"),
        (
            lambda f: (f.col("a") <= 2.5) & (f.col("s") == "it's") | f.col("b"),
            "a <= 2.5 AND s = 'it''s' OR b",
        ),
        (lambda f: f.col("a").isin(1, 2), "a IN (1, 2)"),
        (lambda f: f.col("a").isNull() | f.col("b").isNotNull(), "a IS NULL OR b IS NOT NULL"),
        (lambda f: f.col("a").between(1, 2), "a >= 1 AND a <= 2"),
        (lambda f: f.col("s").like("a%"), "s LIKE 'a%'"),
        (lambda f: f.col("s").like("a\\%"), "s LIKE 'a\\%' ESCAPE '\\'"),
        (lambda f: f.col("s").startswith("x") & ~f.col("s").endswith("y"), JOINED),
        (lambda f: f.col("s").contains("x"), "CONTAINS(s, 'x')"),
        (lambda f: f.col("t") > NOON, "t > TIMESTAMP '2026-11-15T12:00:00Z'"),
        (lambda f: f.col("pos.x") * 2 + 1 > f.col("`odd name`"), 'pos.x * 2 + 1 > "odd name"'),
        (lambda f: -f.col("a") != 1, "-a <> 1"),
        (lambda f: f.col("x") == f.lit(b"ab"), "x = X'6162'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_column_is_read_as_a_filter(spark: SparkSession, make: Any, text: str) -> None:
    for functions in (sf, connected):
        assert Filter.from_spark(make(functions)) == (Filter(text), [])


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda f: f.lower("s") == "x", "lower"),
        (lambda f: f.col("s").rlike("x"), "rlike"),
        (lambda f: f.col("a").cast("int") > 3, "Cast"),
        (lambda f: f.col("a") == f.lit(None), "NoneType"),
        (lambda f: f.lit(3), "no condition"),
    ],
    ids=["lower", "rlike", "cast", "null", "constant"],
)
def test_what_no_filter_has_is_named(spark: SparkSession, make: Any, named: str) -> None:
    for functions in (sf, connected):
        with pytest.raises(FilterError, match=named):
            Filter.from_spark(make(functions))


def test_anything_else_is_refused() -> None:
    with pytest.raises(FilterError, match="come as a list"):
        Filter.from_spark("a > 3")

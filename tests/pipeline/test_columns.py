"""Filters as Spark Columns: Spark must say of every row what the filter says of the event."""

from __future__ import annotations

import re
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from filters import conditions
from filters.test_document import ROWS, event
from hypothesis import strategies as st
from pipeline.frames import answers, differences, drawn, fitted, in_columns, mapped
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from tidings import Event, Filter
from tidings.errors import FilterError, MissingExtra
from tidings.filters.functions import FUNCTIONS
from tidings.filters.text import write_literal

DOCUMENT = Path(__file__).parents[2] / "docs" / "filters.md"
SECTION = DOCUMENT.read_text().partition("## In Spark")[2].partition("\n## ")[0]
TRANSLATED = re.findall(r"^\| `(.+)` \| `(.+)` \| (Spark|Python) \|$", SECTION, re.MULTILINE)
COLUMNS = [
    {"a": "double", "b": "bigint", "c": "string", "odd-name": "boolean"},
    {"a": "int", "b": "float", "c": "binary", "odd-name": "timestamp"},
    {"a": "string", "b": "double", "c": "double", "odd-name": "bigint"},
]
SQUARE = "POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0))"
TRIANGLE = "POLYGON ((0 0, 4 0, 4 4, 0 0))"


def test_over_the_map_of_attributes_spark_says_the_same(spark: SparkSession) -> None:
    filters, events = drawn(conditions.filters, 25), drawn(conditions.events, 150)
    frame = mapped(spark, events)
    said = answers(frame, [filter.to_spark(frame, attributes="attributes") for filter in filters])
    assert differences(filters, events, said) == []


@pytest.mark.parametrize("columns", COLUMNS, ids=lambda columns: "-".join(columns.values()))
def test_over_typed_columns_spark_says_the_same(spark: SparkSession, columns: dict[str, str]) -> None:
    filters = drawn(conditions.filters, 30)
    events = [fitted(drawn_event, columns) for drawn_event in drawn(conditions.events, 150)]
    frame = in_columns(spark, events, columns)
    said = answers(frame, [filter.to_spark(frame) for filter in filters])
    assert differences(filters, events, said) == []


def test_over_columns_of_unknown_type_spark_says_the_same(spark: SparkSession) -> None:
    filters = drawn(conditions.filters, 12)
    conditions_on_names = [filter.to_spark() for filter in filters]
    for columns in COLUMNS:
        events = [fitted(drawn_event, columns) for drawn_event in drawn(conditions.events, 50)]
        said = answers(in_columns(spark, events, columns), conditions_on_names)
        assert differences(filters, events, said) == []


numbers = st.sampled_from(
    ["n", "m", "v", "w", "0", "1", "-3", "0.5", "9007199254740993", "9223372036854775807"]
)
sums = st.recursive(
    numbers,
    lambda parts: st.one_of(
        st.builds("({} {} {})".format, parts, st.sampled_from("+-*/"), parts),
        parts.map("(- {})".format),
    ),
    max_leaves=4,
)
comparisons = st.builds(
    "({} {} {}) {} {}".format,
    st.sampled_from("nmvw"),
    st.sampled_from("+-*/"),
    sums,
    st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
    sums,
)


def test_calculations_give_the_same_and_never_fail(spark: SparkSession) -> None:
    filters = drawn(comparisons.map(Filter), 60)
    wholes = [0, 1, -1, 3, 2**31, 2**53, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)]
    reals = [0.0, -0.0, 0.1, 2.5, -3.0, 1e300, 9007199254740992.0, 2.0**63, float("nan"), float("inf")]
    columns = {"n": "bigint", "m": "int", "v": "double", "w": "double"}
    held = st.fixed_dictionaries(
        {
            "n": st.sampled_from(wholes),
            "m": st.sampled_from([0, 1, -7, 2**31 - 1, -(2**31)]),
            "v": st.sampled_from(reals),
            "w": st.sampled_from(reals),
        }
    )
    events = [Event("t", values) for values in drawn(held, 100)]
    frame = in_columns(spark, events, columns)
    said = answers(frame, [filter.to_spark(frame) for filter in filters])
    assert differences(filters, events, said) == []


subjects = st.text(st.sampled_from("ab.$/%_\\\n😀"), max_size=7)
levels = st.sampled_from(["a", "b", "a$", "😀", "\\"])
like_levels = st.sampled_from(["a", "b", "a%", "_", "%b", "😀", "\\"])
patterns = st.one_of(
    st.lists(st.one_of(levels, st.just("*")), min_size=1, max_size=3).map(".".join).map("TOPIC {}".format),
    st.lists(st.one_of(levels, st.just("*")), max_size=2).map(lambda p: "TOPIC " + ".".join([*p, ">"])),
    st.lists(st.one_of(levels, st.just("+")), min_size=2, max_size=3).map("/".join).map("TOPIC {}".format),
    st.lists(st.one_of(levels, st.just("+")), max_size=2).map(lambda p: "TOPIC " + "/".join([*p, "#"])),
    st.lists(like_levels, min_size=1, max_size=3).map(".".join).map("UNDER {}".format),
    st.lists(levels, min_size=1, max_size=3).map(".".join).map("IS_A {}".format),
    st.lists(st.sampled_from(["a", "%", "_", "\\", "😀", "\n", "."]), max_size=5)
    .map("".join)
    .map("LIKE {}".format),
    subjects.map("STARTS_WITH {}".format),
    subjects.map("ENDS_WITH {}".format),
    subjects.map("CONTAINS {}".format),
    st.sampled_from(["MATCHES ^a", "MATCHES ^a\\.b$", "MATCHES a+$", "MATCHES ^[ab]|b", "MATCHES ."]),
)


def text_filter(told: str) -> Filter:
    function, _, pattern = told.partition(" ")
    if function == "LIKE":
        return Filter("s LIKE :p", p=pattern)
    return Filter(f"{function}(s, {write_literal(pattern)})")


def test_patterns_take_the_same_strings(spark: SparkSession) -> None:
    filters = [text_filter(told) for told in drawn(patterns, 100)]
    filters += [
        Filter("s LIKE 'a!%%' ESCAPE '!'"),
        Filter("UNDER(s, 'a!%.b', '!')"),
        Filter("s LIKE '\\%' ESCAPE '\\'"),
    ]
    events = [Event("t", {"s": subject}) for subject in drawn(subjects, 150)]
    frame = in_columns(spark, events, {"s": "string"})
    said = answers(frame, [filter.to_spark(frame) for filter in filters])
    assert differences(filters, events, said) == []


def test_places_are_told_alike(spark: SparkSession) -> None:
    texts = [f"WITHIN(x, y, '{SQUARE}')", f"WITHIN(x, y, '{TRIANGLE}')", f"NOT WITHIN(x, n, '{SQUARE}')"]
    texts += ["DISTANCE(x, y, 1, 2) <= 2.5", "DISTANCE(x, y, 57.149, -2.094, 'm') > 5600000"]
    texts += [f"WITHIN(area, '{TRIANGLE}')"]
    filters = [Filter(text) for text in texts]
    coordinates = st.sampled_from([0.0, -0.0, 1.5, 4.0, 4.0000001, -1.0, 91.0, float("nan"), float("inf")])
    areas = st.sampled_from(["POINT (1 1)", "LINESTRING (1 1, 9 9)", "rubbish", ""])
    places = st.fixed_dictionaries(
        {}, optional={"x": coordinates, "y": coordinates, "n": st.integers(-1, 5), "area": areas}
    )
    events = [Event("t", place) for place in drawn(places, 120)]
    frame = in_columns(spark, events, {"x": "double", "y": "double", "n": "bigint", "area": "string"})
    said = answers(frame, [filter.to_spark(frame) for filter in filters])
    assert differences(filters, events, said) == []


def test_every_example_of_the_document_means_the_same_in_spark(spark: SparkSession) -> None:
    filters = [Filter(text) for text, _, _ in ROWS]
    events = [event(members) for _, taken, refused in ROWS for members in (taken, refused)]
    frame = mapped(spark, events)
    said = answers(frame, [filter.to_spark(frame, attributes="attributes") for filter in filters])
    assert differences(filters, events, said) == []


def test_times_of_every_type_are_moments_in_utc_whatever_the_session_says(spark: SparkSession) -> None:
    texts = ["d >= DATE '2026-07-01'", "d < DATE '2026-07-01'", "l = TIMESTAMP '2026-07-01T02:30:00Z'"]
    texts += ["t = TIMESTAMP '2026-07-01T02:30:00Z'", "JMSTimestamp = 1782873000000", "l = t", "d < l"]
    moment = datetime(2026, 7, 1, 2, 30, tzinfo=UTC)
    zone = "spark.sql.session.timeZone"
    before = spark.conf.get(zone)
    spark.conf.set(zone, "Europe/Berlin")
    try:
        frame = spark.range(1).select(
            sf.lit(date(2026, 7, 1)).alias("d"),
            sf.lit("2026-07-01 02:30:00").cast("timestamp_ntz").alias("l"),
            sf.timestamp_seconds(sf.lit(int(moment.timestamp()))).alias("t"),
            sf.timestamp_seconds(sf.lit(int(moment.timestamp()))).alias("time"),
        )
        known = answers(frame, [Filter(text).to_spark(frame) for text in texts])
        unknown = answers(frame, [Filter(text).to_spark() for text in texts])
    finally:
        spark.conf.set(zone, str(before))
    assert known == unknown == [(True, False, True, True, True, True, True)]


def test_types_that_no_event_has_are_numbers_or_only_there(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(Decimal("2.50"), [1])], "p decimal(10,2), l array<int>")
    texts = ["p = 2.5", "p > 2", "p = '2.50'", "l IS NOT NULL", "l = 1", "nowhere IS NULL", "nowhere > 1"]
    said = answers(frame, [Filter(text).to_spark(frame) for text in texts])
    assert said == [(True, True, None, True, None, True, None)]


def test_names_are_found_as_they_are_written(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 2, (3,), 4)], "`a.b` int, `it``s` int, pos struct<x:int>, v int")
    texts = ["a.b = 1", '"it`s" = 2', "pos.x = 3", "v = 4", "V = 4", "pos.y = 3"]
    said = answers(frame, [Filter(text).to_spark(frame) for text in texts])
    assert said == [(True, True, True, True, None, None)]


def test_an_attribute_is_found_in_its_column_and_else_in_the_map(spark: SparkSession) -> None:
    events = [Event("t", {"v": 2.5}), Event("t", {"v": "x"}), Event("t", {}), Event("t", {"v": 3, "z": True})]
    frame = mapped(spark, events)
    own = frame.withColumn("v", frame["attributes"]["v"]["f"])
    filters = [Filter(text) for text in ("v > 2", "v = 'x'", "v IS NULL", "v = 3 AND z", "v IN (2.5, 'x')")]
    said = answers(own, [filter.to_spark(own, attributes="attributes") for filter in filters])
    assert differences(filters, events, said) == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("MATCHES(s, 'a+')", "MATCHES"),
        ("DISTANCE(x, y, 0, 0) < 3", "DISTANCE"),
        (f"WITHIN(x, y, '{TRIANGLE}')", "WITHIN"),
        (f"WITHIN(s, '{SQUARE}')", "WITHIN"),
        ("n / m > 2", "division"),
        ("n * 2 * 2 > 1", "calculation"),
    ],
)
def test_what_spark_has_no_equal_for_is_refused_by_name(spark: SparkSession, text: str, named: str) -> None:
    schema = "s string, x double, y double, n bigint, m bigint"
    with pytest.raises(FilterError, match=f"Spark has no equal for .*{named}.*option where"):
        Filter(text).to_spark(schema, python=False)


def test_a_header_field_that_is_no_column_is_missed(spark: SparkSession) -> None:
    with pytest.raises(FilterError, match="no column priority"):
        Filter("priority > 3").to_spark({"value": "double"})


def test_attributes_that_became_texts_are_refused(spark: SparkSession) -> None:
    with pytest.raises(FilterError, match="lost their kinds"):
        Filter("value > 3").to_spark("attributes map<string,string>", attributes="attributes")


def test_without_pyspark_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tidings.pipeline.columns", raising=False)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(MissingExtra, match=r"tidings\[spark\]"):
        Filter("a > 1").to_spark()


def test_a_plain_comparison_reaches_the_files(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "events")
    spark.range(3).selectExpr("'air.pm10' AS type", "id * 20.0D AS value", "id AS n").write.parquet(path)
    frame = spark.read.parquet(path)
    chosen = frame.where(
        Filter("IS_A(type, 'air') AND value > 10 AND value < 30 AND n >= 0.5").to_spark(frame)
    )
    chosen.explain("formatted")
    pushed = re.search(r"PushedFilters: \[(.*)\]", capsys.readouterr().out)
    assert pushed is not None
    for part in ("GreaterThan(value,10.0)", "LessThan(value,30.0)", "GreaterThanOrEqual(n,1)"):
        assert part in pushed[1]
    assert [row["n"] for row in chosen.collect()] == [1]


def test_a_calculation_that_spark_would_put_in_another_order_does_not_overflow(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(2**62, 2**62)], "n bigint, m bigint")
    assert answers(frame, [Filter("n * 0 * m = 0").to_spark(frame)]) == [(True,)]


# The document


@pytest.mark.parametrize(("text", "columns", "by"), TRANSLATED)
def test_each_row_of_the_table_is_tested_where_it_says(
    spark: SparkSession, text: str, columns: str, by: str
) -> None:
    try:
        Filter(text).to_spark(columns, python=False)
    except FilterError:
        assert by == "Python"
    else:
        assert by == "Spark"


def test_the_table_has_every_function() -> None:
    words = set(re.findall("[A-Z_]+", " ".join(text for text, _, _ in TRANSLATED)))
    assert words >= FUNCTIONS.keys()


def test_the_examples_print_what_the_document_shows(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"spark": spark, "Filter": Filter, "col": sf.col}
    blocks = re.findall(r"^```pyspark\n(.*?)^```\n```\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
    assert len(blocks) == SECTION.count("```pyspark")
    for code, output in blocks:
        exec(code, names)
        assert capsys.readouterr().out == output

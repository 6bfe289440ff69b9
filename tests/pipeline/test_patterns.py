"""Patterns in Spark: over history and in a stream the matches are those of the reference."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from effort import IS_SOAK, SEED, often
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import msgpack
from patterns.reference import Given, Said
from patterns.samples import S, event_of, events, expected, patterns
from pipeline.frames import drawn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.tws_tester import TwsTester

from tidings import Pattern
from tidings.errors import UserError
from tidings.event.values import EPOCH, us_from_time
from tidings.pipeline.patterns import matches
from tidings.pipeline.patterns.frames import finder
from tidings.pipeline.patterns.lifting import RowShape
from tidings.pipeline.patterns.stream import PatternProcessor
from tidings.pipeline.running import STATE_STORE

COLUMNS = "time timestamp, node string, position bigint, type string, k string, n bigint"
BEGIN_S = 1_000
"""Spark has no watermark before 1970, so tests begin later."""


def moved(given: Iterable[Given]) -> list[Given]:
    return [one._replace(time=one.time + BEGIN_S * S) for one in given]


def shape_of(pattern: Pattern) -> RowShape:
    return RowShape(str(pattern), ("string",), tuple("bigint" for _ in pattern.columns))


def steps_of(pattern: Pattern, given: list[Given]) -> list[Given]:
    """The events that are some step: the others do not move the watermark."""
    return [one for one in given if pattern.mask(one.event)]


def said(row: Any) -> Said:
    """What a row of results says, from Spark or from a task."""
    places = tuple((one["step"], _us(one), one["node"], one["position"]) for one in row["events"])
    end = row["end"] if isinstance(row["end"], int) else us_from_time(row["end"].astimezone(UTC))
    return Said((row["k0"],), places, end, row["kind"] == "timeout")


def _us(event: Any) -> int:
    return event["time_us"] if "time_us" in event else us_from_time(event["time"].astimezone(UTC))


# Without Spark


@settings(max_examples=often(50), deadline=None)
@given(patterns(), events(), st.integers(1, 5))
def test_a_task_finds_in_sorted_rows_what_the_reference_finds(
    pattern: Pattern, given: list[Given], size: int
) -> None:
    """A task gets the rows of many keys in batches of any size."""
    shape, steps = shape_of(pattern), steps_of(pattern, given)
    until_us = max((one.time for one in steps), default=0)
    rows = [_lifted(pattern, one) | {"until_us": until_us} for one in steps]
    rows.sort(key=lambda row: (row["k0"], row["time_us"], row["node"], row["position"]))
    cut = [pa.RecordBatch.from_pylist(rows[at : at + size]) for at in range(0, len(rows), size)]
    found = [row for batch in finder(shape)(iter(cut)) for row in batch.to_pylist()]
    assert sorted(map(said, found)) == sorted(expected(pattern, given, until_us))


def _lifted(pattern: Pattern, one: Given) -> dict[str, Any]:
    values = {f"v{n}": value for n, value in enumerate(pattern.values(one.event))}
    place = {"time_us": one.time, "node": one.node, "position": one.number}
    return {"k0": one.key[0], **place, "mask": pattern.mask(one.event), **values}


@settings(max_examples=often(50), deadline=None)
@given(patterns(), events(), st.lists(st.integers(0, 26), min_size=1, max_size=5, unique=True))
def test_the_processor_of_a_stream_finds_what_the_reference_finds(
    pattern: Pattern, given: list[Given], times: list[int]
) -> None:
    """Rows come in batches before the watermark reaches them."""
    tester = TwsTester(
        PatternProcessor(shape_of(pattern)),
        timeMode="EventTime",
        eventTimeExtractor=_time_ms,
    )
    found, left = list[dict[str, Any]](), moved(steps_of(pattern, given))
    for until_s in sorted(times):
        until_us = (BEGIN_S + until_s) * S
        for key in ("p", "q"):
            now = [one for one in left if one.time <= until_us and one.key == (key,)]
            if now:
                found += _records(tester.testInPandas(msgpack.encode((key,)), _packed(pattern, now)))
        left = [one for one in left if one.time > until_us]
        found += _records(tester.setWatermark(until_us // 1000))
    assert sorted(map(said, found)) == sorted(expected(pattern, moved(given), (BEGIN_S + max(times)) * S))


def _time_ms(row: Any) -> int:
    return int(row["time_us"]) // 1000


def _records(frame: Any) -> list[dict[str, Any]]:
    return list(frame.to_dict("records")) if len(frame) else []


def _packed(pattern: Pattern, given: list[Given]) -> pd.DataFrame:
    rows = [_lifted(pattern, one) for one in given]
    packed = [msgpack.encode([row[f"v{n}"] for n in range(len(pattern.columns))]) for row in rows]
    frame = pd.DataFrame(rows)[["time_us", "node", "position", "mask"]]
    return frame.assign(packed=packed)


# With Spark


def frame_of(spark: SparkSession, given: list[Given]) -> DataFrame:
    rows = [
        (
            EPOCH + timedelta(microseconds=one.time),
            one.node,
            one.number,
            one.event.type,
            one.key[0],
            one.event["n"],
        )
        for one in given
    ]
    return spark.createDataFrame(rows, COLUMNS)


def results(frame: DataFrame) -> list[Said]:
    return [said(row.asDict(recursive=True)) for row in frame.withColumnRenamed("k", "k0").collect()]


def test_spark_finds_in_history_what_the_reference_finds(spark: SparkSession) -> None:
    made = drawn(st.tuples(patterns(), events(20).map(moved)), 30 if IS_SOAK else 5)
    frames = []
    for number, (pattern, happened) in enumerate(made):
        found = matches(pattern, frame_of(spark, happened)).select("k", "kind", "start", "end", "events")
        frames.append(found.withColumn("case", sf.lit(number)))
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionAll(frame)
    rows = whole.withColumnRenamed("k", "k0").collect()
    for number, (pattern, happened) in enumerate(made):
        until_us = max((one.time for one in steps_of(pattern, happened)), default=0)
        said_of = [said(row.asDict(recursive=True)) for row in rows if row["case"] == number]
        assert sorted(said_of) == sorted(expected(pattern, happened, until_us)), pattern


@pytest.fixture
def timers(spark: SparkSession) -> Iterable[None]:
    """The state store that timers need."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_STORE)
    yield
    spark.conf.unset("spark.sql.streaming.stateStore.providerClass")


@pytest.mark.usefixtures("timers")
def test_a_stream_finds_what_history_finds_however_it_is_cut(spark: SparkSession, tmp_path: Path) -> None:
    """Two files of events in any order, one that moves the watermark past all deadlines."""
    text = "(a[type = 'A'] THEN NO c[type = 'C'] THEN b[type = 'B' AND n > a.n]) OR (d[type = 'D']{2,3})"
    pattern = Pattern(f"{text} WITHIN 6 s BY k OVERLAPPING TIMEOUTS LATE 12 s RETURN a.n, b.n")
    given = moved(happened(60))
    last = Given((BEGIN_S + 5_000) * S, "x", 9_999, ("z",), event_of("A", 0, n=0, k="z"))
    half = len(given) // 2
    for number, part in enumerate((given[:half], given[half:], [last])):
        frame_of(spark, part).coalesce(1).write.json(str(tmp_path / "in" / str(number)))
        for file in (tmp_path / "in" / str(number)).glob("*.json"):
            (tmp_path / "all").mkdir(exist_ok=True)
            file.rename(tmp_path / "all" / f"{number}.json")
    stream = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).json(str(tmp_path / "all"))
    query = matches(pattern, stream).writeStream.format("memory").queryName("pattern_matches")
    started = (
        query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )
    started.awaitTermination()
    found = results(spark.table("pattern_matches"))
    assert sorted(found) == sorted(expected(pattern, [*given, last], (BEGIN_S + 4_900) * S))
    assert len(found) > 3
    spark.sql("DROP VIEW pattern_matches")


def happened(count: int) -> list[Given]:
    """Events of two keys and nodes, by chance."""
    chance = random.Random(SEED)
    made = []
    for number in range(count):
        time_s, key = chance.randrange(13), chance.choice("pq")
        event = event_of(chance.choice("ABCD"), time_s, n=chance.randrange(5), k=key)
        made.append(Given(time_s * S, chance.choice("xy"), number, (key,), event))
    return made


def test_a_match_has_its_key_times_events_and_values_and_rows_that_were_not_used_the_reason(
    spark: SparkSession,
) -> None:
    at = [datetime(2026, 5, 1, 8, minute, tzinfo=UTC) for minute in range(9)]
    rows = [(at[0], "x", 1, "A", "p", 1), (at[1], "x", 2, "A", None, 2), (at[3], "x", 3, "B", "p", None)]
    pattern = Pattern("a[type = 'A'] THEN b[type = 'B'] WITHIN 5 min BY k RETURN a.n, b.n, a.time")
    match, unused = matches(pattern, spark.createDataFrame(rows, COLUMNS)).orderBy("start").collect()
    assert (match["k"], match["kind"], match["reason"]) == ("p", "match", None)
    assert (match["a_n"], match["b_n"], match["a_time"]) == (1, None, match["start"])
    assert [(one["step"], one["position"]) for one in match["events"]] == [("a", 1), ("b", 3)]
    assert (unused["kind"], unused["reason"], unused["events"][0]["position"]) == ("unused", "no key", 2)


def test_a_frame_without_the_columns_of_the_key_or_with_keys_that_are_none_is_refused(
    spark: SparkSession,
) -> None:
    frame = spark.createDataFrame([], f"{COLUMNS}, f double")
    with pytest.raises(UserError, match="the pattern needs the column 'street'"):
        matches(Pattern("a[type = 'A'] BY street"), frame)
    with pytest.raises(UserError, match="column 'f': a key is a string, an integer, a boolean or a time"):
        matches(Pattern("a[type = 'A'] BY f"), frame)

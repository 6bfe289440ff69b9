"""The steps of the city pipeline in Spark, against plain Python and pandas on the same readings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from effort import often, patience
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")
from pipeline.city_readings import BEGIN, RULES, Reading, frame, moment, recorded

from tidings.pipeline.city.aggregates import aggregates, in_one_cell
from tidings.pipeline.city.alarms import COLUMNS as ALARM_COLUMNS
from tidings.pipeline.city.alarms import levels
from tidings.pipeline.city.graph import ALARMS, READINGS, city_graph
from tidings.pipeline.city.readings import COLUMNS, clean, heard, limit, raw, rejected
from tidings.pipeline.city.rules import CityRules, TypeLimits, parse_rules
from tidings.pipeline.city.silence import silent
from tidings.pipeline.known import plan_of
from tidings.pipeline.running import STATE_STORE, counting, read_progress
from tidings.sensors.recording import make_recording

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FEW = settings(
    max_examples=often(5),
    phases=[Phase.explicit, Phase.generate],
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
"""Each example is several jobs of Spark, so there are few, with many readings, and none is made smaller."""
PATIENCE_S = int(patience(300))
"""After this a stream that does nothing is taken to do nothing for ever."""
STORE = "spark.sql.streaming.stateStore.providerClass"


@pytest.fixture
def store(spark: SparkSession) -> Iterator[None]:
    """State as streams with timers need it."""
    before = spark.conf.get(STORE)
    spark.conf.set(STORE, STATE_STORE)
    yield
    spark.conf.set(STORE, before or "")


def ids(df: DataFrame) -> list[str]:
    return sorted(row["id"] for row in df.select("id").collect())


def reasons(df: DataFrame, rules: CityRules = RULES) -> Counter[str]:
    readings = raw(df)
    rows = rejected(readings, clean(readings, rules), rules).collect()
    return Counter(row["reason"] for row in rows)


def alarms_of(df: DataFrame, rules: CityRules, by_clock: bool = False) -> DataFrame:
    """All alarms of readings as the source gives them, a stream or history."""
    return counting(city_graph(rules, by_clock).frames({READINGS: df})[ALARMS], ALARMS)


def seconds(time: datetime) -> float:
    """Seconds after the beginning; Spark's Python gives times of the machine's own zone."""
    return (time.astimezone(UTC) - BEGIN).total_seconds()


# -- what is believed


NESTED = """
[default]
high = 5
silent_s = 60
[air]
high = 100
["air.pm10"]
mean_limit = 50
high = 5
["air.pm10.indoor"]
high = 7
[water]
low = 1
"""


@pytest.mark.parametrize(
    "text",
    [NESTED, NESTED.replace("[air]", "[airs]").replace(".indoor", "0"), ""],
    ids=["nested", "flat", "empty"],
)
def test_limits_in_spark_are_those_of_the_rules(spark: SparkSession, text: str) -> None:
    rules = parse_rules(text)
    types = ["air", "air.pm10", "air.pm10.indoor.x", "air.pm100", "airs.a", "water.level", "other", "a"]
    df = spark.createDataFrame([(type,) for type in types], "type string")
    fields = TypeLimits.__struct_fields__
    rows = df.select("type", *(limit(rules, name).alias(name) for name in fields)).collect()
    assert {row["type"]: TypeLimits(*row[1:]) for row in rows} == {type: rules.limits(type) for type in types}


def test_readings_that_are_not_believed_are_told_with_the_reason(spark: SparkSession) -> None:
    df = frame(
        spark,
        [
            Reading(0),
            Reading(1, value=None),
            Reading(2, value=math.nan),
            Reading(3, value=math.inf, type="other"),
            Reading(4, value=-0.1),
            Reading(5, value=1000.5),
            Reading(6, value=1000.5, type="air.pm10.indoor"),
            Reading(7, value=1e300, type="air.pm100"),
            Reading(500, came=439.9),
            Reading(500, came=440),
            Reading(None, came=9),
            Reading(10, type=None),
            Reading(0, id="id-1"),
        ],
    )
    assert reasons(df) == {
        "no number": 3,
        "out of range": 3,
        "in the future": 1,
        "incomplete": 2,
        "duplicate": 1,
    }
    assert ids(clean(raw(df), RULES)) == ["id-1", "id-10", "id-8"]


def test_what_the_pipeline_publishes_is_no_reading(spark: SparkSession) -> None:
    df = frame(spark, [Reading(0, type="alarm.mean"), Reading(0, type="alarm"), Reading(0, type="alarming")])
    assert ids(raw(df)) == ["id-3"]


def test_a_reading_without_a_network_belongs_to_its_source(spark: SparkSession) -> None:
    df = raw(frame(spark, [Reading(0, network=None, source="ann"), Reading(0, source="ann")]))
    assert df.columns == list(COLUMNS)
    assert sorted(row["network"] for row in df.collect()) == ["ann", "north"]


numbers = st.sampled_from([None, math.nan, -1.0, 0.0, 1000.0, 1000.1]) | st.floats(0, 300).map(
    lambda x: round(x, 2)
)
places = st.sampled_from([None, math.nan, math.inf, 1e300, -0.0]) | st.floats(-500, 500)
readings = st.builds(
    Reading,
    at=st.integers(0, 3000).map(float),
    value=numbers,
    type=st.sampled_from(["air.pm10", "air.pm10.indoor", "door"]),
    network=st.just("north"),
    sensor=st.sampled_from(["a", "b", None]),
    posx=places,
    posy=places,
    id=st.none() | st.integers(1, 50).map(lambda number: f"id-{number}"),
    came=st.none(),
    source=st.none(),
)


def believed(given_: Sequence[Reading]) -> dict[str, Reading]:
    """The clean readings by id, as plain Python sees it."""
    result: dict[str, Reading] = {}
    for number, one in sorted(enumerate(given_, 1), key=lambda pair: (pair[1].at, pair[0])):
        low, high = (0, 1000) if (one.type or "").startswith("air") else (-math.inf, math.inf)
        if one.value is not None and low <= one.value <= high:
            result.setdefault(one.id or f"id-{number}", one)
    return result


def summed(given_: Sequence[Reading], size: float = 100.0) -> dict[tuple[Any, ...], tuple[float, ...]]:
    """Aggregates by window, type and cell, as pandas sees it."""
    rows = []
    for one in given_:
        place = (one.posx, one.posy)
        is_placed = all(value is not None and abs(value / size) < 2.0**53 for value in place)
        cell = tuple(math.floor(value / size) for value in place) if is_placed else (None, None)
        rows.append((one.at // 300 * 300, one.type, *cell, one.value))
    table = pd.DataFrame(rows, columns=["start", "type", "x", "y", "value"]).astype(
        {"x": object, "y": object}
    )
    groups = table.groupby(["start", "type", "x", "y"], dropna=False)["value"]
    found = groups.agg(["count", "min", "max", "mean", "std"])
    return {
        tuple(None if pd.isna(part) else part for part in key): tuple(row)
        for key, row in zip(found.index, found.to_numpy(), strict=True)
    }


def collected(df: DataFrame) -> dict[tuple[Any, ...], tuple[float, ...]]:
    """The same of Spark's aggregates."""
    result = {}
    for row in df.collect():
        assert row["end"] - row["start"] == timedelta(seconds=300)
        numbers = (row["count"], row["min"], row["max"], row["mean"], row["stddev"])
        result[(seconds(row["start"]), row["type"], row["cell_x"], row["cell_y"])] = numbers
    return result


def assert_same(found: dict[Any, tuple[Any, ...]], expected: dict[Any, tuple[float, ...]]) -> None:
    assert sorted(found, key=str) == sorted(expected, key=str)
    for key, numbers in expected.items():
        values = [math.nan if value is None else value for value in found[key]]
        assert values == pytest.approx(list(numbers), rel=1e-9, abs=1e-7, nan_ok=True), key


@FEW
@given(st.lists(readings, max_size=80))
def test_clean_readings_and_their_aggregates_are_those_of_plain_python(
    spark: SparkSession, given_: list[Reading]
) -> None:
    source = raw(frame(spark, given_))
    good = clean(source, RULES).cache()
    expected = believed(given_)
    assert ids(good) == sorted(expected)
    assert good.count() + rejected(source, good, RULES).count() == len(given_)
    assert_same(collected(aggregates(good, RULES)), summed(list(expected.values())))
    good.unpersist()


def test_aggregates_of_a_recorded_day_are_those_of_pandas(spark: SparkSession, tmp_path: Path) -> None:
    made = make_recording(tmp_path / "day.csv", seed=5, sensors=23, days=1)
    table = recorded(tmp_path / "day.csv")
    rules = parse_rules("cell_size = 0.05")
    good = clean(raw(spark.createDataFrame(table)), rules)
    table["at"] = (table["time"] - pd.Timestamp(BEGIN)).dt.total_seconds()
    rows = table[["at", "value", "type", "sensing-id", "name", "posx", "posy"]].itertuples(index=False)
    expected = summed([Reading(*row) for row in rows], size=0.05)
    found = collected(aggregates(good, rules))
    assert sum(numbers[0] for numbers in found.values()) == made.readings
    assert_same(found, expected)


# -- silence


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([(10.1, 52.3), (10.2, 52.4)], True),
        ([(10.1, 52.3), (10.2, 52.4), (110.0, 52.4)], False),
        ([(10.1, 52.3), (10.1, 152.3)], False),
        ([(10.1, 52.3), (10.1, 52.3)], None),
        ([(10.1, 52.3), (None, 7.0), (math.nan, 900.0)], None),
        ([], None),
    ],
    ids=["one", "two", "above", "same place", "no place", "none"],
)
def test_readings_that_are_all_in_one_cell_are_told_if_their_places_differ(
    spark: SparkSession, places: list[tuple[float | None, float | None]], expected: bool | None
) -> None:
    given_ = [Reading(1.0, posx=posx, posy=posy) for posx, posy in places]
    assert raw(frame(spark, given_)).agg(in_one_cell(RULES)).collect() == [(expected,)]


def silences(given_: Sequence[Reading], until: float, silent_s: float = 900) -> list[tuple[str, str, float]]:
    """Sensor, type and last reading of each silence, as plain Python sees it."""
    times: dict[tuple[str, str], list[float]] = {}
    for one in given_:
        if one.type != "door":
            times.setdefault((one.sensor or "", one.type), []).append(one.at)
    found = []
    for key, own in times.items():
        own.sort()
        for last, following in zip(own, [*own[1:], math.inf], strict=True):
            if following - last > silent_s and last + silent_s <= until:
                found.append((*key, last))
    return sorted(found)


def found_silences(df: DataFrame) -> list[tuple[str, str, float]]:
    return sorted((row["sensor"], row["type"], seconds(row["last"])) for row in df.collect())


@FEW
@given(st.lists(readings, min_size=1, max_size=40))
def test_silences_in_history_are_those_of_plain_python(spark: SparkSession, given_: list[Reading]) -> None:
    known = heard(raw(frame(spark, given_)), RULES)
    assert found_silences(silent(known, until=moment(2500))) == silences(given_, 2500)
    spoken = [one.at for one in given_ if one.type != "door"]
    assert found_silences(silent(known)) == silences(given_, max(spoken, default=0))


def test_a_sensor_that_sends_rubbish_is_not_silent_but_a_wrong_clock_is_no_sign_of_life(
    spark: SparkSession,
) -> None:
    df = frame(
        spark,
        [
            Reading(0, sensor="rubbish"),
            Reading(800, sensor="rubbish", value=math.nan),
            Reading(0, sensor="clock"),
            Reading(5000, sensor="clock", came=800),
            Reading(1000, sensor="other"),
        ],
    )
    assert found_silences(silent(heard(raw(df), RULES))) == [("clock", "air.pm10", 0.0)]


# -- alarms


def test_windows_above_a_limit_are_alarms_with_all_that_one_needs_to_know(spark: SparkSession) -> None:
    high = [Reading(10, 40), Reading(20, 70), Reading(20, 900, posx=150), Reading(20, 900, type="other")]
    found = levels(aggregates(clean(raw(frame(spark, high)), RULES), RULES), RULES)
    assert dict(found.dtypes) == ALARM_COLUMNS
    rows = {(row["type"], row["cell"]): row for row in found.collect()}
    assert sorted(rows) == [("alarm.max", "1:0"), ("alarm.mean", "0:0"), ("alarm.mean", "1:0")]
    mean = rows["alarm.mean", "0:0"].asDict()
    times = {name: seconds(mean.pop(name)) for name in ("time", "start", "end")}
    assert times == {"time": 300, "start": 0, "end": 300}
    assert {name: value for name, value in mean.items() if value is not None} == {
        "type": "alarm.mean",
        "about": "air.pm10",
        "cell": "0:0",
        "value": 55.0,
        "limit": 50.0,
        "count": 2,
        "posx": 50.0,
        "posy": 50.0,
    }


def test_a_value_at_its_limit_is_no_alarm(spark: SparkSession) -> None:
    df = frame(spark, [Reading(10, 50), Reading(400, 200, posx=150), Reading(420, 0, posx=150)])
    found = levels(aggregates(clean(raw(df), RULES), RULES), RULES).collect()
    assert [(row["type"], row["value"]) for row in found] == [("alarm.mean", 100.0)]


# -- streams


def streamed(spark: SparkSession, folder: Path, parts: Sequence[Sequence[Reading]]) -> DataFrame:
    """A stream with one micro-batch for each part."""
    whole = frame(spark, [one for part in parts for one in part]).toPandas()
    start = 0
    for number, part in enumerate(parts):
        rows = spark.createDataFrame(whole.iloc[start : start + len(part)], frame(spark, []).schema)
        rows.coalesce(1).write.parquet(str(folder / f"in/part={number}"))
        start += len(part)
    source = spark.readStream.schema(frame(spark, []).schema).option("maxFilesPerTrigger", 1)
    return source.option("pathGlobFilter", "*.parquet").parquet(str(folder / "in" / "*"))


def run(df: DataFrame, folder: Path, name: str) -> StreamingQuery:
    """Run a stream to its end."""
    writer = df.writeStream.format("memory").queryName(name).outputMode("append")
    query = writer.option("checkpointLocation", str(folder / "notes")).trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    return query


def told(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(
        tuple(row)
        for row in df.select([df[name].cast("string") for name in df.columns]).na.fill("").collect()
    )


@pytest.mark.slow
@pytest.mark.usefixtures("store")
def test_a_stream_gives_the_alarms_of_its_history_and_counts_what_it_leaves_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    steady = [Reading(float(at), 40 + at / 100, sensor="b") for at in range(0, 4000, 50)]
    late = Reading(100, 900, posx=350)
    parts = [
        [*steady[:20], Reading(900, 300, sensor="a", posx=250), Reading(1000, -5)],
        [*steady[20:50], Reading(960, 45, sensor="a"), steady[3]._replace(id="id-4")],
        [late, *steady[50:]],
    ]
    query = run(alarms_of(streamed(spark, tmp_path, parts), RULES), tmp_path, "city_alarms")
    numbered = enumerate((one for part in parts for one in part), 1)
    in_time = [one._replace(id=one.id or f"id-{number}") for number, one in numbered if one != late]
    history = alarms_of(frame(spark, in_time), RULES)
    expected = told(history.where(history["end"] <= moment(3950 - 60)))
    assert told(spark.table("city_alarms")) == expected
    assert {row[0] for row in expected} == {"alarm.mean", "alarm.max", "alarm.silent"}
    plan = plan_of(city_graph(RULES), "query")
    progress = [read_progress(one, plan) for one in query.recentProgress]
    assert sum(one.rows for one in progress) == sum(map(len, parts))
    assert sum(one.published["alarms"] for one in progress) == len(expected)
    rejects = sum((Counter(one.rejected) for one in progress), Counter[str]())
    assert rejects == {"out of range": 1, "duplicate": 1, "late": 1}
    assert {one.notes["one_cell"] for one in progress if one.rows} == {False, None}


@pytest.mark.slow
@pytest.mark.usefixtures("store")
def test_a_city_that_falls_silent_altogether_is_noticed_by_the_clock(
    spark: SparkSession, tmp_path: Path
) -> None:
    rules = parse_rules("late_s = 60\n[default]\nsilent_s = 1")
    df = streamed(spark, tmp_path, [[Reading(0, sensor="a"), Reading(3, sensor="a"), Reading(1, sensor="b")]])
    writer = alarms_of(df, rules, by_clock=True).writeStream.format("memory").queryName("city_clock")
    query = writer.option("checkpointLocation", str(tmp_path / "notes")).start()
    try:
        for _ in range(PATIENCE_S):
            if query.awaitTermination(1) or spark.table("city_clock").count() >= 2:
                break
        assert query.exception() is None
    finally:
        query.stop()
    rows = spark.table("city_clock").collect()
    assert sorted((row["type"], row["sensor"], seconds(row["start"])) for row in rows) == [
        ("alarm.silent", "a", 3.0),
        ("alarm.silent", "b", 1.0),
    ]

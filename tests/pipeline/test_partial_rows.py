"""Collapse at the nodes: Spark merges their partial rows to what it makes of the events themselves."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pipeline.nodes import Running, running
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own examples call it
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from tidings import Event, blocking
from tidings.client.log import Log
from tidings.errors import ConfigError
from tidings.log.chunks import CollapsedPart, LivePart
from tidings.log.segment_folder import Folder
from tidings.pipeline.source import TidingsSource

COUNT = 400
BEGIN = datetime(2026, 5, 1, 8, tzinfo=UTC)
COLUMNS = {"station": "string", "value": "double", "number": "bigint", "note": "string"}
COLLAPSE = {
    "columns": COLUMNS,
    "by": ["station"],
    "window_s": 60,
    "rules": {
        "n": "count()",
        "some": "count(value)",
        "usable": "numbers(value)",
        "units": "total(value)",
        "sum": "total(number)",
        "low": "lowest(value)",
        "high": "highest(value)",
        "word": "lowest(note)",
        "begin": "first(note)",
        "end": "latest(value)",
    },
}
ROWS = "time timestamp, node string, position long, station string, value double, number long, note string"
KEYS = ("station", "start")


def readings(seed: int) -> list[Event]:
    """Readings of three stations, some without a value or with one that does not fit, in no order of time."""
    chance = random.Random(seed)
    made = []
    for number in range(COUNT):
        values: dict[str, Any] = {"number": chance.randrange(-(2**62), 2**62)}
        if chance.random() < 0.9:
            values["station"] = chance.choice(["port", "hill", "mill"])
        if chance.random() < 0.9:
            values["value"] = chance.choice(
                [chance.uniform(-50, 50), float("nan"), float("inf"), 2.0**40, "broken", 0.1]
            )
        if chance.random() < 0.5:
            values["note"] = chance.choice(["a", "é", f"n{number}"])
        time = BEGIN + timedelta(seconds=chance.randrange(300))
        made.append(Event("air.pm10", values, delivery="persistent", time=time))
    return made


class Places:
    """A node, and the folder of a sealed log with the same events."""

    def __init__(self, node: Running, folder: Path) -> None:
        self.node = node
        self.folder = folder


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    home = tmp_path_factory.mktemp("collapsed")
    with running(home / "node") as node:
        made = readings(1)
        for first in range(0, COUNT, 100):
            node.publish(*made[first : first + 100])
        with blocking.connect(f"tidings://{node.address}") as bus:
            parts = [part for found, _ in bus.log.parts(1) for part in found if isinstance(part, LivePart)]
            name = bus.log.status()["node"]
        Folder(home / "log").write(parts, name, 1, COUNT)
        yield Places(node, home / "log")


def merged(frame: DataFrame) -> dict[Any, Any]:
    """What partial rows give together."""
    rules = [F.sum(name).alias(name) for name in ("n", "some", "usable", "units", "sum")]
    rules += [F.min(name).alias(name) for name in ("low", "word", "begin")]
    rules += [F.max(name).alias(name) for name in ("high", "end")]
    return shown(frame.groupBy(*KEYS).agg(*rules))


def aggregated(frame: DataFrame) -> dict[Any, Any]:
    """The same by Spark's own functions over the events."""
    value = F.col("value")
    is_finite = ~F.isnan(value) & (F.abs(value) < 2.0**63)
    fine = F.rint(value * F.lit(1e9)).cast("bigint").cast("decimal(38,0)")
    coarse = (F.rint(value).cast("bigint").cast("decimal(19,0)") * F.lit(10**9)).cast("decimal(38,0)")
    units = F.when(is_finite & (F.abs(value) < 2.0**33), fine).when(is_finite, coarse)

    def place(name: str) -> Any:
        held = F.struct("time", "node", "position", F.col(name).alias("value"))
        return F.when(F.col(name).isNotNull(), held)

    windows = frame.withColumn("start", F.window("time", "60 seconds").start)
    return shown(
        windows.groupBy(*KEYS).agg(
            F.count("*").alias("n"),
            F.count("value").alias("some"),
            F.count(units).alias("usable"),
            F.sum(units).alias("units"),
            F.sum(F.col("number").cast("decimal(38,0)")).alias("sum"),
            F.min("value").alias("low"),
            F.min("note").alias("word"),
            F.min(place("note")).alias("begin"),
            F.max("value").alias("high"),
            F.max(place("value")).alias("end"),
        )
    )


def shown(frame: DataFrame) -> dict[Any, Any]:
    found = {}
    for row in frame.collect():
        told = row.asDict(recursive=True)
        key = tuple(told.pop(name) for name in KEYS)
        found[key] = {name: str(value) for name, value in sorted(told.items())}  # NaN equals NaN so
    return found


def load(spark: SparkSession, schema: str | None, **options: str) -> DataFrame:
    found = spark.read.format("tidings").options(**options)
    return (found if schema is None else found.schema(schema)).load()


def test_partial_rows_of_nodes_and_of_files_merge_to_what_spark_makes_of_the_events(
    spark: SparkSession, places: Places, tmp_path: Path
) -> None:
    option = json.dumps(COLLAPSE)
    with running(tmp_path / "other") as other:
        other.publish(*readings(2))
        both = f"{places.node.address},{other.address}"
        wanted = aggregated(load(spark, ROWS, node=both))
        assert len(wanted) > 15
        assert merged(load(spark, None, node=both, collapse=option, minPartitions="5")) == wanted
    one = aggregated(load(spark, ROWS, node=places.node.address, where="number > 0"))
    assert merged(load(spark, None, path=str(places.folder), collapse=option, where="number > 0")) == one


def test_a_stream_of_partial_rows_merges_to_the_same(spark: SparkSession, places: Places) -> None:
    stream = spark.readStream.format("tidings").options(
        node=places.node.address,
        collapse=json.dumps(COLLAPSE),
        startingOffsets="earliest",
        maxOffsetsPerTrigger="150",
    )
    query = stream.load().writeStream.format("memory").queryName("partial")
    query.trigger(availableNow=True).start().awaitTermination()
    assert merged(spark.table("partial")) == aggregated(load(spark, ROWS, node=places.node.address))


def rows_of(columns: StructType | None = None, **options: str) -> list[dict[str, Any]]:
    """Partial rows, read without Spark as executors do."""
    source = TidingsSource(CaseInsensitiveDict(options))
    reader = source.reader(source.schema() if columns is None else columns)
    reader, pieces = pickle.loads(pickle.dumps((reader, reader.partitions())))
    return [row for piece in pieces for batch in reader.read(piece) for row in batch.to_pylist()]


def test_a_node_sends_partial_rows_and_the_events_of_an_older_one_are_collapsed_by_the_task(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    simple = json.dumps({"columns": {"station": "string"}, "by": "station", "rules": {"n": "count()"}})
    options = {"node": places.node.address, "collapse": simple}
    sent: list[Any] = []
    call = Log._call

    async def noted(self: Log, operation: str, arguments: dict[str, Any], timeout_s: float | None) -> Any:
        reply = await call(self, operation, arguments, timeout_s)
        sent.extend(reply.get("parts", ()))
        return reply

    async def older(self: Log, operation: str, arguments: dict[str, Any], timeout_s: float | None) -> Any:
        known = {name: value for name, value in arguments.items() if name != "collapse"}
        return await noted(self, operation, known, timeout_s)

    monkeypatch.setattr(Log, "_call", noted)
    here = rows_of(**options)
    assert {part[0] for part in sent} == {CollapsedPart.__struct_config__.tag}
    sent.clear()
    monkeypatch.setattr(Log, "_call", older)
    assert rows_of(**options) == here
    assert {part[0] for part in sent} == {LivePart.__struct_config__.tag}
    assert sum(row["n"] for row in here) == COUNT
    assert len(here) == 4


def test_each_of_several_nodes_sends_its_partial_rows_and_not_its_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []
    call = Log._call

    async def noted(self: Log, operation: str, arguments: dict[str, Any], timeout_s: float | None) -> Any:
        reply = await call(self, operation, arguments, timeout_s)
        sizes.extend(len(part[-1]) for part in reply.get("parts", ()))
        return reply

    monkeypatch.setattr(Log, "_call", noted)
    rules = {"n": "count()", "high": "highest(value)", "sum": "total(value)", "last": "latest(value)"}
    option = json.dumps(
        {"columns": {"station": "string", "value": "double"}, "by": "station", "rules": rules}
    )
    columns = StructType().add("station", "string").add("value", "double")
    with ExitStack() as stack:
        nodes = [stack.enter_context(running(None)) for _ in range(3)]
        for number, node in enumerate(nodes):
            node.publish(*[event for seed in range(5) for event in readings(5 * number + seed)])
        several = ",".join(node.address for node in nodes)
        partial = rows_of(node=several, collapse=option)
        collapsed, sizes[:] = sum(sizes), []
        assert len(rows_of(columns, node=several)) == sum(row["n"] for row in partial) == 3 * 5 * COUNT
    assert {(row["node"], row["station"]) for row in partial} == {
        (node, station)
        for node in {row["node"] for row in partial}
        for station in ("port", "hill", "mill", None)
    }
    assert len(partial) == 3 * 4
    assert collapsed < sum(sizes) / 20


def test_a_task_logs_the_values_that_nodes_have_left_out_of_partial_rows(
    places: Places, caplog: pytest.LogCaptureFixture
) -> None:
    broken = sum(event["value"] == "broken" for event in readings(1) if "value" in event.values)
    assert broken > 10
    for place in ({"node": places.node.address}, {"path": str(places.folder)}):
        caplog.clear()
        rows_of(**place, collapse=json.dumps(COLLAPSE), minPartitions="1")
        (logged,) = caplog.messages
        assert logged.startswith(f"{broken} values did not fit their columns and are null, in positions 1 to")
        assert logged.endswith(f": {broken} × column 'value': str does not fit double")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"collapse": "{}"}, "option 'collapse': is no collapse such as .*columns"),
        ({"collapse": json.dumps({**COLLAPSE, "by": ["x"]})}, "option 'collapse': x: is no column"),
        ({"collapse": json.dumps({**COLLAPSE, "window_s": 0})}, "option 'collapse': .*window_us"),
        ({"collapse": json.dumps({**COLLAPSE, "late": 1})}, "option 'collapse': .*unknown field `late`"),
        ({"collapse": json.dumps(COLLAPSE), "pushdown": "true"}, "'pushdown': can't be had together"),
        ({"collapse": json.dumps(COLLAPSE), "mode": "failfast"}, "'mode': can't be had together"),
    ],
)
def test_a_collapse_that_can_not_be_is_refused_with_the_place(options: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        TidingsSource(CaseInsensitiveDict({"node": "127.0.0.1:1", **options})).schema()


def test_a_schema_that_partial_rows_do_not_have_is_refused(places: Places) -> None:
    other = StructType().add("station", "string")
    with pytest.raises(
        ConfigError, match=r"schema: a query with the option 'collapse' has the columns struct"
    ):
        rows_of(other, node=places.node.address, collapse=json.dumps(COLLAPSE))

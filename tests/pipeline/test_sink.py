"""DataFrames as events: written by Spark to a real node, each row once whatever fails on the way."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow as pa
import pytest
from pipeline.failing import AFTER_COMMIT, ALWAYS, ONCE, FailingSource
from pipeline.nodes import PATIENCE_S, Running, running
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import LongType, MapType, StringType, StructType

from tidings import Event, blocking
from tidings.errors import ConfigError, EventError, TidingsError, UserError
from tidings.pipeline.sink import SinkStreamWriter, SinkWriter, Staged, make_stream_writer, make_writer

COLUMNS = StructType().add("type", "string").add("n", "long")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "node") as node:
        yield node


def events(node: Running) -> list[Event]:
    """All that the log has."""
    with blocking.connect(f"tidings://{node.address}") as bus:
        return [event for _, event in bus.log.read()]


def numbers(node: Running) -> list[Any]:
    return [event["n"] for event in events(node)]


def sink(node: Running, name: str = "s") -> dict[str, Any]:
    """How a sink of the node stands."""
    with blocking.connect(f"tidings://{node.address}") as bus:
        (found,) = (one for one in bus.status()["sinks"] if one["name"] == name)
        assert isinstance(found, dict)
        return found


def options(node: Running, **more: str) -> CaseInsensitiveDict:
    return CaseInsensitiveDict({"node": node.address, "sink": "s", **more})


def writer(node: Running, **more: str) -> SinkWriter:
    """As Spark makes it, and sends it to another process."""
    made: SinkWriter = pickle.loads(pickle.dumps(make_writer(options(node, **more), COLUMNS, False)))
    return made


def stream_writer(node: Running, **more: str) -> SinkStreamWriter:
    made = make_stream_writer(options(node, **more), COLUMNS, False)
    sent: SinkStreamWriter = pickle.loads(pickle.dumps(made))
    return sent


def rows(*numbers: int, kind: str | None = "t") -> Iterator[Any]:
    """The rows of a task."""
    columns = [pa.array([kind] * len(numbers), pa.string()), pa.array(numbers, pa.int64())]
    yield pa.RecordBatch.from_arrays(columns, names=["type", "n"])


# Writers, as Spark uses them


def test_rows_are_published_in_the_order_of_their_partitions_when_they_are_committed(node: Running) -> None:
    made = writer(node)
    second, first = made.write(rows(3, 4)), made.write(rows(1, 2))
    assert events(node) == []
    made.commit([first, second, made.write(iter(()))])
    assert numbers(node) == [1, 2, 3, 4]
    assert {event.delivery for event in events(node)} == {"persistent"}
    assert sink(node)["staged_bytes"] == 0


def test_an_attempt_that_is_not_committed_leaves_nothing(node: Running) -> None:
    made = writer(node)
    made.write(rows(1, 2))
    made.commit([made.write(rows(1, 2))])
    assert (numbers(node), sink(node)["staged_bytes"]) == ([1, 2], 0)


@pytest.mark.parametrize("batch", [False, True])
def test_what_is_aborted_is_never_published(node: Running, batch: bool) -> None:
    if batch:
        made = writer(node)
        made.abort([made.write(rows(1)), None])
    else:
        staged = stream_writer(node).write(rows(1))
        stream_writer(node).abort([None, staged], 0)
    with blocking.connect(f"tidings://{node.address}") as bus:
        assert bus.status()["sinks"] == []
    assert events(node) == []


def test_a_batch_that_is_repeated_by_another_writer_is_published_once(node: Running) -> None:
    for _ in range(2):
        staged = stream_writer(node).write(rows(1, 2))
        stream_writer(node).commit([staged], 7)
    assert numbers(node) == [1, 2]
    assert (sink(node)["batch"], sink(node)["staged_bytes"]) == (7, 0)


def test_writes_of_one_sink_are_told_apart_by_their_jobs(
    node: Running, caplog: pytest.LogCaptureFixture
) -> None:
    for number, job in enumerate(["monday", "tuesday", "monday"]):
        made = writer(node, job=job)
        made.commit([made.write(rows(number))])
    assert (numbers(node), sink(node)["staged_bytes"]) == ([0, 1], 0)
    assert "sink 's' has job 'monday' already: it is not published again" in caplog.text
    for _ in range(2):  # without the option each write is a job of its own
        made = writer(node)
        made.commit([made.write(rows(5))])
    assert numbers(node) == [0, 1, 5, 5]


def test_a_job_that_failed_can_be_written_again(node: Running) -> None:
    made = writer(node, job="monday")
    made.abort([made.write(rows(1))])
    again = writer(node, job="monday")
    again.commit([again.write(rows(1))])
    assert numbers(node) == [1]


def test_a_stream_is_no_job() -> None:
    given = CaseInsensitiveDict({"node": "127.0.0.1:1", "sink": "s", "Job": "monday"})
    with pytest.raises(ConfigError, match=r"option 'job': is for df\.write"):
        make_stream_writer(given, COLUMNS, False)


def test_a_lower_batch_is_an_error_that_says_what_to_do(node: Running) -> None:
    stream_writer(node).commit([], 7)
    with pytest.raises(TidingsError, match=r"sink 's' has batch 7 already.*checkpoint.*another name"):
        stream_writer(node).commit([], 6)


def test_a_task_that_fails_takes_away_what_it_has_staged(node: Running) -> None:
    def broken() -> Iterator[Any]:
        yield from rows(*range(40_000))
        raise RuntimeError("as the test wants it")

    with pytest.raises(RuntimeError):
        writer(node).write(broken())
    with blocking.connect(f"tidings://{node.address}") as bus:
        assert bus.status()["sinks"] == []


def test_what_was_staged_is_there_when_the_node_has_been_started_anew(tmp_path: Path) -> None:
    with running(tmp_path / "node") as before:
        made = writer(before)
        port = int(before.address.rpartition(":")[2])
        staged = made.write(rows(1, 2))
    with running(tmp_path / "node", port) as after:
        made.commit([staged])
        made.commit([staged])
        assert numbers(after) == [1, 2]


def test_a_task_waits_for_a_node_that_is_away_for_a_while(tmp_path: Path) -> None:
    with ExitStack() as first, ExitStack() as second:
        before = first.enter_context(running(tmp_path / "node"))
        made, address = writer(before), before.address

        def cut() -> Iterator[Any]:
            """The node is stopped and started anew while rows come, between two pieces of them."""
            yield from rows(*range(50_000))
            first.close()
            second.enter_context(running(tmp_path / "node", int(address.rpartition(":")[2])))
            yield from rows(*range(50_000, 100_000))

        made.commit([made.write(cut())])
        with blocking.connect(f"tidings://{address}") as bus:
            assert [event["n"] for _, event in bus.log.read()] == list(range(100_000))


def test_a_row_without_a_type_is_an_error_that_names_column_and_row(node: Running) -> None:
    def some() -> Iterator[Any]:
        yield from rows(1, 2)
        yield from rows(3, kind=None)

    with pytest.raises(EventError, match=r"^column 'type', row 2: is null"):
        writer(node).write(some())
    assert isinstance(writer(node, type="other").write(rows(3, kind=None)), Staged)


def test_a_row_that_the_node_refuses_is_named_with_the_node(node: Running) -> None:
    columns = StructType().add("type", "string").add("attributes", MapType(StringType(), LongType()))
    made = make_writer(options(node), columns, False)
    maps = pa.array([{"good": 1}, {"priority": 2}], pa.map_(pa.string(), pa.int64()))
    batch = pa.RecordBatch.from_arrays([pa.array(["t", "t"]), maps], names=["type", "attributes"])
    with pytest.raises(UserError, match=rf"^node {node.address}: row 1, \$\.priority: is a header field"):
        made.write(iter([batch]))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"sink": ""}, "option 'sink': is missing"),
        ({"sink": "x" * 300}, "option 'sink': has 300 characters"),
        ({"job": " "}, "option 'job': is empty"),
        ({"delivery": "maybe"}, "option 'delivery': 'maybe' is not one of transient, reliable, persistent"),
        ({"type": "a b"}, "option 'type': 'a b' contains a space"),
        ({"node": "127.0.0.1:1,127.0.0.1:2"}, "option 'node': a sink is at one node, and not at 2"),
        ({"where": "n = 1"}, "option 'where': is for spark.read"),
    ],
    ids=["sink", "long", "job", "delivery", "type", "nodes", "use"],
)
def test_a_wrong_option_is_told_by_its_name(given: dict[str, str], told: str) -> None:
    for make in (make_writer,) if "job" in given else (make_writer, make_stream_writer):
        wrong = CaseInsensitiveDict({"node": "127.0.0.1:1", "sink": "s", **given})
        with pytest.raises(ConfigError) as caught:
            make(wrong, COLUMNS, False)
        assert str(caught.value).startswith(told)


def test_nothing_that_was_published_can_be_overwritten() -> None:
    given = CaseInsensitiveDict({"node": "127.0.0.1:1", "sink": "s"})
    with pytest.raises(ConfigError, match="mode 'append'"):
        make_writer(given, COLUMNS, True)
    with pytest.raises(ConfigError, match="'append' or 'update'"):
        make_stream_writer(given, COLUMNS, True)


# In Spark


def frame(spark: SparkSession, count: int = 10) -> DataFrame:
    return spark.range(count, numPartitions=2).selectExpr("'t' AS type", "id AS n", "id / 4 AS share")


def write(frame: DataFrame, node: Running, format: str = "tidings", **more: str) -> None:
    frame.write.format(format).options(**{"node": node.address, "sink": "s", **more}).mode("append").save()


def test_a_data_frame_is_published(spark: SparkSession, node: Running) -> None:
    write(frame(spark), node)
    found = events(node)
    assert [(event.type, event["n"], event["share"]) for event in found] == [
        ("t", n, n / 4) for n in range(10)
    ]
    assert len({event.id for event in found}) == 10
    again = spark.read.format("tidings").option("node", node.address).schema("n long, share double").load()
    assert sorted(map(tuple, again.collect())) == [(n, n / 4) for n in range(10)]


def test_rows_of_a_task_that_failed_after_staging_are_published_once(
    spark: SparkSession, node: Running
) -> None:
    spark.dataSource.register(FailingSource)
    write(frame(spark), node, "failing", sink=ONCE)
    assert sorted(numbers(node)) == list(range(10))
    assert sink(node, ONCE)["staged_bytes"] == 0


def test_a_job_that_fails_publishes_nothing_and_leaves_nothing(spark: SparkSession, node: Running) -> None:
    spark.dataSource.register(FailingSource)
    with pytest.raises(PySparkException, match="as the test wants it"):
        # One task: another that still runs when Spark gives up could stage rows after that.
        write(frame(spark).coalesce(1), node, "failing", sink=ALWAYS)
    assert events(node) == []
    with blocking.connect(f"tidings://{node.address}") as bus:
        assert bus.status()["sinks"] == []


def test_a_column_that_no_event_can_hold_is_refused_before_anything_runs(
    spark: SparkSession, node: Running
) -> None:
    with pytest.raises(PySparkException, match="column 'many': is array<int>, which no attribute can hold"):
        write(frame(spark).selectExpr("*", "array(1) AS many"), node)


def run_stream(
    spark: SparkSession, node: Running, folder: Path, format: str, name: str, keeps: bool = True
) -> StreamingQuery:
    """Publish what lies in a folder and was not published, and end; files one by one.

    The checkpoint lies beside them if the query `keeps` it, else where the session wants it.
    """
    checkpoint = {"checkpointLocation": str(folder / "checkpoint")} if keeps else {}
    files = spark.readStream.schema("type string, n long").option("maxFilesPerTrigger", "1")
    query = (
        files.json(str(folder / "in"))
        .writeStream.format(format)
        .options(node=node.address, sink=name, **checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(PATIENCE_S)
    return query


def put_files(folder: Path, *numbers: int) -> None:
    (folder / "in").mkdir(exist_ok=True)
    for number in numbers:
        (folder / "in" / f"{number}.json").write_text(f'{{"type": "t", "n": {number}}}\n')


def test_a_stream_is_published_batch_by_batch(spark: SparkSession, node: Running, tmp_path: Path) -> None:
    put_files(tmp_path, 0, 1)
    run_stream(spark, node, tmp_path, "tidings", "s")
    put_files(tmp_path, 2)
    run_stream(spark, node, tmp_path, "tidings", "s")
    assert sorted(numbers(node)) == [0, 1, 2]
    assert (sink(node)["batch"], sink(node)["staged_bytes"]) == (2, 0)


def test_a_batch_whose_commit_spark_has_not_noted_is_published_once(
    spark: SparkSession, node: Running, tmp_path: Path
) -> None:
    spark.dataSource.register(FailingSource)
    put_files(tmp_path, 0, 1)
    name = str(tmp_path / AFTER_COMMIT)
    with pytest.raises(PySparkException, match="as the test wants it"):
        run_stream(spark, node, tmp_path, "failing", name)
    assert len(numbers(node)) == 1
    run_stream(spark, node, tmp_path, "failing", name)
    assert sorted(numbers(node)) == [0, 1]


def test_a_stream_with_a_new_checkpoint_is_told_to_choose_another_sink(
    spark: SparkSession, node: Running, tmp_path: Path
) -> None:
    stream_writer(node).commit([], 5)
    put_files(tmp_path, 0)
    with pytest.raises(PySparkException, match="has batch 5 already"):
        run_stream(spark, node, tmp_path, "tidings", "s")
    assert events(node) == []


@pytest.mark.parametrize("is_default", [False, True])
def test_a_first_batch_is_not_taken_for_that_of_a_query_before(
    spark: SparkSession, node: Running, tmp_path: Path, is_default: bool
) -> None:
    put_files(tmp_path, 0)
    name = "spark.sql.streaming.checkpointLocation"
    if is_default:
        spark.conf.set(name, str(tmp_path / "default"))
    try:
        run_stream(spark, node, tmp_path, "tidings", "s", keeps=not is_default)
        rmtree(tmp_path / ("default" if is_default else "checkpoint"))
        put_files(tmp_path, 1)
        with pytest.raises(PySparkException, match="has batch 0 of another query already"):
            run_stream(spark, node, tmp_path, "tidings", "s", keeps=not is_default)
    finally:
        spark.conf.unset(name)
    assert numbers(node) == [0]

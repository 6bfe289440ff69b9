"""The log as a stream: each event once, over restarts of the query and of the node."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from effort import ANSWER_S
from pipeline.nodes import Running, reading, running, wait_until
from pipeline.streams import ALL, COLUMNS, Make, batch, making_streams, numbers
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.datasource import ReadMaxRows

from tidings import Event, blocking
from tidings.errors import ConfigError, TidingsError
from tidings.pipeline import reader_lease
from tidings.pipeline.offsets import Offset, later

SOURCE = str(Path(__file__).parents[2] / "src")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "node") as node:
        yield node


@pytest.fixture
def stream() -> Iterator[Make]:
    with making_streams() as make:
        yield make


# Without Spark: what the driver's process does


def test_a_stream_plans_its_batches_without_pandas() -> None:
    """Spark starts a process for it at each start of a query, which would take longer to import pandas."""
    program = "import sys, tidings.pipeline.stream; assert 'pandas' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": SOURCE}, check=True)


def test_a_query_begins_behind_what_there_is_and_reads_what_comes(node: Running, stream: Make) -> None:
    node.publish(reading(1, 1))
    reader = stream(node)
    start = reader.initialOffset()
    assert reader.initialOffset() == start
    assert batch(reader, start) == ([], start)
    node.publish(reading(2, 2), reading(3, 3))
    found, end = batch(reader, start)
    assert found == [2, 3]
    assert batch(reader, end) == ([], end)
    assert reader.reportLatestOffset() == later(end)


def test_a_query_may_begin_with_all_there_is_or_with_a_position(node: Running, stream: Make) -> None:
    node.publish(*[reading(1, number) for number in range(5)])
    everything = stream(node, startingOffsets="earliest")
    assert batch(everything, everything.initialOffset())[0] == [0, 1, 2, 3, 4]
    some = stream(node, startingOffsets=f'{{"{node.address}": 4}}')
    assert batch(some, some.initialOffset())[0] == [3, 4]
    since = stream(node, startingTimestamp="0")
    assert batch(since, since.initialOffset())[0] == [0, 1, 2, 3, 4]


def test_the_same_offsets_mean_the_same_events_whenever_they_are_asked(node: Running, stream: Make) -> None:
    node.publish(*[reading(1, number) for number in range(5)])
    reader = stream(node, startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    node.publish(reading(1, 5))
    later = stream(node)
    assert numbers(reader, start, end) == numbers(later, start, end) == [0, 1, 2, 3, 4]
    assert reader.partitions(end, end) == []


def test_a_transient_event_is_read_if_the_query_wants_it(node: Running, stream: Make) -> None:
    reader = stream(node, where="type = 'wanted'")
    start = reader.initialOffset()
    node.publish(Event("wanted", {"number": 1}), Event("other", {"number": 2}), reading(3, 3))
    assert batch(reader, start)[0] == [1]


def test_a_query_without_a_filter_keeps_no_event_that_a_node_publishes_about_itself(
    node: Running, stream: Make
) -> None:
    reader = stream(node)
    start = reader.initialOffset()
    node.publish(Event("air.pm10", number=7), Event("tidings.gateway.figures", number=8))
    assert batch(reader, start)[0] == [7]
    with blocking.connect(f"tidings://{node.address}") as bus:
        assert [event.type for _, event in bus.log.read()] == ["air.pm10"]


def test_a_durable_reader_that_was_made_without_a_filter_goes_on_with_the_default_one(
    node: Running, stream: Make
) -> None:
    before = stream(node, durable="d", where="")
    start = before.initialOffset()
    node.publish(Event("air.pm10", number=7))
    found, end = batch(before, start)
    before.stop()
    after = stream(node, durable="d")
    node.publish(Event("tidings.gateway.figures", number=8), Event("air.pm10", number=9))
    assert (found, batch(after, end)[0]) == ([7], [9])


def test_a_batch_has_no_more_positions_than_it_may(node: Running, stream: Make) -> None:
    node.publish(*[reading(1, number) for number in range(5)])
    reader = stream(node, startingOffsets="earliest", maxOffsetsPerTrigger="2")
    assert reader.getDefaultReadLimit() == ReadMaxRows(2)
    sizes, offset = [], reader.initialOffset()
    while (found := batch(reader, offset))[0]:
        sizes.append(len(found[0]))
        offset = found[1]
    assert sizes == [2, 2, 1]
    assert later(reader.latestOffset(reader.initialOffset(), ALL)) == later(offset)


def test_a_query_for_what_is_there_now_reads_nothing_newer_and_demands_nothing(
    node: Running, stream: Make
) -> None:
    node.publish(reading(1, 1))
    reader = stream(node, startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    node.publish(reading(2, 2))
    found, end = batch(reader, reader.initialOffset())
    assert found == [1]
    assert batch(reader, end) == ([], end)
    assert [one["passive"] for one in node.readers] == [True]


def test_a_node_that_is_added_to_a_query_is_read_from_where_new_queries_begin(
    node: Running, stream: Make, tmp_path: Path
) -> None:
    first = stream(node, startingOffsets="earliest")
    start = first.initialOffset()
    with running(tmp_path / "other") as other:
        other.publish(reading(1, 1))
        both = stream(f"{node.address},{other.address}", startingOffsets="earliest")
        found, end = batch(both, start)
        assert found == []
        other.publish(reading(2, 2))
        assert batch(both, end)[0] == [1, 2]


# Readers at the node


def test_a_running_query_is_a_reader_whose_place_follows_the_batches(node: Running, stream: Make) -> None:
    reader = stream(node, where="type = 'air.pm10'", lease="7")
    start = reader.initialOffset()
    (told,) = node.readers
    assert (told["filter"], told["lease_s"], told["passive"]) == ("type = 'air.pm10'", 7.0, False)
    node.publish(reading(1, 1), reading(2, 2))
    end = reader.latestOffset(start, ALL)
    assert node.readers == [told]
    reader.commit(end)
    assert node.readers[0]["cursor"] == told["cursor"] + 2
    reader.stop()
    assert node.readers == []


def test_a_query_that_goes_on_from_a_checkpoint_is_a_reader_from_there(node: Running, stream: Make) -> None:
    node.publish(*[reading(1, number) for number in range(5)])
    first = stream(node, startingOffsets="earliest")
    checkpoint = first.latestOffset(first.initialOffset(), ReadMaxRows(3))
    first.stop()
    again = stream(node)
    assert batch(again, checkpoint)[0] == [3, 4]
    assert node.readers[0]["cursor"] == 3


def test_a_durable_reader_stays_and_a_query_without_a_checkpoint_goes_on_from_it(
    node: Running, stream: Make
) -> None:
    first = stream(node, durable="city", where="type = 'air.pm10'")
    start = first.initialOffset()
    node.publish(reading(1, 1), reading(2, 2))
    first.commit(first.latestOffset(start, ALL))
    first.stop()
    (told,) = node.readers
    assert (told["name"], told["lease_s"]) == ("city", None)
    node.publish(Event("air.pm10", {"number": 3}))  # transient: kept because the reader wants it
    again = stream(node, durable="city", where="type = 'air.pm10'")
    assert batch(again, again.initialOffset())[0] == [3]


def test_a_reader_passes_a_batch_when_spark_asks_what_comes_after_it(node: Running, stream: Make) -> None:
    reader = stream(node, durable="city", startingOffsets="earliest")
    node.publish(reading(1, 1), reading(2, 2))
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert node.readers[0]["cursor"] == 0  # the batch may fail
    assert reader.latestOffset(end, ALL) == end
    assert node.readers[0]["cursor"] == 2
    reader.commit(end)
    assert node.readers[0]["cursor"] == 2


def test_a_reader_whose_lease_has_ended_ends_the_query_or_begins_again_where_losses_are_allowed(
    node: Running, stream: Make, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"startingOffsets": "earliest", "lease": "3600"}
    strict, lax = stream(node, **options), stream(node, **options, failOnDataLoss="false")
    node.publish(reading(1, 1))
    ends = [reader.latestOffset(reader.initialOffset(), ALL) for reader in (strict, lax)]
    with blocking.connect(f"tidings://{node.address}") as bus:
        for one in node.readers:
            bus.log.leave(one["name"])
    with pytest.raises(TidingsError, match=r"the reader 'spark-.*' is gone.*failOnDataLoss=false"):
        strict.commit(ends[0])
    with caplog.at_level(logging.WARNING, "tidings"):
        lax.commit(ends[1])
    assert [one["cursor"] for one in node.readers] == [1]
    assert "is gone" in caplog.text
    lax.commit(ends[1])


def test_the_lease_is_renewed_while_nothing_else_happens(node: Running, stream: Make) -> None:
    renewed = threading.Event()
    renew = reader_lease.LeasedReaders._renew

    def noticed(self: reader_lease.LeasedReaders, *arguments: Any) -> None:
        renew(self, *arguments)
        renewed.set()

    with pytest.MonkeyPatch.context() as watched:
        watched.setattr(reader_lease.LeasedReaders, "_renew", noticed)
        reader = stream(node, lease="1")
        reader.initialOffset()
        for _ in range(4):  # which takes longer than the lease
            assert renewed.wait(ANSWER_S)
            renewed.clear()
        assert len(node.readers) == 1


def test_what_goes_wrong_while_renewing_ends_the_query(node: Running, stream: Make) -> None:
    failed = threading.Event()

    def fail(*_arguments: Any) -> None:
        failed.set()
        raise ZeroDivisionError("nobody thought of this")

    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(reader_lease.LeasedReaders, "_renew", fail)
        reader = stream(node, lease="1")
        start = reader.initialOffset()
        assert failed.wait(ANSWER_S)
        assert reader._readers is not None
        wait_until(lambda: reader._readers is not None and reader._readers._failure is not None)
    with pytest.raises(ZeroDivisionError, match="nobody thought of this"):
        reader.latestOffset(start, ALL)


def test_a_node_that_is_away_for_a_while_is_waited_for(tmp_path: Path, stream: Make) -> None:
    with running(tmp_path) as node:
        reader = stream(node, where="type = 'air.pm10'")
        start = reader.initialOffset()
        node.publish(reading(1, 1))
        address = node.address
    answers: list[tuple[list[int], Offset]] = []
    asking = threading.Thread(target=lambda: answers.append(batch(reader, start)))
    asking.start()
    with running(tmp_path, port=int(address.rpartition(":")[2])) as node:
        asking.join(ANSWER_S)
        assert answers[0][0] == [1]
        assert len(node.readers) == 1
        node.publish(Event("air.pm10", {"number": 2}))
        assert batch(reader, answers[0][1])[0] == [2]


def test_a_node_that_stays_away_is_named(tmp_path: Path, stream: Make) -> None:
    with running(tmp_path) as node:
        reader = stream(node)
        start = reader.initialOffset()
        address = node.address
    with pytest.MonkeyPatch.context() as shortly:
        shortly.setattr("tidings.pipeline.connect.ANSWER_S_MAX", 0.1)
        with pytest.raises(TidingsError, match=rf"node {address} \(option 'node'\) can't be reached"):
            reader.latestOffset(start, ALL)


# Losses


def test_another_node_at_the_address_is_no_silent_loss(
    tmp_path: Path, stream: Make, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path / "one") as node:
        node.publish(reading(1, 1), reading(2, 2))
        first = stream(node, startingOffsets="earliest")
        checkpoint = first.latestOffset(first.initialOffset(), ALL)
        first.stop()
        port = int(node.address.rpartition(":")[2])
    with running(tmp_path / "two", port=port) as node:
        node.publish(reading(7, 7))
        with pytest.raises(TidingsError, match=r"position 3 at node .* another node is there now"):
            stream(node).latestOffset(checkpoint, ALL)
        anyway = stream(node, failOnDataLoss="false")
        with caplog.at_level(logging.WARNING, "tidings"):
            assert batch(anyway, checkpoint)[0] == [7]
        assert node.readers[0]["cursor"] == 0
    assert "another node is there now" in caplog.text


def test_a_node_that_a_query_no_longer_names_is_told(node: Running, stream: Make) -> None:
    checkpoint = {"elsewhere:7300": 17, "ID elsewhere:7300": "x"}
    with pytest.raises(TidingsError, match="node elsewhere:7300, but the option 'node' no longer names it"):
        stream(node).latestOffset(checkpoint, ALL)


def test_a_log_that_is_shorter_than_the_checkpoint_says_is_told(node: Running, stream: Make) -> None:
    node.publish(reading(1, 1))
    checkpoint = {node.address: 17, f"ID {node.address}": node.node.driver.broker.node}
    with pytest.raises(TidingsError, match=r"position 17 .* its log ends at 2"):
        stream(node).latestOffset(checkpoint, ALL)
    assert batch(stream(node, failOnDataLoss="false"), checkpoint)[0] == [1]


def test_a_position_that_is_not_there_is_no_place_to_begin(node: Running, stream: Make) -> None:
    node.publish(reading(1, 1))
    beyond = f'{{"{node.address}": 17}}'
    with pytest.raises(TidingsError, match="positions 17 to 17 are wanted, but the log ends at position 2"):
        stream(node, startingOffsets=beyond).initialOffset()
    anyway = stream(node, startingOffsets=beyond, failOnDataLoss="false")
    assert anyway.initialOffset()[node.address] == 2
    resumed = stream(node, startingOffsets=beyond)  # a checkpoint says more than where to begin
    assert batch(resumed, {node.address: 1, f"ID {node.address}": node.node.driver.broker.node})[0] == [1]


@pytest.mark.parametrize(
    ("options", "told"),
    [({"pushdown": "true"}, "is for spark.read"), ({"lease": "x"}, "is no number of seconds")],
    ids=["use", "value"],
)
def test_options_are_refused_before_anything_is_connected_to(
    stream: Make, options: dict[str, str], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        stream("127.0.0.1:1", **options).getDefaultReadLimit()


# In Spark


def load(spark: SparkSession, node: Running, **options: str) -> DataFrame:
    stream = spark.readStream.format("tidings").schema(COLUMNS).option("node", node.address)
    return stream.options(**options).load()


def collected(folder: Path) -> Callable[[DataFrame, int], None]:
    """Writes the numbers of each batch into a file of its own; a batch that is repeated replaces its file."""

    def collect(frame: DataFrame, number: int) -> None:
        found = sorted(row.number for row in frame.collect())
        (folder / str(number)).write_text(" ".join(map(str, found)))

    return collect


def read_once(folder: Path) -> list[int]:
    return sorted(int(word) for file in folder.iterdir() for word in file.read_text().split())


def wait_read(query: StreamingQuery, folder: Path, count: int) -> None:
    """Wait until so many numbers were read, or the query has failed."""
    wait_until(lambda: len(read_once(folder)) >= count or query.exception() is not None)


def test_each_event_is_read_once_over_restarts_of_the_query(
    spark: SparkSession, node: Running, tmp_path: Path
) -> None:
    folder = tmp_path / "batches"
    folder.mkdir()
    frame = load(spark, node, durable="test", maxOffsetsPerTrigger="30")
    checkpoint = str(tmp_path / "checkpoint")
    writer = frame.writeStream.foreachBatch(collected(folder)).option("checkpointLocation", checkpoint)
    for first in (0, 100):
        query = writer.start()
        wait_until(lambda: len(node.readers) == 1)
        node.publish(*[reading(1, number) for number in range(first, first + 100)])
        wait_read(query, folder, first + 100)
        query.stop()
    assert read_once(folder) == list(range(200))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(60)
    assert read_once(folder) == list(range(200))


def test_a_durable_reader_has_passed_all_that_a_finished_query_has_read(
    spark: SparkSession, node: Running, tmp_path: Path
) -> None:
    node.publish(*[reading(1, number) for number in range(5)])
    frame = load(spark, node, durable="nightly", startingOffsets="earliest", maxOffsetsPerTrigger="3")
    for checkpoint, wanted in (("first", [0, 1, 2, 3, 4]), ("made anew", [])):
        folder = tmp_path / checkpoint / "batches"
        folder.mkdir(parents=True)
        writer = frame.writeStream.foreachBatch(collected(folder)).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / checkpoint / "checkpoint")).start()
        query.awaitTermination(60)
        assert (read_once(folder), node.readers[0]["cursor"]) == (wanted, 5)


def test_stopping_a_query_leaves_the_node(spark: SparkSession, node: Running, tmp_path: Path) -> None:
    query = load(spark, node, lease="3600").writeStream.format("noop").start()
    wait_until(lambda: len(node.readers) == 1)
    query.stop()
    wait_until(lambda: node.readers == [])


def test_what_is_wrong_with_a_query_is_its_exception(spark: SparkSession, node: Running) -> None:
    query = load(spark, node, minPartitions="none").writeStream.format("noop").start()
    with pytest.raises(StreamingQueryException, match="option 'minPartitions': 'none' is no whole number"):
        query.awaitTermination(60)

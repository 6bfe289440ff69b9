"""History as DataFrames: what a query on the log of real nodes gives."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pipeline.nodes import PATIENCE_S, Running, reading, running
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader

from tidings import Event, Filter, blocking
from tidings.errors import ConfigError, TidingsError
from tidings.log.chunks import LivePart, SealedPart
from tidings.log.columns import Decoder, table_of
from tidings.pipeline.batch import PIECE_LENGTH_MIN, TaskInput, arrow_schema, pieces_of, within
from tidings.pipeline.offsets import NodeExtent, OffsetRange
from tidings.pipeline.options import read_options
from tidings.pipeline.source import TidingsSource

COLUMNS = (
    types.StructType()
    .add("position", "long")
    .add("type", "string")
    .add("value", "double")
    .add("number", "long")
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A node that ten readings and one other event were published to."""
    with running(tmp_path_factory.mktemp("node")) as node:
        node.publish(*[reading(number * 10.0, number) for number in range(10)])
        node.publish(
            Event("note", {"text": "spring"}, delivery="persistent", subject="weather", body=b"\x01\x02")
        )
        yield node


def reader(schema: types.StructType = COLUMNS, **options: Any) -> DataSourceReader:
    """As Spark makes it: from texts, and sent to another process."""
    given = CaseInsensitiveDict({name: str(value) for name, value in options.items()})
    source = pickle.loads(pickle.dumps(TidingsSource(given)))
    made: DataSourceReader = source.reader(schema)
    return made


def rows(schema: types.StructType = COLUMNS, **options: Any) -> list[dict[str, Any]]:
    """All rows, read without Spark, piece by piece as executors do."""
    made = reader(schema, **options)
    pieces = made.partitions()
    sent = pickle.loads(pickle.dumps((made, pieces)))
    return [row for piece in sent[1] for batch in sent[0].read(piece) for row in batch.to_pylist()]


def numbers(**options: Any) -> list[int]:
    return [row["number"] for row in rows(where="type = 'air.pm10'", **options)]


def load(spark: SparkSession, schema: types.StructType | str | None = None, **options: Any) -> DataFrame:
    found = spark.read.format("tidings").options(**options)
    return (found if schema is None else found.schema(schema)).load()


# In Spark


def test_the_log_is_a_data_frame_without_any_registration(spark: SparkSession, node: Running) -> None:
    frame = load(spark, "type string, value double", node=node.address, where="value >= 80")
    assert [tuple(row) for row in frame.collect()] == [("air.pm10", 80.0), ("air.pm10", 90.0)]
    assert frame.agg({"value": "sum"}).first()[0] == 170.0  # type: ignore[index]


def test_without_columns_the_header_and_all_attributes_come(spark: SparkSession, node: Running) -> None:
    (note,) = load(spark, node=node.address, where="type = 'note'").collect()
    assert (note.position, note.subject, note.delivery, bytes(note.body)) == (
        11,
        "weather",
        "persistent",
        b"\x01\x02",
    )
    assert note.attributes == {"text": "spring"}
    assert note.node == node.node.driver.broker.node
    (reading,) = load(spark, node=node.address, where="number = 3").collect()
    assert reading.attributes == {"value": "30.0", "number": "3"}


def test_attributes_come_with_their_kinds_if_asked_for(spark: SparkSession, node: Running) -> None:
    kinds = "struct<b:boolean,i:bigint,f:double,s:string,t:timestamp,x:binary>"
    frame = load(spark, f"attributes map<string,{kinds}>", node=node.address, where="number = 3")
    found = frame.selectExpr("attributes['value'].f", "attributes['number'].i").collect()
    assert [tuple(row) for row in found] == [(30.0, 3)]


def test_pieces_are_read_side_by_side(spark: SparkSession, node: Running) -> None:
    frame = load(spark, COLUMNS, node=node.address, minPartitions="4")
    assert frame.rdd.getNumPartitions() == 4
    assert sorted(row.position for row in frame.collect()) == list(range(1, 12))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"node": "127.0.0.1:1", "nodes": "x"}, "did you mean 'node'?"),
        ({"node": "127.0.0.1:1", "where": "value >> 3"}, "option 'where': line 1, column 8"),
        ({"node": "127.0.0.1:1", "password": "horse"}, "name that with 'passwordFile'"),
    ],
    ids=["unknown", "filter", "secret"],
)
def test_options_that_can_not_be_are_refused_by_load(
    spark: SparkSession, options: dict[str, str], told: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        load(spark, **options)
    assert told in str(caught.value)
    assert "horse" not in str(caught.value)


def test_options_of_a_query_with_columns_of_its_own_are_refused_when_it_runs(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="did you mean 'node'"):
        load(spark, COLUMNS, nodes="127.0.0.1:1").collect()


def test_a_node_that_is_away_is_named_by_the_query() -> None:
    with running(None) as node:
        address = node.address
    with pytest.MonkeyPatch.context() as shortly:
        shortly.setattr("tidings.pipeline.connect.CONNECT_S_MAX", 0.1)
        with pytest.raises(TidingsError, match=rf"node {address} \(option 'node'\) can't be reached"):
            rows(node=address)


def test_a_view_in_sql_is_a_query_with_these_options(spark: SparkSession, node: Running) -> None:
    options = f"OPTIONS (node '{node.address}', where 'value >= 80')"
    spark.sql(f"CREATE TEMPORARY VIEW high (value double, number long) USING tidings {options}")
    assert spark.sql("SELECT sum(value), max(number) FROM high").collect() == [(170.0, 9)]


@pytest.mark.parametrize("columns", ["", "(value double)"], ids=["all", "some"])
def test_a_table_in_sql_is_refused_with_the_word_to_use(
    spark: SparkSession, node: Running, columns: str
) -> None:
    def query_table() -> None:
        # With columns of its own Spark makes the table without asking the source.
        spark.sql(f"CREATE TABLE refused {columns} USING tidings OPTIONS (node '{node.address}')")
        spark.sql("SELECT * FROM refused").collect()

    with pytest.raises(PySparkException, match="in SQL use CREATE TEMPORARY VIEW"):
        query_table()
    spark.sql("DROP TABLE IF EXISTS refused")


# What is read


def test_bounds_are_positions(node: Running) -> None:
    def from_to(first: int, end: int) -> list[int]:
        starting, ending = f'{{"{node.address}": {first}}}', f'{{"{node.address}": {end}}}'
        return numbers(node=node.address, startingOffsets=starting, endingOffsets=ending)

    assert from_to(3, 6) == [2, 3, 4]
    assert from_to(0, 2) == [0]
    assert from_to(5, 5) == []
    assert numbers(node=node.address, startingOffsets="latest") == []


def test_bounds_are_times(tmp_path: Path) -> None:
    with running(tmp_path) as node:
        node.publish(reading(1, 1))
        node.publish(reading(2, 2))
        with blocking.connect(f"tidings://{node.address}") as bus:
            parts = [part for found, _ in bus.log.parts(1) for part in found]
        stored_us = parts[-1].stored_us  # type: ignore[union-attr]
        later_ms = str(stored_us // 1000 + 1)
        assert numbers(node=node.address, startingTimestamp="0") == [1, 2]
        assert numbers(node=node.address, startingTimestamp=later_ms) == []
        assert numbers(node=node.address, endingTimestamp=later_ms) == [1, 2]
        assert numbers(node=node.address, endingTimestamp="0") == []


def test_several_nodes_are_read_together(tmp_path: Path) -> None:
    with running(tmp_path / "a") as a, running(tmp_path / "b") as b:
        a.publish(reading(1, 1))
        b.publish(reading(2, 2), reading(3, 3))
        schema = types.StructType().add("node", "string").add("number", "long")
        found = rows(schema, node=f"{a.address},{b.address}")
        ids = [one.node.driver.broker.node for one in (a, b)]
    assert [(row["node"], row["number"]) for row in found] == [(ids[0], 1), (ids[1], 2), (ids[1], 3)]


def test_events_that_nodes_publish_about_themselves_are_read_only_if_the_filter_says_so(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as node:
        own = Event("tidings.gateway.figures", readings=4, delivery="persistent")
        node.publish(own, reading(1, 1))
        node.publish(Event("tidings", number=2, delivery="persistent"))
        schema = types.StructType().add("type", "string")

        def found(**options: Any) -> list[str]:
            return [row["type"] for row in rows(schema, node=node.address, **options)]

        assert found() == ["air.pm10", "tidings"]
        assert found(where="TRUE") == ["tidings.gateway.figures", "air.pm10", "tidings"]
        assert found(where="readings > 3") == ["tidings.gateway.figures"]
        with blocking.connect(f"tidings://{node.address}") as bus:
            bus.log.seal(timeout_s=PATIENCE_S)
        assert found() == ["air.pm10", "tidings"]


def test_an_empty_log_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    with running(tmp_path) as node:
        assert load(spark, COLUMNS, node=node.address).collect() == []


def test_reading_history_asks_no_sensor_for_anything(node: Running) -> None:
    heard: list[tuple[Filter, ...]] = []

    def listen() -> None:
        heard.append(next(filters for filters in interest if filters))

    with blocking.connect(f"tidings://{node.address}") as bus, bus.advertise("type = 'air.pm10'") as interest:
        listening = threading.Thread(target=listen, daemon=True)
        listening.start()
        assert len(numbers(node=node.address)) == 10
        assert node.readers == []
        assert not interest.wanted
        assert heard == []
        with bus.subscribe("value > 17"):  # now there is something to hear, and it is the first
            listening.join(PATIENCE_S)
    assert heard == [(Filter("value > 17"),)]


def test_what_does_not_fit_its_column_is_null_and_counted(
    node: Running, caplog: pytest.LogCaptureFixture
) -> None:
    schema = types.StructType().add("text", "long").add("mismatches", "integer")
    (row,) = rows(schema, node=node.address, where="type = 'note'")
    assert row == {"text": None, "mismatches": 1}
    assert "1 values did not fit their columns and are null" in caplog.text


def test_what_does_not_fit_ends_a_query_that_is_to_fail_fast(node: Running) -> None:
    schema = types.StructType().add("text", "long")
    with pytest.raises(TidingsError, match="column 'text', position 11: a value is str"):
        rows(schema, node=node.address, mode="failfast")
    assert len(rows(schema, node=node.address, mode="failfast", where="type = 'air.pm10'")) == 10


def test_a_filter_and_columns_of_other_types_go_together(node: Running) -> None:
    schema = types.StructType().add("time", "date").add("value", "float").add("priority", "double")
    row = rows(schema, node=node.address, where="number = 3")[0]
    assert (row["value"], row["priority"]) == (30.0, 4.0)
    assert row["time"] == datetime.now(UTC).date()


def test_columns_that_no_event_fills_are_refused(node: Running) -> None:
    with pytest.raises(ConfigError, match="schema: type: is string in every event, and never double"):
        reader(types.StructType().add("type", "double"), node=node.address)


def test_parts_from_files_and_live_ones_give_the_same_rows(node: Running) -> None:
    with blocking.connect(f"tidings://{node.address}") as bus:
        live = [part for found, _ in bus.log.parts(1) for part in found if isinstance(part, LivePart)]
    table = table_of(live)
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    sealed = SealedPart(stream.getvalue().to_pybytes())
    decoder = Decoder(arrow_schema(COLUMNS))
    batches = [batch.to_pylist() for batch in decoder.batches([*live, sealed, *live])]
    assert len(batches) == 3
    assert batches[0] == batches[1] == batches[2]
    assert len(batches[0]) == 11


# Pieces and losses


def test_a_short_log_is_one_piece_and_a_long_one_several() -> None:
    options = read_options({"node": "a:1"}, "batch")

    def pieces(length: int) -> list[TaskInput]:
        cut = pieces_of([OffsetRange("a:1", "id", 1, 1 + length)], options)
        return [piece for piece in cut if isinstance(piece, TaskInput)]

    assert len(pieces(100)) == 1
    assert len(pieces(100 * PIECE_LENGTH_MIN)) > 1
    assert len(pieces(100_000_000)) >= 25
    assert {piece.node for piece in pieces(10**8)} == {"tidings://a:1"}


def test_what_was_pruned_or_never_written_ends_the_query_unless_that_is_allowed() -> None:
    standing = NodeExtent("id", 10, 20)
    assert within(OffsetRange("a:1", "id", 12, 18), standing, True) == (12, 18)
    assert within(OffsetRange("a:1", "id", 0, 18), standing, True) == (10, 18)
    for span in (OffsetRange("a:1", "id", 5, 18), OffsetRange("a:1", "id", 12, 30)):
        wanted = f"positions {span.first} to {span.end} are wanted"
        with pytest.raises(TidingsError, match=rf"{wanted}.*failOnDataLoss"):
            within(span, standing, True)
    assert within(OffsetRange("a:1", "id", 5, 18), standing, False) == (10, 18)
    assert within(OffsetRange("a:1", "id", 12, 30), standing, False) == (12, 20)
    assert within(OffsetRange("a:1", "id", 2, 5), standing, False) == (10, 10)
    assert within(OffsetRange("a:1", "id", 30, 40), standing, False) == (20, 20)


def test_another_node_at_the_address_is_never_taken_for_the_one_that_was_planned() -> None:
    with pytest.raises(TidingsError, match="another node is there"):
        within(OffsetRange("a:1", "id", 1, 5), NodeExtent("other", 1, 9), False)

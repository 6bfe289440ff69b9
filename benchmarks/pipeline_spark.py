"""The queries that are measured, in a Spark on two cores of this machine, and a source that does nothing.

The source gives ready-made Arrow batches with the same columns: what Spark makes of these is the most it can
make of any source written in Python.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own examples call it
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import tidings
from benchmarks.pipeline_load import TIME_US, TYPES, VALUE_MAX
from tidings.errors import PeerError
from tidings.event import Event
from tidings.pipeline.session import spark_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COLUMNS = "type string, time timestamp, value double, position bigint"
"""What is read of the log."""
CORES = 2
CHECKOUT = Path(__file__).parents[1]
BATCH_ROWS = 65_536
ASK, ANSWER = "bench.ask", "bench.answer"
START_S_MAX = 240.0
"""How long a stream may take until its first row is there."""
LOOK_S = 0.05
WARM = 3
"""Rows of a stream whose time is not counted."""

Options = Mapping[str, str]


@contextmanager
def running(home: Path) -> Iterator[SparkSession]:
    """A session for the measurements, with the source that does nothing."""
    spark = spark_session(
        f"local[{CORES}]",
        "tidings bench",
        **{
            "spark.executorEnv.PYTHONPATH": CHECKOUT,  # where workers find this module
            "spark.local.dir": home / "spark",
            "spark.log.level": "ERROR",
            "spark.sql.shuffle.partitions": CORES,
            "spark.sql.warehouse.dir": home / "warehouse",
            "spark.ui.enabled": "false",
        },
    )
    spark.dataSource.register(IdleSource)
    try:
        yield spark
    finally:
        spark.stop()


# Batches


def of_log(spark: SparkSession, options: Options) -> DataFrame:
    """What the source of tidings reads."""
    return spark.read.format("tidings").options(**options).schema(COLUMNS).load()


def of_nothing(spark: SparkSession, rows: int) -> DataFrame:
    """As many rows of the source that does nothing."""
    return spark.read.format(IdleSource.name()).option("rows", rows).schema(COLUMNS).load()


def of_files(spark: SparkSession, folder: Path) -> DataFrame:
    """What Spark's own reader of Parquet makes of sealed files, summed up."""
    files = spark.read.parquet(str(folder))
    return files.groupBy("type").agg(F.count("value").alias("count"), F.avg("value"), F.max("value"))


def check_count(frame: DataFrame, rows: int) -> None:
    """Read it once, so that all is warm; PeerError if there are not so many rows."""
    found = frame.count()
    if found != rows:
        raise PeerError(f"{found} of {rows} rows were read")


def took_s(frame: DataFrame) -> float:
    """Seconds to make all rows, which then go nowhere."""
    started = time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    return time.monotonic() - started


class IdleReader(DataSourceReader):
    """Ready-made batches.

    Parameters
    ----------
    rows : int
        How many, in all.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def partitions(self) -> list[InputPartition]:
        """One for each core."""
        return [
            InputPartition(self.rows * (core + 1) // CORES - self.rows * core // CORES)
            for core in range(CORES)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The same batch again and again."""
        batch, rows = idle_batch(), partition.value
        for first in range(0, rows, BATCH_ROWS):
            yield batch[: rows - first]


def idle_batch() -> pa.RecordBatch:
    """BATCH_ROWS readings."""
    import numpy as np
    import pyarrow as pa

    numbers = np.arange(BATCH_ROWS)
    types = pa.DictionaryArray.from_arrays(pa.array(numbers % len(TYPES)), pa.array(TYPES)).cast(pa.string())
    times = pa.array(TIME_US + 1_000 * numbers).cast(pa.timestamp("us", "UTC"))
    columns = [types, times, pa.array(numbers * (VALUE_MAX / BATCH_ROWS)), pa.array(numbers)]
    return pa.RecordBatch.from_arrays(columns, ["type", "time", "value", "position"])


class IdleSource(DataSource):
    """The format `idle`; option `rows`."""

    @classmethod
    def name(cls) -> str:
        """What it is called."""
        return "idle"

    def schema(self) -> str:
        """Its columns."""
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Reads so many rows."""
        return IdleReader(int(self.options["rows"]))


# Streams


def answered_s(spark: SparkSession, address: str, home: Path, times: int) -> float:
    """The median of the seconds from before a publication to after the receipt of what a query makes of it.

    So it is more than the time until the row is in a sink: it comes back from there, too.
    """
    query = _answering(spark, address.rpartition("/")[2], home)
    try:
        took = asyncio.run(_ask(address, times + WARM))
    except TimeoutError:
        raise PeerError(f"the stream does not answer: {query.exception()}") from None
    finally:
        query.stop()
    return median(took[WARM:])


def _answering(spark: SparkSession, node: str, home: Path) -> StreamingQuery:
    asked = spark.readStream.format("tidings").options(node=node, where=f"type = '{ASK}'")
    answer = asked.schema("number long").load().selectExpr(f"'{ANSWER}' AS type", "number")
    written = answer.writeStream.format("tidings").options(node=node, sink="bench")
    return written.option("checkpointLocation", str(home / "checkpoint")).start()


async def _ask(address: str, times: int) -> list[float]:
    """The seconds that each answer took, one after the other."""
    took = []
    async with tidings.connect(address) as bus, bus.subscribe(f"type = '{ANSWER}'") as answers:
        async with asyncio.timeout(START_S_MAX):
            while not (await bus.log.status())["readers"]:
                await asyncio.sleep(LOOK_S)
        for number in range(times):
            started = time.monotonic()
            async with asyncio.timeout(START_S_MAX):
                await bus.publish(Event(ASK, {"number": number}, delivery="persistent"))
                answer = await anext(answers)
            took.append(time.monotonic() - started)
            if answer["number"] != number:
                raise PeerError(f"{answer['number']} was answered instead of {number}")
    return took

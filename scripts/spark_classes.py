"""Write down what Java makes of Spark's classes: with that, each Spark of the tests starts in half the time.

    spark-submit --driver-java-options -XX:ArchiveClassesAtExit=FILE scripts/spark_classes.py

It uses what tests use most: queries, streams with state, Parquet, and Python workers that speak Arrow. What
it leaves out is loaded as ever. Java passes over a file that was written by another Java or for other jars.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

SCHEMA = "number long, kind string, value double"


class Rows(DataSource):
    """Three rows, made by Python."""

    @classmethod
    def name(cls) -> str:
        """What it is called in `format`."""
        return "rows"

    def schema(self) -> str:
        """What each row has."""
        return SCHEMA

    def reader(self, schema: object) -> DataSourceReader:  # noqa: ARG002  (Spark calls it so)
        """Who makes them."""
        return RowsReader()


class RowsReader(DataSourceReader):
    """See `Rows`."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Make them, as Arrow."""
        yield pa.RecordBatch.from_pydict({"number": [1, 2, 3], "kind": ["a"] * 3, "value": [0.5] * 3})


def query(spark: SparkSession, folder: Path) -> None:
    """Read, group, join and write."""
    rows = spark.read.format("rows").load()
    rows.write.parquet(str(folder / "parquet"))
    read = spark.read.parquet(str(folder / "parquet")).where("value > 0 AND kind LIKE 'a%'")
    read.groupBy("kind").agg(sf.count("*"), sf.avg("value")).collect()
    read.join(spark.range(3), sf.col("id") == sf.col("number")).orderBy("number").toPandas()
    spark.createDataFrame([(1, "a", 0.5)], SCHEMA).mapInArrow(lambda batches: batches, SCHEMA).collect()


def stream(spark: SparkSession, folder: Path) -> None:
    """Count what comes in windows of time, from files to files, until all is done."""
    rows = spark.readStream.schema(SCHEMA).parquet(str(folder / "parquet"))
    timed = rows.withColumn("time", sf.current_timestamp()).withWatermark("time", "1 minute")
    counted = timed.groupBy(sf.window("time", "1 minute"), "kind").count()
    started = (
        counted.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(lambda batch, _: batch.collect())
        .outputMode("update")
        .trigger(availableNow=True)
        .start()
    )
    started.awaitTermination()


def main() -> None:
    """Use them."""
    spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 2).getOrCreate()
    spark.dataSource.register(Rows)
    with tempfile.TemporaryDirectory() as folder:
        query(spark, Path(folder))
        stream(spark, Path(folder))
    spark.stop()


main()

"""The tables of the city pipeline, and how they hang together; what they do is in `tidings.pipeline.city`.

A run reads what has come to the node since the last one, and ends. `spark` is put here by Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import pipelines as dp

from tidings.pipeline.city import aggregates as sums
from tidings.pipeline.city import alarms as found
from tidings.pipeline.city import readings
from tidings.pipeline.city.settings import CitySettings
from tidings.pipeline.city.silence import silent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

spark: SparkSession = globals()["spark"]
settings = CitySettings.found(lambda key: spark.conf.get(key, None))
rules = settings.loaded_rules()
late = f"INTERVAL {readings.seconds(rules.common.late_s)}"


def timed(view: str, column: str) -> DataFrame:
    """A view as a stream with a watermark; for Spark the method `withWatermark` is a look at a DataFrame.

    Not a table: SQL on a table that is there from the last run does not wait for the table to be updated.
    """
    return spark.sql(f"SELECT * FROM STREAM {view} WATERMARK {column} DELAY OF {late}")


@dp.table
def raw() -> DataFrame:
    """Each reading as it came, in the columns of the pipeline."""
    source = spark.readStream.format("tidings").schema(readings.SCHEMA).options(**settings.source())
    return readings.raw(source.load())


@dp.temporary_view
def arriving() -> DataFrame:
    """New rows of `raw`."""
    return spark.readStream.table("raw")


@dp.table
def clean() -> DataFrame:
    """Readings that are believed, each once."""
    return readings.clean(timed("arriving", "received"), rules, by=None, streaming=True)


@dp.temporary_view
def believed() -> DataFrame:
    """New rows of `clean`."""
    return spark.readStream.table("clean")


@dp.temporary_view
def all_raw() -> DataFrame:
    """All rows of `raw`: as with SQL, Spark waits for views only where tables are joined."""
    return spark.read.table("raw")


@dp.temporary_view
def all_clean() -> DataFrame:
    """All rows of `clean`."""
    return spark.read.table("clean")


@dp.materialized_view
def rejected() -> DataFrame:
    """All other readings, and why they are not believed."""
    return readings.rejected(spark.read.table("all_raw"), spark.read.table("all_clean"), rules)


@dp.materialized_view
def aggregates() -> DataFrame:
    """Count, min, max, mean and stddev by window, type and cell."""
    return sums.aggregates(spark.read.table("clean"), rules)


@dp.temporary_view
def heard() -> DataFrame:
    """Readings that tell that their sensor was alive, whatever their value."""
    return readings.heard(spark.readStream.table("raw"), rules)


@dp.table
def alarms() -> DataFrame:
    """Windows whose values are too high, and sensors that have fallen silent, each told once.

    One flow for both: two flows into one table count their batches by themselves, and Spark takes the second
    batch of a number for a repetition of the first.
    """
    windows = sums.aggregates(timed("believed", "time"), rules)
    return found.alarms(windows, silent(timed("heard", "time"), streaming=True), rules)


dp.create_sink("published", "tidings", settings.target())


@dp.append_flow(target="published")
def publish() -> DataFrame:
    """Alarms go to the node as events."""
    return spark.readStream.table("alarms")

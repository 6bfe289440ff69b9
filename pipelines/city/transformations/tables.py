"""The tables of the city pipeline, and how they hang together; what they do is in `tidings.pipeline.city`.

A run reads what has come to the node since the last one, and ends. `spark` is put here by Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import pipelines as dp

from tidings.pipeline.city import aggregates as sums
from tidings.pipeline.city import alarms as found
from tidings.pipeline.city import readings
from tidings.pipeline.city.settings import Settings
from tidings.pipeline.city.silence import silent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

spark: SparkSession = globals()["spark"]
settings = Settings.found(lambda key: spark.conf.get(key, None))
rules = settings.loaded_rules()
late = f"INTERVAL {readings.seconds(rules.common.late_s)}"


def timed(table: str, column: str) -> DataFrame:
    """A table as a stream with a watermark. Spark takes the method `withWatermark` for a look at it."""
    return spark.sql(f"SELECT * FROM STREAM {table} WATERMARK {column} DELAY OF {late}")


@dp.table
def raw() -> DataFrame:
    """Each reading as it came, in the columns of the pipeline."""
    source = spark.readStream.format("tidings").schema(readings.SCHEMA).options(**settings.source())
    return readings.raw(source.load())


@dp.table
def clean() -> DataFrame:
    """Readings that are believed, each once."""
    return readings.clean(timed("raw", "received"), rules, by=None, streaming=True)


@dp.materialized_view
def rejected() -> DataFrame:
    """All other readings, and why they are not believed."""
    return readings.rejected(spark.read.table("raw"), spark.read.table("clean"), rules)


@dp.materialized_view
def aggregates() -> DataFrame:
    """Count, min, max, mean and stddev by window, type and cell."""
    return sums.aggregates(spark.read.table("clean"), rules)


@dp.temporary_view
def heard() -> DataFrame:
    """Readings that tell that their sensor was alive, whatever their value."""
    return readings.heard(spark.readStream.table("raw"), rules)


dp.create_streaming_table("alarms", comment="Each alarm once, as it is published.")


@dp.append_flow(target="alarms")
def levels() -> DataFrame:
    """Windows whose values are too high, once they can't change any more."""
    return found.levels(sums.aggregates(timed("clean", "time"), rules), rules)


@dp.append_flow(target="alarms")
def silences() -> DataFrame:
    """Sensors that have fallen silent, as the times of the others tell."""
    return found.silences(silent(timed("heard", "time"), streaming=True))


dp.create_sink("published", "tidings", settings.target())


@dp.append_flow(target="published")
def publish() -> DataFrame:
    """Alarms go to the node as events."""
    return spark.readStream.table("alarms")

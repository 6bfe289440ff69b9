"""Readings as rows: those from a node, the valid ones, and the reasons why others are rejected.

`raw` gives the columns that all other steps use. `judged` adds the reason why a reading is rejected; `clean`
are the valid readings, each once, and `rejected` are all others. On a stream, ids are remembered for as long
as the watermark lags behind (`late_s`); on history each id counts once, however far apart.

A declarative pipeline does not let its definitions examine a DataFrame. So no step depends on the columns it
finds, and where streams and history are treated differently, the caller may say which of them it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own examples call it
from pyspark.sql.window import Window

from tidings.pipeline.city.rules import CityRules, TypeLimits
from tidings.pipeline.plan import interval

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

READ = {
    "id": "string",
    "type": "string",
    "received": "timestamp",
    "source": "string",
    "sensing-id": "string",
    "name": "string",
    "value": "double",
    "posx": "double",
    "posy": "double",
}
"""Columns to request from the source `tidings` beside time, node and position: of a gateway's readings."""
SCHEMA = "id string, node string, position bigint, type string, time timestamp, received timestamp, "
SCHEMA += "source string, `sensing-id` string, name string, value double, posx double, posy double"
"""All these columns, as Spark writes them."""
NAMES = {"network": "`sensing-id`", "sensor": "name"}
"""Columns of the pipeline that have another name in the source."""
COLUMNS = {
    "id": "string",
    "node": "string",
    "position": "bigint",
    "type": "string",
    "time": "timestamp",
    "received": "timestamp",
    "source": "string",
    "network": "string",
    "sensor": "string",
    "value": "double",
    "posx": "double",
    "posy": "double",
}
"""Columns of all readings in the pipeline."""
ALARMS = "alarm"
"""Type of the pipeline's own events; never read as readings, so that no alarm feeds itself."""

INCOMPLETE, FUTURE, NO_NUMBER, RANGE = "incomplete", "in the future", "no number", "out of range"
DUPLICATE, LATE = "duplicate", "late"
REASONS = (INCOMPLETE, FUTURE, NO_NUMBER, RANGE, DUPLICATE, LATE)
"""Reasons for rejecting readings."""


def raw(df: DataFrame) -> DataFrame:
    """Return the source's rows of `SCHEMA` as `COLUMNS`; a missing id is generated.

    A reading that was not sent through a gateway belongs to the network of its source.
    """
    typed = [F.col(NAMES.get(name, name)).cast(kind).alias(name) for name, kind in COLUMNS.items()]
    made_up = F.concat("node", F.lit(":"), F.col("position").cast("string"))
    whole = {"id": F.coalesce("id", made_up), "network": F.coalesce("network", "source")}
    is_alarm = F.coalesce(is_below("type", ALARMS), F.lit(False))
    return df.select(*typed).withColumns(whole).where(~is_alarm)


def judged(df: DataFrame, rules: CityRules) -> DataFrame:
    """Return raw readings with the column `reason`: why it is rejected by itself; null: it is not."""
    value = F.col("value")
    is_number = value.isNotNull() & ~F.isnan(value) & (F.abs(value) != F.lit(float("inf")))
    reason = (
        F.when(_is_incomplete(), INCOMPLETE)
        .when(_is_ahead(rules), FUTURE)
        .when(~is_number, NO_NUMBER)
        .when((value < limit(rules, "low")) | (value > limit(rules, "high")), RANGE)
    )
    return df.withColumn("reason", reason)


def clean(df: DataFrame, rules: CityRules) -> DataFrame:
    """Return the valid raw readings, each id once.

    A stream gets a watermark on `time`, so that windows can follow: readings later than `late_s` are dropped.
    """
    valid = good(judged(df, rules))
    timed = valid.withWatermark("time", interval(rules.common.late_s)) if df.isStreaming else valid
    return each_once(timed, df.isStreaming)


def good(judged: DataFrame) -> DataFrame:
    """Return the valid ones of judged readings."""
    return judged.where(F.col("reason").isNull()).select(*COLUMNS)


def each_once(good: DataFrame, streaming: bool) -> DataFrame:
    """Return readings, each id once; a stream needs a watermark, within which ids are remembered."""
    if streaming:
        return good.dropDuplicatesWithinWatermark(["id"])
    first = Window.partitionBy("id").orderBy(F.col("received").asc_nulls_last(), "node", "position")
    return good.withColumn("nth", F.row_number().over(first)).where("nth = 1").select(*COLUMNS)


def rejected(raw: DataFrame, clean: DataFrame, rules: CityRules) -> DataFrame:
    """Return each raw reading of history that is not among the clean ones, with the reason.

    So their number is the difference of `raw` and `clean`: no reading is lost without being counted.
    """
    taken = clean.select("id", "node", "position").withColumn("is_taken", F.lit(True))
    ids = clean.groupBy("id").agg(F.lit(True).alias("is_known"))
    same = [F.col(f"r.{name}").eqNullSafe(F.col(f"t.{name}")) for name in ("id", "node", "position")]
    rest = judged(raw, rules).alias("r").join(taken.alias("t"), same, "left")
    rest = rest.where("is_taken is null").select("r.*").join(ids, "id", "left")
    why = F.coalesce("reason", F.when(F.col("is_known"), DUPLICATE).otherwise(LATE))
    return rest.withColumn("reason", why).select(*COLUMNS, "reason")


def heard(df: DataFrame, rules: CityRules) -> DataFrame:
    """Return raw readings that show that their sensor is alive, whatever their value; with `silent_s`.

    Those of unknown sensors, and of types without a limit for silence, are left out.
    """
    is_known = ~_is_incomplete() & ~_is_ahead(rules) & F.col("network").isNotNull()
    whole = {"sensor": F.coalesce("sensor", F.lit("")), "silent_s": limit(rules, "silent_s")}
    return df.where(is_known).withColumns(whole).where("silent_s > 0")


def _is_incomplete() -> Column:
    return F.col("id").isNull() | F.col("type").isNull() | F.col("time").isNull()


def _is_ahead(rules: CityRules) -> Column:
    ahead = F.make_dt_interval(secs=F.lit(rules.common.future_s))
    return F.col("time") > F.coalesce("received", F.current_timestamp()) + ahead


def limit(rules: CityRules, name: str, type: str = "type") -> Column:
    """Return a field of the `TypeLimits` for the type in a column; null if it is not set."""
    assert name in TypeLimits.__struct_fields__
    rest = getattr(rules.default, name)
    column = F.lit(rest).cast("double")
    for rule in reversed(rules.by_type):  # the most special one is wrapped around all others
        value = getattr(rule.limits, name)
        if value != rest or not rules.is_flat:  # there are many types, and most have the same limits
            column = F.when(is_below(type, rule.type), F.lit(value).cast("double")).otherwise(column)
    return column


def is_below(column: str, type: str) -> Column:
    """Whether a column has this type, or one below it."""
    return (F.col(column) == type) | F.col(column).startswith(f"{type}.")

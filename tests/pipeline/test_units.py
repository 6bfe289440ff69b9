"""Units in Spark: converted columns are the numbers of clients, and filters take the rows that fit them."""

from __future__ import annotations

import math
from random import Random

import pytest
from pyspark.sql import SparkSession

from tidings import Filter
from tidings.errors import FilterError
from tidings.filters import Quantity, Taxonomy
from tidings.pipeline.units import in_unit

TAXONOMY = Taxonomy({"units": {"mcg/m3": "µg/m³"}})


def test_spark_converts_as_the_client_does_and_filters_agree(spark: SparkSession) -> None:
    random = Random(7)
    table = TAXONOMY.units.conversions("°F") | TAXONOMY.units.conversions("µg/m³")
    numbers = [random.uniform(-1e3, 1e3) for _ in range(200)] + [0.05, 0.06, 68.0, math.nextafter(0.05, 1)]
    rows = [(number, unit) for number in numbers for unit in random.sample([*table, "kg"], 3)]
    rows += [(0.06, "mg/m³"), (None, "K"), (1.0, None), (math.nan, "K")]
    frame = spark.createDataFrame(rows, "value double, unit string")
    heat = Filter("value > :limit", taxonomy=TAXONOMY, limit=Quantity(68, "°F"))
    dust = Filter("value > 50 'mcg/m3'", taxonomy=TAXONOMY)
    found = frame.select(
        "value",
        "unit",
        in_unit("value", "°F").alias("heat"),
        in_unit("value", "mcg/m3", taxonomy=TAXONOMY).alias("dust"),
        heat.to_spark(frame).alias("is_hot"),
        dust.to_spark(frame).alias("is_dusty"),
    ).collect()
    to_heat, to_dust = (TAXONOMY.units.conversions(unit) for unit in ("°F", "mcg/m3"))
    for row in found:
        value = row["value"]
        if value is None or math.isnan(value):
            assert not row["is_hot"]
            continue
        for name, conversions, bound in (("heat", to_heat, 68), ("dust", to_dust, 50)):
            wanted = conversions[row["unit"]](value) if row["unit"] in conversions else None
            assert row[name] == wanted
            is_taken = row["is_hot" if name == "heat" else "is_dusty"] is True
            assert is_taken is (wanted is not None and wanted > bound)
    assert sum(row["is_dusty"] is True for row in found) > 10


def test_the_columns_of_flattened_attributes_are_found(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(2, "km", "mm")], "`pos.x` bigint, `pos.unit` string, u string")
    found = frame.select(in_unit("pos.x", "m"), in_unit("pos.x", "m", unit="u")).collect()
    assert [tuple(row) for row in found] == [(2000.0, 0.002)]


def test_a_column_in_an_unknown_unit_is_refused() -> None:
    with pytest.raises(FilterError, match="there is no unit 'bogus'"):
        in_unit("value", "bogus")

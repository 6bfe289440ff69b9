"""Conditions that Spark hands over are applied where the events are, and change nothing of the answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pipeline.nodes import Running, running
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict, EqualTo, GreaterThan, IsNull
from pyspark.sql.types import StructType

from tidings import Event
from tidings.pipeline.batch import Pushed
from tidings.pipeline.source import TidingsSource

ENABLED = "spark.sql.python.filterPushdown.enabled"
COLUMNS = (
    StructType().add("type", "string").add("number", "long").add("value", "double").add("name", "string")
)
CONDITIONS = [
    "number > 3",
    "number = 3 AND name = 'b'",
    "name LIKE 'b%'",
    "name IS NULL",
    "NOT (number = 3)",
    "number IN (1, 2)",
    "value > 1.5",
    "value >= 2 OR number = 0",
    "name <> 'a' AND value < 100",
    "type = 'other' AND number IS NOT NULL",
    "name <=> NULL",
]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A node with values of all sorts under the same names."""
    numbers: list[Any] = [0, 1, 2, 3, 4, 3.5, "3", True, 2**62]
    names: list[Any] = ["a", "b", "bb", 7, "", None]
    values: list[Any] = [1.5, 2, float("nan"), "2", 99.5, -0.0]
    with running(tmp_path_factory.mktemp("node")) as node:
        for at in range(36):
            chosen = {"number": numbers[at % 9], "name": names[at % 6], "value": values[at // 6]}
            attributes = {name: value for name, value in chosen.items() if value is not None}
            node.publish(Event("other" if at % 5 == 0 else "air", attributes, delivery="persistent"))
        yield node


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set(ENABLED, "true")
    yield spark
    spark.conf.unset(ENABLED)


def load(spark: SparkSession, node: Running, **options: str) -> DataFrame:
    return spark.read.format("tidings").schema(COLUMNS).options(node=node.address, **options).load()


def rows(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.collect()))


def test_every_answer_is_the_same_with_and_without(pushing: SparkSession, node: Running) -> None:
    plain, pushed = load(pushing, node).cache(), load(pushing, node, pushdown="true")
    for condition in CONDITIONS:
        assert rows(pushed.where(condition)) == rows(plain.where(condition)), condition
    plain.unpersist()


def test_without_the_setting_of_spark_the_error_names_it(spark: SparkSession, node: Running) -> None:
    with pytest.raises(PySparkException, match="filterPushdown"):
        load(spark, node, pushdown="true").collect()


def test_what_is_handed_over_is_joined_to_the_filter_and_read_no_more(node: Running) -> None:
    options = {"node": node.address, "pushdown": "true", "where": "number IS NOT NULL"}
    reader = TidingsSource(CaseInsensitiveDict(options)).reader(COLUMNS)
    assert isinstance(reader, Pushed)
    conditions = [EqualTo(("type",), "other"), GreaterThan(("number",), 2), IsNull(("name",))]
    assert list(reader.pushFilters(conditions)) == conditions[1:]
    assert reader.where == "number IS NOT NULL AND type = 'other' AND number > 2"
    found = [
        row for piece in reader.partitions() for batch in reader.read(piece) for row in batch.to_pylist()
    ]
    assert found
    assert all(row["type"] == "other" for row in found)
    assert len(found) < 8

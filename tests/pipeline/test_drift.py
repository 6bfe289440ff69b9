"""A sealed folder whose attributes change their kinds in time, read by what knows nothing of tidings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pytest
from pyspark.sql import SparkSession

from tests.log.merging import merge
from tests.log.parting import STORED_US, part_of
from tidings import Event
from tidings.event.values import Value
from tidings.log.segment_folder import Folder

PER_FILE = 20
LARGE = 2**53 + 1
DRIFTS: list[dict[str, Value]] = [
    {"value": 1.5, "count": 7, "Name": "a"},
    {"value": "broken", "count": LARGE, "name": "b"},
    {"value": 2, "count": 0.5, "Name": 4},
    {"value": True, "count": "many", "name": 1.5},
]
"""The attributes of the events of one file after the other."""
SUM = PER_FILE * (1.5 + 2)


@pytest.fixture(scope="module", params=["as sealed", "joined"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("drifting") / "log"
    folder = Folder(place)
    first = 1
    for number, values in enumerate(DRIFTS * 2):
        held = [Event.unchecked(first + n, f"type{number}", STORED_US, dict(values)) for n in range(PER_FILE)]
        folder.write([part_of(held, first)], "n1")
        first += PER_FILE
        if request.param == "joined" and number == len(DRIFTS):
            merge(folder)
    return place


def test_spark_reads_all_types_of_a_folder_whose_kinds_drift(spark: SparkSession, folder: Path) -> None:
    frame = spark.read.option("mergeSchema", "true").parquet(str(folder))
    (row,) = frame.selectExpr(
        "count(DISTINCT type)", "sum(value)", "sum(count)", "count(Name)",
        "count_if(attributes['value'].s = 'broken')", f"count_if(attributes['count'].i = {LARGE})",
    ).collect()  # fmt: skip
    assert tuple(row) == (8, 2 * SUM, 2 * PER_FILE * 7.5, 2 * PER_FILE, 2 * PER_FILE, 2 * PER_FILE)


def test_pandas_reads_all_types_of_a_folder_whose_kinds_drift(folder: Path) -> None:
    frame = pd.read_parquet(folder)
    assert frame["type"].nunique() == 8
    assert frame["value"].sum() == 2 * SUM
    assert frame["count"].sum() == 2 * PER_FILE * 7.5
    told = [dict(one)["value"]["s"] for one in frame["attributes"].dropna() if "value" in dict(one)]
    assert told.count("broken") == 2 * PER_FILE


def test_polars_reads_all_types_of_a_folder_whose_kinds_drift(folder: Path) -> None:
    files = sorted(folder.glob("*/*.parquet"))
    frame = pl.concat([pl.scan_parquet(file) for file in files], how="diagonal").collect()
    assert frame["type"].n_unique() == 8
    assert frame["value"].sum() == 2 * SUM
    assert frame["count"].sum() == 2 * PER_FILE * 7.5
    assert frame["Name"].count() == 2 * PER_FILE


def test_duckdb_reads_all_types_of_a_folder_whose_kinds_drift(folder: Path) -> None:
    files = f"read_parquet('{folder}/*/*.parquet', union_by_name = true)"
    query = f"""SELECT count(DISTINCT type), sum(value), sum(count), count(Name),
        count(CASE WHEN attributes['value'].s = 'broken' THEN 1 END) FROM {files}"""
    assert duckdb.sql(query).fetchall() == [(8, 2 * SUM, 2 * PER_FILE * 7.5, 2 * PER_FILE, 2 * PER_FILE)]

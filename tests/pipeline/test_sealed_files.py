"""Sealed files of the log as Spark reads them by itself, without tidings."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from tests.log.parting import STORED_US, part_of
from tidings import Event
from tidings.event.header import Header
from tidings.ids import Origin
from tidings.log.chunks import FileClaim
from tidings.log.segment_file import date_of, tables_of, write_file

COUNT = 30_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of one date with different columns of their own, and one that is hidden."""
    folder = tmp_path_factory.mktemp("sealed") / f"date={date_of(STORED_US)}"
    folder.mkdir()
    header = Header(delivery="persistent")
    readings = [
        Event.unchecked(n + 1, "air.pm10", STORED_US + n, {"value": n / 4, "sensor": f"s{n % 7}"}, header)
        for n in range(COUNT)
    ]
    alarms = [Event.unchecked(n + 1, "alarm", STORED_US, {"level": n, "date": "today"}) for n in range(10)]
    for first, events in ((1, readings), (COUNT + 1, alarms)):
        claim = FileClaim("abc", first, first + len(events) - 1)
        part = part_of(events, first, Origin("abc", 3, "me"))
        write_file(folder / claim.file_name, tables_of([part]), claim)
    (folder / ".hidden.parquet").write_bytes(b"not finished")
    return folder.parent


def test_the_vectorised_reader_reads_every_column(spark: SparkSession, folder: Path) -> None:
    assert spark.conf.get("spark.sql.parquet.enableVectorizedReader") == "true"
    frame = spark.read.option("mergeSchema", "true").parquet(str(folder))
    (row,) = frame.agg(
        sf.count("*"),
        sf.sum("value"),
        sf.countDistinct("id"),
        sf.max("position"),
        sf.max("counter"),
        sf.sum("level"),
        sf.max("time").cast("double"),
        sf.min("delivery"),
        sf.max("epoch"),
        sf.countDistinct("sensor"),
        sf.max("received"),
        sf.max(sf.element_at("attributes", "date")["s"]),
    ).collect()
    assert row[:6] == (COUNT + 10, sum(range(COUNT)) / 4, COUNT, COUNT + 10, COUNT, 45)
    assert row[6] == pytest.approx((STORED_US + COUNT - 1) / 1e6)
    assert row[7:10] == ("persistent", 3, 7)
    assert row[11] == "today"


def test_the_folder_names_the_date(spark: SparkSession, folder: Path) -> None:
    frame = spark.read.parquet(str(folder))
    assert {str(row["date"]) for row in frame.select("date").distinct().collect()} == {
        str(date_of(STORED_US))
    }


def test_a_range_of_positions_is_read(spark: SparkSession, folder: Path) -> None:
    frame = spark.read.parquet(str(folder)).where("position BETWEEN 101 AND 200 AND type = 'air.pm10'")
    assert min(row["id"] for row in frame.select("id").collect()) == "abc.13.265"
    assert frame.count() == 100

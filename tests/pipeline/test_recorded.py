"""Recorded readings, played into a gateway and kept in the log, are summed up by Spark as by pandas."""

from __future__ import annotations

import gzip
import math
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from effort import IS_SOAK, patience
from pipeline.nodes import Running, running
from pyspark.sql import DataFrame, SparkSession

from tidings.pipeline.city.aggregates import aggregates
from tidings.pipeline.city.readings import SCHEMA, clean, raw, rejected
from tidings.pipeline.city.rules import parse_rules
from tidings.sensors.recording import make_recording

DATA = Path(os.environ.get("TIDINGS_DATA") or Path(__file__).parents[3] / "shared" / "data")
REAL = DATA / "luftdaten-aberdeen-2019-05.csv.gz"
LINES = None if IS_SOAK else 15_000
"""Lines of the real file that are played: all of them take minutes."""
HANGS_S = patience(900.0 if IS_SOAK else 240.0)
SOURCE = Path(__file__).parents[2] / "src"
CELL = 0.05
HIGH = 150.0
RULES = parse_rules(f"cell_size = {CELL}\nwindow_s = 300\n[pm10]\nlow = 0\nhigh = {HIGH}\n")
TYPES = ["pm10", "pm25"]
KEYS = ["start", "type", "cell_x", "cell_y"]

Sums = dict[tuple[Any, ...], tuple[float, ...]]


def readings_of(path: Path) -> pd.DataFrame:
    """All readings of a file, one in a row."""
    lines = pd.read_csv(path)
    rows = lines.melt(["timestamp", "lat", "lon"], TYPES, "type", "value").dropna(subset="value")
    return rows.assign(start=pd.to_datetime(rows.timestamp, utc=True).dt.floor("300s"))


def summed_by_pandas(rows: pd.DataFrame) -> Sums:
    """Count, min, max, mean and stddev of what is believed, by window, type and cell."""
    good = rows[(rows.type != "pm10") | rows.value.between(0, HIGH)]
    # Not `floordiv`: the quotient is what is rounded down, as in Spark.
    cells = {"cell_x": np.floor(good.lon / CELL), "cell_y": np.floor(good.lat / CELL)}
    groups = good.assign(**cells).groupby(KEYS)["value"]
    return _keyed(groups.agg(["count", "min", "max", "mean", "std"]).reset_index())


def summed_by_spark(df: DataFrame) -> Sums:
    """The same, by the pipeline."""
    table = aggregates(clean(raw(df), RULES), RULES).toPandas()
    table["start"] = pd.to_datetime(table["start"], utc=True)
    return _keyed(table[[*KEYS, "count", "min", "max", "mean", "stddev"]])


def _keyed(table: pd.DataFrame) -> Sums:
    rows = table.itertuples(index=False, name=None)
    return {row[: len(KEYS)]: row[len(KEYS) :] for row in rows}


def play(path: Path, node: Running) -> None:
    """Run the command that plays a recording; it ends when the gateway has acknowledged everything."""
    gateway = node.node.sensor_addresses[0].split()[-1]
    command = "from tidings.cli import main; main()"
    arguments = ["sensor", "replay", str(path), "--speed", "0", "--gateway", gateway]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    subprocess.run([sys.executable, "-c", command, *arguments], env=environment, check=True, timeout=HANGS_S)


def check(spark: SparkSession, path: Path, home: Path) -> None:
    """Play a file and compare."""
    rows = readings_of(path)
    with running(home, sensor_port=0, log_where="type LIKE 'pm%'") as node:
        play(path, node)
        df = spark.read.format("tidings").schema(SCHEMA).option("node", node.address).load().cache()
        assert df.count() == len(rows)
        found, refused = summed_by_spark(df), rejected(raw(df), clean(raw(df), RULES), RULES)
        too_high = {row["id"]: row["reason"] for row in refused.collect()}
        df.unpersist()
    assert set(too_high.values()) == {"out of range"}
    assert len(too_high) == ((rows.type == "pm10") & ~rows.value.between(0, HIGH)).sum()
    wanted = summed_by_pandas(rows)
    assert found.keys() == wanted.keys()
    for key, (count, *values) in wanted.items():
        assert found[key][0] == count, key
        for mine, theirs in zip(found[key][1:], values, strict=True):
            assert _is_close(mine, theirs), key


def _is_close(one: float, other: float) -> bool:
    """They are sums of the same numbers, though not in the same order; of one reading there is no stddev."""
    if pd.isna(one) or pd.isna(other):
        return bool(pd.isna(one) and pd.isna(other))
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-6)


@pytest.mark.slow
def test_the_sums_of_a_recording_are_those_of_pandas(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "made.csv.gz"
    assert make_recording(path, seed=5, sensors=12, days=0.5).readings > 5_000
    check(spark, path, tmp_path / "node")


@pytest.mark.slow
def test_the_sums_of_may_2019_are_those_of_pandas(spark: SparkSession, tmp_path: Path) -> None:
    if not REAL.exists():
        pytest.skip("the readings lie beside the project, in TIDINGS_DATA")
    path = tmp_path / "may.csv.gz"
    with gzip.open(REAL, "rt") as lines, gzip.open(path, "wt", compresslevel=1) as part:
        part.writelines(islice(lines, LINES))
    check(spark, path, tmp_path / "node")

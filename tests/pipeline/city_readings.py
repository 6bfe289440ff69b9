"""Readings for tests of the city pipeline, and what plain Python makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from tidings.pipeline.city.readings import SCHEMA
from tidings.pipeline.city.rules import parse_rules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEGIN = datetime(2026, 5, 1, tzinfo=UTC)
RULES = parse_rules("""
window_s = 300
late_s = 60
future_s = 60
cell_size = 100

[default]
silent_s = 900

["air.pm10"]
low = 0
high = 1000
mean_limit = 50
max_limit = 200

[door]
silent_s = 0
""")


class Reading(NamedTuple):
    """One reading; `at` and `came` are seconds after the beginning, `came` None: the source does not say."""

    at: float | None
    value: float | None = 1.0
    type: str | None = "air.pm10"
    network: str | None = "north"
    sensor: str | None = "a"
    posx: float | None = 10.0
    posy: float | None = 20.0
    id: str | None = None
    came: float | None = None
    source: str | None = None


def as_float(number: float | None) -> float | None:
    return None if number is None else float(number)


def moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else BEGIN + timedelta(seconds=seconds)


def frame(spark: SparkSession, readings: Sequence[Reading]) -> DataFrame:
    """Readings as the source `tidings` gives them: each has a position, and an id unless it says another."""
    rows: list[tuple[Any, ...]] = []
    for number, one in enumerate(readings, 1):
        came = one.came if one.came is not None else one.at
        head = (one.id or f"id-{number}", "node", number, one.type, moment(one.at), moment(came), one.source)
        rows.append((*head, one.network, one.sensor, *map(as_float, (one.value, one.posx, one.posy))))
    return spark.createDataFrame(rows, SCHEMA)


def recorded(path: Path) -> pd.DataFrame:
    """The readings of a file that `make_recording` wrote, as the source would give them."""
    lines = pd.read_csv(path, dtype={"sensor": str})
    time = pd.to_datetime(lines["timestamp"], utc=True)
    common = {"node": "node", "time": time, "received": time, "source": None, "sensing-id": lines["sensor"]}
    common |= {"posx": lines["lon"], "posy": lines["lat"]}
    parts = [
        pd.DataFrame({**common, "type": f"air.{name}", "name": name, "value": lines[name]})
        for name in ("pm10", "pm25")
    ]
    whole = pd.concat(parts).dropna(subset=["value"]).sort_values("time", kind="stable", ignore_index=True)
    whole["position"] = whole.index + 1
    whole["id"] = [f"id-{number}" for number in whole["position"]]
    names = ["id", "node", "position", "type", "time", "received", "source", "sensing-id", "name", "value"]
    return whole[[*names, "posx", "posy"]]

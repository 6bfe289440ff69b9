"""The worked examples of flow graphs, over history and as a stream."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pipeline.flow_oracle import Row, frame, moment, rows_of
from pyspark.sql import DataFrame, SparkSession

from tidings.flows import Graph, load
from tidings.pipeline.flow.publishing import PublishedCounts, events_of
from tidings.pipeline.flow.stream import FlowBatches

EXAMPLES = Path(__file__).parents[2] / "examples" / "flows"
DAY_S = 86_400.0


def both_ways(spark: SparkSession, made: Graph, rows: list[Row], folder: Path) -> dict[str, list[Row]]:
    """What the graph publishes of these rows over history, which is what it publishes as a stream."""
    (source,) = made.sources
    frames = made.frames({source.name: frame(spark, rows, made, source.name)})
    streamed: dict[str, dict[object, Row]] = {}

    def deliver(_: int, changed: Mapping[str, DataFrame]) -> PublishedCounts:
        for node in made.published:
            found = rows_of(events_of(node, changed[node.name]))
            keys = [row["subject"] if node.kind == "state" else repr(row) for row in found]
            streamed.setdefault(node.name, {}).update(zip(keys, found, strict=True))
        return PublishedCounts({}, {})

    batches = FlowBatches(made, spark, str(folder), deliver)
    for number, part in enumerate((rows[:3], rows[3:])):
        batches(batches.stream({source.name: frame(spark, part, made, source.name)}), number)
    history = {node.name: rows_of(events_of(node, frames[node.name])) for node in made.published}
    assert history == {name: sorted(found.values(), key=repr) for name, found in streamed.items()}
    return history


def test_the_quotes_give_the_large_trades_and_the_highest_price_of_each_day(
    spark: SparkSession, tmp_path: Path
) -> None:
    def trade(position: int, symbol: str, price: float, volume: int, at: float) -> Row:
        place = {"time": moment(at), "node": "here", "position": position}
        return {**place, "symbol": symbol, "price": price, "volume": volume}

    rows = [
        trade(1, "ACME", 10.0, 5_000, 60.0),
        trade(2, "ACME", 99.0, 10, 120.0),
        trade(3, "GLOB", 7.0, 2_000, 180.0),
        trade(4, "ACME", 12.0, 3_000, 240.0),
        trade(5, "ACME", 11.0, 3_000, DAY_S + 60.0),
    ]
    made = load(EXAMPLES / "quotes.toml")
    found = both_ways(spark, made, rows, tmp_path)
    assert sorted(row["price"] for row in found["large"]) == [7.0, 10.0, 11.0, 12.0]
    assert {row["subject"]: (row["type"], row["high"], row["trades"]) for row in found["high"]} == {
        "ACME/2026-05-01T00:00:00Z": ("quotes.high", 12.0, 2),
        "ACME/2026-05-02T00:00:00Z": ("quotes.high", 11.0, 1),
        "GLOB/2026-05-01T00:00:00Z": ("quotes.high", 7.0, 1),
    }
    program = load(EXAMPLES / "quotes.py")
    assert program.fingerprint == made.fingerprint


def test_the_air_gives_means_by_the_hour_and_the_last_values(spark: SparkSession, tmp_path: Path) -> None:
    def reading(position: int, station: str, value: float, at: float) -> Row:
        place = {"time": moment(at), "node": "here", "position": position}
        return {**place, "type": "air.pm10", "station": station, "value": value}

    rows = [
        reading(1, "a/b", 10.0, 0.0),
        reading(2, "a/b", 60.0, 600.0),
        reading(3, "c", -5.0, 600.0),
        reading(4, "c", 20.0, 3_700.0),
        reading(5, "a/b", 30.0, 3_700.0),
    ]
    found = both_ways(spark, load(EXAMPLES / "air.toml"), rows, tmp_path)
    assert [row["value"] for row in found["high"]] == [60.0]
    assert {row["subject"]: row["mean"] for row in found["hour"]} == {
        "a%2Fb/air.pm10/2026-05-01T00:00:00Z": 35.0,
        "a%2Fb/air.pm10/2026-05-01T01:00:00Z": 30.0,
        "c/air.pm10/2026-05-01T01:00:00Z": 20.0,
    }
    assert {row["subject"]: row["value"] for row in found["now"]} == {
        "a%2Fb/air.pm10": 30.0,
        "c/air.pm10": 20.0,
    }
    assert found["late"] == []

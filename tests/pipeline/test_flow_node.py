"""Flow graphs at a real node: what they publish, once each, whatever ends in between."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest
from effort import ANSWER_S, IS_SOAK, SEED
from pipeline import flow_killed
from pipeline.flow_killed import inputs, quotes, target
from pipeline.flow_oracle import Row, moment, rows_of, worked_off
from pipeline.nodes import Running, running
from pyspark.sql import SparkSession

from tidings import Event, blocking
from tidings.errors import UserError
from tidings.flows import count, first, graph, highest, history, latest, lowest, mean, total
from tidings.pipeline.flow.stored_state import state_rows
from tidings.pipeline.flow.stream import BatchCounts, read_streams, start

ROOT = Path(__file__).parents[2]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "node") as one:
        yield one


def trade(number: int, dice: random.Random) -> Event:
    values = {
        "symbol": dice.choice("AB"),
        "price": float(dice.randrange(100)),
        "volume": dice.randrange(3_000),
    }
    return Event("trade", values, time=moment(number), delivery="persistent")


def run(spark: SparkSession, node: Running, checkpoint: Path) -> dict[int, BatchCounts]:
    """Work off all that is there."""
    address = node.address
    flow = start(quotes(), spark, inputs(spark, address), target(address), str(checkpoint))
    flow.query.awaitTermination(ANSWER_S)
    assert not flow.query.isActive
    return flow.counts


def published(node: Running, type: str) -> list[Event]:
    with blocking.connect(f"tidings://{node.address}") as bus:
        return [event for _, event in bus.log.read(where=f"type = '{type}'")]


def check(node: Running, trades: list[Event]) -> None:
    """What is published is what plain Python makes of these trades, once each."""
    rows: list[Row] = [
        {"time": event.time, "node": "here", "position": number, **event.values}
        for number, event in enumerate(trades)
    ]
    wanted = worked_off(quotes(), {"trades": rows})
    large = [(event.time, event["symbol"], event["price"]) for event in published(node, "quotes.large")]
    assert sorted(large) == sorted((row["time"], row["symbol"], row["price"]) for row in wanted["large"])
    last = {event.subject: event.values for event in published(node, "quotes.high")}
    names = ("symbol", "high", "trades", "amount")
    assert last == {row["symbol"]: {name: row[name] for name in names} for row in wanted["high"]}
    assert published(node, "quotes.late") == []


def test_a_graph_publishes_its_histories_and_the_changes_of_its_states_once(
    spark: SparkSession, node: Running, tmp_path: Path
) -> None:
    dice, checkpoint = random.Random(SEED), tmp_path / "checkpoint"
    trades = [trade(number, dice) for number in range(9)]
    node.publish(*trades[:6])
    counts = run(spark, node, checkpoint)
    large = sum(event["volume"] >= 1_000 for event in trades[:6])
    assert sum(one.rows["trades"] for one in counts.values()) == large  # the node has applied the select
    assert sum(one.published.get("large", 0) for one in counts.values()) == large
    check(node, trades[:6])
    commits = checkpoint / "query" / "commits"
    newest = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    for name in (f"{newest}", f".{newest}.crc"):  # as if the driver had been lost before: Spark repeats it
        (commits / name).unlink()
    node.publish(*trades[6:])
    run(spark, node, checkpoint)
    check(node, trades)
    other = graph("quotes", history("trades", columns={"a": "string"}).collapse("a", n=count()))
    with pytest.raises(UserError, match="has the states of another graph"):
        start(other, spark, {}, None, str(checkpoint))
    rows = state_rows(str(checkpoint), "high").to_pylist()
    assert {row["symbol"]: row["high"] for row in rows} == {
        event.subject: event["high"] for event in published(node, "quotes.high")
    }


def test_a_node_does_the_collapse_with_the_results_that_spark_has(spark: SparkSession, node: Running) -> None:
    rules = {"n": count(), "average": mean("value"), "high": highest("value"), "last": latest("value")}
    readings = history("readings", "type = 'air'", {"station": "string", "value": "double"})
    minute = readings.select("value >= 0").collapse("station", window_s=60.0, **rules).named("minute")
    made = graph("air", minute)
    dice = random.Random(SEED)
    values = [{"station": dice.choice("AB"), "value": dice.uniform(-5, 50)} for _ in range(50)]
    node.publish(
        *[Event("air", one, time=moment(n * 7), delivery="persistent") for n, one in enumerate(values)],
        Event("air", {"value": 1.0}, delivery="persistent"),  # without a key
    )
    (source,) = made.sources
    upstream = source.upstream
    assert upstream is not None
    reader = spark.read.format("tidings").option("node", node.address)
    events = reader.option("where", source.where).schema(source.schema).load()
    options = {"node": node.address, "where": upstream.where, "collapse": upstream.collapse}
    partial = spark.read.format("tidings").options(**options).load()
    by_spark, by_node = made.frames({"readings": events}), made.frames({"readings": partial}, {"readings"})
    assert rows_of(by_node["minute"]) == rows_of(by_spark["minute"])
    assert [row["reason"] for row in rows_of(by_node["late"])] == ["no key"]


def spread_readings(count: int, dice: random.Random) -> list[Event]:
    """Readings of two stations, some without a value or with one that does not fit; no two of one time."""
    made = []
    for number in range(count):
        values: dict[str, Any] = {"station": dice.choice("AB"), "number": dice.randrange(2**60)}
        if dice.random() < 0.9:
            values["value"] = dice.choice([dice.uniform(-50, 50), 2.0**40, float("inf"), "broken", 0.1])
        made.append(Event("air", values, time=moment(number * 0.5), delivery="persistent"))
    dice.shuffle(made)
    return made


def test_several_nodes_each_do_their_part_of_a_collapse_with_the_results_of_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    rules = {"n": count(), "some": count("value"), "sum": total("value"), "numbers": total("number")}
    rules |= {"average": mean("value"), "low": lowest("value"), "high": highest("value")}
    rules |= {"oldest": first("number"), "newest": latest("value")}
    columns = {"station": "string", "value": "double", "number": "bigint"}
    air = history("readings", "type = 'air'", columns)
    made = graph("air", air.collapse("station", window_s=60.0, **rules).named("minute"))
    dice = random.Random(SEED)
    readings = spread_readings(600, dice)
    with ExitStack() as stack:
        one, *several = [stack.enter_context(running(None)) for _ in range(4)]
        one.publish(*readings)
        for node, part in zip(several, (readings[:300], readings[300:310], readings[310:]), strict=True):
            node.publish(*part)
        (source,) = made.sources
        upstream = source.upstream
        assert upstream is not None
        events = spark.read.format("tidings").options(node=one.address, where=source.where)
        place = ",".join(node.address for node in several)
        options = {"node": place, "where": upstream.where, "collapse": upstream.collapse}
        partial = spark.read.format("tidings").options(**options).load()
        wanted = made.frames({"readings": events.schema(source.schema).load()})
        found = made.frames({"readings": partial}, {"readings"})
        assert rows_of(found["minute"]) == rows_of(wanted["minute"])
        # A row for each station and minute that a node has readings of.
        assert partial.count() <= len(several) * wanted["minute"].count() == 3 * 2 * 5


@pytest.mark.parametrize("by_node", [True, False])
def test_values_that_do_not_fit_are_counted_in_each_batch_whoever_collapses(
    spark: SparkSession, node: Running, tmp_path: Path, by_node: bool
) -> None:
    readings = history("readings", "type = 'air'", {"station": "string", "value": "double"})
    high = readings.collapse("station", high=highest("value")).named("high")
    made = graph("air", high) if by_node else graph("air", high.expand())  # which needs the events
    values = [("A", 1.0), ("A", "broken"), ("B", 2**60), (7, 2.0), ("B", 3.0)]
    node.publish(
        *[Event("air", {"station": one, "value": other}, delivery="persistent") for one, other in values]
    )

    def options(where: str, _name: str) -> dict[str, str]:
        return {"node": node.address, "where": where, "startingOffsets": "earliest"}

    read = read_streams(made, spark, options)
    assert read.collapsed == ({"readings"} if by_node else set())
    flow = start(made, spark, read.inputs, None, str(tmp_path / "checkpoint"), collapsed=read.collapsed)
    flow.query.awaitTermination(ANSWER_S)
    assert [one.mismatches for one in flow.counts.values()] == [{"readings": 3}]
    assert [one.late for one in flow.counts.values()] == [{"no key": 1}]


def killed(node: Running, checkpoint: Path, place: str, batch: int) -> None:
    """A driver that kills itself there."""
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT / "tests"), str(ROOT)))
    surroundings: dict[str, Any] = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, flow_killed.__file__, node.address, str(checkpoint), place, str(batch)]
    ended = subprocess.run(command, env=surroundings, timeout=ANSWER_S, check=False, capture_output=True)
    assert ended.returncode == -SIGKILL, ended.stderr.decode()


@pytest.mark.slow
def test_a_killed_driver_leaves_every_result_once(spark: SparkSession, node: Running, tmp_path: Path) -> None:
    dice, checkpoint = random.Random(SEED), tmp_path / "checkpoint"
    trades = [trade(number, dice) for number in range(12)]
    node.publish(*trades)
    killed(node, checkpoint, "state", 0)
    if IS_SOAK:
        killed(node, checkpoint, "published", 0)
        killed(node, checkpoint, "state", 1)
        killed(node, checkpoint, "published", 1)
    run(spark, node, checkpoint)
    check(node, trades)

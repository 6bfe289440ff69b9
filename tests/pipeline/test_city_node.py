"""The city pipeline on a real node: readings in, alarms back, as one query and as a declarative project."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from effort import IS_SOAK, lasting, patience

pytest.importorskip("pyspark")
from pipeline.nodes import Running, running, wait_until

from tidings import Event, blocking
from tidings.pipeline.city.pipeline import CITY
from tidings.pipeline.city.settings import CitySettings
from tidings.pipeline.continuous import ContinuousRun, start
from tidings.pipeline.running import STATE_STORE, BatchProgress, watch
from tidings.pipeline.settings import sink_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
QUOTES = str(ROOT / "examples" / "flows" / "quotes.toml")
"""A pipeline that needs fewer processes of Spark than the city."""
BEGIN = datetime(2026, 5, 1, tzinfo=UTC)
STORE = "spark.sql.streaming.stateStore.providerClass"
RULES = """
cell_size = 1000
window_s = 60
late_s = 10
[default]
silent_s = 300
["air.pm10"]
high = 1000
mean_limit = 50
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "node") as one:
        yield one


@pytest.fixture
def rules(tmp_path: Path) -> str:
    (tmp_path / "rules.toml").write_text(RULES)
    return str(tmp_path / "rules.toml")


def reading(at_s: float, value: float, sensor: str = "a") -> Event:
    """As a gateway would publish it."""
    attributes = {"sensing-id": "north", "name": sensor, "value": value, "posx": 1500.0, "posy": 200.0}
    time = BEGIN + timedelta(seconds=at_s)
    return Event("air.pm10", attributes, time=time, delivery="persistent")


def trade(price: float) -> Event:
    """For the other pipeline."""
    attributes = {"symbol": "A", "price": price, "volume": 5_000}
    return Event("trade", attributes, time=BEGIN, delivery="persistent")


def minutes(first: int, last: int, value: float, sensor: str = "a") -> list[Event]:
    return [reading(60.0 * minute, value, sensor) for minute in range(first, last)]


def alarms(node: Running) -> Counter[tuple[str, Any, Any]]:
    """Type, value and sensor of all alarms that are in the log."""
    with blocking.connect(f"tidings://{node.address}") as bus:
        found = [event for _, event in bus.log.read(where="type LIKE 'alarm.%'")]
    for event in found:
        assert event["about"] == "air.pm10"
        assert (event["posx"], event["posy"]) in ((1500.0, 500.0), (1500.0, 200.0))
    return Counter((one.type, one.attributes.get("value"), one.attributes.get("sensor")) for one in found)


def test_readings_of_a_node_come_back_as_alarms_and_the_reader_leaves(
    spark: SparkSession, node: Running, rules: str, tmp_path: Path
) -> None:
    spark.conf.set(STORE, STATE_STORE)
    node.publish(*minutes(0, 3, 60.0), *minutes(3, 10, 10.0, "b"), reading(300, 5000.0))
    settings = CitySettings(node=node.address, rules=rules, starting="earliest", silent_by="time")
    stop, seen = threading.Event(), []

    def tell(progress: BatchProgress) -> None:
        seen.append(progress)
        if sum(one.published["alarms"] for one in seen) >= 3:
            stop.set()

    plan = CITY.plan(settings, "query")
    run = ContinuousRun(pipeline=CITY, settings=settings, trigger_s=0)
    query, _ = start(spark, run, str(tmp_path / "notes"))
    total = watch(query, tell, stop, plan)
    spark.conf.unset(STORE)
    assert (total.rows, total.rejected) == (11, {"out of range": 1})
    assert alarms(node) == {("alarm.mean", 60.0, None): 3}
    wait_until(lambda: node.readers == [])


def test_the_sink_has_the_same_name_for_the_same_checkpoint_and_else_a_new_one(tmp_path: Path) -> None:
    name = sink_name("city", str(tmp_path))
    assert name == sink_name("city", f"{tmp_path}/x/..") != sink_name("city", "hdfs://host/city")
    assert sink_name("city", None) != sink_name("city", None)


# -- as real processes


def command(*arguments: str, pipeline: str = "city") -> subprocess.Popen[str]:
    """`tidings pipeline run` in a process of its own."""
    code = "from tidings.cli import main; main()"
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.Popen(
        [sys.executable, "-c", code, "pipeline", "run", pipeline, *arguments, "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "pipeline", ["city", QUOTES] if IS_SOAK else [QUOTES], ids=lambda path: Path(path).stem
)
def test_a_query_that_is_told_to_end_says_goodbye_to_the_node(node: Running, pipeline: str) -> None:
    arguments = ("--continuous", "--node", node.address, "--trigger", "1 s")
    with command(*arguments, pipeline=pipeline) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline()) == {"state": "running"}
            wait_until(lambda: len(node.readers) == 1)
            node.publish(*minutes(0, 3, 60.0), *(trade(price) for price in (1.0, 2.0, 3.0)))
            rows = 0
            while rows < 3:
                rows += json.loads(process.stdout.readline())["rows"]
            process.send_signal(signal.SIGTERM)
            told = process.stdout.read().splitlines()
            assert process.wait(patience(120)) == 0
        finally:
            process.kill()
    assert json.loads(told[-1])["state"] == "stopped"
    assert json.loads(told[-1])["rows"] == 3
    assert node.readers == []


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[tuple[str, ...]]:
    """Where the project runs: on the Spark that tests share, and in the long run on one of its own."""
    if IS_SOAK:
        yield ()
        return
    spark: SparkSession = request.getfixturevalue("spark")
    yield "--master", request.getfixturevalue("server")
    for table in spark.sql("SHOW TABLES").where("NOT isTemporary").collect():
        spark.sql(f"DROP TABLE {table.tableName}")


@pytest.mark.slow
@pytest.mark.timeout(lasting(900))
def test_the_declarative_project_goes_on_where_the_last_run_ended(
    node: Running, rules: str, place: tuple[str, ...], tmp_path: Path
) -> None:
    def run() -> dict[str, Any]:
        folder = str(tmp_path / "tables")
        with command("--node", node.address, "--rules", rules, "--checkpoint", folder, *place) as process:
            output, _ = process.communicate(timeout=patience(600))
        assert process.returncode == 0, output
        return dict(json.loads(output.splitlines()[-1]))

    node.publish(*minutes(0, 3, 60.0), *minutes(3, 10, 10.0, "b"), reading(300, 5000.0))
    first = run()
    assert (first["raw"], first["clean"], first["rejected"]) == (11, 10, {"out of range": 1})
    assert first["aggregates"] == 10
    assert alarms(node) == {("alarm.mean", 60.0, None): 3}
    node.publish(*minutes(10, 13, 70.0, "b"), reading(180, -1.0))
    second = run()
    assert (second["raw"], second["clean"]) == (15, 14)
    assert second["alarms"] == {"alarm.mean": 4, "alarm.silent": 1}
    assert alarms(node) == {
        ("alarm.mean", 60.0, None): 3,
        ("alarm.mean", 70.0, None): 1,  # the window of the last minutes is still open
        ("alarm.silent", None, "a"): 1,
    }

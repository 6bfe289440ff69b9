"""Graphs on a real node: as one query, and the changes of tables that each run makes anew."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cli.commands import run_command
from effort import IS_SOAK, SEED, lasting, patience

pytest.importorskip("pyspark")
from pipeline.flow_oracle import Row, sorted_rows, worked_off
from pipeline.nodes import Running, running, wait_until
from pipeline.random_graphs import some_graph, some_rows, toml_of

from tidings import Event, blocking
from tidings.errors import UserError
from tidings.flows import Graph, load
from tidings.pipeline import declarative
from tidings.pipeline.continuous import ContinuousRun, start
from tidings.pipeline.declarative import DONE, ROWS, DeclarativeRun, TableChanges, run_once
from tidings.pipeline.known import find, plan_of
from tidings.pipeline.plan import Step
from tidings.pipeline.running import BatchProgress, watch
from tidings.pipeline.settings import RunSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
BEGIN = datetime(2026, 5, 1, tzinfo=UTC)
QUOTES = """
[history.trades]
columns = { symbol = "string", price = "double", volume = "bigint" }

[history.large]
from = "trades"
select = "volume > 1000"
publish = "quotes.large"

[state.high]
from = "large"
by = "symbol"
collapse = { high = "highest(price)" }
publish = "quotes.high"
"""
RANDOM_GRAPHS = 3
"""Random graphs in a long run; each takes two runs of half a minute."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "node") as one:
        yield one


@pytest.fixture
def quotes(tmp_path: Path) -> str:
    (tmp_path / "quotes.toml").write_text(QUOTES)
    return str(tmp_path / "quotes.toml")


def trade(symbol: str | None, price: float, volume: int = 5000, type: str = "trades") -> Event:
    attributes = {"symbol": symbol, "price": price, "volume": volume}
    known = {name: value for name, value in attributes.items() if value is not None}
    return Event(type, known, time=BEGIN, delivery="persistent")


def published(node: Running, type: str) -> list[tuple[str | None, Any]]:
    """Subject and highest price of all events of a type in the log."""
    with blocking.connect(f"tidings://{node.address}") as bus:
        found = [event for _, event in bus.log.read(where=f"type = '{type}'")]
    return [(event.subject, event.attributes.get("high")) for event in found]


def test_a_graph_of_a_file_runs_as_one_query_and_its_state_is_shown(
    spark: SparkSession, node: Running, quotes: str, tmp_path: Path
) -> None:
    node.publish(trade("A", 1.0), trade("B", 2.0), trade("A", 9.0, 10), trade(None, 5.0))
    pipeline, stop, seen = find(quotes), threading.Event(), list[BatchProgress]()
    settings = RunSettings(pipeline="quotes", node=node.address, starting="earliest")
    plan = pipeline.plan(settings, "query")
    home = str(tmp_path / "checkpoint")
    run = ContinuousRun(pipeline=pipeline, settings=settings, checkpoint=home, trigger_s=0)

    def tell(progress: BatchProgress) -> None:
        seen.append(progress)
        if progress.rows and sum(one.rows for one in seen) == 3:  # not for a batch without rows after that
            node.publish(trade("A", 3.0))
        if sum(one.rows for one in seen) >= 4:
            stop.set()

    query, counts = start(spark, run, str(tmp_path))
    total = watch(query, tell, stop, plan, counts)
    assert (total.rows, total.rejected) == (4, {"no key": 1})  # the small trade is not read at all
    assert total.published == {"large": 4, "high": 3, "late": 1}
    assert sorted(published(node, "quotes.high"), key=str) == [("A", 1.0), ("A", 3.0), ("B", 2.0)]
    line = pipeline.report.line(seen[0])
    assert line.startswith("batch 0 · 3 trades · ")
    assert line.endswith("rejected: 1 no key")
    wait_until(lambda: node.readers == [])
    code, output, _ = run_command("pipeline", "state", quotes, "--checkpoint", home)
    assert (code, output.splitlines()[0]) == (0, "high: 2 rows")
    assert [line.split()[::2] for line in output.splitlines()[2:]] == [["A", "3.0"], ["B", "2.0"]]
    code, output, _ = run_command("pipeline", "state", quotes, "high", "--node", node.address, "--json")
    assert (code, '"subject":"A"' in output, output.count("\n")) == (0, True, 2)
    assert "has no state 'low'; there is high" in run_command("pipeline", "state", quotes, "low")[2]
    assert "has no state 'high'" in run_command("pipeline", "state", quotes, "--checkpoint", quotes)[2]


def test_a_source_that_is_published_is_a_table_of_what_is_read(quotes: str) -> None:
    published = "publish = 'quotes.trades'\n[history.large]"
    Path(quotes).write_text(QUOTES.replace("[history.large]", published, 1))
    plan = plan_of(load(quotes), "tables")
    assert [source.name for source in plan.sources] == ["trades_read"]
    assert [(step.name, step.after) for step in plan.steps][:2] == [
        ("trades", ("trades_read",)),
        ("large", ("trades",)),
    ]


def test_a_plan_over_history_makes_what_its_graph_does(
    spark: SparkSession, quotes: str, tmp_path: Path
) -> None:
    Path(quotes).write_text(f"{QUOTES}\n[history.highs]\nfrom = 'high'\nexpand = true\n")
    graph = load(quotes)
    rows = [("A", 1.0, 5000), ("B", 2.0, 4000), ("A", 9.0, 10), ("A", 3.0, 2000), (None, 1.0, 2000)]
    places = [(f"2026-05-01 00:00:0{number}", "n", number, *row) for number, row in enumerate(rows)]
    df = spark.createDataFrame(
        places, "t string, node string, position long, symbol string, price double, volume long"
    )
    df = df.selectExpr("cast(t as timestamp) as time", "node", "position", "symbol", "price", "volume")
    inputs = {"trades": df}
    expected = graph.frames(inputs)
    found = dict(inputs)
    for step in plan_of(graph, "history").steps:
        found[step.name] = step.make(*(found[name] for name in step.after))
    for name in ("large", "high", "highs", "late"):
        assert sorted(map(str, found[name].collect())) == sorted(map(str, expected[name].collect())), name
        assert found[name].count() > 0


def test_what_is_made_from_a_state_is_made_anew_in_each_run(quotes: str) -> None:
    highs = "[history.highs]\nfrom = 'high'\nexpand = true\n"
    dear = "[history.dear]\nfrom = 'highs'\nselect = 'high > 9'\n"
    Path(quotes).write_text(f"{QUOTES}\n{highs}\n{dear}")
    steps = plan_of(load(quotes), "tables").steps
    assert {step.name: step.is_recomputed for step in steps} == {
        "large": False,
        "high": True,
        "highs": True,
        "dear": True,
        "late": True,
    }
    assert {step.name: step.after for step in steps}["highs"] == ("large",)


def tables(node: Running, path: str, home: Path) -> dict[str, int]:
    """Rows in the tables after a run of the declarative project of a graph."""
    code = "from tidings.cli import main; main()"
    typed = ("pipeline", "run", path, "--node", node.address, "--checkpoint", str(home), "--json")
    typed += ("--conf", "spark.sql.codegen.wholeStage=false", "--conf", "spark.sql.shuffle.partitions=2")
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", code, *typed],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(600),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1])["tables"])


def states(path: str, home: Path) -> list[dict[str, Any]]:
    """Rows of the states in the tables, as the command prints them."""
    code, output, _ = run_command("pipeline", "state", path, "--checkpoint", str(home), "--json")
    assert code == 0
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(lasting(900))
def test_the_declarative_project_of_a_graph_publishes_its_states_too(node: Running, tmp_path: Path) -> None:
    path, home = str(ROOT / "examples" / "flows" / "quotes.toml"), tmp_path / "tables"
    node.publish(*(trade(*one, type="trade") for one in (("A", 1.0), ("B", 2.0), ("A", 9.0, 10), ("A", 3.0))))
    assert tables(node, path, home) == {"large": 3, "high": 2, "late": 0}
    assert sorted(high for _, high in published(node, "quotes.high")) == [2.0, 3.0]
    assert {row["symbol"]: row["high"] for row in states(path, home)} == {"A": 3.0, "B": 2.0}
    if IS_SOAK:
        node.publish(trade("B", 5.0, type="trade"))
        assert tables(node, path, home) == {"large": 4, "high": 2, "late": 0}
        assert sorted(high for _, high in published(node, "quotes.high")) == [2.0, 3.0, 5.0]
        for number in range(RANDOM_GRAPHS):
            check_some_graph(node, tmp_path / f"g{number}", random.Random(SEED + number))


def check_some_graph(node: Running, home: Path, dice: random.Random) -> None:
    """The tables of a random graph are those of plain Python, after each of two runs."""
    home.mkdir()
    path = home / "graph.toml"
    path.write_text(toml_of(some_graph(dice, late_s=100.0), home.name))
    made, rows = load(path), some_rows(dice, 40, spread_s=300.0)
    names = [source.name for source in made.sources]
    inputs: dict[str, list[Row]] = {name: [] for name in names}
    for some in (rows[:20], rows[20:]):
        for row in some:
            name = names[row["position"] % len(names)]
            values = {key: row[key] for key in ("symbol", "price", "volume") if row[key] is not None}
            node.publish(Event(f"{home.name}.{name}", values, time=row["time"], delivery="persistent"))
            inputs[name].append(row)
        found, wanted = tables(node, str(path), home / "tables"), worked_off(made, inputs)
        assert {name: found[name] for name in wanted if name in found} == {
            name: len(rows) for name, rows in wanted.items() if name in found
        }
        told: dict[str, list[Row]] = {node.name: [] for node in made.nodes if node.kind == "state"}
        for row in states(str(path), home / "tables"):
            told[row.pop("state")].append({name: _timed(cell) for name, cell in row.items()})
        expected = {name: sorted_rows(wanted[name]) for name in told}
        assert {name: sorted_rows(rows) for name, rows in told.items()} == expected, path.read_text()
        check_published(node, made, wanted)


def check_published(node: Running, made: Graph, wanted: Mapping[str, Sequence[Row]]) -> None:
    """Each row of a published history is published once, and the last event of a key is its row."""
    with blocking.connect(f"tidings://{node.address}") as bus:
        for one in made.published:
            events = [event for _, event in bus.log.read(where=f"type = '{one.published}'")]
            if one.kind == "state":
                last = {event.subject: event for event in events}
                assert len(last) == len(wanted[one.name]), one.name
            elif one.name in wanted and not is_recomputed(made, one.name):
                assert len(events) == len(wanted[one.name]), one.name


def is_recomputed(made: Graph, name: str) -> bool:
    return {step.name: step.is_recomputed for step in plan_of(made, "tables").steps}[name]


def _timed(cell: Any) -> Any:
    """A cell in JSON as it is in a row; texts of these rows are no times."""
    is_time = isinstance(cell, str) and cell[:2] == "20"
    return datetime.fromisoformat(cell) if is_time else cell


def declarative_run(path: str, home: Path) -> DeclarativeRun:
    pipeline, folder = find(path), str(home / "tables")
    return DeclarativeRun(pipeline=pipeline, settings=pipeline.settings, folder=folder, master="local[1]")


def test_the_server_of_a_declarative_run_listens_on_this_machine_only(
    quotes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config: dict[str, str] = {}

    class Started(Exception):
        """Spark would be started."""

    def note(_master: str, _name: str, **given: str) -> None:
        config.update(given)
        raise Started

    monkeypatch.setattr(declarative, "spark_session", note)
    monkeypatch.setattr(declarative, "_check_port", lambda: None)
    with pytest.raises(Started):
        run_once(declarative_run(quotes, tmp_path), print)
    assert config["spark.connect.grpc.binding.address"] == "127.0.0.1"


def test_a_declarative_run_beside_another_one_is_refused_whenever_that_began(
    quotes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bind(_master: str, _name: str, **_: str) -> None:
        raise OSError("java.net.BindException: … for the service 'org.apache.spark…SparkConnectService'")

    with socket.create_server(("127.0.0.1", 0)) as other:
        monkeypatch.setattr(declarative, "CONNECT_PORT", other.getsockname()[1])
        with pytest.raises(UserError, match="in use, perhaps by another declarative pipeline"):
            run_once(declarative_run(quotes, tmp_path), print)
    monkeypatch.setattr(declarative, "spark_session", bind)
    with pytest.raises(UserError, match="in use, perhaps by another declarative pipeline"):
        run_once(declarative_run(quotes, tmp_path), print)


class Interrupted(Exception):
    """The run ends before the rows are published."""


def test_changes_of_a_table_are_published_once_whatever_interrupts_a_run(
    spark: SparkSession, node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Step(name="changing", after=(), make=lambda: None, kind="state", is_published=True)
    target = {"node": node.address, "sink": "changing", "type": "changing"}

    def run(**prices: float) -> int:
        rows = spark.createDataFrame(list(prices.items()), "subject string, high double")
        rows.createOrReplaceTempView("changing")
        return TableChanges(spark, step, target).publish()

    def interrupt(_: TableChanges, job: str) -> int:
        raise Interrupted(job)

    try:
        assert (run(a=1.0, b=2.0), run(a=1.0, b=2.0), run(a=1.0, b=3.0)) == (2, 0, 1)
        with monkeypatch.context() as patched:
            patched.setattr(TableChanges, "_carry_out", interrupt)
            with pytest.raises(Interrupted):
                run(a=4.0, b=3.0)
        assert run(a=4.0, b=3.0, c=1.0) == 1
        spark.sql(f"DROP TABLE {DONE.format('changing')}")  # as if no run had noted what it published
        assert run(a=4.0, b=3.0, c=1.0) == 0
    finally:
        for table in (ROWS, DONE):
            spark.sql(f"DROP TABLE IF EXISTS {table.format('changing')}")
        spark.catalog.dropTempView("changing")
    assert sorted(published(node, "changing"), key=str) == [
        ("a", 1.0),
        ("a", 4.0),
        ("b", 2.0),
        ("b", 3.0),
        ("c", 1.0),
    ]

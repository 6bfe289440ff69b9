"""Flow graphs as continuous queries: the same as over history, however the batches are cut."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from effort import SEED, often
from pipeline.flow_oracle import (
    LateRow,
    Row,
    frame,
    moment,
    rows_of,
    sorted_rows,
    streamed_off,
    worked_off,
)
from pipeline.random_graphs import some_graph, some_rows
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own examples call it

from tidings.errors import FlowError, UserError
from tidings.flows import Graph, History, count, graph, highest, history, latest, mean, merge, total
from tidings.pipeline.flow import stream
from tidings.pipeline.flow.edges import Collapse, Expand, Merge, Read, Select, Transform
from tidings.pipeline.flow.frames import collapsing_of, together
from tidings.pipeline.flow.publishing import PublishedCounts, event_columns, groups
from tidings.pipeline.flow.stored_state import state_rows
from tidings.pipeline.flow.stream import FlowBatches, read_streams

COLUMNS = {"symbol": "string", "price": "double", "volume": "bigint"}
LATE_S = 100.0


@pytest.fixture(autouse=True, scope="module")
def quick(spark: SparkSession) -> Iterator[None]:
    """For a few rows it takes longest to plan again and again, and to compile."""
    settings = {"spark.sql.adaptive.enabled": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, old in before.items():
        spark.conf.set(name, old or "")


class Collected:
    """The results of all batches: rows of histories, and the last row of each key of states."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.rows: dict[str, dict[int, list[Row]]] = {}

    def __call__(self, batch: int, frames: Mapping[str, DataFrame]) -> PublishedCounts:
        for node in self._graph.nodes:
            if not isinstance(node.edge, Read | Select | Transform | Merge):
                self.rows.setdefault(node.name, {})[batch] = rows_of(frames[node.name])
        late = Counter(row["reason"] for row in self.rows["late"][batch])
        return PublishedCounts({}, dict(late))

    def all(self, name: str) -> list[Row]:
        batches = self.rows[name]
        rows = [row for batch in sorted(batches) for row in batches[batch]]
        by = self._graph[name].by
        if by:
            rows = list({tuple(row[one] for one in by): row for row in rows}.values())
        return sorted_rows(rows)


def streamed(
    spark: SparkSession,
    made: Graph,
    cuts: Sequence[Sequence[Row] | Mapping[str, Sequence[Row]]],
    checkpoint: Path,
    again: int | None = None,
) -> tuple[Collected, FlowBatches]:
    """The batches of a query one after the other; batch `again` is repeated by another driver.

    A batch has the rows of `trades`, or of each source by its name.
    """
    collected = Collected(made)
    batches = FlowBatches(made, spark, str(checkpoint), collected)
    for number, rows in enumerate(cuts):
        inputs = rows if isinstance(rows, Mapping) else {"trades": rows}
        df = batches.stream({name: frame(spark, own, made, name) for name, own in inputs.items()})
        batches(df, number)
        if number == again:
            batches = FlowBatches(made, spark, str(checkpoint), collected)
            batches(df, number)
    return collected, batches


def trades() -> History:
    return history("trades", columns=COLUMNS)


def random_trades(dice: random.Random, number: int, spread_s: float) -> list[Row]:
    """Trades in the order of their positions, with times that go up and down by so much."""
    return [
        {
            "time": moment(position * 10 + dice.uniform(-spread_s, spread_s)),
            "node": "here",
            "position": position,
            "symbol": dice.choice("ABCD"),
            "price": dice.choice([None, round(dice.uniform(0, 100), 2)]),
            "volume": dice.choice([None, dice.randrange(3_000)]),
        }
        for position in range(number)
    ]


def cut(dice: random.Random, rows: Sequence[Row], number: int) -> list[list[Row]]:
    places = sorted(dice.randrange(len(rows) + 1) for _ in range(number - 1))
    return [list(rows[a:b]) for a, b in zip([0, *places], [*places, len(rows)], strict=True)]


def without_time(rows: Sequence[Row]) -> list[Row]:
    return sorted_rows([{name: cell for name, cell in row.items() if name != "time"} for row in rows])


RULES: dict[str, Any] = {
    "rows": count(),
    "high": highest("price"),
    "last": latest("price"),
    "amount": total("price"),
    "average": mean("volume"),
    "name": highest("symbol"),
}


def by_source(made: Graph, rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each source: they take turns."""
    names = [source.name for source in made.sources]
    return {name: [row for row in rows if names[row["position"] % len(names)] == name] for name in names}


def check_random(spark: SparkSession, number: int, spread_s: float, folder: Path) -> list[LateRow]:
    """Spark gives for a random graph what plain Python gives, over history and in batches; return late rows.

    A stream is history but for the rows in `late`.
    """
    dice = random.Random(SEED + number)
    made, rows = some_graph(dice, LATE_S), some_rows(dice, 24, spread_s)
    cuts = [by_source(made, one) for one in cut(dice, rows, 2)]
    worked, history = streamed_off(made, cuts), worked_off(made, by_source(made, rows))
    gone = [late for late in worked.late if late.reason != "no key"]
    apart = worked_off(made, by_source(made, rows), gone)
    assert {name: sorted_rows(rows) for name, rows in apart.items()} == {
        name: sorted_rows(rows) for name, rows in worked.rows.items()
    }
    frames = made.frames({name: frame(spark, own, made, name) for name, own in by_source(made, rows).items()})
    collected, _ = streamed(spark, made, cuts, folder, dice.randrange(2))
    for node in made.nodes:
        name = node.name
        if isinstance(node.edge, Expand):
            assert rows_of(frames[name]) == sorted_rows(history[name]), (number, name)
            assert collected.all(name) == sorted_rows(worked.rows[name]), (number, name)
        elif isinstance(node.edge, Collapse):
            assert rows_of(frames[name]) == sorted_rows(history[name]), (number, name)
            assert without_time(collected.all(name)) == without_time(worked.rows[name]), (number, name)
            kept = stored(folder, name) if worked.rows[name] else []
            is_whole = node.edge.window_s is None or node.edge.late_s is None
            assert all(row in without_time(worked.rows[name]) for row in kept), (number, name)
            assert not is_whole or kept == without_time(worked.rows[name]), (number, name)
    found = [(row["edge"], row["reason"], row["position"]) for row in collected.all("late")]
    assert sorted(found) == sorted((one.edge, one.reason, one.row["position"]) for one in worked.late)
    return worked.late


def test_a_stream_gives_what_history_gives_however_it_is_cut(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(often(1)):
        late = check_random(spark, number, LATE_S * 0.7 / 2 - 1, tmp_path / str(number))
        assert "late" not in {one.reason for one in late}


def test_a_stream_differs_from_history_by_its_late_rows_alone(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(often(1)):
        check_random(spark, 1_000 + number, 3 * LATE_S, tmp_path / str(number))


def stored(checkpoint: Path, name: str) -> list[Row]:
    """The stored state, as `tidings pipeline state` reads it, without the times of its rows."""
    return without_time(state_rows(str(checkpoint), name).to_pylist())


def test_a_late_event_is_in_the_history_late_and_nowhere_else(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(often(1)):
        dice, folder = random.Random(SEED + 100 + number), tmp_path / str(number)
        rows = random_trades(dice, 40, spread_s=3 * LATE_S)
        cuts = [rows[:25], rows[25:]]
        made = minutes()
        collected, batches = streamed(spark, made, cuts, folder / "events")
        late = collected.all("late")
        assert {(row["edge"], row["reason"]) for row in late} == {("minute", "late")}
        assert sum(one.late.get("late", 0) for one in batches.counts.values()) == len(late)
        (worked, wanted_late) = streamed_off(made, [{"trades": one} for one in cuts])
        wanted = worked["minute"]
        assert len(wanted_late) == len(late)
        assert without_time(collected.all("minute")) == without_time(wanted)
        assert state_rows(str(folder / "events"), "minute").num_rows < len(wanted)  # closed windows are gone
        by_nodes = streamed_by_nodes(spark, made, cuts, folder / "nodes")
        assert by_nodes.all("minute") == collected.all("minute")
        assert 0 < len(by_nodes.all("late")) <= len(late)


def minutes() -> Graph:
    """A collapse by the minute, which nodes can do."""
    rules = {name: rule for name, rule in RULES.items() if name != "name"}
    return graph("g", trades().collapse("symbol", window_s=60.0, late_s=LATE_S, **rules).named("minute"))


def streamed_by_nodes(
    spark: SparkSession, made: Graph, cuts: Sequence[Sequence[Row]], checkpoint: Path
) -> Collected:
    """The same if two nodes have collapsed the rows of each batch."""
    collected = Collected(made)
    batches = FlowBatches(made, spark, str(checkpoint), collected, collapsed={"trades"})
    for number, rows in enumerate(cuts):
        batches(batches.stream({"trades": partial_rows(spark, made, rows, 2)}), number)
    return collected


def partial_rows(spark: SparkSession, made: Graph, rows: Sequence[Row], pieces: int) -> DataFrame:
    """The rows as nodes collapse them, in so many pieces."""
    collapsing = collapsing_of(made, made["minute"])
    names = dict(zip(collapsing.keys, ("symbol", "start"), strict=True))
    place = F.min("n").alias("node"), F.min("s").alias("s")
    lifted = [collapsing.lifted(frame(spark, rows[number::pieces], made)) for number in range(pieces)]
    return together([collapsing.merged(one, *place) for one in lifted]).withColumnsRenamed(names)


def test_keys_past_the_limit_are_in_the_history_late(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        {**row, "symbol": f"S{number // 2}"}
        for number, row in enumerate(random_trades(random.Random(1), 12, 1))
    ]
    state = trades().collapse("symbol", keys_max=4, n=count()).named("state")
    made = graph("g", state, state.expand().named("changes"))
    collected, batches = streamed(spark, made, [rows[:5], rows[5:]], tmp_path)
    assert {row["symbol"]: row["n"] for row in collected.all("state")} == {f"S{n}": 2 for n in range(4)}
    assert {(row["position"], row["reason"]) for row in collected.all("late")} == {
        (position, "too many keys") for position in range(8, 12)
    }
    assert sorted(row["position"] for row in collected.all("changes")) == list(range(8))
    assert batches.counts[1].late == {"too many keys": 4}
    assert batches.counts[1].rows == {"trades": 7}


def test_sources_and_functions_are_one_stream(spark: SparkSession, tmp_path: Path) -> None:
    one, other = trades(), history("offers", columns=COLUMNS)
    columns = {"time": "timestamp", "node": "string", "position": "bigint", **COLUMNS}
    doubled = other.select("price >= 1").transform(
        lambda df: df.withColumn("price", F.col("price") * 2), columns
    )
    state = merge(one, doubled.named("doubled")).collapse("symbol", high=highest("price")).named("high")
    made = graph("g", state)
    collected = Collected(made)
    batches = FlowBatches(made, spark, str(tmp_path), collected)
    rows = random_trades(random.Random(1), 4, 1.0)
    rows = [{**row, "symbol": "A", "price": float(row["position"])} for row in rows]
    inputs = {name: frame(spark, rows, made, name) for name in ("trades", "offers")}
    batches(batches.stream(inputs), 0)
    assert [row["high"] for row in collected.all("high")] == [6.0]
    assert batches.counts[0].rows == {"trades": 4, "doubled": 3}


def test_a_source_is_read_as_partial_rows_unless_its_filter_is_replaced(spark: SparkSession) -> None:
    made = minutes()

    def options(where: str, _name: str) -> dict[str, str]:
        return {"node": "127.0.0.1:1", "where": where}

    streams = read_streams(made, spark, options)
    assert streams.collapsed == {"trades"}
    assert streams.inputs["trades"].columns[:4] == ["symbol", "start", "node", "p0"]
    assert FlowBatches(made, spark, "", Collected(made), streams.collapsed).stream(streams.inputs).isStreaming
    replaced = read_streams(made, spark, lambda where, name: {**options(where, name), "where": "TRUE"})
    assert replaced.collapsed == frozenset()
    assert replaced.inputs["trades"].columns == [*made["trades"].columns, "mismatches"]


def test_spark_connect_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "is_remote", lambda: True)
    with pytest.raises(UserError, match="no graph runs continuously on Spark Connect"):
        stream.start(minutes(), spark, {}, None, str(tmp_path))


def test_an_expand_over_several_nodes_is_refused_unless_they_are_in_the_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = random_trades(random.Random(1), 4, 1.0)
    both = [*rows, {**rows[0], "node": "there"}]
    made = graph("g", trades().collapse("symbol", n=count()).expand())
    with pytest.raises(FlowError, match=r"needs the events of one node, .* not of here, there"):
        streamed(spark, made, [both], tmp_path / "refused")
    apart = graph("g", trades().collapse(("symbol", "node"), n=count()).expand().named("apart"))
    collected, _ = streamed(spark, apart, [both], tmp_path / "apart")
    assert {row["node"] for row in collected.all("apart")} == {"here", "there"}


def test_nodes_with_columns_of_different_types_are_published_apart(spark: SparkSession) -> None:
    one = trades()
    texts = one.transform(price="symbol").named("texts").published("g.texts")
    sums = one.collapse("symbol", n=count()).named("sums").published("g.sums")
    made = graph("g", one.select("price >= 1").named("some").published("g.some"), texts, sums)
    assert [[node.name for node in group] for group in groups(made.published)] == [
        ["some", "sums", "late"],
        ["texts"],
    ]
    assert list(event_columns(made["sums"])) == ["type", "subject", "symbol", "time", "n"]
    assert list(event_columns(made["late"])) == ["type", "time", "edge", "reason", "row"]

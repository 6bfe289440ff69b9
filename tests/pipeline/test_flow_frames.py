"""Flow graphs over history, on Spark, against the same graphs in plain Python."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pipeline.flow_oracle import Row, frame, moment, rows_of, sorted_rows, worked_off
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own examples call it

from tidings.errors import FlowError
from tidings.flows import (
    Graph,
    History,
    count,
    first,
    graph,
    highest,
    history,
    join,
    latest,
    lowest,
    mean,
    merge,
    total,
)

COLUMNS = {"symbol": "string", "price": "double", "volume": "bigint"}
RULES = {
    "rows": count(),
    "prices": count("price"),
    "low": lowest("price"),
    "high": highest("price"),
    "last": latest("price"),
    "opened": first("price"),
    "amount": total("price"),
    "number": total("volume"),
    "average": mean("price"),
    "size": mean("volume"),
    "name": highest("symbol"),
}


def trade(position: int, symbol: str | None, price: float | None, volume: int | None, at: float) -> Row:
    place = {"time": moment(at), "node": "here", "position": position}
    return {**place, "symbol": symbol, "price": price, "volume": volume}


TRADES = [
    trade(1, "A", 10.1, 500, 0.0),
    trade(2, "A", 10.2, 2_000, 30.0),
    trade(3, "B", 3.5, None, 20.0),
    trade(4, "A", None, 1_500, 90.0),
    trade(5, "A", 9.3, 1_200, 70.0),
    trade(6, "B", 0.1, 4_000, 61.5),
    trade(7, "C", None, None, -5.0),
]


def trades() -> History:
    return history("trades", columns=COLUMNS)


def check(made: Graph, spark: SparkSession, rows: list[Row] = TRADES, *but: str) -> dict[str, list[Row]]:
    """The rows of all nodes, which are those that plain Python gives."""
    frames = made.frames({"trades": frame(spark, rows, made)})
    found = {name: rows_of(df) for name, df in frames.items()}
    for node in made.nodes:
        assert frames[node.name].columns == list(node.columns), node.name
    wanted = worked_off(made, {"trades": rows})
    assert {name: found[name] for name in wanted if name not in but} == {
        name: sorted_rows(rows) for name, rows in wanted.items() if name not in but
    }
    return found


def test_a_graph_gives_what_plain_python_gives(spark: SparkSession) -> None:
    one = trades()
    state = one.collapse("symbol", **RULES)
    large = one.select("volume >= 1000")
    windows = large.collapse("symbol", window_s=60.0, high=highest("price"), last=latest("volume"))
    amounts = one.transform(symbol="symbol", double="price * 2")
    again = state.expand().collapse("symbol", **{name: latest(name) for name in RULES}).named("again")
    pairs = merge(amounts, one.transform(symbol="symbol", double="price * 3"))
    made = graph(
        "g",
        again,
        pairs.collapse("symbol", last=latest("double"), n=count()).expand().named("pairs"),
        windows.expand(),
        amounts.collapse("symbol", amount=total("double")),
        merge(one.select("price >= 5"), one.select("volume >= 1500")).named("both"),
    )
    found = check(made, spark)
    assert found["again"] == found["trades_collapse"]  # collapse(expand(state)) = state
    assert found["late"] == []


def test_rows_that_a_collapse_cant_take_are_in_the_history_late(spark: SparkSession) -> None:
    rows = [*TRADES, trade(8, None, 1.0, 1, 0.0), trade(9, "x" * 2_000, 1.0, 1, 0.0)]
    made = graph("g", trades().collapse("symbol", n=count()).named("n"))
    frames = made.frames({"trades": frame(spark, rows, made)})
    late = {row["position"]: row for row in rows_of(frames["late"])}
    assert {at: (row["edge"], row["reason"]) for at, row in late.items()} == {
        8: ("n", "no key"),
        9: ("n", "key too long"),
    }
    assert json.loads(late[8]["row"])["price"] == 1.0
    assert sum(row["n"] for row in rows_of(frames["n"])) == len(TRADES)


def test_a_value_that_is_too_long_for_a_state_goes_to_late(spark: SparkSession) -> None:
    rows = [trade(1, "x" * 70_000, 1.0, 1, 0.0), trade(2, "y", 1.0, 1, 0.0)]
    made = graph("g", trades().collapse("volume", name=latest("symbol")).named("names"))
    frames = made.frames({"trades": frame(spark, rows, made)})
    assert [row["reason"] for row in rows_of(frames["late"])] == ["value too long"]
    assert [row["name"] for row in rows_of(frames["names"])] == ["y"]


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), 1e300])
def test_a_number_that_cant_be_added_up_is_left_out_as_a_null_is(spark: SparkSession, odd: float) -> None:
    rows = [trade(1, "A", 1.0, 1, 0.0), trade(2, "A", odd, 1, 0.0), trade(3, "B", 2.0, 2**62, 0.0)]
    rows.append(trade(4, "B", 2.0, 2**62, 0.0))
    rules: dict[str, Any] = {"amount": total("price"), "average": mean("price"), "number": total("volume")}
    made = graph("g", trades().collapse("symbol", **rules).named("sums"))
    sums = rows_of(made.frames({"trades": frame(spark, rows, made)})["sums"])
    assert [(row["amount"], row["average"]) for row in sums] == [(1.0, 1.0), (4.0, 2.0)]
    assert [row["number"] for row in sums] == [2, None]  # past 64 bits


def test_expressions_calculate_as_filters_do(spark: SparkSession) -> None:
    made = graph(
        "g",
        trades()
        .transform(
            ratio="volume / (price - 10.1)",
            minus="-volume",
            large="volume > 1000",
            text="'x'",
            one="1",
            again="symbol",
        )
        .named("made"),
    )
    rows = rows_of(made.frames({"trades": frame(spark, TRADES[:2], made)})["made"])
    assert [row["ratio"] for row in rows] == [None, pytest.approx(2_000 / 0.1)]
    assert [(row["minus"], row["large"]) for row in rows] == [(-500.0, False), (-2000.0, True)]
    assert [(row["text"], row["one"], row["again"]) for row in rows] == [("x", 1, "A")] * 2


def test_functions_get_dataframes_and_give_their_columns(spark: SparkSession) -> None:
    one = trades()
    doubled = one.transform(
        lambda df: df.withColumn("price", F.col("price") * 2).withColumn("other", F.lit(1)),
        {"time": "timestamp", "node": "string", "position": "bigint", **COLUMNS},
    ).named("doubled")
    both = join(lambda a, b: a.select("symbol").union(b.select("symbol")), {"symbol": "string"}, one, doubled)
    made = graph("g", doubled.collapse("symbol", high=highest("price")).named("high"), both.named("both"))
    frames = made.frames({"trades": frame(spark, TRADES, made)})
    assert [row["high"] for row in rows_of(frames["high"])] == [20.4, 7.0, None]
    assert frames["both"].count() == 2 * len(TRADES)


def test_a_source_without_a_dataframe_is_refused() -> None:
    with pytest.raises(FlowError, match=r"'trades' \(read\): there is no DataFrame"):
        graph("g", trades()).frames({})

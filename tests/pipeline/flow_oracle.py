"""Flow graphs worked off in plain Python, event by event: the results that Spark must have."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidings.flows import Graph
from tidings.log.collapse_rules import CollapseRule
from tidings.pipeline.flow.edges import Collapse, Expand, Read

Row = dict[str, Any]
BEGIN = datetime(2026, 5, 1, tzinfo=UTC)
PLACE = ("time", "node", "position")


def moment(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def frame(spark: SparkSession, rows: Sequence[Row], graph: Graph, source: str = "trades") -> DataFrame:
    """Rows as the source gives them."""
    node = graph[source]
    return spark.createDataFrame([tuple(row[name] for name in node.columns) for row in rows], node.schema)


def rows_of(df: DataFrame) -> list[Row]:
    """The rows of a DataFrame in an order of their own, with times in UTC and NaN as a text."""
    return sorted_rows([row.asDict() for row in df.collect()])


def sorted_rows(rows: Sequence[Row]) -> list[Row]:
    return sorted(({name: plain(row[name]) for name in sorted(row)} for row in rows), key=repr)


def plain(cell: Any) -> Any:
    if isinstance(cell, datetime):
        return cell.astimezone(UTC)
    return "NaN" if isinstance(cell, float) and math.isnan(cell) else cell


def key_of(edge: Collapse, row: Row) -> Row:
    """The key of a row, with its window."""
    key = {name: row[name] for name in edge.by}
    if edge.window_s is None:
        return key
    width = timedelta(seconds=edge.window_s)
    start = row["time"] - (row["time"] - datetime(1970, 1, 1, tzinfo=UTC)) % width
    return {**key, "start": start, "end": start + width}


def result(rule: CollapseRule, rows: Sequence[Row]) -> Any:
    """What a rule gives for these rows."""
    if rule.column is None:
        return len(rows)
    found = [(tuple(row[name] for name in PLACE), row[rule.column]) for row in rows]
    known = [(place, value) for place, value in found if value is not None]
    values = [value for _, value in known]
    match rule.kind:
        case "count":
            return len(values)
        case "lowest" | "highest":
            return (min if rule.kind == "lowest" else max)(values, default=None)
        case "first" | "latest":
            return (min if rule.kind == "first" else max)(known)[1] if known else None
    if not values:
        return None
    if isinstance(values[0], int):
        return sum(values) if rule.kind == "total" else sum(values) / len(values)
    units = [in_units(value) for value in values if abs(value) < 2**63]
    total = sum(units) / 1e9 if units else None
    return total if rule.kind == "total" or total is None else total / len(units)


def in_units(value: float) -> int:
    return round(value * 1e9) if abs(value) < 2**33 else round(value) * 10**9


def collapsed(edge: Collapse, rows: Sequence[Row]) -> list[Row]:
    """One row for each key."""
    groups: dict[str, tuple[Row, list[Row]]] = {}
    for row in rows:
        key = key_of(edge, row)
        groups.setdefault(repr(key), (key, []))[1].append(row)
    return [
        {
            **key,
            "time": max(row["time"] for row in group),
            **{name: result(rule, group) for name, rule in edge.rules.items()},
        }
        for key, group in groups.values()
    ]


def expanded(edge: Collapse, rows: Sequence[Row]) -> list[Row]:
    """The row of the key after each event."""
    before: list[Row] = []
    made: list[Row] = []
    for row in sorted(rows, key=lambda row: (row["node"], row["position"])):
        before.append(row)
        key = key_of(edge, row)
        (state,) = collapsed(edge, [one for one in before if key_of(edge, one) == key])
        made.append({**state, "node": row["node"], "position": row["position"]})
    return made


def worked_off(
    graph: Graph, inputs: Mapping[str, Sequence[Row]], gone: Mapping[str, set[int]] | None = None
) -> dict[str, list[Row]]:
    """All nodes of a graph without Spark; `gone` are positions that a collapse does not get.

    Selects and transforms are Spark's in both, so graphs for this have none but those that `steps` knows.
    """
    made: dict[str, list[Row]] = {}
    for node in graph.nodes:
        edge, name = node.edge, node.name
        if isinstance(edge, Read):
            made[name] = list(inputs[name])
        elif isinstance(edge, Collapse):
            made[name] = collapsed(edge, taken(made[node.after[0]], gone, name))
        elif isinstance(edge, Expand):
            state = graph[node.after[0]]
            assert isinstance(state.edge, Collapse)
            made[name] = expanded(state.edge, taken(made[state.after[0]], gone, state.name))
        elif name != "late":
            made[name] = STEPS[type(edge).__name__](edge, [made[one] for one in node.after])
    return made


def taken(rows: Sequence[Row], gone: Mapping[str, set[int]] | None, name: str) -> list[Row]:
    out = (gone or {}).get(name, set())
    return [row for row in rows if row["position"] not in out]


def _select(edge: Any, before: list[list[Row]]) -> list[Row]:
    name, operator, limit = edge.condition.split(" ")
    assert operator == ">="
    return [row for row in before[0] if row[name] is not None and row[name] >= float(limit)]


def _transform(edge: Any, before: list[list[Row]]) -> list[Row]:
    return [
        {
            **{name: row[name] for name in PLACE},
            **{n: value(text, row) for n, text in edge.expressions.items()},
        }
        for row in before[0]
    ]


def value(text: str, row: Row) -> Any:
    """`name` or `name * number`."""
    name, _, number = text.partition(" * ")
    if not number:
        return row[name]
    return None if row[name] is None else row[name] * float(number)


STEPS = {
    "Select": _select,
    "Transform": _transform,
    "Merge": lambda _, before: [row for rows in before for row in rows],
}

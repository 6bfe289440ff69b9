"""Flow graphs worked off in plain Python, event by event: the results that Spark must have."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from msgspec import Struct
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


def expanded(edge: Collapse, rows: Sequence[Row], earlier: Sequence[Row] = ()) -> list[Row]:
    """The row of the key after each event; all of `earlier` came before."""
    made: list[Row] = []
    for row in rows:
        key, place = key_of(edge, row), (row["node"], row["position"])
        before = [*earlier, *(one for one in rows if (one["node"], one["position"]) <= place)]
        (state,) = collapsed(edge, [one for one in before if key_of(edge, one) == key])
        made.append({**state, "node": row["node"], "position": row["position"]})
    return made


class LateRow(NamedTuple):
    """A row that a collapse has not taken."""

    edge: str
    reason: str
    row: Row


class Collapsed(Struct):
    """A collapse between batches: the rows it has taken, and the newest time of those it could take."""

    edge: Collapse
    rows: list[Row] = []
    new: list[Row] = []
    newest: datetime | None = None

    def take(self, name: str, rows: Sequence[Row]) -> list[LateRow]:
        """Take the rows of a batch; return the others."""
        self.rows, reasons = self.rows + self.new, [self._reason(row) for row in rows]
        good = [row for row, reason in zip(rows, reasons, strict=True) if reason is None]
        times = [row["time"] for row in good] + ([] if self.newest is None else [self.newest])
        self.newest = max(times, default=None)
        admitted = self._admitted(good)
        self.new = [row for row in good if repr(key_of(self.edge, row)) in admitted]
        rest = [(row, reason) for row, reason in zip(rows, reasons, strict=True) if reason is not None]
        rest += [(row, "too many keys") for row in good if repr(key_of(self.edge, row)) not in admitted]
        return [LateRow(name, reason, row) for row, reason in rest]

    def _reason(self, row: Row) -> str | None:
        if any(row[name] is None for name in self.edge.by):
            return "no key"
        if self.edge.late_s is None or self.newest is None:
            return None
        watermark = self.newest - timedelta(seconds=self.edge.late_s)
        if self.edge.window_s is None:
            return "late" if row["time"] < watermark else None
        return "late" if key_of(self.edge, row)["end"] <= watermark else None

    def _admitted(self, rows: Sequence[Row]) -> set[str]:
        """The keys for which there is room: those that are there, and of others the first ones."""
        known = {repr(key_of(self.edge, row)) for row in self.rows}
        order = sorted((row["node"], row["position"], *key_of(self.edge, row).values()) for row in rows)
        for _, _, *key in order:
            if len(known) < self.edge.keys_max:
                known.add(repr(dict(zip(self._key_names, key, strict=True))))
        return known

    @property
    def _key_names(self) -> tuple[str, ...]:
        return self.edge.by if self.edge.window_s is None else (*self.edge.by, "start", "end")


class Worked(NamedTuple):
    """All nodes of a graph without Spark: histories, and states at the end."""

    rows: dict[str, list[Row]]
    late: list[LateRow]


def streamed_off(graph: Graph, batches: Sequence[Mapping[str, Sequence[Row]]]) -> Worked:
    """A graph worked off batch by batch, each with the rows of its sources."""
    states = {node.name: Collapsed(node.edge) for node in graph.nodes if isinstance(node.edge, Collapse)}
    made: dict[str, list[Row]] = {node.name: [] for node in graph.nodes if node.name != "late"}
    late: list[LateRow] = []
    for batch in batches:
        now: dict[str, list[Row]] = {}
        for node in graph.nodes:
            edge, name = node.edge, node.name
            if isinstance(edge, Read):
                now[name] = list(batch.get(name, ()))
            elif isinstance(edge, Collapse):
                late += states[name].take(name, now[node.after[0]])
            elif isinstance(edge, Expand):
                state = states[node.after[0]]
                now[name] = expanded(state.edge, state.new, state.rows)
            elif name != "late":
                now[name] = STEPS[type(edge).__name__](edge, [now[one] for one in node.after])
        for name, rows in now.items():
            made[name] += rows
    for name, state in states.items():
        made[name] = collapsed(state.edge, state.rows + state.new)
    return Worked(made, late)


def worked_off(
    graph: Graph, inputs: Mapping[str, Sequence[Row]], gone: Sequence[LateRow] = ()
) -> dict[str, list[Row]]:
    """All nodes of a graph over history; the rows in `gone` are those that a collapse does not get.

    Selects and transforms are Spark's in both, so graphs for this have none but those that `STEPS` knows.
    """
    made: dict[str, list[Row]] = {}
    for node in graph.nodes:
        edge, name = node.edge, node.name
        if isinstance(edge, Read):
            made[name] = list(inputs[name])
        elif isinstance(edge, Collapse):
            made[name] = collapsed(edge, taken(edge, made[node.after[0]], gone, name))
        elif isinstance(edge, Expand):
            state = graph[node.after[0]]
            assert isinstance(state.edge, Collapse)
            rows = taken(state.edge, made[state.after[0]], gone, state.name)
            made[name] = expanded(state.edge, rows)
        elif name != "late":
            made[name] = STEPS[type(edge).__name__](edge, [made[one] for one in node.after])
    return made


def taken(edge: Collapse, rows: Sequence[Row], gone: Sequence[LateRow], name: str) -> list[Row]:
    out = [late.row for late in gone if late.edge == name]
    kept = []
    for row in rows:
        if row in out:
            out.remove(row)
        elif all(row[one] is not None for one in edge.by):
            kept.append(row)
    return kept


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
    """`name`, `name * number` or `name >= number`."""
    name, operator, number = [*text.split(" "), "", ""][:3]
    if not operator or row[name] is None:
        return row[name]
    return row[name] * float(number) if operator == "*" else row[name] >= float(number)


STEPS = {
    "Select": _select,
    "Transform": _transform,
    "Merge": lambda _, before: [row for rows in before for row in rows],
}

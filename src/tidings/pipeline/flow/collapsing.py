"""A collapse in Spark: rows are lifted to parts, parts of one key are merged, and parts give the results.

A part is a column that merges by sum, min or max, so it does not matter how the events are divided: the parts
of a batch and the stored ones of a state merge to those of all events. The state after each event, for an
expand, is the same merge over a running window. Inside, keys are named k0, k1… and parts p0, p1…, so that no
name of the user's collides with them.

A source that nodes have collapsed already gives partial rows (`upstream`): the key, the parts as the nodes
have merged them, the time of the newest event, and its node and first position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own examples call it

from tidings.log.collapse_rules import FINE_END, TOTAL_END, UNIT, CollapseRule
from tidings.pipeline.attribute_columns import quoted
from tidings.pipeline.flow.edges import NEWEST, Collapse, parts_of
from tidings.pipeline.flow.graph import FlowNode
from tidings.pipeline.flow.types import INTEGERS, PLACE, Columns
from tidings.pipeline.flow.upstream import POSITION, part_rules

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEY_LENGTH_MAX = 1_000
"""Characters of all texts in a key; it becomes the subject of events."""
VALUE_LENGTH_MAX = 65_536
"""Characters or bytes of a value that a state keeps."""
NO_PLACE, NO_KEY, KEY_LENGTH = "no place", "no key", "key too long"
VALUE_LENGTH, TOO_LATE, TOO_MANY = "value too long", "late", "too many keys"
"""Reasons why a row goes to the history `late`."""
_WHOLE = "decimal(38,0)"
_MERGES = {"sum": F.sum, "min": F.min, "max": F.max}


class CollapsePart(NamedTuple):
    """A part of a row: its value for one event, how values merge, and the type of a sum."""

    lifted: Column
    merge: str
    type: str | None = None

    def merged(self, column: Column) -> Column:
        """Return the merge of a column of such parts, for an aggregation."""
        result = _MERGES[self.merge](column)
        return result if self.type is None else result.cast(self.type)


class Collapsing:
    """One collapse: the key and the parts of a row, and the results of its rules."""

    def __init__(self, node: FlowNode, edge: Collapse, columns: Columns) -> None:
        self.node = node
        self.edge = edge
        self.columns = columns
        self._parts = [self._part(NEWEST)]
        self._results: dict[str, Column] = {}
        for name, rule in edge.rules.items():
            first = len(self._parts)
            self._parts += [self._part(one) for one in parts_of(rule)]
            self._results[name] = self._result(rule, [F.col(f"p{n}") for n in range(first, len(self._parts))])
        self.keys = [f"k{number}" for number in range(len(node.by))]
        self.parts = [f"p{number}" for number in range(len(self._parts))]

    @classmethod
    def of(cls, node: FlowNode, columns: Columns) -> Self:
        """Return the collapse that makes this state of a history with these columns."""
        assert isinstance(node.edge, Collapse)
        return cls(node, node.edge, columns)

    # Parts of the rules

    def _part(self, rule: CollapseRule) -> CollapsePart:
        if rule.column is None:
            return CollapsePart(F.lit(1).cast("bigint"), "sum", "bigint")
        column = F.col(quoted(rule.column))
        if rule.kind in ("lowest", "highest"):
            return CollapsePart(column, "min" if rule.kind == "lowest" else "max")
        if rule.kind in ("latest", "first"):
            value = F.when(column.isNotNull(), F.struct(*PLACE, column.alias("value")))
            return CollapsePart(value, "max" if rule.kind == "latest" else "min")
        if rule.kind == "count":
            return CollapsePart(column.isNotNull().cast("bigint"), "sum", "bigint")
        number = column.cast(_WHOLE) if self._is_whole(rule) else units(column)
        if rule.kind == "numbers":
            return CollapsePart(number.isNotNull().cast("bigint"), "sum", "bigint")
        return CollapsePart(number, "sum", _WHOLE)

    def _result(self, rule: CollapseRule, parts: list[Column]) -> Column:
        """Return the result of a rule over its merged parts."""
        if rule.kind in ("latest", "first"):
            return parts[0]["value"]
        if rule.kind not in ("total", "mean"):
            return parts[0]
        if rule.kind == "total" and self._is_whole(rule):
            return parts[0].try_cast("bigint")
        total = parts[0].cast("double") / F.lit(1.0 if self._is_whole(rule) else float(UNIT))
        return total if rule.kind == "total" else total / F.when(parts[1] > 0, parts[1])

    def _is_whole(self, rule: CollapseRule) -> bool:
        return self.columns[rule.column or ""] in INTEGERS

    # Rows

    def judged(self, frame: DataFrame, watermark_us: int | None = None) -> tuple[DataFrame, DataFrame]:
        """Return the rows that the collapse takes, and the others as rows of the history `late`."""
        reason = self._reason(watermark_us)
        rest = late_rows(frame.where(reason.isNotNull()), self.node.name, reason, self.columns)
        return frame.where(reason.isNull()), rest

    def _reason(self, watermark_us: int | None) -> Column:
        key = [F.col(quoted(name)) for name in self.edge.by]
        texts = [F.length(one) for one, name in zip(key, self.edge.by, strict=True) if self._is_long(name)]
        values = [F.length(F.col(quoted(name))) for name in self._kept() if self._is_long(name)]
        reason = F.when(_any([F.col(name).isNull() for name in PLACE]), F.lit(NO_PLACE))
        reason = reason.when(_any([one.isNull() for one in key]), F.lit(NO_KEY))
        if texts:
            reason = reason.when(sum(texts[1:], texts[0]) > KEY_LENGTH_MAX, F.lit(KEY_LENGTH))
        if values:
            too_long = _any([F.coalesce(one > VALUE_LENGTH_MAX, F.lit(False)) for one in values])
            reason = reason.when(too_long, F.lit(VALUE_LENGTH))
        return reason if watermark_us is None else reason.when(self._is_late(watermark_us), F.lit(TOO_LATE))

    def _is_late(self, watermark_us: int) -> Column:
        """Return whether a row is older than the watermark, or its window has ended by then."""
        if self.edge.window_s is None:
            return F.unix_micros("time") < watermark_us
        return F.unix_micros(self._start()) + self.width_us <= watermark_us

    @property
    def width_us(self) -> int:
        """Length of a window."""
        return round((self.edge.window_s or 0) * 1_000_000)

    def _is_long(self, name: str) -> bool:
        return self.columns[name] in ("string", "binary")

    def _kept(self) -> set[str]:
        """Return the columns of which the state keeps values as they are."""
        return {rule.column for rule in self.edge.rules.values() if rule.column and rule.kind != "count"}

    def keyed(self) -> list[Column]:
        """Return the key of a row, for a selection."""
        key = [F.col(quoted(name)) for name in self.edge.by]
        if self.edge.window_s is not None:
            key.append(self._start())
        return [column.alias(name) for column, name in zip(key, self.keys, strict=True)]

    def lifted(self, frame: DataFrame) -> DataFrame:
        """Return each row as parts, with its key and place."""
        parts = [part.lifted.alias(name) for part, name in zip(self._parts, self.parts, strict=True)]
        place = [F.col("node").alias("n"), F.col("position").alias("s")]
        return frame.select(*self.keyed(), *parts, *place)

    def _start(self) -> Column:
        time = F.unix_micros("time")
        return F.timestamp_micros(time - F.pmod(time, F.lit(self.width_us)))

    def merged(self, parts: DataFrame, *others: Column) -> DataFrame:
        """Return the parts of each key merged to one row, beside other aggregates."""
        return self.merged_in(parts, [], *others)

    def merged_in(self, parts: DataFrame, groups: list[str], *others: Column) -> DataFrame:
        """Return the same, within groups of keys by which the parts are divided already."""
        return parts.groupBy(*groups, *self.keys).agg(*self._merges(), *others)

    def _merges(self) -> list[Column]:
        named = zip(self._parts, self.parts, strict=True)
        return [part.merged(F.col(name)).alias(name) for part, name in named]

    def running(self, parts: DataFrame) -> DataFrame:
        """Return the merge of each row and those up to its place, by node and position; nulls come first.

        Rows of one place, which a merge may have several of, all have the merge of all of them.
        """
        order = [F.col(name).asc_nulls_first() for name in ("n", "s")]
        before = Window.partitionBy(*self.keys).orderBy(*order)
        before = before.rangeBetween(Window.unboundedPreceding, Window.currentRow)
        sums = []
        for part, name in zip(self._parts, self.parts, strict=True):
            result = _MERGES[part.merge](F.col(name)).over(before)
            sums.append((result if part.type is None else result.cast(part.type)).alias(name))
        return parts.select(*self.keys, "n", "s", *sums)

    def results(self) -> list[Column]:
        """Return the columns of the state, over merged parts."""
        columns: dict[str, Column] = {
            name: F.col(key) for name, key in zip(self.node.by, self.keys, strict=True)
        }
        columns["time"] = F.col("p0")
        if self.edge.window_s is not None:
            columns["end"] = F.timestamp_micros(F.unix_micros(columns["start"]) + F.lit(self.width_us))
        columns |= self._results
        return [columns[name].alias(name) for name in self.node.columns]

    def collapsed(self, good: DataFrame) -> DataFrame:
        """Return the state of all these rows."""
        return self.merged(self.lifted(good)).select(*self.results())

    def expanded(self, good: DataFrame, stored: DataFrame | None = None) -> DataFrame:
        """Return the row of the key after each of these rows; `stored` has parts of earlier ones."""
        parts = self.lifted(good)
        if stored is not None:
            known = stored.select(*self.keys, *self.parts)
            parts = parts.unionByName(known, allowMissingColumns=True)
        place = [F.col("n").alias("node"), F.col("s").alias("position")]
        after = [name for name in self.node.columns if name not in PLACE]
        rows = self.running(parts).where("s is not null").select(*self.results_of(after), *place)
        return rows.select("time", "node", "position", *map(quoted, after))

    def results_of(self, names: list[str]) -> list[Column]:
        """Return these columns of the state, and its time."""
        wanted = {"time", *names}
        return [
            column for column, name in zip(self.results(), self.node.columns, strict=True) if name in wanted
        ]


def units(column: Column) -> Column:
    """Return a number in units of 1e-9, as a decimal; null for one that is left out of totals."""
    number = column.cast("double")
    fine = F.rint(number * F.lit(float(UNIT))).cast("bigint").cast(_WHOLE)
    coarse = (F.rint(number).cast("bigint").cast("decimal(19,0)") * F.lit(UNIT)).cast(_WHOLE)
    return F.when(F.abs(number) < FINE_END, fine).when(F.abs(number) < TOTAL_END, coarse)


def late_rows(frame: DataFrame, edge: str, reason: Column, columns: Columns) -> DataFrame:
    """Return rows as those of the history `late`: their place, the edge, the reason, and all as JSON."""
    row = F.to_json(F.struct(*map(quoted, columns)))
    said = [F.lit(edge).alias("edge"), reason.alias("reason"), row.alias("row")]
    return frame.select(*PLACE, *said)


def _any(conditions: list[Column]) -> Column:
    result = conditions[0]
    for one in conditions[1:]:
        result = result | one
    return result


# Partial rows


def row_columns(edge: Collapse) -> list[str]:
    """Return the names of the columns of `partial_row`."""
    window = [] if edge.window_s is None else ["start"]
    return ["time", "node", "position", *edge.by, *window, *part_rules(edge)]


def partial_row(edge: Collapse) -> list[Column]:
    """Return the columns of a partial row, with a place as rows of histories have."""
    place = {"time": F.col("p0"), "position": F.col(POSITION)}
    return [place.get(name, F.col(quoted(name))).alias(name) for name in row_columns(edge)]


class PartialCollapsing(Collapsing):
    """A collapse of partial rows; a late row stands for all events of a partial row."""

    def __init__(self, node: FlowNode, edge: Collapse, columns: Columns) -> None:
        super().__init__(node, edge, columns)
        types = {name: columns.get(name, "") for name in row_columns(edge)}
        self._kinds, self.columns = self.columns, types

    def _is_long(self, name: str) -> bool:
        return self._kinds[name] == "string" and name in self.edge.by

    def _start(self) -> Column:
        return F.col("start")

    def lifted(self, frame: DataFrame) -> DataFrame:
        """Return the partial rows, by key, with their place."""
        place = [F.col("node").alias("n"), F.col("position").alias("s")]
        return frame.select(*self.keyed(), *self.parts, *place)

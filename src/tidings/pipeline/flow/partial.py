"""Collapse of partial rows, to which nodes have reduced the events of a source; see `upstream`.

A partial row has the key, the parts of the collapse as the nodes have merged them, the time of its newest
event, and its node and first position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own examples call it

from tidings.pipeline.attribute_columns import quoted
from tidings.pipeline.flow.collapsing import Collapsing
from tidings.pipeline.flow.edges import Collapse
from tidings.pipeline.flow.graph import FlowNode
from tidings.pipeline.flow.types import Columns
from tidings.pipeline.flow.upstream import POSITION, part_rules

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


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

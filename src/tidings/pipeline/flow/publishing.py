"""Rows of a graph as events: the columns that the sink takes, and one write for all nodes of a batch.

A row of a history is an event with its time. A row of a state is an event with the key as its subject, so a
subscription with `last=True` gets the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own examples call it

from tidings.event.values import HEADER_NAMES
from tidings.pipeline.attribute_columns import quoted
from tidings.pipeline.flow.graph import LATE, ROW_TYPE, FlowNode, Graph
from tidings.pipeline.flow.types import Columns
from tidings.pipeline.shape import SET_BY_NODES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ORIGIN = "tidings origin"
"""Column with the name of the node, for counting; it has a blank, so that no name of a graph is like it."""
_ISO = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"


def events_of(node: FlowNode, frame: DataFrame) -> DataFrame:
    """Return the rows of a published node as the sink of the format `tidings` takes them."""
    return frame.select(*[column.alias(name) for name, (column, _) in _columns(node).items()])


def event_columns(node: FlowNode) -> Columns:
    """Return the columns of `events_of` and their types."""
    return {name: type for name, (_, type) in _columns(node).items()}


def _columns(node: FlowNode) -> dict[str, tuple[Column, str]]:
    made: dict[str, tuple[Column, str]] = {}
    if node.published != ROW_TYPE:
        made["type"] = F.lit(node.published), "string"
    if node.kind == "state":
        made["subject"] = subject(node), "string"
    for name, type in node.columns.items():
        if name in made or name in SET_BY_NODES or (node.kind == "state" and _is_header(name)):
            continue
        column = F.col(quoted(name))
        made[name] = (column.cast("double"), "double") if type.startswith("decimal") else (column, type)
    return made


def _is_header(name: str) -> bool:
    """Whether a key column is a header field, which the events of a state have for themselves."""
    return name in HEADER_NAMES and name != "time"


def subject(node: FlowNode) -> Column:
    """Return the key of a state as text: one value as it is, several escaped and joined by `/`."""
    texts = [_text(name, node.columns[name]) for name in node.by]
    if len(texts) == 1:
        return texts[0]
    escaped = [F.replace(F.replace(one, F.lit("%"), F.lit("%25")), F.lit("/"), F.lit("%2F")) for one in texts]
    return F.concat_ws("/", *escaped)


def _text(name: str, type: str) -> Column:
    column = F.col(quoted(name))
    if type != "timestamp":
        return column.cast("string")
    utc = F.convert_timezone(F.current_timezone(), F.lit("UTC"), column.cast("timestamp_ntz"))
    return F.regexp_replace(F.date_format(utc, _ISO), r"\.?0+Z$", "Z")


class PublishedCounts(Struct, frozen=True):
    """Number of the rows of a batch that were published, by node, and of the late ones, by reason."""

    published: dict[str, int]
    late: dict[str, int]


def publish(
    graph: Graph, frames: Mapping[str, DataFrame], target: Mapping[str, str], job: str
) -> PublishedCounts:
    """Publish the rows of all published nodes, each job once; return their numbers.

    `target` are the options of the sink. Nodes are written together as far as their columns allow: two types
    of one column can't be in one DataFrame.
    """
    delivered = PublishedCounts({}, {})
    for number, nodes in enumerate(groups(graph.published)):
        rows = _together(nodes, frames).persist()
        try:
            if _count(rows, any(node.name == LATE for node in nodes), delivered):
                write = rows.drop(ORIGIN).write.format("tidings").options(**target)
                write.option("job", f"{job}-{number}").mode("append").save()
        finally:
            rows.unpersist()
    return delivered


def _count(rows: DataFrame, has_late: bool, delivered: PublishedCounts) -> bool:
    """Add the numbers of rows to those delivered; return whether there are any."""
    origin = F.col(quoted(ORIGIN))
    reason = F.when(origin == LATE, F.col("reason")) if has_late else F.lit(None)
    found = rows.groupBy(origin.alias("node"), reason.alias("why")).count().collect()
    for row in found:
        known = delivered.published.get(row["node"], 0)
        delivered.published[row["node"]] = known + row["count"]
        if row["why"] is not None:
            delivered.late[row["why"]] = row["count"]
    return bool(found)


def count_late(frames: Mapping[str, DataFrame]) -> dict[str, int]:
    """Return the number of late rows by reason."""
    if LATE not in frames:
        return {}
    return {row["reason"]: row["count"] for row in frames[LATE].groupBy("reason").count().collect()}


def groups(nodes: Iterable[FlowNode]) -> list[list[FlowNode]]:
    """Return the nodes in groups whose columns of one name are of one type."""
    groups: list[tuple[list[FlowNode], dict[str, str]]] = []
    for node in nodes:
        columns = {name.lower(): f"{name} {type}" for name, type in event_columns(node).items()}
        for members, known in groups:
            if all(known.get(name, type) == type for name, type in columns.items()):
                members.append(node)
                known.update(columns)
                break
        else:
            groups.append(([node], columns))
    return [members for members, _ in groups]


def _together(nodes: list[FlowNode], frames: Mapping[str, DataFrame]) -> DataFrame:
    first, *others = [
        events_of(node, frames[node.name]).withColumn(ORIGIN, F.lit(node.name)) for node in nodes
    ]
    for other in others:
        first = first.unionByName(other, allowMissingColumns=True)
    return first

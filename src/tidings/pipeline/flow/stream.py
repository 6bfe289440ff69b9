"""A flow graph as one continuous query: each batch goes through the whole graph, and is published.

Spark reads the sources, and carries out Python functions, as streams; all other edges work off each batch
(`foreachBatch`). States are stored by batch (`stored_state`), and a batch is published as a job of the sink
that has its number. So a batch that Spark repeats, after whatever has failed, gives the same results once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING
from uuid import uuid4

from msgspec import Struct
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own examples call it
from pyspark.sql.utils import is_remote

from tidings.errors import UserError
from tidings.pipeline.flow.edges import Apply, Collapse, Expand, Late, Read
from tidings.pipeline.flow.frames import collapsing_of, read_columns, read_frame, step, together
from tidings.pipeline.flow.graph import FlowNode, Graph, above
from tidings.pipeline.flow.publishing import PublishedCounts, count_late, publish
from tidings.pipeline.flow.state_step import StatefulCollapse, StateStep
from tidings.pipeline.flow.stored_state import StoredState, identify
from tidings.pipeline.flow.types import ddl
from tidings.pipeline.flow.upstream import MISMATCHES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COUNTS_KEPT_MAX = 100
"""Batches whose counts are kept."""
_ENTRY = "entry"

Deliver = Callable[[int, Mapping[str, "DataFrame"]], PublishedCounts]
"""Called with each batch and the rows of all nodes, of states those that changed."""


class BatchCounts(Struct, frozen=True):
    """Rows of a batch: those read or made by functions, those published, and those that came late."""

    rows: dict[str, int]
    published: dict[str, int]
    late: dict[str, int]
    """By reason."""
    mismatches: dict[str, int] = {}
    """Values that did not fit their columns and are null, by source; only of sources that have some."""


class FlowQuery(Struct, frozen=True):
    """A running query, and the counts of its last batches."""

    query: StreamingQuery
    counts: dict[int, BatchCounts]


class Streams(Struct, frozen=True):
    """Streams of the sources of a graph, by name, and the sources that nodes collapse."""

    inputs: dict[str, DataFrame]
    collapsed: frozenset[str]


def read_streams(
    graph: Graph, spark: SparkSession, options: Callable[[str, str], Mapping[str, str]]
) -> Streams:
    """Return the streams of all sources; nodes do the collapses that they can.

    `options` is called with the filter and the name of each source, and returns the options of the format
    `tidings`. If these have another filter, the source is read as events, which Spark selects and collapses.
    """
    inputs: dict[str, DataFrame] = {}
    collapsed: set[str] = set()
    for source in graph.sources:
        reader = spark.readStream.format("tidings")
        upstream = source.upstream
        partly = {} if upstream is None else options(upstream.where, source.name)
        if upstream is not None and partly.get("where") == upstream.where:
            inputs[source.name] = reader.options(**partly).option("collapse", upstream.collapse).load()
            collapsed.add(source.name)
        else:
            given = options(source.where, source.name)
            columns = {**graph[source.name].columns, MISMATCHES: "bigint"}
            inputs[source.name] = reader.schema(ddl(columns)).options(**given).load()
    return Streams(inputs, frozenset(collapsed))


def start(
    graph: Graph,
    spark: SparkSession,
    inputs: Mapping[str, DataFrame],
    target: Mapping[str, str] | None,
    checkpoint: str,
    trigger_s: float | None = None,
    name: str | None = None,
    collapsed: Collection[str] = (),
) -> FlowQuery:
    """Start the query; `inputs` are the streams of the sources by name, `target` the options of the sink.

    The sources in `collapsed` are read as partial rows (`FlowSource.upstream`). Without a target nothing is
    published. Without `trigger_s` the query ends when it has worked off all that is there. States lie in
    CHECKPOINT/flow, Spark's own checkpoint in CHECKPOINT/query. UserError if the checkpoint belongs to
    another graph, or with Spark Connect, whose clients can't store states.
    """
    if is_remote():
        raise UserError(
            "no graph runs continuously on Spark Connect; use a master such as local[*] or spark://…"
        )
    identity = identify(spark, checkpoint, graph.name, graph.fingerprint, uuid4().hex[:12])

    def deliver(batch: int, frames: Mapping[str, DataFrame]) -> PublishedCounts:
        if target is None:
            return PublishedCounts({}, count_late(frames))
        return publish(graph, frames, target, f"{identity.id}-{batch}")

    batches = FlowBatches(graph, spark, checkpoint, deliver, collapsed)
    writer = batches.stream(inputs).writeStream.foreachBatch(batches).outputMode("append")
    writer = writer.option("checkpointLocation", f"{checkpoint}/query").queryName(name or graph.name)
    if trigger_s is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{round(trigger_s * 1000)} milliseconds")
    return FlowQuery(writer.start(), batches.counts)


class FlowBatches:
    """Works off the batches of a query; called by Spark with each of them, again if it repeats one."""

    def __init__(
        self,
        graph: Graph,
        spark: SparkSession,
        checkpoint: str,
        deliver: Deliver,
        collapsed: Collection[str] = (),
    ) -> None:
        self.counts: dict[int, BatchCounts] = {}
        self._graph = graph
        self._deliver = deliver
        self._collapsed = frozenset(collapsed)
        self._entries = [node for node in graph.nodes if _is_entry(graph, node)]
        self._collapses: dict[str, StatefulCollapse] = {}
        self._late: DataFrame | None = None
        for node in graph.nodes:
            if isinstance(node.edge, Collapse):
                stored = StoredState(spark, checkpoint, node.name)
                is_ordered = any(isinstance(one.edge, Expand) for one in graph.after(node.name))
                made = StatefulCollapse(collapsing_of(graph, node, self._collapsed), stored, is_ordered)
                self._collapses[node.name] = made

    # The stream

    def stream(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """Return the rows of all entries as one stream, each entry in a column of its own."""
        frames = {**self._streamed(inputs), **inputs}
        rows = [self._tagged(number, frames[node.name]) for number, node in enumerate(self._entries)]
        stream = rows[0]
        for other in rows[1:]:
            stream = stream.unionByName(other, allowMissingColumns=True)
        return stream

    def _streamed(self, inputs: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        """Return the sources, the functions, and all that lies between them, as streams."""
        nodes = {node.name: node for node in self._graph.nodes}
        wanted = {node.name for node in self._entries}
        wanted |= {one.name for node in self._entries for one in above(node, nodes)}
        made: dict[str, DataFrame] = {}
        for node in self._graph.nodes:
            if node.name not in wanted:
                continue
            if isinstance(node.edge, Read):
                made[node.name] = read_frame(self._graph, node, inputs, self._collapsed)
            else:
                made[node.name] = step(self._graph, node, [made[name] for name in node.after])
        return made

    def _tagged(self, number: int, frame: DataFrame) -> DataFrame:
        node = self._entries[number]
        row = F.struct(*read_columns(self._graph, node, self._collapsed)).alias(f"e{number}")
        is_counted = isinstance(node.edge, Read) and MISMATCHES in frame.columns
        mismatches = F.col(MISMATCHES) if is_counted else F.lit(0)
        return frame.select(F.lit(number).alias(_ENTRY), mismatches.cast("bigint").alias(MISMATCHES), row)

    # Its batches

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Work off a batch."""
        rows.persist()
        try:
            numbers = rows.groupBy(_ENTRY).agg(F.count("*"), F.sum(MISMATCHES)).collect()
            found = {self._entries[number].name: (count, nulls) for number, count, nulls in numbers}
            counts = {node.name: found.get(node.name, (0, 0))[0] for node in self._entries}
            mismatches = {name: nulls for name, (_, nulls) in found.items() if nulls}
            done = self._deliver(batch, self._frames(rows, batch)) if found else PublishedCounts({}, {})
            self._note(batch, BatchCounts(counts, done.published, done.late, mismatches))
        finally:
            self._release(rows)

    def _frames(self, rows: DataFrame, batch: int) -> dict[str, DataFrame]:
        """Return the rows of all nodes in this batch; of states those that changed."""
        frames = {
            node.name: rows.where(F.col(_ENTRY) == number).select(f"e{number}.*")
            for number, node in enumerate(self._entries)
        }
        steps: dict[str, StateStep] = {}
        for node in self._graph.nodes:
            if node.name in frames or not _is_needed(self._graph, node):
                continue
            if isinstance(node.edge, Collapse):
                steps[node.name] = self._collapses[node.name].run(frames[node.after[0]], batch)
            frames[node.name] = self._frame(node, frames, steps)
        return frames

    def _frame(
        self, node: FlowNode, frames: Mapping[str, DataFrame], steps: Mapping[str, StateStep]
    ) -> DataFrame:
        if isinstance(node.edge, Collapse):
            return steps[node.name].changes
        if isinstance(node.edge, Late):
            self._late = together([one.late for one in steps.values()]).persist()
            return self._late
        before = self._graph[node.after[0]]
        if isinstance(node.edge, Expand):
            done = steps[before.name]
            return collapsing_of(self._graph, before).expanded(done.good, done.before)
        return step(self._graph, node, [frames[name] for name in node.after], self._collapsed)

    def _note(self, batch: int, counts: BatchCounts) -> None:
        self.counts[batch] = counts
        while len(self.counts) > COUNTS_KEPT_MAX:
            del self.counts[min(self.counts)]

    def _release(self, rows: DataFrame) -> None:
        for collapse in self._collapses.values():
            collapse.release()
        if self._late is not None:
            self._late.unpersist()
            self._late = None
        rows.unpersist()


def _is_entry(graph: Graph, node: FlowNode) -> bool:
    """Whether the rows of a node come from the stream: those of functions, and of sources that others use."""
    return isinstance(node.edge, Apply) or (isinstance(node.edge, Read) and _is_needed(graph, node))


def _is_needed(graph: Graph, node: FlowNode) -> bool:
    """Whether the rows of a node are used otherwise than by a function."""
    after = graph.after(node.name)
    uses = [one for one in after if not isinstance(one.edge, Apply)]
    return node.published is not None or not after or any(_is_needed(graph, one) for one in uses)

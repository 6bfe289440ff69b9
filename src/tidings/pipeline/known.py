"""Pipelines that the commands know, built in or of files: their plans, and what is said of a run.

A flow graph becomes a plan, each of its nodes a step from DataFrames to a DataFrame. A state, its expansion
and the history `late` are made from all rows of the history that is collapsed; the continuous query of a
graph with such nodes is another, which keeps its states (`tidings.pipeline.flow`). A Python function that is
another for streams than for history has a method `step`, see `UseFunction`.

Nothing here needs Spark before a step is made.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec
from msgspec import Struct

from tidings.errors import UserError
from tidings.filters import Filter
from tidings.pipeline.flow.edges import Apply, Collapse, Edge, Expand, Late, Merge, Read, Select, Transform
from tidings.pipeline.flow.graph import ROW_TYPE, FlowNode, Graph, above
from tidings.pipeline.flow.reading import load
from tidings.pipeline.plan import Plan, Source, Step, Use
from tidings.pipeline.settings import RunSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidings.pipeline.plan import Plan
    from tidings.pipeline.running import BatchProgress, Total


class RunReport:
    """Report on a run: a line for each batch, the totals of a query, the contents of tables.

    Its rows are named by a word, such as readings. A pipeline with counts of its own has its own report.
    """

    def __init__(self, what: str) -> None:
        self._what = what

    def line(self, progress: BatchProgress) -> str:
        """Return the line of a batch."""
        return progress.line(self._what)

    def fields(self, counts: BatchProgress | Total) -> dict[str, Any]:
        """Return the fields of a batch, or of the totals, for a line of JSON."""
        return dict(msgspec.to_builtins(counts))

    def total_lines(self, total: Total) -> list[str]:
        """Return the totals of a query in words."""
        parts = [f"{total.rows:,} {self._what} in {total.batches:,} batches"]
        parts += [f"{count:,} {name}" for name, count in total.published.items()]
        nulls = [f"  null, don't fit: {count:,} of {name}" for name, count in total.mismatches.items()]
        return [", ".join(parts), *rejected_lines(total.rejected), *nulls]

    def tables(self, spark: SparkSession, plan: Plan, settings: Any) -> dict[str, Any]:  # noqa: ARG002
        """Return the contents of the tables after a declarative run: the number of rows of each."""
        stored = [step.name for step in plan.steps if step.is_stored]
        return {"tables": {name: spark.table(name).count() for name in stored}}

    def table_lines(self, found: dict[str, Any]) -> list[str]:
        """Return the same in words."""
        return [f"{name}: {count:,} rows" for name, count in found["tables"].items()]


def rejected_lines(rejected: dict[str, int]) -> list[str]:
    """Return a line for each reason for which events were rejected."""
    return [f"  rejected, {reason}: {count:,}" for reason, count in sorted(rejected.items())]


BUILT_IN = ("agents", "city")


class Pipeline(Struct, frozen=True, kw_only=True):
    """A pipeline by its name or file, before it is known how and where it runs."""

    name: str
    origin: str
    """Its name, or the path of its file: what finds it again, in another process."""
    about: str
    settings: RunSettings
    """Settings of this pipeline, none of which is given yet."""
    graph: Callable[[Any], Graph]
    """Called with the settings; ConfigError if one is invalid."""
    report: RunReport
    main: str | None = None
    """The only published table of a query of Spark's own; None: the query keeps the states of the graph."""

    def plan(self, settings: RunSettings, use: Use) -> Plan:
        """Return the plan for a use; ConfigError if a setting is invalid."""
        return plan_of(self.graph(settings), use, self.main)


def find(origin: str) -> Pipeline:
    """Return the built-in pipeline of that name, or the one of a file; FlowError names a place in it."""
    if origin == "city":
        from tidings.pipeline.city.pipeline import CITY

        return CITY
    if origin == "agents":
        from tidings.pipeline.agents.pipeline import AGENTS

        return AGENTS
    if not origin.endswith((".toml", ".py")):
        known = f"the pipelines are {' and '.join(BUILT_IN)}; or name a file in TOML or Python"
        raise UserError(f"there is no pipeline {origin!r}; {known}")
    graph = load(origin)
    return Pipeline(
        name=graph.name,
        origin=str(Path(origin).resolve()),
        about=f"of {origin}",
        settings=RunSettings(pipeline=graph.name),
        graph=lambda _: graph,
        report=RunReport(graph.sources[0].name if len(graph.sources) == 1 else "events"),
    )


# Flow graphs as plans


READ = "{}_read"
"""Name of the source of a history that is published as it is read."""
WAYS: dict[type[Any], str] = {
    Merge: "together",
    Expand: "the row of the key after each event",
    Late: "rows that no collapse takes",
}


@runtime_checkable
class UseFunction(Protocol):
    """Function of DataFrames in a graph that knows for what it is used."""

    def step(self, use: Use) -> dict[str, Any]:
        """Return fields of the step for this use: `make` at least."""


def plan_of(graph: Graph, use: Use, main: str | None = None) -> Plan:
    """Return the plan of a graph; `main` is the node that is published under the name of the sink itself."""
    sources = tuple(
        Source(_read_name(graph[source.name]), str(Filter(source.where)), source.schema)
        for source in graph.sources
    )
    steps = tuple(_step(graph, node, use) for node in graph.nodes if _is_step(node))
    return Plan(name=graph.name, sources=sources, steps=steps, main=main)


def _is_step(node: FlowNode) -> bool:
    return not isinstance(node.edge, Read) or node.published is not None


def _read_name(node: FlowNode) -> str:
    return READ.format(node.name) if _is_step(node) else node.name


def _step(graph: Graph, node: FlowNode, use: Use) -> Step:
    edge, nodes = node.edge, {one.name: one for one in graph.nodes}
    is_read, is_derived = isinstance(edge, Read), isinstance(edge, Expand | Late)
    # An expansion, and the history `late`, are made from the histories that are collapsed.
    collapsed = (
        tuple(name for state in node.after for name in graph[state].after) if is_derived else node.after
    )
    function: Any = edge.function if isinstance(edge, Apply) else None
    own: dict[str, Any] = function.step(use) if isinstance(function, UseFunction) else {}
    fields: dict[str, Any] = {
        "name": node.name,
        "after": (_read_name(node),) if is_read else collapsed,
        "drawn_after": node.after if is_derived else None,
        "make": _as_it_is if is_read else partial(_made, graph, node),
        "kind": node.kind,
        "by": node.by,
        "about": about(edge),
        "is_published": node.published is not None,
        "type": None if node.published == ROW_TYPE else node.published,
        "to_events": None if node.published is None else partial(_events, node),
        "needs_all": any(isinstance(one.edge, Collapse) for one in above(node, nodes)),
    }
    return Step(**{**fields, **own})


def _as_it_is(df: DataFrame) -> DataFrame:
    return df


def _made(graph: Graph, node: FlowNode, *before: DataFrame) -> DataFrame:
    from tidings.pipeline.flow.frames import node_frame

    return node_frame(graph, node, *before)


def _events(node: FlowNode, df: DataFrame) -> DataFrame:
    from tidings.pipeline.flow.publishing import events_of

    return events_of(node, df)


def about(edge: Edge) -> str:
    """Return in a few words how an edge makes rows."""
    match edge:
        case Select(condition):
            return condition
        case Transform(expressions):
            return ", ".join(f"{name} = {text}" for name, text in expressions.items())
        case Apply(function):
            return str(getattr(function, "about", None) or getattr(function, "__name__", "a function"))
        case Collapse(_, rules, window_s):
            results = ", ".join(f"{name} = {rule}" for name, rule in rules.items())
            return results if window_s is None else f"{results} each {window_s:g} s"
        case Read(where):
            return where
    return WAYS[type(edge)]

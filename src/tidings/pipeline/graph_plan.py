"""Flow graphs as plans: each node of a graph as a step from DataFrames to a DataFrame.

A state, its expansion and the history `late` are made from all rows of the history that is collapsed; the
continuous query of a graph with such nodes is another, which keeps its states (`tidings.pipeline.flow`). A
Python function that is another for streams than for history has a method `step`, see `UseFunction`.

Nothing here needs Spark before a step is made.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tidings.filters import Filter
from tidings.pipeline.flow.edges import Apply, Collapse, Edge, Expand, Late, Merge, Read, Select, Transform
from tidings.pipeline.flow.graph import ROW_TYPE, FlowNode, Graph, above
from tidings.pipeline.plan import Plan, Source, Step, Use

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
            told = ", ".join(f"{name} = {rule}" for name, rule in rules.items())
            return told if window_s is None else f"{told} each {window_s:g} s"
        case Read(where):
            return where
    return WAYS[type(edge)]

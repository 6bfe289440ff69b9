"""Flow graphs as plans: each node of a graph as a step from DataFrames to a DataFrame.

A state, its expansion and the history `late` are made from all rows of the history that is collapsed; the
continuous query of a graph with such nodes is another, which keeps its states (`tidings.pipeline.flow`). A
Python function that is another for streams than for history has a method `step`, see `UseFunction`.

Nothing here needs Spark before a step is made.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tidings.filters import Filter
from tidings.pipeline.flow.edges import Apply, Collapse, Edge, Expand, Late, Merge, Read, Select, Transform
from tidings.pipeline.flow.graph import ROW_TYPE, FlowNode, Graph
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


def plan_of(graph: Graph, use: Use) -> Plan:
    """Return the plan of a graph."""
    sources = tuple(
        Source(_read_name(graph[source.name]), str(Filter(source.where)), source.schema)
        for source in graph.sources
    )
    steps = tuple(_step(graph, node, use) for node in graph.nodes if _is_step(node))
    return Plan(name=graph.name, sources=sources, steps=steps)


def is_stateful(graph: Graph) -> bool:
    """Return whether a continuous query of the graph has to keep states."""
    return any(isinstance(node.edge, Collapse) for node in graph.nodes)


def _is_step(node: FlowNode) -> bool:
    return not isinstance(node.edge, Read) or node.published is not None


def _read_name(node: FlowNode) -> str:
    return READ.format(node.name) if _is_step(node) else node.name


def _step(graph: Graph, node: FlowNode, use: Use) -> Step:
    edge = node.edge
    function: Any = edge.function if isinstance(edge, Apply) else None
    own: dict[str, Any] = function.step(use) if isinstance(function, UseFunction) else {}
    is_typed = node.published == ROW_TYPE
    fields: dict[str, Any] = {
        "name": node.name,
        "after": _inputs(graph, node),
        "drawn_after": node.after,
        "make": _maker(graph, node),
        "kind": node.kind,
        "by": node.by,
        "about": about(edge),
        "is_published": node.published is not None,
        "type": None if is_typed else node.published,
        "needs_all": isinstance(edge, Expand | Late),
    }
    return Step(**{**fields, **own})


def _inputs(graph: Graph, node: FlowNode) -> tuple[str, ...]:
    """Return the histories that are read: for an expansion, and for `late`, those that are collapsed."""
    if isinstance(node.edge, Read):
        return (_read_name(node),)
    if isinstance(node.edge, Expand | Late):
        return tuple(graph[state].after[0] for state in node.after)
    return node.after


def _maker(graph: Graph, node: FlowNode) -> Callable[..., DataFrame]:
    if isinstance(node.edge, Read):
        return lambda df: df
    if isinstance(node.edge, Collapse):
        return partial(_collapsed, graph, node)
    if isinstance(node.edge, Expand):
        return partial(_expanded, graph, graph[node.after[0]])
    if isinstance(node.edge, Late):
        return partial(_late, graph, node.after)
    return partial(_made, node, graph[node.after[0]].columns)


def _made(node: FlowNode, columns: Any, *before: DataFrame) -> DataFrame:
    from tidings.pipeline.flow.frames import step

    return step(node, columns, before)


def _collapsed(graph: Graph, node: FlowNode, history: DataFrame) -> DataFrame:
    from tidings.pipeline.flow.frames import collapsing_of

    collapsing = collapsing_of(graph, node)
    return collapsing.collapsed(collapsing.judged(history)[0])


def _expanded(graph: Graph, state: FlowNode, history: DataFrame) -> DataFrame:
    from tidings.pipeline.flow.frames import collapsing_of

    collapsing = collapsing_of(graph, state)
    return collapsing.expanded(collapsing.judged(history)[0])


def _late(graph: Graph, states: tuple[str, ...], *histories: DataFrame) -> DataFrame:
    from tidings.pipeline.flow.frames import collapsing_of, together

    pairs = zip(states, histories, strict=True)
    return together([collapsing_of(graph, graph[name]).judged(history)[1] for name, history in pairs])


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

"""A flow graph: checked nodes in topological order, ready to run.

`arrange` makes one of drafts, in any order, such as a file has them. The rule kept: each node comes after
those it is made from, names are unique, and nothing that the graph publishes comes back to its sources.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from tidings.errors import EventError, FlowError
from tidings.event.values import check_type
from tidings.filters import Filter
from tidings.filters.tree import names_in
from tidings.pipeline.flow.checking import EdgeResult, NodeKind, outcome
from tidings.pipeline.flow.edges import Apply, Collapse, Edge, Expand, Late, Read, Select
from tidings.pipeline.flow.types import AS_IN_EVENTS, PLACE, Columns, ddl
from tidings.pipeline.flow.upstream import collapse_option, is_collapsible, is_selectable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NODES_MAX = 200
"""Nodes of a graph."""
LATE = "late"
"""Name of the history of rows that no collapse has taken."""
LATE_COLUMNS: Columns = {**PLACE, "edge": "string", "reason": "string", "row": "string"}
ROW_TYPE = "{type}"
"""Published type of a history whose rows have a type each, in the column `type`."""
NAME_HINT = "begin with a letter, and use letters, digits, _, - and . such as air-quality"
"""Hint in the error about an invalid name."""
_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)
_PIPELINE_NAME = re.compile(r"[A-Za-z]\w*(?:[-.]\w+)*", re.ASCII)


class Draft(Struct, frozen=True):
    """A node before it is checked; `after` are the names of the nodes it is made from."""

    name: str
    edge: Edge
    after: tuple[str, ...] = ()
    published: str | None = None
    place: str = ""


class FlowNode(Struct, frozen=True):
    """A checked node: a history or a state, and the edge that makes it."""

    name: str
    kind: NodeKind
    edge: Edge
    after: tuple[str, ...]
    columns: Columns
    by: tuple[str, ...] = ()
    """Key columns of a state; those of windows end with `start`."""
    published: str | None = None
    """Type of the events as which it is published; `ROW_TYPE`: that of each row."""
    place: str = ""

    @property
    def schema(self) -> str:
        """Columns as a schema that Spark reads."""
        return ddl(self.columns)


class UpstreamCollapse(Struct, frozen=True):
    """Reading of a source as partial rows of the one collapse after it: options of the format `tidings`."""

    state: str
    """Node that the collapse makes."""
    where: str
    collapse: str


class FlowSource(Struct, frozen=True):
    """A history that is read from nodes."""

    name: str
    where: str
    """Filter of the events to read; selects narrow it if only they read the source."""
    schema: str
    upstream: UpstreamCollapse | None = None
    """Way to read it if nodes shall do the collapse after it; None: they can't."""


class Graph(Struct, frozen=True):
    """An information flow graph; made by `tidings.flows.graph` or `tidings.flows.load`."""

    name: str
    nodes: tuple[FlowNode, ...]
    """All nodes, each after those it is made from; the last is the history `late` if there is a collapse."""

    def __getitem__(self, name: str) -> FlowNode:
        """Return the node of that name; KeyError if there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    @property
    def sources(self) -> tuple[FlowSource, ...]:
        """Histories that are read from nodes."""
        return tuple(
            FlowSource(node.name, _reading(self, node), node.schema, _upstream(self, node))
            for node in self.nodes
            if isinstance(node.edge, Read)
        )

    @property
    def published(self) -> tuple[FlowNode, ...]:
        """Nodes whose rows are published."""
        return tuple(node for node in self.nodes if node.published is not None)

    @property
    def fingerprint(self) -> str:
        """Digest of all that the stored states depend on; functions count by their names."""
        parts = [(node.name, node.after, type(node.edge).__name__, _plain(node.edge)) for node in self.nodes]
        return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()[:16]

    def root(self, node: FlowNode) -> FlowNode:
        """Return the node that this one is selected from: itself unless it is made by a select."""
        while isinstance(node.edge, Select):
            node = self[node.after[0]]
        return node

    def after(self, name: str) -> tuple[FlowNode, ...]:
        """Return the nodes that are made from this one."""
        return tuple(node for node in self.nodes if name in node.after)

    def frames(
        self, inputs: Mapping[str, DataFrame], collapsed: Collection[str] = ()
    ) -> dict[str, DataFrame]:
        """Return all nodes as DataFrames over history; `inputs` has one for each source, by its name.

        The sources in `collapsed` were read as partial rows (`FlowSource.upstream`).
        """
        from tidings.pipeline.flow.frames import frames_of

        return frames_of(self, inputs, collapsed)


def _plain(edge: Edge) -> Any:
    if isinstance(edge, Apply):
        return getattr(edge.function, "__qualname__", "function"), edge.columns
    return msgspec.to_builtins(edge)


def _reading(graph: Graph, node: FlowNode) -> str:
    """Return the filter of a source, narrowed if only selects read it that mean the same at a node."""
    assert isinstance(node.edge, Read)
    where, selects = node.edge.where, [one.edge for one in graph.after(node.name)]
    conditions = [edge.condition for edge in selects if isinstance(edge, Select)]
    if node.published is not None or not selects or len(conditions) < len(selects):
        return where
    names = {name for condition in conditions for name in names_in(Filter(condition).condition)}
    if any(name in ("node", "position") or node.columns.get(name) not in AS_IN_EVENTS for name in names):
        return where
    wanted = " OR ".join(f"({condition})" for condition in dict.fromkeys(conditions))
    return f"({where}) AND ({wanted})"


def _upstream(graph: Graph, node: FlowNode) -> UpstreamCollapse | None:
    """Return how nodes can do the collapse after a source, by nothing but selects, if that alone reads it."""
    assert isinstance(node.edge, Read)
    conditions = [node.edge.where]
    at = node
    while not isinstance(at.edge, Collapse):
        after = graph.after(at.name)
        if at.published is not None or len(after) != 1:
            return None
        at = after[0]
        if isinstance(at.edge, Select) and is_selectable(at.edge.condition, node.columns):
            conditions.append(at.edge.condition)
        elif not isinstance(at.edge, Collapse):
            return None
    is_expanded = any(isinstance(one.edge, Expand) for one in graph.after(at.name))
    if is_expanded or not is_collapsible(at.edge, node.columns):
        return None
    where = " AND ".join(f"({condition})" for condition in conditions)
    return UpstreamCollapse(at.name, where, collapse_option(at.edge, node.columns))


def is_pipeline_name(name: str) -> bool:
    """Return whether a graph, or a project, can have this name."""
    return _PIPELINE_NAME.fullmatch(name) is not None


def arrange(name: str, drafts: Sequence[Draft], late: str | None = None, place: str = "") -> Graph:
    """Check drafts of nodes, in any order, and return them as a graph; FlowError names the place.

    `late` is the type of the events as which late rows are published; by default it is NAME.late.
    """
    where = place or f"graph {name!r}"
    if not is_pipeline_name(name):
        raise FlowError(where, f"{name!r} is no name of a graph; {NAME_HINT}")
    if not drafts:
        raise FlowError(where, "the graph has no nodes")
    if len(drafts) > NODES_MAX:
        raise FlowError(where, f"the graph has {len(drafts)} nodes; at most {NODES_MAX} are allowed")
    made: dict[str, FlowNode] = {}
    for draft in _in_order(_by_name(drafts)):
        made[draft.name] = _checked(draft, made)
    collapses = tuple(node.name for node in made.values() if isinstance(node.edge, Collapse))
    if collapses:
        made[LATE] = FlowNode(LATE, "history", Late(), collapses, LATE_COLUMNS, (), late or f"{name}.{LATE}")
    graph = Graph(name, tuple(made.values()))
    _check_published(graph, where)
    return graph


def _by_name(drafts: Sequence[Draft]) -> dict[str, Draft]:
    known: dict[str, Draft] = {}
    for draft in drafts:
        if not _NAME.fullmatch(draft.name):
            raise FlowError(_place(draft), f"{draft.name!r} is no name of a node; use letters, digits and _")
        if draft.name.lower() == LATE:
            raise FlowError(_place(draft), f"the name {LATE!r} is taken: it is the history of late rows")
        if draft.name.lower() in known:
            raise FlowError(_place(draft), f"the name {draft.name!r} is there twice; rename one")
        known[draft.name.lower()] = draft
    return {draft.name: draft for draft in drafts}


def _place(draft: Draft) -> str:
    return draft.place or f"node {draft.name!r}"


def _in_order(drafts: Mapping[str, Draft]) -> Iterator[Draft]:
    """Yield each draft after those it is made from; FlowError for a cycle or an unknown name."""
    done: set[str] = set()
    under_way: list[str] = []

    def visit(draft: Draft) -> Iterator[Draft]:
        if draft.name in done:
            return
        if draft.name in under_way:
            cycle = " → ".join([*under_way[under_way.index(draft.name) :], draft.name])
            raise FlowError(_place(draft), f"the node is made from itself: {cycle}")
        under_way.append(draft.name)
        for name in draft.after:
            if name not in drafts:
                raise FlowError(
                    _place(draft), f"there is no node {name!r}; the nodes are {', '.join(drafts)}"
                )
            yield from visit(drafts[name])
        under_way.pop()
        done.add(draft.name)
        yield draft

    for draft in drafts.values():
        yield from visit(draft)


def _checked(draft: Draft, made: Mapping[str, FlowNode]) -> FlowNode:
    before = [made[name] for name in draft.after]
    place = _place(draft)
    if isinstance(draft.edge, Read) == bool(before):
        raise FlowError(place, "needs either a node that it is made from, or the events that it reads")
    found = outcome(draft.edge, [EdgeResult(node.kind, node.columns, node.by) for node in before], place)
    node = FlowNode(
        draft.name, found.kind, draft.edge, draft.after, found.columns, found.by, draft.published, place
    )
    _check_type(node)
    if isinstance(draft.edge, Expand):
        _check_order(node, made)
    if isinstance(draft.edge, Apply):
        _check_before_collapse(node, made)
    return node


def _check_type(node: FlowNode) -> None:
    if node.published == ROW_TYPE:
        if node.kind == "state" or node.columns.get("type") != "string":
            raise FlowError(node.place, "can't be published by the type of each row: it has no column type")
    elif node.published is not None:
        try:
            check_type(node.published)
        except EventError as error:
            raise FlowError(node.place, f"can't be published: {error.problem}") from None


def above(node: FlowNode, made: Mapping[str, FlowNode]) -> Iterator[FlowNode]:
    """Yield the nodes that this one is made from, directly or not, each once."""
    seen: set[str] = set()
    waiting = list(node.after)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            yield made[name]
            waiting.extend(made[name].after)


def _check_order(node: FlowNode, made: Mapping[str, FlowNode]) -> None:
    sources = sorted(one.name for one in above(node, made) if isinstance(one.edge, Read))
    if len(sources) > 1:
        problem = f"expand needs the events of one source, in their order, not of {', '.join(sources)}"
        raise FlowError(node.place, f"{problem}; read them as one source")


def _check_before_collapse(node: FlowNode, made: Mapping[str, FlowNode]) -> None:
    for one in above(node, made):
        if isinstance(one.edge, Collapse):
            problem = f"a Python function must come before the first collapse, and {one.name!r} is one"
            raise FlowError(node.place, f"{problem}; transform with expressions")


def _check_published(graph: Graph, place: str) -> None:
    types: dict[str, FlowNode] = {}
    for node in graph.published:
        assert node.published is not None
        other = types.setdefault(node.published, node)
        if other is not node and "state" in (node.kind, other.kind):
            problem = f"{other.name!r} and {node.name!r} are published as one type, {node.published!r}"
            raise FlowError(node.place or place, f"{problem}; a state needs a type of its own")
    for node in graph.nodes:
        if isinstance(node.edge, Read):
            _check_feedback(node, types)


def _check_feedback(node: FlowNode, types: Mapping[str, FlowNode]) -> None:
    assert isinstance(node.edge, Read)
    where = Filter(node.edge.where)
    for type, published in types.items():
        if type != ROW_TYPE and where.overlaps(Filter("type = :type", type=type)):
            problem = f"reads what the graph publishes: {published.name!r} as {type!r}"
            raise FlowError(node.place, f"{problem}; exclude it, such as with AND type <> '{type}'")

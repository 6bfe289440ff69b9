"""Edges of a flow graph as operations on DataFrames, and whole graphs over history.

No step looks at the columns of a DataFrame, as the definitions of a declarative pipeline must not: they are
known from the graph.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own examples call it
from pyspark.sql import types

from tidings.errors import FlowError
from tidings.filters import Filter
from tidings.filters.parser import parse_expression
from tidings.filters.tree import Arithmetic, Literal, Name, Negative, TreeNode
from tidings.log.collapse_rules import decimal_digits
from tidings.pipeline.attribute_columns import quoted
from tidings.pipeline.columns import constant_column, to_column
from tidings.pipeline.flow.collapsing import Collapsing, PartialCollapsing, partial_row
from tidings.pipeline.flow.edges import Apply, Collapse, Expand, Late, Merge, Read, Select, Transform
from tidings.pipeline.flow.graph import FlowNode, Graph
from tidings.pipeline.flow.types import Columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TYPES: dict[str, types.DataType] = {
    "string": types.StringType(),
    "boolean": types.BooleanType(),
    "tinyint": types.ByteType(),
    "smallint": types.ShortType(),
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "float": types.FloatType(),
    "double": types.DoubleType(),
    "timestamp": types.TimestampType(),
    "date": types.DateType(),
    "binary": types.BinaryType(),
}


def frames_of(
    graph: Graph, inputs: Mapping[str, DataFrame], collapsed: Collection[str] = ()
) -> dict[str, DataFrame]:
    """Return all nodes of the graph as DataFrames; see `Graph.frames`."""
    made: dict[str, DataFrame] = {}
    for node in graph.nodes:
        if isinstance(node.edge, Read):
            made[node.name] = read_frame(graph, node, inputs, collapsed)
        else:
            before = [made[name] for name in inputs_of(graph, node)]
            made[node.name] = node_frame(graph, node, *before, collapsed=collapsed)
    return made


def inputs_of(graph: Graph, node: FlowNode) -> tuple[str, ...]:
    """Return the nodes from whose rows this one is made: for an expand those before its collapse."""
    if isinstance(node.edge, Expand | Late):
        return tuple(name for state in node.after for name in graph[state].after)
    return node.after


def node_frame(
    graph: Graph, node: FlowNode, *before: DataFrame, collapsed: Collection[str] = ()
) -> DataFrame:
    """Return the rows of a node over history, from those of `inputs_of`."""
    if isinstance(node.edge, Late):
        states = zip(node.after, before, strict=True)
        return together([collapsing_of(graph, graph[name], collapsed).judged(df)[1] for name, df in states])
    if not isinstance(node.edge, Collapse | Expand):
        return step(graph, node, before, collapsed)
    state = node if isinstance(node.edge, Collapse) else graph[node.after[0]]
    collapsing = collapsing_of(graph, state, collapsed)
    good, _ = collapsing.judged(before[0])
    return collapsing.collapsed(good) if isinstance(node.edge, Collapse) else collapsing.expanded(good)


def read_frame(
    graph: Graph, node: FlowNode, inputs: Mapping[str, DataFrame], collapsed: Collection[str] = ()
) -> DataFrame:
    """Return the columns of a source; FlowError if there is no DataFrame for it."""
    if node.name not in inputs:
        raise FlowError(node.place, "there is no DataFrame for this source")
    return inputs[node.name].select(*read_columns(graph, node, collapsed))


def read_columns(graph: Graph, node: FlowNode, collapsed: Collection[str]) -> list[Column]:
    """Return the columns of a node in the DataFrame of its source, or of its function."""
    if node.name in collapsed:
        return partial_row(edge_after(graph, node))
    return [named(name).alias(name) for name in node.columns]


def edge_after(graph: Graph, node: FlowNode) -> Collapse:
    """Return the collapse that nodes do for a source; FlowError if they can't."""
    (upstream,) = [source.upstream for source in graph.sources if source.name == node.name]
    if upstream is None:
        raise FlowError(node.place, "can't be read as partial rows: its events feed more than one collapse")
    edge = graph[upstream.state].edge
    assert isinstance(edge, Collapse)
    return edge


def collapsing_of(graph: Graph, node: FlowNode, collapsed: Collection[str] = ()) -> Collapsing:
    """Return the collapse that makes a state, of rows or of the partial rows of a collapsed source."""
    before = graph[node.after[0]]
    kind = PartialCollapsing if graph.root(before).name in collapsed else Collapsing
    return kind.of(node, before.columns)


def step(
    graph: Graph, node: FlowNode, before: Sequence[DataFrame], collapsed: Collection[str] = ()
) -> DataFrame:
    """Return what a select, transform, merge or function makes; nodes have selected partial rows already."""
    edge, columns = node.edge, graph[node.after[0]].columns
    if isinstance(edge, Select):
        is_done = graph.root(node).name in collapsed
        return (
            before[0] if is_done else before[0].where(Filter(edge.condition).to_spark(spark_types(columns)))
        )
    if isinstance(edge, Transform):
        made = {name: expression(parse_expression(text), columns) for name, text in edge.expressions.items()}
        return before[0].select(*[made.get(name, named(name)).alias(name) for name in node.columns])
    if isinstance(edge, Merge):
        return together(before)
    assert isinstance(edge, Apply)
    return cast("DataFrame", edge.function(*before)).select(*map(named, node.columns))


def together(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all of them."""
    return reduce(lambda one, other: one.unionByName(other), frames)


def named(name: str) -> Column:
    """Return the column of that name, whatever characters it has."""
    return F.col(quoted(name))


def spark_types(columns: Columns) -> dict[str, types.DataType | str]:
    """Return the types of columns as Spark's objects, made without asking Spark."""
    return {name: spark_type(text) for name, text in columns.items()}


def spark_type(text: str) -> types.DataType:
    """Return a type as Spark's object."""
    if text in _TYPES:
        return _TYPES[text]
    digits = decimal_digits(text)
    assert digits is not None, text
    return types.DecimalType(*digits)


def expression(node: TreeNode, columns: Columns) -> Column:
    """Return an expression as a Column: a name as it is, a calculation as double, a condition as boolean."""
    if isinstance(node, Name):
        return named(node.name)
    if isinstance(node, Literal):
        column = constant_column(node.value)
        return column.cast("bigint") if type(node.value) is int else column
    if isinstance(node, Arithmetic | Negative):
        return F.nanvl(calculated(node), F.lit(None).cast("double"))
    return to_column(cast("Any", node), spark_types(columns))


def calculated(node: TreeNode) -> Column:
    """Return a calculation in doubles; null if an operand is, or for a division by zero."""
    match node:
        case Arithmetic(operator, left, right):
            one, other = calculated(left), calculated(right)
            if operator == "/":
                return one / F.when(other != 0.0, other)
            return {"+": one + other, "-": one - other, "*": one * other}[operator]
        case Negative(operand):
            return -calculated(operand)
        case Literal(value):
            return F.lit(float(cast("float", value)))
        case Name(name):
            return named(name).cast("double")
    raise AssertionError(node)

"""Types of the columns of a flow graph, in Spark's words, known without Spark.

Every history has the columns of `PLACE`: the time of the event, and the node and position by which it is
identified. They pass through select and transform, and order the events of a graph.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidings.filters.kinds import Kind

Columns = Mapping[str, str]
"""Types of columns by their names, in their order."""

PLACE: Columns = {"time": "timestamp", "node": "string", "position": "bigint"}
"""Columns of every history that can be collapsed."""
WINDOW: Columns = {"start": "timestamp", "end": "timestamp"}
"""Columns that a windowed collapse adds to its key."""
COLUMNS_MAX = 200
"""Columns of a history or state; beyond that, reading slows down."""

_KINDS = {
    "string": Kind.STRING,
    "boolean": Kind.BOOLEAN,
    "timestamp": Kind.TIME,
    "date": Kind.TIME,
    "binary": Kind.BYTES,
}
INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})
KEYS = INTEGERS | {"string", "boolean", "timestamp", "date"}
"""Types that key columns can have: their values are equal only if their texts are."""
AS_IN_EVENTS = INTEGERS | {"double", "string", "boolean", "timestamp", "binary"}
"""Types whose values are those of events, or null: a filter means the same at the node and in Spark."""


def kind_of_type(type: str) -> Kind:
    """Return the kind of value that a column of this type has."""
    return _KINDS.get(type, Kind.NUMBER)


def ddl(columns: Columns) -> str:
    """Return the columns as a schema that Spark reads."""
    return ", ".join(f"`{name.replace('`', '``')}` {type}" for name, type in columns.items())

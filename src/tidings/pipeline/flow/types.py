"""Types of the columns of a flow graph, in Spark's words, known without Spark.

Every history has the columns of `PLACE`: the time of the event, and the node and position by which it is
identified. They pass through select and transform, and order the events of a graph.
"""

from __future__ import annotations

import re
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

_SAME = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}
_KINDS = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint", "float", "double"), Kind.NUMBER),
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
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_DECIMAL_DIGITS = 38


def normal_type(text: str) -> str | None:
    """Return a type in its one spelling, such as bigint for long; None if no column can have it."""
    plain = text.strip().lower()
    plain = _SAME.get(plain, plain)
    if plain in _KINDS:
        return plain
    found = _DECIMAL.fullmatch(plain)
    if found is None or not 0 <= int(found[2]) <= int(found[1]) <= _DECIMAL_DIGITS or int(found[1]) == 0:
        return None
    return f"decimal({int(found[1])},{int(found[2])})"


def kind_of_type(type: str) -> Kind:
    """Return the kind of value that a column of this type has."""
    return _KINDS.get(type, Kind.NUMBER)


def ddl(columns: Columns) -> str:
    """Return the columns as a schema that Spark reads."""
    return ", ".join(f"`{name.replace('`', '``')}` {type}" for name, type in columns.items())

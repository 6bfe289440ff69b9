"""Columns of a query, in Spark's types and in Arrow's.

A column that is named like a header field is that field; `position`, `node`, `attributes` and `mismatches`
have the meaning of their names. Any other column is the attribute of that name, exactly as it is written.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from tidings.errors import ConfigError
from tidings.log.columns import Decoder
from tidings.log.schema import FIXED, TEXTS

ALWAYS = frozenset({"node", "mismatches"} | {field.name for field in FIXED if not field.nullable})
"""Columns that have a value in every row."""
OWN_TYPES = {
    "node": pa.string(),
    "mismatches": pa.int64(),
    **{field.name: field.type for field in FIXED},
}
"""Types of the columns that are no attributes."""

OWN_NAMES = OWN_TYPES.keys() | {"attributes"}


def default_schema() -> StructType:
    """Return the columns of a query that names none: the place, the header, and all attributes as texts."""
    columns: StructType = from_arrow_schema(pa.schema([*FIXED, pa.field("attributes", TEXTS)]))
    node = StructField("node", StringType(), nullable=False)
    return StructType([node, *columns.fields])


def arrow_schema(schema: StructType) -> Any:
    """Return the same columns in Arrow, as Spark wants them; ConfigError for one that no event can fill."""
    _check_names(schema)
    try:
        columns = to_arrow_schema(schema, timezone="UTC")
    except PySparkException as error:
        raise ConfigError("schema", "", f"has a type that no value of an event has: {error}") from None
    for field in columns:
        _check_field(field)
    Decoder(columns)
    return columns


def _check_names(schema: StructType) -> None:
    """Refuse two columns of one name, without regard to case, as in Spark; own ones in another case, too."""
    seen: dict[str, str] = {}
    for name in schema.fieldNames():
        if name.lower() in seen:
            raise ConfigError("schema", name, f"is the same name to Spark as {seen[name.lower()]!r}")
        seen[name.lower()] = name
        if name not in OWN_NAMES and name.lower() in OWN_NAMES:
            problem = f"differs from {name.lower()!r} by case only; write that"
            raise ConfigError("schema", name, f"{problem}, or read the attribute in the map 'attributes'")


def _check_field(field: Any) -> None:
    own = OWN_TYPES.get(field.name)
    if own is not None and _kind(field.type) not in _TAKEN_BY[_kind(own)]:
        raise ConfigError("schema", field.name, f"is {own} in every event, and never {field.type}")
    if not (field.nullable or field.name in ALWAYS):
        raise ConfigError("schema", field.name, "can't be NOT NULL: an event may be without it")


def _kind(type: Any) -> str:
    for kind in ("integer", "floating", "decimal", "string", "binary", "timestamp", "date"):
        if getattr(pa.types, f"is_{kind}")(type):
            return kind
    return str(type)


_NUMBERS = ("integer", "floating", "decimal")
_TAKEN_BY = {
    "integer": _NUMBERS,
    "floating": ("floating", "decimal"),
    "string": ("string",),
    "binary": ("binary",),
    "timestamp": ("timestamp", "date"),
}
"""Columns that values of each kind fit into."""

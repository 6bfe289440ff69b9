"""Columns of a filter's names in a DataFrame: one for each kind of value that a name may have there.

The filter language checks the kind of a value before it compares it; Spark knows types, and casts. So a
name is divided into kinds, as in the log's map of attributes: `b` boolean, `i` bigint, `f` double,
`s` string, `t` timestamp, `x` binary. In each row at most one of them is not NULL. A column whose type is
known has one kind; an attribute in the map, or a column of unknown type, may have any. The rule kept: nothing
is cast to another kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as sf

from tidings.errors import FilterError
from tidings.event.values import HEADER_NAMES, INT_MAX, INT_MIN

DAY_US = 86_400_000_000
LETTERS = ("b", "i", "f", "s", "t", "x")
INTEGERS: dict[type[types.DataType], int] = {
    types.ByteType: 8,
    types.ShortType: 16,
    types.IntegerType: 32,
    types.LongType: 64,
}
"""Spark's integers and their bits."""

# Types of these columns in a DataFrame of unknown schema: those that the source gives them.
HEADER_TYPES: dict[str, types.DataType] = {
    **dict.fromkeys(HEADER_NAMES, types.StringType()),
    "time": types.TimestampType(),
    "received": types.TimestampType(),
    "priority": types.ByteType(),
    **dict.fromkeys(("ttl_s", "keep_s", "reliability"), types.DoubleType()),
    "body": types.BinaryType(),
}

ColumnTypes = DataFrame | types.StructType | str | Mapping[str, types.DataType | str]


class AttributeValue(Struct, frozen=True):
    """Value of a name or calculation, by kind; `there` is NULL where there is none of any kind."""

    there: Column
    kinds: dict[str, Column]
    low: int = INT_MIN
    high: int = INT_MAX
    """Range of the integers in `i`."""
    calculated: bool = False

    def get(self, letter: str) -> Column | None:
        """Return the value where it is of that kind, else NULL; None if it never is."""
        return self.kinds.get(letter)

    @property
    def real(self) -> Column | None:
        """Return the double, with NULL for NaN, with which nothing compares."""
        column = self.kinds.get("f")
        return None if column is None else sf.when(~sf.isnan(column), column)


class Names:
    """Columns of a DataFrame, by the names of a filter."""

    def __init__(self, columns: ColumnTypes | None, attributes: str | None) -> None:
        self.schema = None if columns is None else schema_of(columns)
        self.attributes = attributes
        if self.schema is not None and attributes is not None:
            _check_map(self.schema, attributes)
        self._known: dict[str, AttributeValue] = {}

    def held(self, name: str) -> AttributeValue:
        """Return the columns of a name; FilterError for a header field that is no column."""
        if name not in self._known:
            self._known[name] = self._find(name)
        return self._known[name]

    def _find(self, name: str) -> AttributeValue:
        if name == "JMSTimestamp":
            return _milliseconds(self.held("time"))
        if name == "JMSDeliveryMode":
            return _delivery_mode(self.held("delivery"))
        column = self._column(name)
        if self.attributes is None or name in HEADER_NAMES:
            return column or AttributeValue(sf.lit(None), {})
        in_map = of_struct(sf.col(quoted(self.attributes))[sf.lit(name)])
        return in_map if column is None else _first_of(column, in_map)

    def _column(self, name: str) -> AttributeValue | None:
        """Return the column of that name, or the field of a struct that a dotted name leads to."""
        if self.schema is None:
            known = HEADER_TYPES.get(name)
            if self.attributes is not None and known is None:
                return None
            column = sf.col(quoted(name))
            return of_any_type(column) if known is None else of_type(column, known)
        path = _path(self.schema, name)
        if path is None:
            if name in HEADER_NAMES:
                raise FilterError(
                    f"the DataFrame has no column {name}, which the filter asks for",
                    hint="it is a header field: name it in the schema of the source",
                )
            return None
        names, kind = path
        return of_type(sf.col(".".join(map(quoted, names))), kind)


def schema_of(columns: ColumnTypes) -> types.StructType:
    """Return the columns of a DataFrame, given by itself, its schema, that as text, or types by name."""
    if isinstance(columns, Mapping):
        return types.StructType([types.StructField(name, _type_of(kind)) for name, kind in columns.items()])
    schema = (
        _type_of(columns) if isinstance(columns, str | types.DataType) else getattr(columns, "schema", None)
    )
    if isinstance(schema, types.StructType):
        return schema
    raise FilterError(f"columns are given as a DataFrame or its schema, not {type(columns).__name__}")


def _type_of(kind: types.DataType | str) -> types.DataType:
    return types.DataType.fromDDL(kind) if isinstance(kind, str) else kind


def quoted(name: str) -> str:
    """Return the name of a column as Spark reads it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def _path(schema: types.StructType, name: str) -> tuple[list[str], types.DataType] | None:
    """Return the column of that name, or the field its dots lead to; names are case-sensitive."""
    for field in schema:
        if field.name == name:
            return [name], field.dataType
        if isinstance(field.dataType, types.StructType) and name.startswith(f"{field.name}."):
            inner = _path(field.dataType, name[len(field.name) + 1 :])
            if inner is not None:
                return [field.name, *inner[0]], inner[1]
    return None


def _check_map(schema: types.StructType, name: str) -> None:
    kind = schema[name].dataType if name in schema.names else None
    if not (isinstance(kind, types.MapType) and isinstance(kind.valueType, types.StructType)):
        raise FilterError(
            f"{name} is no map of attributes with the kinds of their values",
            hint="as texts they have lost their kinds: name the attributes as columns in the schema",
        )


# Kinds


def of_type(column: Column, kind: types.DataType) -> AttributeValue:
    """Return the value of a column of that type; if no event knows the type, only its presence."""
    bits = INTEGERS.get(type(kind))
    if bits is not None:
        return AttributeValue(column, {"i": column}, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    convert = _CONVERSIONS.get(type(kind))
    return AttributeValue(column, {} if convert is None else convert(column, kind))


def _real(column: Column, _kind: types.DataType) -> dict[str, Column]:
    return {"f": column.cast("double")}


def _text(column: Column, kind: Any) -> dict[str, Column]:
    plain = getattr(kind, "collation", None) in (None, "UTF8_BINARY")
    return {"s": column if plain else sf.collate(column, "UTF8_BINARY")}


def _local_time(column: Column) -> Column:
    """Convert a time without a zone, taken as UTC. A cast would take it in the zone of the session."""
    return sf.concat(column.cast("string"), sf.lit("+00:00")).cast("timestamp")


def _date(column: Column) -> Column:
    """Return the first moment of a day, in UTC."""
    return sf.timestamp_micros(sf.unix_date(column).cast("bigint") * sf.lit(DAY_US))


_CONVERSIONS: dict[type[types.DataType], Callable[[Column, types.DataType], dict[str, Column]]] = {
    types.BooleanType: lambda column, _: {"b": column},
    types.FloatType: _real,
    types.DoubleType: lambda column, _: {"f": column},
    types.DecimalType: _real,
    types.StringType: _text,
    types.VarcharType: _text,
    types.CharType: _text,
    types.TimestampType: lambda column, _: {"t": column},
    types.TimestampNTZType: lambda column, _: {"t": _local_time(column)},
    types.DateType: lambda column, _: {"t": _date(column)},
    types.BinaryType: lambda column, _: {"x": column},
}


def of_struct(column: Column) -> AttributeValue:
    """Return the value of an attribute in the log's map: a struct with one member for each kind."""
    kinds = {letter: column[letter] for letter in LETTERS}
    there = sf.coalesce(*(sf.when(kind.isNotNull(), sf.lit(True)) for kind in kinds.values()))
    return AttributeValue(there, kinds)


def of_any_type(column: Column) -> AttributeValue:
    """Return the value of a column of which only the name is known: Spark finds its type when it plans.

    `typeof` is a constant by then; a value that was cast to a variant can be read as any type without error.
    """
    type_name = sf.regexp_extract(sf.typeof(column), "^[a-z_]+", 0)
    variant = column.cast("variant")

    def read(target: str, *names: str) -> Column:
        return sf.when(type_name.isin(*names), sf.try_variant_get(variant, "$", target))

    times = (
        read("timestamp", "timestamp"),
        _local_time(read("timestamp_ntz", "timestamp_ntz")),
        _date(read("date", "date")),
    )
    kinds = {
        "b": read("boolean", "boolean"),
        "i": read("bigint", "tinyint", "smallint", "int", "bigint"),
        "f": read("double", "float", "double", "decimal"),
        "s": read("string", "string"),
        "t": sf.coalesce(*times),
        "x": read("binary", "binary"),
    }
    return AttributeValue(column, kinds)


def _first_of(column: AttributeValue, in_map: AttributeValue) -> AttributeValue:
    """Return an attribute that has a column for its commonest kind, and the map for the others."""
    kinds = {
        letter: sf.coalesce(column.kinds[letter], other) if letter in column.kinds else other
        for letter, other in in_map.kinds.items()
    }
    there = sf.coalesce(sf.when(column.there.isNotNull(), sf.lit(True)), in_map.there)
    return AttributeValue(there, kinds)


# Header fields that JMS writes in its own way


def _milliseconds(time: AttributeValue) -> AttributeValue:
    kinds = {"i": sf.unix_millis(time.kinds["t"])} if "t" in time.kinds else {}
    return AttributeValue(time.there, kinds)


def _delivery_mode(delivery: AttributeValue) -> AttributeValue:
    text = delivery.get("s")
    if text is None:
        return AttributeValue(delivery.there, {})
    mode = sf.when(text == "transient", sf.lit("NON_PERSISTENT")).when(text.isNotNull(), sf.lit("PERSISTENT"))
    return AttributeValue(delivery.there, {"s": mode})

"""Partial rows of a collapse, as a query reads them instead of events (`tidings.log.collapse`).

The nodes collapse their own events, and Spark merges the partial rows of all of them: docs/spark.md has the
rules. A node that can't sends events, and the task collapses these.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from tidings.errors import ConfigError
from tidings.log.arguments import CollapseTerms
from tidings.log.collapse import Collapser

WINDOW_S_UNITS = 1_000_000


class CollapseOption(Struct, frozen=True, forbid_unknown_fields=True):
    """Option `collapse`, in JSON."""

    columns: dict[str, str]
    by: str | list[str]
    rules: dict[str, str]
    window_s: float | None = None


def collapse_terms(text: str) -> CollapseTerms:
    """Return the terms in the text of the option; ValueError says what is wrong."""
    try:
        given = msgspec.json.decode(text, type=CollapseOption)
        by = [given.by] if isinstance(given.by, str) else given.by
        window_us = None if given.window_s is None else round(given.window_s * WINDOW_S_UNITS)
        terms = CollapseTerms(given.columns, by, given.rules, window_us)
        terms = msgspec.convert(msgspec.to_builtins(terms), CollapseTerms)  # checks its limits
        Collapser(terms)
    except (msgspec.MsgspecError, OverflowError) as error:
        example = '{"columns": {"station": "string"}, "by": "station", "rules": {"n": "count()"}}'
        raise ValueError(f"is no collapse such as {example}: {error}") from None
    except ConfigError as error:
        raise ValueError(f"{error.key}: {error.problem}") from None
    return terms


def partial_schema(terms: CollapseTerms) -> StructType:
    """Return the columns of partial rows."""
    schema: StructType = from_arrow_schema(Collapser(terms).schema)
    return schema


def partial_columns(terms: CollapseTerms, schema: StructType) -> Any:
    """Return the columns in Arrow; ConfigError if the query has a schema of its own that differs."""
    wanted = partial_schema(terms)
    if [(one.name, one.dataType) for one in schema] != [(one.name, one.dataType) for one in wanted]:
        problem = f"a query with the option 'collapse' has the columns {wanted.simpleString()}"
        raise ConfigError("schema", "", f"{problem}; leave .schema() out")
    return to_arrow_schema(wanted, timezone="UTC")


def collapsed(batches: Iterator[pa.RecordBatch], collapser: Collapser) -> Iterator[pa.RecordBatch]:
    """Yield partial rows of batches of events."""
    for batch in batches:
        collapser.add(batch)
        if collapser.is_full:
            yield from collapser.take().to_batches()
    yield from collapser.take().to_batches()

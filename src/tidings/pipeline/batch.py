"""Batch source, `spark.read` from nodes: the log, or a part of it, as it is when the query is planned.

The driver requests the extent of each node's log and cuts it into pieces, ranges of positions; a task reads
one piece, from the node and by itself, and makes Arrow record batches of it. No reader is opened at a node
for that: a query of history turns no sensor on.

A column that is named like a header field is that field; `position`, `node`, `attributes` and `mismatches`
have the meaning of their names. Any other column is the attribute of that name, exactly as it is written.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.datasource import Filter as SparkFilter
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from tidings.client import blocking
from tidings.errors import ConfigError, FilterError, Refused, UserError
from tidings.event.values import time_from_us
from tidings.filters import Filter
from tidings.log.arguments import CollapseTerms
from tidings.log.chunks import Part
from tidings.log.collapse import Collapser, partial_rows
from tidings.log.columns import Decoder
from tidings.log.schema import FIXED, TEXTS
from tidings.pipeline.connect import ANSWER_S_MAX, connect, naming_node, standing_of
from tidings.pipeline.offsets import NodeExtent, OffsetRange, split
from tidings.pipeline.options import ReadBound, ReadOptions, label_of
from tidings.pipeline.partial_rows import partial_columns

PIECE_LENGTH_MIN = 20_000
"""Positions that are not divided among several tasks: a task costs more than to read them."""
PIECE_LENGTH_MAX = 4_000_000
"""Positions that one task reads, about; a task that fails starts its piece anew."""
READ_SIZE = 2 << 20
"""Bytes of events that are requested at once, while those before them are decoded."""

logger = logging.getLogger("tidings")


class TaskInput(InputPartition):
    """Input of one task: positions at the node with that address."""

    def __init__(self, node: str, span: OffsetRange) -> None:
        self.node = node
        self.span = span


class LogReader(DataSourceReader):
    """Reads the logs of nodes.

    Parameters
    ----------
    options : ReadOptions
        Options of the read.
    schema : StructType
        Columns of the result.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.columns = columns_of(options, schema)
        self.where = options.where

    def partitions(self) -> Sequence[InputPartition]:
        """Request the extents of the nodes' logs, and cut them into pieces."""
        spans = [self._span(node) for node in self.options.reach.nodes]
        return pieces_of(spans, self.options)

    def _span(self, node: str) -> OffsetRange:
        label = label_of(node)
        with naming_node(node), connect(self.options.reach, node) as bus:
            standing = standing_of(bus)
            first = place_of(bus, self.options.starting, label, standing)
            end = place_of(bus, self.options.ending, label, standing)
            if first > standing.end:  # nothing would be read, without an error
                beyond = OffsetRange(label, standing.node, first, max(first, end))
                within(beyond, standing, self.options.fails_on_loss)
        return OffsetRange(label, standing.node, first, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one piece; called in an executor, once for each attempt of a task."""
        if not isinstance(partition, TaskInput):  # Spark's own, for a query that has nothing to read
            return iter(())
        return read_piece(partition, self.options, self.columns, self.where)


class Pushed(DataSourceReader):
    """Takes over the conditions of a query that it can; a mixin for readers that have a `where`.

    A reader with `pushFilters` makes Spark refuse the query unless
    `spark.sql.python.filterPushdown.enabled` is set, so a query requests one by the option `pushdown`.
    """

    where: str

    def pushFilters(self, filters: list[SparkFilter]) -> Iterable[SparkFilter]:  # noqa: N802
        """Return the conditions that Spark must still apply; called once, while the query is planned."""
        pushed, left_over = Filter.from_spark(filters)
        try:
            self.where = str(Filter(self.where) & pushed)
        except FilterError:  # too large for one filter
            return filters
        return left_over


class PushedLogReader(Pushed, LogReader):
    """Reads the logs of nodes, which apply the conditions."""


def place_of(bus: blocking.Bus, bound: ReadBound, label: str, standing: NodeExtent) -> int:
    """Return the position that a bound means at a node."""
    if bound.time_us is not None:
        at = bus.log.position_at(time_from_us(bound.time_us), timeout_s=ANSWER_S_MAX)
        return min(max(at, standing.first), standing.end)
    place = bound.at(label)
    if isinstance(place, int):
        return max(place, 1)
    return standing.first if place == "earliest" else standing.end


def pieces_of(spans: Sequence[OffsetRange], options: ReadOptions) -> list[InputPartition]:
    """Return the inputs of tasks: the spans, cut, each with the address of its node."""
    nodes = {label_of(node): node for node in options.reach.nodes}
    return [TaskInput(nodes[span.label], span) for span in cut(spans, options.partitions_min)]


def cut(spans: Sequence[OffsetRange], wished: int | None) -> list[OffsetRange]:
    """Return the spans in as many pieces as wished, or as there are cores here and is worth it."""
    length = sum(max(0, span.end - span.first) for span in spans)
    count = max(wished or os.cpu_count() or 1, -(-length // PIECE_LENGTH_MAX))
    return split(spans, count, PIECE_LENGTH_MIN if wished is None else 1)


def columns_of(options: ReadOptions, schema: StructType) -> Any:
    """Return the columns of a query in Arrow; ConfigError for one that nothing can fill."""
    return arrow_schema(schema) if options.collapse is None else partial_columns(options.collapse, schema)


def read_piece(piece: TaskInput, options: ReadOptions, columns: Any, where: str) -> Iterator[pa.RecordBatch]:
    """Yield the matching events of a piece, as record batches with these columns; or their partial rows."""
    if options.collapse is not None:
        yield from _partial_rows(piece, options, options.collapse, where)
        return
    span = piece.span
    decoder = Decoder(columns, span.node, options.strict)
    for parts in read_parts(piece, options, where, decoder.wanted):
        yield from decoder.batches(parts)
    log_mismatches(decoder, _name_of(span))


def read_parts(
    piece: TaskInput, options: ReadOptions, where: str, columns: list[str] | None = None
) -> Iterator[Sequence[Part]]:
    """Yield the matching parts of a piece, as the node returns them; of sealed files only these columns."""
    with _connected(piece, options) as (bus, first, end):
        reading = bus.log.parts(
            first,
            end,
            where,
            skip=options.skips_corrupt,
            skip_pruned=not options.fails_on_loss,
            size=READ_SIZE,
            columns=columns,
            channel=options.channel,
            timeout_s=ANSWER_S_MAX,
        )
        for parts, _ in reading:
            yield parts


def _partial_rows(
    piece: TaskInput, options: ReadOptions, terms: CollapseTerms, where: str
) -> Iterator[pa.RecordBatch]:
    collapser = Collapser(terms, piece.span.node)
    with _connected(piece, options) as (bus, first, end):
        reading = bus.log.collapsed(
            first,
            end,
            where,
            terms,
            skip=options.skips_corrupt,
            skip_pruned=not options.fails_on_loss,
            channel=options.channel,
            timeout_s=ANSWER_S_MAX,
        )
        for parts, _ in reading:
            yield from partial_rows(parts, collapser)
    log_mismatches(collapser.decoder, _name_of(piece.span))


@contextmanager
def _connected(piece: TaskInput, options: ReadOptions) -> Iterator[tuple[blocking.Bus, int, int]]:
    """Connect to the node of a piece; yield the bus, and which positions of the piece are still there."""
    with naming_node(piece.node), connect(options.reach, piece.node) as bus:
        try:
            yield bus, *within(piece.span, standing_of(bus), options.fails_on_loss)
        except Refused as error:
            if error.code == "corrupt":
                raise UserError(f"{error.problem}; the option 'skipCorrupt' reads on behind it") from None
            raise


def _name_of(span: OffsetRange) -> str:
    return f"positions {span.first} to {span.end} of node {span.label}"


def log_mismatches(decoder: Decoder, where: str) -> None:
    """Log in the task how many values became null, and why, if any did."""
    if decoder.mismatches:
        reasons = "; ".join(f"{count} × {reason}" for reason, count in sorted(decoder.mismatches.items()))
        total = decoder.mismatches.total()
        logger.warning("%d values did not fit their columns and are null, in %s: %s", total, where, reasons)


def within(span: OffsetRange, standing: NodeExtent, fails_on_loss: bool) -> tuple[int, int]:
    """Return the part of a span that is still there; if events are lost, raise or, if allowed, log that."""
    problem = None
    if span.node != standing.node:
        raise UserError(f"another node is there than when the query was planned: {standing.node!r}")
    if 0 < span.first < standing.first:
        problem = f"what comes before position {standing.first} has been pruned"
    elif span.end > standing.end:
        problem = f"the log ends at position {standing.end}"
    if problem is not None:
        loss = f"positions {span.first} to {span.end} are wanted, but {problem}"
        if fails_on_loss:
            raise UserError(f"{loss}; the option failOnDataLoss=false reads what there is")
        logger.warning("node %s: %s", span.label, loss)
    first = min(max(span.first, standing.first), standing.end)
    return first, max(first, min(span.end, standing.end))


# Columns of a query


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

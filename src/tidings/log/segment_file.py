"""One sealed file of the log: ordinary Parquet, which Spark, pandas and DuckDB read without tidings.

A file is named `NODE-FIRST-LAST.parquet` and makes a claim: *every event in the log of NODE at a position
from FIRST to LAST is in me*. Footer and name say the same. The columns are those of `tidings.log.schema`.

Growing numbers are written as differences and ids as what they don't share with the one before; all else is
left to dictionaries and zstd. Every page has a checksum, so that damage is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from typing import Any, Final, Self

import msgspec
from msgspec import Struct

from tidings.errors import MissingExtra, StoreDamaged, StoreTooNew
from tidings.event.model import Event
from tidings.event.values import us_from_time
from tidings.filters.filter import Filter
from tidings.log.chunks import FileClaim, LivePart, date_of

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from tidings.log.arrow.attributes import LETTERS, Longs
    from tidings.log.arrow.decode_rows import events_of
    from tidings.log.arrow.ids import made_ids
    from tidings.log.arrow.map_column import alike, map_names
    from tidings.log.columns import table_of
    from tidings.log.row_groups import RowGroups
    from tidings.log.schema import ATTRIBUTES, FIXED, Kinds, own_columns
except ModuleNotFoundError as error:
    if error.name is not None and error.name.startswith("tidings"):
        raise
    raise MissingExtra("the sealed log", "node") from None

FORMAT: Final = 1
GROUP_ROWS: Final = 100_000
"""Rows of one row group, which is read or skipped as a whole."""
COMPRESSION_LEVEL: Final = 3

_MAP_PATHS = ["attributes.key_value.key", *(f"attributes.key_value.value.{letter}" for letter in LETTERS)]
_everything = Filter()
_DIFFERENCES = ("position", "time", "received", "stored", "counter", "epoch")


class Footer(Struct, frozen=True):
    """Metadata of a file."""

    claim: FileClaim
    count: int
    map_names: frozenset[str]
    """Attributes that occur in the map, of any kind of value."""
    made_ids: bool = False
    """Whether every id is the one made of system, epoch and counter."""
    kinds: dict[str, str] | None = None
    """Kinds of columns that were known in its folder with it; None if the file has no list."""


# Writing


def tables_of(parts: Iterable[LivePart], kinds: Kinds | None = None) -> list[pa.Table]:
    """Return the events of live parts as tables of the same columns, each for one row group; at least one.

    The tables of one file are in memory together, since only then the frequent attributes are known.
    """
    tables = [table_of(group, kinds) for group in _groups(parts)]
    return alike(tables, kinds) if len(tables) > 1 else tables or [table_of([])]


def _groups(parts: Iterable[LivePart]) -> Iterable[list[LivePart]]:
    group: list[LivePart] = []
    rows = 0
    for part in parts:
        group.append(part)
        rows += len(part.rows) // 4 or part.count
        if rows >= GROUP_ROWS:
            yield group
            group, rows = [], 0
    if group:
        yield group


def write_file(sink: Any, tables: Iterable[pa.Table], claim: FileClaim, kinds: Kinds | None = None) -> int:
    """Write tables of the same columns as one file, each as row groups of its own; return the number of rows.

    With `kinds`, those known in its folder, the footer lists the kinds that are known with it.
    """
    writer: pq.ParquetWriter | None = None
    known: dict[str, str] | None = None
    count, made = 0, True
    names: set[str] = set()
    for table in tables:
        if writer is None:
            writer = _writer(sink, table.schema)
            known = None if kinds is None else kinds.with_columns(own_columns(table.schema))
        if len(table) or not count:
            writer.write_table(table, row_group_size=2 * GROUP_ROWS)
        count += len(table)
        names |= map_names(table)
        made = made and _are_made(table)
    assert writer is not None, "a file has a table, be it an empty one"
    writer.add_key_value_metadata(_metadata(Footer(claim, count, frozenset(names), made, known)))
    writer.close()
    return count


def _writer(sink: Any, schema: pa.Schema) -> pq.ParquetWriter:
    encodings = dict.fromkeys(_DIFFERENCES, "DELTA_BINARY_PACKED") | {"id": "DELTA_BYTE_ARRAY"}
    plain = [field.name for field in schema if field.name not in (*encodings, "attributes")]
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=COMPRESSION_LEVEL,
        use_dictionary=plain + _MAP_PATHS,
        column_encoding=encodings,
        write_page_index=True,
        write_page_checksum=True,
    )


def _are_made(table: pa.Table) -> bool:
    """Whether every id is made of other columns."""
    system, epoch, counter, ids = (
        table.column(name).combine_chunks() for name in ("system", "epoch", "counter", "id")
    )
    return bool(made_ids(system, epoch, counter).equals(ids))


def _metadata(footer: Footer) -> dict[str, str]:
    known = {} if footer.kinds is None else {"tidings.kinds": msgspec.json.encode(footer.kinds).decode()}
    return {
        "tidings.format": str(FORMAT),
        "tidings.node": footer.claim.node,
        "tidings.first": str(footer.claim.first),
        "tidings.last": str(footer.claim.last),
        "tidings.count": str(footer.count),
        "tidings.map_names": msgspec.json.encode(sorted(footer.map_names)).decode(),
        "tidings.ids": "made" if footer.made_ids else "given",
        **known,
    }


# Reading


def open_file(
    source: Any, path: str, metadata: pq.FileMetaData | None = None, coded: Sequence[str] = ()
) -> pq.ParquetFile:
    """Open a file of the log, whose pages are checked as they are read; StoreDamaged if it is no Parquet.

    The columns in `coded`, of strings, are read as the dictionaries they are written as.
    """
    try:
        return pq.ParquetFile(
            source, metadata=metadata, read_dictionary=list(coded), page_checksum_verification=True
        )
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise StoreDamaged(path, f"is no Parquet file: {error}") from None


def read_footer(file: pq.ParquetFile, path: str) -> Footer:
    """Read the footer; StoreDamaged if it is no file of the log, StoreTooNew if a newer one."""
    fields = {key.decode(): value.decode() for key, value in (file.metadata.metadata or {}).items()}
    try:
        if int(fields["tidings.format"]) > FORMAT:
            raise StoreTooNew(path, f"has format {fields['tidings.format']}, and this is {FORMAT}")
        claim = FileClaim(fields["tidings.node"], int(fields["tidings.first"]), int(fields["tidings.last"]))
        names = msgspec.json.decode(fields["tidings.map_names"], type=list[str])
        made = fields.get("tidings.ids") == "made"
        kinds = msgspec.json.decode(fields.get("tidings.kinds", "null"), type=dict[str, str] | None)
        return Footer(claim, int(fields["tidings.count"]), frozenset(names), made, kinds)
    except (KeyError, ValueError) as error:
        raise StoreDamaged(path, f"has no footer of a file of the log: {error}") from None


def by_date(parts: Iterable[LivePart]) -> list[tuple[date, list[LivePart]]]:
    """Return the parts in their order, cut where the date changes: one file each."""
    runs: list[tuple[date, list[LivePart]]] = []
    for part in parts:
        day = date_of(part.stored_us)
        if not runs or runs[-1][0] != day:
            runs.append((day, []))
        runs[-1][1].append(part)
    return runs


def positioned_events(stream: bytes) -> list[tuple[int, Event]]:
    """Return the events of an Arrow IPC stream with all columns of the files, each with its position."""
    table = pa.ipc.open_stream(stream).read_all()
    return list(zip(table.column("position").to_pylist(), events_of(table), strict=True))


# Queries


class OpenFile:
    """Open file, read row group by row group.

    StoreDamaged, with its path, for whatever can't be read of it.
    """

    def __init__(self, source: Any, path: str, metadata: pq.FileMetaData | None = None) -> None:
        """Open it; with its `metadata` from before, they are not read again."""
        self.path = path
        self._file = open_file(source, path, metadata)
        self.metadata: pq.FileMetaData = self._file.metadata
        self.footer: Footer = read_footer(self._file, path)
        _check_columns(self._file.schema_arrow, path)
        with self._reading():
            self._groups = RowGroups(
                self._file, self.footer, lambda coded: open_file(source, path, self.metadata, coded)
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close(force=True)

    @property
    def claim(self) -> FileClaim:
        """Claim of the file."""
        return self.footer.claim

    @property
    def schema(self) -> pa.Schema:
        """Columns of the file."""
        return self._groups.schema

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise StoreDamaged(self.path, f"can't be read: {error}") from None

    def read(
        self, first: int, end: int, filter: Filter, size_max: int, columns: Sequence[str] | None = None
    ) -> tuple[list[pa.Table], int]:
        """Return matching rows from `first` on and before `end`, of about that size, and where to go on.

        A row group is returned whole. Of `columns` those count that the file has; None: all.
        """
        wanted = None if columns is None else [name for name in self.schema.names if name in columns]
        tables: list[pa.Table] = []
        size = 0
        for group in range(len(self._groups)):
            low = self._groups.positions(group)[0]
            if size >= size_max and low < end:
                return tables, max(low, first)
            with self._reading():
                table = self._groups.read(group, first, end, filter, wanted)
            if table is not None:
                tables.append(table)
                size += table.nbytes
        return tables, min(self.claim.last + 1, end)

    def tables(self) -> Iterator[pa.Table]:
        """Yield all rows, a table for each row group."""
        for group in range(len(self._groups)):
            with self._reading():
                yield self._groups.columns(group, self.schema.names)

    def pages(self) -> Iterator[Longs]:
        """Read every page of every column, a row group at a time; yield the positions in it."""
        for group in range(len(self._groups)):
            with self._reading():
                table = self._file.read_row_group(group)
                table.validate(full=True)
                positions = table.column("position").to_numpy()
            yield positions

    def read_back(self, position: int) -> Iterator[pa.Table]:
        """Yield all rows up to a position, in tables, the last one first; the rows of each ascend."""
        for group in reversed(range(len(self._groups))):
            with self._reading():
                table = self._groups.read(group, 0, position + 1, _everything)
            if table is not None:
                yield table

    def position_at(self, time_us: int) -> int | None:
        """Return the position of the first event stored at or after a time, or None."""
        for group in range(len(self._groups)):
            if self._latest_us(group) < time_us:
                continue
            times = self._stored(group)
            place = pc.index(pc.greater_equal(times.column("us"), time_us), True).as_py()
            if place >= 0:
                return int(times.column("position")[place].as_py())
        return None

    def latest_us(self) -> int:
        """Return when the last of its events were stored, in microseconds; 0 if it has none."""
        return max((self._latest_us(group) for group in range(len(self._groups))), default=0)

    def _latest_us(self, group: int) -> int:
        received = self._groups.span(group, "received")
        if not self._groups.span(group, "stored").some and received.high is not None:
            return us_from_time(received.high)  # `received` is when they were stored
        return int(pc.max(self._stored(group).column("us")).as_py() or 0)

    def _stored(self, group: int) -> pa.Table:
        """Return the positions of a row group, and when each event was stored."""
        with self._reading():
            table = self._groups.columns(group, ["position", "received", "stored"])
        us = pc.coalesce(table.column("stored"), table.column("received")).cast(pa.int64())
        return pa.table({"position": table.column("position"), "us": us})


def _check_columns(schema: pa.Schema, path: str) -> None:
    for field in (*FIXED, pa.field("attributes", ATTRIBUTES)):
        place = schema.get_field_index(field.name)
        if place < 0 or schema.field(place).type != field.type:
            raise StoreDamaged(path, f"has no column {field.name} of {field.type}")

"""One sealed file of the log: ordinary Parquet, which Spark, pandas and DuckDB read without tidings.

A file is called `NODE-FIRST-LAST.parquet` and makes a claim: *every event in the log of NODE at a position
from FIRST to LAST is in me*. Footer and name say the same. The columns are those of `tidings.log.schema`.

Numbers that grow are written as differences and ids as what they don't share with the one before; all else is
left to dictionaries and zstd. Every page has a checksum, so that damage is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any, Final

import msgspec
from msgspec import Struct

from tidings.errors import MissingExtra, StoreDamaged, StoreTooNew
from tidings.event.model import Event
from tidings.log.parts import Claim, LivePart, date_of

try:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tidings.log.columns import table_of
    from tidings.log.entries import alike, map_names
    from tidings.log.flat import LETTERS
    from tidings.log.made_ids import made_ids
    from tidings.log.restore import events_of
    from tidings.log.schema import Kinds, own_columns
except ModuleNotFoundError as error:
    if error.name is not None and error.name.startswith("tidings"):
        raise
    raise MissingExtra("the sealed log", "node") from None

FORMAT: Final = 1
GROUP_ROWS: Final = 100_000
"""Rows of one row group: what is read, or passed over, at once."""
COMPRESSION_LEVEL: Final = 3

_MAP_PATHS = ["attributes.key_value.key", *(f"attributes.key_value.value.{letter}" for letter in LETTERS)]
_DIFFERENCES = ("position", "time", "received", "stored", "counter", "epoch")


class Footer(Struct, frozen=True):
    """What a file says of itself."""

    claim: Claim
    count: int
    map_names: frozenset[str]
    """The attributes that occur in the map, of any kind of value."""
    made_ids: bool = False
    """Whether every id is the one that system, epoch and counter make."""
    kinds: dict[str, str] | None = None
    """The kinds of columns that were known in its folder with it; None of a file that does not say."""


# Writing


def tables_of(parts: Iterable[LivePart], kinds: Kinds | None = None) -> list[pa.Table]:
    """The events of live parts as tables of the same columns, each for one row group; at least one table.

    The tables of one file are in memory together, since only then is it known which attributes are frequent.
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


def write_file(sink: Any, tables: Iterable[pa.Table], claim: Claim, kinds: Kinds | None = None) -> int:
    """Write tables of the same columns as one file, each as row groups of its own; how many rows it has.

    With `kinds`, those that are known in its folder, it says which are known with it.
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
    """Whether every id is made of what stands in other columns."""
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
    """A file of the log, whose pages are checked as they are read; StoreDamaged if it is no Parquet.

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
    """What the file says of itself; StoreDamaged if it is no file of the log, StoreTooNew if a newer one."""
    said = {key.decode(): value.decode() for key, value in (file.metadata.metadata or {}).items()}
    try:
        if int(said["tidings.format"]) > FORMAT:
            raise StoreTooNew(path, f"has format {said['tidings.format']}, and this is {FORMAT}")
        claim = Claim(said["tidings.node"], int(said["tidings.first"]), int(said["tidings.last"]))
        names = msgspec.json.decode(said["tidings.map_names"], type=list[str])
        made = said.get("tidings.ids") == "made"
        kinds = msgspec.json.decode(said.get("tidings.kinds", "null"), type=dict[str, str] | None)
        return Footer(claim, int(said["tidings.count"]), frozenset(names), made, kinds)
    except (KeyError, ValueError) as error:
        raise StoreDamaged(path, f"has no footer of a file of the log: {error}") from None


def by_date(parts: Iterable[LivePart]) -> list[tuple[date, list[LivePart]]]:
    """The parts in their order, cut where the date changes: one file each."""
    runs: list[tuple[date, list[LivePart]]] = []
    for part in parts:
        day = date_of(part.stored_us)
        if not runs or runs[-1][0] != day:
            runs.append((day, []))
        runs[-1][1].append(part)
    return runs


def positioned_events(stream: bytes) -> list[tuple[int, Event]]:
    """The events of an Arrow IPC stream with all columns of the files, each with its position."""
    table = pa.ipc.open_stream(stream).read_all()
    return list(zip(table.column("position").to_pylist(), events_of(table), strict=True))

"""Tables of sealed events in pieces: of a size that fits into a reply, and the rest for the next request.

Arrow is loaded with the first table: a node that reads no sealed events does without.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

SIZE_KEPT: Final = 128 << 20
"""Bytes of tables that are kept for readers that go on; several may be views of the same ones."""
COUNT_KEPT: Final = 256
"""Number of tables that are kept, however small: clients choose the keys."""


class Rest:
    """Tables that were read and not yet requested, by their first position; the newest ones."""

    def __init__(self) -> None:
        self._tables: OrderedDict[tuple[int, str], tuple[pa.Table, int]] = OrderedDict()
        self._size = 0
        self._lock = Lock()

    def take(self, position: int, filter: str) -> tuple[pa.Table, int] | None:
        """Return the rows kept for a reader at the position; they stay, as others may read there too."""
        with self._lock:
            return self._tables.get((position, filter))

    def put(self, position: int, filter: str, table: pa.Table, following: int) -> None:
        """Keep a table that begins with the position and ends before `following`."""
        with self._lock:
            if (position, filter) not in self._tables:
                self._tables[position, filter] = table, following
                self._size += table.nbytes
            while (self._size > SIZE_KEPT and len(self._tables) > 1) or len(self._tables) > COUNT_KEPT:
                _, (oldest, _) = self._tables.popitem(last=False)
                self._size -= oldest.nbytes


def size_of(table: pa.Table) -> int:
    """Return its bytes in memory; `nbytes` omits columns that are all null."""
    import pyarrow as pa

    return sum(pa.ipc.get_record_batch_size(batch) for batch in table.to_batches())


def stream_of(table: pa.Table) -> bytes:
    """Return a table as an Arrow IPC stream."""
    import pyarrow as pa

    options = pa.ipc.IpcWriteOptions(compression="lz4")  # most columns of the header have one value
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def joined(tables: Sequence[pa.Table]) -> pa.Table | None:
    """Return the rows of tables with the same columns as one table; None if there are no tables."""
    import pyarrow as pa

    return pa.concat_tables(tables) if tables else None


def before(table: pa.Table, end: int) -> pa.Table:
    """Return the rows before a position."""
    import pyarrow.compute as pc

    return table.filter(pc.less(table.column("position"), end))


def cut(table: pa.Table, size_max: int) -> tuple[pa.Table, pa.Table | None]:
    """Return the first rows, of about that size, and the others."""
    rows = min(len(table), max(1, size_max * len(table) // size_of(table)))
    while rows > 1 and size_of(rows_of(table, 0, rows)) > 2 * size_max:  # some are much larger than others
        rows //= 2
    return rows_of(table, 0, rows), (rows_of(table, rows, len(table)) if rows < len(table) else None)


def tail(table: pa.Table, size_max: int) -> pa.Table:
    """Return the last rows, of about that size."""
    rows = max(1, size_max * len(table) // size_of(table))
    return rows_of(table, max(0, len(table) - rows), len(table))


def rows_of(table: pa.Table, first: int, end: int) -> pa.Table:
    """Return these rows; a map column without any entries is made anew, as Arrow would not cut it."""
    part = table.slice(first, end - first)
    place = part.schema.get_field_index("attributes")
    if place >= 0 and part.column(place).null_count == len(part):
        import pyarrow as pa

        field = part.schema.field(place)
        part = part.set_column(place, field, pa.nulls(len(part), field.type))
    return part

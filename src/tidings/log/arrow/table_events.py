"""Tables of the log as an index matches them: column by column, without making events.

For each lane that filters need (`tidings.event.scan`) the values of all rows are read from the header's
column, the attribute's own column and the map. Texts are looked up once for each different one. What is
written is what the scan of the same events' bytes writes, so the same candidates are found; only an event
that a filter must be evaluated on is made.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.errors import UserError
from tidings.event.model import HEADER_READERS, Event
from tidings.log.arrow.attributes import whole
from tidings.log.arrow.decode_rows import events_of
from tidings.log.arrow.map_column import MapEntries
from tidings.log.schema import ATTRIBUTES, HEADER_TYPES, KIND_TYPES, RESERVED_COLUMNS, own_columns

if TYPE_CHECKING:
    from tidings.event.scan import ScanPlan
    from tidings.matching import Index, Matches
    from tidings.matching.tiles import Fill, ScanLanes

DECODED_AT_ONCE: Final = 256
"""Rows that are decoded together when one event is needed: one alone costs nearly as much."""
DECODED_MAX: Final = 64
"""Such lots of rows that are kept."""

_HEADER: Final = HEADER_TYPES.keys() & HEADER_READERS.keys()
"""Columns that filters know as header fields; `stored` and others may be names of attributes."""

Key = TypeVar("Key", bound=Hashable)
Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64] | slice


def match_table(index: Index[Key], table: pa.Table | pa.RecordBatch) -> Matches[Key]:
    """Return the rows of a table of the log that each key's filter matches.

    The table has the columns of sealed files (docs/log.md): all of them, or at least those that the filters
    read. UserError names a missing one.
    """
    return index.match_rows(TableEvents(table))


class TableEvents:
    """Events in a table with the columns of the log's files, for `Index.match_rows`."""

    is_decoded = True

    def __init__(self, table: pa.Table | pa.RecordBatch) -> None:
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        self._table = table.combine_chunks()
        names = self._table.schema.names
        if "attributes" in names and self._table.schema.field("attributes").type != ATTRIBUTES:
            raise UserError(f"column 'attributes' must be {ATTRIBUTES}; read it as sealed files have it")
        self._own = {
            name: letter
            for name, letter in own_columns(self._table.schema).items()
            if name not in RESERVED_COLUMNS
        }
        self._lot = lru_cache(DECODED_MAX)(self._decode_lot)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, row: int) -> Event:
        """Return one event."""
        return self._lot(row // DECODED_AT_ONCE)[row % DECODED_AT_ONCE]

    def __iter__(self) -> Iterator[Event]:
        for lot in range(-(-len(self) // DECODED_AT_ONCE)):
            yield from self._lot(lot)

    def _decode_lot(self, lot: int) -> list[Event]:
        for name in HEADER_TYPES:
            self._column(name)
        return events_of(self._table.slice(lot * DECODED_AT_ONCE, DECODED_AT_ONCE))

    def columns(self, names: Iterable[str]) -> dict[str, list[Any]]:
        """Return the texts of each attribute or header field, one per event; None for anything else."""
        return {name: self._texts(name) for name in names}

    def _texts(self, name: str) -> list[Any]:
        if name in HEADER_READERS and name not in _HEADER:  # a name that JMS has for it
            read = HEADER_READERS[name]
            return [read(event) for event in self]
        found: list[Any] = [None] * len(self)
        for rows, letter, values in self._pieces(name):
            if letter != "s":
                continue
            if isinstance(rows, slice):
                found = values.to_pylist()
            else:
                for row, text in zip(rows.tolist(), values.to_pylist(), strict=True):
                    found[row] = text
        return found

    # Values by lane

    def filler(self, lanes: ScanLanes) -> Fill:
        """Return a function that writes the values of events for these lanes."""
        columns = [
            (lane, column)
            for (name, kind), lane in lanes.numbers.items()
            if (column := self._values(name, kind, lane, lanes.plan)) is not None
        ]
        defaults = lanes.plan.defaults

        def fill(begin: int, size: int, values: Floats) -> None:
            values[:size] = defaults
            for lane, column in columns:
                values[:size, lane] = column[begin : begin + size]

        return fill

    def _values(self, name: str, kind: int, lane: int, plan: ScanPlan) -> Floats | None:
        """Return the values of a lane in all rows; None if no row has any."""
        from tidings.log.arrow.lane_values import ABSENT, LETTERS_OF, lane_values

        column: Floats | None = None
        for rows, letter, values in self._pieces(name):
            if letter not in LETTERS_OF[kind]:
                continue
            made, is_there = lane_values(values, kind, lane, plan)
            if column is None:
                column = np.full(len(self), ABSENT.get(kind, np.nan))
            if isinstance(rows, slice):
                column[is_there] = made[is_there]
            else:
                column[rows[is_there]] = made[is_there]
        return column

    def _pieces(self, name: str) -> Iterator[tuple[Rows, str, Any]]:
        """Yield the places of an attribute or header field: rows, the letter of the kind, and the values."""
        if name in _HEADER:
            yield slice(None), _letter(HEADER_TYPES[name]), self._column(name)
            return
        if name in self._own:
            yield slice(None), self._own[name], self._column(name)
        rows, items = self._entries.items_of(name)
        for letter in KIND_TYPES if len(rows) else ():
            member = items.field(letter)
            if member.null_count < len(member):
                yield rows, letter, member

    @cached_property
    def _entries(self) -> MapEntries:
        return MapEntries(self._column("attributes"))

    def _column(self, name: str) -> Any:
        if name not in self._table.schema.names:
            raise UserError(f"the table has no column {name!r}, which a filter reads")
        return whole(self._table.column(name))


def _letter(kind: Any) -> str:
    if pa.types.is_integer(kind):
        return "i"
    return next(letter for letter, own in KIND_TYPES.items() if own == kind)

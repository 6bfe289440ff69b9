"""A sealed file that is open: the questions that are asked of one file, answered row group by row group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidings.errors import StoreDamaged
from tidings.event.values import us_from_time
from tidings.filters.filter import Filter
from tidings.log.files import Footer, open_file, read_footer
from tidings.log.flat import Longs
from tidings.log.groups import Groups
from tidings.log.parts import Claim
from tidings.log.schema import ATTRIBUTES, FIXED

_everything = Filter()


class OpenFile:
    """One file; whatever can't be read of it is StoreDamaged with its path."""

    def __init__(self, source: Any, path: str, metadata: pq.FileMetaData | None = None) -> None:
        """Opens it; whoever has its `metadata` from before spares reading them again."""
        self.path = path
        self._file = open_file(source, path, metadata)
        self.metadata: pq.FileMetaData = self._file.metadata
        self.footer: Footer = read_footer(self._file, path)
        _check_columns(self._file.schema_arrow, path)
        with self._reading():
            self._groups = Groups(
                self._file, self.footer, lambda coded: open_file(source, path, self.metadata, coded)
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close(force=True)

    @property
    def claim(self) -> Claim:
        """What the file says it has."""
        return self.footer.claim

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
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
        """The rows from `first` on and before `end` that match, of about that size, and where to go on.

        A row group is given whole. Of `columns` those count that the file has; None: all.
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
        """All rows, a table for each row group."""
        for group in range(len(self._groups)):
            with self._reading():
                yield self._groups.columns(group, self.schema.names)

    def pages(self) -> Iterator[Longs]:
        """Read every page of every column, a row group at a time; the positions in it."""
        for group in range(len(self._groups)):
            with self._reading():
                table = self._file.read_row_group(group)
                table.validate(full=True)
                positions = table.column("position").to_numpy()
            yield positions

    def read_back(self, position: int) -> Iterator[pa.Table]:
        """All rows up to a position, in tables of which the last comes first; the rows of each ascend."""
        for group in reversed(range(len(self._groups))):
            with self._reading():
                table = self._groups.read(group, 0, position + 1, _everything)
            if table is not None:
                yield table

    def find(self, ids: Sequence[str]) -> list[pa.Table]:
        """The rows with these ids."""
        filter = Filter("id IN :ids", ids=sorted(set(ids)))
        found = []
        for group in range(len(self._groups)):
            with self._reading():
                table = self._groups.read(group, 0, self.claim.last + 1, filter)
            if table is not None:
                found.append(table)
        return found

    def position_at(self, time_us: int) -> int | None:
        """The position of the first event that was stored at or after a time, or None."""
        for group in range(len(self._groups)):
            if self._latest_us(group) < time_us:
                continue
            times = self._stored(group)
            place = pc.index(pc.greater_equal(times.column("us"), time_us), True).as_py()
            if place >= 0:
                return int(times.column("position")[place].as_py())
        return None

    def latest_us(self) -> int:
        """When the last of its events were stored, in microseconds; 0 if it has none."""
        return max((self._latest_us(group) for group in range(len(self._groups))), default=0)

    def _latest_us(self, group: int) -> int:
        received = self._groups.span(group, "received")
        if not self._groups.span(group, "stored").some and received.high is not None:
            return us_from_time(received.high)  # `received` is when they were stored
        return int(pc.max(self._stored(group).column("us")).as_py() or 0)

    def _stored(self, group: int) -> pa.Table:
        """The positions of a row group, and when each event was stored."""
        with self._reading():
            table = self._groups.columns(group, ["position", "received", "stored"])
        us = pc.coalesce(table.column("stored"), table.column("received")).cast(pa.int64())
        return pa.table({"position": table.column("position"), "us": us})


def _check_columns(schema: pa.Schema, path: str) -> None:
    for field in (*FIXED, pa.field("attributes", ATTRIBUTES)):
        place = schema.get_field_index(field.name)
        if place < 0 or schema.field(place).type != field.type:
            raise StoreDamaged(path, f"has no column {field.name} of {field.type}")

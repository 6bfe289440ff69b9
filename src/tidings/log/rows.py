"""Live parts of the log, decoded only as far as the wanted columns need it.

This is the hot path. An event is decoded into a struct made for the purpose, whose `values` have the wanted
attributes only and which ends after the last wanted element, so that msgspec skips everything else. Headers
are few and recur: they are taken as bytes, and each distinct one is decoded once.

The node checked the bytes when it accepted them; bytes that are invalid now (a broken disk) are a CodecError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidings.errors import CodecError
from tidings.event.header import EMPTY_HEADER, Header
from tidings.event.wire import decode_events
from tidings.log.arrow.ids import made_ids
from tidings.log.chunks import LivePart
from tidings.log.schema import HEADER_TYPES, TIME

Longs = npt.NDArray[np.int64]

COUNTER, TYPE, TIME_US, VALUES, HEADER, BODY = range(6)
"""Elements of an event."""
_ELEMENTS: Final = ("counter", "type", "time_us", "values", "header", "body")
_NEEDED: Final[dict[str, set[int]]] = {
    "type": {TYPE},
    "time": {TIME_US},
    "counter": {COUNTER},
    "source": set(),
    "system": set(),
    "epoch": set(),
    "body": {BODY},
    "id": {COUNTER, HEADER},
}
_header_decoder = msgspec.msgpack.Decoder(Header | None)


def elements_for(name: str) -> set[int]:
    """Return the elements of an event that are needed for this column of the header."""
    return _NEEDED.get(name, {HEADER})


class DecodePlan:
    """Elements of an event to decode, with `values` as the type of the attributes."""

    def __init__(self, elements: Iterable[int], values: Any) -> None:
        self.elements = frozenset(elements)
        types = (int, str, int, values, msgspec.Raw, bytes | None)
        fields = list(zip(_ELEMENTS, types, strict=True))[: max(self.elements, default=-1) + 1]
        row = msgspec.defstruct("Row", fields, array_like=True, gc=False)
        self.decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(list[row])  # type: ignore[valid-type]


class LiveRows:
    """Events of live parts, one after the other, and their columns.

    The wanted values of a part are taken before the next part is decoded: to keep the events costs more than
    to decode them. `attributes` is called with those of each part, as the decoder made them.
    """

    def __init__(
        self,
        parts: Sequence[LivePart],
        plan: DecodePlan,
        attributes: Callable[[list[Any]], object] | None = None,
    ) -> None:
        """Decodes all; raises msgspec.ValidationError if an attribute is not of the plan's type."""
        self.parts = parts
        self._cells: dict[int, list[Any]] = {element: [] for element in plan.elements}
        self._known_headers: dict[bytes, int] = {}
        counts = []
        for part in parts:
            rows = _decoded(part, plan.decoder)
            counts.append(len(rows))
            for element, cells in self._cells.items():
                if element == HEADER:
                    cells += self._header_codes(rows)
                elif element != VALUES:
                    cells += _TAKES[element](rows)
                elif attributes is not None:
                    attributes([row.values for row in rows])
        self.counts = np.array(counts, np.int64)

    def _header_codes(self, rows: list[Any]) -> list[int]:
        known = self._known_headers
        return [known.setdefault(bytes(row.header), len(known)) for row in rows]

    def __len__(self) -> int:
        return int(self.counts.sum())

    def positions(self) -> Longs:
        """Return the position of each event."""
        if not self.parts:
            return np.empty(0, np.int64)
        pairs = zip(self.parts, self.counts.tolist(), strict=True)
        return np.concatenate([_positions(part, count) for part, count in pairs])

    def cells(self, element: int) -> list[Any]:
        """Return one element of each event."""
        return self._cells[element]

    def column(self, name: str) -> Any:
        """Return the column of the header of that name, typed as in the files."""
        made = _COLUMNS.get(name)
        return self.header_field(name) if made is None else made(self)

    def header_field(self, name: str) -> Any:
        """Return a field of the headers, with its default where none is set."""
        headers, codes = self._headers
        field = "received_us" if name == "received" else name
        kind = pa.int64() if name == "received" else HEADER_TYPES[name]
        values = pa.array([getattr(header, field) for header in headers], kind)
        return spread(values.view(TIME) if name == "received" else values, codes)

    def of_parts(self, values: list[Any], kind: Any) -> Any:
        """Spread one value of each part over all its events."""
        return spread(pa.array(values, kind), self.part_of)

    @cached_property
    def part_of(self) -> Longs:
        """Return the number of each event's part."""
        return np.repeat(np.arange(len(self.parts)), self.counts)

    @cached_property
    def _headers(self) -> tuple[list[Header], npt.NDArray[np.int32]]:
        """Return the distinct headers, and the index of each event's."""
        codes = np.array(self._cells[HEADER], np.int32)
        try:
            return [_header_decoder.decode(raw) or EMPTY_HEADER for raw in self._known_headers], codes
        except msgspec.MsgspecError as error:
            raise CodecError("$", str(error)) from None


def spread(values: Any, codes: npt.NDArray[Any]) -> Any:
    """Return the value of each code's number; quickly if there is only one."""
    if len(values) == 1:
        return pa.repeat(values[0], len(codes))
    return values.take(pa.array(codes))


def _decoded(part: LivePart, decoder: msgspec.msgpack.Decoder[Any]) -> list[Any]:
    try:
        rows: list[Any] = decoder.decode(part.raw)
    except msgspec.ValidationError:
        decode_events(part.raw)  # raises if the bytes are no events at all
        raise
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CodecError("$", str(error)) from None
    if part.rows and len(part.rows) != 4 * len(rows):
        raise CodecError("$", f"{len(part.rows) // 4} rows are given for {len(rows)} events")
    return rows


def _positions(part: LivePart, count: int) -> Longs:
    if not part.rows:
        return np.arange(part.first, part.first + count, dtype=np.int64)
    return np.frombuffer(part.rows, "<u4").astype(np.int64) + part.first


# Columns of the header that are not simply fields of `Header`


def _received(rows: LiveRows) -> Any:
    stored = rows.of_parts([part.stored_us for part in rows.parts], pa.int64()).view(TIME)
    given = rows.header_field("received")
    return stored if given.null_count == len(given) else pc.coalesce(given, stored)


def _stored(rows: LiveRows) -> Any:
    given = rows.header_field("received")
    if given.null_count == len(given):
        return given
    stored = rows.of_parts([part.stored_us for part in rows.parts], pa.int64()).view(TIME)
    return pc.if_else(pc.is_valid(given), stored, pa.scalar(None, TIME))


def _ids(rows: LiveRows) -> Any:
    """Return the ids given from outside, else those made of numbers, else none."""
    given = rows.header_field("id")
    if given.null_count == 0 and len(given):
        return given
    made = made_ids(rows.column("system"), rows.column("epoch"), rows.column("counter"))
    return made if given.null_count == len(given) else pc.coalesce(given, made)


_TAKES: dict[int, Callable[[list[Any]], list[Any]]] = {
    COUNTER: lambda rows: [row.counter for row in rows],
    TYPE: lambda rows: [row.type for row in rows],
    TIME_US: lambda rows: [row.time_us for row in rows],
    BODY: lambda rows: [row.body for row in rows],
}
_COLUMNS: dict[str, Callable[[LiveRows], Any]] = {
    "type": lambda rows: pa.array(rows.cells(TYPE), pa.string()),
    "time": lambda rows: pa.array(rows.cells(TIME_US), pa.int64()).view(TIME),
    "counter": lambda rows: pa.array(rows.cells(COUNTER), pa.int64()),
    "body": lambda rows: pa.array(rows.cells(BODY), pa.binary()),
    "source": lambda rows: rows.of_parts([part.source for part in rows.parts], pa.string()),
    "system": lambda rows: rows.of_parts([part.system for part in rows.parts], pa.string()),
    "epoch": lambda rows: rows.of_parts([part.epoch for part in rows.parts], pa.int64()),
    "received": _received,
    "stored": _stored,
    "id": _ids,
}

"""Live parts of the log, decoded just as far as the columns that are wanted need it.

This is the hot path. An event is decoded into a struct made for the purpose, whose `values` have the wanted
attributes only and which ends after the last wanted element, so that msgspec passes over everything else.
Headers are few and come again and again: they are taken as bytes, and each different one is decoded once.

The bytes were checked when the node took them; what is no event nevertheless (a broken disk) is a CodecError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidings.errors import CodecError
from tidings.event.header import EMPTY_HEADER, Header
from tidings.event.wire import decode_events
from tidings.ids import make_id
from tidings.log.parts import LivePart
from tidings.log.schema import HEADER_TYPES, TIME

Longs = npt.NDArray[np.int64]

_ELEMENTS: Final = ("counter", "type", "time_us", "values", "header", "body")
_NEEDED: Final = {"type": 1, "time": 2, "counter": 0, "source": -1, "system": -1, "epoch": -1, "body": 5}
_header_decoder = msgspec.msgpack.Decoder(Header | None)


def element_for(name: str) -> int:
    """The last element of an event that must be decoded for this column of the header; -1 for none."""
    return _NEEDED.get(name, 4)


def decoder_of(values: Any, last: int) -> msgspec.msgpack.Decoder[Any]:
    """Decodes events up to their element `last`, with `values` as the type of the attributes."""
    types = (int, str, int, values, msgspec.Raw, bytes | None)
    fields = list(zip(_ELEMENTS, types, strict=True))[: last + 1]
    row = msgspec.defstruct("Row", fields, array_like=True, gc=False)
    return msgspec.msgpack.Decoder(list[row])  # type: ignore[valid-type]


class Rows:
    """The events of live parts, one after the other, and their columns."""

    def __init__(self, parts: Sequence[LivePart], decoder: msgspec.msgpack.Decoder[Any]) -> None:
        """Decodes all; raises msgspec.ValidationError if an attribute is not of the decoder's type."""
        self.parts = parts
        self.rows: list[Any] = []
        counts = []
        for part in parts:
            before = len(self.rows)
            self.rows += _decoded(part, decoder)
            counts.append(len(self.rows) - before)
        self.counts = np.array(counts, np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    def positions(self) -> Longs:
        """Where each event stands."""
        if not self.parts:
            return np.empty(0, np.int64)
        pairs = zip(self.parts, self.counts.tolist(), strict=True)
        return np.concatenate([_positions(part, count) for part, count in pairs])

    def values(self) -> list[Any]:
        """The attributes of each event, as the decoder made them."""
        return [row.values for row in self.rows]

    def column(self, name: str) -> Any:
        """The column of the header of that name, typed as in the files."""
        made = _COLUMNS.get(name)
        return self.said(name) if made is None else made(self)

    def said(self, name: str) -> Any:
        """A field of the headers, with its default where none is set."""
        headers, codes = self._headers
        field = "received_us" if name == "received" else name
        kind = pa.int64() if name == "received" else HEADER_TYPES[name]
        values = pa.array([getattr(header, field) for header in headers], kind)
        return spread(values.view(TIME) if name == "received" else values, codes)

    def of_parts(self, values: list[Any], kind: Any) -> Any:
        """What all events of a part share."""
        return spread(pa.array(values, kind), self.part_of)

    @cached_property
    def part_of(self) -> Longs:
        """The number of the part each event is in."""
        return np.repeat(np.arange(len(self.parts)), self.counts)

    @cached_property
    def _headers(self) -> tuple[list[Header], npt.NDArray[np.int32]]:
        """The different headers, and which of them each event has."""
        known: dict[bytes, int] = {}
        codes = np.fromiter(
            [known.setdefault(bytes(row.header), len(known)) for row in self.rows], np.int32, len(self.rows)
        )
        try:
            return [_header_decoder.decode(raw) or EMPTY_HEADER for raw in known], codes
        except msgspec.MsgspecError as error:
            raise CodecError("$", str(error)) from None


def spread(values: Any, codes: npt.NDArray[Any]) -> Any:
    """For each code the value of that number; quickly where there is but one."""
    if len(values) == 1:
        return pa.repeat(values[0], len(codes))
    return values.take(pa.array(codes))


def _decoded(part: LivePart, decoder: msgspec.msgpack.Decoder[Any]) -> list[Any]:
    try:
        rows: list[Any] = decoder.decode(part.raw)
    except msgspec.ValidationError:
        decode_events(part.raw)  # says where the bytes are no events at all
        raise
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CodecError("$", str(error)) from None
    if part.rows and len(part.rows) != 4 * len(rows):
        raise CodecError("$", f"{len(part.rows) // 4} rows are told of {len(rows)} events")
    return rows


def _positions(part: LivePart, count: int) -> Longs:
    if not part.rows:
        return np.arange(part.first, part.first + count, dtype=np.int64)
    return np.frombuffer(part.rows, "<u4").astype(np.int64) + part.first


# Columns of the header that are not simply fields of `Header`


def _received(rows: Rows) -> Any:
    stored = rows.of_parts([part.stored_us for part in rows.parts], pa.int64()).view(TIME)
    said = rows.said("received")
    return stored if said.null_count == len(said) else pc.coalesce(said, stored)


def _stored(rows: Rows) -> Any:
    said = rows.said("received")
    if said.null_count == len(said):
        return said
    stored = rows.of_parts([part.stored_us for part in rows.parts], pa.int64()).view(TIME)
    return pc.if_else(pc.is_valid(said), stored, pa.scalar(None, TIME))


def _ids(rows: Rows) -> Any:
    """The ids given from outside, else those the numbers make, else none."""
    said = rows.said("id")
    if said.null_count == 0 and len(said):
        return said
    made: list[str | None] = []
    for part, count in zip(rows.parts, rows.counts.tolist(), strict=True):
        made += _made_ids(part, [row.counter for row in rows.rows[len(made) : len(made) + count]])
    ids = pa.array(made, pa.string())
    return ids if said.null_count == len(said) else pc.coalesce(said, ids)


def _made_ids(part: LivePart, counters: list[int]) -> list[str | None]:
    """The ids the numbers make. Those with equally many digits have everything before these in common."""
    if part.system is None:
        return [None] * len(counters)
    head_of = _heads(part.system, part.epoch)
    made: list[str | None] = [head_of[len(digits)] + digits for digits in map("%x".__mod__, counters)]
    if 0 in counters:
        made = [text if counter else None for text, counter in zip(made, counters, strict=True)]
    return made


@lru_cache(1024)
def _heads(system: str, epoch: int) -> list[str]:
    """What stands before the digits of a counter, by how many they are."""
    return ["", *(make_id(system, epoch, 16 ** (size - 1))[:-size] for size in range(1, 17))]


_COLUMNS: dict[str, Callable[[Rows], Any]] = {
    "type": lambda rows: pa.array([row.type for row in rows.rows], pa.string()),
    "time": lambda rows: pa.array([row.time_us for row in rows.rows], pa.int64()).view(TIME),
    "counter": lambda rows: pa.array([row.counter for row in rows.rows], pa.int64()),
    "body": lambda rows: pa.array([row.body for row in rows.rows], pa.binary()),
    "source": lambda rows: rows.of_parts([part.source for part in rows.parts], pa.string()),
    "system": lambda rows: rows.of_parts([part.system for part in rows.parts], pa.string()),
    "epoch": lambda rows: rows.of_parts([part.epoch for part in rows.parts], pa.int64()),
    "received": _received,
    "stored": _stored,
    "id": _ids,
}

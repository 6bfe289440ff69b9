"""Rows of a DataFrame as events on the wire, column by column; a null is left out.

Speed is the contract of the code for each batch: columns become lists in one call each, and one call of
msgspec makes the bytes of thousands of rows. Invalid values are refused by column and row; the error does not
contain the value itself, as errors go to logs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from itertools import pairwise, repeat
from typing import Any, NoReturn

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidings.errors import EventError
from tidings.event.header import PRIORITY_DEFAULT, PRIORITY_MAX
from tidings.event.values import EPOCH, TIME_US_MAX, TIME_US_MIN, check_type
from tidings.event.wire import array_head
from tidings.pipeline.shape import NUMBERS, WORDS, Leaf, Shape

PIECE_SIZE = 1 << 20
"""Bytes of events that are staged at once, about."""
EVENT_SIZE_MAX = 4_000_000
"""Bytes of one event: a little less than a sink takes at once, see `tidings.log.sinks`."""
BLOCK_ROWS = 4_096
"""Rows that are encoded in one call."""

Cells = Callable[[Any], list[Any]]
_encode = msgspec.msgpack.Encoder().encode


# Columns as lists


def _numbers(array: Any) -> list[Any]:
    """Return values of a fixed size; null is None."""
    if not array.null_count:
        listed: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
        return listed
    filled = pc.fill_null(array, pa.scalar(0).cast(array.type)).to_numpy(zero_copy_only=False).tolist()
    valid = array.is_valid().to_numpy(zero_copy_only=False).tolist()
    return [value if is_there else None for value, is_there in zip(filled, valid, strict=True)]


def _objects(array: Any) -> list[Any]:
    listed: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
    return listed


def _micros(array: Any) -> list[Any]:
    zone = getattr(array.type, "tz", None)
    return _numbers(array.cast(pa.timestamp("us", zone)).cast(pa.int64()))


def _moments(array: Any) -> list[Any]:
    micros = _micros(array)
    if array.null_count:
        return [None if one is None else EPOCH + timedelta(microseconds=one) for one in micros]
    return list(map(EPOCH.__add__, map(timedelta, repeat(0), repeat(0), micros)))


_CELLS: dict[str, Cells] = {
    "text": _objects,
    "bytes": _objects,
    "truth": _numbers,
    "integer": _numbers,
    "float": _numbers,
    "time": _moments,
    "date": _moments,
    # Floats, each the nearest one, which Arrow's own cast does not promise.
    "decimal": lambda array: [None if one is None else float(one) for one in array.to_pylist()],
    "whole": lambda array: _numbers(array.cast(pa.int64())),
    "nothing": lambda array: [None] * len(array),
}


def _found(batch: Any, leaf: Leaf) -> Any:
    """Return the array of a leaf; null wherever a struct around it is."""
    array = batch.column(batch.schema.get_field_index(leaf.path[0]))
    for name in leaf.path[1:]:
        members = {field.name: index for index, field in enumerate(array.type)}
        array = array.flatten()[members[name]]
    return array


# Code that runs for each batch


class RowConverter:
    """Makes pieces of events of the batches of one task, numbered from 1 on."""

    def __init__(self, shape: Shape, where: str = "") -> None:
        """`where` follows the row in errors, such as its partition."""
        self._shape = shape
        self._where = where
        self._rows = 0
        names = [leaf.name for leaf in shape.attributes]
        self._attributes = _struct("Attributes", dict.fromkeys(names))
        defaults = {"delivery": "transient", **_ABSENT}
        fields = [leaf for leaf in shape.header if leaf.name not in ("type", "time", "body")]
        self._fields = [leaf for leaf in fields if leaf.name != "delivery"]
        self._has_delivery = len(fields) > len(self._fields)
        names = [leaf.name for leaf in self._fields] + ["delivery"]
        self._header = _struct("Head", {name: defaults.get(name) for name in names})

    def pieces(self, batches: Iterable[Any]) -> Iterator[bytes]:
        """Yield all rows as arrays of events with their heads, each of about PIECE_SIZE."""
        blocks: list[bytes] = []
        count = size = 0
        for batch in batches:
            for rows, block in self._blocks(self._events(batch)):
                if size and size + len(block) > PIECE_SIZE:
                    yield array_head(count) + b"".join(blocks)
                    blocks, count, size = [], 0, 0
                blocks.append(block)
                count, size = count + rows, size + len(block)
            self._rows += batch.num_rows
        if count:
            yield array_head(count) + b"".join(blocks)

    def _blocks(self, events: list[tuple[Any, ...]]) -> Iterator[tuple[int, bytes]]:
        for begin in range(0, len(events), BLOCK_ROWS):
            yield from self._block(events[begin : begin + BLOCK_ROWS])

    def _block(self, events: list[tuple[Any, ...]]) -> Iterator[tuple[int, bytes]]:
        """Yield these events as bytes, in halves if they are more than a piece."""
        encoded = _encode(events)
        block = encoded[1 if len(events) < 16 else 3 :]
        if len(block) <= PIECE_SIZE:
            yield len(events), block
        elif len(events) > 1:
            half = len(events) // 2
            yield from self._block(events[:half])
            yield from self._block(events[half:])
        elif len(block) > EVENT_SIZE_MAX:
            problem = f"makes an event of {len(block)} bytes; at most {EVENT_SIZE_MAX} are allowed"
            raise EventError(self._place(events[0][0] - 1 - self._rows), problem)
        else:
            yield 1, block

    def _events(self, batch: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a batch as on the wire, numbered on from those before."""
        first = self._rows + 1
        header = {leaf.name: leaf for leaf in self._shape.header}
        return list(
            zip(
                range(first, first + batch.num_rows),
                self._types(batch, header.get("type")),
                self._times(batch, header.get("time")),
                self._values(batch),
                self._heads(batch, header),
                self._bodies(batch, header.get("body")),
                strict=True,
            )
        )

    def _types(self, batch: Any, leaf: Leaf | None) -> list[Any]:
        default = self._shape.type
        if leaf is None or leaf.kind == "nothing":
            if default is None:
                self._refuse("type", 0, "is null, and there is no option 'type'")
            return [default] * batch.num_rows
        array = _found(batch, leaf)
        if array.null_count:
            if default is None:
                self._refuse("type", _first(pc.is_null(array)), "is null, and there is no option 'type'")
            array = pc.fill_null(array, default)
        for kind in pc.unique(array).to_pylist():
            try:
                check_type(kind)
            except EventError:
                row = _first(pc.equal(array, kind))
                self._refuse("type", row, "is no type: dotted words without blanks, such as air.pm10")
        return _objects(array)

    def _times(self, batch: Any, leaf: Leaf | None) -> list[Any]:
        now_us = time.time_ns() // 1_000
        if leaf is None or leaf.kind == "nothing":
            return [now_us] * batch.num_rows
        micros = _micros(self._in_time(leaf, _found(batch, leaf)))
        return [now_us if one is None else one for one in micros]

    def _in_time(self, leaf: Leaf, array: Any) -> Any:
        """Return the same array; refuse a time outside the range of events."""
        if leaf.kind in ("time", "date"):
            micros = array.cast(pa.timestamp("us", getattr(array.type, "tz", None))).cast(pa.int64())
            is_out = pc.or_(pc.less(micros, TIME_US_MIN), pc.greater(micros, TIME_US_MAX))
            if pc.any(is_out).as_py():
                self._refuse(leaf.name, _first(is_out), "is not within the years 1 to 9999")
        return array

    def _bodies(self, batch: Any, leaf: Leaf | None) -> list[Any]:
        if leaf is None or leaf.kind == "nothing":
            return [None] * batch.num_rows
        return _objects(_found(batch, leaf).cast(pa.binary()))

    def _values(self, batch: Any) -> list[Any]:
        """Return the attributes of each row."""
        leaves = self._shape.attributes
        columns = [_CELLS[leaf.kind](self._in_time(leaf, _found(batch, leaf))) for leaf in leaves]
        if not self._shape.map:
            return list(map(self._attributes, *columns)) if columns else [{}] * batch.num_rows
        maps = self._maps(batch.column(batch.schema.get_field_index("attributes")))
        for leaf, cells in zip(leaves, columns, strict=True):
            for values, cell in zip(maps, cells, strict=True):
                if cell is not None:
                    values[leaf.name] = cell
        return maps

    def _maps(self, array: Any) -> list[dict[str, Any]]:
        """Return the map of each row, without nulls."""
        names, offsets = _objects(array.keys), _objects(array.offsets)
        values = self._items(array.items)
        valid = _objects(array.is_valid())
        return [
            {
                name: value
                for name, value in zip(names[begin:end], values[begin:end], strict=True)
                if value is not None
            }
            if is_there
            else {}
            for (begin, end), is_there in zip(pairwise(offsets), valid, strict=True)
        ]

    def _items(self, items: Any) -> list[Any]:
        kinds = self._shape.map
        if not pa.types.is_struct(items.type):
            return _CELLS[kinds[0]](items)
        members = [_CELLS[kind](member) for kind, member in zip(kinds, items.flatten(), strict=True)]
        return [next((one for one in row if one is not None), None) for row in zip(*members, strict=True)]

    def _heads(self, batch: Any, header: dict[str, Leaf]) -> list[Any]:
        """Return the header of each row: a constant, mostly."""
        delivery = self._shape.delivery
        if not self._fields and not self._has_delivery:
            fixed = None if delivery == "transient" else msgspec.Raw(_encode({"delivery": delivery}))
            return [fixed] * batch.num_rows
        columns = [self._field(batch, leaf) for leaf in self._fields]
        if self._has_delivery:
            cells = self._field(batch, header["delivery"])
            columns.append([delivery if one is None else one for one in cells])
        else:
            columns.append([delivery] * batch.num_rows)
        return list(map(self._header, *columns))

    def _field(self, batch: Any, leaf: Leaf) -> list[Any]:
        array = _found(batch, leaf)
        cells = _CELLS[leaf.kind](array)
        if leaf.kind != "nothing":
            self._check_field(leaf.name, cells)
        if leaf.name in _ABSENT:
            absent = _ABSENT[leaf.name]
            return [absent if one is None else one for one in cells]
        return [float(one) if type(one) is int else one for one in cells] if leaf.name in NUMBERS else cells

    def _check_field(self, name: str, cells: list[Any]) -> None:
        """Refuse the first cell that this header field can't have."""
        check = _FIELD_CHECKS.get(name)
        if check is None or all(map(check[0], set(cells))):
            return
        row = next(row for row, cell in enumerate(cells) if not check[0](cell))
        self._refuse(name, row, f"is not {check[1]}")

    def _refuse(self, column: str, row: int, problem: str) -> NoReturn:
        raise EventError(f"column {column!r}, {self._place(row)}", problem)

    def _place(self, row: int) -> str:
        return f"row {self._rows + row}{self._where}"


_ABSENT = {"priority": PRIORITY_DEFAULT, "route": "auto"}
_FIELD_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "id": (lambda cell: cell is None or cell != "", "a text that says something"),
    "priority": (lambda cell: cell is None or 0 <= cell <= PRIORITY_MAX, f"within 0..{PRIORITY_MAX}"),
    "ttl_s": (lambda cell: cell is None or 0 <= cell < float("inf"), "a number of seconds from 0 on"),
    "keep_s": (lambda cell: cell is None or 0 <= cell < float("inf"), "a number of seconds from 0 on"),
    "reliability": (lambda cell: cell is None or 0 <= cell <= 1, "within 0..1"),
    **{
        name: (lambda cell, words=words: cell is None or cell in words, f"one of {', '.join(words)}")  # type: ignore[misc]
        for name, words in WORDS.items()
    },
}


def _first(mask: Any) -> int:
    """Return the first row of a mask that is true."""
    found: int = pc.index(mask, value=True).as_py()
    return found


def _struct(name: str, defaults: dict[str, Any]) -> Callable[..., Any]:
    """Return a function that makes rows of columns that are maps on the wire, without default values."""
    fields = [(f"field_{place}", Any, default) for place, default in enumerate(defaults.values())]
    rename = {f"field_{place}": name for place, name in enumerate(defaults)}
    return msgspec.defstruct(name, fields, rename=rename, omit_defaults=True, gc=False)

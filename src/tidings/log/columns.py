"""Parts of the log as columns of the reader's choice: input of Spark, pandas and the sealed files.

A column named like a header field is that field; `position`, `node`, `attributes` and `mismatches` have the
meaning of their names; any other name is the attribute of that name. A value that does not fit its column
(see `casts`) is null there and counted, or, strictly, an error.

Live parts are the hot path: they are decoded by structs made for the wanted columns, and only if a value does
not fit are the same parts decoded again, slowly and exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidings.errors import ConfigError, UserError
from tidings.log.arrow.attributes import Flat, Longs, frequent, scattered
from tidings.log.arrow.casts import Fit, fit_for
from tidings.log.arrow.map_column import MapEntries, attributes_of, own_column, parted, texts_map_of
from tidings.log.chunks import LivePart, Part, SealedPart
from tidings.log.rows import VALUES, DecodePlan, LiveRows, elements_for
from tidings.log.schema import (
    ATTRIBUTES,
    HEADER_COLUMNS,
    HEADER_TYPES,
    KIND_WORDS,
    NUMBERS,
    TEXTS,
    Kinds,
    file_schema,
    own_columns,
)

_everything = DecodePlan(range(6), dict[str, Any])
_WORDS = {"datetime": "time", **{word: word for word in KIND_WORDS.values()}}


class SchemaMismatch(UserError, ValueError):
    """A value that does not fit its column."""

    def __init__(self, column: str, position: int, kind: str, wanted: str) -> None:
        super().__init__(
            f"column {column!r}, position {position}: a value is {kind}, which does not fit {wanted}"
        )
        self.column = column
        self.position = position
        self.kind = kind
        self.wanted = wanted

    def __reduce__(self) -> tuple[type[SchemaMismatch], tuple[str, int, str, str]]:
        return type(self), (self.column, self.position, self.kind, self.wanted)


class Decoder:
    """Makes record batches with the columns of `schema`; ConfigError if no value can be of a column's type.

    `mismatches` counts the values so far that did not fit their columns and became null, by the column and
    the kind of the value; with `strict` the first one raises SchemaMismatch instead.
    """

    def __init__(self, schema: pa.Schema, node: str = "", strict: bool = False) -> None:
        self.schema = schema
        self.node = node
        self.strict = strict
        self.mismatches: Counter[str] = Counter()
        self._has_map = False
        self._fits: dict[str, Fit] = {}
        self._attributes: list[str] = []
        elements: set[int] = set()
        for field in schema:
            if field.name == "attributes":
                self._has_map = True
                elements.add(VALUES)
                if field.type not in (ATTRIBUTES, TEXTS):
                    raise ConfigError("schema", "attributes", f"is {ATTRIBUTES} or {TEXTS}, not {field.type}")
                continue
            self._fits[field.name] = fit_for(field.name, field.type)
            if field.name in HEADER_TYPES:
                elements |= elements_for(field.name)
            elif field.name not in ("position", "node", "mismatches"):
                self._attributes.append(field.name)
                elements.add(VALUES)
        self._exact = DecodePlan(elements, dict[str, Any])
        self._quick = self._exact if self._has_map else DecodePlan(elements, self._wanted_values())

    def _wanted_values(self) -> Any:
        """Return a struct with the wanted attributes: msgspec skips everything else in the map."""
        slots = {f"v{number}": name for number, name in enumerate(self._attributes)}
        wires = {slot: self._fits[name].wire for slot, name in slots.items()}
        fields = [(slot, Any if wire is None else wire | None, None) for slot, wire in wires.items()]
        return msgspec.defstruct("Values", fields, rename=slots, gc=False)

    def lives(self, parts: Sequence[LivePart]) -> pa.RecordBatch:
        """Return the events of live parts as one record batch; CodecError if bytes of one are invalid."""
        if not self._has_map:
            try:
                return self._batch(_Live(parts, self._quick, quick=True))
            except msgspec.ValidationError:
                pass  # some value does not fit, and msgspec can't say which
        return self._batch(_Live(parts, self._exact, quick=False))

    def sealed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a sealed file, whichever attributes have columns in it."""
        return self._batch(_Sealed(batch))

    def batches(self, parts: Iterable[Part]) -> Iterator[pa.RecordBatch]:
        """Yield the parts of a reply as record batches; consecutive live ones become one."""
        for kind, run in groupby(parts, type):
            if kind is LivePart:
                yield self.lives([part for part in run if isinstance(part, LivePart)])
                continue
            for part in run:
                assert isinstance(part, SealedPart)
                with pa.ipc.open_stream(part.table) as table:
                    yield from (self.sealed(batch) for batch in table)

    @property
    def wanted(self) -> list[str] | None:
        """Return the columns of files that `sealed` needs, as far as a file has them; None: all."""
        if self._has_map:
            return None
        names = [field.name for field in self.schema if field.name != "position"]
        return ["position", *names, *(["attributes"] if self._attributes else [])]

    def _batch(self, source: _Live | _Sealed) -> pa.RecordBatch:
        misfits = np.zeros(len(source), np.int64)
        arrays: dict[str, Any] = {}
        for field in self.schema:
            if field.name != "mismatches":
                arrays[field.name] = self._column(source, field, misfits)
        if "mismatches" in self._fits:
            arrays["mismatches"] = pa.array(misfits).cast(self._fits["mismatches"].type)
        ordered = [arrays[field.name] for field in self.schema]
        return pa.RecordBatch.from_arrays(ordered, schema=self.schema)

    def _column(self, source: _Live | _Sealed, field: pa.Field, misfits: Longs) -> Any:
        name = field.name
        if name == "attributes":
            return source.attributes() if field.type == ATTRIBUTES else source.texts()
        fit = self._fits[name]
        if name == "position":
            column, bad = _fitted(pa.array(source.positions()), fit)
        elif name == "node":
            column, bad = pa.repeat(pa.scalar(self.node, fit.type), len(source)), {}
        elif name in HEADER_TYPES:
            column, bad = _fitted(source.header(name), fit)
        else:
            column, bad = source.attribute(name, fit, self._attributes)
        if bad:
            self._note(source, name, fit, bad, misfits)
        return column

    def _note(
        self, source: _Live | _Sealed, name: str, fit: Fit, bad: dict[int, Any], misfits: Longs
    ) -> None:
        if self.strict:
            row = min(bad)
            raise SchemaMismatch(name, int(source.positions()[row]), _kind_word(bad[row]), str(fit.type))
        kinds = map(_kind_word, bad.values())
        self.mismatches.update(f"column {name!r}: {kind} does not fit {fit.type}" for kind in kinds)
        misfits[list(bad)] += 1


class _Live:
    """Columns of live parts."""

    def __init__(self, parts: Sequence[LivePart], plan: DecodePlan, *, quick: bool) -> None:
        self._values: list[Any] = []
        self._quick = quick
        self._rows = LiveRows(parts, plan, self._values.extend)
        self.positions = self._rows.positions
        self.header = self._rows.column

    def __len__(self) -> int:
        return len(self._rows)

    def attribute(self, name: str, fit: Fit, names: list[str]) -> tuple[Any, dict[int, Any]]:
        if self._quick:
            cells = list(map(attrgetter(f"v{names.index(name)}"), self._values))
            if fit.wire is not None:
                return fit.array(cells), {}
        else:
            cells = [values.get(name) for values in self._values]
        fitting, bad = fit.fit(cells)
        return fit.array(fitting), {row: cells[row] for row in bad}

    def attributes(self) -> Any:
        return Flat(self._values).attributes()

    def texts(self) -> Any:
        return Flat(self._values).texts()


class _Sealed:
    """Columns of the rows of a file."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._own = own_columns(batch.schema)
        self._entries: MapEntries | None = None

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    def positions(self) -> Longs:
        return self._batch.column("position").to_numpy()  # type: ignore[no-any-return]

    def header(self, name: str) -> Any:
        return self._batch.column(name)

    def attribute(self, name: str, fit: Fit, _names: list[str]) -> tuple[Any, dict[int, Any]]:
        if self._entries is None:
            self._entries = MapEntries(self._batch.column("attributes"))
        column: Any = pa.nulls(len(self), fit.type)
        bad: dict[int, Any] = {}
        if name in self._own:
            column, bad = self._own_column(name, fit)
        rows, values = self._entries.of(name)
        if values:
            cells, misfits = fit.fit(values)
            column = pc.coalesce(column, scattered(fit.array(cells), rows, len(self)))
            bad |= {int(rows[place]): values[place] for place in misfits}
        return column, bad

    def _own_column(self, name: str, fit: Fit) -> tuple[Any, dict[int, Any]]:
        assert self._entries is not None
        column = own_column(self._batch, name, self._own[name], self._entries)
        if self._own[name] != NUMBERS or fit.kinds != (int,):
            return _fitted(column, fit)
        integers, others = parted(column)
        fitting, bad = _fitted(integers, fit)
        unlike = np.flatnonzero(others.is_valid().to_numpy(zero_copy_only=False)).tolist()
        return fitting, bad | {row: others[row].as_py() for row in unlike}

    def attributes(self) -> Any:
        return attributes_of(self._batch)

    def texts(self) -> Any:
        return texts_map_of(self._batch)


def _kind_word(value: object) -> str:
    kind = type(value).__name__
    return _WORDS.get(kind, kind)


def _fitted(column: Any, fit: Fit) -> tuple[Any, dict[int, Any]]:
    """Return a column typed as in the files as the wanted one, and the rows whose values don't fit."""
    cast = fit.cast(column)
    if cast is not None:
        return cast, {}
    values = column.to_pylist()
    cells, bad = fit.fit(values)
    return fit.array(cells), {row: values[row] for row in bad}


# The columns of the files


def table_of(parts: Sequence[LivePart], kinds: Kinds | None = None) -> pa.Table:
    """Return the events of live parts with the columns of the files, in the order of the parts.

    `kinds` are those of the columns in the folder of the file, if it is for one.
    """
    flat = Flat()
    rows = LiveRows(parts, _everything, flat.add)
    own = frequent(flat.counts(), len(rows), kinds)
    columns = [pa.array(rows.positions())]
    columns += [rows.column(field.name) for field in HEADER_COLUMNS]
    columns += [flat.column(name, letter) for name, letter in own.items()]
    columns.append(flat.rest(own))
    return pa.Table.from_arrays(columns, schema=file_schema(own))

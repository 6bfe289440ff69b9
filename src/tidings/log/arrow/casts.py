"""Conversion of values to the columns of a reader's own schema.

| column | takes |
| --- | --- |
| boolean | a bool |
| integer | an int within its range |
| float | an int or a float, rounded to what it holds |
| double | a float, or an int up to 2^53, which it holds exactly |
| string | a str |
| timestamp, date | a time (in UTC) |
| binary | bytes |
| decimal | an int or a finite float, rounded to the scale, within the precision |

No value is converted to another kind: a reading of '17' in a column of numbers is a fault to report, no 17.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from typing import Annotated, Any

import pyarrow as pa
from msgspec import Meta, Struct

from tidings.errors import ConfigError
from tidings.event.values import EXACT_MAX

Cells = list[Any]


class Fit(Struct, frozen=True):
    """Conversion of values to a column of one type."""

    type: Any
    kinds: tuple[type, ...]
    """Kinds of value that it takes, as Python types."""
    wire: Any
    """Type for msgspec to decode, if that takes exactly the values that fit; else None."""
    convert: Callable[[Any], Any] | None = None
    """Function that makes a value of these kinds fit, or returns None; without it they fit as they are."""

    def fit(self, values: Sequence[Any]) -> tuple[Cells, list[int]]:
        """Return the values with None for those that don't fit, and the rows of these; None always fits."""
        cells: Cells = []
        bad: list[int] = []
        for place, value in enumerate(values):
            cell = value if type(value) in self.kinds else None
            if cell is not None and self.convert is not None:
                cell = self.convert(cell)
            if cell is None and value is not None:
                bad.append(place)
            cells.append(cell)
        return cells, bad

    def array(self, cells: Cells) -> Any:
        """Return fitting values as the column."""
        return pa.array(cells, self.type)

    def cast(self, column: Any) -> Any | None:
        """Return a column of a file as this one, if all its values fit by their type alone."""
        if column.type == self.type:
            return column
        if pa.types.is_float32(self.type):
            return column.cast(self.type, safe=False) if _is_number(column.type) else None
        plain = self.convert is None or _is_number(self.type)
        if not plain or _python_kind(column.type) not in self.kinds:
            return None
        try:
            return column.cast(self.type)
        except pa.ArrowInvalid:
            return None


def fit_for(name: str, kind: Any) -> Fit:
    """Return the conversion to a column of that type; ConfigError if no value of an event fits it."""
    if pa.types.is_boolean(kind):
        return Fit(kind, (bool,), bool)
    if pa.types.is_signed_integer(kind):
        most = 2 ** (kind.bit_width - 1) - 1
        least = -most - 1
        return Fit(
            kind,
            (int,),
            Annotated[int, Meta(ge=least, le=most)],
            lambda number: number if least <= number <= most else None,
        )
    if pa.types.is_float64(kind):
        return Fit(kind, (int, float), Annotated[int, Meta(ge=-EXACT_MAX, le=EXACT_MAX)] | float, _exact)
    if pa.types.is_float32(kind):
        return Fit(kind, (int, float), float, float)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return Fit(kind, (str,), str)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return Fit(kind, (bytes,), bytes)
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return Fit(kind, (datetime,), None)  # msgspec would take texts that look like times, too
    if pa.types.is_date32(kind):
        return Fit(kind, (datetime,), None, datetime.date)
    if pa.types.is_decimal128(kind):
        return Fit(kind, (int, float), None, _decimals(kind.precision, kind.scale))
    raise ConfigError("schema", name, f"no value of an event can be {kind}")


def _exact(number: float) -> float | None:
    return None if type(number) is int and abs(number) > EXACT_MAX else float(number)


def _decimals(precision: int, scale: int) -> Callable[[float], Decimal | None]:
    context = Context(prec=precision, rounding=ROUND_HALF_EVEN)
    quantum = Decimal(1).scaleb(-scale)

    def convert(number: float) -> Decimal | None:
        if not math.isfinite(number):
            return None
        try:
            # The shortest text of a float, not its exact binary value, is what its writer meant.
            return Decimal(repr(number)).quantize(quantum, context=context)
        except InvalidOperation:
            return None

    return convert


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _python_kind(kind: Any) -> type:
    if pa.types.is_integer(kind):
        return int
    if pa.types.is_timestamp(kind):
        return datetime
    if pa.types.is_floating(kind):
        return float
    return {pa.bool_(): bool, pa.string(): str, pa.binary(): bytes}.get(kind, object)

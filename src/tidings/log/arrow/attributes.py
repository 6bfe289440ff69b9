"""Attributes of many events, laid out flat, and the columns that are made of them.

All names stand in one array and all values in another, in the order of the rows, with the row of each. A
column of one attribute is then a selection of them, and the map has the rest: nothing is done attribute by
attribute or event by event.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.event.json import time_text
from tidings.event.values import EXACT_MAX, Value
from tidings.log.schema import ATTRIBUTES, COLUMN_TYPES, KIND_TYPES, TEXTS, VALUE, Kinds, may_be_column

FREQUENT = 0.05
"""An attribute has a column of its own from this share of the rows on."""
OWN_COLUMNS_MAX = 200
"""Attributes with columns of their own in one file."""

LETTERS: Final = "bifstx"
CLASSES: Final = LETTERS + "Iw"
"""Kinds of values, divided further: `I` are integers that no double equals, `w` are whole floats."""
TAKEN_BY: Final = {"n": "if", "f": "ifw", "i": "iI", **{letter: letter for letter in "bstx"}}
"""Classes of values in a column, by its letter."""
TAKEN_WHOLLY: Final = {**TAKEN_BY, "f": "fw"}
"""Classes of values in a column that are not in the map as well."""
_CODES: Final[dict[type, int]] = {bool: 0, int: 1, float: 2, str: 3, datetime: 4, bytes: 5}

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Counts = dict[str, dict[str, int]]
"""Number of values of each class, by attribute."""


class Flat:
    """Attributes of events, with plain values; all are added before anything is read."""

    def __init__(self, attributes: Sequence[dict[str, Value]] = ()) -> None:
        self.count = 0
        self._held: list[Value] = []
        # Events of one kind have the same names in the same order, so each order is examined once.
        self._shapes: dict[tuple[str, ...], int] = {}
        self._shape_of: list[int] = []
        self.add(attributes)

    def add(self, attributes: Sequence[dict[str, Value]]) -> None:
        """Add the attributes of some more events."""
        shapes = self._shapes
        self.count += len(attributes)
        self._held += chain.from_iterable(map(dict.values, attributes))
        self._shape_of += [shapes.setdefault(tuple(held), len(shapes)) for held in attributes]

    @cached_property
    def _number(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(dict.fromkeys(chain.from_iterable(self._shapes)))}

    @property
    def names(self) -> list[str]:
        """Distinct names, in the order of their numbers."""
        return list(self._number)

    @cached_property
    def values(self) -> npt.NDArray[np.object_]:
        """All values, those of an event together."""
        values = np.empty(len(self._held), object)
        values[:] = self._held
        return values

    @cached_property
    def _lengths(self) -> Longs:
        """Number of attributes of each event."""
        return np.array([len(shape) for shape in self._shapes], np.int64)[self._shape_of]

    @cached_property
    def rows(self) -> Longs:
        """Row of each value."""
        return np.repeat(np.arange(self.count), self._lengths)

    @cached_property
    def _pairs(self) -> Longs:
        """Name and kind of each value as one number."""
        numbers = np.fromiter(map(self._number.__getitem__, chain.from_iterable(self._shapes)), np.int64)
        begins = np.cumsum([0, *(len(shape) for shape in self._shapes)])[self._shape_of]
        # The values of a row follow each other as the names of its shape do.
        skipped = np.cumsum(self._lengths) - self._lengths
        places = np.arange(len(self._held)) + np.repeat(begins - skipped, self._lengths)
        kinds = np.frombuffer(bytes(map(_CODES.__getitem__, map(type, self._held))), np.uint8)
        pairs: Longs = numbers[places] * len(LETTERS) + kinds
        return pairs

    @cached_property
    def _classes(self) -> Longs:
        """Name and class of each value as one number."""
        names, classes = np.divmod(self._pairs, len(LETTERS))
        integers, floats = (np.flatnonzero(classes == LETTERS.index(letter)) for letter in "if")
        large = is_large(np.array(self.values[integers].tolist(), np.int64))
        whole = is_whole(np.array(self.values[floats].tolist(), np.float64))
        classes[integers[large]] = CLASSES.index("I")
        classes[floats[whole]] = CLASSES.index("w")
        named: Longs = names * len(CLASSES) + classes
        return named

    def counts(self) -> Counts:
        """Number of values of each class, by attribute."""
        width = len(CLASSES)
        totals = np.bincount(self._classes, minlength=width * len(self.names)).reshape(-1, width)
        return {
            name: {letter: int(n) for letter, n in zip(CLASSES, row, strict=True) if n}
            for name, row in zip(self.names, totals, strict=True)
        }

    def column(self, name: str, letter: str) -> Any:
        """Return the attribute's values that a column of that letter takes, null in rows without one."""
        places = np.flatnonzero(self._is(name, TAKEN_BY[letter]))
        return scattered(
            pa.array(self.values[places].tolist(), COLUMN_TYPES[letter]), self.rows[places], self.count
        )

    def rest(self, taken: dict[str, str]) -> Any:
        """Return the map of all values without a column of their own; null where there are none."""
        left = np.ones(len(self.values), np.bool_)
        for name, letter in taken.items():
            left &= ~self._is(name, TAKEN_WHOLLY[letter])
        return self._map(np.flatnonzero(left), ATTRIBUTES, self._structs, empty_is_null=True)

    def attributes(self) -> Any:
        """Return all attributes as the map whose values have a member for each kind."""
        return self._map(np.arange(len(self.values)), ATTRIBUTES, self._structs, empty_is_null=False)

    def texts(self) -> Any:
        """Return all attributes as a map from names to texts."""
        return self._map(np.arange(len(self.values)), TEXTS, self._texts, empty_is_null=False)

    def _is(self, name: str, classes: str) -> Mask:
        """Return a mask of the attribute's values of one of these classes."""
        number = self._number.get(name)
        if number is None:
            return np.zeros(len(self.values), np.bool_)
        chosen = np.zeros(len(self.values), np.bool_)
        for one in classes:
            chosen |= self._classes == number * len(CLASSES) + CLASSES.index(one)
        return chosen

    def _map(self, places: Longs, kind: Any, made: Any, *, empty_is_null: bool) -> Any:
        lengths = np.bincount(self.rows[places], minlength=self.count)
        keys = pa.array(self.names, pa.string()).take(pa.array(self._pairs[places] // len(LETTERS)))
        return map_of(lengths, keys, made(places), kind, empty_is_null=empty_is_null)

    def _structs(self, places: Longs) -> Any:
        kinds = self._pairs[places] % len(LETTERS)
        children = []
        for code, letter in enumerate(LETTERS):
            chosen = np.flatnonzero(kinds == code)
            values = pa.array(self.values[places[chosen]].tolist(), KIND_TYPES[letter])
            children.append(scattered(values, chosen, len(places)))
        return pa.StructArray.from_arrays(children, fields=list(VALUE))

    def _texts(self, places: Longs) -> Any:
        kinds = self._pairs[places] % len(LETTERS)
        made = self.values[places]
        for code, letter in enumerate(LETTERS):
            chosen = np.flatnonzero(kinds == code)
            if letter != "s" and len(chosen):
                made[chosen] = texts(letter, made[chosen].tolist())
        return pa.array(made.tolist(), pa.string())


def map_of(lengths: Longs, keys: Any, items: Any, kind: Any, *, empty_is_null: bool) -> Any:
    """Return the map column whose rows have so many entries each, which stand one after the other."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    mask = pa.array(lengths == 0) if empty_is_null else None
    return pa.MapArray.from_arrays(pa.array(offsets), keys, items, type=kind, mask=mask)


def whole(column: Any) -> Any:
    """Return a column of a table or of a record batch in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def scattered(values: Any, rows: Longs, count: int) -> Any:
    """Return a column of so many rows that has these values in these rows, and null in all others."""
    if len(rows) == count:
        return values
    if not len(rows):
        return pa.nulls(count, values.type)
    places = np.full(count, -1, np.int64)
    places[rows] = np.arange(len(rows))
    return values.take(pa.array(places, mask=places < 0))


def is_whole(numbers: npt.NDArray[np.float64]) -> Mask:
    """Return a mask of the doubles that are whole; infinite ones count as whole, too."""
    whole: Mask = np.floor(numbers) == numbers
    return whole


def is_large(numbers: Longs) -> Mask:
    """Return a mask of the integers that no double equals, or may not."""
    return (numbers > EXACT_MAX) | (numbers < -EXACT_MAX)


def column_for(classes: dict[str, int]) -> tuple[str, int]:
    """Return the letter of the column that takes most values of these classes, and their number."""
    has_floats = bool(classes.get("f") or classes.get("w"))
    numbers = "i" if classes.get("I") and not has_floats else "f"
    return max((column_of(kind, classes) for kind in (numbers, *"bstx")), key=lambda found: found[1])


def column_of(kind: str, classes: dict[str, int]) -> tuple[str, int]:
    """Return the letter of a column of that kind, and how many values of these classes it takes."""
    letter = kind
    if kind == "f" and classes.get("i") and not classes.get("w"):
        letter = "n"
    return letter, sum(classes.get(one, 0) for one in TAKEN_BY[letter])


def frequent(counts: Counts, rows: int, kinds: Kinds | None = None) -> dict[str, str]:
    """Return the attributes that get columns of their own among so many rows, with the letter of each.

    Columns are of the kinds that their folder has. Of names that differ in case only, the one that is known
    there, or else the one with more values, gets it.
    """
    kinds = kinds or Kinds()
    chosen: dict[str, str] = {}
    taken = kinds.spellings()
    room = kinds.room
    found = {name: _column(name, classes, kinds) for name, classes in counts.items()}
    for name in sorted(found, key=lambda name: (-found[name][1], name)):
        letter, total = found[name]
        if total < max(1, FREQUENT * rows) or len(chosen) >= OWN_COLUMNS_MAX:
            break
        if name in kinds.known:
            chosen[name] = letter
        elif room and may_be_column(name) and name.casefold() not in taken:
            chosen[name] = taken[name.casefold()] = letter
            room -= 1
    return dict(sorted(chosen.items()))


def _column(name: str, classes: dict[str, int], kinds: Kinds) -> tuple[str, int]:
    known = kinds.known.get(name)
    return column_for(classes) if known is None else column_of(known, classes)


def texts(letter: str, values: Sequence[Any]) -> list[str]:
    """Return the texts of values, none of them None, that are all of the kind of that letter.

    A number is written as JSON has it, a bool `true` or `false`, a time in RFC 3339, bytes in base64.
    """
    return _TEXTS[letter](values)


def _numbers(values: Sequence[float]) -> list[str]:
    """Write all numbers with one call; Python's `repr` takes six times as long."""
    if not values:
        return []
    written = msgspec.json.encode(values).decode()[1:-1].split(",")
    if "null" in written:  # JSON's word for numbers that are not finite
        written = [
            str(value) if text == "null" else text for text, value in zip(written, values, strict=True)
        ]
    return written


_TEXTS: dict[str, Callable[[Sequence[Any]], list[str]]] = {
    "b": lambda values: ["true" if value else "false" for value in values],
    "i": _numbers,
    "f": _numbers,
    "s": list,
    "t": lambda values: [time_text(value) for value in values],
    "x": lambda values: [b64encode(value).decode() for value in values],
}

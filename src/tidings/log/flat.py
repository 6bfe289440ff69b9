"""The attributes of many events, laid out flat, and the columns that are made of them.

All names stand in one array and all values in another, in the order of the rows, with the row each belongs
to. A column of one attribute is then a choice among them, and the map of the others what is left: nothing is
done attribute by attribute or event by event.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.event.values import Value
from tidings.log.schema import ATTRIBUTES, KIND_TYPES, TEXTS, VALUE, may_be_column
from tidings.log.texts import texts

FREQUENT = 0.05
"""An attribute has a column of its own from this share of the rows on."""
OWN_COLUMNS_MAX = 200
"""How many attributes may have columns of their own in one file."""

LETTERS: Final = "bifstx"
_CODES: Final[dict[type, int]] = {bool: 0, int: 1, float: 2, str: 3, datetime: 4, bytes: 5}

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Flat:
    """The attributes of events, whose values are plain; all are added before the first question."""

    def __init__(self, attributes: Sequence[dict[str, Value]] = ()) -> None:
        self.count = 0
        self._held: list[Value] = []
        # Events of one kind have the same names in the same order, so that is looked at once for each order.
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
        """The different names, as they are numbered."""
        return list(self._number)

    @cached_property
    def values(self) -> npt.NDArray[np.object_]:
        """All values, those of an event together."""
        values = np.empty(len(self._held), object)
        values[:] = self._held
        return values

    @cached_property
    def _lengths(self) -> Longs:
        """How many attributes each event has."""
        return np.array([len(shape) for shape in self._shapes], np.int64)[self._shape_of]

    @cached_property
    def rows(self) -> Longs:
        """The row of each value."""
        return np.repeat(np.arange(self.count), self._lengths)

    @cached_property
    def _pairs(self) -> Longs:
        """For each value, its name and its kind as one number."""
        numbers = np.fromiter(map(self._number.__getitem__, chain.from_iterable(self._shapes)), np.int64)
        begins = np.cumsum([0, *(len(shape) for shape in self._shapes)])[self._shape_of]
        # The values of a row follow each other as the names of its shape do.
        skipped = np.cumsum(self._lengths) - self._lengths
        places = np.arange(len(self._held)) + np.repeat(begins - skipped, self._lengths)
        kinds = np.frombuffer(bytes(map(_CODES.__getitem__, map(type, self._held))), np.uint8)
        pairs: Longs = numbers[places] * len(LETTERS) + kinds
        return pairs

    def counts(self) -> dict[str, dict[str, int]]:
        """How many values of each kind each attribute has."""
        totals = np.bincount(self._pairs, minlength=len(LETTERS) * len(self.names)).reshape(-1, len(LETTERS))
        return {
            name: {letter: int(n) for letter, n in zip(LETTERS, row, strict=True) if n}
            for name, row in zip(self.names, totals, strict=True)
        }

    def column(self, name: str, letter: str) -> Any:
        """The attribute's values of one kind, null where a row has none."""
        places = np.flatnonzero(self._is(name, letter))
        return scattered(
            pa.array(self.values[places].tolist(), KIND_TYPES[letter]), self.rows[places], self.count
        )

    def rest(self, taken: dict[str, str]) -> Any:
        """The map of all that has no column of its own; null where that is nothing."""
        left = np.ones(len(self.values), np.bool_)
        for name, letter in taken.items():
            left &= ~self._is(name, letter)
        return self._map(np.flatnonzero(left), ATTRIBUTES, self._structs, empty_is_null=True)

    def attributes(self) -> Any:
        """All attributes as the map whose values have a member for each kind."""
        return self._map(np.arange(len(self.values)), ATTRIBUTES, self._structs, empty_is_null=False)

    def texts(self) -> Any:
        """All attributes as a map from names to texts."""
        return self._map(np.arange(len(self.values)), TEXTS, self._texts, empty_is_null=False)

    def _is(self, name: str, letter: str) -> Mask:
        number = self._number.get(name)
        if number is None:
            return np.zeros(len(self.values), np.bool_)
        chosen: Mask = self._pairs == number * len(LETTERS) + LETTERS.index(letter)
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
    """The map column whose rows have so many entries each, which stand one after the other."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    mask = pa.array(lengths == 0) if empty_is_null else None
    return pa.MapArray.from_arrays(pa.array(offsets), keys, items, type=kind, mask=mask)


def scattered(values: Any, rows: Longs, count: int) -> Any:
    """A column of so many rows that has these values in these rows, and null in all others."""
    if len(rows) == count:
        return values
    if not len(rows):
        return pa.nulls(count, values.type)
    places = np.full(count, -1, np.int64)
    places[rows] = np.arange(len(rows))
    return values.take(pa.array(places, mask=places < 0))


def frequent(counts: dict[str, dict[str, int]], rows: int) -> dict[str, str]:
    """The attributes that get columns of their own among so many rows, and the letter of the kind of each.

    Of names that differ in case only, the one with more values gets it.
    """
    chosen: dict[str, str] = {}
    taken: set[str] = set()
    totals = {name: max(kinds.values()) for name, kinds in counts.items()}
    for name in sorted(totals, key=lambda name: (-totals[name], name)):
        if totals[name] < max(1, FREQUENT * rows) or len(chosen) >= OWN_COLUMNS_MAX:
            break
        if may_be_column(name) and name.casefold() not in taken:
            kinds = counts[name]
            chosen[name] = max(kinds, key=lambda letter: kinds[letter])
            taken.add(name.casefold())
    return dict(sorted(chosen.items()))

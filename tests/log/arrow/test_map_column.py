"""Attributes in the map of a table: found by name in one pass, however many names are asked for."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidings.log.arrow.attributes import Flat
from tidings.log.arrow.map_column import MapEntries

NAMES = [f"a{number}" for number in range(8)]
maps = st.lists(st.dictionaries(st.sampled_from(NAMES), st.sampled_from([1, 2.5, "x", True]), max_size=5))


class Counted:
    """An array that counts how often something is asked of the whole of it."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.passes = 0

    def __getattr__(self, name: str) -> Any:
        self.passes += 1
        return getattr(self._array, name)


@given(maps, st.integers(0, 3))
def test_the_entries_of_a_name_are_those_of_the_rows_that_have_it(
    rows: list[dict[str, Any]], skipped: int
) -> None:
    column = Flat(rows).attributes().slice(skipped)
    entries = MapEntries(column)
    for name in NAMES:
        wanted = [(row, held[name]) for row, held in enumerate(rows[skipped:]) if name in held]
        places, values = entries.of(name)
        assert list(zip(places.tolist(), values, strict=True)) == wanted


def test_a_thousand_names_cost_one_pass_over_the_map() -> None:
    names = [f"name{number}" for number in range(1_000)]
    entries = MapEntries(Flat([dict.fromkeys(names, 1.5)] * 3).attributes())
    keys = Counted(entries.keys)
    entries.keys = keys
    assert all(entries.of(name)[1] == [1.5] * 3 for name in names)
    assert keys.passes == 1


def test_a_map_without_entries_has_no_names() -> None:
    entries = MapEntries(pa.array([], pa.map_(pa.string(), Flat([{}]).attributes().type.item_type)))
    assert entries.of("value")[1] == []

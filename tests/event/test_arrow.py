"""Events in Arrow: their columns, and cells that no event has."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tidings.errors import EventError, MissingExtra
from tidings.event.arrow import header_in, origin_in, schema
from tidings.event.header import SHOWN_FIELDS

pa = pytest.importorskip("pyarrow")


def test_there_is_a_typed_column_for_each_field_of_a_header() -> None:
    assert set(SHOWN_FIELDS) <= set(schema().names)
    assert schema().field("priority").type == pa.int8()
    assert schema().field("received").type == pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("name", "value"), [("priority", 12), ("delivery", "fast"), ("ttl_s", -1.0), ("id", "")]
)
def test_a_bad_cell_is_named_by_its_column(name: str, value: Any) -> None:
    with pytest.raises(EventError) as caught:
        header_in({name: value}, None)
    assert caught.value.place == f"$.{name}"


def test_cells_that_are_empty_or_the_default_make_no_header() -> None:
    assert header_in({"priority": 4, "subject": None}, None) is None


def test_a_time_past_the_calendar_is_refused() -> None:
    with pytest.raises(OverflowError, match="out of range"):
        header_in({}, 2**62)


@pytest.mark.parametrize(("system", "epoch"), [("sys", -1), ("no system", 1)])
def test_an_origin_that_no_event_has_is_refused(system: str, epoch: int) -> None:
    with pytest.raises(EventError):
        origin_in(system, epoch, None)


def test_without_pyarrow_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra) as caught:
        schema()
    assert caught.value.extra == "node"

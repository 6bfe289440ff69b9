"""Models in the body of an event: written, read, and refused with their place."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings import Event
from tidings.errors import CodecError, EventError, UserError

JSON, MSGPACK = "application/json", "application/msgpack"
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Item(msgspec.Struct):
    name: str
    price: int


class Order(msgspec.Struct):
    number: int
    items: list[Item]
    at: datetime = NOON
    size: Size = Size.SMALL
    note: str | None = None


@dataclass
class PlainItem:
    name: str
    price: int


@dataclass
class PlainOrder:
    number: int
    items: list[PlainItem]
    at: datetime = NOON
    size: Size = Size.SMALL
    tags: list[str] = field(default_factory=list)


class CheckedItem(pydantic.BaseModel):
    name: str
    price: int


class CheckedOrder(pydantic.BaseModel):
    number: int
    items: list[CheckedItem] = pydantic.Field(alias="things")
    at: datetime = NOON
    size: Size = Size.SMALL


ORDERS: list[Any] = [
    Order(1, [Item("pen", 3), Item("ink", 7)], size=Size.LARGE, note="ü"),
    PlainOrder(1, [PlainItem("pen", 3)], tags=["a"]),
    CheckedOrder(number=1, things=[CheckedItem(name="pen", price=3)], size=Size.LARGE),
]


@pytest.mark.parametrize("content_type", [None, JSON, MSGPACK, "x/vnd.shop+json; v=2", "x/y+msgpack"])
@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_a_model_comes_back_as_it_was(order: Any, content_type: str | None) -> None:
    event = Event("order", {"color": "blue"}, data=order, content_type=content_type, priority=7)
    assert event.data(type(order)) == order
    assert event.content_type == (content_type or JSON)
    assert event.object_class == type(order).__name__
    assert (event["color"], event.priority) == ("blue", 7)
    assert "data" not in event.attributes


@given(
    st.builds(
        Order, st.integers(-(2**63), 2**63 - 1), st.lists(st.builds(Item, st.text(), st.integers(0, 9)))
    )
)
def test_every_order_comes_back_in_both_formats(order: Order) -> None:
    for content_type in (JSON, MSGPACK):
        assert Event("order", data=order, content_type=content_type).data(Order) == order


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_a_list_of_models_has_no_class(order: Any) -> None:
    event = Event("orders", data=[order, order])
    assert event.data(list[type(order)]) == [order, order]
    assert event.object_class is None


def test_models_of_one_kind_are_read_as_those_of_another() -> None:
    event = Event("order", data=ORDERS[1])
    assert event.data(Order).items == [Item("pen", 3)]
    assert event.data(dict)["number"] == 1


@pytest.mark.parametrize("value", [3, "text", b"x", NOON, 2.5, True])
def test_a_plain_value_named_data_is_an_attribute(value: object) -> None:
    assert Event("t", data=value).attributes == {"data": value}
    assert Event("t", {"data": value}).attributes == {"data": value}


def test_a_mapping_named_data_is_flattened_as_any_other() -> None:
    assert Event("t", data={"a": 1}).attributes == {"data.a": 1}


def test_a_class_and_content_type_that_are_given_stay() -> None:
    event = Event("order", data=ORDERS[0], object_class="shop.Order")
    assert event.object_class == "shop.Order"


def test_a_changed_copy_may_have_other_data() -> None:
    event = Event("order", data=ORDERS[0], content_type=MSGPACK).evolve(data=Item("pen", 3))
    assert event.data(Item) == Item("pen", 3)
    assert (event.object_class, event.content_type) == ("Item", JSON)


@pytest.mark.parametrize("content_type", [JSON, MSGPACK])
@pytest.mark.parametrize(
    ("given_data", "model", "said"),
    [
        ({"number": "x", "items": []}, Order, "$.body.number: expected int, got str; it is read as Order"),
        ({"items": []}, Order, "$.body.number: is missing; it is read as Order"),
        (
            {"number": 1, "items": [{"name": "a", "price": 1}, {"name": "b"}]},
            Order,
            "$.body.items[1].price: is missing; it is read as Order",
        ),
        (
            {"number": 1, "items": [{"name": 5, "price": 1}]},
            PlainOrder,
            "$.body.items[0].name: expected str, got int; it is read as PlainOrder",
        ),
        (
            {"number": 1, "things": [{"name": "a", "price": "much"}]},
            CheckedOrder,
            "$.body.things[0].price: input should be a valid integer, unable to parse string as an integer",
        ),
        ([{"name": "a"}], list[Item], "$.body[0].price: is missing; it is read as list["),
    ],
)
def test_a_model_that_contradicts_the_event_is_refused_with_place_and_type(
    given_data: object, model: Any, said: str, content_type: str
) -> None:
    encode = msgspec.json.encode if content_type == JSON else msgspec.msgpack.encode
    event = Event("order", body=encode(given_data), content_type=content_type)
    with pytest.raises(CodecError) as caught:
        event.data(model)
    assert str(caught.value).startswith(said)


def test_the_error_names_the_class_that_was_written() -> None:
    with pytest.raises(CodecError, match=r"; it is read as Item and was written as Order$"):
        Event("order", data=ORDERS[0]).data(Item)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000])
@pytest.mark.parametrize("model", [Order, PlainOrder, CheckedOrder])
@pytest.mark.parametrize("content_type", [JSON, MSGPACK])
def test_bytes_that_are_no_data_are_refused(body: bytes, model: type, content_type: str) -> None:
    with pytest.raises(CodecError, match=r"^\$\.body"):
        Event("order", body=body, content_type=content_type).data(model)


def test_what_can_be_no_data_is_refused() -> None:
    with pytest.raises(CodecError, match=r"^\$\.body: is missing; it is to be read as Order"):
        Event("order").data(Order)
    with pytest.raises(
        EventError, match=r"^\$\.content_type: data is application/json or .*, not 'text/xml'"
    ):
        Event("order", body=b"<x/>", content_type="text/xml").data(Order)
    with pytest.raises(EventError, match=r"^\$\.content_type: data is"):
        Event("order", data=ORDERS[0], content_type="text/xml")
    with pytest.raises(EventError, match=r"^\$\.data: there is a body already"):
        Event("order", data=ORDERS[0], body=b"x")
    with pytest.raises(EventError, match=r"^\$\.data: list can't be written: "):
        Event("order", data=[object()])
    with pytest.raises(UserError, match=r"^.* is no model: "):
        Event("order", body=b"1").data(dict[int, int] | dict[str, int])  # type: ignore[arg-type]


def test_pydantic_is_not_imported_by_those_who_do_without_it() -> None:
    code = """
import sys, dataclasses
from tidings import Event
made = dataclasses.make_dataclass("M", [("n", int)])
assert Event("t", data=made(1)).data(made) == made(1)
assert "pydantic" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)

"""Models that are published, put, requested and replied, with and without await."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

import tidings
from client.nodes import run
from tidings import Event
from tidings.client import Bus
from tidings.errors import CodecError, EventError

MSGPACK = "application/msgpack"


class Order(msgspec.Struct):
    number: int
    items: list[str] = []


@dataclass
class Receipt:
    number: int


ORDER = Order(7, ["pen"])


def test_a_model_is_published_and_read_by_its_class() -> None:
    async def work() -> None:
        async with tidings.open() as bus, bus.subscribe("object_class = 'Order'") as events:
            await bus.publish("order", data=ORDER, priority=7)
            await bus.publish("order", {"color": "blue"}, data=ORDER, content_type=MSGPACK)
            first, second = await anext(events), await anext(events)
            assert first.data(Order) == second.data(Order) == ORDER
            assert (first.content_type, second.content_type) == ("application/json", MSGPACK)
            assert (first.priority, second["color"]) == (7, "blue")

    run(work())


def test_a_model_in_a_queue_is_read_from_its_message() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            queue = await bus.create_queue("orders")
            await queue.put("order", data=ORDER)
            assert (await queue.get(timeout_s=60)).data(Order) == ORDER
            await queue.put("order", data=ORDER)
            async with queue.take(timeout_s=60) as message:
                with pytest.raises(CodecError, match=r"^\$\.body: expected array, got object; it is "):
                    message.data(list[int])

    run(work())


def test_a_request_and_its_answer_are_models() -> None:
    async def work() -> None:
        async def serve(asked: Event) -> None:
            await bus.reply(asked, "receipt", data=Receipt(asked.data(Order).number))

        async with tidings.open() as bus, bus.listen("type = 'order'", serve):
            answer = await bus.request("order", data=ORDER, timeout_s=30)
            assert answer.data(Receipt) == Receipt(7)

    run(work())


def test_a_near_miss_of_an_option_is_refused_and_nothing_is_published() -> None:
    async def work(bus: Bus) -> None:
        async with bus.subscribe() as events:
            with pytest.raises(EventError, match=r"^\$\.timeout: did you mean timeout_s\?"):
                await bus.publish("order", timeout=5)
            await bus.publish("order", {"timeout": 5})
            assert (await anext(events))["timeout"] == 5

    async def begin() -> None:
        async with tidings.open() as bus:
            await work(bus)

    run(begin())


def test_models_without_await() -> None:
    with tidings.blocking.open() as bus:
        queue = bus.create_queue("orders")
        with bus.subscribe() as events:
            bus.publish("order", data=ORDER)
            assert next(events).data(Order) == ORDER
        queue.put("order", data=ORDER)
        assert queue.get(timeout_s=60).data(Order) == ORDER

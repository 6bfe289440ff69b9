"""The types that mypy knows: it checks this file as it checks the sources, and it must run, too.

An ignore stands where mypy must object; as mypy reports an ignore without need, it is a test as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

import tidings
from client.nodes import run
from tidings import Event, Typed, blocking
from tidings.client import Subscription, TypedSubscription


class Reading(Typed, type="air.pm10"):
    value: float
    unit: str = "µg/m³"


@dataclass
class Order:
    number: int


def test_fields_and_instances_have_their_types() -> None:
    reading = Reading(41.5, unit="ppm")
    assert_type(reading.value, float)
    assert_type(reading.to_event(), Event)
    assert_type(Reading.from_event(reading.to_event()), Reading)
    assert_type(Reading.event_type, str)


def test_data_has_the_type_of_its_model() -> None:
    event = Event("order", data=Order(7))
    assert_type(event.data(Order), Order)
    assert_type(event.data(dict[str, int]), dict[str, int])


def test_a_subscription_has_the_type_of_its_class() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            plain = bus.subscribe("value > 40", prefetch=1)
            assert_type(plain, Subscription)
            typed = bus.subscribe(Reading, where="value > 40", prefetch=1)
            assert_type(typed, TypedSubscription[Reading])
            async with typed as readings:
                await bus.publish(Reading(41.5))
                assert_type(await anext(readings), Reading)
                assert_type(readings.event, Event)
            queue = await bus.create_queue("orders")
            await queue.put("order", data=Order(7))
            assert_type((await queue.get()).data(Order), Order)

    run(work())


def test_the_blocking_bus_has_the_same_types() -> None:
    with blocking.open() as bus:
        assert_type(bus.subscribe("value > 40"), blocking.Subscription)
        with bus.subscribe(Reading) as readings:
            assert_type(readings, blocking.TypedSubscription[Reading])
            bus.publish(Reading(41.5))
            assert_type(next(readings), Reading)


def misused() -> None:
    """Not run: mypy must object to each of these."""
    Reading()  # type: ignore[call-arg]
    Reading(41.5, color="blue")  # type: ignore[call-arg]
    Reading("much")  # type: ignore[arg-type]
    Reading(41.5).valeu  # type: ignore[attr-defined]  # noqa: B018
    Reading(41.5).value = 3.0  # type: ignore[misc]

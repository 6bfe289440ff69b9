"""Classes of events on the bus: published, subscribed to by class, and filters that are checked by it."""

from __future__ import annotations

from datetime import datetime

import pytest

import tidings
from client.nodes import run
from tidings import Event, Filter, Typed
from tidings.errors import CodecError, FilterError, UserError


class Reading(Typed, type="air.pm10"):
    value: float
    unit: str = "µg/m³"
    at: datetime | None = None
    priority: int = 4


class Place(Typed):
    x: float


class Placed(Typed, type="placed"):
    pos: Place


def test_instances_are_published_and_come_back_as_instances() -> None:
    async def work() -> None:
        async with tidings.open() as bus, bus.subscribe(Reading, where="value > 40") as readings:
            await bus.publish(Reading(12.0))
            await bus.publish("air.pm25", value=99.0)
            await bus.publish(Reading(41.5, priority=7))
            await bus.publish("air.pm10", value=61)
            assert await anext(readings) == Reading(41.5, priority=7)
            assert readings.event.priority == 7
            async for reading in readings:
                assert reading == Reading(61.0)
                break
            assert readings.subscription.dropped == 0

    run(work())


def test_instances_go_through_queues_transactions_and_requests() -> None:
    async def work() -> None:
        async def serve(asked: Event) -> None:
            await bus.reply(asked, Reading(2 * Reading.from_event(asked).value))

        async with tidings.open() as bus, bus.listen("reply_to IS NOT NULL", serve):
            queue = await bus.create_queue("readings")
            await queue.put(Reading(1.0))
            async with bus.transaction() as transaction:
                await transaction.put(queue, Reading(2.0))
            messages = await queue.get_all()
            assert [Reading.from_event(one.event).value for one in messages] == [1.0, 2.0]
            answer = await bus.request(Reading(21.0), timeout_s=30)
            assert Reading.from_event(answer).value == 42.0

    run(work())


def test_an_event_that_contradicts_the_class_is_raised_and_the_next_one_follows() -> None:
    async def work() -> None:
        async with tidings.open() as bus, bus.subscribe(Reading) as readings:
            await bus.publish("air.pm10", value="much")
            await bus.publish(Reading(1.5))
            with pytest.raises(CodecError, match=r"^\$\.value: expected float, got str; the event is "):
                await anext(readings)
            assert readings.event["value"] == "much"
            assert await anext(readings) == Reading(1.5)

    run(work())


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("valeu > 40", "line 1, column 1: Reading has no attribute valeu (did you mean value)"),
        (
            "unit = 'x' AND\n  color = 'blue'",
            "line 2, column 3: Reading has no attribute color (it has value, unit, at, priority)",
        ),
        (
            '"sensing-id" = 1',
            "line 1, column 1: Reading has no attribute sensing-id (it has value, ",
        ),
        (Filter("n = 1"), "Reading has no attribute n (it has value, unit, at, priority)"),
        ("value >", "line 1, column 8: expected a name, a value or (, found the end"),
    ],
)
def test_an_attribute_that_the_class_has_not_is_refused_with_a_hint(where: str | Filter, said: str) -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            with pytest.raises(FilterError) as caught:
                bus.subscribe(Reading, where=where)
            assert str(caught.value).startswith(said)

    run(work())


def test_header_fields_and_parts_of_nested_fields_may_be_filtered() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            bus.subscribe(Reading, where="source = 'quay' AND JMSPriority > 3 AND at IS NULL")
            bus.subscribe(Placed, where="pos.x > 3")
            with pytest.raises(FilterError, match=r"Placed has no attribute posx \(did you mean pos\)"):
                bus.subscribe(Placed, where="posx > 3")

    run(work())


def test_a_value_that_an_attribute_never_has_is_noted(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            bus.subscribe(Reading, where="value = '40' OR at IS NULL OR unit IS NULL OR unit > 'a'")

    run(work())
    assert [one.getMessage() for one in caplog.records] == [
        "filter: value = '40': value is a number; write 40",
        "filter: unit IS NULL: unit is never absent",
    ]


def test_an_or_in_the_condition_stays_within_the_class() -> None:
    async def work() -> None:
        async with tidings.open() as bus, bus.subscribe(Reading, where="value > 40 OR value < 0") as readings:
            await bus.publish("air.pm25", value=-1.0)
            await bus.publish(Reading(-2.0))
            assert await anext(readings) == Reading(-2.0)

    run(work())


def test_events_of_a_durable_subscription_are_acknowledged_by_hand() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            kept = (
                Event("air.pm10", value=1, delivery="reliable"),
                Event("air.pm10", value=2, delivery="reliable"),
            )
            async with bus.subscribe(Reading, durable="d", acknowledge="client") as readings:
                await bus.publish_all(kept)
                assert (await anext(readings)).value == 1
                await readings.acknowledge()
                assert (await anext(readings)).value == 2
            async with bus.subscribe(Reading, durable="d") as readings:
                assert (await anext(readings)).value == 2

    run(work())


def test_what_makes_no_sense_is_refused() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            with pytest.raises(UserError, match=r"^where goes with a class of events; join two "):
                bus.subscribe("n = 1", where="m = 2")  # type: ignore[call-overload]
            with pytest.raises(UserError, match=r"^Typed has no type"):
                bus.subscribe(Typed)
            with pytest.raises(UserError, match=r"^no event has been returned yet$"):
                _ = bus.subscribe(Reading).event
            with pytest.raises(UserError, match=r"^an event is published as it is"):
                await bus.publish(Reading(1.0), priority=3)

    run(work())


def test_classes_of_events_without_await() -> None:
    with tidings.blocking.open() as bus:
        with bus.subscribe(Reading, where="value > 40") as readings:
            bus.publish(Reading(12.0))
            bus.publish(Reading(41.5))
            assert next(readings) == Reading(41.5)
            assert readings.event["value"] == 41.5
            assert readings.subscription.dropped == 0
            bus.publish(Reading(61.0))
            for reading in readings:
                assert reading == Reading(61.0)
                break
        with pytest.raises(FilterError, match="did you mean value"):
            bus.subscribe(Reading, where="valeu > 40")

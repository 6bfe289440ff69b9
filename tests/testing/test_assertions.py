from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import tidings
from tidings import Event, Filter
from tidings.client import Bus
from tidings.errors import Disconnected, UserError
from tidings.testing import VirtualClock, eventually, eventually_blocking, published, queued

LIMIT_S = 2.0
"""Virtual seconds that what fails waits."""


def with_bus(test: Callable[[Bus], Coroutine[Any, Any, None]]) -> None:
    """Run a test with a bus whose clock skips what an assertion waits for."""

    async def work() -> None:
        async with VirtualClock().open() as bus:
            await test(bus)

    asyncio.run(work())


def failure(filter: str, *events: Event, **options: Any) -> str:
    """What `published` says if these are the events of its block."""
    said: list[str] = []

    async def test(bus: Bus) -> None:
        with pytest.raises(AssertionError) as raised:
            async with published(bus, filter, within_s=LIMIT_S, **options):
                await bus.publish_all(events)
        said.append(str(raised.value))

    with_bus(test)
    return said[0]


# -- published


def test_what_matched_is_there_after_the_block() -> None:
    async def test(bus: Bus) -> None:
        async with published(bus, "type = 'alarm' AND level > :limit", limit=2) as alarms:
            for level in (1, 3, 2, 4):
                await bus.publish("alarm", level=level)
        assert [event["level"] for event in alarms] == [3, 4]
        assert (alarms[0]["level"], alarms[1:][0]["level"], len(alarms)) == (3, 4, 2)

    with_bus(test)


def test_an_event_that_comes_after_the_block_is_waited_for() -> None:
    async def later(bus: Bus) -> None:
        await asyncio.sleep(900)
        await bus.publish("alarm")

    async def test(bus: Bus) -> None:
        async with published(bus, "type = 'alarm'", within_s=1_000):
            publishing = asyncio.create_task(later(bus))
        await publishing

    with_bus(test)


def test_the_failed_condition_of_the_nearest_events_is_named() -> None:
    said = failure(
        "type = 'air.pm10' AND value > 40",
        Event("air.pm10", value=12),
        Event("air.no2", value=3),
        Event("air.no2", value=50),
        Event("noise", value=50, level=1),
    )
    head, *lines = said.splitlines()
    assert head == (
        "expected an event to match `type = 'air.pm10' AND value > 40` within 2 s, got 0;"
        " the nearest of 4 events:"
    )
    assert lines == [
        "  air.pm10: value > 40 is false: value is 12",
        "  noise: type = 'air.pm10' is false: type is 'noise'",
        "  air.no2: type = 'air.pm10' is false: type is 'air.no2'",
    ]


def test_nothing_at_all_is_said_to_be_that() -> None:
    assert failure("n = 1") == (
        "expected an event to match `n = 1` within 2 s, got 0; nothing else was published"
    )


def test_a_count_is_met_exactly() -> None:
    events = [Event("job", n=n) for n in range(3)]
    assert failure("n < 2", *events, count=1).startswith(
        "expected 1 event to match `n < 2`, got 2:\n  Event("
    )
    assert failure("n > 1", *events, count=2).startswith(
        "expected 2 events to match `n > 1` within 2 s, got 1"
    )
    assert failure("", *events, count=0).startswith("expected 0 events to match `TRUE`, got 3")

    async def test(bus: Bus) -> None:
        async with published(bus, Filter("n < 2"), count=2), published(bus, "n > 7", count=0):
            await bus.publish_all(events)

    with_bus(test)


def test_what_was_published_last_in_the_block_counts() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            with pytest.raises(AssertionError, match="expected 0 events to match `n = 1`, got 1"):
                async with published(bus, "n = 1", count=0):
                    await bus.publish("job", n=1)

    asyncio.run(work())


def test_more_events_than_a_subscription_holds_are_named_as_the_reason() -> None:
    many = [Event("job", n=n) for n in range(40_000)]
    said = failure("n < 0", *many)
    assert "the nearest of" in said
    assert "dropped by the node" in said


def test_an_error_in_the_block_is_raised_as_it_is() -> None:
    async def test(bus: Bus) -> None:
        with pytest.raises(ZeroDivisionError):
            async with published(bus, "n = 1"):
                _ = 1 / 0

    with_bus(test)


def test_looking_on_makes_no_demand() -> None:
    async def test(bus: Bus) -> None:
        async with published(bus, count=0), bus.advertise("type = 'air.pm10'") as interest:
            assert not interest.wanted

    with_bus(test)


def test_a_blocking_bus_has_it_without_async() -> None:
    with tidings.blocking.open() as bus:
        with published(bus, "n = 2", count=1) as found:
            bus.publish("job", n=1)
            bus.publish("job", n=2)
        assert found[0]["n"] == 2
        with (
            pytest.raises(AssertionError, match="n = 2 is false: n is 1"),
            published(bus, "n = 2", within_s=0),
        ):
            bus.publish("job", n=1)


def test_wrong_use_is_named() -> None:
    async def test(bus: Bus) -> None:
        with pytest.raises(UserError, match="`async with`"), published(bus):
            pass
        with pytest.raises(UserError, match="parameters already: limit"):
            published(bus, Filter("n > 1"), limit=3)
        found = published(bus, count=0)
        async with found:
            pass
        with pytest.raises(UserError, match="entered once"):
            await found.__aenter__()

    with_bus(test)


# -- queued


def test_a_message_is_found_and_stays_or_the_failed_condition_is_named() -> None:
    async def test(bus: Bus) -> None:
        jobs = await bus.create_queue("jobs")
        with pytest.raises(AssertionError, match="in 'jobs' to match `n = 3`; nothing else is in it"):
            await queued(jobs, "n = 3")
        await jobs.put_all(Event("job", n=n) for n in (1, 2))
        with pytest.raises(AssertionError, match="job: n = 3 is false: n is 2"):
            await queued(jobs, "n = :n", n=3)
        assert (await queued(jobs, "n > 1"))["n"] == 2
        assert (await jobs.describe()).messages == 2

    with_bus(test)


# -- eventually


def test_a_check_is_made_until_it_holds() -> None:
    async def test(bus: Bus) -> None:
        jobs = await bus.create_queue("jobs", expiry=True)
        await jobs.put("job", n=1, ttl_s=3)
        assert (await eventually(lambda: queued(jobs, "n = 1")))["n"] == 1
        assert await eventually(jobs.is_empty)

    with_bus(test)


def test_an_error_of_the_node_is_no_failure_until_the_time_is_over() -> None:
    outcomes = iter([Disconnected("away"), AssertionError("no"), 0, 7])

    def check() -> int:
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        assert isinstance(outcome, int)
        return outcome

    async def test(_bus: Bus) -> None:
        assert await eventually(check) == 7

    with_bus(test)


def test_the_last_failure_is_raised_when_the_time_is_over() -> None:
    async def test(bus: Bus) -> None:
        jobs = await bus.create_queue("jobs")
        with pytest.raises(AssertionError, match="n = 1") as raised:
            await eventually(lambda: queued(jobs, "n = 1"), within_s=LIMIT_S)
        assert raised.value.__notes__ == ["still so after 2 s"]

        def value() -> int:
            return 0

        with pytest.raises(AssertionError, match="value still returns 0 after 2 s"):
            await eventually(value, within_s=LIMIT_S)

    with_bus(test)


def test_another_error_ends_it_at_once() -> None:
    def check() -> bool:
        raise ZeroDivisionError

    async def test(_bus: Bus) -> None:
        with pytest.raises(ZeroDivisionError):
            await eventually(check)

    with_bus(test)


def test_without_a_loop_it_does_the_same() -> None:
    clock = VirtualClock()
    with tidings.blocking.Bus(clock.open()) as bus:
        jobs = bus.create_queue("jobs", expiry=True)
        jobs.put("job", ttl_s=3)
        assert eventually_blocking(jobs.is_empty, clock=clock)
        with pytest.raises(AssertionError, match="still returns"):
            eventually_blocking(lambda: jobs.describe().messages, within_s=LIMIT_S, clock=clock)
    turns = iter([False, True])
    assert eventually_blocking(lambda: next(turns))

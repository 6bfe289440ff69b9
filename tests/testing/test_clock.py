from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import Any

import pytest
import uvloop

import tidings
from tidings.client import Bus, Message
from tidings.errors import MessageNotHeld, NoAnswer, QueueEmpty, UserError
from tidings.store.interface import Operation
from tidings.store.memory import MemoryStore
from tidings.testing import VirtualClock


def with_clock(test: Callable[[VirtualClock, Bus], Coroutine[Any, Any, None]]) -> None:
    """Run a test with a bus that goes by a virtual clock."""

    async def work() -> None:
        clock = VirtualClock()
        async with clock.open() as bus:
            await test(clock, bus)

    asyncio.run(work())


def test_a_timer_of_the_loop_fires_when_the_clock_has_been_put_that_far() -> None:
    async def test(clock: VirtualClock, _bus: Bus) -> None:
        sleeping = asyncio.create_task(asyncio.sleep(100))
        await clock.advance(50)
        assert not sleeping.done()
        await clock.advance(51)
        assert sleeping.done()

    with_clock(test)


def test_an_expired_message_is_not_delivered() -> None:
    async def test(clock: VirtualClock, bus: Bus) -> None:
        queue = await bus.create_queue("jobs", expiry=True)
        await queue.put("job", ttl_s=60)
        await clock.advance(30)
        assert (await queue.describe()).messages == 1
        await clock.advance(60)
        assert (await queue.describe()).messages == 0

    with_clock(test)


def test_a_message_that_is_not_acknowledged_is_redelivered() -> None:
    async def test(clock: VirtualClock, bus: Bus) -> None:
        queue = await bus.create_queue("jobs", redelivery_s=30)
        await queue.put("job", n=1)
        held = AsyncExitStack()
        await held.enter_async_context(queue.take())
        await clock.advance(20)
        assert (await queue.describe()).in_flight == 1
        await clock.advance(11)
        assert (await queue.get(timeout_s=0)).redelivered
        with pytest.raises(MessageNotHeld):
            await held.aclose()

    with_clock(test)


def test_a_delayed_message_is_delivered_when_its_time_has_come() -> None:
    async def test(clock: VirtualClock, bus: Bus) -> None:
        queue = await bus.create_queue("jobs")
        await queue.put("job", n=1, delay_s=3_600)
        await clock.advance(3_000)
        with pytest.raises(QueueEmpty):
            await queue.get(timeout_s=0)
        await clock.advance(601)
        assert (await queue.get(timeout_s=0))["n"] == 1

    with_clock(test)


def test_a_worker_tries_again_after_the_pauses_of_its_queue() -> None:
    async def test(clock: VirtualClock, bus: Bus) -> None:
        queue = await bus.create_queue("jobs", retry_s=[60, 600])
        await queue.put("job")
        tries: list[datetime] = []

        async def fail_twice(_message: Message) -> None:
            tries.append(clock.now)
            if len(tries) < 3:
                raise RuntimeError("again")

        stop = asyncio.Event()
        working = asyncio.create_task(queue.work(fail_twice, stop=stop))
        await clock.advance(2_000)
        stop.set()
        await clock.run(working)
        first, second, third = tries
        assert timedelta(seconds=30) < second - first < timedelta(seconds=300) < third - second

    with_clock(test)


def test_a_lease_ends_when_it_is_not_renewed() -> None:
    async def test(clock: VirtualClock, bus: Bus) -> None:
        space = await bus.space("board")
        await space.write(("note",), lease_s=600)
        await clock.advance(500)
        assert await space.count() == 1
        await clock.advance(200)
        assert await space.count() == 0

    with_clock(test)


def test_a_call_whose_time_is_over_raises_without_waiting() -> None:
    async def test(clock: VirtualClock, bus: Bus) -> None:
        queue = await bus.create_queue("jobs")
        with pytest.raises(QueueEmpty):
            await clock.run(queue.get(timeout_s=3_600))
        with pytest.raises(NoAnswer):
            await clock.run(bus.request("div", timeout_s=60))

    with_clock(test)


def test_a_client_stays_connected_through_a_long_time() -> None:
    async def test(clock: VirtualClock, bus: Bus) -> None:
        async with bus.subscribe() as events:
            await clock.advance(600)
            assert bus.is_connected
            await bus.publish("t", n=1)
            assert (await anext(events))["n"] == 1

    with_clock(test)


def test_what_must_be_stored_is_when_the_clock_has_been_put_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = threading.Event()
    commit = MemoryStore.commit

    def commit_when_looked_at(store: MemoryStore, operations: list[Operation]) -> None:
        looked.wait()
        commit(store, operations)

    async def publish_later(bus: Bus) -> None:
        await asyncio.sleep(10)
        await bus.publish("t", delivery="persistent")

    async def test(clock: VirtualClock, bus: Bus) -> None:
        monkeypatch.setattr(MemoryStore, "commit", commit_when_looked_at)
        monkeypatch.setattr("tidings.testing.clock.time.sleep", lambda _seconds: looked.set())
        publishing = asyncio.create_task(publish_later(bus))
        await clock.advance(11)
        was_done = publishing.done()
        looked.set()
        await publishing
        assert was_done

    with_clock(test)


def test_the_date_goes_with_the_clock_and_stamps_what_arrives() -> None:
    async def test(clock: VirtualClock, bus: Bus) -> None:
        queue = await bus.create_queue("jobs")
        before = clock.now
        await clock.advance(3_600)
        await queue.put("job")
        received = (await queue.read()).received
        assert received is not None
        assert received >= before + timedelta(hours=1)

    with_clock(test)


def test_run_gives_up_on_what_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.testing.clock.RUN_S_MAX", 5.0)

    async def test(clock: VirtualClock, bus: Bus) -> None:
        with pytest.raises(NoAnswer, match="not done within 5 virtual seconds"):
            await clock.run(asyncio.Event().wait())

    with_clock(test)


def test_a_program_that_is_always_busy_does_not_stop_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.testing.clock.TURNS_MAX", 10)

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    async def test(clock: VirtualClock, _bus: Bus) -> None:
        spinning = asyncio.create_task(spin())
        await clock.advance(3)
        spinning.cancel()

    with_clock(test)


def test_a_blocking_bus_goes_by_it_too() -> None:
    clock = VirtualClock()
    with tidings.blocking.Bus(clock.open()) as bus:
        queue = bus.create_queue("jobs", expiry=True)
        queue.put("job", ttl_s=60)
        clock.advance_blocking(61)
        assert queue.describe().messages == 0


def test_the_loop_has_its_own_time_again_when_the_bus_is_closed() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        own = loop.time
        clock = VirtualClock()
        async with clock.open():
            assert VirtualClock.running() is clock
            await clock.advance(1_000)
        assert VirtualClock.running() is None
        assert loop.time == own

    asyncio.run(work())


def test_a_clock_without_a_bus_says_what_is_missing() -> None:
    with pytest.raises(UserError, match="enter a bus that its open"):
        asyncio.run(VirtualClock().advance(1))


def test_time_does_not_go_back() -> None:
    async def test(clock: VirtualClock, _bus: Bus) -> None:
        for seconds in (-1.0, float("nan")):
            with pytest.raises(UserError, match="forward only"):
                await clock.advance(seconds)

    with_clock(test)


def test_two_clocks_can_not_have_one_loop() -> None:
    async def test(_clock: VirtualClock, _bus: Bus) -> None:
        with pytest.raises(UserError, match="a loop to one clock"):
            async with VirtualClock().open():
                pass

    with_clock(test)


def test_a_loop_that_is_not_asyncios_is_refused() -> None:
    async def work() -> None:
        with pytest.raises(UserError, match="asyncio's own loops"):
            async with VirtualClock().open():
                pass

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work())

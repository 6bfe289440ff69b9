"""Subscriptions as an application sees them: blocks, iterators, acknowledgements, gaps, callbacks."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

import tidings
from client.nodes import node, proxy_of, run
from tidings import Event, Filter
from tidings.client import Subscription
from tidings.client.subscription import NOTED_LENGTH_MAX
from tidings.errors import Disconnected, EventError, FilterError, MissingExtra, Refused, UserError
from tidings.filters import Converter, Taxonomy


async def numbers(events: Subscription, count: int) -> list[int]:
    """The attribute n of the next so many events."""
    return [(await anext(events))["n"] for _ in range(count)]


def reliable(*ns: int) -> list[Event]:
    return [Event("t", n=n, delivery="reliable") for n in ns]


def test_nothing_that_comes_after_the_block_has_begun_is_lost() -> None:
    async def work() -> None:
        async with tidings.open() as bus, bus.subscribe("n >= 0") as events:
            await bus.publish_all([Event("t", n=n) for n in range(10_000)])
            assert await numbers(events, 10_000) == list(range(10_000))

    run(work())


def test_a_filter_may_be_given_as_one() -> None:
    async def work() -> None:
        async with tidings.open() as bus, bus.subscribe(Filter("n > :n", n=1)) as events:
            await bus.publish_all([Event("t", n=n) for n in range(3)])
            assert await numbers(events, 1) == [2]

    run(work())


def test_a_mistake_in_a_filter_is_told_with_its_place() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            with pytest.raises(FilterError) as caught:
                await bus.subscribe("value >").__aenter__()
            assert (caught.value.line, caught.value.column) == (1, 8)

    run(work())


def test_a_block_that_has_ended_leaves_nothing_at_the_node() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            async with bus.subscribe() as events:
                pass
            assert (await bus.status())["subscriptions"] == 0
            with pytest.raises(StopAsyncIteration):
                await anext(events)
            with pytest.raises(UserError, match="once"):
                await events.__aenter__()

    run(work())


def test_others_on_the_loop_have_their_turn_while_events_are_there() -> None:
    async def work() -> None:
        async with tidings.open() as bus, bus.subscribe(on_slow="block") as events:
            await bus.publish_all([Event("t", n=n) for n in range(2_000)])
            turns = 0

            async def other() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            await numbers(events, 1)
            task = asyncio.create_task(other())
            await numbers(events, 1_900)
            assert turns >= 3
            task.cancel()

    run(work())


def test_events_can_be_taken_many_at_a_time() -> None:
    async def work() -> None:
        async with tidings.open() as bus, bus.subscribe() as events:
            await bus.publish_all([Event("t", n=n) for n in range(1_000)])
            taken: list[Event] = []
            while len(taken) < 1_000:
                taken += await events.take()
            assert [event["n"] for event in taken] == list(range(1_000))

    run(work())


def test_a_subscription_without_its_block_says_what_to_write() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            with pytest.raises(UserError, match=r"write `async with bus\.subscribe"):
                async for _ in bus.subscribe():
                    pass
            with pytest.raises(UserError, match=r"write `async with bus\.subscribe"):
                await bus.subscribe().take()
            with pytest.raises(UserError, match=r"write `async with bus\.advertise"):
                async for _ in bus.advertise("type = 't'"):
                    pass
            with pytest.raises(UserError, match=r"write `async with bus\.advertise"):
                await bus.advertise("type = 't'").wait_wanted()
            with pytest.raises(UserError, match="begins with its block"):
                await anext((await bus.space("board")).watch())

    run(work())


def test_two_tasks_do_not_share_an_iterator() -> None:
    async def work() -> None:
        async with tidings.open() as bus, bus.subscribe() as events:
            first = asyncio.create_task(events.take())
            await asyncio.sleep(0)
            with pytest.raises(UserError, match="two tasks"):
                await events.take()
            await bus.publish("t")
            await first

    run(work())


def test_a_wait_that_was_cancelled_loses_no_event() -> None:
    async def work() -> None:
        async with tidings.open() as bus, bus.subscribe() as events:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await anext(events)
            await bus.publish("t", n=1)
            assert await numbers(events, 1) == [1]

    run(work())


# -- which events


def test_history_comes_before_what_is_new() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            await bus.publish_all([Event("t", n=n, delivery="persistent") for n in range(5)])
            async with bus.subscribe(since=3) as events:
                await bus.publish("t", n=5)
                assert (await anext(events))["n"] == 2
                assert events.position == 3
                assert await numbers(events, 3) == [3, 4, 5]
                assert events.position is None

    run(work())


def test_history_can_begin_at_a_time() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            await bus.publish_all([Event("t", n=n, delivery="persistent") for n in range(3)])
            async with bus.subscribe(since=datetime(2000, 1, 1, tzinfo=UTC)) as events:
                assert await numbers(events, 3) == [0, 1, 2]

    run(work())


def test_the_last_value_of_each_thing_comes_first() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            for n, subject in enumerate("abab"):
                await bus.publish("t", n=n, subject=subject)
            await bus.status()
            async with bus.subscribe(last=True) as events:
                assert await numbers(events, 2) == [2, 3]

    run(work())


def test_what_a_slow_client_has_lost_is_told() -> None:
    async def work() -> None:
        async with tidings.open() as bus, bus.subscribe(prefetch=1) as events:
            await bus.publish_all([Event("t", n=n) for n in range(20_000)])
            await bus.publish("t", n=20_000, delivery="reliable")
            taken = [await anext(events)]
            while taken[-1]["n"] != 20_000:
                taken.append(await anext(events))
            assert len(taken) + events.dropped == 20_001
            assert events.gaps[-1].reason == "slow"

    run(work())


def test_a_slow_client_can_have_the_newest_of_each_thing() -> None:
    async def work() -> None:
        async with (
            tidings.open() as bus,
            bus.subscribe(prefetch=1, on_slow="latest", slow_key="thing") as events,
        ):
            await bus.publish_all([Event("t", n=n, thing="ab"[n % 2]) for n in range(100)])
            await bus.publish("t", n=100, thing="c", delivery="reliable")
            taken = await numbers(events, 1)
            while taken[-1] != 100:
                taken += await numbers(events, 1)
            assert taken[-3:] == [98, 99, 100]
            assert len(taken) < 10

    run(work())


# -- durable


def test_a_durable_subscription_goes_on_after_the_block(tmp_path: Path) -> None:
    async def work() -> None:
        async with node(tmp_path) as address, tidings.connect(address) as bus:
            async with bus.subscribe(durable="d") as events:
                await bus.publish_all(reliable(1, 2, 3))
                assert await numbers(events, 2) == [1, 2]
            await bus.publish_all(reliable(4))
            async with bus.subscribe(durable="d") as events:
                assert await numbers(events, 1) == [3]
                assert events.redelivered
                assert await numbers(events, 1) == [4]
            async with bus.subscribe(durable="d") as events:
                await bus.publish_all(reliable(5))
                assert await numbers(events, 1) == [5]
                assert not events.redelivered

    run(work())


def test_the_newest_can_come_first(tmp_path: Path) -> None:
    async def work() -> None:
        async with tidings.open(tmp_path) as bus:
            async with bus.subscribe(durable="d", order="newest"):
                pass
            await bus.publish_all(reliable(1, 2, 3))
            async with bus.subscribe(durable="d", order="newest") as events:
                assert await numbers(events, 3) == [3, 2, 1]
                assert not events.redelivered
            async with bus.subscribe(durable="d", order="newest") as events:
                await bus.publish_all(reliable(4))
                assert await numbers(events, 1) == [4]
            with pytest.raises(Refused, match="exists with another order"):
                await bus.subscribe(durable="d").__aenter__()

    run(work())


def test_an_event_that_was_not_dealt_with_comes_again(tmp_path: Path) -> None:
    async def fail(bus: tidings.client.Bus) -> None:
        async with bus.subscribe(durable="d") as events:
            await bus.publish_all(reliable(1, 2))
            assert await numbers(events, 2) == [1, 2]
            raise ZeroDivisionError

    async def work() -> None:
        async with node(tmp_path) as address, tidings.connect(address) as bus:
            with pytest.raises(ZeroDivisionError):
                await fail(bus)
            async with bus.subscribe(durable="d") as events:
                assert await numbers(events, 1) == [2]
                assert events.redelivered

    run(work())


def test_events_can_be_acknowledged_by_hand(tmp_path: Path) -> None:
    async def work() -> None:
        async with node(tmp_path) as address, tidings.connect(address) as bus:
            async with bus.subscribe(durable="d", acknowledge="client", prefetch=2) as events:
                await bus.publish_all(reliable(1, 2, 3, 4))
                taken = [await anext(events), await anext(events)]
                await events.acknowledge(taken[1])  # and the one before it
                await events.acknowledge(taken[0])
                assert await numbers(events, 2) == [3, 4]
            async with bus.subscribe(durable="d") as events:
                assert await numbers(events, 2) == [3, 4]
                with pytest.raises(UserError, match="needs a durable subscription"):
                    await events.acknowledge(taken[0])

    run(work())


def test_an_ended_durable_subscription_ends_the_iteration_and_starts_anew(tmp_path: Path) -> None:
    async def work() -> None:
        async with node(tmp_path) as address, tidings.connect(address) as bus:
            async with bus.subscribe(durable="d") as events:
                await bus.unsubscribe("d")
                assert [event async for event in events] == []
            await bus.publish_all(reliable(1))
            async with bus.subscribe(durable="d") as events:
                await bus.publish_all(reliable(2))
                assert await numbers(events, 1) == [2]

    run(work())


def test_another_client_of_the_same_name_takes_over(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            node(tmp_path) as address,
            tidings.connect(address) as bus,
            bus.subscribe(durable="d") as events,
            tidings.connect(address) as other,
            other.subscribe(durable="d"),
        ):
            with pytest.raises(Refused, match="taken over"):
                await anext(events)

    run(work())


def test_no_event_is_lost_or_doubled_by_cuts(tmp_path: Path) -> None:
    async def work() -> None:
        proxy = proxy_of(tmp_path)
        async with (
            node(tmp_path) as address,
            proxy,
            tidings.connect(address) as publisher,
            tidings.connect(proxy.address, random=lambda: 0.0) as bus,
            bus.subscribe(durable="d", prefetch=10) as events,
        ):
            taken = []
            for n in range(100):
                await publisher.publish("t", n=n, delivery="reliable")
                taken += await numbers(events, 1)
                if n % 7 == 0:
                    proxy.reset()
            assert taken == list(range(100))

    run(work())


def test_closing_the_bus_ends_the_iteration() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            events = await bus.subscribe().__aenter__()
        with pytest.raises(Disconnected):
            await anext(events)

    run(work())


# -- callbacks


@pytest.mark.parametrize("is_async", [False, True])
def test_a_callback_is_called_with_each_event(is_async: bool) -> None:
    async def work() -> None:
        heard: list[int] = []
        done = asyncio.Event()

        def plain(event: Event) -> None:
            heard.append(event["n"])
            if event["n"] == 9:
                done.set()

        async def waiting(event: Event) -> None:
            await asyncio.sleep(0)
            plain(event)

        async with tidings.open() as bus, bus.listen("n >= 0", waiting if is_async else plain):
            await bus.publish_all([Event("t", n=n) for n in range(10)])
            await done.wait()
        assert heard == list(range(10))

    run(work())


def test_what_a_callback_raises_ends_the_listening() -> None:
    def fail(event: Event) -> None:
        raise ZeroDivisionError

    async def listen(bus: tidings.client.Bus) -> None:
        async with bus.listen("", fail) as listener:
            await bus.publish("t")
            with pytest.raises(ZeroDivisionError):
                await listener.wait()

    async def work() -> None:
        async with tidings.open() as bus:
            with pytest.raises(ZeroDivisionError):
                await listen(bus)
            assert (await bus.status())["subscriptions"] == 0

    run(work())


def test_an_event_whose_callback_was_cut_short_comes_again(tmp_path: Path) -> None:
    async def work() -> None:
        begun = asyncio.Event()

        async def hang(event: Event) -> None:
            if event["n"] == 2:
                begun.set()
                await asyncio.Event().wait()

        async with node(tmp_path) as address, tidings.connect(address) as bus:
            async with bus.listen("", hang, durable="d"):
                await bus.publish_all(reliable(1, 2))
                await begun.wait()
            async with bus.subscribe(durable="d") as events:
                assert await numbers(events, 1) == [2]

    run(work())


def test_a_time_without_a_zone_is_refused_wherever_a_call_takes_one() -> None:
    naive = datetime(2026, 1, 1)  # noqa: DTZ001 - without a zone on purpose

    async def work() -> None:
        async with tidings.open() as bus:
            with pytest.raises(EventError, match="since: 2026-01-01 00:00:00 has no time zone; use "):
                bus.subscribe(since=naive)
            with pytest.raises(EventError, match="time: 2026-01-01 00:00:00 has no time zone; use "):
                await bus.log.position_at(naive)

    run(work())


def notes_of(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(one.levelname, one.getMessage()) for one in caplog.records if one.name == "tidings.notes"]


@pytest.mark.parametrize("wanted", ["n BETWEEN 5 AND 1", Filter("n BETWEEN 5 AND 1")])
def test_a_subscription_logs_the_notes_on_its_filter_once(
    wanted: str | Filter, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with tidings.open() as bus, bus.subscribe(wanted) as events:
            await events.leave()

    run(work())
    said = "filter: n BETWEEN 5 AND 1: 5 is greater than 1; write BETWEEN 1 AND 5"
    assert notes_of(caplog) == [("WARNING", said)]


def test_a_watch_and_a_loop_over_messages_log_the_notes_on_their_filters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            queue = await bus.create_queue("q")
            async with queue.watch('color = "blue"'):
                pass
            queue.messages({"priority": 11})

    run(work())
    assert [said.split(":")[1].strip() for _, said in notes_of(caplog)] == ['color = "blue"', "priority = 11"]


def test_a_very_long_filter_gets_no_notes(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            bus.subscribe(f"n BETWEEN 5 AND 1 OR m = '{'x' * NOTED_LENGTH_MAX}'")

    run(work())
    assert notes_of(caplog) == []


def test_a_filter_that_only_the_node_can_read_is_left_to_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_self: Filter, _text: str) -> None:
        raise MissingExtra("MATCHES", "node")

    async def work() -> None:
        async with tidings.open() as bus:
            with monkeypatch.context() as patch:
                patch.setattr(Filter, "__init__", refuse)
                subscription = bus.subscribe("n = 1")
            async with subscription as events:
                await bus.publish("t", n=1)
                assert await numbers(events, 1) == [1]

    run(work())
    assert notes_of(caplog) == []


def test_values_are_converted_where_they_are_read() -> None:
    async def work() -> None:
        dusty = Filter("value > 50 'µg/m³'", taxonomy=Taxonomy())
        async with tidings.open() as bus, bus.subscribe(dusty, convert={"value": "µg/m³"}) as events:
            await bus.publish("air", value=0.05, unit="mg/m³")
            await bus.publish("air", value=0.06, unit="mg/m³")
            await bus.publish("air", value=51, unit="ug/m3")
            first, second = await anext(events), await anext(events)
            assert (first["value"], first["unit"], first["original.value"]) == (60.0, "µg/m³", 0.06)
            assert (second["value"], second["original.unit"]) == (51.0, "ug/m3")
            assert first.id != second.id

    run(work())


def test_a_converted_event_is_acknowledged_as_any_other() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            convert = Converter({"value": "mcg"}, Taxonomy({"units": {"mcg": "µg"}}))
            options = {"durable": "mine", "acknowledge": "client", "convert": convert}
            async with bus.subscribe("type = 't'", **options) as events:  # type: ignore[arg-type]
                for value in (1, 2):
                    await bus.publish("t", value=value, unit="mg", delivery="reliable")
                first = await anext(events)
                assert (first["value"], first["unit"]) == (1000.0, "mcg")
                await events.acknowledge(first)
            async with bus.subscribe("type = 't'", durable="mine") as events:
                assert (await anext(events))["value"] == 2

    run(work())


def test_a_node_refuses_a_text_with_a_unit() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            with pytest.raises(FilterError, match="line 1, column 11: a unit needs a taxonomy"):
                await bus.subscribe("value > 5 'm'").__aenter__()

    run(work())

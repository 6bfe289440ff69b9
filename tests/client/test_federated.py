"""Spaces of several nodes that are used as one, while these are connected."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from effort import often

import tidings
from client.neighbours import home_at, neighbours, node_at, wait_peer
from client.nodes import run
from tidings.client import Bus
from tidings.client.federated import Engagement
from tidings.client.space import Space
from tidings.client.transaction import Transaction
from tidings.errors import FilterError, QueueEmpty, QueueNotFound
from tidings.queues.description import Description

Body = Callable[[Bus, Bus, Bus], Awaitable[None]]


def among_three(body: Body) -> None:
    """Run a test with a bus at `home`, and at its peers `kitchen` and `garage`."""

    async def within() -> None:
        with tempfile.TemporaryDirectory() as place:
            async with neighbours(Path(place)) as buses:
                await body(*buses)

    run(within())


async def own_space(bus: Bus) -> Space:
    """The space of a node itself; without `federated` it would be that of a peer which has one already."""
    return (await bus.space("trip", federated=True)).own


def test_entries_of_all_connected_nodes_are_read_taken_and_counted_as_of_one() -> None:
    async def body(home: Bus, kitchen: Bus, garage: Bus) -> None:
        trip = await home.space("trip", federated=True)
        there, beyond = await own_space(kitchen), await own_space(garage)
        await there.write(("seen", "heron"))
        await beyond.write(("seen", "otter"))
        await trip.write(("seen", "crow"))
        assert await trip.nodes() == ["garage", "kitchen"]
        assert await trip.count(("seen", str)) == 3
        assert sorted(await trip.scan()) == [("seen", "crow"), ("seen", "heron"), ("seen", "otter")]
        assert await trip.read(("seen", "otter"), timeout_s=0) == ("seen", "otter")
        assert await trip.take(("seen", "heron"), timeout_s=0) == ("seen", "heron")
        assert await there.scan() == []
        with pytest.raises(QueueEmpty):
            await trip.take(("seen", "heron"), timeout_s=0)
        assert (await trip.own.scan(), await beyond.scan()) == ([("seen", "crow")], [("seen", "otter")])

    among_three(body)


def test_a_take_that_waits_is_answered_by_whichever_node_has_the_entry_first() -> None:
    async def body(home: Bus, kitchen: Bus, garage: Bus) -> None:
        trip = await home.space("trip", federated=True)
        there, beyond = await own_space(kitchen), await own_space(garage)
        waiting = asyncio.create_task(trip.take(("answer", int)))
        await wait_readers(there)
        await beyond.write(("answer", 7))
        assert await waiting == ("answer", 7)
        assert await trip.count() == 0
        # Nobody waits there any more, who would take what comes later.
        await there.write(("answer", 8))
        assert await there.scan() == [("answer", 8)]

    among_three(body)


async def wait_readers(space: Space) -> None:
    while not (await space.queue.describe()).waiting:
        await asyncio.sleep(0)


def test_of_several_entries_that_come_at_once_one_is_taken_and_the_others_stay_unopened() -> None:
    async def body(home: Bus, kitchen: Bus, garage: Bus) -> None:
        trip = await home.space("trip", federated=True)
        spaces = [trip.own, await own_space(kitchen), await own_space(garage)]
        for round in range(often(10)):
            waiting = asyncio.create_task(trip.take(("answer", int)))
            for space in spaces[1:]:
                await wait_readers(space)
            await asyncio.gather(*(space.write(("answer", round)) for space in spaces))
            assert await waiting == ("answer", round)
            while await trip.count() < len(spaces) - 1:
                await asyncio.sleep(0)  # what is given back is under way
            left = [await space.queue.get(timeout_s=0) for space in spaces if await space.count()]
            assert [message.deliveries for message in left] == [1, 1]

    among_three(body)


def test_spaces_that_the_last_call_has_found_are_asked_at_once() -> None:
    async def body(home: Bus, kitchen: Bus, _garage: Bus) -> None:
        trip = await home.space("trip", federated=True)
        await (await own_space(kitchen)).write(("seen", "heron"))
        assert await trip.read(("seen", str)) == ("seen", "heron")

        async def never(*_: object, **__: object) -> list[Description]:
            await asyncio.Event().wait()
            raise AssertionError

        trip._lookup = never
        assert await trip.read(("seen", str)) == ("seen", "heron")

    among_three(body)


def test_each_entry_is_taken_once_by_takers_at_all_nodes() -> None:
    takers, count = 10, often(100)

    async def body(home: Bus, kitchen: Bus, garage: Bus) -> None:
        trip = await home.space("trip", federated=True)
        spaces = [trip.own, await own_space(kitchen), await own_space(garage)]
        for number in range(count):
            await spaces[number % 3].write(("job", number))
        taken: Counter[int] = Counter()

        async def work() -> None:
            while True:
                try:
                    taken[(await trip.take(("job", int), timeout_s=0))[1]] += 1
                except QueueEmpty:
                    if sum(taken.values()) >= count:
                        return

        await asyncio.gather(*(work() for _ in range(takers)))
        assert taken == dict.fromkeys(range(count), 1)

    among_three(body)


def test_an_entry_for_a_node_that_is_away_is_misplaced_until_it_is_there() -> None:
    async def within() -> None:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            async with AsyncExitStack() as stack:
                home = await stack.enter_async_context(home_at(place))
                bus = await stack.enter_async_context(tidings.connect(home))
                trip = await bus.space("trip", federated=True)
                async with node_at(place, "kitchen") as kitchen, tidings.connect(kitchen) as there:
                    await own_space(there)
                    await wait_peer(bus, "kitchen")
                    await trip.write(("first",), to="kitchen")
                    assert await trip.read(("first",), timeout_s=0, at="kitchen") == ("first",)
                await wait_peer(bus, "kitchen", "away")
                await trip.write(("call", "ben"), to="kitchen")
                assert await trip.misplaced() == {"kitchen": [("call", "ben")]}
                assert await trip.misplaced(("other",)) == {}
                with pytest.raises(QueueEmpty):
                    await trip.take(("call", str), timeout_s=0)
                async with node_at(place, "kitchen") as kitchen, tidings.connect(kitchen) as there:
                    again = await own_space(there)
                    assert await again.take(("call", str)) == ("call", "ben")
                    while await trip.misplaced():
                        await asyncio.sleep(0)

    run(within())


def test_a_node_engages_and_disengages_while_a_call_waits() -> None:
    async def within() -> None:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            async with home_at(place) as home, tidings.connect(home) as bus:
                trip = await bus.space("trip", federated=True)
                changes = trip.engagements()
                waiting = asyncio.create_task(trip.take(("answer", int)))
                async with node_at(place, "garage") as garage, tidings.connect(garage) as there:
                    space = await own_space(there)
                    assert await anext(changes) == Engagement("garage", True)
                    await space.write(("answer", 7))
                    assert await waiting == ("answer", 7)
                assert await anext(changes) == Engagement("garage", False)
                assert await trip.nodes() == []

    run(within())


def test_all_entries_move_to_another_node_at_once_or_not_at_all() -> None:
    async def body(home: Bus, kitchen: Bus, _garage: Bus) -> None:
        trip = await home.space("trip", federated=True)
        there = await own_space(kitchen)
        for number in range(often(300)):
            await trip.write(("note", number))
        assert await trip.move("kitchen") == often(300)
        assert await trip.own.count() == 0
        while await there.count() < often(300):
            await asyncio.sleep(0)
        assert [entry[1] for entry in await there.scan()] == list(range(often(300)))

    among_three(body)


def test_a_watch_returns_what_is_written_at_any_node() -> None:
    async def body(home: Bus, kitchen: Bus, garage: Bus) -> None:
        trip = await home.space("trip", federated=True)
        there, beyond = await own_space(kitchen), await own_space(garage)
        async with trip.watch(("seen", str)) as entries:
            await trip.write(("seen", "crow"))
            await there.write(("seen", "heron"))
            await beyond.write(("heard", "owl"))
            await beyond.write(("seen", "otter"))
            assert {(await anext(entries))[1] for _ in range(3)} == {"crow", "heron", "otter"}

    among_three(body)


def test_a_reaction_holds_its_entry_and_what_it_does_takes_effect_at_once() -> None:
    async def within() -> None:
        async with tidings.open() as bus:
            board = await bus.space("board")
            done = asyncio.Event()

            async def react(entry: tuple[str, int], transaction: Transaction) -> None:
                with pytest.raises(QueueEmpty):
                    await board.take(("todo", int), timeout_s=0)  # others may read it, and not take it
                assert await board.read(("todo", int), timeout_s=0) == entry
                await board.write(("noted", entry[1]), transaction=transaction)
                assert await board.count(("noted", int)) == 0
                done.set()

            async with board.react(("todo", int), react):
                await board.write(("todo", 7))
                await done.wait()
                assert await board.take(("noted", int)) == ("noted", 7)
            assert await board.take(("todo", int), timeout_s=0) == ("todo", 7)

    run(within())


def test_a_reaction_that_fails_takes_back_what_it_did() -> None:
    async def within() -> None:
        async with tidings.open() as bus:
            board = await bus.space("board")
            failed: asyncio.Queue[Exception] = asyncio.Queue()

            async def react(_entry: object, transaction: Transaction) -> None:
                await board.write(("noted", 1), transaction=transaction)
                raise ValueError("it can't be noted")

            async with board.react(None, react, on_error=lambda _event, error: failed.put_nowait(error)):
                await board.write(("todo", 7))
                assert str(await failed.get()) == "it can't be noted"
            assert await board.scan() == [("todo", 7)]

    run(within())


def test_a_mistake_in_a_template_or_a_name_is_raised_at_once() -> None:
    async def body(home: Bus, _kitchen: Bus, _garage: Bus) -> None:
        trip = await home.space("trip", federated=True)
        with pytest.raises(FilterError):
            await trip.take("value >")
        with pytest.raises(QueueNotFound):
            await trip.write(("lost",), to="nowhere")
        with pytest.raises(QueueNotFound):
            await trip.read(("lost",), timeout_s=0, at="nowhere")

    among_three(body)


def test_a_watch_returns_what_is_written_at_a_node_that_has_engaged_since() -> None:
    async def within() -> None:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            async with home_at(place) as home, tidings.connect(home) as bus:
                trip = await bus.space("trip", federated=True)
                async with trip.watch(("seen", str)) as entries:
                    async with node_at(place, "garage") as garage, tidings.connect(garage) as there:
                        space = await own_space(there)
                        seen = asyncio.ensure_future(anext(entries))
                        while not seen.done():  # until it is watched, what is written there is not returned
                            await space.write(("seen", "otter"))
                            await asyncio.wait([seen], timeout=0.01)
                        assert await seen == ("seen", "otter")
                    await trip.write(("seen", "crow"))
                    while await anext(entries) != ("seen", "crow"):
                        pass

    run(within())


def test_a_call_goes_on_without_a_node_that_is_cut_off() -> None:
    async def within() -> None:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            async with home_at(place) as home, tidings.connect(home) as bus:
                trip = await bus.space("trip", federated=True)
                async with node_at(place, "garage") as garage, tidings.connect(garage) as there:
                    space = await own_space(there)
                    await wait_peer(bus, "garage")
                    waiting = asyncio.create_task(trip.take(("answer", int)))
                    await wait_readers(space)
                await wait_peer(bus, "garage", "away")
                await trip.write(("answer", 7))
                assert await waiting == ("answer", 7)

    run(within())

"""Real nodes with TLS: a publisher and a subscriber hop from one to the next under load."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from effort import ANSWER_S, IS_SOAK
from node.peers import run
from overlay.real import Line

import tidings
from tidings.client import Bus, Subscription
from tidings.errors import MoveRefused, NotAllowed
from tidings.event import Event

HOPS = ("c", "b", "a", "c")
PER_HOP = 2_000 if IS_SOAK else 200
WAITING = 100_000 if IS_SOAK else 3_000


def users(*names: str) -> dict[str, list[str]]:
    return {node: list(names) for node in "abc"}


async def values(events: Subscription, count: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(ANSWER_S):
        while len(found) < count:
            found += [event["x"] for event in await events.take()]
    return found


async def publish(bus: Bus, numbers: range) -> None:
    for number in numbers:
        await bus.publish("x", x=number, delivery="reliable")


def test_a_publisher_and_a_subscriber_hop_between_nodes_with_tls_under_load(tmp_path: Path) -> None:
    async def main() -> None:
        async with Line("a", "b", "c", home=tmp_path, users=users("p", "s")) as line:
            publisher, subscriber = await line.bus("a", "p"), await line.bus("a", "s")
            count = PER_HOP * len(HOPS)
            async with subscriber.subscribe("x > 0", durable="d") as stored, subscriber.subscribe() as live:
                await live.in_force()
                reading = asyncio.gather(values(stored, count), values(live, count))
                for place, to in enumerate(HOPS):
                    numbers = range(place * PER_HOP + 1, (place + 1) * PER_HOP + 1)
                    sending = asyncio.create_task(publish(publisher, numbers))
                    await subscriber.move(to)
                    if place % 2:
                        await publisher.move(to)
                    await sending
                for found in await reading:
                    assert found == list(range(1, count + 1))
                assert not live.gaps
                assert not stored.gaps
            assert len(line["c"].driver.broker.sessions) == 3  # both, and its neighbour

    run(main())


def test_a_durable_subscription_moves_with_all_that_waits(tmp_path: Path) -> None:
    async def main() -> None:
        async with Line("a", "b", "c", home=tmp_path, users=users("p", "s")) as line:
            publisher, subscriber = await line.bus("b", "p"), await line.bus("a", "s")
            async with subscriber.subscribe("x > 0", durable="d") as first:
                await first.in_force()
            async with asyncio.timeout(ANSWER_S):
                await publisher.publish_all(
                    [Event("x", {"x": number}, delivery="reliable") for number in range(1, WAITING + 1)],
                    timeout_s=ANSWER_S,
                )
            async with subscriber.subscribe("x > 0", durable="d") as events:
                assert (await anext(events))["x"] == 1
                await subscriber.move("c", timeout_s=ANSWER_S)
                await publisher.publish("x", x=WAITING + 1, delivery="reliable")
                found = await values(events, WAITING)
                assert found == list(range(2, WAITING + 2))
            durables = {one["name"]: one for one in line["a"].driver.broker.status()["durables"]}
            assert "d" not in durables

    run(main())


def test_a_user_whom_the_other_node_does_not_know_stays(tmp_path: Path) -> None:
    async def main() -> None:
        async with Line("a", "b", home=tmp_path, users={"a": ["s"]}) as line:
            bus = await line.bus("a", "s")
            async with bus.subscribe("x > 0", durable="d") as events:
                with pytest.raises(NotAllowed):
                    await bus.move("b")
                with pytest.raises(MoveRefused, match="no such node"):
                    await bus.move("nowhere")
                await publish(bus, range(1, 3))
                assert await values(events, 2) == [1, 2]

    run(main())


def test_a_blocking_client_moves() -> None:
    async def main() -> None:
        async with Line("a", "b") as line:

            def work() -> list[int]:
                with (
                    tidings.blocking.connect(line.address("a"), name="s") as bus,
                    bus.subscribe("x > 0", durable="d") as events,
                ):
                    bus.publish("x", x=1, delivery="reliable")
                    bus.move("b")
                    bus.publish("x", x=2, delivery="reliable")
                    return [next(events)["x"], next(events)["x"]]

            assert await asyncio.to_thread(work) == [1, 2]

    run(main())


def test_a_publisher_whose_node_is_gone_goes_on_and_all_comes_once_when_that_is_back(tmp_path: Path) -> None:
    settings = {"a": {"dir": str(tmp_path / "store")}}

    async def main() -> None:
        async with Line("a", "b", "c", home=tmp_path, users=users("p", "s"), settings=settings) as line:
            subscriber = await line.bus("c", "s")
            secrets = line.places["a"].client("p")
            async with (
                tidings.connect(line.address("a"), name="p", elsewhere_s=0.2, **secrets) as publisher,
                subscriber.subscribe("x > 0") as events,
            ):
                await events.in_force()
                await publish(publisher, range(1, 51))
                sending = asyncio.create_task(publish(publisher, range(51, 101)))
                await line["a"].close()
                async with asyncio.timeout(ANSWER_S):
                    await sending
                await line.start("a")  # it may have stored some, and not told any other node
                await publish(publisher, range(101, 111))
                assert sorted(await values(events, 110)) == list(range(1, 111))

    run(main())

"""The three kinds of delivery, to live and durable subscribers, when one of the two ends goes away."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from node.peers import Start, peer_of, run, running

from tidings import Event
from tidings.event import Delivery

KINDS: tuple[Delivery, ...] = ("transient", "reliable", "persistent")
each_kind = pytest.mark.parametrize("delivery", KINDS)
each_name = pytest.mark.parametrize("durable", [None, "mine"], ids=["live", "durable"])


def arrives(delivery: Delivery, durable: str | None) -> bool:
    """Whether an event is kept for a subscriber that could not have it."""
    return durable is not None and delivery != "transient"


async def publish(address: str, delivery: Delivery) -> None:
    async with peer_of(address) as writer:
        await writer.hello("writer")
        await writer.publish_accepted(Event("event", delivery=delivery))


async def received(address: str, **arguments: Any) -> list[str]:
    """Subscribe, and give the types of all that comes up to an event that is published then."""
    async with peer_of(address) as reader, peer_of(address) as writer:
        await reader.hello("reader", name="reader")
        await reader.subscribe(**arguments)
        await writer.hello("end")
        await writer.publish_accepted(Event("end", delivery="persistent"))
        types: list[str] = []
        while "end" not in types:
            types += [event.type for event in await reader.events(1)]
        return types


@each_kind
@each_name
def test_what_a_subscriber_gets_that_was_away(
    tmp_path: Path, delivery: Delivery, durable: str | None
) -> None:
    async def scenario() -> None:
        async with running(dir=str(tmp_path / "node")) as node:
            address = node.addresses[0]
            async with peer_of(address) as reader:
                await reader.hello("reader", name="reader")
                await reader.subscribe(durable=durable)
            await publish(address, delivery)
            expected = ["event", "end"] if arrives(delivery, durable) else ["end"]
            assert await received(address, durable=durable) == expected

    run(scenario())


@each_kind
@each_name
def test_what_a_subscriber_gets_from_a_node_that_was_killed_before_it_could_deliver(
    start: Start, tmp_path: Path, delivery: Delivery, durable: str | None
) -> None:
    flags = ("--port", "0", "--dir", str(tmp_path / "node"))
    first = start(*flags)

    async def before(address: str) -> None:
        async with peer_of(address) as reader:
            await reader.hello("reader", name="reader")
            await reader.subscribe(durable=durable, credit=0)
            await publish(address, delivery)

    async def after(address: str) -> None:
        expected = ["event", "end"] if arrives(delivery, durable) else ["end"]
        assert await received(address, durable=durable) == expected

    run(before(first.address()))
    first.stop(signal.SIGKILL)
    run(after(start(*flags).address()))


@each_kind
def test_what_can_be_read_again_by_whoever_asks_for_the_past(
    start: Start, tmp_path: Path, delivery: Delivery
) -> None:
    flags = ("--port", "0", "--dir", str(tmp_path / "node"))
    first = start(*flags)

    async def after(address: str) -> None:
        assert await received(address, since=1) == (["event", "end"] if delivery == "persistent" else ["end"])

    run(publish(first.address(), delivery))
    first.stop(signal.SIGKILL)
    run(after(start(*flags).address()))

"""A device that stores what is published at it until the node above has it: each event once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from node.secured import PASSWORD, TOKEN, Secured

import tidings
from client.nodes import node, run
from tidings import Event
from tidings.client import Bus
from tidings.client.runner import Runner
from tidings.errors import AddressError, FilterError, UserError
from tidings.node.config import NodeConfig
from tidings.node.server import Node
from tidings.peers.registry import Upstream
from tidings.protocol.access import Check, LoginCredentials, Principal, Rule
from tidings.transport.credentials import Credentials


async def until(is_so: Callable[[], Any]) -> None:
    """Wait for something that will be."""
    while not await is_so():
        await asyncio.sleep(0)


async def wait_sent(bus: Bus) -> None:
    """Wait until nothing waits for the node above."""

    async def is_sent() -> bool:
        return (await upstream(bus))["waiting"] == 0

    await until(is_sent)


async def upstream(bus: Bus) -> dict[str, Any]:
    found: dict[str, Any] = (await bus.status())["upstream"]
    return found


async def collect(address: str) -> None:
    """Have everything kept that is published at a node."""
    async with tidings.connect(address) as bus:
        await bus.create_queue("all", bind="")


async def collected(address: str) -> list[Any]:
    """What was, in order."""
    async with tidings.connect(address) as bus:
        return [message.event["n"] for message in await (await bus.queue("all")).get_all()]


def test_what_is_published_at_a_device_is_published_above_as_it_was(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            node(tmp_path) as address,
            tidings.connect(address) as above,
            above.subscribe() as events,
            tidings.open(tmp_path / "device", name="dev", upstream=address) as bus,
        ):
            sent = Event("air.pm10", {"n": 1}, subject="kitchen", body=b"raw")
            await bus.publish(sent)
            event = await anext(events)
            assert (event.type, event.source, event.time) == ("air.pm10", "dev", sent.time)
            assert (event["n"], event.subject, event.body) == (1, "kitchen", b"raw")

    run(work())


def test_what_is_published_while_the_node_above_is_away_arrives_in_order(tmp_path: Path) -> None:
    async def work() -> None:
        async with node(tmp_path) as address:
            await collect(address)
        async with tidings.open(tmp_path / "device", upstream=address) as bus:
            await bus.publish_all([Event("t", {"n": n}) for n in range(300)])

            async def is_told() -> bool:
                told = await upstream(bus)
                return told["waiting"] == 300 and not told["connected"] and told["error"]

            await until(is_told)
            async with node(tmp_path):
                await wait_sent(bus)
                told = await upstream(bus)
                assert told == {"queue": "", "peer": "upstream", "waiting": 0, "connected": True, "error": ""}
                assert await collected(address) == list(range(300))

    run(work())


def test_the_newest_first_if_that_is_wanted(tmp_path: Path) -> None:
    async def work() -> None:
        async with node(tmp_path) as address:
            await collect(address)
        async with tidings.open(tmp_path / "device", upstream=address, order="newest") as bus:
            await bus.publish_all([Event("t", {"n": n}) for n in range(100)])
            async with node(tmp_path):
                await wait_sent(bus)
                await bus.publish("t", n=100)
                await wait_sent(bus)
                assert await collected(address) == [*range(99, -1, -1), 100]

    run(work())


@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_each_event_arrives_once_though_both_are_started_anew_again_and_again(
    tmp_path: Path, order: Any
) -> None:
    async def work() -> None:
        async with node(tmp_path) as address:
            await collect(address)
        count = 0
        for turn in range(6):
            async with tidings.open(tmp_path / "device", upstream=address, order=order) as bus:
                if turn % 2:
                    async with node(tmp_path):
                        for _ in range(50):
                            await bus.publish("t", n=(count := count + 1))
                for _ in range(20):
                    await bus.publish("t", n=(count := count + 1))
        async with tidings.open(tmp_path / "device", upstream=address) as bus, node(tmp_path):
            await wait_sent(bus)
            arrived = await collected(address)
        assert sorted(arrived) == list(range(1, count + 1))
        if order == "oldest":
            assert arrived == sorted(arrived)

    run(work())


def test_only_what_matches_goes_there(tmp_path: Path) -> None:
    async def work() -> None:
        async with node(tmp_path) as address:
            await collect(address)
            async with tidings.open(tmp_path / "d", upstream=address, upstream_filter="n > 2") as bus:
                await bus.publish_all([Event("t", {"n": n}) for n in range(5)])
                await wait_sent(bus)
            async with tidings.open(tmp_path / "d", upstream=address, upstream_filter="n < 2") as bus:
                await bus.publish_all([Event("t", {"n": n}) for n in range(5)])
                await wait_sent(bus)
            assert await collected(address) == [3, 4, 0, 1]

    run(work())


def test_a_device_that_is_opened_without_it_sends_nothing_and_keeps_what_waited(tmp_path: Path) -> None:
    async def work() -> None:
        async with node(tmp_path) as address:
            await collect(address)
        async with tidings.open(tmp_path / "device", upstream=address) as bus:
            await bus.publish("t", n=1)
            await until_waiting(bus, 1)
        async with tidings.open(tmp_path / "device") as bus:
            await bus.publish("t", n=2)
            assert (await upstream(bus))["waiting"] == 1
        async with node(tmp_path), tidings.open(tmp_path / "device", upstream=address) as bus:
            await wait_sent(bus)
            assert await collected(address) == [1]

    run(work())


def test_what_waits_may_be_limited_and_the_rest_is_dead_letters(tmp_path: Path) -> None:
    async def work() -> None:
        async with tidings.open(tmp_path / "device") as bus:
            await bus.create_queue("to:@upstream", expiry=True, max_messages=2)
        nowhere = f"tidings+unix://{tmp_path / 'socket'}"
        async with tidings.open(tmp_path / "device", upstream=nowhere) as bus:
            await bus.publish_all([Event("t", {"n": n}, delivery="reliable") for n in range(3)])
            assert (await upstream(bus))["waiting"] == 2
            letters = await (await bus.queue("tidings.dead")).get_all()
            assert [letter.event["n"] for letter in letters] == [2]

    run(work())


async def until_waiting(bus: Bus, count: int) -> None:
    async def is_so() -> bool:
        return (await upstream(bus))["waiting"] == count

    await until(is_so)


def test_a_device_that_keeps_nothing_sends_what_it_can(tmp_path: Path) -> None:
    async def work() -> None:
        async with node(tmp_path) as address, tidings.open(upstream=address) as bus:
            await collect(address)
            await bus.publish_all([Event("t", {"n": n}) for n in range(50)])
            await wait_sent(bus)
            assert await collected(address) == list(range(50))

    run(work())


def test_a_device_that_keeps_nothing_sends_what_is_left_when_it_ends(tmp_path: Path) -> None:
    async def work() -> None:
        async with node(tmp_path) as address:
            await collect(address)
            async with tidings.open(upstream=address) as bus:
                await bus.publish_all([Event("t", {"n": n}) for n in range(50)])
            assert await collected(address) == list(range(50))

    run(work())


def test_what_is_published_above_does_not_come_down_nor_back(tmp_path: Path) -> None:
    """Two nodes that are each other's upstream: an event is published once at each."""

    async def work() -> None:
        homes = [tmp_path / "a", tmp_path / "b"]
        addresses = [f"tidings+unix://{home}.sock" for home in homes]
        nodes = [
            Node(
                NodeConfig(dir=str(home), unix=f"{home}.sock", compiled=False),
                upstream=Upstream(other, Credentials()),
            )
            for home, other in zip(homes, reversed(addresses), strict=True)
        ]
        for one in nodes:
            await one.start()
        try:
            for address in addresses:
                await collect(address)
            async with tidings.connect(addresses[0]) as a, tidings.connect(addresses[1]) as b:

                async def are_connected() -> bool:
                    return all([(await upstream(bus))["connected"] for bus in (a, b)])

                await until(are_connected)
                for n in range(20):
                    await a.publish("t", n=n)
                await wait_sent(a)
                await wait_sent(b)
            assert await collected(addresses[0]) == list(range(20))
            assert await collected(addresses[1]) == list(range(20))
        finally:
            for one in nodes:
                await one.close()

    run(work())


def test_what_lives_for_a_time_goes_on_with_what_is_left_of_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            node(tmp_path) as address,
            tidings.connect(address) as above,
            above.subscribe() as events,
            tidings.open(tmp_path / "device", upstream=address) as bus,
        ):
            await bus.publish(Event("t", {"n": 1}, ttl_s=100.0))
            event = await anext(events)
            assert event.ttl_s is not None
            assert 0 < event.ttl_s < 100.0

    run(work())


class Gate:
    """Lets everyone in who may publish some things only."""

    principal = Principal("dev", "token", False, (Rule("publish", tidings.Filter("n < 2")),))

    def admit(self, claim: LoginCredentials, _now: float, _wall: float) -> Principal | Check:
        return Principal() if claim.caller.host is None else self.principal

    def conclude(self, _check: Check, _passed: bool, _now: float) -> Principal:
        return self.principal

    def renew(self, principal: Principal) -> Principal | None:
        return principal


def test_what_the_node_above_does_not_allow_is_a_dead_letter_here(tmp_path: Path) -> None:
    async def work() -> None:
        above = Node(NodeConfig(port=0, compiled=False))
        await above.start()
        above.driver.broker.authenticator = Gate()
        try:
            async with tidings.open(tmp_path / "device", upstream=above.addresses[0]) as bus:
                await bus.publish_all([Event("t", {"n": n}) for n in range(4)])
                await wait_sent(bus)
                letters = await (await bus.queue("tidings.dead")).get_all()
                assert [letter.event["n"] for letter in letters] == [2, 3]
                assert letters[0].event["dead.reason"] == "'dev' may not publish this"
        finally:
            await above.close()

    run(work())


def test_a_device_says_who_it_is_with_a_token_over_tls(tmp_path: Path) -> None:
    async def work() -> None:
        secured = Secured(tmp_path)
        above = Node(NodeConfig(security=str(secured.path), port=0, compiled=False))
        await above.start()
        address, trusted = above.addresses[0], {"ca": secured.ca}
        try:
            async with (
                tidings.connect(address, user="ada", password=PASSWORD, **trusted) as far,
                far.subscribe() as events,
                tidings.open(name="sensor", upstream=address, token=TOKEN, **trusted) as bus,
            ):
                await bus.publish("t", n=1)
                assert (await anext(events)).source == "device/sensor"
        finally:
            await above.close()

    run(work())


def test_a_device_that_is_not_let_in_says_why_and_tries_on(tmp_path: Path) -> None:
    async def work() -> None:
        secured = Secured(tmp_path)
        above = Node(NodeConfig(security=str(secured.path), port=0, compiled=False))
        await above.start()
        token = tmp_path / "token"
        token.write_text("tdg_" + 43 * "x")
        try:
            async with tidings.open(upstream=above.addresses[0], token=token, ca=secured.ca) as bus:
                await bus.publish("t", n=1)

                async def is_denied() -> bool:
                    return (await upstream(bus))["error"] == "user or secret is wrong"

                await until(is_denied)
                token.write_text(TOKEN)
                await wait_sent(bus)
        finally:
            await above.close()

    run(work())


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"upstream": "tidings://127.0.0.1:1", "token": "tdg_x"}, UserError),
        ({"upstream": "http://somewhere"}, AddressError),
        ({"upstream": "tidings://127.0.0.1:1", "upstream_filter": "n >"}, FilterError),
        ({"upstream": "tidings://127.0.0.1:1", "order": "random"}, UserError),
        ({"upstream_filter": "n > 1"}, UserError),
        ({"token": "tdg_x"}, UserError),
    ],
)
def test_what_can_not_be_is_said_at_once(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        tidings.open(**options)


def test_without_await_too(tmp_path: Path) -> None:
    async def above() -> Node:
        started = Node(NodeConfig(unix=str(tmp_path / "socket"), compiled=False))
        await started.start()
        return started

    runner = Runner()
    started = runner.run(above())
    address = f"tidings+unix://{tmp_path / 'socket'}"
    try:
        with (
            tidings.blocking.connect(address) as far,
            far.subscribe() as events,
            tidings.blocking.open(tmp_path / "device", upstream=address) as bus,
        ):
            bus.publish("t", n=1)
            assert next(iter(events))["n"] == 1
    finally:
        runner.run(started.close())
        runner.stop()

"""Real nodes over sockets: what is published at one of them reaches those who want it at others."""

from __future__ import annotations

from pathlib import Path

import pytest
from node.peers import run
from overlay.real import Line

from tidings import Event, Typed
from tidings.event import Delivery


class Reading(Typed, type="air.pm10"):
    value: float


def test_two_nodes_without_security_are_one_bus() -> None:
    async def work() -> None:
        async with Line("a", "b") as line:
            ann, bob = await line.bus("a", "ann"), await line.bus("b", "bob")
            async with ann.subscribe("n > 5") as here, bob.subscribe("n > 7") as there:
                await line.wait_wanted("n > 5", at="b", of="a")
                await line.wait_wanted("n > 7", at="a", of="b")
                await bob.publish("t", n=3)
                await bob.publish("t", n=6)
                await ann.publish("t", n=8)
                assert {(await anext(here)).source, (await anext(here)).source} == {"ann", "bob@b"}
                assert (await anext(there))["n"] == 8
            assert line.count("b", "relayed") == line.count("a", "relayed") == 1

    run(work())


@pytest.mark.parametrize("delivery", ["transient", "reliable", "persistent"])
def test_events_cross_three_nodes_with_tls_in_order(tmp_path: Path, delivery: Delivery) -> None:
    async def work() -> None:
        async with Line("a", "b", "c", home=tmp_path, users={"a": ["ann"], "c": ["cleo"]}) as line:
            ann, cleo = await line.bus("a", "ann"), await line.bus("c", "cleo")
            async with cleo.subscribe("n > 0") as events:
                await line.wait_wanted("n > 0", at="a", of="b")
                await ann.publish_all([Event("t", {"n": n}, delivery=delivery) for n in range(100)])
                got = [await anext(events) for _ in range(99)]
            assert [event["n"] for event in got] == list(range(1, 100))
            assert {(event.source, event.delivery) for event in got} == {("ann@a", delivery)}
            assert line.count("a", "relayed") == line.count("b", "relayed") == 99

    run(work())


def test_events_go_both_ways_over_one_connection(tmp_path: Path) -> None:
    async def work() -> None:
        async with Line("a", "b", "c", home=tmp_path, users={"a": ["ann"], "c": ["cleo"]}) as line:
            ann, cleo = await line.bus("a", "ann"), await line.bus("c", "cleo")
            async with ann.subscribe("type = 'pong'") as pongs, cleo.subscribe("type = 'ping'") as pings:
                await line.wait_wanted("type = 'ping'", at="a", of="b")
                await line.wait_wanted("type = 'pong'", at="c", of="b")
                for n in range(20):
                    await ann.publish("ping", n=n)
                    assert (await anext(pings))["n"] == n
                    await cleo.publish("pong", n=n, delivery="reliable")
                    assert (await anext(pongs))["n"] == n
            assert [len(line[name].driver.broker.sessions) for name in "abc"] == [2, 2, 2]

    run(work())


def test_classes_of_events_and_durable_subscriptions_cross_nodes(tmp_path: Path) -> None:
    async def work() -> None:
        async with Line("a", "b", "c", home=tmp_path, users={"a": ["ann"], "c": ["cleo"]}) as line:
            ann, cleo = await line.bus("a", "ann"), await line.bus("c", "cleo")
            async with cleo.subscribe(Reading, where="value > 40", durable="high") as readings:
                await line.wait_wanted("type = 'air.pm10' AND value > 40", at="a", of="b")
                await ann.publish(Event("air.pm10", {"value": 41.0}, delivery="reliable"))
                assert await anext(readings) == Reading(41.0)
            for value in (39.0, 42.0, 43.0):
                await ann.publish(Event("air.pm10", {"value": value}, delivery="reliable"))
            async with cleo.subscribe(Reading, where="value > 40", durable="high") as readings:
                assert [await anext(readings), await anext(readings)] == [Reading(42.0), Reading(43.0)]

    run(work())


def test_what_nobody_wants_any_more_does_not_cross(tmp_path: Path) -> None:
    async def work() -> None:
        async with Line("a", "b", "c", home=tmp_path, users={"a": ["ann"], "c": ["cleo"]}) as line:
            ann, cleo = await line.bus("a", "ann"), await line.bus("c", "cleo")
            async with cleo.subscribe("n > 0"):
                await line.wait_wanted("n > 0", at="a", of="b")
            await line.wait_wanted(at="a", of="b")
            await ann.publish("t", n=1, delivery="reliable")
            assert line.count("a", "relayed") == 0

    run(work())

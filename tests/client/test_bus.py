"""The bus against a real node: publishing, what is waited for, and lost connections."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import tidings
from client.nodes import node, proxy_of, run
from tidings import Event
from tidings.errors import AddressError, Disconnected, EventError, NoAnswer, Refused, UserError
from tidings.node.config import NodeConfig
from tidings.node.server import Node


def test_events_reach_those_who_want_them() -> None:
    async def work() -> None:
        async with tidings.open() as bus, bus.subscribe("value > 40") as events:
            await bus.publish("air.pm10", value=12.0)
            await bus.publish("air.pm10", {"value": 41.2}, priority=7)
            event = await anext(events)
            assert (event.type, event["value"], event.priority) == ("air.pm10", 41.2, 7)

    run(work())


def test_a_bus_by_tcp() -> None:
    from tidings.node.config import NodeConfig
    from tidings.node.server import Node

    async def work() -> None:
        running = Node(NodeConfig(port=0, compiled=False))
        await running.start()
        async with tidings.connect(running.addresses[0]) as bus:
            assert (await bus.status())["sessions"] == 1
        await running.close()

    run(work())


def test_the_name_of_a_client_is_the_source_of_its_events() -> None:
    async def work() -> None:
        async with tidings.open(name="ann") as bus, bus.subscribe() as events:
            await bus.publish("t")
            assert (await anext(events)).source == "ann"

    run(work())


def test_many_events_are_published_in_order_and_waited_for_once() -> None:
    async def work() -> None:
        async with tidings.open() as bus, bus.subscribe(on_slow="block") as events:
            await bus.publish_all(Event("t", n=n) for n in range(5_000))
            await bus.publish_all([Event("t", n=5_000, delivery="reliable"), Event("t", n=5_001)])
            assert [(await anext(events))["n"] for _ in range(5_002)] == list(range(5_002))

    run(work())


def test_more_than_the_send_buffer_holds_can_be_published() -> None:
    async def work() -> None:
        async with tidings.open() as bus, bus.subscribe(on_slow="block", prefetch=4) as events:
            body = bytes(1 << 20)

            async def publish() -> None:
                for n in range(30):
                    await bus.publish("t", n=n, body=body)
                await bus.publish_all(Event("t", n=n, body=body) for n in range(30, 60))

            publishing = asyncio.create_task(publish())
            assert [(await anext(events))["n"] for _ in range(60)] == list(range(60))
            await publishing

    run(work())


def test_what_was_published_is_accepted_before_the_bus_ends(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            node(tmp_path) as address,
            tidings.connect(address) as reader,
            reader.subscribe() as events,
        ):
            async with tidings.connect(address) as bus:
                await bus.publish("t", n=1)
            assert (await anext(events))["n"] == 1

    run(work())


def test_a_reliable_event_is_stored_when_publish_returns(tmp_path: Path) -> None:
    async def work() -> None:
        async with node(tmp_path) as address, tidings.connect(address) as bus:
            await bus.publish("t", delivery="persistent")
            assert (await bus.status())["position"] == 1

    run(work())


def test_bad_arguments_are_refused_where_they_are_given() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            with pytest.raises(EventError):
                await bus.publish("not a type")
            with pytest.raises(UserError, match="as it is"):
                await bus.publish(Event("t"), n=1)
            with pytest.raises(UserError, match="client"):
                bus.subscribe(acknowledge="client")
            with pytest.raises(UserError, match="prefetch"):
                bus.subscribe(prefetch=0)
            with pytest.raises(UserError, match="once"):
                await bus.__aenter__()

    run(work())


def test_a_bus_is_used_inside_its_block() -> None:
    async def work() -> None:
        with pytest.raises(UserError, match="async with"):
            await tidings.open().publish("t")
        async with tidings.open() as bus:
            pass
        with pytest.raises(Disconnected, match="closed"):
            await bus.publish("t")

    run(work())


@pytest.mark.parametrize(
    "address", ["", "127.0.0.1:x", "http://127.0.0.1", "tidings://", "tidings://h:x", "tidings+unix://"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(AddressError):
        tidings.connect(address)


# -- without a node


def test_without_a_node_the_wait_for_it_ends(tmp_path: Path) -> None:
    async def work() -> None:
        with pytest.raises(Disconnected, match=r"connected within 0.2 s: .*No such file"):
            async with tidings.connect(f"tidings+unix://{tmp_path}/none", timeout_s=0.2):
                pass

    run(work())


def test_without_reconnecting_the_first_failure_is_the_last(tmp_path: Path) -> None:
    async def work() -> None:
        with pytest.raises(Disconnected, match="No such file"):
            async with tidings.connect(f"tidings+unix://{tmp_path}/none", reconnect=False):
                pass

    run(work())


def test_a_node_that_comes_later_is_found(tmp_path: Path) -> None:
    async def work() -> None:
        bus = tidings.connect(f"tidings+unix://{tmp_path}/socket", random=lambda: 0.0)
        entering = asyncio.create_task(bus.__aenter__())
        await asyncio.sleep(0)
        async with node(tmp_path, keeps=False):
            await entering
            assert bus.is_connected
            await bus.__aexit__(None, None, None)

    run(work())


def test_without_an_address_it_is_the_node_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with node(tmp_path, keeps=False) as address:

            async def find() -> str:
                return address

            monkeypatch.setattr("tidings.node.local.find_or_start", find)
            async with tidings.connect() as bus:
                assert bus.is_connected

    run(work())


def test_without_an_address_it_is_that_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with node(tmp_path, keeps=False) as address:
            monkeypatch.setenv("TIDINGS_NODE", address)
            async with tidings.connect() as bus:
                assert bus.is_connected

    run(work())
    monkeypatch.setenv("TIDINGS_NODE", "http://h")
    with pytest.raises(AddressError, match=r"^TIDINGS_NODE: 'http://h' is no address"):
        tidings.connect()


def test_a_node_that_was_found_at_a_port_is_waited_for_when_it_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work() -> None:
        finds: list[None] = []
        running = Node(NodeConfig(port=0, compiled=False))
        await running.start()
        config = NodeConfig(port=int(running.addresses[0].rpartition(":")[2]), compiled=False)
        (address,) = running.addresses

        async def find() -> str:
            finds.append(None)
            return address

        monkeypatch.setattr("tidings.node.local.find_or_start", find)
        async with tidings.connect(random=lambda: 0.0) as bus:
            await running.close()
            running = Node(config)
            await running.start()
            await bus.status()
        await running.close()
        assert finds == [None]

    monkeypatch.delenv("TIDINGS_NODE", raising=False)
    run(work())


def test_variables_that_are_probably_misspelt_are_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TIDINGS_NOED", "127.0.0.1:7301")
    monkeypatch.setattr("tidings.node.variables._reported", set())
    for _ in range(2):
        tidings.connect("127.0.0.1:7300")
    assert [record.getMessage() for record in caplog.records] == [
        "unknown variable: TIDINGS_NOED; did you mean TIDINGS_NODE?"
    ]


# -- lost connections


def test_calls_go_on_when_a_lost_connection_is_back(tmp_path: Path) -> None:
    async def work() -> None:
        proxy = proxy_of(tmp_path)
        async with node(tmp_path), proxy, tidings.connect(proxy.address, random=lambda: 0.0) as bus:
            async with bus.subscribe(durable="d") as events:
                for n in range(5):
                    proxy.reset()
                    await bus.publish("t", n=n, delivery="reliable")
                assert [(await anext(events))["n"] for _ in range(5)] == [0, 1, 2, 3, 4]
            assert proxy.connections > 1

    run(work())


def test_calls_end_after_their_time_while_there_is_no_connection(tmp_path: Path) -> None:
    async def work() -> None:
        proxy = proxy_of(tmp_path)
        async with node(tmp_path), proxy, tidings.connect(proxy.address) as bus:
            proxy.cut()
            with pytest.raises(Disconnected):
                await bus.publish("t", delivery="reliable", timeout_s=0.05)
            with pytest.raises(Disconnected):
                await bus.status(timeout_s=0)
            with pytest.raises(Disconnected):
                async with bus.subscribe(timeout_s=0.05):
                    pass
            await bus.publish("t", timeout_s=0)  # there is room in the send buffer

    run(work())


def test_without_reconnecting_a_lost_connection_ends_everything(tmp_path: Path) -> None:
    async def work() -> None:
        proxy = proxy_of(tmp_path)
        async with (
            node(tmp_path),
            proxy,
            tidings.connect(proxy.address, reconnect=False) as bus,
            bus.subscribe() as events,
        ):
            waiting = asyncio.create_task(anext(events))  # type: ignore[arg-type]
            await asyncio.sleep(0)
            proxy.reset()
            with pytest.raises(Disconnected):
                await waiting
            with pytest.raises(Disconnected):
                await bus.publish("t")

    run(work())


def test_a_restarted_node_is_found_again_and_subscriptions_go_on(tmp_path: Path) -> None:
    async def work() -> None:
        async with node(tmp_path) as address:
            bus = await tidings.connect(address, random=lambda: 0.0).__aenter__()
            events = await bus.subscribe(durable="d").__aenter__()
            await bus.publish("t", n=1, delivery="reliable")
        publishing = asyncio.create_task(bus.publish("t", n=2, delivery="reliable"))
        async with node(tmp_path):
            await publishing
            assert [(await anext(events))["n"] for _ in range(2)] == [1, 2]
            await bus.__aexit__(None, None, None)

    run(work())


# -- cancelling


def test_a_cancelled_call_leaves_nothing_behind(tmp_path: Path) -> None:
    async def work() -> None:
        async with node(tmp_path) as address, tidings.connect(address) as bus:
            for call in (
                bus.publish("t", delivery="reliable"),
                bus.subscribe().__aenter__(),
                bus.advertise().__aenter__(),
                bus.status(),
                bus.request("t"),
            ):
                task = asyncio.ensure_future(call)
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                assert task.cancelled()
            status = await bus.status()
            assert status["advertisements"] == 0
            assert status["subscriptions"] <= 1  # the inbox for answers stays for the next request

    run(work())


def test_an_acceptance_that_does_not_come_in_time_is_no_answer() -> None:
    async def work() -> None:
        async with tidings.open() as bus, bus.subscribe(on_slow="block", prefetch=1):
            await bus.publish_all([Event("t", n=n) for n in range(3)])
            with pytest.raises(NoAnswer, match="not accepted within"):
                await bus.publish("t", delivery="reliable", timeout_s=0.05)

    run(work())


def test_ending_a_durable_subscription_that_is_not_there_is_refused() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            with pytest.raises(Refused, match="not-found"):
                await bus.unsubscribe("nobody")

    run(work())


def test_a_failure_inside_the_block_comes_out_of_it() -> None:
    bus = tidings.open()

    async def work() -> None:
        async with bus:
            await bus.publish("t")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(work())
    assert not bus.is_connected

"""What the driver does with a store that fails, with backlogs, and with time."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from node.peers import Peer, peer_of, run, running

from tidings import Event
from tidings.errors import StoreFailed
from tidings.node import driver
from tidings.protocol import session, worker
from tidings.protocol.messages import Credit, Ping, Pong
from tidings.store.sqlite import SqliteStore
from tidings.store.thread import StoreThread

WAIT_S = 30.0


def stored(number: int) -> Event:
    return Event("a", n=number, delivery="reliable")


async def open_durable(peer: Peer, system: str, **arguments: Any) -> None:
    await peer.hello(system, name=system)
    await peer.subscribe(durable="all", **arguments)


def test_when_a_commit_fails_nothing_is_accepted_and_the_node_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with running(dir=str(tmp_path / "node")) as node:
            async with peer_of(node.addresses[0]) as peer:
                await open_durable(peer, "peer")
                await peer.publish_accepted(stored(1))
                with monkeypatch.context() as patch:
                    patch.setattr(SqliteStore, "commit", fail)
                    peer.publish(stored(2))
                    bye = await peer.goodbye()
            assert bye.code == "internal"
            assert "no space" in bye.text
            assert node.driver.broker.tallies["failures", "store"] == 1
            async with peer_of(node.addresses[0]) as peer:
                assert (await peer.hello("peer", name="peer")).counter == 1
                await peer.subscribe(durable="all")
                peer.counter = 1
                peer.publish(stored(2))
                assert [event["n"] for event in await peer.events(2)] == [1, 2]

    def fail(store: SqliteStore, _operations: object) -> None:
        raise StoreFailed("tidings.db", "no space left")

    run(scenario())


def test_while_too_much_waits_for_the_disk_nothing_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_full = True
    monkeypatch.setattr(StoreThread, "is_full", property(lambda _: is_full))

    async def scenario() -> None:
        nonlocal is_full
        async with running(dir=str(tmp_path / "node")) as node, peer_of(node.addresses[0]) as peer:
            await peer.hello("peer", name="peer")
            peer.publish(stored(1))
            peer.send(Ping(1))
            await peer.expect(Pong)
            node.driver.broker.turns._spent_s = 1.0  # whoever comes now waits in line
            peer.send(Ping(2))
            await peer.expect(Pong)
            assert node.driver.broker.tallies["published", ""] == 1
            assert node.driver.broker.tallies["commits", ""] == 0
            is_full = False
            await peer.publish_accepted(stored(2))

    run(scenario())


def test_a_node_that_stops_while_too_much_waits_for_the_disk_stores_it_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with running(dir=str(tmp_path / "node")) as node, peer_of(node.addresses[0]) as peer:
            await peer.hello("peer", name="peer")
            monkeypatch.setattr(StoreThread, "is_full", True)
            peer.publish(stored(1))
            peer.send(Ping(1))
            await peer.expect(Pong)
        monkeypatch.undo()
        async with running(dir=str(tmp_path / "node")) as node, peer_of(node.addresses[0]) as peer:
            assert (await peer.hello("peer", name="peer")).counter == 1

    run(scenario())


def test_while_too_much_waits_for_the_disk_no_more_is_read_from_who_passes_its_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "TAKEN_SIZE_MAX", 10_000)
    monkeypatch.setattr(driver, "UNREAD_SIZE_MAX", 10_000)
    is_full = True
    monkeypatch.setattr(StoreThread, "is_full", property(lambda _: is_full))

    async def scenario() -> None:
        nonlocal is_full
        async with (
            running(dir=str(tmp_path / "node")) as node,
            peer_of(node.addresses[0]) as peer,
            peer_of(node.addresses[0]) as other,
        ):
            await peer.hello("peer", name="peer")
            await other.hello("other", name="other")
            for number in range(1_000):
                peer.publish(Event("a", n=number, text="x" * 1_000, delivery="reliable"))
            for number in range(100):  # ticks, in which others are served
                other.send(Ping(number))
                await other.expect(Pong)
            assert node.driver._unread
            assert 0 < node.driver.broker.tallies["published", ""] < 1_000
            is_full = False
            other.send(Ping(100))  # a tick, as the end of a commit brings it when the disk has caught up
            await peer.publish_accepted(stored(1_001))
            assert node.driver.broker.tallies["published", ""] == 1_001
            assert not node.driver._unread

    run(scenario())


def test_a_long_backlog_is_served_in_pieces_as_credit_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "READ_SIZE_MAX", 1000)

    async def scenario() -> None:
        async with running(dir=str(tmp_path / "node")) as node, peer_of(node.addresses[0]) as writer:
            async with peer_of(node.addresses[0]) as reader:
                await open_durable(reader, "reader")
            await writer.hello("writer")
            for first in range(0, 1000, 10):
                await writer.publish_accepted(*map(stored, range(first, first + 10)))
            async with peer_of(node.addresses[0]) as reader:
                await open_durable(reader, "reader", credit=300)
                numbers = [event["n"] for event in await reader.events(300)]
                reader.send(Credit(1, 10_000))
                numbers += [event["n"] for event in await reader.events(700)]
            assert numbers == list(range(1000))

    run(scenario())


def test_a_subscription_can_begin_at_a_moment_of_the_past(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(dir=str(tmp_path / "node")) as node, peer_of(node.addresses[0]) as peer:
            await peer.hello("peer", name="peer")
            await peer.publish_accepted(Event("a", n=1, delivery="persistent"))
            moment = int(time.time() * 1e6)
            await peer.publish_accepted(Event("a", n=2, delivery="persistent"))
            await peer.subscribe(since_us=moment)
            assert [event["n"] for event in await peer.events(1)] == [2]

    run(scenario())


def test_when_stored_events_can_not_be_read_their_reader_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with running(dir=str(tmp_path / "node")) as node, peer_of(node.addresses[0]) as peer:
            await peer.hello("peer", name="peer")
            await peer.publish_accepted(Event("a", n=1, delivery="persistent"))
            monkeypatch.setattr(SqliteStore, "read", fail)
            await peer.subscribe(since=1)
            assert (await peer.goodbye()).code == "internal"
            assert node.driver.broker.tallies["failures", "read"] == 1

    def fail(_store: SqliteStore, *_: int) -> None:
        raise StoreFailed("tidings.db", "input/output error")

    run(scenario())


def test_a_connection_that_never_says_hello_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "WAKE_S", 0.001)
    monkeypatch.setattr(session, "HELLO_S_MAX", 0.0)

    async def scenario() -> None:
        async with running() as node, peer_of(node.addresses[0]) as mute:
            assert (await mute.goodbye()).code == "timeout"
            assert node.driver.connections == 0

    run(scenario())


def test_a_silent_client_is_asked_and_stays_if_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "WAKE_S", 0.001)

    async def scenario() -> None:
        async with running() as node, peer_of(node.addresses[0]) as peer:
            await peer.hello()
            with monkeypatch.context() as patch:
                patch.setattr(session, "SILENT_S_MAX", 0.0)
                for one in node.driver.broker.sessions:
                    node.driver.broker.sessions._silent.watch(one)  # its time is shorter than when it came
                await peer.expect(Ping)
                patch.undo()
            peer.send(Pong(), Ping(5))
            assert (await peer.expect(Pong)).number == 5
            assert node.driver.connections == 1

    run(scenario())


def test_calls_that_compute_run_one_by_one_and_hold_no_other_up() -> None:
    order: list[str] = []
    is_open = threading.Event()

    def first() -> None:
        order.append("first begins")
        assert is_open.wait(WAIT_S)
        order.append("first ends")

    async def scenario() -> None:
        ended = asyncio.Event()
        async with running() as node:
            offload = node.driver.broker.offload
            offload(first, "compute")
            offload(lambda: order.append("second"), "compute").then(lambda _: ended.set())
            offload(lambda: None).then(lambda _: is_open.set())
            node.driver.schedule()
            await asyncio.wait_for(ended.wait(), WAIT_S)

    run(scenario())
    assert order == ["first begins", "first ends", "second"]

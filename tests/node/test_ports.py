from __future__ import annotations

import asyncio
import random
import socket
from pathlib import Path
from typing import Any

import pytest
from node.peers import inside, peer_of, run, running

from tidings import Event
from tidings.errors import UserError
from tidings.node import driver
from tidings.node.ports import bind_unix
from tidings.protocol.consumer import CREDITED_SIZE_MAX
from tidings.protocol.frames import FIRST_FRAME_MAX, encode
from tidings.protocol.messages import Bye, Hello, Ping, Pong, Publish, Request, Welcome
from tidings.protocol.outbox import ROOM

EVENT = Event("air.pm10", value=61.5)


def test_a_peer_is_welcomed_and_gets_what_another_publishes() -> None:
    async def scenario() -> None:
        async with running() as node, peer_of(node.addresses[0]) as one, peer_of(node.addresses[0]) as other:
            assert (await one.hello("one")).node == node.driver.broker.node
            await other.hello("other")
            await one.subscribe("value > 40")
            await other.publish_accepted(Event("a", value=1), EVENT)
            assert [event["value"] for event in await one.events(1)] == [61.5]

    run(scenario())


def test_a_unix_socket_serves_as_a_tcp_port_does(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "node.sock"
        async with running(unix=str(path)) as node:
            tcp, unix = node.addresses
            assert unix == f"tidings+unix://{path}"
            assert path.stat().st_mode & 0o777 == 0o600
            async with peer_of(unix) as one, peer_of(tcp) as other:
                await one.hello("one")
                await other.hello("other")
                await one.subscribe()
                await other.publish_accepted(EVENT)
                assert len(await one.events(1)) == 1
        assert not path.exists()

    run(scenario())


def test_with_a_unix_socket_only_there_is_no_tcp_port(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(unix=str(tmp_path / "s"), port=None) as node:
            assert node.addresses == [f"tidings+unix://{tmp_path / 's'}"]

    run(scenario())


def test_tcp_connections_do_not_wait_to_fill_packets() -> None:
    async def scenario() -> None:
        async with running() as node, peer_of(node.addresses[0]) as peer:
            await peer.hello()
            (port,) = node.driver._ports.values()
            channel: socket.socket = port._transport.get_extra_info("socket")  # type: ignore[attr-defined]
            assert channel.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    run(scenario())


def test_a_socket_of_a_dead_node_is_replaced_and_a_live_one_respected(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    dead = bind_unix(path)
    dead.close()
    assert path.exists()
    with bind_unix(path) as live:
        live.listen()
        with pytest.raises(UserError, match="another process listens there"):
            bind_unix(path)


def test_a_file_that_is_no_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("mine")
    with pytest.raises(UserError, match="can't listen on"):
        bind_unix(path)
    assert path.read_text() == "mine"


def test_a_port_in_use_is_named() -> None:
    async def scenario() -> None:
        async with running() as node:
            port = int(node.addresses[0].rpartition(":")[2])
            with pytest.raises(UserError, match=rf"can't listen on 127\.0\.0\.1:{port}"):
                async with running(port=port):
                    pass

    run(scenario())


def test_a_connection_too_many_is_turned_away_with_the_reason() -> None:
    async def scenario() -> None:
        async with running(connections_max=1) as node, peer_of(node.addresses[0]) as first:
            await first.hello()
            async with peer_of(node.addresses[0]) as second:
                assert (await second.goodbye()).code == "limit"
            assert node.driver.broker.tallies["turned_away", "limit"] == 1
            first.send(Ping(7))
            assert (await first.expect(Pong)).number == 7

    run(scenario())


def test_one_byte_at_a_time_is_enough() -> None:
    async def scenario() -> None:
        async with running() as node, peer_of(node.addresses[0]) as peer:
            for byte in encode(Hello([1], "slow", 1)) + encode(Ping(3)):
                peer.writer.write(bytes((byte,)))
                await peer.writer.drain()
                await asyncio.sleep(0)
            await peer.expect(Welcome)
            assert (await peer.expect(Pong)).number == 3

    run(scenario())


def test_a_client_that_never_reads_loses_its_oldest_events_and_the_others_are_served() -> None:
    async def scenario() -> None:
        large = Event("a", body=bytes(1 << 20))
        async with running() as node, peer_of(node.addresses[0]) as deaf, peer_of(node.addresses[0]) as one:
            await deaf.hello("deaf")
            await deaf.subscribe()
            deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await one.hello("one")
            for _ in range(CREDITED_SIZE_MAX // len(large.body or b"") + 20):
                await one.publish_accepted(large)
            assert node.driver.broker.tallies["dropped", "slow"] > 0
            assert node.driver.outbox_size < ROOM + (2 << 20)
            await one.publish_accepted(large)

    run(scenario())


def test_a_peer_that_pauses_gets_everything_in_order_when_it_reads_on() -> None:
    async def scenario() -> None:
        async with running() as node, peer_of(node.addresses[0]) as slow, peer_of(node.addresses[0]) as one:
            await slow.hello("slow")
            await slow.subscribe()
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await one.hello("one")
            for number in range(40):
                await one.publish_accepted(Event("a", n=number, body=bytes(1 << 19)))
            assert node.driver.outbox_size > 0
            slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
            assert [event["n"] for event in await slow.events(40)] == list(range(40))

    run(scenario())


BAD = {
    "no frame": b"\x00\x00\x00\x00\x00",
    "an unknown kind": b"\x00\x00\x00\x02\x63\x90",
    "too long": (FIRST_FRAME_MAX + 1).to_bytes(4, "big") + b"\x01",
    "something before HELLO": encode(Ping()),
    "a header that is none": b"\x00\x00\x00\x02\x01\xc1",
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_what_is_no_protocol_ends_its_connection_with_a_reason(data: bytes) -> None:
    async def scenario() -> None:
        async with running() as node, peer_of(node.addresses[0]) as peer:
            peer.writer.write(data)
            code = "too-large" if data is BAD["too long"] else "protocol"
            assert (await peer.goodbye()).code == code
            assert node.driver.broker.tallies["closed", code] == 1

    run(scenario())


def test_a_fault_of_the_node_ends_one_connection_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with running() as node, peer_of(node.addresses[0]) as one, peer_of(node.addresses[0]) as other:
            await one.hello("one")
            await other.hello("other")

            def fail(*_: Any) -> None:
                raise ZeroDivisionError

            with monkeypatch.context() as patch:
                patch.setattr(node.driver.broker.publishing, "publish", fail)
                one.publish(EVENT)
                assert (await one.goodbye()).code == "internal"
            await other.publish_accepted(EVENT)

    run(scenario())


def test_a_busy_node_joins_small_writes_and_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "TICK_SIZE_FULL", 1)

    async def scenario() -> None:
        async with running() as node, peer_of(node.addresses[0]) as one, peer_of(node.addresses[0]) as other:
            await one.hello("one")
            await other.hello("other")
            await one.subscribe()
            for number in range(100):
                other.publish(Event("a", n=number))
            assert [event["n"] for event in await one.events(100)] == list(range(100))

    run(scenario())


def mutated(frames: list[bytes], chance: random.Random) -> bytes:
    """Frames that were cut, joined, flipped, repeated or made longer."""
    data = bytearray(b"".join(chance.choices(frames, k=chance.randint(1, 4))))
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0 if at < len(data):
                data[at] = chance.randrange(256)
            case 1 if at < len(data):
                data[at] ^= 1 << chance.randrange(8)
            case 2:
                del data[at : at + chance.randint(1, 8)]
            case _:
                data[at:at] = chance.randbytes(chance.randint(1, 8))
    return bytes(data)


def good_frames() -> list[bytes]:
    from tidings import Batch

    requests = [
        Request(1, "subscribe", {"number": 1, "filter": "value > 3 AND name LIKE 'a%'", "credit": 10}),
        Request(2, "subscribe", {"number": 2, "durable": "d", "since": 1, "credit": 5}),
        Request(3, "subscribe", {"number": 3, "on_slow": "latest", "slow_key": "value"}),
        Request(4, "unsubscribe", {"number": 1}),
        Request(5, "advertise", {"number": 1, "filter": "type = 'a'"}),
        Request(6, "unadvertise", {"number": 1}),
        Request(7, "status", {}),
    ]
    events = Batch.of([Event("a.b", value=4, name="abc", delivery="reliable"), EVENT])
    return [encode(Publish(), events.raw), encode(Ping(1)), *map(encode, requests)]


def test_mutated_frames_harm_nobody_else() -> None:
    chance = random.Random(20261115)
    frames, hello = good_frames(), encode(Hello([1], "mutant", 1))

    async def attack(address: str) -> None:
        async with peer_of(address) as mutant:
            mutant.writer.write((hello if chance.random() < 0.9 else b"") + mutated(frames, chance))
            mutant.writer.write_eof()
            while await mutant.frame():
                pass

    async def scenario() -> None:
        async with running() as node, peer_of(node.addresses[0]) as one:
            await one.hello("one")
            await one.subscribe("type = 'untouched'")
            for _ in range(50):
                for _ in range(100):
                    await attack(node.addresses[0])
                one.publish(Event("untouched", value=1))
                assert len(await one.events(1)) == 1
            assert node.driver.connections == 1
            assert node.driver.broker.tallies["closed", "internal"] == 0

    asyncio.run(scenario())


def test_two_thousand_idle_connections_are_kept_and_served() -> None:
    async def scenario() -> None:
        async with running() as node:
            host, _, port = node.addresses[0].removeprefix("tidings://").rpartition(":")
            channels: list[socket.socket] = []
            for number in range(2000):
                channel = socket.socket()
                channel.setblocking(False)
                await asyncio.get_running_loop().sock_connect(channel, (host, int(port)))
                channel.send(encode(Hello([1], f"idle{number}", 1)))
                channels.append(channel)
            async with peer_of(node.addresses[0]) as one:
                await one.hello("one")
                await one.publish_accepted(EVENT)
                assert node.driver.connections == 2001
            for channel in channels:
                channel.close()

    run(scenario())


def test_a_peer_that_says_goodbye_is_let_go() -> None:
    async def scenario() -> None:
        async with running() as node, peer_of(node.addresses[0]) as peer:
            await peer.hello()
            peer.send(Bye())
            assert await peer.frame() is None
            assert node.driver.connections == 0

    run(scenario())


def test_the_other_end_of_a_pipe_is_a_connection_like_any(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running() as node:
            peer = inside(node)
            assert (await peer.hello()).version == 1
            peer.close()

    run(scenario())

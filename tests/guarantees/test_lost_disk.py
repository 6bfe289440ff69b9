"""One disk, one copy: what is lost with a disk, or a piece of it, and what is not."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from node.peers import Start, peer_of, run

import tidings
from tidings import Event
from tidings.errors import Disconnected
from tidings.protocol.appending import STORED_SIZE_MAX

EVENTS = 50


def test_with_the_disk_all_that_was_kept_is_lost_and_clients_go_on_with_the_new_one(
    start: Start, tmp_path: Path
) -> None:
    home = tmp_path / "node"
    first = start("--port", "0", "--dir", str(home))
    address = first.address()

    async def scenario() -> None:
        async with tidings.connect(address, name="reader", random=lambda: 0.0) as bus:
            async with bus.subscribe(durable="all", acknowledge="client") as events:
                await bus.publish("a", n=1, delivery="persistent")
                assert (await anext(events))["n"] == 1
                first.stop(signal.SIGKILL)
                shutil.rmtree(home)
                start("--port", address.rpartition(":")[2], "--dir", str(home)).address()
                await bus.publish("a", n=2, delivery="persistent")
                assert (await anext(events))["n"] == 2
            async with bus.subscribe(since=1) as events:
                assert (await anext(events))["n"] == 2

    run(scenario())


def test_a_damaged_record_is_reported_and_left_out_and_all_others_are_served(
    start: Start, tmp_path: Path
) -> None:
    flags = ("--port", "0", "--dir", str(tmp_path / "node"))
    first = start(*flags)

    async def write(address: str) -> None:
        async with peer_of(address) as peer:
            await peer.hello("peer", name="peer")
            for number in range(EVENTS):
                body = f"<<{number:03}>>".encode() * 100
                await peer.publish_accepted(Event("a", n=number, delivery="persistent", body=body))

    async def read(address: str) -> None:
        async with peer_of(address) as peer:
            await peer.hello("peer", name="peer")
            await peer.subscribe(since=1)
            numbers = [event["n"] for event in await peer.events(EVENTS - 1)]
            assert numbers == [number for number in range(EVENTS) if number != 20]

    run(write(first.address()))
    assert first.stop()[0] == 0
    flip(tmp_path / "node" / "tidings.db", b"<<020>>")
    second = start(*flags)
    run(read(second.address()))
    code, errors = second.stop()
    assert code == 0
    assert "damage in the store" in errors


def flip(path: Path, where: bytes) -> None:
    """Change one bit of the first place that has these bytes."""
    content = bytearray(path.read_bytes())
    content[content.index(where)] ^= 1
    path.write_bytes(content)


def test_events_that_nobody_asked_to_be_kept_are_gone_with_the_process(start: Start, tmp_path: Path) -> None:
    flags = ("--port", "0", "--dir", str(tmp_path / "node"))
    first = start(*flags)

    async def before(address: str) -> None:
        async with peer_of(address) as peer:
            await peer.hello("peer", name="peer")
            await peer.subscribe(durable="all", credit=0)
            await peer.publish_accepted(Event("a", n=1), Event("a", n=2, delivery="reliable"))

    async def after(address: str) -> None:
        async with peer_of(address) as peer:
            await peer.hello("peer", name="peer")
            await peer.subscribe(durable="all")
            assert [event["n"] for event in await peer.events(1)] == [2]

    run(before(first.address()))
    first.stop(signal.SIGKILL)
    run(after(start(*flags).address()))


def test_a_client_that_does_not_reconnect_learns_that_its_node_was_killed(
    start: Start, tmp_path: Path
) -> None:
    node = start("--port", "0", "--dir", str(tmp_path / "node"))

    async def scenario(address: str) -> None:
        async with tidings.connect(address, reconnect=False) as bus:
            await bus.publish("a", delivery="reliable")
            node.process.kill()
            try:
                while True:
                    await bus.publish("a", delivery="reliable")
            except Disconnected:
                return

    run(scenario(node.address()))


def test_a_flipped_bit_in_a_large_batch_costs_64_kb_of_it_at_most(start: Start, tmp_path: Path) -> None:
    flags = ("--port", "0", "--dir", str(tmp_path / "node"), "--log-seal-s", "0")
    count, size = 1_000, 1_000
    found: list[bytes] = []

    async def write(address: str) -> None:
        async with peer_of(address) as peer:
            await peer.hello("peer", name="peer")
            bodies = [f"<<{number:04}>>".encode() * (size // 8) for number in range(count)]
            await peer.publish_accepted(*[Event("a", delivery="persistent", body=body) for body in bodies])

    async def read_all(address: str) -> None:
        async with peer_of(address) as peer:
            await peer.hello("peer", name="peer")
            await peer.subscribe(since=1, credit=count)
            while not any(b"<<0999>>" in one for one in found):
                found.extend(event.body or b"" for event in await peer.events(1))

    first = start(*flags)
    run(write(first.address()))
    assert first.stop()[0] == 0
    flip(tmp_path / "node" / "tidings.db", b"<<0500>>")
    second = start(*flags)
    run(read_all(second.address()))
    lost = count - len(found)
    assert 0 < lost * size <= STORED_SIZE_MAX
    assert not any(b"<<0500>>" in one for one in found)
    assert "damage in the store" in second.stop()[1]

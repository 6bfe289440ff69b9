"""A real node on a disk that is full: what has to be stored is refused, everything else goes on."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from effort import ANSWER_S
from node.peers import SOURCE, Peer, peer_of, run

import tidings
from tidings import Event
from tidings.errors import TidingsError
from tidings.protocol.messages import Accepted, Acknowledge, Bye, Hello

DISK_SIZE = 4 << 20
BALLAST_SIZE = 2 << 20
"""Bytes of a file that takes up room until it is removed."""
LARGE = bytes(100_000)
UNSHARE = ["unshare", "--map-root-user", "--mount"]
MOUNT = f"""
mount -t tmpfs -o size={DISK_SIZE} tmpfs "$0" && head -c {BALLAST_SIZE} /dev/zero > "$0/ballast" && exec "$@"
"""


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode == 0


pytestmark = pytest.mark.skipif(
    not can_mount(), reason="this system lets nobody mount a file system of his own"
)


class SmallDisk:
    """A node on a file system of its own, of which a part can be freed."""

    def __init__(self, home: Path) -> None:
        self._home = home
        code = "from tidings.cli import main; main()"
        node = [sys.executable, "-c", code, "node", "--plain", "--port", "0", "--dir", str(home / "node")]
        self.process = subprocess.Popen(
            [*UNSHARE, "sh", "-c", MOUNT, str(home), *node],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().split()[2]

    def free(self) -> None:
        """Make room."""
        Path(f"/proc/{self.process.pid}/root{self._home}/ballast").unlink()

    def stop(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=ANSWER_S)
        return self.process.returncode, errors


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path)
    yield disk
    if disk.process.poll() is None:
        disk.process.kill()
    disk.process.communicate()


def stored(number: int) -> Event:
    return Event("kept", n=number, delivery="reliable", body=LARGE)


async def fill(writer: Peer) -> tuple[int, Bye]:
    """Publish until it is refused; how many events were accepted, and what the node said."""
    accepted = 0
    while True:
        writer.publish(stored(writer.counter + 1))
        frame = await writer.frame()
        assert frame is not None, "the connection ended without a word"
        if isinstance(frame[0], Bye):
            return accepted, frame[0]
        if isinstance(frame[0], Accepted):
            accepted = frame[0].counter


async def pass_on(one: Peer, number: int) -> None:
    """See that a transient event is accepted and delivered."""
    one.publish(Event("passing", n=number))
    assert [event["n"] for event in await one.events(1)] == [number]


def test_a_full_disk_refuses_what_must_be_stored_and_the_node_goes_on(disk: SmallDisk) -> None:
    async def scenario() -> None:
        async with peer_of(disk.address) as one, peer_of(disk.address) as reader:
            await one.hello("one", name="one")
            await one.subscribe("type = 'passing'")
            await reader.hello("reader", name="reader")
            await reader.subscribe("type = 'kept'", durable="kept", credit=0)
            async with peer_of(disk.address) as writer:
                await writer.hello("writer")
                accepted, bye = await fill(writer)
                assert accepted > 0
                assert bye.code == "internal"
                assert "full" in bye.text
            await pass_on(one, 1)
            async with peer_of(disk.address) as writer:
                assert (await writer.hello("writer")).counter == accepted
                writer.counter = accepted
                writer.publish(stored(accepted + 1))
                assert "full" in (await writer.goodbye()).text
                await pass_on(one, 2)
            disk.free()
            async with peer_of(disk.address) as writer:
                assert (await writer.hello("writer")).counter == accepted
                writer.counter = accepted
                await writer.publish_accepted(stored(accepted + 1))
            await pass_on(one, 3)
        await check_kept(accepted + 1)

    async def check_kept(count: int) -> None:
        async with peer_of(disk.address) as reader:
            await reader.hello("reader", name="reader")
            await reader.subscribe("type = 'kept'", durable="kept")
            assert [event["n"] for event in await reader.events(count)] == list(range(1, count + 1))
            reader.send(Acknowledge(1, count))
            await reader.ask("status")

    run(scenario())
    code, errors = disk.stop()
    assert code == 0, errors
    assert "full" in errors


def test_a_client_waits_until_a_full_disk_has_room_and_learns_the_reason(
    disk: SmallDisk, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with peer_of(disk.address) as reader, peer_of(disk.address) as writer:
            await reader.hello("reader", name="reader")
            await reader.subscribe(durable="all", credit=0)
            await writer.hello("writer")
            accepted, _ = await fill(writer)
        async with tidings.connect(disk.address, name="patient", random=lambda: 0.0) as bus:
            with pytest.raises(TidingsError, match=r"not accepted within .*full"):
                await bus.publish(stored(0), timeout_s=2.0)
            waiting = asyncio.ensure_future(bus.publish(stored(0)))
            for _ in range(3):
                await refused(accepted)
            assert not waiting.done()
            disk.free()
            await waiting
        async with peer_of(disk.address) as reader:
            await reader.hello("reader", name="reader")
            await reader.subscribe(durable="all")
            numbers = [event["n"] for event in await reader.events(accepted + 2)]
            assert numbers == [*range(1, accepted + 1), 0, 0]

    async def refused(accepted: int) -> None:
        async with peer_of(disk.address) as writer:
            writer.send(Hello([1], "writer", 1))
            writer.counter = accepted
            writer.publish(stored(accepted + 1))
            assert "full" in (await writer.expect_bye()).text

    with caplog.at_level(logging.WARNING, "tidings"):
        run(scenario())
    warnings = [one.getMessage() for one in caplog.records if "sent again" in one.getMessage()]
    assert len(warnings) == 1
    assert "full" in warnings[0]
    code, errors = disk.stop()
    assert code == 0, errors
    assert errors.count("the store failed") == 1

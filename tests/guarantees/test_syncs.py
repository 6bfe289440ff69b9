"""What a real node asks of the system: no promise leaves before the sync that it rests on.

A kill leaves the system's cache behind, a power cut does not. So a node is recorded by strace while it works,
from its first start to its end, and the recording is looked at twice: for the order of syncs and promises,
and to have the power cut at any moment of it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from effort import often, patience
from guarantees import trace
from guarantees.disk import Disk
from node.peers import SOURCE, Peer, Start, peer_of, run

import tidings
from tidings import Batch, Event
from tidings.protocol.frames import FRAME_MAX, FrameReader
from tidings.protocol.messages import Accepted, Deliver
from tidings.store.sqlite import SqliteStore

PUBLICATIONS = 150
PATIENT_PUBLICATIONS = 150
LARGE = 120_000
"""Bytes of the bodies of every other publication: enough for a checkpoint of SQLite's log."""
POWER_CUTS = often(15)
MARK = re.compile(rb"<<(\d{6})>>")

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


class Recording:
    """A node's work from its first start to its end, moment by moment."""

    def __init__(self, home: Path, work: Callable[[str], Coroutine[Any, Any, None]], *options: str) -> None:
        self.home = home / "disk"
        self.home.mkdir()
        output = home / "trace"
        flags = ("node", "--plain", "--port", "0", "--dir", str(self.home / "node"), "--log-level", "error")
        code = "from tidings.cli import main; main()"
        node = subprocess.Popen(
            [*trace.command(output, *options), sys.executable, "-c", code, *flags],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert node.stdout is not None
        run(work(node.stdout.readline().split()[2]))
        child = int(Path(f"/proc/{node.pid}/task/{node.pid}/children").read_text())
        os.kill(child, signal.SIGTERM)
        _, self.errors = node.communicate(timeout=patience(60))
        assert node.returncode == 0
        self.moments = trace.read(output)


async def publish(address: str) -> None:
    """Publish numbered events, small ones that a subscriber gets and large ones that are kept."""
    random = Random(1)
    async with peer_of(address) as reader, peer_of(address) as writer:
        await reader.hello("reader", name="reader")
        await reader.subscribe("type = 'small'", durable="small")
        await writer.hello("writer")
        small = 0
        for number in range(PUBLICATIONS):
            if number % 2:
                writer.publish(marked(writer.counter + 1, "large", "persistent", bytes(LARGE)))
            else:
                count = random.choice((1, 1, 5, 20))
                small += count
                first = writer.counter + 1
                writer.publish(*(marked(first + n, "small", "reliable") for n in range(count)))
            if random.random() < 0.5:
                await accepted(writer)
        await accepted(writer)
        assert len(await reader.events(small)) == small


def marked(counter: int, kind: str, delivery: str, body: bytes | None = None) -> Event:
    return Event(kind, mark=f"<<{counter:06}>>", delivery=delivery, body=body)


async def accepted(writer: Peer) -> None:
    while (await writer.expect(Accepted)).counter < writer.counter:
        pass


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return Recording(tmp_path_factory.mktemp("recording"), publish)


async def publish_patiently(address: str) -> None:
    """Publish numbered events through the real client, which comes again when it is refused."""
    async with (
        tidings.connect(address, name="reader", random=lambda: 0.0) as far,
        far.subscribe("type = 'small'", durable="small", acknowledge="client") as events,
        tidings.connect(address, name="writer", random=lambda: 0.0) as bus,
    ):
        for number in range(1, PATIENT_PUBLICATIONS + 1):
            await bus.publish(marked(number, "small", "reliable"))
        for number in range(1, PATIENT_PUBLICATIONS + 1):
            assert (await anext(events))["mark"] == f"<<{number:06}>>"


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """The recording of a node on a disk that fails now and then to sync."""
    home = tmp_path_factory.mktemp("failing")
    return Recording(home, publish_patiently, "-e", "inject=fdatasync:error=EIO:when=10+9")


class Promises:
    """What the frames that have left a node promise."""

    def __init__(self) -> None:
        self.accepted = 0
        self.delivered: set[int] = set()
        self._readers: dict[str, FrameReader] = {}

    def take(self, moment: trace.Moment) -> bool:
        """Follow what was sent; whether something was promised by it."""
        call = moment.call
        if moment.is_end or not call.target.startswith("TCP:"):
            return False
        reader = self._readers.setdefault(call.target, FrameReader(FRAME_MAX))
        has_promised = False
        for message, events in reader.feed(call.data):
            if isinstance(message, Accepted):
                self.accepted = message.counter
            elif isinstance(message, Deliver):
                self.delivered |= {int(event["mark"][2:-2]) for event in Batch(events)}
            has_promised |= isinstance(message, (Accepted, Deliver))
        return has_promised


class Synced:
    """The numbers of the events that stand in files, and of those that were synced there."""

    def __init__(self) -> None:
        self.safe: set[int] = set()
        self._written: dict[str, set[int]] = {}
        self._covered: dict[trace.Call, set[int]] = {}

    def take(self, moment: trace.Moment) -> None:
        call = moment.call
        if call.name == "pwrite64" and not moment.is_end:
            self._written.setdefault(call.target, set()).update(map(int, MARK.findall(call.data)))
        elif call.name in trace.SYNCS:
            if moment.is_end and call.result >= 0:
                self.safe |= self._covered.pop(call)
            elif moment.is_end:
                self._written[call.target] -= self._covered.pop(call)
            else:
                self._covered[call] = set(self._written.get(call.target, ()))


@pytest.mark.slow
def test_every_acceptance_and_delivery_leaves_after_the_sync_that_covers_it(recording: Recording) -> None:
    assert count_checked(recording) > PUBLICATIONS / 4
    assert has_checkpoint(recording.moments)


@pytest.mark.slow
def test_a_sync_that_failed_covers_nothing_and_the_node_goes_on(failing: Recording) -> None:
    assert sum(moment.call.result < 0 for moment in failing.moments) > 10
    assert count_checked(failing) > PATIENT_PUBLICATIONS
    assert "disk I/O error" in failing.errors


def count_checked(recording: Recording) -> int:
    """See that each frame with a promise left after the sync it rests on, and count them."""
    promises, synced = Promises(), Synced()
    count = 0
    for moment in recording.moments:
        synced.take(moment)
        if promises.take(moment):
            count += 1
            assert synced.safe >= set(range(1, promises.accepted + 1))
            assert synced.safe >= promises.delivered
    assert promises.accepted == max(synced.safe)
    return count


def has_checkpoint(moments: list[trace.Moment]) -> bool:
    """Whether the log was moved into the database while clients were served."""
    targets = [moment.call.target for moment in moments if moment.call.name in ("pwrite64", "write")]
    sent = [place for place, target in enumerate(targets) if target.startswith("TCP:")]
    return any(target.endswith("tidings.db") for target in targets[sent[0] : sent[-1]])


@pytest.mark.slow
@pytest.mark.parametrize("is_partly", [False, True], ids=["all of it", "a part of it"])
@pytest.mark.parametrize("name", ["recording", "failing"])
def test_when_unsynced_writes_are_lost_nothing_accepted_is(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, is_partly: bool
) -> None:
    recording: Recording = request.getfixturevalue(name)
    random = Random(20261115)
    cuts = set(random.sample(range(len(recording.moments)), min(POWER_CUTS, len(recording.moments))))
    disk, promises = Disk(recording.home), Promises()
    for place, moment in enumerate(recording.moments):
        disk.take(moment)
        promises.take(moment)
        if place in cuts:
            found = tmp_path / str(place)
            disk.cut_power(found, random if is_partly else None)
            check(found / "node", promises.accepted, may_be_torn=is_partly)
            shutil.rmtree(found)


def check(found: Path, accepted: int, may_be_torn: bool) -> None:
    """See that a store is sound and holds all that was accepted."""
    assert found.exists() or not accepted, "the node's folder is lost"
    store = SqliteStore(found)
    try:
        assert may_be_torn or store.damage == []
        assert max((one.counter for one in store.state.counters), default=0) >= accepted
        assert set(range(1, accepted + 1)) <= set(numbers(store))
    finally:
        store.close()


def numbers(store: SqliteStore) -> Iterator[int]:
    """The numbers of all events in a store."""
    position = 1
    while batches := store.read(position, 1 << 22):
        for batch in batches:
            yield from (int(event["mark"][2:-2]) for event in Batch(batch.raw))
        position = batches[-1].first + batches[-1].count


@pytest.mark.slow
def test_a_node_that_is_started_after_a_power_cut_serves_what_it_had_accepted(
    recording: Recording, start: Start, tmp_path: Path
) -> None:
    disk, promises = Disk(recording.home), Promises()
    for moment in recording.moments[: len(recording.moments) * 2 // 3]:
        disk.take(moment)
        promises.take(moment)
    assert promises.delivered
    disk.cut_power(tmp_path / "disk")
    node = start("--port", "0", "--dir", str(tmp_path / "disk" / "node"))

    async def scenario(address: str) -> None:
        async with peer_of(address) as reader, peer_of(address) as writer:
            assert (await writer.hello("writer")).counter >= promises.accepted
            await reader.hello("reader", name="reader")
            await reader.subscribe("type = 'small'", durable="small")
            again: set[int] = set()
            while not promises.delivered <= again:
                frame = await reader.frame()
                assert frame is not None
                if isinstance(frame[0], Deliver):
                    came = {int(event["mark"][2:-2]) for event in Batch(frame[1])}
                    assert frame[0].redelivered or not came & promises.delivered
                    again |= came

    run(scenario(node.address()))
    assert node.stop()[0] == 0

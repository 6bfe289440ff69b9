"""`tidings backup` and `tidings restore` beside real nodes that have work to do, and clients that live on."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from cli.test_node import run as run_command
from node.peers import Start, run

import tidings
from tests.store.test_backup import kill_after
from tidings import Event

BATCH = 50
ACCEPTED_MIN = 2_000
"""Events and messages, each, that are accepted before the backup begins."""
AFTER_MIN = 200
"""And before it is over that it has begun."""


class Load:
    """Publishes reliable events and puts messages until it is told to stop, and counts what was accepted."""

    def __init__(self, address: str) -> None:
        self.events = self.messages = 0
        self.is_over = False
        self._address = address
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._publish())
            group.create_task(self._put())
            try:
                yield
            finally:
                self.is_over = True

    async def wait(self, more: int) -> tuple[int, int]:
        """Until so many more of each were accepted; how many there are."""
        events, messages = self.events + more, self.messages + more
        while self.events < events or self.messages < messages:
            self._changed.clear()
            await self._changed.wait()
        return self.events, self.messages

    async def _publish(self) -> None:
        async with tidings.connect(self._address, name="ann") as bus:
            while not self.is_over:
                numbers = range(self.events, self.events + BATCH)
                events = (Event("a", n=n, delivery="reliable", body=bytes(1000)) for n in numbers)
                await bus.publish_all(events)
                self.events += BATCH
                self._changed.set()

    async def _put(self) -> None:
        async with tidings.connect(self._address, name="bob") as bus:
            queue = await bus.queue("jobs")
            while not self.is_over:
                numbers = range(self.messages, self.messages + BATCH)
                await queue.put_all(Event("job", n=n, body=bytes(1000)) for n in numbers)
                self.messages += BATCH
                self._changed.set()


async def command(*arguments: str) -> dict[str, object]:
    code, output, errors = await asyncio.to_thread(run_command, *arguments, "--json")
    assert (code, errors) == (0, "")
    told = json.loads(output)
    assert isinstance(told, dict)
    return told


def test_all_that_a_busy_node_had_accepted_is_in_a_backup_though_one_before_it_was_killed(
    start: Start, tmp_path: Path
) -> None:
    node, file, copy = (str(tmp_path / name) for name in ("node", "backup", "copy"))
    address = start("--port", "0", "--dir", node).address()

    async def back_up() -> tuple[int, int]:
        async with tidings.connect(address, name="reader") as bus:
            async with bus.subscribe(durable="all"):
                pass
            await bus.create_queue("jobs")
        load = Load(address)
        async with load.running():
            await load.wait(ACCEPTED_MIN)
            await asyncio.to_thread(kill_after, 2, tmp_path)
            assert not Path(file).exists()
            accepted = await load.wait(AFTER_MIN)
            backing_up = asyncio.create_task(command("backup", node, file))
            await load.wait(AFTER_MIN)
            told = await backing_up
            await load.wait(AFTER_MIN)
        assert told["damage"] == []
        assert (told["queues"], told["durables"]) == (1, 1)
        return accepted

    async def read(address: str, events: int, messages: int) -> None:
        async with tidings.connect(address, name="reader") as bus:
            async with bus.subscribe(durable="all") as stored:
                for n in range(events):
                    assert (await anext(stored))["n"] == n
                    assert stored.redelivered
            queue = await bus.queue("jobs")
            found = await queue.get_all(f"n < {messages}")
            assert [(one["n"], one.redelivered) for one in found] == [(n, True) for n in range(messages)]

    async def scenario() -> None:
        events, messages = await back_up()
        told = await command("restore", file, copy)
        assert told["events"] >= events
        assert told["messages"] >= messages
        await read(start("--port", "0", "--dir", copy).address(), events, messages)

    run(scenario())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "copy", "node"]


def test_clients_that_are_ahead_of_a_restored_node_go_on_and_miss_nothing_new(
    start: Start, tmp_path: Path
) -> None:
    node, file, copy = (str(tmp_path / name) for name in ("node", "backup", "copy"))
    first = start("--port", "0", "--dir", node)
    address = first.address()

    async def scenario() -> None:
        publisher = tidings.connect(address, name="ann", random=lambda: 0.0)
        reader = tidings.connect(address, name="reader", random=lambda: 0.0)
        async with publisher as ann, reader as bus:
            queue = await ann.create_queue("jobs")
            async with (
                bus.subscribe(durable="all", acknowledge="client") as durable,
                bus.subscribe(since=1) as history,
            ):
                await publish(ann, 1, 2)
                await queue.put("job", n=1)
                await command("backup", node, file)
                await publish(ann, 3, 4)
                await queue.put("job", n=2)
                for events in (durable, history):
                    assert [(await anext(events))["n"] for _ in range(4)] == [1, 2, 3, 4]
                first.stop(signal.SIGKILL)
                await command("restore", file, copy)
                start("--port", address.rpartition(":")[2], "--dir", copy).address()
                await publish(ann, 5, 6)
                await queue.put("job", n=3)
                for events in (durable, history):
                    assert [(await anext(events))["n"] for _ in range(2)] == [5, 6]
                    assert not events.redelivered
            found = [await queue.get(timeout_s=0) for _ in range(2)]
            assert [(one["n"], one.redelivered) for one in found] == [(1, True), (3, False)]
            async with bus.subscribe(since=1) as past:
                assert [(await anext(past))["n"] for _ in range(4)] == [1, 2, 5, 6]

    run(scenario())


async def publish(bus: tidings.Bus, *numbers: int) -> None:
    await bus.publish_all(Event("a", n=n, delivery="persistent") for n in numbers)


def test_both_commands_tell_what_there_is(tmp_path: Path) -> None:
    node, file, copy = (str(tmp_path / name) for name in ("node", "backup", "copy"))
    with tidings.blocking.open(node) as bus:
        bus.publish("a", delivery="persistent")
        bus.create_queue("jobs").put("job")
    for arguments, begin in (
        (("backup", node, file), f"wrote {file}"),
        (("restore", file, copy), f"restored {copy}"),
    ):
        code, output, errors = run_command(*arguments)
        assert (code, errors) == (0, "")
        assert output.startswith(f"{begin}: node ")
        assert ", 1 events, 1 messages, 1 queues, 0 durables, " in output


def test_a_damaged_record_is_told_with_an_exit_code_of_its_own(tmp_path: Path) -> None:
    node, file = tmp_path / "node", tmp_path / "backup"
    with tidings.blocking.open(node) as bus:
        for n in range(9):
            bus.publish("a", n=n, body=f"<<{n:03}>>".encode() * 100, delivery="persistent")
    database = node / "tidings.db"
    content = bytearray(database.read_bytes())
    content[content.index(b"<<004>>")] ^= 1
    database.write_bytes(content)
    code, output, errors = run_command("backup", str(node), str(file))
    assert code == 1
    assert ", 8 events, " in output
    assert errors == "damaged: stream 5: is not as it was written\n"


def test_a_mistake_is_one_line_that_names_the_place(tmp_path: Path) -> None:
    code, _, errors = run_command("backup", str(tmp_path), str(tmp_path / "backup"))
    assert (code, errors) == (2, f"tidings: {tmp_path}: there is no store in it\n")
    code, _, errors = run_command("restore", str(tmp_path / "backup"), str(tmp_path / "node"))
    assert (code, errors) == (2, f"tidings: {tmp_path}/backup: there is no such file\n")

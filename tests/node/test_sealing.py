"""The child of a node that seals its log: real processes, killed in the middle of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from effort import often
from log.test_segment_folder import Stopping, Stops
from node.peers import ANSWER_S_MAX, Process, Start, run, running
from pyarrow import fs

import tidings
from tidings import Event
from tidings.client import Bus
from tidings.errors import Disconnected, Refused, StoreError, StoreFailed
from tidings.log import retention, sealing
from tidings.log.segment_folder import Folder
from tidings.node import sealing as node_sealing
from tidings.node.sealing import Sealer
from tidings.node.server import Node
from tidings.store.backup import back_up, restore

COUNT = 500
LIVES = often(5)
"""How often the node, or who seals for it, is killed."""


def readings(first: int, count: int = COUNT) -> list[Event]:
    return [Event("air", {"n": n}, delivery="persistent") for n in range(first, first + count)]


async def logged(bus: Bus) -> list[int]:
    """The numbers of all events in the log, in its order."""
    found = [(position, event["n"]) async for position, event in bus.log.read()]
    assert [position for position, _ in found] == sorted({position for position, _ in found})
    return [n for _, n in found]


def filed(folder: Path) -> list[int]:
    """The numbers in all files, as they lie there: also in those that are superseded."""
    place = Folder(folder)
    files = [*place.files(), *place.superseded()]
    return sorted(n for file in files for n in numbers_in(place, file))


def numbers_in(folder: Folder, file: Any) -> list[int]:
    with folder.open(file) as opened:
        return [n for table in opened.tables() for n in table.column("n").to_pylist()]


async def wait_until(is_so: Callable[[], Any]) -> None:
    async with asyncio.timeout(ANSWER_S_MAX):
        while not is_so():
            await asyncio.sleep(0.01)


def test_what_is_sealed_is_read_as_before_and_the_store_gives_it_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(dir=str(tmp_path)) as node, tidings.connect(node.addresses[0]) as bus:
            assert node._sealing is not None
            assert node._sealing._process is None  # nothing is to be sealed
            await bus.publish_all(readings(0))
            assert await bus.log.seal() == COUNT
            await bus.publish_all(readings(COUNT))
            assert await bus.log.seal() == 2 * COUNT
            assert node.driver.history.discarded == COUNT
            assert await logged(bus) == list(range(2 * COUNT))
            async with bus.subscribe("n < 10", since=1) as events:
                assert [(await anext(events))["n"] for _ in range(10)] == list(range(10))
            status = await bus.log.status()
            assert (status["files"], status["sealed"], status["folder"]) == (2, 1000, str(tmp_path / "log"))
        assert filed(tmp_path / "log") == list(range(2 * COUNT))

    run(scenario())


def test_events_are_sealed_when_they_have_waited(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = {"dir": str(tmp_path), "log_seal_s": 0.1}
        async with running(**settings) as node, tidings.connect(node.addresses[0]) as bus:
            await bus.publish_all(readings(0))
            await wait_until(lambda: node.driver.history.sealed.span().last == COUNT)

    run(scenario())


def test_a_node_started_anew_goes_on_where_its_files_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        for life in range(3):
            async with running(dir=str(tmp_path)) as node, tidings.connect(node.addresses[0]) as bus:
                assert (await bus.log.status())["sealed"] == life * COUNT
                await bus.publish_all(readings(life * COUNT))
                await bus.log.seal()
        assert filed(tmp_path / "log") == list(range(3 * COUNT))

    run(scenario())


def test_a_node_in_a_program_reads_what_another_has_sealed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(dir=str(tmp_path)) as node, tidings.connect(node.addresses[0]) as bus:
            for turn in range(2):
                await bus.publish_all(readings(turn * COUNT))
                await bus.log.seal()
        async with tidings.open(tmp_path) as bus:
            assert (await bus.log.status())["files"] == 2
            await bus.publish_all(readings(2 * COUNT))
            assert await logged(bus) == list(range(3 * COUNT))

    run(scenario())


def test_who_seals_leaves_when_there_is_nothing_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_sealing, "IDLE_S_MAX", 0.1)

    async def scenario() -> None:
        async with sealing_by_hand(tmp_path) as (node, bus):
            await bus.publish_all(readings(0))
            asked = asyncio.ensure_future(bus.log.seal())
            async with linked(node) as link:
                await node_sealing._try_hard(Sealer(link, Folder(tmp_path / "log")))
            assert await asked == COUNT

    run(scenario())


def test_a_child_says_that_it_can_seal_again_before_it_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    class Mended:
        left = 1

        async def begin(self) -> None: ...

        async def fail(self, problem: str) -> None: ...

        async def work(self) -> bool:
            self.left -= 1
            if self.left == 0:
                raise StoreFailed("log", "disk is full")
            return False

    monkeypatch.setattr(node_sealing, "IDLE_S_MAX", 0.001)
    monkeypatch.setattr(node_sealing, "LOOK_S", 0.001)
    monkeypatch.setattr(node_sealing.Backoff, "next_s", lambda _: 0.0)
    run(node_sealing._try_hard(cast("Sealer", Mended())))
    lines = [one.getMessage() for one in caplog.records]
    assert lines == ["the log can't be sealed", "the log can be sealed again"]


def test_a_node_that_was_told_not_to_seals_nothing_and_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = {"dir": str(tmp_path), "log_seal_s": 0}
        async with running(**settings) as node, tidings.connect(node.addresses[0]) as bus:
            await bus.publish_all(readings(0))
            with pytest.raises(Refused, match="this node seals nothing"):
                await bus.log.seal()
            assert await logged(bus) == list(range(COUNT))

    run(scenario())


def test_without_arrow_nothing_is_sealed_and_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with running(dir=str(tmp_path)) as node, tidings.connect(node.addresses[0]) as bus:
            await bus.publish_all(readings(0))
            with pytest.raises(Refused, match="seals nothing"):
                await bus.log.seal()
            assert await logged(bus) == list(range(COUNT))

    for name in [one for one in sys.modules if one in ("tidings.log.segment_folder", "tidings.log.segments")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    run(scenario())
    assert [one.getMessage() for one in caplog.records].count("the log is not sealed") == 1


def test_a_node_loads_arrow_when_something_sealed_is_read_and_not_before(
    start: Start, tmp_path: Path
) -> None:
    home = str(tmp_path / "node")

    def has_arrow(process: Process) -> bool:
        return "libarrow" in Path(f"/proc/{process.process.pid}/maps").read_text()

    async def fill(process: Process) -> None:
        async with tidings.connect(process.address()) as bus:
            for first in (0, COUNT):  # the store gives up the first when it is told of the second
                await bus.publish_all(readings(first))
                assert await bus.log.seal() == first + COUNT
            assert not has_arrow(process)

    async def read(process: Process) -> None:
        async with tidings.connect(process.address()) as bus:
            await bus.log.prune(size_max=1 << 30)
            assert not has_arrow(process)
            assert await logged(bus) == list(range(2 * COUNT))
            assert has_arrow(process)

    first = start("--port", "0", "--dir", home)
    run(fill(first))
    assert first.stop()[0] == 0
    run(read(start("--port", "0", "--dir", home, "--log-days", "30")))


# Killed


def children_of(process: Process) -> list[int]:
    pid = process.process.pid
    with contextlib.suppress(FileNotFoundError):
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    return []


@pytest.mark.parametrize("seed", range(often(2)))
def test_who_seals_may_be_killed_at_any_moment(start: Start, tmp_path: Path, seed: int) -> None:
    async def scenario() -> None:
        random = Random(seed)
        process = start("--port", "0", "--dir", str(tmp_path), "--log-seal-s", "0.05")
        async with tidings.connect(process.address()) as bus:
            for life in range(LIVES):
                await bus.publish_all(readings(life * COUNT))
                await wait_until(lambda: children_of(process))
                await asyncio.sleep(random.uniform(0, 1.0))  # the moment of the fault
                for pid in children_of(process):
                    os.kill(pid, signal.SIGKILL)
            assert await bus.log.seal() == LIVES * COUNT
            assert await logged(bus) == list(range(LIVES * COUNT))
        code, errors = process.stop()
        assert code == 0, errors
        assert filed(tmp_path / "log") == list(range(LIVES * COUNT))

    run(scenario())


def test_the_node_may_be_killed_at_any_moment(start: Start, tmp_path: Path) -> None:
    async def scenario() -> None:
        random = Random(0)
        flags = "--port", "0", "--dir", str(tmp_path), "--log-seal-s", "0.05"
        for life in range(LIVES):
            process = start(*flags)
            async with tidings.connect(process.address(), reconnect=False) as bus:
                with contextlib.suppress(Disconnected):
                    await bus.publish_all(readings(life * COUNT))
                    await wait_until(lambda process=process: children_of(process))  # type: ignore[misc]
                    await asyncio.sleep(random.uniform(0, 1.0))  # the moment of the fault
            process.stop(signal.SIGKILL)
        process = start(*flags)
        async with tidings.connect(process.address()) as bus:
            await bus.publish_all(readings(LIVES * COUNT))
            await bus.log.seal()
            assert await logged(bus) == list(range((LIVES + 1) * COUNT))
        code, errors = process.stop()
        assert code == 0, errors
        assert filed(tmp_path / "log") == list(range((LIVES + 1) * COUNT))

    run(scenario())


@contextlib.asynccontextmanager
async def sealing_by_hand(directory: Path) -> AsyncIterator[tuple[Node, Bus]]:
    """A node whose child is not started: the test does what it would do."""
    async with running(dir=str(directory)) as node, tidings.connect(node.addresses[0]) as bus:
        assert node._sealing is not None
        node._sealing.look = lambda: None  # type: ignore[method-assign]
        yield node, bus


def linked(node: Node) -> Any:
    """A connection of who seals, which comes by the own socket of the node."""
    assert node._sealing is not None
    return node_sealing._linked(node._sealing._settings.node)


def test_whatever_operation_is_the_last_one_nothing_is_lost_and_nothing_twice(tmp_path: Path) -> None:
    """Stopped after each operation on the file system in turn, then gone on with by another."""

    async def scenario() -> None:
        async with sealing_by_hand(tmp_path) as (node, bus):
            inner = fs.LocalFileSystem()
            for operations in range(12):
                await bus.publish_all(readings(operations * 10, 10))
                asked = asyncio.ensure_future(bus.log.seal())
                await bus.log.status()  # it is asked for by now
                handler = Stopping(inner, operations)
                failing = Folder(str(tmp_path / "log"), fs.PyFileSystem(handler))
                for folder in (failing, Folder(tmp_path / "log")):
                    async with linked(node) as link:
                        sealer = Sealer(link, folder)
                        with contextlib.suppress(Stops):
                            await sealer.begin()
                            while await sealer.work():
                                pass
                assert await asked == (operations + 1) * 10
                assert await logged(bus) == list(range((operations + 1) * 10))
        assert filed(tmp_path / "log") == list(range(120))

    run(scenario())


def test_a_folder_that_cannot_be_written_to_is_tried_again_and_the_node_goes_on(
    start: Start, tmp_path: Path
) -> None:
    async def scenario() -> None:
        place = tmp_path / "files"
        place.write_text("no folder")
        process = start("--port", "0", "--dir", str(tmp_path / "node"), "--log-folder", str(place))
        async with tidings.connect(process.address()) as bus:
            await bus.publish_all(readings(0))
            with pytest.raises(Refused, match="the log can't be sealed"):
                await bus.log.seal()
            assert process.process.stderr is not None
            line = ""
            while "the log can't be sealed" not in line:
                line = await asyncio.to_thread(process.process.stderr.readline)
            place.unlink()
            assert await logged(bus) == list(range(COUNT))
            while await sealed_at_last(bus) != COUNT:
                pass
            assert filed(place) == list(range(COUNT))

    run(scenario())


async def sealed_at_last(bus: Bus) -> int:
    """What sealing says; 0 if it was not tried again yet."""
    try:
        return await bus.log.seal()
    except Refused:
        return 0


async def seal_by_hand(bus: Bus, sealer: Sealer) -> int:
    """Have the log sealed as the child would do it; the position up to which it is."""
    asked = asyncio.ensure_future(bus.log.seal())
    await bus.log.status()
    while not asked.done():
        await sealer.work()
    return await asked


def test_what_vanished_from_the_folder_is_sealed_again_as_far_as_the_store_has_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with sealing_by_hand(tmp_path) as (node, bus), linked(node) as link:
            sealer = Sealer(link, Folder(tmp_path / "log"))
            await sealer.begin()
            for n in range(3):
                await bus.publish_all(readings(n, 1))
                assert await seal_by_hand(bus, sealer) == n + 1
            assert node.driver.history.discarded == 2
            shutil.rmtree(tmp_path / "log")
            for n in range(3, 6):
                await bus.publish_all(readings(n, 1))
                assert await seal_by_hand(bus, sealer) == n + 1
                assert filed(tmp_path / "log") == list(range(2, n + 1))
            shutil.rmtree(tmp_path / "log")  # and nothing new
            kept = node.driver.history.discarded
            assert kept < 6
            assert await seal_by_hand(bus, sealer) == 6
            assert filed(tmp_path / "log") == list(range(kept, 6))

    run(scenario())


def test_a_store_that_is_older_than_its_files_is_refused(tmp_path: Path) -> None:
    home, old, files = tmp_path / "node", tmp_path / "old", tmp_path / "files"

    async def scenario() -> None:
        settings = {"dir": str(home), "log_folder": str(files)}
        async with running(**settings) as node, tidings.connect(node.addresses[0]) as bus:
            await bus.publish_all(readings(0, 5))
        shutil.copytree(home, old)
        async with running(**settings) as node, tidings.connect(node.addresses[0]) as bus:
            await bus.publish_all(readings(5, 5))
            assert await bus.log.seal() == 10
        with pytest.raises(StoreError, match=r"position 10 and the store only to 5.*tidings restore"):
            async with running(dir=str(old), log_folder=str(files)):
                pass
        async with running(**settings):
            pass

    run(scenario())


def test_a_damaged_file_is_left_out_when_others_are_joined(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        folder = Folder(tmp_path / "log")
        async with sealing_by_hand(tmp_path) as (node, bus):
            async with linked(node) as link:
                sealer = Sealer(link, folder)
                await sealer.begin()
                for n in range(sealing.JOIN_AT + 1):
                    await bus.publish_all(readings(n, 1))
                    asked = asyncio.ensure_future(bus.log.seal())
                    await bus.log.status()
                    while not asked.done():
                        status = await bus.log.status()
                        await sealer._seal(status["sealed"] + 1, status["end"])
                damaged = folder.files()[0]
                (tmp_path / "log" / damaged.path).write_bytes(b"no Parquet")
                while await sealer.work():
                    pass
            assert [file.claim.last for file in folder.files()] == [1, sealing.JOIN_AT + 1]
        assert caplog.messages.count("damage in the store") == 1

    run(scenario())


def test_who_waits_is_told_why_the_log_cannot_be_sealed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with sealing_by_hand(tmp_path) as (node, bus):
            await bus.publish_all(readings(0, 1))
            asked = asyncio.ensure_future(bus.log.seal())
            await bus.log.status()
            async with linked(node) as link:
                await Sealer(link, Folder(tmp_path / "log")).fail("no room")
            with pytest.raises(Refused, match="the log can't be sealed: no room"):
                await asked

    run(scenario())


def test_a_problem_with_the_folder_is_told_with_its_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with sealing_by_hand(tmp_path) as (node, bus):
            await bus.publish_all(readings(0, 1))
            (tmp_path / "log").write_text("no folder")
            async with linked(node) as link:
                asked = asyncio.ensure_future(bus.log.seal())
                await bus.log.status()
                sealer = Sealer(link, Folder(tmp_path / "log"))
                await sealer.begin()
                with pytest.raises(StoreError, match=str(tmp_path / "log")):
                    await sealer.work()
                asked.cancel()

    run(scenario())


# Restored


def test_a_restored_node_has_what_was_sealed_after_its_backup(tmp_path: Path) -> None:
    home, copy = tmp_path / "node", tmp_path / "backup"

    async def scenario() -> None:
        async with running(dir=str(home)) as node, tidings.connect(node.addresses[0]) as bus:
            await bus.publish_all(readings(0))
            await bus.log.seal()
            await bus.publish_all(readings(COUNT))
            back_up(home, copy)
            await bus.publish_all(readings(2 * COUNT))
            await bus.log.seal()
            await bus.publish_all(readings(10 * COUNT))  # which is lost
        for file in home.glob("tidings.db*"):
            file.unlink()
        restore(copy, home, time.time())
        async with running(dir=str(home)) as node, tidings.connect(node.addresses[0]) as bus:
            assert await logged(bus) == list(range(3 * COUNT))
            await bus.publish_all(readings(3 * COUNT))
            await bus.log.seal()
            assert await logged(bus) == list(range(4 * COUNT))
            async with bus.subscribe(since=COUNT + 1) as events:
                assert [(await anext(events))["n"] for _ in range(3 * COUNT)] == [*range(COUNT, 4 * COUNT)]
            assert [problems async for problems, _, _ in bus.log.verify() if problems] == []
        assert filed(home / "log") == list(range(4 * COUNT))

    run(scenario())


def test_files_that_are_too_much_are_removed_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "RETAIN_S", 0.05)

    async def scenario() -> None:
        settings = {"dir": str(tmp_path), "log_size": 1}
        async with running(**settings) as node, tidings.connect(node.addresses[0]) as bus:
            for turn in range(2):
                await bus.publish_all(readings(turn * COUNT))
                await bus.log.seal()
            await wait_until(lambda: node.driver.history.first == 2 * COUNT + 1)
            await bus.publish_all(readings(2 * COUNT))
            assert await logged(bus) == [*range(2 * COUNT, 3 * COUNT)]
            assert await bus.log.seal() == 3 * COUNT

    run(scenario())


# For long


def test_a_database_whose_log_is_sealed_does_not_grow_for_ever(tmp_path: Path) -> None:
    async def scenario() -> None:
        sizes = []
        async with sealing_by_hand(tmp_path) as (node, bus), linked(node) as link:
            sealer = Sealer(link, Folder(tmp_path / "log"))
            await sealer.begin()
            for turn in range(30):
                await bus.publish_all(readings(turn * 2000, 2000))
                asked = asyncio.ensure_future(bus.log.seal())
                await bus.log.status()
                while await sealer.work():
                    pass
                await asked
                sizes.append((tmp_path / "tidings.db").stat().st_size)
            assert Counter(await logged(bus)) == Counter(range(30 * 2000))
        assert max(sizes) <= 2 * max(sizes[:10]), sizes

    run(scenario())

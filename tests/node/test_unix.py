"""Sockets and temporary folders that are removed, or left behind."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import shutil
import signal
import socket
import tempfile
from pathlib import Path

import pytest
from node.peers import Start, peer_of, run, running

import tidings
from tidings import Event
from tidings.node.unix import LOCK, SOCKET, Temporary, UnixServer, sweep


async def put_back(server: UnixServer) -> None:
    server.look()
    assert server._restoring is not None
    await server._restoring


def test_a_socket_that_was_removed_is_put_back_and_those_who_came_by_it_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "run" / "node.sock"
    path.parent.mkdir(mode=0o700)

    async def scenario() -> None:
        async with running(unix=str(path)) as node, peer_of(node.addresses[0]) as before:
            await before.hello("before")
            await before.subscribe()
            for name, remove in (("one", path.unlink), ("two", lambda: shutil.rmtree(path.parent))):
                remove()
                await put_back(node._sockets[0])
                assert path.stat().st_mode & 0o777 == 0o600
                assert path.parent.stat().st_mode & 0o777 == 0o700
                async with peer_of(node.addresses[0]) as after:
                    await after.hello(name)
                    await after.publish_accepted(Event("air"))
                assert len(await before.events(1)) == 1
            node._sockets[0].look()  # nothing is to be done
            assert path.exists()
        assert not path.exists()

    run(scenario())
    assert [one.getMessage() for one in caplog.records] == ["the socket was removed and is put back"] * 2


def test_a_socket_of_another_process_in_its_place_is_left_alone_and_that_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "node.sock"

    async def scenario() -> None:
        async with running(unix=str(path)) as node:
            path.unlink()
            with socket.socket(socket.AF_UNIX) as other:
                other.bind(str(path))
                other.listen()
                inode = path.stat().st_ino
                for _ in range(3):
                    await put_back(node._sockets[0])
            await node.close()
            assert path.stat().st_ino == inode

    run(scenario())
    assert [one.getMessage() for one in caplog.records] == ["the socket was removed and can't be put back"]


def test_a_node_that_ends_does_not_put_its_socket_back(tmp_path: Path) -> None:
    path = tmp_path / "run" / "node.sock"
    path.parent.mkdir(mode=0o700)

    async def scenario() -> None:
        async with running(unix=str(path)) as node:
            server = node._sockets[0]
            await server.close()
            shutil.rmtree(path.parent)
            node._on_wake()  # as it may come while the rest is being closed
            assert server._restoring is None

    run(scenario())
    assert not path.parent.exists()


def test_children_find_the_node_again_when_its_temporary_folder_was_cleaned_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def scenario() -> None:
        async with running(dir=str(tmp_path / "node")) as node, tidings.connect(node.addresses[0]) as bus:
            assert node._private is not None
            shutil.rmtree(node._private.path)
            await put_back(node._sockets[0])
            await bus.publish("air", delivery="persistent")
            assert await bus.log.seal() == 1

    run(scenario())
    assert list(tmp_path.glob("tidings-*")) == []


def test_what_a_killed_node_has_left_is_removed_by_the_next_one(start: Start, tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {"TMPDIR": str(temporary), "XDG_RUNTIME_DIR": str(tmp_path)}
    first = start("--port", "0", "--dir", str(tmp_path / "one"), environment=environment)
    second = start("--port", "0", "--dir", str(tmp_path / "two"), environment=environment)
    first.address(), second.address()
    lefts = set(temporary.glob("tidings-*"))
    assert len(lefts) == 2
    assert first.stop(signal.SIGKILL)[0] == -signal.SIGKILL
    third = start("--port", "0", "--dir", str(tmp_path / "one"), environment=environment)
    third.address()
    there = set(temporary.glob("tidings-*"))
    assert len(there) == 2
    assert len(there & lefts) == 1
    assert second.stop()[0] == third.stop()[0] == 0
    assert list(temporary.glob("tidings-*")) == []


def test_only_folders_of_processes_that_are_gone_are_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own, gone = Temporary(), Temporary()
    os.close(gone._lock)  # as the end of its process does
    empty, other, begun, old, user = (tmp_path / f"tidings-{name}" for name in "abcde")
    for folder in (empty, other, begun, old, user):
        folder.mkdir(mode=0o700)
    (other / "report.txt").write_text("somebody's")
    (begun / LOCK).touch()  # made just now
    for folder in (old, user):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(folder / SOCKET))
    (user / "node.log").touch()
    (tmp_path / "tidings-link").symlink_to(gone.path)
    assert set(sweep()) == {gone.path, old}
    assert {own.path, empty, other, begun, user} <= set(tmp_path.iterdir())
    own.close()
    gone._lock = -1
    assert not own.path.exists()


def test_a_folder_can_be_made_while_another_node_looks_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    flock, looking = fcntl.flock, []

    def held(handle: int, operation: int) -> None:
        """Another node has the lock just now, to see whether anyone does; who waits for it gets it."""
        path = f"/proc/self/fd/{handle}"
        looking.append(os.open(path, os.O_RDWR))
        flock(looking[0], fcntl.LOCK_EX)
        if not operation & fcntl.LOCK_NB:
            os.close(looking.pop())
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", held)
    folder = Temporary()
    monkeypatch.undo()
    assert (folder.path / LOCK).read_text() == f"{os.getpid()}\n"
    assert folder.path not in sweep()
    folder.close()


@pytest.mark.parametrize("turns", range(4))
def test_a_connection_that_comes_while_the_node_ends_is_closed(tmp_path: Path, turns: int) -> None:
    path = tmp_path / "node.sock"

    async def scenario() -> None:
        async with running(unix=str(path)):
            with socket.socket(socket.AF_UNIX) as late:
                late.connect(str(path))
                for _ in range(turns):
                    await asyncio.sleep(0)

    asyncio.run(scenario())
    gc.collect()  # a socket that was left open fails the test

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from node.peers import ANSWER_S_MAX, SOURCE, inside, peer_of, run, running
from ports import free_port

from tidings import Event
from tidings.errors import Disconnected, NotAllowed, StoreInUse
from tidings.node import local
from tidings.node.config import PORT, NodeConfig
from tidings.node.local import (
    as_machine_node,
    find_or_start,
    is_alive,
    machine_socket,
    run_in_process,
    runtime_directory,
)
from tidings.node.ports import bind_unix


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine of its own: nodes started in it are ended with the test."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    monkeypatch.delenv("TIDINGS_DIR", raising=False)
    started: list[int] = []
    spawn = local._spawn

    def noting(*arguments: object) -> int:
        started.append(spawn(*arguments))  # type: ignore[arg-type]
        return started[-1]

    monkeypatch.setattr(local, "_spawn", noting)
    monkeypatch.setattr(local, "NodeConfig", plain)
    monkeypatch.setattr(local, "PORT", free_port())
    yield tmp_path
    for process in started:
        end(process, signal.SIGKILL)


def plain(**settings: object) -> NodeConfig:
    """Settings of a node that has nothing to compile."""
    return NodeConfig(**settings, compiled=False)  # type: ignore[arg-type]


def end(process: int, number: signal.Signals) -> None:
    try:
        os.kill(process, number)
        os.waitpid(process, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def holder(home: Path) -> int:
    """The process that has the directory of the machine's node."""
    return int((home / "state" / "tidings" / "lock").read_text())


def test_a_node_in_this_process_is_talked_to_over_a_pipe() -> None:
    async def scenario() -> None:
        async with run_in_process(None) as node:
            one = inside(node)
            other = inside(node)
            await one.hello("one")
            await other.hello("other")
            await one.subscribe("value > 1")
            await other.publish_accepted(Event("a", value=2))
            assert [event["value"] for event in await one.events(1)] == [2]
            assert node.addresses == []
            one.close()
            other.close()

    run(scenario())


def test_a_node_in_this_process_keeps_what_it_stores(tmp_path: Path) -> None:
    async def visit() -> int:
        async with run_in_process(tmp_path / "node") as node:
            peer = inside(node)
            counter = (await peer.hello("peer")).counter
            peer.counter = counter
            await peer.subscribe(durable="all")
            await peer.publish_accepted(Event("a", delivery="reliable"))
            with pytest.raises(StoreInUse):
                async with run_in_process(tmp_path / "node"):
                    pass
            peer.close()
            return counter

    assert [asyncio.run(visit()) for _ in range(3)] == [0, 1, 2]


def test_the_node_of_this_machine_is_started_once_and_found_again(home: Path) -> None:
    async def scenario() -> None:
        addresses = set(await asyncio.gather(*[find_or_start(ANSWER_S_MAX) for _ in range(5)]))
        assert addresses == {f"tidings+unix://{home}/tidings/node.sock"}
        first = holder(home)
        async with peer_of(addresses.pop()) as peer:
            await peer.hello()
        await find_or_start(ANSWER_S_MAX)
        assert holder(home) == first

    run(scenario())


def test_where_a_node_was_started_is_logged_once(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        asyncio.run(find_or_start(ANSWER_S_MAX))
    (record,) = (one for one in caplog.records if one.name == "tidings")
    assert f"tidings+unix://{home}/tidings/node.sock" in record.getMessage()
    assert str(home / "state" / "tidings") in record.getMessage()


def test_a_node_at_the_port_is_used_before_one_is_started(home: Path) -> None:
    async def scenario() -> None:
        async with running(port=local.PORT) as node:
            assert [await find_or_start(ANSWER_S_MAX)] == node.addresses
        assert not (home / "state").exists()

    run(scenario())


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x03\x00\x02\x02\x0a", b"\0\0"]
)
def test_another_program_at_the_port_is_no_node(answer: bytes) -> None:
    async def answers(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        done.set()

    done = asyncio.Event()

    async def scenario() -> None:
        server = await asyncio.start_server(answers, "127.0.0.1", 0)
        assert not await local.is_at_port(server.sockets[0].getsockname()[1])
        await done.wait()
        server.close()

    run(scenario())


def test_a_node_that_was_killed_is_started_again_with_what_it_stored(home: Path) -> None:
    async def publish(address: str) -> int:
        async with peer_of(address) as peer:
            counter = (await peer.hello("peer")).counter
            await peer.subscribe(durable="all")
            await peer.publish_accepted(Event("a", delivery="reliable"))
            return counter

    async def scenario() -> None:
        assert await publish(await find_or_start(ANSWER_S_MAX)) == 0
        first = holder(home)
        end(first, signal.SIGKILL)
        assert (home / "tidings" / "node.sock").exists()
        address = await find_or_start(ANSWER_S_MAX)
        assert holder(home) != first
        async with peer_of(address) as peer:
            assert (await peer.hello("peer")).counter == 1

    run(scenario())


def test_a_node_that_can_not_start_is_reported_with_what_it_said(home: Path) -> None:
    (home / "state" / "tidings").mkdir(parents=True)
    (home / "state" / "tidings" / "letter.txt").write_text("Dear all")
    with pytest.raises(Disconnected, match=r"(?s)did not start.*'letter\.txt' lies in it"):
        asyncio.run(find_or_start(ANSWER_S_MAX))


def test_a_socket_that_accepts_and_says_nothing_is_no_node(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "PROBE_S_MAX", 0.01)

    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(home / "mute"))
        mute.listen()
        assert not asyncio.run(is_alive(home / "mute"))


def test_when_no_node_answers_in_time_that_is_an_error(home: Path) -> None:
    with pytest.raises(Disconnected, match=r"no node answered on .* within 0 s"):
        asyncio.run(find_or_start(0))


def test_a_runtime_directory_that_others_can_open_is_refused(home: Path) -> None:
    (home / "tidings").mkdir(mode=0o755)
    (home / "tidings").chmod(0o755)
    with pytest.raises(NotAllowed, match="is no directory that only you can open"):
        runtime_directory()


def test_without_a_runtime_directory_of_the_system_there_is_one_for_each_user(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr("tempfile.tempdir", str(home))
    made = runtime_directory()
    assert made == home / f"tidings-{os.getuid()}"
    assert made.stat().st_mode & 0o777 == 0o700


def test_a_node_that_is_not_told_where_to_listen_is_the_node_of_this_machine(home: Path) -> None:
    config = as_machine_node(NodeConfig())
    assert (config.tcp_port, config.unix) == (PORT, str(home / "tidings" / "node.sock"))


def test_a_node_that_is_told_where_to_listen_is_not(home: Path) -> None:
    for config in (NodeConfig(port=0), NodeConfig(unix="/tmp/s")):
        assert as_machine_node(config) is config


def test_a_second_node_leaves_the_socket_of_this_machine_to_the_first(home: Path) -> None:
    with bind_unix(machine_socket()) as first:
        first.listen()
        assert as_machine_node(NodeConfig()) == NodeConfig()

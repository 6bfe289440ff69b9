"""The node as a process: how it starts, stops, is killed and comes back."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from node.peers import ANSWER_S_MAX, SOURCE, Start, peer_of, run

from tidings import Event
from tidings.errors import UserError
from tidings.node.ports import raise_descriptor_limit
from tidings.protocol.messages import Acknowledge, Deliver

STORED = Event("air.pm10", value=61.5, delivery="reliable")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_node_says_where_it_listens_and_stops_in_good_order(start: Start, number: signal.Signals) -> None:
    node = start("--port", "0")
    address = node.address()

    async def scenario() -> None:
        async with peer_of(address) as peer:
            await peer.hello()
            node.process.send_signal(number)
            assert (await peer.goodbye()).code == "shutdown"

    assert address.startswith("tidings://127.0.0.1:")
    assert node.line() == "keeping nothing: no directory was given (--dir)"
    run(scenario())
    code, errors = node.finish()
    assert code == 0
    assert [line.split()[2] for line in errors.splitlines()] == ["started", "stopping", "stopped"]


def test_a_second_node_on_the_same_directory_is_refused_with_the_reason(start: Start, tmp_path: Path) -> None:
    first = start("--port", "0", "--dir", str(tmp_path / "node"))
    first.address()
    code, errors = start("--port", "0", "--dir", str(tmp_path / "node")).finish()
    assert code == 2
    problem = f"process {first.process.pid} uses it; stop that one, or choose another directory"
    assert errors == f"tidings: {tmp_path}/node: {problem}\n"
    assert first.stop()[0] == 0


def test_a_directory_that_is_removed_under_a_node_is_said_to_who_publishes(
    start: Start, tmp_path: Path
) -> None:
    node = start("--port", "0", "--dir", str(tmp_path / "node"))

    async def scenario(address: str) -> None:
        async with peer_of(address) as peer, peer_of(address) as other:
            await peer.hello("one")
            await other.hello("other", name="other")
            await other.subscribe(durable="all", credit=0)
            await peer.publish_accepted(STORED)
            shutil.rmtree(tmp_path / "node")
            peer.publish(STORED)
            assert "was removed or replaced" in (await peer.goodbye()).text

    run(scenario(node.address()))
    code, errors = node.stop()
    assert code == 0
    assert "the store failed" in errors


def test_a_directory_that_is_not_ours_is_refused(start: Start, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear all")
    code, errors = start("--port", "0", "--dir", str(tmp_path)).finish()
    assert code == 2
    assert "is not empty and not a tidings directory: 'letter.txt' lies in it" in errors


def test_too_few_file_descriptors_stop_the_start_with_what_to_do(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from tidings.cli import main; main()"]
    command += ["node", "--plain", "--port", "0", "--dir", str(tmp_path / "node")]
    limit = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (150, 150))
    ran = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        preexec_fn=limit,  # this process has no threads that could hold a lock
        capture_output=True,
        text=True,
        check=False,
        timeout=ANSWER_S_MAX,
    )
    assert ran.returncode == 2
    assert "lets this process open 150 files, and a node needs 200 at least" in ran.stderr
    assert "`ulimit -n 15100`" in ran.stderr
    assert not (tmp_path / "node").exists()


def test_a_node_that_is_to_have_few_connections_needs_few_file_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (120, 150))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    assert raise_descriptor_limit(50) == 50
    with pytest.raises(UserError, match="needs 151 at least"):
        raise_descriptor_limit(51)


def test_a_system_that_allows_fewer_files_than_it_says_leaves_the_limit_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("current limit exceeds maximum limit")  # as macOS does

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_descriptor_limit(15_000) == 156


def test_other_than_loopback_addresses_are_refused_with_the_reason(start: Start) -> None:
    code, errors = start("--host", "0.0.0.0", "--port", "0").finish()
    assert code == 2
    assert "--host: 0.0.0.0 can be reached from other machines" in errors


def test_flags_are_stronger_than_the_environment_and_that_than_the_file(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(f'port = 1\nunix = "{tmp_path}/from-file"\nlog_form = "json"\n')
    environment = {"TIDINGS_PORT": "2", "TIDINGS_UNIX": f"{tmp_path}/from-environment"}
    node = start("--config", str(file), "--port", "0", environment=environment)
    assert not node.address().endswith((":1", ":2"))
    assert node.line() == f"listening on tidings+unix://{tmp_path}/from-environment"
    code, errors = node.stop()
    assert code == 0
    assert all(line.startswith('{"time":') for line in errors.splitlines())


def test_what_was_accepted_survives_a_kill_and_is_delivered_to_who_comes_back(
    start: Start, tmp_path: Path
) -> None:
    flags = ("--port", "0", "--dir", str(tmp_path / "node"))

    async def before(address: str) -> int:
        async with peer_of(address) as reader, peer_of(address) as writer:
            welcome = await reader.hello("reader", name="reader")
            await reader.subscribe("value > 40", durable="alarms")
            await writer.hello("writer")
            await writer.publish_accepted(*[STORED] * 10)
            deliver = await reader.expect(Deliver)
            assert deliver.positions is not None
            reader.send(Acknowledge(1, int.from_bytes(deliver.positions[16:24], "big")))
            await reader.ask("status")  # answered after the acknowledgement is on disk
            return welcome.boot

    async def after(address: str, boot: int) -> None:
        async with peer_of(address) as reader, peer_of(address) as writer:
            assert (await reader.hello("reader", name="reader")).boot > boot
            assert (await writer.hello("writer")).counter == 10
            await reader.subscribe("value > 40", durable="alarms")
            deliver = await reader.expect(Deliver)
            assert deliver.redelivered
            assert deliver.positions is not None
            assert len(deliver.positions) == 7 * 8

    first = start(*flags)
    boots: list[int] = []

    async def note(address: str) -> None:
        boots.append(await before(address))

    run(note(first.address()))
    assert first.stop(signal.SIGKILL)[0] == -signal.SIGKILL
    second = start(*flags)
    run(after(second.address(), boots[0]))
    assert second.stop()[0] == 0


def test_a_node_that_stops_has_stored_what_it_accepted(start: Start, tmp_path: Path) -> None:
    flags = ("--port", "0", "--dir", str(tmp_path / "node"))
    first = start(*flags)

    async def before(address: str) -> None:
        async with peer_of(address) as peer:
            await peer.hello("peer", name="peer")
            await peer.subscribe(durable="all")
            peer.publish(*[STORED] * 100)
            first.process.terminate()
            await peer.expect_bye()

    async def after(address: str) -> None:
        async with peer_of(address) as peer:
            welcome = await peer.hello("peer", name="peer")
            await peer.subscribe(durable="all")
            if welcome.counter:  # it had come in before the node stopped
                assert len(await peer.events(100)) == 100

    run(before(first.address()))
    assert first.finish()[0] == 0
    second = start(*flags)
    run(after(second.address()))
    assert second.stop()[0] == 0

"""PID files of running nodes, and who may stop a node."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace
from node.peers import Start, inside, peer_of, run, running
from node.secured import Secured

from tidings.errors import NotAllowed
from tidings.filters import Filter
from tidings.node.assembly import check_stop
from tidings.node.local import RUNNING, RunningNode, list_running, pid_file, run_in_process, runtime_directory
from tidings.protocol.access import OWN, OWNER, PeerInfo, Principal, Rule

NODE = RunningNode(
    pid=os.getpid(),
    node="g2qbqtoaigtxg3ax",
    name="hall",
    started=1.0,
    version="0.1.0",
    dir=None,
    addresses=["tidings://127.0.0.1:7300"],
    metrics=None,
)
TCP = PeerInfo("127.0.0.1:4000", "127.0.0.1")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def test_a_node_is_listed_while_it_runs() -> None:
    assert list_running() == []
    with pid_file(NODE):
        assert list_running() == [NODE]
        assert NODE.is_running
        assert not replace(NODE, node="another").is_running
    assert list_running() == []
    assert not NODE.is_running


def test_nodes_that_were_killed_are_not_listed_and_their_files_are_removed(start: Start) -> None:
    node = start("--port", "0", "--name", "hall")
    (address,) = [node.address()]
    (found,) = list_running()
    assert (found.name, found.addresses, found.pid) == ("hall", [address], node.process.pid)
    node.stop(signal.SIGKILL)
    assert (runtime_directory() / RUNNING / str(found.pid)).exists()
    assert not found.terminate()
    assert list_running() == []
    assert not (runtime_directory() / RUNNING / str(found.pid)).exists()


def test_a_process_that_has_the_number_of_a_node_that_was_killed_is_not_taken_for_it() -> None:
    with pid_file(NODE):
        path = runtime_directory() / RUNNING / str(NODE.pid)
        text = path.read_bytes()
    path.write_bytes(text)  # as the node would have left it, whose lock went with it
    assert not NODE.is_running
    assert not NODE.terminate()
    assert list_running() == []


def test_files_that_can_not_be_read_are_passed_over(home: Path) -> None:
    with pid_file(NODE):
        (home / "tidings" / RUNNING / str(NODE.pid)).write_text("{}")
        assert list_running() == []
        assert not NODE.terminate()


def test_a_node_without_a_pid_file_runs_all_the_same(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    (home / "tidings").mkdir(mode=0o700)
    (home / "tidings" / RUNNING).touch()
    with pid_file(NODE):
        pass
    assert [record.getMessage() for record in caplog.records] == ["the node can't be listed"]


# -- who may stop a node


def user(*rules: Rule) -> Principal:
    return Principal("ada", rules=rules)


@pytest.mark.parametrize(
    ("principal", "caller"),
    [(OWNER, OWN), (user(Rule("get"), Rule("manage")), TCP), (user(Rule("manage")), OWN)],
)
def test_the_owner_and_managers_of_everything_may_stop_a_node(principal: Principal, caller: PeerInfo) -> None:
    check_stop(principal, caller)


@pytest.mark.parametrize(
    ("principal", "caller"),
    [
        (OWNER, TCP),  # without security, whoever reaches the port
        (user(), OWN),
        (user(Rule("publish"), Rule("put"), Rule("keep")), TCP),
        (user(Rule("manage", queue="jobs")), TCP),
        (user(Rule("manage", where=Filter("a = 1"))), TCP),
    ],
)
def test_others_may_not(principal: Principal, caller: PeerInfo) -> None:
    with pytest.raises(NotAllowed):
        check_stop(principal, caller)


def test_a_request_to_stop_is_answered_before_the_connection_ends(start: Start, tmp_path: Path) -> None:
    node = start("--unix", str(tmp_path / "socket"))
    address = node.address()

    async def scenario() -> None:
        async with peer_of(address) as peer:
            await peer.hello()
            reply = await peer.ask("node.stop")
            assert (reply.result, reply.error) == (None, None)

    run(scenario())
    assert node.finish()[0] == 0


def test_a_client_at_the_port_of_a_node_without_security_can_not_stop_it() -> None:
    async def scenario() -> None:
        async with running() as node, peer_of(node.addresses[0]) as peer:
            await peer.hello()
            reply = await peer.ask("node.stop")
            assert reply.error is not None
            assert reply.error.code == "not-allowed"

    run(scenario())


def test_a_node_in_a_program_ends_with_that() -> None:
    async def scenario() -> None:
        async with run_in_process(None) as node:
            peer = inside(node)
            await peer.hello()
            reply = await peer.ask("node.stop")
            assert reply.error is not None
            assert reply.error.code == "unsupported"
            peer.close()

    run(scenario())


def test_the_status_of_a_node_has_what_only_its_process_knows(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            running(name="hall", dir=str(tmp_path / "node"), http_port=0) as node,
            peer_of(node.addresses[0]) as peer,
        ):
            await peer.hello()
            status = (await peer.ask("status")).result
            assert {
                name: status[name] for name in ("name", "pid", "dir", "addresses", "metrics", "compiled")
            } == {
                "name": "hall",
                "pid": os.getpid(),
                "dir": str(tmp_path / "node"),
                "addresses": node.addresses,
                "metrics": node.metrics_address,
                "compiled": "off",
            }

    run(scenario())


def test_a_user_without_the_right_is_refused_over_the_wire(secured: Secured) -> None:
    from node.secured import TOKEN

    import tidings

    async def scenario() -> None:
        async with (
            running(security=str(secured.path)) as node,
            tidings.connect(node.addresses[0], ca=secured.ca, token=TOKEN) as bus,
        ):
            with pytest.raises(NotAllowed, match="'device' may not stop this node"):
                await bus.stop_node()

    run(scenario())

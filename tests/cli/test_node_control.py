"""`tidings node status`, `drain`, `stop` and `list`, with real nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.commands import run_command
from node.peers import Start
from node.secured import PASSWORD, TOKEN, Secured

from tidings.cli.node import status_lines
from tidings.node.local import machine_socket


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of its own."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("TIDINGS_NODE", raising=False)
    return tmp_path


def test_a_node_is_listed_shown_and_stopped(start: Start) -> None:
    node = start("--unix", str(machine_socket()), "--port", "0", "--name", "hall")
    address = node.address()
    code, output, _ = run_command("node", "list", "--json")
    listed = json.loads(output)
    assert (code, listed["name"], listed["pid"]) == (0, "hall", node.process.pid)
    code, output, _ = run_command("node", "list")
    assert code == 0
    assert address in output
    code, output, _ = run_command("node", "status")  # at the socket of this machine
    assert code == 0
    assert f"process   {node.process.pid}, tidings " in output
    assert f"listening on {address}\n" in output
    code, output, _ = run_command("node", "status", address, "--json")
    assert (code, json.loads(output)["node"]) == (0, listed["node"])
    code, output, _ = run_command("node", "stop", "--json")
    assert (code, json.loads(output)["ended"]) == (0, True)
    assert node.finish()[0] == 0
    assert run_command("node", "list") == (0, "", "you run no nodes on this machine\n")


def test_a_node_that_listens_on_a_port_only_gets_a_signal_from_its_owner(start: Start) -> None:
    node = start("--port", "0", "--name", "hall")
    code, output, _ = run_command("node", "stop", node.address().removeprefix("tidings://"))
    assert code == 0
    assert output.startswith("hall (")
    assert node.finish()[0] == 0


def test_a_node_is_drained_and_stopped(start: Start) -> None:
    far = start("--port", "0", "--name", "far").address()
    near = start("--port", "0", "--name", "near", "--peers", f"far={far}")
    address = near.address()
    code, output, _ = run_command("node", "drain", address, "--stop")
    assert code == 0
    first, drained, stopped = output.splitlines()
    assert first.startswith("nothing passes through it; ")
    assert drained == f"the node at {address} is drained; 0 clients have stayed"
    assert stopped.startswith("near (")
    assert near.finish()[0] == 0
    code, output, _ = run_command("node", "drain", far, "--json")
    assert (code, json.loads(output)["done"]) == (0, True)


def test_a_node_that_is_not_listed_and_does_not_have_to_obey_goes_on(
    start: Start, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = start("--port", "0").address()
    (home / "elsewhere").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home / "elsewhere"))
    code, _, errors = run_command("node", "stop", address)
    assert code == 1
    assert errors.startswith(f"tidings: refused by {address}: a node without security is stopped over its")
    assert run_command("ping", address)[0] == 0


def test_a_node_with_security_is_stopped_by_a_manager_from_anywhere(
    start: Start, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secured = Secured(home)
    node = start("--port", "0", "--security", str(secured.path))
    address = node.address()
    (home / "elsewhere").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home / "elsewhere"))
    (home / "token").write_text(TOKEN)
    (home / "password").write_text(PASSWORD)
    ca = ("--ca", str(secured.ca))
    assert run_command("node", "stop", address, *ca, "--token-file", str(home / "token"))[0] == 1
    assert run_command("node", "status", address, *ca, "--token-file", str(home / "token"))[0] == 1
    manager = ("--user", "ada", "--password-file", str(home / "password"))
    assert run_command("node", "status", address, *ca, *manager)[0] == 0
    assert run_command("node", "stop", address, *ca, *manager)[0] == 0
    assert node.finish()[0] == 0


@pytest.mark.parametrize("command", ["status", "stop"])
def test_without_a_node_the_exit_code_is_one_and_for_a_wrong_address_two(command: str, home: Path) -> None:
    address = f"tidings+unix://{home}/none"
    assert run_command("node", command, address)[0] == 1
    code, output, _ = run_command("node", command, address, "--json")
    assert (code, json.loads(output).keys()) == (1, {"address", "error"})
    assert run_command("node", command, "http://h")[0] == 2


def test_the_status_of_a_node_of_an_earlier_version_is_shown_as_far_as_it_goes() -> None:
    status = {"node": "g2qb", "sessions": 1, "subscriptions": 2, "position": 3}
    assert status_lines(status, 0.0)[1:] == [
        ("sessions", "1, with 2 subscriptions"),
        ("stored", "up to position 3"),
        ("queues", "0, with 0 messages"),
    ]

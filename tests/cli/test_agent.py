"""`tidings agent` and `tidings lease`: with a node, and with programs that know nothing of tidings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.commands import run_command
from effort import patience

from tidings.testing.node_process import NodeProcess

ANSWER_S = patience(30)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with NodeProcess(tmp_path_factory.mktemp("node")) as node:
        yield node.address


def begin(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from tidings.cli import main; main()", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        command, stdout=-1, stderr=-1, stdin=subprocess.DEVNULL, text=True, env=environment
    )


def until_running(address: str, group: str, count: int = 1) -> list[dict[str, object]]:
    until = time.monotonic() + ANSWER_S
    while time.monotonic() < until:
        code, output, _ = run_command("lease", "list", group, "--json", "--node", address)
        found = [json.loads(line) for line in output.splitlines()]
        if code == 0 and len(found) >= count:
            return found
        time.sleep(0.05)
    raise AssertionError(f"nobody runs in {group}")


def test_a_program_runs_under_a_lease_and_its_exit_code_is_that_of_the_command(address: str) -> None:
    process = begin(
        "lease", "run", "--group", "quick", "--node", address, "--", "sh", "-c", "echo hello; exit 7"
    )
    output, errors = process.communicate(timeout=ANSWER_S)
    assert (process.returncode, output) == (7, "hello\n"), errors
    assert "if the group can't be asked, it ends after 35 s at most" in errors
    _, output, _ = run_command("agent", "list", "--all", "--json", "--node", address)
    (found,) = [one for one in map(json.loads, output.splitlines()) if one["name"] == "quick"]
    assert (found["phase"], found["reason"]) == ("ended", "error")


def test_two_programs_share_a_group_and_end_with_it(address: str) -> None:
    first = begin(
        "lease", "run", "--group", "both", "--budget", "usd=2", "--node", address, "--", "sleep", "1000"
    )
    until_running(address, "both")
    second = begin(
        "lease",
        "run",
        "--group",
        "both",
        "--agent",
        "deep",
        "--json",
        "--node",
        address,
        "--",
        "sh",
        "-c",
        "sleep 1000 & wait",
    )
    found = until_running(address, "both", 2)
    assert {one["name"] for one in found} == {"sleep", "deep"}
    code, output, _ = run_command("lease", "renew", "both", "--node", address)
    assert (code, output) == (0, "renewed 2\n")
    code, _, _ = run_command("lease", "release", str(found[0]["agent"]), "--node", address)
    assert code == 0
    _, output, _ = run_command("agent", "show", "both", "--node", address)
    assert "released" in output
    assert run_command("agent", "stop", "both", "--node", address)[0] == 0
    for process in (first, second):
        process.wait(timeout=ANSWER_S)
        assert process.returncode == 3
    told = json.loads(second.communicate()[0])
    assert told["reason"] == "user"
    first.communicate()
    _, output, _ = run_command("agent", "tree", "both", "--node", address)
    assert output.count(", user") == 2
    _, output, _ = run_command("agent", "cost", "both", "--json", "--node", address)
    assert json.loads(output)["units"]["usd"] == {
        "given": 2,
        "spent": 0,
        "refunded": 2,
        "held": 0,
        "written_off": 0,
    }


def test_a_signal_ends_the_program_and_the_reason_is_the_user(address: str) -> None:
    process = begin("lease", "run", "--group", "stopped", "--node", address, "--", "sleep", "1000")
    until_running(address, "stopped")
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=ANSWER_S)
    assert process.returncode == 3
    assert "ended: user" in errors


def test_a_busy_loop_is_no_orphan(address: str) -> None:
    """It computes for ten leases without a pause; its location renews."""
    lease_s = patience(0.6)
    busy = f"import time\nend = time.monotonic() + {10 * lease_s}\nwhile time.monotonic() < end: pass"
    process = begin(
        "lease",
        "run",
        "--group",
        "busy",
        "--lease",
        str(lease_s),
        "--node",
        address,
        "--",
        sys.executable,
        "-c",
        busy,
    )
    _, errors = process.communicate(timeout=ANSWER_S)
    assert process.returncode == 0, errors


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("agent", "show", "nothing"), "nothing: there is no such group at this node"),
        (("agent", "stop", "nothing"), "nothing: there is no such group at this node"),
        (
            ("lease", "run", "--budget", "usd", "--", "true"),
            "--budget is UNIT=AMOUNT, such as usd=5, not 'usd'",
        ),
        (("lease", "run", "--budget", "usd=-1", "--", "true"), "budget['usd'] is from 0 to"),
    ],
)
def test_a_mistake_is_named(address: str, arguments: tuple[str, ...], problem: str) -> None:
    front = arguments[: arguments.index("--")] if "--" in arguments else arguments
    rest = arguments[len(front) :]
    code, _, errors = run_command(*front, "--node", address, *rest)
    assert code == 2
    assert problem in errors


def test_a_program_that_is_not_there_ends_with_127(address: str) -> None:
    process = begin("lease", "run", "--node", address, "--", "no-such-program-here")
    process.communicate(timeout=ANSWER_S)
    assert process.returncode == 127


def test_without_groups_the_lists_say_so(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        assert run_command("agent", "list", "--node", node.address)[2] == "no groups\n"
        assert run_command("lease", "list", "--node", node.address)[2] == "no leases\n"


def test_an_agent_of_a_class_is_started_and_followed_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    with NodeProcess(tmp_path, agents="agents.travellers:Traveller") as node:
        at = "--node", node.address
        options = "--state", '{"cost": 1}', "--budget", "usd=2", "--json"
        started = "trip", "agents.travellers:Traveller", *options, *at
        code, output, errors = run_command("agent", "start", *started)
        assert code == 0, errors
        agent = json.loads(output)["agent"]
        code, output, errors = run_command("agent", "follow", "trip", "--json", *at)
        assert code == 0, errors
        seen = [json.loads(line) for line in output.splitlines()]
        _, table, _ = run_command("agent", "follow", "trip", *at)
        code, _, errors = run_command("agent", "start", "trip", "os:system", *at)
        assert (code, "trusts this class" in errors) == (2, True)
        code, _, errors = run_command("agent", "start", "trip", "a:B", "--state", "{", *at)
        assert (code, "--state is no JSON" in errors) == (2, True)
    assert [one["type"] for one in seen][:3] == ["agent.opened", "agent.entered", "agent.entered"]
    assert {"agent.spent", "agent.resulted", "agent.ended", "agent.closed"} <= {one["type"] for one in seen}
    assert {one["agent"] for one in seen if "agent" in one} == {agent}
    assert "spent Traveller" in table
    assert "1 usd" in table

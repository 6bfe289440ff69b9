from __future__ import annotations

import json
from pathlib import Path

from cli.commands import run_command
from node.peers import Start
from node.secured import TOKEN, Secured


def test_a_node_that_answers_is_printed_with_the_time_it_took(start: Start) -> None:
    address = start("--port", "0", "--name", "hall").address()
    bare = address.removeprefix("tidings://")
    code, output, _ = run_command("ping", bare)
    assert code == 0
    assert output.startswith("hall (")
    assert output.endswith(" ms\n")
    code, output, _ = run_command("ping", "--json", environment={"TIDINGS_NODE": address})
    found = json.loads(output)
    assert (code, found["address"], found["name"], len(found["node"])) == (0, address, "hall", 16)
    assert found["round_trip_s"] >= 0


def test_without_a_node_the_exit_code_is_one(tmp_path: Path) -> None:
    address = f"tidings+unix://{tmp_path}/none"
    code, output, errors = run_command("ping", address)
    assert (code, output) == (1, "")
    assert errors.startswith(f"tidings: no answer from {address}: ")
    code, output, _ = run_command("ping", address, "--json")
    assert code == 1
    assert json.loads(output).keys() == {"address", "error"}


def test_a_wrong_address_is_another_matter() -> None:
    assert run_command("ping", "http://h")[0] == 2


def test_a_node_with_security_answers_who_is_let_in(start: Start, tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    address = start("--port", "0", "--security", str(secured.path)).address()
    token = tmp_path / "token"
    token.write_text(TOKEN)
    options = ("--ca", str(secured.ca), "--token-file", str(token))
    assert run_command("ping", address, *options)[0] == 0
    token.write_text("x" * len(TOKEN))
    assert run_command("ping", address, *options)[0] == 1

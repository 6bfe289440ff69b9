"""Completion: by bash itself, and as zsh and fish are answered."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from node.peers import ANSWER_S_MAX, SOURCE
from typer.testing import CliRunner

from tidings.cli.app import app

CASES = {
    "tidings que": ["queue"],
    "tidings durable ": ["list", "delete"],
    "tidings queue list --scope r": ["remote"],
    "tidings publish --delivery re": ["reliable"],
    "tidings top --on": ["--once"],
    "tidings tou": [],
}
"""What stands on the command line, and what may follow; a hidden command may not."""
FOR_BASH = {line: CASES[line] for line in ("tidings que", "tidings durable ", "tidings queue list --scope r")}
"""Some of them: each starts a process."""

SCRIPT = """
eval "$(_TIDINGS_COMPLETE=source_bash tidings)"
complete -p tidings
while read -r line; do
    COMP_WORDS=($line) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    case $line in *_) COMP_WORDS[COMP_CWORD]='' ;; esac
    _tidings_completion tidings
    echo "${COMPREPLY[*]}"
done
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with the command, as it is installed."""
    command = tmp_path / "tidings"
    command.write_text(f"#!{sys.executable}\nfrom tidings.cli import main\nmain()\n")
    command.chmod(0o755)
    return tmp_path


def test_bash_completes_commands_options_and_values(home: Path) -> None:
    path = f"{home}{os.pathsep}{os.environ['PATH']}"
    lines = "".join(f"{line}_\n" if line.endswith(" ") else f"{line}\n" for line in FOR_BASH)
    done = subprocess.run(
        ["bash", "--norc", "-c", SCRIPT],
        input=lines,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(SOURCE), "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=ANSWER_S_MAX,
        check=True,
    )
    registered, *answers = done.stdout.splitlines()
    assert registered == "complete -o default -F _tidings_completion tidings"
    assert dict(zip(FOR_BASH, (line.split() for line in answers), strict=True)) == FOR_BASH


@pytest.mark.parametrize("shell", ["zsh", "fish"])
@pytest.mark.parametrize("line", CASES)
def test_other_shells_are_answered_alike(shell: str, line: str) -> None:
    asked = {
        "_TIDINGS_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    output = CliRunner(env=asked).invoke(app, prog_name="tidings").output
    assert all(word in output for word in CASES[line])
    assert "tour" not in output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    result = CliRunner(env={"_TIDINGS_COMPLETE": f"source_{shell}"}).invoke(app, prog_name="tidings")
    assert (result.exit_code, f"_TIDINGS_COMPLETE=complete_{shell}" in result.output) == (0, True)

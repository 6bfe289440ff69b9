"""Commands in this process, as `tidings.cli.main` runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from node.peers import ANSWER_S_MAX, SOURCE
from typer.testing import CliRunner

from tidings.cli.app import app
from tidings.errors import TidingsError


def run_command(
    *arguments: str, lines: str = "", environment: Mapping[str, str | None] | None = None
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    result = CliRunner(env={"COLUMNS": "200", **(environment or {})}).invoke(app, arguments, input=lines)
    if isinstance(result.exception, TidingsError):  # which `main` would print
        return 2, result.stdout, f"{result.stderr}tidings: {result.exception}\n"
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


class Commands:
    """The commands of one group, such as `tidings queue`, at a node: in this process, or in one of their own.

    The latter is for those that run others or are to be stopped.
    """

    def __init__(self, group: str, address: str) -> None:
        self.group = group
        self.environment = {"TIDINGS_NODE": address, "COLUMNS": "120"}

    def __call__(self, *arguments: str, lines: str = "") -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        return run_command(self.group, *arguments, lines=lines, environment=self.environment)

    def told(self, *arguments: str, lines: str = "") -> list[Any]:
        """What a command that must succeed tells with --json."""
        code, output, errors = self(*arguments, "--json", lines=lines)
        assert code == 0, errors
        return [json.loads(line) for line in output.splitlines()]

    def numbers(self, *arguments: str) -> list[int]:
        return [event["attributes"]["n"] for event in self.told(*arguments)]

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", "from tidings.cli import main; main()", self.group, *arguments],
            env={**os.environ, "PYTHONPATH": str(SOURCE), **self.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def apart(self, *arguments: str) -> tuple[int, str, str]:
        process = self.begin(*arguments)
        output, errors = process.communicate(timeout=ANSWER_S_MAX)
        return process.returncode, output, errors

"""The help of every command, its --json, and its row in the table of exit codes."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import typer

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "scripts")
        return import_module("command_help")


def run_by_itself(context: typer.Context) -> bool:
    """Whether this is a command, and not only a group of some."""
    return not hasattr(context.command, "commands") or context.command.invoke_without_command


def test_the_help_is_that_of_the_golden_file(script: ModuleType) -> None:
    assert script.PAGE.read_text() == script.page(), "run make generated"


def test_every_command_has_json(script: ModuleType) -> None:
    commands = [one for one in script.commands() if run_by_itself(one)]
    without = [
        one.command_path
        for one in commands
        if not any("--json" in param.opts for param in one.command.params)
    ]
    assert len(commands) > 50
    assert without == []


def test_every_command_has_its_row_in_the_table_of_exit_codes(script: ModuleType) -> None:
    table = (ROOT / "docs" / "cli.md").read_text().split("| command | exit code 1 |")[1].split("\n\n")[0]
    rows = [row.split(" | ")[0] for row in table.splitlines()[2:]]
    listed = [f"tidings {name}" for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert sorted(listed) == sorted(one.command_path for one in script.commands() if run_by_itself(one))

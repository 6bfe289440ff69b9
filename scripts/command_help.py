#!/usr/bin/env python3
"""Write the help of every command to `tests/cli/help.txt`, so that a change of it is seen in review."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import typer
from typer.main import get_command

from tidings.cli.app import app

PAGE = Path(__file__).parents[1] / "tests" / "cli" / "help.txt"
COLUMNS = 100
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def commands() -> Iterator[typer.Context]:
    """All commands and groups that the help of others shows, in its order."""
    command = get_command(app)
    yield from _below(typer.Context(command, info_name="tidings", **command.context_settings))


def _below(context: typer.Context) -> Iterator[typer.Context]:
    yield context
    for name, one in getattr(context.command, "commands", {}).items():
        if not one.hidden:
            yield from _below(typer.Context(one, parent=context, info_name=name))


def page() -> str:
    """Return the help of all commands, one after the other."""
    return "\n".join(map(_help, commands()))


def _help(context: typer.Context) -> str:
    with redirect_stdout(StringIO()) as printed, patch.dict(os.environ, COLUMNS=str(COLUMNS)):
        context.command.get_help(context)
    lines = (line.rstrip() for line in _STYLE.sub("", printed.getvalue()).splitlines())
    text = "\n".join(line for line in lines if line)
    return f"$ {context.command_path} --help\n{text}\n"


if __name__ == "__main__":
    PAGE.write_text(page())

"""The tutorial in `docs/tutorial.md`: each command is run, and prints what is shown."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest
from walking import Machine, steps

TEXT = (Path(__file__).parent.parent / "docs" / "tutorial.md").read_text()
PORT = "7300"
"""The port of the document; where it is run, that is a free one."""


@pytest.mark.slow
def test_every_step_prints_what_is_shown(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDINGS_")}
    own = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "200"}
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = str(one.getsockname()[1])
    environment = {**kept, **own, "TIDINGS_COMPILED": "false"}
    with Machine(tmp_path / "you", {PORT: port}, environment) as you:
        for step in steps(TEXT):
            printed = you.carry_out(step)
            assert step.pattern.fullmatch(printed), f"$ {step.command}\n{printed}"


def test_each_part_of_the_way_is_there() -> None:
    commands = [step.command for step in steps(TEXT)]
    for part in ("tidings node", "publish", "subscribe", "--durable", "queue put", "kill -9", "filter check"):
        assert any(part in command for command in commands), part

"""The tutorial in `docs/tutorial.md`: each command is run, and prints what is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from ports import free_port
from walking import Machine, follow, steps, surroundings

TEXT = (Path(__file__).parent.parent / "docs" / "tutorial.md").read_text()
PORT = "7300"
"""The port of the document; where it is run, that is a free one."""


@pytest.mark.slow
def test_every_step_prints_what_is_shown(tmp_path: Path) -> None:
    with Machine(tmp_path / "you", {PORT: str(free_port())}, surroundings()) as you:
        follow(TEXT, {"you": you})


def test_each_part_of_the_way_is_there() -> None:
    commands = [step.command for step in steps(TEXT)]
    for part in ("tidings node", "publish", "subscribe", "--durable", "queue put", "kill -9", "filter check"):
        assert any(part in command for command in commands), part

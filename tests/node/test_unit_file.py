"""The service for systemd: what it starts exists, and systemd understands all of it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from tidings.cli.app import app
from tidings.node.config import NodeConfig
from tidings.node.ports import DESCRIPTORS_SPARE

PACKAGING = Path(__file__).parents[2] / "packaging"
UNIT = (PACKAGING / "tidings.service").read_text()


def setting(name: str) -> str:
    """The value of a setting that stands once in the unit."""
    (value,) = re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)
    return str(value)


def test_the_command_and_its_flags_are_there() -> None:
    program, command, *arguments = shlex.split(setting("ExecStart"))
    assert Path(program).name == "tidings"
    known = {flag for parameter in get_command(app).commands[command].params for flag in parameter.opts}
    assert {one for one in arguments if one.startswith("-")} <= known


def test_it_waits_for_the_notifications_that_a_node_sends() -> None:
    assert setting("Type") == "notify"
    assert setting("WatchdogSec") == "60s"


def test_all_connections_that_a_node_takes_have_a_descriptor() -> None:
    assert int(setting("LimitNOFILE")) >= NodeConfig().connections_max + DESCRIPTORS_SPARE


def test_the_user_is_one_that_is_made() -> None:
    kind, name, *_, home = shlex.split((PACKAGING / "tidings.sysusers").read_text().splitlines()[-1])
    assert (kind, name) == ("u", setting("User"))
    assert home == f"/var/lib/{setting('StateDirectory')}"


def test_memory_may_become_code_as_the_compiler_needs_it() -> None:
    assert not re.search(r"^MemoryDenyWriteExecute=", UNIT, re.MULTILINE)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_has_nothing_to_say_against_it(tmp_path: Path) -> None:
    program = shlex.split(setting("ExecStart"))[0]
    file = tmp_path / "tidings.service"
    file.write_text(UNIT.replace(program, sys.executable))
    run = subprocess.run(
        ["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")

"""The walk-through in `docs/two-machines.md` is walked: each command is run, and prints what is shown.

The machines are two folders of this one, and their addresses are of the loopback network, all of which
answers on Linux. What is copied from one to the other goes through a stand-in for `scp`.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from walking import Machine, follow, replaced, steps, surroundings

TEXT = (Path(__file__).parent.parent / "docs" / "two-machines.md").read_text()
ADDRESSES = {"10.0.0.7": "127.0.0.7", "10.0.0.8": "127.0.0.8"}
"""Addresses in the document, and what they are where it is run."""
MACHINES = dict(zip(("laptop", "shed"), ADDRESSES.values(), strict=True))
PORT = 7300
"""The port of the document; where it is run, that is a free one."""
SCP = """#!/bin/bash
to=${@: -1:1}
cp "${@:1:$#-1}" "$MACHINES/${to/://}"
"""


@pytest.fixture
def machines() -> Iterator[dict[str, Machine]]:
    with TemporaryDirectory(prefix="walk-") as folder:
        home = Path(folder)
        scp = home / "bin" / "scp"
        scp.parent.mkdir()
        scp.write_text(SCP)
        scp.chmod(0o755)
        path = f"{scp.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        own = surroundings(PATH=path, MACHINES=folder)
        terms = {**ADDRESSES, str(PORT): str(free_port())}
        with (
            Machine(home / MACHINES["laptop"], terms, own) as laptop,
            Machine(home / MACHINES["shed"], terms, own) as shed,
        ):
            yield {"laptop": laptop, "shed": shed}


def free_port() -> int:
    """One that neither machine uses just now."""
    with socket.socket() as one, socket.socket() as other:
        one.bind((MACHINES["laptop"], 0))
        port: int = one.getsockname()[1]
        other.bind((MACHINES["shed"], port))
        return port


@pytest.mark.slow
def test_every_step_prints_what_is_shown(machines: dict[str, Machine]) -> None:
    follow(TEXT, machines)


def test_each_part_of_the_way_is_there() -> None:
    commands = [step.command for step in steps(TEXT)]
    for part in (
        "security init",
        "security invite",
        "--join",
        "scp",
        "publish",
        "peer list",
        "@laptop",
        "kill",
        "revoke",
    ):
        assert any(part in command for command in commands), part


def test_a_prompt_in_the_document_names_a_machine() -> None:
    assert {step.machine for step in steps(TEXT)} == set(MACHINES)


def test_a_free_port_that_has_another_port_in_it_is_left_as_it_is() -> None:
    ports = {"7300": "42429", "4242": "44021"}
    assert replaced("--port 7300 --sensor-port 4242", ports) == "--port 42429 --sensor-port 44021"
    assert replaced("nothing", {}) == "nothing"

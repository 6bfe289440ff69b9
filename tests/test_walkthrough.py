"""The walk-through in `docs/two-machines.md` is walked: each command is run, and prints what is shown.

The machines are two folders of this one, and their addresses are of the loopback network, all of which
answers on Linux. Each has a shell of its own, so variables and jobs last from one command to the next. What
is copied from one to the other goes through a stand-in for `scp`.
"""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Self

import pytest

TEXT = (Path(__file__).parent.parent / "docs" / "two-machines.md").read_text()
ADDRESSES = {"10.0.0.7": "127.0.0.7", "10.0.0.8": "127.0.0.8"}
"""Addresses in the document, and what they are where it is run."""
MACHINES = dict(zip(("laptop", "shed"), ADDRESSES.values(), strict=True))
PORT = 7300
"""The port of the document; where it is run, that is a free one."""
PATIENCE_S = 60.0
LOOK_S = 0.1
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMPT = re.compile(rf"^({'|'.join(MACHINES)})\$ ", re.MULTILINE)
LATER = "# after a moment"
"""Behind a command that is run again until it prints what is shown."""
SCP = """#!/bin/bash
to=${@: -1:1}
cp "${@:1:$#-1}" "$MACHINES/${to/://}"
"""


class Step(NamedTuple):
    machine: str
    command: str
    shown: str

    @property
    def pattern(self) -> re.Pattern[str]:
        """What it must print: … stands for whatever is on that line."""
        return re.compile(re.escape(narrow(self.shown)).replace("…", ".*"))


def steps() -> Iterator[Step]:
    """The commands of the document, in order; what stands before the first one of a block is none."""
    for block in BLOCK.finditer(TEXT):
        before, *parts = PROMPT.split(block[1])
        assert not before, f"{before!r} is not printed by anything"
        for machine, rest in zip(parts[::2], parts[1::2], strict=True):
            command, _, shown = rest.partition("\n")
            yield Step(machine, command, shown)


def narrow(text: str) -> str:
    """The text with one blank for many: how wide a table is depends on the addresses in it."""
    return re.sub(r" +(\n?)", lambda found: found[1] or " ", text)


class Machine:
    """A folder with a shell in it, which is told commands and says what they print."""

    def __init__(self, home: Path, port: int, environment: dict[str, str]) -> None:
        home.mkdir()
        self._terms = {**ADDRESSES, str(PORT): str(port)}
        self._heard = ""
        self._count = 0
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=home,
            env=environment,
            start_new_session=True,
            bufsize=0,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.communicate()

    def carry_out(self, step: Step) -> str:
        """What a command prints; one that goes on running has time to print what is shown."""
        deadline = time.monotonic() + PATIENCE_S
        if step.command.endswith("&"):
            self._type(step.command)
            return self._read(step.pattern, deadline)
        printed = self._run(step.command, deadline)
        while step.command.endswith(LATER) and time.monotonic() < deadline:
            if step.pattern.fullmatch(printed):
                break
            printed = self._run(step.command, deadline)
        return printed

    def _run(self, command: str, deadline: float) -> str:
        self._count += 1
        mark = f"done with {self._count}\n"
        self._type(f"{{ {command}\n}} < /dev/null; echo {mark}")
        return self._read(re.compile(f".*{mark}", re.DOTALL), deadline).removesuffix(mark)

    def _type(self, command: str) -> None:
        assert self._shell.stdin is not None
        for term, here in self._terms.items():
            command = command.replace(term, here)
        self._shell.stdin.write(f"{command}\n".encode())

    def _read(self, wanted: re.Pattern[str], deadline: float) -> str:
        """What is printed up to where it is as wanted, or all there is when the time is over."""
        assert self._shell.stdout is not None
        while not (found := wanted.match(self._heard)) and time.monotonic() < deadline:
            if select.select([self._shell.stdout], [], [], LOOK_S)[0]:
                told = os.read(self._shell.stdout.fileno(), 1 << 16).decode()
                self._heard = narrow(self._heard + self._as_shown(told))
        end = len(self._heard) if found is None else found.end()
        printed, self._heard = self._heard[:end], self._heard[end:]
        return printed

    def _as_shown(self, text: str) -> str:
        for term, here in self._terms.items():
            text = text.replace(here, term)
        return text


@pytest.fixture
def machines() -> Iterator[dict[str, Machine]]:
    with TemporaryDirectory(prefix="walk-") as folder:
        home = Path(folder)
        scp = home / "bin" / "scp"
        scp.parent.mkdir()
        scp.write_text(SCP)
        scp.chmod(0o755)
        path = f"{scp.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        own = {"PATH": path, "MACHINES": folder, "COLUMNS": "200", "TIDINGS_COMPILED": "false"}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDINGS_")}
        port = free_port()
        with (
            Machine(home / MACHINES["laptop"], port, {**kept, **own}) as laptop,
            Machine(home / MACHINES["shed"], port, {**kept, **own}) as shed,
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
    for step in steps():
        printed = machines[step.machine].carry_out(step)
        assert step.pattern.fullmatch(printed), f"{step.machine}$ {step.command}\n{printed}"


def test_each_part_of_the_way_is_there() -> None:
    commands = [step.command for step in steps()]
    for part in (
        "security init",
        "security node",
        "scp",
        "publish",
        "peer list",
        "@laptop",
        "kill",
        "revoke",
    ):
        assert any(part in command for command in commands), part


def test_a_prompt_in_the_document_names_a_machine() -> None:
    shown = "".join(block[1] for block in BLOCK.finditer(TEXT))
    assert set(re.findall(r"^(\w+)\$", shown, re.MULTILINE)) == set(MACHINES)

"""Walks through documents: each command of their console blocks is run, and what it prints is looked at.

The prompt says on which machine a command is typed. Each machine is a folder of this one with a shell of its
own, so variables and jobs last from one command to the next.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Self

LOOK_S = 0.1
SHOWN_OF_LOG = 4000
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LATER = "# after a moment"
"""Behind a command that is run again until it prints what is shown."""


class Step(NamedTuple):
    machine: str
    command: str
    shown: str

    @property
    def pattern(self) -> re.Pattern[str]:
        """What it must print: … stands for whatever is on that line."""
        return re.compile(re.escape(narrow(self.shown)).replace("…", ".*"))


def steps(text: str) -> Iterator[Step]:
    """The commands of a document, in order; what stands before the first one of a block is none."""
    for block in BLOCK.finditer(text):
        before, *parts = re.split(r"^(\w+)\$ ", block[1], flags=re.MULTILINE)
        assert not before, f"{before!r} is not printed by anything"
        for machine, rest in zip(parts[::2], parts[1::2], strict=True):
            command, _, shown = rest.partition("\n")
            yield Step(machine, command, shown)


def narrow(text: str) -> str:
    """The text with one blank for many: how wide a table is depends on the addresses in it."""
    return re.sub(r" +(\n?)", lambda found: found[1] or " ", text)


def surroundings(**own: str) -> dict[str, str]:
    """The environment of a machine: this one without settings of tidings, with `tidings` and these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDINGS_")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**kept, "PATH": path, "COLUMNS": "200", "TIDINGS_COMPILED": "false", **own}


def follow(text: str, machines: Mapping[str, Machine]) -> None:
    """Run every command of a document on the machine it names, and see that it prints what is shown."""
    for step in steps(text):
        machine = machines[step.machine]
        printed = machine.carry_out(step)
        assert step.pattern.fullmatch(printed), f"{step.machine}$ {step.command}\n{printed}\n{machine.logs()}"


def replaced(text: str, terms: Mapping[str, str]) -> str:
    """Return a text with other words for its terms; what was put in is left alone, whatever is in it."""
    if not terms:
        return text
    longest_first = sorted(terms, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), lambda found: terms[found[0]], text)


class Machine:
    """A folder with a shell in it, which is told commands and says what they print.

    `terms` are addresses and ports of the document, and what they are here; `patience_s` is how long a
    command may take.
    """

    def __init__(
        self, home: Path, terms: Mapping[str, str], environment: dict[str, str], patience_s: float = 60.0
    ) -> None:
        home.mkdir()
        self._home = home
        self._terms = terms
        self._patience_s = patience_s
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
        deadline = time.monotonic() + self._patience_s
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
        self._shell.stdin.write(f"{self.here(command)}\n".encode())

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

    def logs(self) -> str:
        """The end of everything that programs in the background have written into files."""
        found = sorted(self._home.glob("*.log"))
        return "\n".join(
            f"{path.name}:\n{path.read_text(errors='replace')[-SHOWN_OF_LOG:]}" for path in found
        )

    def here(self, text: str) -> str:
        """A text of the document with what its terms are here."""
        return replaced(text, self._terms)

    def _as_shown(self, text: str) -> str:
        return replaced(text, {here: term for term, here in self._terms.items()})

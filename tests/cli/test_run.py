"""`tidings run`: apps of modules, what is wrong with them, and how they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli.commands import run_command

from tidings.cli import run
from tidings.client.runner import Runner
from tidings.node.config import NodeConfig
from tidings.node.server import Node

PAINTING = """
import asyncio, os, signal
import tidings

app = tidings.App()
other = 3

@app.work("jobs", concurrency=2)
async def paint(message):
    print("painted", message["door"], flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    if message["door"] == 2:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

@app.on("type = 'air.pm10' AND value > 40")
def warn(event): ...

@app.serve("div")
def divide(request): ...
"""

Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module into the current directory, which is forgotten after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)

    def write(name: str, text: str) -> None:
        (tmp_path / name).write_text(text)

    yield write
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) in {str(path) for path in tmp_path.glob("*.py")}:
            del sys.modules[name]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A node beside the test, in a thread."""
    runner, node = Runner(), Node(NodeConfig(unix=str(tmp_path / "socket"), compiled=False))
    runner.run(node.start())
    yield f"tidings+unix://{tmp_path / 'socket'}"
    runner.run(node.close())
    runner.stop()


def test_the_handlers_are_listed_without_a_node(write: Write) -> None:
    write("painting.py", PAINTING)
    code, output, errors = run_command("run", "painting:app", "--check")
    assert (code, errors) == (0, "")
    assert [line.split() for line in output.splitlines()] == [
        ["what", "handler", "of", "concurrency"],
        ["work", "paint", "jobs", "2"],
        ["on", "warn", "type", "=", "'air.pm10'", "AND", "value", ">", "40", "1"],
        ["serve", "divide", "div", "1"],
    ]
    _, output, _ = run_command("run", "painting", "--check", "--json")
    assert json.loads(output.splitlines()[0]) == {
        "kind": "work",
        "handler": "paint",
        "target": "jobs",
        "concurrency": 2,
    }


@pytest.mark.parametrize(("door", "code", "left"), [(1, 0, 0), (2, 1, 1)])
def test_a_signal_stops_an_app_gracefully_and_a_second_one_at_once(
    write: Write, address: str, door: int, code: int, left: int
) -> None:
    write("painting.py", PAINTING)
    at = ("--node", address)
    assert run_command("queue", "create", "jobs", *at)[0] == 0
    assert run_command("queue", "put", "jobs", "job", f"door={door}", *at)[0] == 0
    assert run_command("run", "painting:app", *at) == (
        *(code, f"painted {door}\n"),
        "running painting:app, 3 handlers; Ctrl-C ends\n",
    )
    described = json.loads(run_command("queue", "describe", "jobs", "--json", *at)[1])
    assert described["messages"] == left


def test_an_app_whose_queue_is_not_there_says_how_to_make_it(write: Write, address: str) -> None:
    write("painting.py", PAINTING)
    code, output, errors = run_command("run", "painting:app", "--node", address)
    assert (code, output) == (2, "")
    assert errors.splitlines()[1].startswith(
        "tidings: queue 'jobs': there is no such queue for handler paint; create it with "
        "'tidings queue create jobs'"
    )


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nothing:app", "there is no module 'nothing' in {here} or on the path; name one as MODULE:APP"),
        ("nothing.more:app", "there is no module 'nothing.more' in {here}"),
        (":app", "there is no module '' in {here}"),
        (".painting:app", "there is no module '.painting' in {here}"),
        ("painting.py:app", "'painting.py' is a file; name its module: painting:app"),
        ("sub/painting.py", "'sub/painting.py' is a file; name its module: sub.painting:app"),
        ("painting:ap", "module 'painting' has no 'ap'; use painting:app"),
        (
            "painting:other",
            "module 'painting' has 'other', which is no tidings.App but int; use painting",
        ),
        ("empty", "module 'empty' has no 'app'; make one with app = tidings.App()"),
    ],
)
def test_an_app_that_is_not_there_is_one_line_with_what_to_do(
    write: Write, tmp_path: Path, target: str, said: str
) -> None:
    write("painting.py", PAINTING)
    write("empty.py", "")
    code, output, errors = run_command("run", target, "--check")
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert errors.startswith("tidings: " + said.format(here=tmp_path))


def test_an_error_in_the_module_is_not_hidden(write: Write) -> None:
    write("broken.py", "import nothing_that_is_there")
    with pytest.raises(ModuleNotFoundError, match="nothing_that_is_there"):
        run.load("broken:app")


# -- reloading


class Child:
    """A process that ends when it is told to."""

    def __init__(self, told: list[str]) -> None:
        self._told = told
        told.append("begun")

    def terminate(self) -> None:
        self._told.append("terminated")

    def wait(self) -> int:
        self._told.append("ended")
        return 0


def test_a_changed_file_restarts_the_app_and_a_signal_ends_it(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    write("painting.py", PAINTING)

    def look(_seconds: float) -> None:
        if told.count("begun") == 1:
            os.utime(tmp_path / "painting.py", (1.0, 1.0))
        else:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(run, "begin", lambda: Child(told))
    monkeypatch.setattr(run, "time", SimpleNamespace(sleep=look))  # not that of other threads
    code, _, errors = run_command("run", "painting:app", "--reload")
    assert (code, errors) == (0, "a file has changed; restarting\n")
    assert told == ["begun", "terminated", "ended", "begun", "terminated", "ended"]


def test_the_process_that_is_restarted_runs_the_same_command(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("painting.py", PAINTING)
    monkeypatch.setattr(sys, "argv", ["tidings", "run", "painting:app", "--reload", "--check"])
    monkeypatch.setenv("PYTHONPATH", str(Path(run.__file__).parents[2]))
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda words, **options: popen(words, stdout=subprocess.PIPE, **options)
    )
    output, _ = run.begin().communicate()
    assert b"divide" in output


def test_files_are_watched_below_the_directory_but_not_hidden_ones(write: Write, tmp_path: Path) -> None:
    for folder in ("sub", ".venv", "__pycache__"):
        (tmp_path / folder).mkdir()
        write(f"{folder}/module.py", "")
    write("page.txt", "")
    assert [path.relative_to(tmp_path) for path in run.changes()] == [Path("sub", "module.py")]

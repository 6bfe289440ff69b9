"""Output that can't be written ends a command with its exit code, and without a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from node.peers import ANSWER_S_MAX, SOURCE

from tidings.cli import checked_output

FULL = "/dev/full"
needs_full = pytest.mark.skipif(not Path(FULL).exists(), reason="this system has no /dev/full")


def end_with(stream: str, text: str) -> None:
    """A command that prints, and does not flush."""
    with checked_output():
        getattr(sys, stream).write(text)
        sys.exit(0)


def written_to(
    path: str, text: str, monkeypatch: pytest.MonkeyPatch, stream: str = "stdout"
) -> int | str | None:
    """Exit code of a command that prints to a file."""
    with Path(path).open("w") as file:
        monkeypatch.setattr(sys, stream, file)
        with pytest.raises(SystemExit) as stopped:
            end_with(stream, text)
    return stopped.value.code


@needs_full
@pytest.mark.parametrize("text", ["short", "long" * 100_000])
def test_a_full_disk_is_an_error(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert written_to(FULL, text, monkeypatch) == 2
    assert capsys.readouterr().err == "tidings: standard output: No space left on device\n"


@needs_full
def test_a_full_disk_below_standard_error_is_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert written_to(FULL, "oh", monkeypatch, "stderr") == 2


def test_a_file_gets_everything_in_its_encoding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert written_to(str(tmp_path / "out"), "größer …\n", monkeypatch) == 0
    assert (tmp_path / "out").read_text() == "größer …\n"


def print_twice() -> None:
    """A command that says something while it ends."""
    with checked_output():
        try:
            typer.echo("first")
        finally:
            typer.echo("second")


def test_a_reader_that_is_gone_ends_a_command_quietly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        with pytest.raises(SystemExit) as stopped:
            print_twice()
    assert (stopped.value.code, capsys.readouterr().err) == (141, "")


def test_a_closed_standard_output_discards_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    print_twice()


@needs_full
def test_the_module_is_the_command() -> None:
    with Path(FULL).open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tidings", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=ANSWER_S_MAX,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )
    assert (done.returncode, done.stderr) == (2, "tidings: standard output: No space left on device\n")

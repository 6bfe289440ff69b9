"""Options are converted as typer converts them, with and without pydantic."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command

from tidings.cli.app import use

TAKEN: list[dict[str, Any]] = []


def take(
    text: Annotated[str, typer.Option()] = "a",
    whole: Annotated[int, typer.Option()] = 1,
    port: Annotated[int, typer.Option(min=1, max=10_000)] = 2,
    real: Annotated[float, typer.Option()] = 0.5,
    part: Annotated[float, typer.Option(min=0.0, max=1.0)] = 1,
    folder: Annotated[Path, typer.Option()] = Path(),
    maybe: Annotated[int | None, typer.Option()] = None,
    several: Annotated[list[str] | None, typer.Option()] = None,
    flag: Annotated[bool | None, typer.Option("--flag/--no-flag")] = None,
) -> None:
    TAKEN.append(dict(locals()))


def command(is_ours: bool) -> Any:
    made = typer.Typer()
    made.command()(take)
    if is_ours:
        use(made)
    return get_command(made)


OURS, TYPERS = command(is_ours=True), command(is_ours=False)


def outcome(of: Any, arguments: list[str]) -> Any:
    """What the command was called with, kinds and all, or its error."""
    TAKEN.clear()
    try:
        of.main(arguments, "take", standalone_mode=False)
    except Exception as error:  # whatever typer raises
        return type(error), str(error)
    return [(name, type(value), value) for name, value in TAKEN.pop().items()]


NUMBERS = ["0", "-0", "7", "-7", "007", "1_0", "+3", " 4", "٣", "1.0", "1.5", ".5", "1e3", "nan", "0x1"]
VALUES = st.one_of(
    st.sampled_from([*NUMBERS, "", "-", "true", "/", "/nowhere", "10000", "10001", "9" * 19, "1." + "3" * 9]),
    st.integers().map(str),
    st.floats().map(str),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
)
OPTIONS = st.sampled_from(["text", "whole", "port", "real", "part", "folder", "maybe", "several"])


@given(st.lists(st.tuples(OPTIONS, VALUES), max_size=3), st.sampled_from([[], ["--flag"], ["--no-flag"]]))
def test_a_command_is_called_with_what_typer_makes_of_its_options(
    options: list[tuple[str, str]], flags: list[str]
) -> None:
    arguments = [f"--{name}={value}" for name, value in options] + flags
    assert outcome(OURS, arguments) == outcome(TYPERS, arguments)


def test_a_file_that_can_not_be_read_is_refused_as_by_typer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("os.access", lambda *_: False)
    arguments = [f"--folder={tmp_path / 'file'}"]
    assert outcome(OURS, arguments) == outcome(TYPERS, arguments)


def test_a_command_with_plain_options_does_not_import_pydantic() -> None:
    code = "import sys; from tidings.cli.app import app; app(sys.argv[1:], standalone_mode=False); "
    code += "print('pydantic' in sys.modules)"
    words = ["filter", "check", "value > 1"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"

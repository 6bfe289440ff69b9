from __future__ import annotations

import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import tidings
from tidings import cli
from tidings.cli.app import COMMANDS, PANELS, app
from tidings.errors import MissingExtra


def test_the_version_is_printed() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"tidings {tidings.__version__}\n")


def test_without_a_command_the_help_names_them_all() -> None:
    output = CliRunner().invoke(app, []).output
    assert all(name in output for name in ("demo", "filter", "bench"))


def test_the_command_that_the_demo_has_replaced_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert "tour" not in CliRunner().invoke(app, []).output
    with pytest.raises(SystemExit) as stopped:
        run_command("tour")
    assert (stopped.value.code, capsys.readouterr().err) == (
        2,
        "tidings: there is no tour any more; use 'tidings demo'\n",
    )


def run_command(*words: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["tidings", *words])
        cli.main()


def test_without_the_node_extra_the_command_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tidings.cli.app")
    monkeypatch.delattr(cli, "app")
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert "pip install 'tidings[node]'" in str(stopped.value)


def test_an_error_of_tidings_is_a_message_and_not_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise MissingExtra("the regular expression", "node")

    monkeypatch.setattr("tidings.cli.app.app", fail)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("tidings: the regular expression needs the 'node' extra")


def test_help_does_not_pay_for_the_index_or_the_broker() -> None:
    heavy = ("numpy", "numba", "pyarrow", "tidings.filters", "tidings.protocol", "tidings.queues")
    code = f"import sys, tidings.cli.app; print(*[m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""


@pytest.mark.parametrize("name", [name for name, (_, line) in COMMANDS.items() if line])
def test_the_list_of_commands_shows_the_first_line_of_their_help(name: str) -> None:
    assert get_command(app).commands[name].help.partition("\n")[0] == COMMANDS[name][1]


def test_every_command_of_the_list_is_in_one_panel() -> None:
    in_panels = [name for names in PANELS.values() for name in names]
    assert sorted(in_panels) == sorted(name for name, (_, line) in COMMANDS.items() if line)


def words_of(*command: str) -> list[str]:
    """The words that a command prints on a terminal of 60 columns."""
    result = CliRunner(env={"COLUMNS": "60"}).invoke(app, command)
    return (result.stdout + result.stderr).replace("│", " ").split()


def test_help_fills_its_lines_and_names_no_type_of_a_flag() -> None:
    printed = CliRunner(env={"COLUMNS": "60"}).invoke(app, ["node", "--help"]).output
    paragraph = printed[printed.index("Settings come") : printed.index("╭")].strip().splitlines()
    assert all(len(line.strip()) > 40 for line in paragraph[:-1])
    assert "<bool>" not in printed


@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        (("nonsense",), "publish, subscribe,"),
        (("queue", "dead", "nonsense"), "the commands are: replay, purge."),
        (("queue", "list", "--scope", "nonsense"), "'local', 'remote', 'both'"),
        (("queue", "lst"), "Did you mean 'list'?"),
    ],
)
def test_an_error_lists_the_allowed_values(command: tuple[str, ...], allowed: str) -> None:
    assert allowed in " ".join(words_of(*command))

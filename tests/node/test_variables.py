from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidings import cli
from tidings.node.settings import SETTINGS
from tidings.node.variables import CLIENT, OF_OTHERS, PREFIX, misspelt, new_hints

ROOT = Path(__file__).parents[2]


def test_settings_and_the_variables_of_clients_are_known() -> None:
    assert misspelt(dict.fromkeys([*CLIENT, *(one.variable for one in SETTINGS.values())], "")) == {}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("TIDINGS_PROT", "TIDINGS_PORT"),
        ("TIDINGS_NOD", "TIDINGS_NODE"),
        ("TIDINGS_HTTPPORT", "TIDINGS_HTTP_PORT"),
        ("TIDINGS_Security", "TIDINGS_SECURITY"),
        ("TIDINGS_PASSWD_FILE", "TIDINGS_PASSWORD_FILE"),
    ],
)
def test_a_name_that_is_close_to_one_of_ours_is_probably_misspelt(name: str, meant: str) -> None:
    assert misspelt({name: "", "TIDINGS_PORT": "7300", "PROT": ""}) == {name: meant}


def test_variables_of_other_programs_are_passed_over() -> None:
    assert misspelt({"TIDINGS_COLOUR": "", "TIDINGS_CITY_NODE": "", "TIDINGS": "", "HOME": "/"}) == {}


def test_no_variable_that_is_read_somewhere_is_taken_for_a_misspelt_one() -> None:
    """Those of tests, benchmarks and examples, too: whoever sets them must see no warning."""
    folders = ("src", "tests", "benchmarks", "scripts", "examples")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    texts = [file.read_text() for file in files if file.name != Path(__file__).name]
    names = {name for text in texts for name in re.findall(rf"\b{PREFIX}[A-Z][A-Z_]*[A-Z]\b", text)}
    assert {"TIDINGS_PORT", "TIDINGS_EFFORT"} <= names
    assert misspelt(dict.fromkeys(names - {"TIDINGS_NOED"}, "")) == {}
    assert all(prefix.startswith(PREFIX) for prefix in OF_OTHERS)


def test_a_command_prints_which_variables_are_probably_misspelt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDINGS_PROT", "7301")
    monkeypatch.setattr("tidings.node.variables._reported", set())
    monkeypatch.setattr("sys.argv", ["tidings", "--version"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    assert capsys.readouterr().err == "tidings: unknown variable: TIDINGS_PROT; did you mean TIDINGS_PORT?\n"
    assert new_hints({"TIDINGS_PROT": "7301"}) == []  # connect, which a command calls, does not repeat it

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from tidings import Filter
from tidings.cli.app import app
from tidings.cli.filter import pointer
from tidings.errors import FilterError

LINES = """\
{"type": "air.pm10", "value": 61.5}
{"type": "air.pm10", "value": 12}

{"type": "job", "number": 7}
"""
MISTAKE = "type = 'a' AND value => 40"


def run(*arguments: str, lines: str = "") -> Result:
    return CliRunner().invoke(app, ["filter", *arguments], input=lines)


def test_check_prints_a_filter_that_means_the_same() -> None:
    result = run("check", "value>40 and type='a'")
    assert result.exit_code == 0
    assert Filter(result.stdout.strip()) == Filter("value>40 and type='a'")


def test_check_as_json() -> None:
    result = run("check", "value > 40", "--json")
    assert json.loads(result.stdout) == {"filter": str(Filter("value > 40")), "notes": []}


def test_check_prints_the_notes_behind_the_filter() -> None:
    result = run("check", "priority = '3'")
    assert result.exit_code == 0
    assert result.stdout == "priority = '3'\n"
    assert result.stderr == "note: priority = '3': priority is a number from 0 to 9; write 3\n"


def test_check_as_json_has_the_notes_in_the_object() -> None:
    result = run("check", "a BETWEEN 5 AND 1", "--json")
    (note,) = json.loads(result.stdout)["notes"]
    assert note == {
        "condition": "a BETWEEN 5 AND 1",
        "problem": "5 is greater than 1",
        "hint": "write BETWEEN 1 AND 5",
        "never": True,
    }
    assert result.stderr == ""


@pytest.mark.parametrize("options", [["--strict"], ["--strict", "--json"]])
def test_a_strict_check_fails_only_if_there_are_notes(options: list[str]) -> None:
    assert run("check", 'name = "x"', *options).exit_code == 1
    assert run("check", "name = 'x'", *options).exit_code == 0


def test_a_mistake_is_shown_with_a_caret_under_its_column() -> None:
    result = run("check", MISTAKE)
    with pytest.raises(FilterError) as raised:
        Filter(MISTAKE)
    line, caret, message = result.stderr.splitlines()
    assert result.exit_code == 2
    assert result.stdout == ""
    assert line == MISTAKE
    assert caret.index("^") + 1 == raised.value.column
    assert message == str(raised.value)


def test_a_mistake_as_json_has_its_place() -> None:
    result = run("check", MISTAKE, "--json")
    error = json.loads(result.stdout)["error"]
    assert result.exit_code == 2
    assert error["line"] == 1
    assert set(error) == {"problem", "line", "column", "hint"}


@given(st.text(alphabet="ab\t\n", min_size=1), st.data())
def test_the_caret_stands_under_its_column_in_any_text(text: str, data: st.DataObject) -> None:
    lines = text.splitlines()
    number = data.draw(st.integers(1, len(lines)))
    column = data.draw(st.integers(1, len(lines[number - 1]) + 1))
    shown = pointer(text, FilterError("wrong", number, column)).split("\n")
    assert shown[0].expandtabs() == lines[number - 1].expandtabs()
    assert shown[1].expandtabs().index("^") == len(lines[number - 1][: column - 1].expandtabs())


def test_a_mistake_without_a_place_has_no_caret() -> None:
    assert pointer("x", FilterError("wrong")) == ""


def test_test_prints_the_lines_that_match_as_they_came() -> None:
    result = run("test", "value > 40", lines=LINES)
    assert (result.exit_code, result.stdout) == (0, LINES.splitlines(keepends=True)[0])


def test_test_as_json_tells_the_outcome_of_every_line() -> None:
    result = run("test", "value > 40", "--json", lines=LINES)
    outcomes = [json.loads(line) for line in result.stdout.splitlines()]
    assert outcomes == [
        {"line": 1, "matches": True},
        {"line": 2, "matches": False},
        {"line": 4, "matches": False},
    ]


def test_a_line_that_is_no_event_is_reported_and_passed_over() -> None:
    result = run("test", "value > 40", lines='{"type": 3}\nnonsense\n' + LINES)
    assert result.exit_code == 2
    assert result.stdout == LINES.splitlines(keepends=True)[0]
    assert [line.partition(":")[0] for line in result.stderr.splitlines()] == ["line 1", "line 2"]


def test_test_with_a_mistyped_filter_reads_nothing() -> None:
    result = run("test", MISTAKE, lines=LINES)
    assert (result.exit_code, result.stdout) == (2, "")

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from tidings.node import logs


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_for_people_has_moment_level_and_values() -> None:
    stream = io.StringIO()
    logs.show("info", "text", stream)
    logs.info("listening", address="tidings://127.0.0.1:1", why="two words", nothing="")
    moment, rest = stream.getvalue().rstrip("\n").split(" ", 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", moment)
    assert rest == "info listening address=tidings://127.0.0.1:1 why='two words' nothing=''"


def test_a_line_for_programs_is_json() -> None:
    stream = io.StringIO()
    logs.show("debug", "json", stream)
    logs.warning("odd", count=3, kind=ValueError)
    line = json.loads(stream.getvalue())
    assert (line["level"], line["event"], line["count"]) == ("warning", "odd", 3)


def test_lines_below_the_level_are_left_out() -> None:
    stream = io.StringIO()
    logs.show("warning", "text", stream)
    logs.info("usual")
    logs.log("debug", "detail")
    logs.error("bad")
    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_value_can_not_make_a_second_line(form: logs.LogForm) -> None:
    stream = io.StringIO()
    logs.show("info", form, stream)
    logs.info("peer", name="a\nerror forged=yes", odd="\x1b[2J")
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()


def test_what_other_libraries_log_is_written_too_with_its_traceback() -> None:
    stream = io.StringIO()
    logs.show("info", "json", stream)
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("asyncio").exception("it %s", "failed")
    line = json.loads(stream.getvalue())
    assert (line["event"], line["logger"]) == ("it failed", "asyncio")
    assert "ValueError: broken" in line["traceback"]


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records]


def test_a_problem_that_stays_is_logged_once_and_when_it_has_passed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    trouble = logs.Lasting("the store failed", "the store works again")
    for now in range(1_000):
        trouble.fail("disk is full", float(now))
        trouble.succeed()  # what is small still fits
        trouble.look(now + 0.5)
    assert lines(caplog) == ["the store failed"]
    trouble.look(999 + logs.QUIET_S)
    trouble.look(999 + 2 * logs.QUIET_S)
    assert lines(caplog) == ["the store failed", "the store works again"]
    trouble.fail("disk is full", 2_000.0)
    assert lines(caplog)[2:] == ["the store failed"]
    trouble.look(3_000.0)  # nothing was tried since: it may be full still
    assert len(lines(caplog)) == 3


def test_different_problems_are_logged_each_and_not_without_end(caplog: pytest.LogCaptureFixture) -> None:
    trouble = logs.Lasting("the store failed", "the store works again")
    for number in range(1_000):
        trouble.fail(f"problem {number}", 0.0)
    assert len(lines(caplog)) == logs.PROBLEMS_MAX

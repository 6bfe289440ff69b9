from __future__ import annotations

import os
import pty
import subprocess
import sys

from typer.testing import CliRunner

from tidings import Event, Filter
from tidings.cli.app import app
from tidings.cli.tour import LIMITS, STREETS, tour


def test_without_a_terminal_the_tour_is_plain_lines() -> None:
    result = CliRunner().invoke(app, ["tour"])
    assert result.exit_code == 0
    assert "\x1b" not in result.output
    assert result.output == "".join(f"{text}\n" for _, text in tour())


def test_on_a_terminal_the_tour_is_coloured_and_ends_by_itself() -> None:
    reader, terminal = pty.openpty()
    code = "from tidings.cli.tour import show_tour; show_tour()"
    environment = {**os.environ, "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen([sys.executable, "-c", code], stdout=terminal, env=environment) as process:
        os.close(terminal)
        output = read_to_end(reader)
    assert process.returncode == 0
    assert b"\x1b[1;36mEvents have a type" in output


def read_to_end(descriptor: int) -> bytes:
    chunks = []
    try:
        while chunk := os.read(descriptor, 65536):
            chunks.append(chunk)
    except OSError:  # Linux says EIO when the other end of a terminal is closed
        pass
    os.close(descriptor)
    return b"".join(chunks)


def test_the_tour_shows_a_mistake_with_its_place() -> None:
    text = "\n".join(text for _, text in tour())
    assert "line 1, column" in text


def test_the_index_of_the_tour_answers_as_its_filters_would() -> None:
    event = Event("air.pm10", {"street": 42, "value": 8.5})
    wanted = [v for v in LIMITS if Filter("street = 42 AND value > :v", v=v).matches(event)]
    lines = [text for _, text in tour() if "wanted by" in text]
    assert lines == ["      wanted by " + ", ".join(f"street 42 above {v}" for v in wanted)]
    assert STREETS * len(LIMITS) == 10_000

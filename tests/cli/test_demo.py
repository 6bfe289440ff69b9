from __future__ import annotations

import asyncio
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from tidings import Event, Filter
from tidings.cli.app import app
from tidings.cli.crew import JOBS, UNLUCKY, WANTED
from tidings.cli.demo import HEARINGS, LISTENERS, PICTURES, SENSORS, STAYING, STEPS, Line, Town, table
from tidings.errors import TidingsError


@pytest.fixture(scope="module")
def lines() -> list[Line]:
    """What happened in one demo, at once."""
    result = CliRunner().invoke(app, ["demo", "--step", "0", "--json"])
    assert result.exit_code == 0, result.output
    return [msgspec.json.decode(line, type=Line) for line in result.output.splitlines()]


def places(lines: list[Line], who: str, does: str) -> list[int]:
    return [place for place, line in enumerate(lines) if (line.who, line.does) == (who, does)]


def test_without_a_terminal_the_demo_is_plain_lines_and_a_table() -> None:
    result = CliRunner().invoke(app, ["demo", "--step", "0"])
    assert result.exit_code == 0
    assert "\x1b" not in result.output
    assert re.match(r"a node at tidings://127\.0\.0\.1:\d+\n", result.output)
    assert re.search(rf"^console +\(all\) +{STEPS} +{STEPS} +{STEPS} ", result.output, re.MULTILINE)
    assert re.search(r"^jobs +type = .* 0 +0 +11 +[12] +[12] *$", result.output, re.MULTILINE)


def test_on_a_terminal_the_demo_is_coloured_and_ends_by_itself() -> None:
    reader, terminal = pty.openpty()
    command = [sys.executable, "-c", "from tidings.cli.app import app; app(['demo', '--step', '0'])"]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(command, stdout=terminal, env=environment) as process:
        os.close(terminal)
        output = read_to_end(reader).decode()
    assert process.returncode == 0
    assert re.search(r"\x1b\[33m +\d+\.\d\d s +quay +publishes", output)
    plain = re.sub(r"\x1b\[[0-9;?]*\w", "", output)
    assert re.search(r"who +filter +quay +park +road +camera +all", plain)
    assert re.search(r"queue +filter +messages +in flight +done +redelivered +killed", plain)


def read_to_end(descriptor: int) -> bytes:
    chunks = []
    try:
        while chunk := os.read(descriptor, 65536):
            chunks.append(chunk)
    except OSError:  # Linux says EIO when the other end of a terminal is closed
        pass
    os.close(descriptor)
    return b"".join(chunks)


def test_a_demo_that_is_stopped_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from tidings.cli.app import app; app(['demo', '--step', '0.5'])"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert any("is ready" in line for line in process.stdout)
        assert list(tmp_path.iterdir())
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())


def test_every_sensor_publishes_each_step_and_the_console_gets_it_all(lines: list[Line]) -> None:
    published = {f"{line.what} from {line.who}" for line in lines if line.does == "publishes"}
    assert all(len(places(lines, who, "publishes")) == STEPS for who in SENSORS)
    assert {lines[place].what for place in places(lines, "console", "gets")} == published


def test_the_sensors_of_the_city_are_on_only_while_the_mayor_listens(lines: list[Line]) -> None:
    silent, awake = places(lines, "city", "is silent"), places(lines, "city", "wakes up")
    (begins,), (goes,) = places(lines, "mayor", "listens"), places(lines, "mayor", "goes")
    assert len(silent) == 2
    assert silent[0] < begins < awake[0] < goes < silent[1]
    heard = places(lines, "mayor", "gets")
    assert len(heard) == HEARINGS
    assert all(float(lines[place].what.partition("value=")[2].split()[0]) > 55 for place in heard)


def test_the_ledger_gets_what_was_published_while_it_was_away(lines: list[Line]) -> None:
    gone = places(lines, "ledger", "goes")[0]
    back = places(lines, "ledger", "listens")[1]
    missed = {
        f"{line.what} from {line.who}"
        for line in lines[gone:back]
        if line.does == "publishes" and line.who == "quay" and float(line.what.partition("=")[2]) > 30
    }
    assert missed
    assert missed <= {lines[place].what for place in places(lines, "ledger", "gets") if place > back}
    assert not [place for place in places(lines, "ledger", "gets") if gone < place < back]


def test_the_camera_is_silent_until_the_guard_asks_and_after_it_has_gone(lines: list[Line]) -> None:
    first, last = places(lines, "camera", "is silent")
    (awake,) = places(lines, "camera", "wakes up")
    pictures = places(lines, "camera", "publishes")
    assert first < awake < pictures[0]
    assert pictures[-1] < last
    assert len(places(lines, "guard", "gets")) >= PICTURES


def test_every_job_is_done_once_though_a_worker_is_killed(lines: list[Line]) -> None:
    wanted = Filter(WANTED)
    published = [
        f"the job for value={line.what.partition('=')[2]} from {line.who}"
        for line in lines
        if line.does == "publishes"
        and line.what.startswith("air.pm10 ")
        and wanted.matches(Event("air.pm10", value=float(line.what.partition("=")[2])))
    ]
    done = [line.what.removeprefix("with ") for line in lines if line.does == "is done"]
    assert published
    assert sorted(done) == sorted(published)


def test_what_a_killed_worker_had_in_hand_is_taken_again(lines: list[Line]) -> None:
    killed = places(lines, UNLUCKY, "is killed")[0]
    (lost,) = (lines[place].what for place in places(lines, UNLUCKY, "takes") if place < killed)
    taken = [line.what for line in lines[killed:] if line.does == "takes"]
    assert f"{lost} again: delivery 2" in taken


def test_sensors_wait_for_the_workers(lines: list[Line]) -> None:
    (ready,) = places(lines, JOBS, "is ready")
    assert all(ready < place for who in SENSORS for place in places(lines, who, "publishes"))


def test_a_demo_that_does_not_get_through_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        await Town("tidings://127.0.0.1:1", "tcp 127.0.0.1:1", 0).live()

    monkeypatch.setattr("tidings.cli.demo.LATE_S_MAX", 0)
    with pytest.raises(TidingsError, match=r"did not end in time; still to come: \{'alarm': 0"):
        asyncio.run(work())


def test_the_filters_of_the_demo_do_not_wake_the_camera_by_accident() -> None:
    pictures = Filter(LISTENERS["guard"])
    assert not [who for who in STAYING if who != "console" and Filter(LISTENERS[who]).overlaps(pictures)]
    assert not Filter(WANTED).overlaps(pictures)


def test_who_listens_to_everything_is_shown_so() -> None:
    from rich.console import Console

    async def render() -> str:
        console = Console(width=100)
        with console.capture() as captured:
            console.print(table(Town("tidings://127.0.0.1:1", "tcp 127.0.0.1:1", 0)))
        return captured.get()

    assert re.search(r"^console +\(all\) +· +· +· +· +0$", asyncio.run(render()), re.MULTILINE)

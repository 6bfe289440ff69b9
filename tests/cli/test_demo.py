"""The demo with a small program in place of Spark, which takes long to start; `.ci/run` has it with Spark."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from cli.commands import run_command
from effort import patience
from ports import free_port
from rich.console import Console

from tidings import Filter
from tidings.cli.demo import query, town, views
from tidings.cli.demo.people import ALARMS, JOBS, KILLS, QUEUE, READINGS, REPORTS, UNLUCKY
from tidings.cli.demo.town import LOAD, Town
from tidings.cli.demo.views import Figures, Line, Summary, Update, judged
from tidings.sensors.city import KINDS

STAND_IN = (sys.executable, str(Path(__file__).with_name("city_query.py")))
PATIENCE_S = patience(120.0)
"""After this a demo that waits for something is taken to wait for ever."""
FREE = [0, 0, 0], []


# -- one demo, and what was told of it


class Witness:
    """Remembers what is told, and waits until enough has happened."""

    def __init__(self) -> None:
        self.told: list[Update] = []
        self.changed = asyncio.Event()

    def show(self, told: Update) -> None:
        self.told.append(told)
        self.changed.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self.changed.clear()
            await self.changed.wait()

    @property
    def lines(self) -> list[Line]:
        return [told for told in self.told if isinstance(told, Line)]

    def places(self, who: str, does: str) -> list[int]:
        return [place for place, line in enumerate(self.lines) if (line.who, line.does) == (who, does)]

    @property
    def last(self) -> Figures:
        return [told for told in self.told if isinstance(told, Figures)][-1]


async def lived(spark: bool, is_enough: Callable[[Witness], bool], nodes: int = 1) -> tuple[Witness, Summary]:
    """A demo that lasts until enough has happened."""
    witness = Witness()
    async with asyncio.timeout(PATIENCE_S), town.home(FREE, nodes) as place:
        whole = Town(place, spark, witness.show)
        return witness, await whole.live(lambda: witness.until(lambda: is_enough(witness)))


def has_seen_it_all(witness: Witness) -> bool:
    return (
        len(witness.places("ledger", "listens")) > 1
        and len(witness.places(UNLUCKY, "is killed")) == KILLS
        and bool(witness.places(UNLUCKY, "is done"))
        and any(line.does == "takes" and line.what.startswith("alarm.") for line in witness.lines)
        and bool(witness.places("city", "wakes up"))
        and bool(witness.places("pattern", "fires"))
        and witness.last.rows > 0
    )


@pytest.fixture(scope="module")
def demo() -> tuple[Witness, Summary]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query, "PROGRAM", STAND_IN)
        patch.setattr("tidings.cli.demo.people.HERE_S", 3.0)
        patch.setattr("tidings.cli.demo.people.AWAY_S", 3.0)
        return asyncio.run(lived(True, has_seen_it_all))


@pytest.fixture(scope="module")
def witness(demo: tuple[Witness, Summary]) -> Witness:
    return demo[0]


@pytest.fixture(scope="module")
def summary(demo: tuple[Witness, Summary]) -> Summary:
    return demo[1]


def test_a_good_demo_lacks_nothing(summary: Summary) -> None:
    assert summary.missing == []
    assert summary.readings_logged > 0
    assert summary.alarms > 0
    assert (summary.sensors_on > 0, summary.sensors_left_on) == (True, 0)


def test_the_sensors_are_on_only_while_the_query_runs(witness: Witness) -> None:
    silent, (awake,) = witness.places("city", "is silent"), witness.places("city", "wakes up")
    assert witness.places("spark", "is running")[0] < awake
    (stops,) = witness.places("spark", "stops")
    assert len(silent) == 2
    assert silent[0] < awake < stops < silent[1]


def test_only_the_sensors_that_the_query_wants_are_on(summary: Summary) -> None:
    wanted = Filter(READINGS)
    types = [LOAD.types[index % len(LOAD.types)] for index in range(LOAD.networks * LOAD.sensors)]
    of_the_air = sum(kind.startswith("air.") for kind in types)
    assert 0 < summary.sensors_on == of_the_air < len(types)
    assert {kind for kind in KINDS if wanted.overlaps(Filter("type = :kind", kind=kind))} == {
        kind for kind in KINDS if kind.startswith("air.")
    }


def test_the_pattern_fires_and_is_noted_once(witness: Witness, summary: Summary) -> None:
    (place,) = witness.places("pattern", "fires")
    assert witness.lines[place].what == "noise at the quay, then a smell at the harbour, within 30 s"
    assert summary.matches >= 1


def test_the_ledger_gets_what_came_while_it_was_away(witness: Witness) -> None:
    figures = [told for told in witness.told if isinstance(told, Figures)]
    assert max(one.ledger_waiting for one in figures) > 0
    assert witness.places("ledger", "listens")[1] > witness.places("ledger", "goes")[0]


def test_what_a_killed_worker_had_in_hand_is_taken_again(witness: Witness) -> None:
    killed = witness.places(UNLUCKY, "is killed")[0]
    (lost,) = (witness.lines[place].what for place in witness.places(UNLUCKY, "takes") if place < killed)
    taken = [line.what for line in witness.lines[killed:] if line.does == "takes"]
    assert f"{lost} again: delivery 2" in taken


def test_alarms_become_jobs_for_the_workers(witness: Witness) -> None:
    assert len(witness.places(QUEUE, "is ready")) == 1
    taken = [line.what for line in witness.lines if line.does == "takes"]
    assert [what for what in taken if what.startswith("alarm.limit")]
    assert Filter(JOBS).covers(Filter(ALARMS))
    assert Filter(JOBS).covers(Filter(REPORTS))


def test_the_alarms_come_from_the_query(witness: Witness) -> None:
    told = [witness.lines[place].what for place in witness.places("alarm", "comes")]
    assert told
    assert all(re.fullmatch(r"alarm\.limit: air\.\w+ in cell 0:0 is 99\.5, over 50", one) for one in told)


def test_the_figures_are_those_of_the_node_and_the_query(witness: Witness, summary: Summary) -> None:
    last = witness.last
    assert last.sensors == LOAD.networks * LOAD.sensors
    assert 0 < last.logged <= last.published
    assert last.log_bytes > 0
    assert 0 < last.rows <= summary.readings_logged
    assert (last.lag, last.killed) == (3, KILLS)


def test_without_spark_the_mayor_makes_the_sensors_go_on() -> None:
    witness, summary = asyncio.run(
        lived(False, lambda witness: bool(witness.places("city", "wakes up")) and witness.last.logged > 0)
    )
    (listens,), (goes,) = witness.places("mayor", "listens"), witness.places("mayor", "goes")
    assert listens < witness.places("city", "wakes up")[0]
    assert witness.places("city", "is silent")[1] > listens
    assert listens < goes
    assert summary.missing == []
    assert (summary.spark, summary.alarms) == (False, 0)
    assert summary.readings_logged > 0


def test_with_three_nodes_the_mayor_at_one_end_makes_sensors_at_the_other_go_on() -> None:
    def is_enough(witness: Witness) -> bool:
        return bool(witness.places("city", "wakes up")) and witness.last.logged > 0 < witness.last.published

    witness, summary = asyncio.run(lived(False, is_enough, nodes=3))
    assert witness.places("mayor", "listens")[0] < witness.places("city", "wakes up")[0]
    assert (witness.last.nodes, witness.last.links_up) == (3, 2)
    assert summary.missing == []
    assert (summary.nodes, summary.sensors_left_on) == (3, 0)
    # The last readings may be on their way when they are counted; over one link alone there would be fewer.
    assert summary.relayed > witness.last.published > 0, "readings cross two links"
    assert summary.readings_logged > 0


def test_with_three_nodes_alarms_of_the_query_cross_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "PROGRAM", STAND_IN)
    witness, summary = asyncio.run(
        lived(True, lambda witness: bool(witness.places("alarm", "comes")), nodes=3)
    )
    assert summary.missing == []
    assert summary.alarms > 0
    assert "events relayed between 3 nodes" in str(summary)
    assert f"links 2 up, {witness.last.relayed:,} relayed" in str(witness.last)


def test_nothing_that_the_town_listens_to_by_itself_makes_sensors_go_on() -> None:
    offered = [Filter("type = :kind", kind=kind) for kind in KINDS]
    assert not [kind for kind in offered if Filter(JOBS).overlaps(kind)]


# -- the verdict

GOOD = Summary(
    seconds=120.0, spark=True, readings_logged=9, log_bytes=99, alarms=1, sensors_on=4, sensors_left_on=0,
    jobs_done=3, redelivered=2, killed=2,
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ({}, []),
        ({"readings_logged": 0}, ["no reading was logged"]),
        ({"alarms": 0}, ["no alarm came back from Spark"]),
        ({"alarms": 0, "spark": False}, []),
        ({"sensors_on": 0}, ["no sensor was on before the query stopped"]),
        ({"sensors_left_on": 2}, ["2 sensors were still on after the query had stopped"]),
        ({"sensors_left_on": 2, "spark": False}, ["2 sensors were still on after the mayor had stopped"]),
        ({"nodes": 3, "relayed": 1}, []),
        ({"nodes": 3}, ["no event crossed a link"]),
        ({"alarms": 0, "readings_logged": 0}, ["no reading was logged", "no alarm came back from Spark"]),
    ],
)  # fmt: skip
def test_each_thing_that_did_not_happen_is_named(change: dict[str, int], missing: list[str]) -> None:
    assert judged(msgspec.structs.replace(GOOD, **change)).missing == missing


def test_what_is_missing_is_said_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    views.show_summary(judged(msgspec.structs.replace(GOOD, alarms=0)), json=False)
    said = capsys.readouterr()
    assert "9 readings logged (99 bytes), 0 alarms from Spark, 3 jobs done\n" in said.out
    assert said.err == "tidings: the demo failed: no alarm came back from Spark\n"


# -- ports


@contextmanager
def occupied(kind: socket.SocketKind) -> Iterator[int]:
    with socket.socket(socket.AF_INET, kind) as channel:
        channel.bind((town.HOST, 0))
        if kind == socket.SOCK_STREAM:
            channel.listen()
        yield channel.getsockname()[1]


def test_ports_in_use_are_replaced_and_named() -> None:
    with occupied(socket.SOCK_STREAM) as node, occupied(socket.SOCK_DGRAM) as sensors:
        http = free_port()
        ports, busy = town.choose(node, sensors, http)
        assert (ports, busy) == ([0, 0, http], [node, sensors])
        place = town.Home("tidings://h:1", "tcp h:2", "http://h:3", Path(), busy)
        assert f"replaced by free ones: {node}, {sensors}" in "\n".join(views.headings(place))


# -- as processes, which leave none behind


def program(*arguments: str, settings: str = "") -> list[str]:
    """The demo at free ports with the stand-in, as a process."""
    code = f"""
from tidings.cli import demo
from tidings.cli.app import app
from tidings.cli.demo import query, town
from tidings.processes import started
query.PROGRAM = {STAND_IN!r}
town.choose.__defaults__ = (0, 0, 0)
demo.SECONDS = 2.0
{settings}
app(['demo', *{arguments!r}])"""
    return [sys.executable, "-c", code]


@pytest.fixture
def environment(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment of a demo and of all it starts, by which they are found."""
    mark = f"{os.getpid()}/{request.node.name}"
    return {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "TIDINGS_TEST_MARK": mark,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }


def left_behind(environment: dict[str, str]) -> list[str]:
    """The processes that have this environment."""
    mark = f"TIDINGS_TEST_MARK={environment['TIDINGS_TEST_MARK']}\0".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes():
                found.append((path.parent / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def ended(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def test_without_a_terminal_it_is_plain_lines_and_a_summary(
    environment: dict[str, str], tmp_path: Path
) -> None:
    result = ended(program(), environment)
    assert result.returncode == 0, result.stderr
    assert "\x1b" not in result.stdout
    assert re.match(
        r"a node at tidings://127\.0\.0\.1:\d+, its gateway at tcp 127\.0\.0\.1:\d+,", result.stdout
    )
    assert re.search(r"published [\d,]+/s  logged [\d,]+/s .* sensors [\d,]+ of 720 on  jobs ", result.stdout)
    assert re.search(
        r"^in \d+ s: [\d,]+ readings logged \(.*\), [\d,]+ alarms from Spark", result.stdout, re.MULTILINE
    )
    assert "sensors on: 480 → 0 when the query stopped" in result.stdout
    assert "the demo uses windows of 10 s" in result.stdout
    assert not left_behind(environment)
    assert not list(tmp_path.iterdir())


def test_as_json_it_is_one_object_a_line(environment: dict[str, str]) -> None:
    result = ended(program("--json", "--no-spark"), environment)
    assert result.returncode == 0, result.stderr
    told = [msgspec.json.decode(line, type=Update) for line in result.stdout.splitlines()]
    assert {type(one) for one in told} == {Line, Figures, Summary}
    assert isinstance(told[-1], Summary)


def test_without_an_alarm_it_fails_and_says_so(environment: dict[str, str]) -> None:
    result = ended(program(settings="demo.LATE_S_MAX = 0.0"), environment | {"TIDINGS_TEST_QUERY": "silent"})
    assert result.returncode == 1
    assert "no alarm came back from Spark" in result.stderr


def test_a_query_that_dies_ends_it_with_its_complaint(environment: dict[str, str], tmp_path: Path) -> None:
    settings = "started.LINGER_S = 0.2"
    result = ended(program(settings=settings), environment | {"TIDINGS_TEST_QUERY": "dying"})
    assert result.returncode == 2
    assert "tidings: the pipeline ended with exit code 1\nthe cluster is on fire\n" in result.stderr
    assert not left_behind(environment)
    assert not list(tmp_path.iterdir())


def test_a_query_that_does_not_end_is_killed_with_all_it_started(environment: dict[str, str]) -> None:
    settings = "started.GRACE_S = started.LINGER_S = 0.2"
    result = ended(program(settings=settings), environment | {"TIDINGS_TEST_QUERY": "stubborn"})
    assert result.returncode == 0, result.stderr  # the lease of the reader was over
    assert not left_behind(environment)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stopped_by_a_signal_it_leaves_nothing_behind(
    environment: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    command = program("--seconds", "600")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert any("wakes up" in line for line in process.stdout)
        assert len(left_behind(environment)) > 4
        process.send_signal(number)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + number
    assert not left_behind(environment)
    assert not list(tmp_path.iterdir())


def test_stopped_at_once_it_leaves_nothing_behind(environment: dict[str, str], tmp_path: Path) -> None:
    with subprocess.Popen(program(), stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGTERM
    assert not left_behind(environment)
    assert not list(tmp_path.iterdir())


# -- on a terminal


def test_on_a_terminal_it_is_a_screen_until_ctrl_c(environment: dict[str, str], tmp_path: Path) -> None:
    reader, terminal = pty.openpty()
    surroundings = {**environment, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "50"}
    surroundings.pop("NO_COLOR", None)
    with subprocess.Popen(program(), stdout=terminal, env=surroundings) as process:
        os.close(terminal)
        output = read_until(reader, b"alarm.limit")
        process.send_signal(signal.SIGINT)
        output += read_until(reader, None)
    assert process.returncode == 130
    plain = re.sub(r"\x1b\[[0-9;?]*\w", "", output.decode())
    assert re.search(r"queue +filter +waiting +in hand +done +redelivered +killed", plain)
    assert re.search(r"sensors +720 +\d+ on", plain)
    assert "alarms from Spark" in plain
    assert "\x1b[35m" in output.decode()
    assert not left_behind(environment)
    assert not list(tmp_path.iterdir())


def test_on_a_terminal_it_goes_on_without_a_query_that_died(environment: dict[str, str]) -> None:
    reader, terminal = pty.openpty()
    surroundings = {
        **environment,
        "TERM": "xterm",
        "COLUMNS": "120",
        "LINES": "50",
        "TIDINGS_TEST_QUERY": "dying",
    }
    with subprocess.Popen(program(), stdout=terminal, env=surroundings) as process:
        os.close(terminal)
        read_until(reader, b"the pipeline ended with exit code 1")
        read_until(reader, b"are off again")
        process.send_signal(signal.SIGINT)
        read_until(reader, None)
    assert process.returncode == 130
    assert not left_behind(environment)


def read_until(descriptor: int, wanted: bytes | None) -> bytes:
    """What a terminal shows, up to something or to the end."""
    shown = b""
    deadline = time.monotonic() + PATIENCE_S
    try:
        while wanted is None or wanted not in shown:
            left_s = max(deadline - time.monotonic(), 0)  # the screen is drawn anew whether it comes or not
            assert select.select([descriptor], [], [], left_s)[0], shown[-2000:]
            assert time.monotonic() < deadline, shown[-2000:]
            shown += os.read(descriptor, 65536)
    except OSError:  # Linux says EIO when the other end of a terminal is closed
        pass
    if wanted is None:
        os.close(descriptor)
    return shown


def rendered(screen: views.Screen, height: int) -> str:
    console = Console(width=100, height=height)
    with console.capture() as captured:
        console.print(screen.render(height))
    return captured.get()


@pytest.mark.parametrize("nodes", [1, 3, 9])
@pytest.mark.parametrize("height", [24, 30, 50])
def test_a_screen_fits_its_terminal(height: int, nodes: int) -> None:
    place = town.Home(
        "tidings://127.0.0.1:7300",
        "tcp 127.0.0.1:4242",
        "http://127.0.0.1:7380",
        Path(),
        [4242],
        tuple(f"tidings://127.0.0.1:{7300 + n}" for n in range(1, nodes)),
        "".join(f"demo-{n}\n" for n in range(nodes)) if nodes > 1 else "",
    )
    screen = views.Screen(place)
    screen.show(Figures(at_s=1.0, sensors=720, lag=1500, nodes=nodes, relayed=77))
    for number in range(40):
        screen.show(Line(1.0 * number, "alarm", "comes", f"number {number}"))
        screen.show(Line(1.0 * number, "ledger", "goes", f"time {number}"))
        screen.show(Line(1.0 * number, "ann", "takes", f"job {number}"))
    shown = rendered(screen, height)
    assert len(shown.splitlines()) <= height
    assert "number 39" in shown
    assert "time 39" in shown
    assert "job 39" not in shown
    assert "1,500 behind" in shown
    assert ("relayed" in shown) == (nodes > 1)
    if height == 50 and nodes > 1:
        assert "demo-0\ndemo-1" in re.sub(" +\n", "\n", shown)
        assert "tidings topology --node tidings://127.0.0.1:7300" in shown


def test_without_spark_the_screen_does_not_speak_of_it() -> None:
    screen = views.Screen(town.Home("tidings://127.0.0.1:7300", "tcp 127.0.0.1:4242", "", Path(), []))
    screen.show(Figures(at_s=1.0, spark=False))
    assert "Spark" not in rendered(screen, 50)


def test_what_to_type_names_the_real_address() -> None:
    place = town.Home("tidings://127.0.0.1:7301", "tcp 127.0.0.1:4242", "", Path(), [])
    hints = "\n".join(views.hints(place))
    for command in ("subscribe", "log tail", "sensor list", "top"):
        assert f"tidings {command} --node tidings://127.0.0.1:7301" in hints


def test_many_alarms_are_told_by_their_number_only(capsys: pytest.CaptureFixture[str]) -> None:
    plain = views.PlainLines()
    for number in range(99):
        plain.show(Line(1.0, "alarm", "comes", str(number)))
        plain.show(Line(1.0, "ann", "is done", "with it"))
    assert len(capsys.readouterr().out.splitlines()) == views.ALARMS_SHOWN


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1_500, "1.5 KB"), (2e6, "2.0 MB"), (3.25e9, "3.2 GB")],
)
def test_sizes_are_told_for_people(size: float, text: str) -> None:
    assert views.size_text(size) == text


def test_without_java_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("tidings.pipeline.session.JAVA_PLACES", tmp_path)
    code, _, errors = run_command("demo")
    assert code == 2
    assert "there is no Java: Spark needs 17 or newer" in errors
    assert "tidings demo --no-spark" in errors


def test_a_time_of_nothing_is_refused() -> None:
    assert run_command("demo", "--seconds", "0")[0] == 2


@pytest.mark.parametrize("nodes", ["0", "10"])
def test_a_demo_has_a_few_nodes(nodes: str) -> None:
    assert run_command("demo", "--no-spark", "--nodes", nodes)[0] == 2


def test_as_a_process_three_nodes_show_how_they_are_linked(
    environment: dict[str, str], tmp_path: Path
) -> None:
    result = ended(program("--no-spark", "--nodes", "3"), environment)
    assert result.returncode == 0, result.stderr
    head, *lines = result.stdout.splitlines()
    assert head.startswith("3 nodes: people at tidings://127.0.0.1:")
    assert lines[0] == "demo (this node)"
    assert [line.strip().partition(": active")[0] for line in lines[1:3]] == ["└─ demo-2", "└─ demo-3"]
    assert "events relayed between 3 nodes: " in lines[-1]
    assert result.stderr == ""
    assert not left_behind(environment)
    assert not list(tmp_path.iterdir())

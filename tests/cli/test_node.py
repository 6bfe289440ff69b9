"""The commands that need a node, with a real one beside them."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli.commands import run_command
from node.peers import ANSWER_S_MAX, SOURCE, Start

import tidings


@pytest.fixture(scope="module")
def node(start_shared: Start, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a node that runs while these tests do."""
    return start_shared("--port", "0", "--dir", str(tmp_path_factory.mktemp("nodes") / "node")).address()


def begin(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from tidings.cli import main; main()", *arguments],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "100", **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def apart(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command in a process of its own."""
    process = begin(*arguments, **environment)
    output, errors = process.communicate(timeout=ANSWER_S_MAX)
    return process.returncode, output, errors


def run(*arguments: str, lines: str = "", **environment: str) -> tuple[int, str, str]:
    """The same in this process, where the command need not be imported anew."""
    return run_command(*arguments, lines=lines, environment={"COLUMNS": "100", **environment})


def subscribed(*arguments: str) -> subprocess.Popen[str]:
    """A `tidings subscribe` whose subscription is there."""
    process = begin("subscribe", *arguments)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("subscribed at ")
    return process


def test_what_is_published_is_shown_to_who_subscribed(node: str) -> None:
    reader = subscribed("value > 40 AND street = 'quay'", "--count", "2", "--node", node)
    code, output, _ = apart(
        "publish", "air.pm10", "value=41.5", "street=quay", "note=two words", "--node", node
    )
    assert (code, output) == (0, "published 1\n")
    run("publish", "air.pm10", "value=3", "street=quay", "--node", node)
    run("publish", "air.pm10", "value=50", "street=quay", "--node", node)
    shown, _ = reader.communicate(timeout=ANSWER_S_MAX)
    assert reader.returncode == 0
    assert [line.split(" ", 1)[1] for line in shown.splitlines()] == [
        "air.pm10 value=41.5 street=quay note='two words'",
        "air.pm10 value=50 street=quay",
    ]


def test_lines_of_json_go_in_and_come_out(node: str) -> None:
    reader = subscribed("type = 'job'", "--count", "2", "--json", "--node", node)
    lines = '{"type": "job", "number": 1}\n\n{"type": 3}\n{"type": "job", "number": 2}'
    code, output, errors = run("publish", "--json", "--node", node, lines=lines)
    assert (code, output) == (2, '{"published":2}\n')
    assert errors.startswith("line 3: $.type")
    shown, _ = reader.communicate(timeout=ANSWER_S_MAX)
    assert [json.loads(line)["attributes"] for line in shown.splitlines()] == [{"number": 1}, {"number": 2}]


def test_a_durable_subscription_has_what_came_while_it_was_away(node: str) -> None:
    options = ("type = 'kept'", "--durable", "cli", "--node", node)
    away = subscribed(*options)
    away.send_signal(signal.SIGINT)
    away.communicate(timeout=ANSWER_S_MAX)
    assert away.returncode == 130
    code, output, _ = run("publish", "kept", "n=1", "--delivery", "reliable", "--count", "5", "--node", node)
    assert (code, output) == (0, "published 5\n")
    back = subscribed(*options, "--count", "5")
    shown, _ = back.communicate(timeout=ANSWER_S_MAX)
    assert shown.count("kept n=1") == 5


def test_history_comes_first_from_a_position_or_a_time(node: str) -> None:
    run("publish", "old", "n=1", "--delivery", "persistent", "--node", node)
    for since in ("1", "2020-01-01", "2020-01-01T00:00:00+02:00"):
        code, shown, _ = run("subscribe", "type = 'old'", "--since", since, "--count", "1", "--node", node)
        assert code == 0
        assert shown.endswith("old n=1\n")


def test_the_newest_event_of_each_thing_comes_first(node: str) -> None:
    run("publish", "lamp", "on=true", "--node", node)
    run("publish", "lamp", "on=false", "--node", node)
    code, shown, _ = run("subscribe", "type = 'lamp'", "--last", "--count", "1", "--node", node)
    assert (code, shown.endswith("lamp on=False\n")) == (0, True)


def test_top_shows_what_the_node_counts_and_what_waits(node: str) -> None:
    reader = subscribed("", "--durable", "waiting", "--count", "1", "--node", node, "--name", "someone")
    reader.kill()
    reader.communicate()
    run("publish", "b", "--count", "3", "--delivery", "reliable", "--node", node)
    code, output, _ = run("top", "--once", "--every", "0.05", "--node", node)
    assert code == 0
    assert output.startswith("node ")
    assert "connections" in output.splitlines()[1]
    rows = {line.split()[0]: line.split() for line in output.splitlines() if line}
    assert rows["counted"] == ["counted", "reason", "each", "second", "in", "all"]
    assert int(rows["published"][2].replace(",", "")) >= 3
    assert rows["waiting"][1:3] == ["someone", "3"]


def test_top_as_json_has_the_same_figures(node: str) -> None:
    code, output, _ = run("top", "--once", "--json", "--every", "0.05", "--node", node)
    summary = json.loads(output)
    assert code == 0
    assert {"node", "sessions", "subscriptions", "counts", "durables"} <= set(summary)
    assert {"what", "reason", "total", "per_s"} == set(summary["counts"][0])


def test_without_a_terminal_top_prints_screen_after_screen_until_its_reader_is_gone(node: str) -> None:
    process = begin("top", "--every", "0.01", "--node", node)
    assert process.stdout is not None
    heads = 0
    while heads < 3:
        line = process.stdout.readline()
        assert line, process.stderr
        heads += line.startswith("node ")
    process.stdout.close()
    process.stdout = None
    _, errors = process.communicate(timeout=ANSWER_S_MAX)
    assert (process.returncode, errors) == (141, "")


@pytest.mark.parametrize("command", [("publish", "a"), ("subscribe",), ("top", "--once")])
def test_where_no_node_is_a_command_says_so_and_what_to_do(command: tuple[str, ...], tmp_path: Path) -> None:
    nowhere = f"tidings+unix://{tmp_path}/none"
    code, output, errors = run(*command, "--node", nowhere)
    assert (code, output) == (2, "")
    assert errors == (
        f"tidings: no node answers at {nowhere}; start one with 'tidings node', or name another with --node\n"
    )


def test_an_address_that_is_none_is_named() -> None:
    code, _, errors = apart("publish", "a", TIDINGS_NODE="http://127.0.0.1")
    assert code == 2
    assert errors.startswith("tidings: 'http://127.0.0.1' is no address")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("publish", "a", "value"), "'value' is not NAME=VALUE"),
        (("publish", "a", "n=1", "n=2"), "n is given twice"),
        (("publish", "a", "--delivery", "maybe"), "delivery"),
        (("publish", "a b"), "type"),
        (("subscribe", "--since", "soon"), "'soon' is neither a position nor a time"),
        (("publish", "order", "ttl=60"), "$.ttl: did you mean ttl_s?"),
    ],
)
def test_a_mistake_is_one_line_and_no_traceback(node: str, arguments: tuple[str, ...], problem: str) -> None:
    code, output, errors = run(*arguments, "--node", node)
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert errors.startswith("tidings: ")
    assert problem in errors


def test_a_mistake_in_a_filter_is_shown_with_its_place(node: str) -> None:
    code, _, errors = run("subscribe", "value => 40", "--node", node)
    assert code == 2
    assert "line 1, column" in errors


def test_subscribe_prints_the_notes_on_its_filter_once_and_goes_on(node: str) -> None:
    line = '{"type": "noted", "prority": 1, "delivery": "persistent"}'
    assert run("publish", "--node", node, lines=line)[0] == 0
    wanted = ("type = 'noted' AND prority = 1", "--since", "0", "--count", "1")
    code, output, errors = run("subscribe", *wanted, "--node", node)
    assert (code, output.count("\n")) == (0, 1)
    assert errors.startswith("note: prority: is an attribute, no header field; did you mean priority?\n")
    assert errors.count("note") == errors.count("prority") == 1


def test_without_an_address_the_node_of_this_machine_is_found(start: Start, tmp_path: Path) -> None:
    home = tmp_path / "tidings"
    home.mkdir(mode=0o700)
    machine = start("--unix", str(home / "node.sock"))
    assert machine.address() == f"tidings+unix://{home}/node.sock"
    code, output, _ = run("publish", "a", XDG_RUNTIME_DIR=str(tmp_path))
    assert (code, output) == (0, "published 1\n")
    assert machine.stop()[0] == 0


def test_as_json_a_node_prints_one_object_when_it_has_started() -> None:
    process = begin("node", "--port", "0", "--json", "--log-level", "error")
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())
    assert told["addresses"][0].startswith("tidings://127.0.0.1:")
    assert (told["pid"], told["dir"], told["sensors"], told["security"]) == (process.pid, None, [], None)
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=ANSWER_S_MAX)
    assert (process.returncode, rest) == (0, "")


def test_the_settings_of_a_node_are_printed_as_json() -> None:
    code, output, _ = run_command("node", "--show-config", "--json", "--port", "1234")
    assert (code, json.loads(output)["port"]) == (0, 1234)
    code, _, errors = run_command("node", "--json", "status")
    assert (code, "--json is for starting a node; put options of 'status' after its name" in errors) == (
        2,
        True,
    )


def test_on_a_terminal_top_fills_the_screen_until_it_is_ended(node: str) -> None:
    reader, terminal = pty.openpty()
    code = "from tidings.cli import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "TERM": "xterm-256color", "COLUMNS": "100"}
    with subprocess.Popen(
        [sys.executable, "-c", code, "top", "--every", "0.05", "--node", node],
        stdout=terminal,
        stderr=terminal,
        env=environment,
    ) as process:
        os.close(terminal)
        seen = b""
        while b"each second" not in seen:
            seen += os.read(reader, 65536)
        process.send_signal(signal.SIGINT)
        seen += read_to_end(reader)
    assert process.returncode == 130
    assert b"\x1b[?1049h" in seen  # a screen of its own …
    assert b"\x1b[?1049l" in seen  # … which is left again
    assert b"Traceback" not in seen


def read_to_end(descriptor: int) -> bytes:
    chunks = []
    try:
        while chunk := os.read(descriptor, 65536):
            chunks.append(chunk)
    except OSError:  # Linux says EIO when the other end of a terminal is closed
        pass
    os.close(descriptor)
    return b"".join(chunks)


def test_subscribe_prints_the_matches_of_a_pattern(node: str) -> None:
    pattern = "a[type = 'A'] THEN b[type = 'B'] WITHIN 5 min BY k AS 'pair'"
    with tidings.blocking.connect(node, name="pat") as bus:
        with bus.subscribe(tidings.Pattern(pattern), durable="pairs"):
            pass
        for kind in ("A", "X", "B"):
            bus.publish(kind, k="quay", delivery="reliable")
    wanted = ("--pattern", pattern, "--durable", "pairs", "--name", "pat", "--count", "1", "--json")
    code, output, _ = apart("subscribe", *wanted, "--node", node)
    match = json.loads(output)
    assert (code, match["type"], match["subject"], match["attributes"]["events"]) == (0, "pair", "quay", 2)


def test_subscribe_shows_the_mistake_in_a_pattern(node: str) -> None:
    code, _, errors = run("subscribe", "--pattern", "a[type = 'A']{2,}", "--node", node)
    problem = "line 1, column 1: a has no end in time or number; say how many, or WITHIN which time"
    assert (code, errors) == (2, f"a[type = 'A']{{2,}}\n^\n{problem}\n")
    code, _, errors = run("subscribe", "x = 1", "--pattern", "a[type = 'A']", "--node", node)
    assert code == 2
    assert "leave FILTER out" in errors

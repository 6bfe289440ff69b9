"""`tidings log`, with a real node beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cli.commands import run_command
from node.peers import ANSWER_S_MAX, SOURCE, Start

import tidings
from tidings import Event
from tidings.cli.options import read_age, read_moment, read_size
from tidings.errors import UserError


@pytest.fixture
def node(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    address = start("--port", "0", "--dir", str(tmp_path / "node"), "--log-where", "type = 'kept'").address()
    monkeypatch.setenv("TIDINGS_NODE", address)
    return address


def publish(address: str, first: int, count: int, type: str = "air", delivery: str = "persistent") -> None:
    with tidings.blocking.connect(address) as bus:
        bus.publish_all(Event(type, {"n": n}, delivery=delivery) for n in range(first, first + count))


def log(*arguments: str, code: int = 0) -> str:
    """What `tidings log` prints."""
    ended, output, errors = run_command("log", *arguments)
    assert ended == code, errors
    return output


def numbers(output: str) -> list[int]:
    return [json.loads(line)["attributes"]["n"] for line in output.splitlines()]


def test_events_are_read_back_as_json_sealed_or_not(node: str) -> None:
    publish(node, 0, 10)
    assert json.loads(log("seal", "--json")) == {"sealed": 10}
    publish(node, 10, 10)
    assert numbers(log("read")) == list(range(20))
    assert numbers(log("read", "--where", "n >= 8", "--limit", "4")) == [8, 9, 10, 11]
    assert numbers(log("read", "--start", "5", "--end", "8")) == [4, 5, 6]
    assert numbers(log("read", "--since", "1h", "--until", "2999-01-01")) == list(range(20))
    assert log("read", "--until", "1h") == ""
    first, last = (json.loads(line)["id"] for line in log("read", "--where", "n = 0 OR n = 19").splitlines())
    assert numbers(log("read", "--ids", f"{first}, {last}")) == [0, 19]


def test_the_last_events_are_shown(node: str) -> None:
    publish(node, 0, 50)
    assert numbers(log("tail", "-n", "3", "--no-follow", "--json")) == [47, 48, 49]
    assert numbers(log("tail", "-n", "2", "--no-follow", "--where", "n < 5", "--json")) == [3, 4]
    assert log("tail", "-n", "1", "--no-follow").rstrip().endswith("air n=49")
    assert log("tail", "-n", "0", "--no-follow") == ""


def test_who_follows_sees_what_comes(node: str) -> None:
    publish(node, 0, 3)
    command = [
        sys.executable,
        "-c",
        "from tidings.cli import main; main()",
        "log",
        "tail",
        "-n",
        "1",
        "--json",
    ]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    following = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert following.stdout is not None
        assert numbers(following.stdout.readline()) == [2]
        publish(node, 3, 2)
        assert [numbers(following.stdout.readline()) for _ in range(2)] == [[3], [4]]
        following.send_signal(signal.SIGINT)
        assert following.wait(ANSWER_S_MAX) == 130
    finally:
        following.kill()
        following.communicate()


def test_the_log_says_how_it_stands(node: str) -> None:
    publish(node, 0, 10)
    log("seal")
    with tidings.blocking.connect(node) as bus:
        bus.log.reader("spark", "type = 'air'", lease_s=60, start=4)
    status = json.loads(log("list", "--json"))
    assert (status["first"], status["end"], status["sealed"], status["files"]) == (1, 11, 10, 1)
    lines = log("list").splitlines()
    assert lines[1].split() == ["log", "positions", "1", "to", "10"]
    assert lines[2].startswith("sealed    up to 10, in 1 files")
    assert lines[-1].split()[:3] == ["spark", "–", "7"]
    listed = log("list", "--folder", status["folder"], "--json").splitlines()
    assert [(json.loads(line)["first"], json.loads(line)["last"]) for line in listed] == [(1, 10)]
    assert log("list", "--folder", status["folder"]).splitlines()[1].split()[2:4] == ["1", "10"]


def test_damage_is_found_with_and_without_the_node(node: str) -> None:
    publish(node, 0, 10)
    log("seal")
    publish(node, 10, 10)
    assert log("verify") == "all is as it was written\n"
    folder = json.loads(log("list", "--json"))["folder"]
    assert json.loads(log("verify", "--folder", folder, "--json")) == {"problems": []}
    (file,) = Path(folder).glob("*/*.parquet")
    file.write_bytes(file.read_bytes()[:-20])
    for arguments in ([], ["--folder", folder]):
        assert file.name in log("verify", *arguments, code=1)
        (problem,) = json.loads(log("verify", *arguments, "--json", code=1))["problems"]
        assert file.name in problem


def test_files_are_pruned_and_it_is_told_for_whom_some_are_kept(node: str) -> None:
    for first in (0, 10, 20):
        publish(node, first, 10)
        log("seal")
    with tidings.blocking.connect(node) as bus:
        bus.log.reader("spark", "type = 'air'", start=12)
        bus.log.sealed(0)
    told = json.loads(log("prune", "--size", "0", "--json"))
    assert (told["first"], told["kept_for"]) == (11, ["spark"])
    _, output, errors = run_command("log", "prune", "--before", "21")
    assert output.startswith("the log begins at position 11; ")
    assert "more was kept for: spark" in errors
    assert json.loads(log("prune", "--before", "21", "--force", "--json"))["first"] == 21
    assert json.loads(log("prune", "--older-than", "1h", "--json"))["first"] == 21
    assert numbers(log("read")) == list(range(20, 30))
    code, _, errors = run_command("log", "read", "--start", "1")
    assert code == 2
    assert "position 1 was pruned: the log begins at 21" in errors


def test_pruning_wants_to_know_what_is_to_go(node: str) -> None:
    code, _, errors = run_command("log", "prune")
    assert code == 2
    assert "--older-than" in errors


def test_what_matches_is_kept_from_now_on(node: str) -> None:
    publish(node, 0, 2, "kept", "transient")  # as the node's settings say
    publish(node, 2, 2, "air", "transient")
    assert json.loads(log("keep", "type = 'air'", "--name", "air", "--json")) == {"name": "air"}
    publish(node, 4, 2, "air", "transient")
    assert log("keep", "--list").splitlines()[1].split() == ["air", "–", "type", "=", "'air'"]
    assert json.loads(log("keep", "--list", "--json"))["filter"] == "type = 'air'"
    assert log("keep", "--remove", "air") == "air is kept no longer\n"
    publish(node, 6, 2, "air", "transient")
    assert log("keep", "--list", "--json") == ""
    assert numbers(log("read")) == [0, 1, 4, 5]
    unnamed = log("keep", "type = 'a b'")
    assert log("keep", "type = 'a b'") == unnamed
    assert len(log("keep", "--list", "--json").splitlines()) == 1


def test_what_to_keep_is_said_in_one_way(node: str) -> None:
    for arguments in ([], ["--list", "--remove", "air"], ["type = 'a'", "--list"]):
        code, _, errors = run_command("log", "keep", *arguments)
        assert code == 2
        assert "give either a filter to keep" in errors
    assert run_command("log", "keep", "type = = 3")[0] == 2


def test_every_command_says_how_it_is_used() -> None:
    for command in ("list", "tail", "read", "verify", "seal", "prune", "keep"):
        said = log(command, "--help")
        assert "For example:" in said
        assert "--json" in said


# What is typed


def test_ages_and_times_and_sizes_are_understood() -> None:
    now = datetime(2026, 5, 1, 12, tzinfo=UTC)
    assert read_age("1.5h", "") == timedelta(minutes=90)
    assert read_moment("30min", "", now) == datetime(2026, 5, 1, 11, 30, tzinfo=UTC)
    assert read_moment("2026-05-01T08:30", "", now) == datetime(2026, 5, 1, 8, 30, tzinfo=UTC)
    assert read_moment("2026-05-01T08:30+02:00", "", now) == datetime(2026, 5, 1, 6, 30, tzinfo=UTC)
    assert [read_size(text, "") for text in ("7", "2kB", "1.5G")] == [7, 2_000, 1_500_000_000]


@pytest.mark.parametrize("text", ["", "yesterday", "-1h", "3 weeks"])
def test_what_is_no_age_or_time_is_refused_by_its_option(text: str) -> None:
    with pytest.raises(UserError, match="--older-than: "):
        read_age(text, "--older-than")
    with pytest.raises(UserError, match="--since: "):
        read_moment(text, "--since", datetime.now(UTC))
    with pytest.raises(UserError, match="--size: "):
        read_size(text, "--size")

"""Real processes: killed at any moment, watched by strace, on a full disk."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from effort import often

import tidings
from tests.store.samples import batch, everything, message
from tidings.store.sqlite import SqliteStore

CHILD = [sys.executable, str(Path(__file__).with_name("child.py"))]
PATHS = [str(Path(tidings.__file__).parent.parent), str(Path(__file__).parent.parent.parent)]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)}
UNSHARE = ["unshare", "--map-root-user", "--mount"]
KILLS = often(10)


def test_what_a_killed_process_had_acknowledged_is_there_and_nothing_is_half(tmp_path: Path) -> None:
    random, acknowledged = Random(1), 0
    for _ in range(KILLS):
        told = killed_after(random.randint(0, 60), tmp_path / "node")
        store = SqliteStore(tmp_path / "node")
        assert store.damage == []
        position = store.state.position
        assert max(told, acknowledged) <= position
        assert position % 3 == 0
        assert store.state.counters == [] or store.state.counters[0].counter == position - 2
        assert [one.first for one in everything(store, 10**6)] == list(range(1, position + 1))
        assert store.read(position, 1) in ([], [batch(position, size=200)])
        store.close()
        acknowledged = position
    assert acknowledged > 3 * KILLS


def test_a_killed_process_leaves_the_messages_that_were_put_and_not_taken(tmp_path: Path) -> None:
    random, acknowledged = Random(2), 0
    for _ in range(KILLS // 2):
        told = killed_after(random.randint(0, 60), tmp_path / "node", "queue")
        store = SqliteStore(tmp_path / "node")
        commits = store.state.queues[0].handed if store.state.queues else 0
        assert max(told, acknowledged) <= commits
        ever = range(3, 3 * commits + 3)
        assert list(store.messages()) == [message(number, size=1000) for number in ever[2 * commits :]]
        assert store.damage == []
        store.close()
        acknowledged = commits
    assert acknowledged > KILLS


def killed_after(lines: int, path: Path, what: str = "commit") -> int:
    """Let the child run until it has told of so many commits, kill it, and give the last position it told."""
    with subprocess.Popen([*CHILD, str(path), what], stdout=subprocess.PIPE, env=ENVIRONMENT) as child:
        assert child.stdout is not None
        told = [child.stdout.readline() for _ in range(lines)]
        child.kill()
        told += child.stdout.read().splitlines()
    whole = [line for line in told if re.fullmatch(rb"durable \d+\n?", line)]
    return int(whole[-1].split()[1]) if whole else 0


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_every_acknowledgement_leaves_after_one_sync_of_its_own(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    calls = "trace=fsync,fdatasync,write"
    command = [
        "strace",
        "-f",
        "-qq",
        "-e",
        calls,
        "-o",
        str(trace),
        *CHILD,
        str(tmp_path / "node"),
        "commit",
        "50",
    ]
    subprocess.run(command, check=True, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    events = re.findall(r"(fsync|fdatasync|durable)", trace.read_text())
    pieces = " ".join(events).split("durable")[:-1]
    assert len(pieces) == 50
    # The first also writes the header of the log.
    assert all(piece.split() == ["fdatasync"] for piece in pieces[1:])


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="this system lets nobody mount a file system of his own")
def test_a_full_disk_refuses_a_commit_whole_and_the_store_goes_on(tmp_path: Path) -> None:
    run = subprocess.run(
        [*UNSHARE, *CHILD, str(tmp_path), "fill"],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
    )
    assert run.returncode == 0, run.stderr
    assert "refused: database or disk is full\nkept " in run.stdout


def test_a_disk_that_fails_to_write_refuses_a_commit_whole_and_the_store_goes_on(tmp_path: Path) -> None:
    run = subprocess.run(
        [*CHILD, str(tmp_path), "limit"], capture_output=True, text=True, check=False, env=ENVIRONMENT
    )
    assert run.returncode == 0, run.stderr
    assert "refused: disk I/O error\nkept " in run.stdout

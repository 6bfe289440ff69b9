"""Processor time from /proc, of processes that burn some."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.processor import busiest_s, used_s

BURN = "import sys, time\nwhile time.process_time() < float(sys.argv[1]): pass"


def burn(*seconds: float) -> None:
    """Let a process for each use that much processor time, until all have ended."""
    running = [subprocess.Popen([sys.executable, "-c", BURN, str(one)]) for one in seconds]
    for one in running:
        one.wait()


def test_the_time_of_children_that_have_ended_counts() -> None:
    assert used_s(lambda: burn(0.3, 0.2)) >= 0.45


def test_without_a_process_of_that_name_the_own_one_counts() -> None:
    assert busiest_s(lambda: burn(0.2), b"no such word") >= 0.15


PARENT = f"""
import subprocess, sys
for _ in sys.stdin:
    subprocess.run([sys.executable, "-c", {BURN!r}, sys.argv[2]])
    print("done", flush=True)
"""


def test_the_busiest_of_several_counts_with_its_children() -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PARENT, "a busy one", seconds],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seconds in ("0.1", "0.4")
    ]

    def work() -> None:
        for one in running:
            assert one.stdin is not None
            assert one.stdout is not None
            one.stdin.write("go\n")
            one.stdin.flush()
            assert one.stdout.readline() == "done\n"

    assert busiest_s(work, b"a busy one") >= 0.35
    for one in running:
        one.communicate()

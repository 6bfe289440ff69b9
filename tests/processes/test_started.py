"""Real processes that fork, leave their group and do not want to end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from effort import patience

from tidings.processes import ProcessEnd, running, shell, start

T = TypeVar("T")

DOUBLE_FORK = """
import os, sys, time, signal
for _ in range({count}):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            if {stubborn}:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.execve("/bin/sleep", ["sleep", "{seconds}"], {{}})
        os._exit(0)
    os.wait()
print("forked", flush=True)
time.sleep({own_s})
"""


def run(work: Coroutine[Any, Any, T]) -> T:
    async def limited() -> T:
        async with asyncio.timeout(patience(60)):
            return await work

    return asyncio.run(limited())


def forking(count: int, own_s: float, stubborn: bool = False, seconds: str = "1000") -> list[str]:
    code = DOUBLE_FORK.format(count=count, own_s=own_s, stubborn=stubborn, seconds=seconds)
    return [sys.executable, "-c", code]


def sleeping(seconds: str) -> list[str]:
    """The processes that sleep for so long, by their command line: they have no environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == f"sleep\0{seconds}\0".encode():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


async def wait_sleeping(seconds: str, count: int) -> None:
    """A grandchild execs after its grandparent has gone on."""
    while len(sleeping(seconds)) != count:
        await asyncio.sleep(0.02)


def test_fifty_processes_that_have_forked_twice_end_with_their_command() -> None:
    seconds = f"1000.{os.getpid()}"

    async def end() -> ProcessEnd:
        process = start(*forking(50, 1000, seconds=seconds))
        await process.open()
        assert await process.readline() == b"forked\n"
        await wait_sleeping(seconds, 50)
        return await process.end("budget", grace_s=30.0)

    ended = run(end())
    assert (ended.code, ended.reason, ended.killed) == (-signal.SIGTERM, "budget", 0)
    assert not sleeping(seconds)


def test_those_that_ignore_it_are_killed_after_the_grace() -> None:
    seconds = f"1001.{os.getpid()}"

    async def end() -> ProcessEnd:
        process = start(*forking(5, 1000, stubborn=True, seconds=seconds))
        await process.open()
        await process.readline()
        await wait_sleeping(seconds, 5)
        return await process.end("time", grace_s=0.1)

    ended = run(end())
    assert ended.reason == "time"
    assert ended.killed == 5
    assert not sleeping(seconds)


def test_what_a_command_leaves_behind_ends_after_it() -> None:
    seconds = f"1002.{os.getpid()}"

    async def end() -> ProcessEnd:
        async with running(*forking(3, 0, seconds=seconds), linger_s=0.05) as process:
            return await process.wait()

    assert run(end()) == ProcessEnd(0)
    assert not sleeping(seconds)


FORKS_MAX = 60
"""A test must not become the runaway it tests.

One parent forks, its children do not, and it stops by itself.
"""


def test_one_that_goes_on_forking_is_ended() -> None:
    code = f"""
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("go", flush=True)
for _ in range({FORKS_MAX}):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    time.sleep(0.01)
time.sleep(60)
"""

    async def end() -> ProcessEnd:
        process = start(sys.executable, "-c", code)
        await process.open()
        await process.readline()
        return await process.end("user", grace_s=0.1)

    ended = run(end())
    assert ended.code == -signal.SIGKILL
    assert 1 <= ended.killed <= FORKS_MAX + 1


def test_a_command_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    """Also when that could not say so: the keeper sees the pipe close."""
    seconds = f"1003.{os.getpid()}"
    code = f"""
import asyncio
from tidings.processes import running
async def main():
    async with running(*{forking(3, 1000, seconds=seconds)!r}) as process:
        print(await process.readline(), flush=True)
        await process.wait()
asyncio.run(main())
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        try:
            run(wait_sleeping(seconds, 3))
        finally:
            parent.kill()
    run(wait_sleeping(seconds, 0))


def test_a_program_that_is_not_there_is_an_error_at_once() -> None:
    async def begin() -> None:
        start("no-such-program-here")

    with pytest.raises(FileNotFoundError):
        run(begin())


def test_a_shell_command_reads_and_prints_more_than_a_pipe_holds() -> None:
    data = b"x" * (1 << 22)
    assert run(shell("cat", data, subprocess.PIPE)) == (0, data)


def test_a_shell_command_that_reads_nothing_is_no_error() -> None:
    assert run(shell("exit 3", b"x" * (1 << 20), subprocess.PIPE)) == (3, b"")


def test_a_process_without_a_keeper_is_ended_by_itself() -> None:
    async def end() -> ProcessEnd:
        process = start("sleep", "1000", contained=False)
        await process.open()
        return await process.end("the node stops", 10.0)

    assert run(end()) == ProcessEnd(-signal.SIGTERM, "the node stops")


def test_one_without_a_keeper_that_ignores_it_is_killed() -> None:
    async def end() -> ProcessEnd:
        process = start("sh", "-c", "trap '' TERM; echo; exec sleep 1000", contained=False)
        await process.open()
        await process.readline()
        return await process.end("the node stops", 0.05)

    assert run(end()) == ProcessEnd(-signal.SIGKILL, "the node stops")

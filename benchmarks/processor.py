"""Processor time of processes, from /proc: for ratios on a machine that others use, too.

It is less than a ratio of times: work that is done at once on two cores takes as much of it as on one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

TICKS_S = os.sysconf("SC_CLK_TCK")


def spent_s(pid: int) -> float:
    """Seconds of processor time of a process and its descendants, also of those that have ended."""
    return sum(sum(_times(one)) for one in family(pid)) / TICKS_S


def used_s(work: Callable[[], Any]) -> float:
    """Seconds of processor time that this process and all it has started use while some work is done."""
    before = spent_s(os.getpid())
    work()
    return spent_s(os.getpid()) - before


def busiest_s(work: Callable[[], Any], word: bytes) -> float:
    """Seconds of the busiest child with this word in its command, with its own children, during some work.

    If none has, they are those of this process. One tick of the kernel's clock is the least.
    """
    own = [pid for pid in family(os.getpid()) if word in _command(pid)] or [os.getpid()]
    before = {pid: spent_s(pid) for pid in own}
    work()
    return max(1 / TICKS_S, *(spent_s(pid) - spent for pid, spent in before.items()))


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        fields = _fields(int(path.name))
        if fields:
            parents.setdefault(int(fields[1]), []).append(int(path.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def _times(pid: int) -> list[int]:
    """User and system time, and both of children that have ended."""
    return [int(text) for text in _fields(pid)[11:15]]


def _fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; none if the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []

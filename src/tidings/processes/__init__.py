"""Processes.

One way to start a program, to read what it prints, and to end it with all that it has started.
"""

from tidings.processes.keeper import GRACE_S
from tidings.processes.started import (
    DEVNULL,
    LINGER_S,
    PIPE,
    ProcessEnd,
    ProcessLimits,
    StartedProcess,
    running,
    shell,
    start,
)

__all__ = [
    "DEVNULL",
    "GRACE_S",
    "LINGER_S",
    "PIPE",
    "ProcessEnd",
    "ProcessLimits",
    "StartedProcess",
    "running",
    "shell",
    "start",
]

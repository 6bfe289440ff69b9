"""Processes.

One way to start a program, to read what it prints, and to end it with all that it has started.
"""

from tidings.processes.keeper import GRACE_S
from tidings.processes.started import (
    LINGER_S,
    ProcessEnd,
    StartedProcess,
    running,
    shell,
    start,
)

__all__ = ["GRACE_S", "LINGER_S", "ProcessEnd", "StartedProcess", "running", "shell", "start"]

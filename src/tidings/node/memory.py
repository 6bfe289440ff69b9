"""How much memory a node may use for its clients, and giving back what it no longer uses."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from pathlib import Path

from tidings.node.config import NodeConfig
from tidings.protocol.memory import Budgets

NODE_SHARE = 4
"""The node's part of the memory of the machine, by default: a quarter."""
USER_SHARE = 2
"""A user's part of the node's."""
SESSION_SHARE = 8
"""A session's part of the node's."""
GIVEN_BACK_MIN = 64 << 20
"""Bytes that must have become free before it is worth to give them back to the system."""
MEMORY_UNKNOWN = 4 << 30
"""Bytes of memory that a machine counts as having if it reports none."""
CGROUP = Path("/sys/fs/cgroup/memory.max")


def budgets_of(config: NodeConfig) -> Budgets:
    """The budgets that the settings give; those not given are shares of the memory of the machine."""
    node = config.memory_max or machine_memory() // NODE_SHARE
    user = config.memory_user_max or node // USER_SHARE
    session = config.memory_session_max or node // SESSION_SHARE
    return Budgets(node, user, session, config.last_values_max)


def machine_memory(cgroup: Path = CGROUP) -> int:
    """Bytes of memory that this process can have at most: those of the machine, or of its control group."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError):  # Windows has no sysconf, others may not know these names
        return MEMORY_UNKNOWN
    try:
        return min(whole, int(cgroup.read_text()))
    except (OSError, ValueError):  # there is none, or it has no limit
        return whole


class GivingBack:
    """Has the C library give memory back to the system when much of what clients used is free again."""

    def __init__(self, trim: Callable[[], object] | None = None) -> None:
        self._trim = trim or _trim
        self._highest = 0

    def look(self, used: int) -> bool:
        """So much is used now; whether that is so much less than before that some was given back."""
        self._highest = max(self._highest, used)
        if self._highest - used < max(GIVEN_BACK_MIN, used):
            return False
        self._highest = used
        self._trim()
        return True


def _trim() -> None:
    """Call malloc_trim, where the C library has it: it keeps what was freed for itself otherwise."""
    if os.name != "posix":
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


class _PandasWithheld(MetaPathFinder):
    """Finder of modules that says that there is no pandas."""

    def find_spec(self, fullname: str, *_: object) -> None:
        """Raise ModuleNotFoundError for pandas; find nothing else."""
        if fullname == "pandas":
            raise ModuleNotFoundError("a node does without pandas", name=fullname)


def withhold_pandas() -> None:
    """Save this process the 40 MB of pandas, which Arrow imports for the first value that it is given."""
    sys.meta_path.insert(0, _PandasWithheld())

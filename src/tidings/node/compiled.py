"""Compiled code in a node: made before the port opens, loaded when there is work for it.

Code that numba has compiled lies in a cache, which all nodes of a user share. A mark in the cache says if it
is good; if not, a child process compiles, so that the node itself stays small. A node loads the code, and
numba with it, when it becomes busy or has many filters: in a thread, while the loop goes on.

The node runs the contents of the cache unchecked, so no other user may be able to write there.
"""

from __future__ import annotations

import hashlib
import os
import platform
import stat
import subprocess
import sys
import threading
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from tidings.node import logs
from tidings.node.unix import Temporary

CACHE_VARIABLE = "NUMBA_CACHE_DIR"
COMPILE_S_MAX = 300.0
"""How long compiling may take before the node starts without."""
BUSY_TICKS = 5
"""Full ticks after which a node counts as busy."""
BYTES_MANY = 2 << 20
"""Bytes from one wake to the next, about a second, from which on a node counts as busy too."""
FILTERS_MANY = 24
"""Subscriptions from which on the index will soon want compiled code."""
PACKAGES = ("event", "matching", "protocol")
"""Where compiled functions are."""


def is_installed() -> bool:
    """Whether there is a compiler at all."""
    return find_spec("numba") is not None


def prepare(cache: Path) -> None:
    """Fill the cache if it is not filled, and have numba use it; to be called before numba is imported.

    A cache that can't be filled is reported, and compiled code is then made when it is loaded. One to which
    others can write is not used: what lies in it would be run.
    """
    os.environ[CACHE_VARIABLE] = str(cache)
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not is_private(cache):
            logs.warning("others can write to the cache of compiled code", cache=cache)
            cache = Temporary().path
            os.environ[CACHE_VARIABLE] = str(cache)
        _fill(cache)
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", None) or b""
        logs.warning("could not compile", problem=str(error), output=output.decode(errors="replace")[-500:])


def is_private(folder: Path) -> bool:
    """Whether only this user can put files into a folder, or another folder in its place."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        return False
    modes = (above.stat().st_mode for above in folder.resolve().parents)
    return not any(mode & stat.S_IWOTH and not mode & stat.S_ISVTX for mode in modes)


def _fill(cache: Path) -> None:
    mark = cache / f"filled-{fingerprint()}"
    if mark.exists():
        return
    logs.info("compiling for this machine, once", cache=cache)
    # -P: nothing is imported from the folder in which the node happens to be started.
    command = [sys.executable, "-P", "-c", "from tidings.node.compiled import exercise; exercise()"]
    subprocess.run(command, check=True, capture_output=True, timeout=COMPILE_S_MAX)
    mark.touch()


def fingerprint() -> str:
    """Return the inputs of the cache: our sources and their place, numba, Python, the processor."""
    home = Path(__file__).parent.parent
    files = sorted(file for package in PACKAGES for file in (home / package).glob("*.py"))
    stamps = [(str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files]
    versions = (metadata.version("numba"), sys.version, platform.machine(), platform.processor())
    return hashlib.sha256(repr((stamps, versions)).encode()).hexdigest()[:16]


def exercise() -> None:
    """Run every compiled function once, with the types it has in a node, and use them from then on."""
    from tidings import matching
    from tidings.event import Batch, Event, check
    from tidings.event.check_compiled import check_certain
    from tidings.protocol import frames
    from tidings.protocol.cutting import join_compiled

    events = [Event("air.pm10", {"value": 1.5 * n, "name": f"name {n}", "ok": n > 2}) for n in range(20)]
    batch = Batch.of(events)
    check_certain(batch.raw)
    join_compiled(frames.encode(frames.PUBLISH, batch.raw) * 20, 0, frames.FRAME_MAX)
    matching.prepare()
    check.use_compiled()  # last, so that the loop never waits for a function that is being loaded
    frames.use_compiled()


class Loader:
    """Loads compiled code once, in a thread, when `busy`, `traffic` or `filters` say that it is worth it."""

    def __init__(self) -> None:
        self._full_ticks = 0
        self._received = 0
        self._thread: threading.Thread | None = None

    def busy(self) -> None:
        """A tick was full."""
        self._full_ticks += 1
        if self._full_ticks >= BUSY_TICKS:
            self.load()

    def traffic(self, received: int) -> None:
        """So many bytes have arrived ever; to be called about once a second."""
        before, self._received = self._received, received
        if received - before >= BYTES_MANY:
            self.load()

    def filters(self, count: int) -> None:
        """There are so many subscriptions."""
        if count >= FILTERS_MANY:
            self.load()

    def load(self) -> None:
        """Begin to load, if that has not begun."""
        if self._thread is None:
            self._thread = threading.Thread(target=_load, name="tidings-compiled", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Wait until a load that has begun is done."""
        if self._thread is not None:
            self._thread.join()


def _load() -> None:
    try:
        exercise()
    except Exception as error:  # the one place: without compiled code a node is slower, not broken
        logs.error("compiled code could not be loaded", problem=repr(error))
    else:
        logs.info("using compiled code")

"""Compiled code in a node: made beside it by a child, loaded when there is work for it.

Code that numba has compiled lies in a cache, which all nodes of a user share. A mark in the cache says if it
is good; if not, a child process compiles, while the node serves in plain Python: a thread would hold the
interpreter lock for most of that time. A node loads the code, and numba with it, when it becomes busy or has
many filters: in a thread, while the loop goes on. The loop uses each compiled function from its next call on;
each returns what the plain one returns, so no event is lost or reordered by the change.

The node runs the contents of the cache unchecked, so no other user may be able to write there.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import platform
import stat
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from tidings.errors import InternalError
from tidings.node import logs
from tidings.node.unix import Temporary

CACHE_VARIABLE = "NUMBA_CACHE_DIR"
CACHE = "tidings.compiled"
"""The folder of compiled code."""
COMPILE_S_MAX = 1_800.0
"""How long compiling may take before the node goes on without."""
NICE = 10
"""By how much the compiler gives way to the node."""
COMPILER = f"import os; os.nice({NICE}); from {__name__} import exercise; exercise()"
"""Program of the child."""
OUTPUT_MAX = 500
"""Characters of the compiler's output that are logged if it fails."""
BUSY_TICKS = 5
"""Full ticks after which a node counts as busy."""
BYTES_MANY = 2 << 20
"""Bytes from one wake to the next, about a second, that arrive or are searched, from which on it does too."""
FILTERS_MANY = 24
"""Subscriptions from which on the index will soon want compiled code."""
CPU_INFO = Path("/proc/cpuinfo")
CPU_FIELDS = ("model name", "flags", "features", "cpu implementer", "cpu part")
"""Lines of Linux's description of a processor that say what code it can run."""
PACKAGES = ("event", "matching", "protocol")
"""Modules that have compiled functions."""


def is_installed() -> bool:
    """Whether there is a compiler at all."""
    return find_spec("numba") is not None


CompiledState = Literal["off", "compiling", "ready", "loading", "in use"]
"""`off`: there is none, and the node runs plain Python; `ready`: it is loaded when the node is busy."""


def cache_place(directory: str | None) -> Path:
    """Return where compiled code is kept; a temporary folder if there is no lasting place."""
    return lasting_place(directory) or Temporary().path


def lasting_place(directory: str | None) -> Path | None:
    """Return the user's cache, which is for all nodes, or the node's directory; None if there is neither."""
    base = os.environ.get("XDG_CACHE_HOME")
    with contextlib.suppress(OSError, RuntimeError):  # no home, or none to write to
        place = (Path(base) if base else Path.home() / ".cache") / "tidings"
        place.mkdir(parents=True, exist_ok=True)
        if os.access(place, os.W_OK):
            return place
    return None if directory is None else Path(directory)


def use_cache(cache: Path) -> Path:
    """Have numba use a cache, and return it; to be called before numba is imported.

    One to which others can write is not used, since what lies in it would be run: the cache is then a
    temporary one. OSError if the folder can't be made or written to.
    """
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not is_private(cache):
        logs.warning("others can write to the cache of compiled code", cache=cache)
        cache = Temporary().path
    os.environ[CACHE_VARIABLE] = str(cache)
    return cache


async def fill(cache: Path) -> None:
    """Have a child compile into a cache unless it is filled; OSError or InternalError if it can't be filled.

    The child ends if this is cancelled; functions that it has compiled by then are in the cache.
    """
    mark = cache / f"filled-{fingerprint()}"
    if mark.exists():
        return
    logs.info("compiling for this machine, once", cache=cache)
    # -P: nothing is imported from the folder in which the node happens to be started.
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", COMPILER),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    await _finish(child)
    mark.touch()


def compile_now(directory: str | None = None) -> Path:
    """Fill the cache that a node with this directory uses, and return it; errors as for `fill`."""
    place = lasting_place(directory)
    if place is None:
        raise OSError("the user has no cache directory that can be written; set XDG_CACHE_HOME")
    cache = place / CACHE
    if use_cache(cache) != cache:
        raise OSError(f"others can write to {cache}; revoke that permission")
    asyncio.run(fill(cache))
    return cache


async def _finish(child: asyncio.subprocess.Process) -> None:
    """Wait for the end of the compiler, which has a limit."""
    try:
        async with asyncio.timeout(COMPILE_S_MAX):
            _, output = await child.communicate()
    except TimeoutError:
        raise InternalError(f"not done within {COMPILE_S_MAX:g} s") from None
    finally:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    if child.returncode:
        raise InternalError(f"code {child.returncode}: {output.decode(errors='replace')[-OUTPUT_MAX:]}")


def is_private(folder: Path) -> bool:
    """Whether only this user can put files into a folder, or another folder in its place."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        return False
    modes = (above.stat().st_mode for above in folder.resolve().parents)
    return not any(mode & stat.S_IWOTH and not mode & stat.S_ISVTX for mode in modes)


def fingerprint() -> str:
    """Return the inputs of the cache: our sources and their place, numba, Python, the processor."""
    from importlib import metadata  # here: a plain node starts without it

    home = Path(__file__).parent.parent
    files = sorted(file for package in PACKAGES for file in (home / package).glob("*.py"))
    stamps = [(str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files]
    versions = (metadata.version("numba"), sys.version, platform.machine(), _processor())
    return hashlib.sha256(repr((stamps, versions)).encode()).hexdigest()[:16]


def _processor() -> list[str]:
    """Return what is known of the processor: numba's code is for its instructions, and no other's.

    A cache may come from elsewhere, in the image of a container or a home on the network.
    """
    try:
        lines = CPU_INFO.read_text().partition("\n\n")[0].splitlines()  # of the first core
    except OSError:
        return [platform.processor()]
    return sorted(line for line in lines if line.lower().startswith(CPU_FIELDS))


def exercise() -> None:
    """Run every compiled function once, with the types it has in a node, and use them from then on."""
    from tidings import matching
    from tidings.event import Batch, Event, wire
    from tidings.event.check_compiled import check_certain
    from tidings.protocol import frames
    from tidings.protocol.cutting import join_compiled

    events = [Event("air.pm10", {"value": 1.5 * n, "name": f"name {n}", "ok": n > 2}) for n in range(20)]
    batch = Batch.of(events)
    check_certain(batch.raw)
    join_compiled(frames.encode(frames.PUBLISH, batch.raw) * 20, 0, frames.FRAME_MAX)
    matching.prepare()
    wire.use_compiled()  # last, so that the loop never waits for a function that is being loaded
    frames.use_compiled()


class Loader:
    """Compiles beside the node, and loads the code once, when `busy`, `traffic` or `filters` say so."""

    def __init__(self) -> None:
        self.state: CompiledState = "ready"
        self._full_ticks = 0
        self._read = 0
        self._is_wanted = False
        self._filling: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None

    def compile(self, directory: str | None) -> None:
        """Begin to fill the cache of this user or directory; code is loaded after that."""
        self.state = "compiling"
        self._filling = asyncio.get_running_loop().create_task(self._fill(directory), name="tidings compiled")

    async def _fill(self, directory: str | None) -> None:
        try:
            await fill(use_cache(cache_place(directory) / CACHE))
        except (OSError, InternalError) as error:  # to compile in this process would hold the loop up
            self.state = "off"
            logs.warning("could not compile", problem=str(error))
            return
        self.state = "ready"
        if self._is_wanted:
            self.load()

    def busy(self) -> None:
        """A tick was full."""
        self._full_ticks += 1
        if self._full_ticks >= BUSY_TICKS:
            self.load()

    def traffic(self, read: int) -> None:
        """So many bytes have arrived, or were searched in the log, ever; to be called about once a second."""
        before, self._read = self._read, read
        if read - before >= BYTES_MANY:
            self.load()

    def filters(self, count: int) -> None:
        """Note the number of subscriptions."""
        if count >= FILTERS_MANY:
            self.load()

    def load(self) -> None:
        """Begin to load as soon as there is code, if that has not begun."""
        self._is_wanted = True
        if self.state == "ready":
            self.state = "loading"
            self._thread = threading.Thread(target=self._load, name="tidings-compiled", daemon=True)
            self._thread.start()

    def _load(self) -> None:
        try:
            exercise()
        except Exception as error:  # the one place: without compiled code a node is slower, not broken
            self.state = "off"
            logs.error("compiled code could not be loaded", problem=repr(error))
        else:
            self.state = "in use"
            logs.info("using compiled code")

    def wait(self) -> None:
        """Wait until a load that has begun is done."""
        if self._thread is not None:
            self._thread.join()

    async def close(self) -> None:
        """End the compiler, and wait until a load that has begun is done."""
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.wait([self._filling])
        await asyncio.to_thread(self.wait)

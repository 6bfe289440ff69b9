"""The node of this process, the node of this machine, and all nodes that this user runs on it.

A program that opens a directory has a node in its own process: the same broker on the program's own loop,
reached over a pipe, so that all is as with a node elsewhere. A program that connects without an
address finds the node of this machine, one for each user: its Unix socket lies in a directory that only this
user can open. If none answers there, nor on port 7300 of the loopback address, one is started that stays when
the program ends. However many programs find that out at the same time, a lock lets one of them start it.

Each node has a PID file in the user's runtime directory, by which commands find and end it, and holds a lock
on it (flock) until it ends, in whatever way. So the process in a file whose lock is held is that node, and no
other that got its number later. The files of nodes that were killed are removed by those who list them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tidings.errors import ConfigError, Disconnected, NoAnswer, NotAllowed, Refused, TidingsError
from tidings.locks import check_locks, has_locks, lock
from tidings.node import logs
from tidings.node.config import PORT, NodeConfig
from tidings.node.config_checks import check
from tidings.node.driver import SteadyClock
from tidings.node.ports import answers
from tidings.node.server import Node
from tidings.node.settings import complete
from tidings.node.unix import is_free
from tidings.peers.registry import Neighbours, Upstream
from tidings.queues import Volatile
from tidings.transport.credentials import Credentials
from tidings.transport.dial import ConnectTo, dial, dial_unix
from tidings.transport.ping import ping

START_S_MAX = 120.0
"""How long to wait for a node that was started, on a busy machine."""
PROBE_S_MAX = 2.0
"""How long a node may take to say who it is."""
RETRY_S = 0.05
LOOPBACK = "127.0.0.1"
LOG_TAIL = 2_000
"""Characters of its output that are shown when a node did not start."""
RUNNING = "running"
"""The folder of PID files."""
PID_SIZE_MAX = 64 << 10
PID_FILES_MAX = 1_000
"""Files that are looked at for one list."""


@contextlib.asynccontextmanager
async def run_in_process(
    path: str | Path | None,
    queue_types: Sequence[type[Volatile]] = (),
    upstream: Upstream | None = None,
    peers: Neighbours | None = None,
    clock: SteadyClock | None = None,
    adhoc: dict[str, Any] | None = None,
) -> AsyncIterator[Node]:
    """A node on this loop, for as long as the block lasts; `node.attach(protocol)` connects a client.

    Without a path it keeps nothing. What is published goes on to the upstream, if there is one. The clock is
    the system's unless another is given. With the settings `adhoc` it meets hosts, and listens for that.
    """
    config = NodeConfig(dir=None if path is None else str(path))
    if adhoc is not None:
        config = _meeting(config, adhoc)
    node = Node(config, queue_types, upstream, peers, clock)
    node.open()
    try:
        if adhoc is not None:
            await node.listen_to_hosts()
        yield node
    finally:
        await node.close()


def _meeting(config: NodeConfig, settings: dict[str, Any]) -> NodeConfig:
    """Return the settings of a node that meets hosts; ConfigError for what can't be."""
    try:
        given = {**msgspec.to_builtins(config), "port": 0, **settings, "adhoc": True}
        made = msgspec.convert(given, NodeConfig)
    except msgspec.ValidationError as error:
        raise ConfigError("adhoc", "", str(error)) from None
    check(made, dict.fromkeys(NodeConfig.__struct_fields__, "adhoc"))
    return made


async def find_or_start(timeout_s: float = START_S_MAX) -> str:
    """The address of the node of this machine, started if there is none; Disconnected if none answers.

    A node at this user's socket is preferred to one at the port, which another user may have started.
    """
    if not has_locks():  # and no Unix sockets either, as on Windows
        if await is_at_port(PORT):
            return f"tidings://{LOOPBACK}:{PORT}"
        check_locks(f"no node answers at port {PORT}, and starting one")
    path = machine_socket()
    home = path.parent
    try:
        async with asyncio.timeout(timeout_s):
            while not await is_alive(path):
                if await is_at_port(PORT):
                    return f"tidings://{LOOPBACK}:{PORT}"
                with _lock(home / "starting") as is_ours:
                    if is_ours and not await is_alive(path):
                        await _start(home, path)
                await asyncio.sleep(RETRY_S)
    except TimeoutError:
        raise Disconnected(f"no node answered on {path} within {timeout_s:g} s{_tail(home)}") from None
    return f"tidings+unix://{path}"


def machine_socket() -> Path:
    """Return the socket path of this machine's node, whether or not there is one."""
    return runtime_directory() / "node.sock"


def as_machine_node(config: NodeConfig) -> NodeConfig:
    """Make a node without an address the node of this machine, if there is none yet."""
    if config.port is None and config.unix is None and not answers(path := machine_socket()):
        return msgspec.structs.replace(config, port=config.tcp_port, unix=str(path))
    return config


def runtime_directory() -> Path:
    """Return the directory of the node's socket; created if missing, refused if others can get in."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    user = os.getuid()
    home = Path(base) / "tidings" if base else Path(tempfile.gettempdir()) / f"tidings-{user}"
    home.mkdir(mode=0o700, exist_ok=True)
    found = home.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o077:
        raise NotAllowed(f"{home}: is no directory that only you can open; remove it, or set XDG_RUNTIME_DIR")
    return home


def state_directory() -> Path:
    """Return the directory in which this user's node stores its data."""
    if given := os.environ.get("TIDINGS_DIR"):
        return Path(given)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "tidings"


async def is_alive(path: Path) -> bool:
    """Whether a node answers on this socket."""
    return await _answers(dial_unix(str(path)))


async def is_at_port(port: int) -> bool:
    """Whether a node without security answers on this port of the loopback address."""
    return await _answers(dial(f"tidings://{LOOPBACK}:{port}"))


async def _answers(reach: ConnectTo) -> bool:
    """Whether a node is at the other end, be it one that refuses us; other programs may listen there too."""
    try:
        await ping(reach, Credentials().says, PROBE_S_MAX)
    except (Disconnected, NoAnswer):
        return False
    except (NotAllowed, Refused):
        return True
    return True


async def _start(home: Path, path: Path) -> None:
    """Start a node that outlives this process, and wait until it answers; Disconnected if it ends."""
    config = complete(NodeConfig(dir=str(state_directory()), unix=str(path)))
    process = _spawn(config, home / "node.log")
    while not await is_alive(path):
        ended, _ = os.waitpid(process, os.WNOHANG)
        if ended:
            raise Disconnected(f"the node of this machine did not start{_tail(home)}")
        await asyncio.sleep(RETRY_S)
    text = "no node answered on this machine; started one at tidings+unix://%s, which stores its data in %s"
    logging.getLogger("tidings").warning(text, path, config.dir)


def _spawn(config: NodeConfig, output: Path) -> int:
    """A process in a session of its own, so that what ends this one does not end it."""
    # -P: nothing is imported from the folder in which a program happens to be started.
    command = [sys.executable, "-P", "-m", "tidings.node.main", msgspec.json.encode(config).decode()]
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(output), flags, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawn(sys.executable, command, os.environ, file_actions=actions, setsid=True)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[bool]:
    """Whether the lock was free; it is held for as long as the block lasts, or this process does."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    is_ours = False
    try:
        with contextlib.suppress(BlockingIOError):
            lock(handle)
            is_ours = True
        yield is_ours
    finally:
        os.close(handle)


def _tail(home: Path) -> str:
    try:
        text = (home / "node.log").read_text(errors="replace").strip()
    except OSError:
        return ""
    return f"; it said:\n{text[-LOG_TAIL:]}" if text else ""


# Nodes that run


class RunningNode(Struct, frozen=True):
    """A node process of this user."""

    pid: int
    node: str
    name: str
    started: float  # seconds since 1970
    version: str
    dir: str | None
    addresses: list[str]
    metrics: str | None

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        path = _folder() / str(self.pid)
        return path.exists() and not is_free(path) and _read(path) == self

    def terminate(self) -> bool:
        """Have it stop in good order; whether it was there."""
        if not self.is_running:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
            return True
        return False


@contextlib.contextmanager
def pid_file(node: RunningNode) -> Iterator[None]:
    """Keep a PID file as long as the block lasts; what keeps the process from that is logged."""
    try:
        path = _folder() / str(node.pid)
        path.unlink(missing_ok=True)  # of a process that had this number before
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        lock(handle, wait=True)
        os.write(handle, msgspec.json.encode(node))
    except (OSError, TidingsError) as error:
        logs.warning("the node can't be listed", problem=str(error))
        yield
        return
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def list_running() -> list[RunningNode]:
    """Return the nodes of this user, the oldest first."""
    found = (_look(path) for path in islice(_folder().iterdir(), PID_FILES_MAX))
    return sorted((node for node in found if node is not None), key=lambda node: node.started)


def _look(path: Path) -> RunningNode | None:
    """Return the node of a PID file; None if it is gone, and then the file is removed."""
    with contextlib.suppress(FileNotFoundError):  # it has ended just now
        if is_free(path):
            path.unlink(missing_ok=True)
        else:
            return _read(path)
    return None


def _read(path: Path) -> RunningNode | None:
    """Return what a PID file says; None if it is not written yet, or by another version."""
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(PID_SIZE_MAX), type=RunningNode)
    except (OSError, msgspec.DecodeError):
        return None


def _folder() -> Path:
    folder = runtime_directory() / RUNNING
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder

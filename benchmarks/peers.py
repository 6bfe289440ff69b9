"""The brokers that are measured, as processes: nodes of tidings, and its peers where they are installed.

All listen on free ports of the loopback address, and are stopped by their process when the block ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.load import HOST
from tidings.errors import PeerError
from tidings.node.config import NodeConfig

START_S_MAX = 120.0
"""How long a broker may take to listen; a node may have to compile first."""
LOOK_S = 0.02
COMPILED = "using compiled code"
"""What a node logs when it has loaded its compiled code."""
PEERS = {"nats": "nats-server", "mosquitto": "mosquitto", "redis": "redis-server"}
"""Peers, and the programs they are."""


def memory_kb(pid: int, what: str = "VmRSS") -> int:
    """Memory that a process has in use just now, or the most that it had: VmHWM."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(what))


@dataclass(frozen=True)
class Broker:
    """A broker that runs."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def address(self) -> str:
        """Where clients of tidings find it."""
        return f"tidings://{HOST}:{self.port}"

    @property
    def memory_kb(self) -> int:
        """Memory of the process that is in use just now."""
        return memory_kb(self.process.pid)

    @property
    def processor_s(self) -> float:
        """Processor time that the process has taken so far, all threads together."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def wait_log(self, words: str) -> None:
        """Wait until these words stand in its log."""
        _wait(lambda: words in self.log.read_text(errors="replace"), self.process, self.log)


@contextlib.contextmanager
def node(*, compiled: bool, directory: Path | None = None) -> Iterator[Broker]:
    """A node of tidings, which stores events if it has a directory."""
    port = free_port()
    config = NodeConfig(port=port, compiled=compiled, dir=None if directory is None else str(directory))
    settings = msgspec.json.encode(config).decode()
    with running("tidings", port, [sys.executable, "-m", "tidings.node.main", settings]) as broker:
        yield broker


def is_installed(name: str) -> bool:
    """Whether the program of a peer is there."""
    return _program(name) is not None


def _program(name: str) -> str | None:
    # Debian puts servers where the path of ordinary users does not lead.
    return shutil.which(PEERS[name]) or shutil.which(PEERS[name], path="/usr/sbin:/usr/local/sbin")


@contextlib.contextmanager
def peer(name: str) -> Iterator[Broker]:
    """A peer with nothing but what it needs to take connections of this machine."""
    program, port = _program(name), free_port()
    assert program is not None
    with tempfile.TemporaryDirectory(prefix="tidings-bench-") as home:
        command = [program, *_flags(name, port, Path(home))]
        with running(name, port, command) as broker:
            yield broker


@contextlib.contextmanager
def leaf_pair() -> Iterator[tuple[Broker, Broker]]:
    """Two servers of NATS with a link between them: a hub, and a leaf node that has dialled it."""
    program = _program("nats")
    assert program is not None
    hub, link, leaf = free_port(), free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="tidings-bench-") as home, contextlib.ExitStack() as stack:
        brokers = []
        for port, part in (
            (hub, f'listen: "{HOST}:{link}"'),
            (leaf, f'remotes: [{{url: "nats://{HOST}:{link}"}}]'),
        ):
            file = Path(home) / f"{port}.conf"
            file.write_text(f'listen: "{HOST}:{port}"\nleafnodes {{ {part} }}\n')
            brokers.append(stack.enter_context(running("nats", port, [program, "-c", str(file)])))
        brokers[1].wait_log("Leafnode connection created")
        yield brokers[0], brokers[1]


def _flags(name: str, port: int, home: Path) -> list[str]:
    if name == "nats":
        return ["-a", HOST, "-p", str(port)]
    if name == "redis":
        return ["--port", str(port), "--bind", HOST, "--save", "", "--appendonly", "no", "--dir", str(home)]
    file = home / "mosquitto.conf"
    limits = "max_queued_messages 0\nmax_queued_bytes 0\nset_tcp_nodelay true\n"
    file.write_text(f"listener {port} {HOST}\nallow_anonymous true\nuser root\n{limits}")
    return ["-c", str(file)]


@contextlib.contextmanager
def running(name: str, port: int, command: list[str]) -> Iterator[Broker]:
    """The process, from when it listens; its output is kept in a file, as a full pipe would stop it."""
    with tempfile.NamedTemporaryFile(prefix=f"tidings-bench-{name}-", suffix=".log") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            _wait(lambda: _listens(port), process, Path(log.name))
            yield Broker(name, port, process, Path(log.name))
        finally:
            process.terminate()
            try:
                process.wait(timeout=10.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(is_so: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S_MAX
    while not is_so():
        if process.poll() is not None or time.monotonic() > deadline:
            raise PeerError(f"a broker did not start: {log.read_text(errors='replace')[-500:]}")
        time.sleep(LOOK_S)


def _listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def free_port() -> int:
    """A port of the loopback address that nobody uses just now."""
    with socket.socket() as channel:
        channel.bind((HOST, 0))
        port: int = channel.getsockname()[1]
        return port

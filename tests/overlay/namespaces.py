"""Nodes as processes, each in a network namespace of its own, on one bridge, and cuts between any two.

The addresses are loopback ones, which the kernel is told to route, so that nodes need no certificates. A cut
is a route into nothing at both ends: packets vanish, and no end hears of it. Clients use Unix sockets, which
know no namespaces.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from guarantees.peered import PATIENCE_S
from node.peers import SOURCE

import tidings
from tidings.client import Bus

PORT = 7300
MAIN = "from tidings.cli import main; main()"


def ip(*arguments: str) -> None:
    """Run `ip`."""
    subprocess.run(("ip", *arguments), check=True, capture_output=True)


def are_allowed() -> bool:
    """Whether namespaces can be made here."""
    name = f"td{os.getpid()}"
    if sys.platform != "linux" or os.getuid() != 0 or shutil.which("ip") is None:
        return False
    with contextlib.suppress(subprocess.CalledProcessError, OSError):
        ip("netns", "add", name)
        try:
            ip("-n", name, "link", "add", "br0", "type", "bridge")
            return True
        finally:
            ip("netns", "del", name)
    return False


class NodeInNamespace:
    """One node; `number` is the end of its address."""

    def __init__(self, number: int, home: Path) -> None:
        self.number = number
        self.name = f"n{number}"
        self.namespace = f"td{os.getpid()}-{number}"
        self.home = home / self.name
        self.home.mkdir()
        self.socket = self.home / "node.sock"
        self.log = self.home / "log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        """Where it listens."""
        return f"127.77.0.{self.number}"

    def start(self, peers: Sequence[NodeInNamespace] = ()) -> None:
        """Start its process."""
        known = ",".join(f"{one.name}=tidings://{one.host}:{PORT}" for one in peers)
        flags = ["--name", self.name, "--dir", str(self.home / "data"), "--unix", str(self.socket)]
        flags += ["--host", self.host, "--port", str(PORT), "--plain", "--log-form", "json"]
        flags += ["--peers", known] if known else []
        with self.log.open("ab") as log:
            command = ["ip", "netns", "exec", self.namespace, sys.executable, "-c", MAIN, "node", *flags]
            self._process = subprocess.Popen(
                command,
                env={**os.environ, "PYTHONPATH": str(SOURCE)},
                stdout=log,
                stderr=log,
            )

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End its process, by a signal."""
        if self._process is not None:
            self._process.send_signal(number)  # `ip` has become the node
            self._process.wait()
            self._process = None

    def bus(self, name: str) -> Bus:
        """A client of it, which waits for it."""
        address = f"tidings+unix://{self.socket}"
        return tidings.connect(address, name=name, timeout_s=PATIENCE_S, call_timeout_s=None)

    def route(self, other: NodeInNamespace, what: str) -> None:
        """Let packets to another node vanish (`add`), or not any longer (`del`)."""
        ip("-n", self.namespace, "route", what, "blackhole", f"{other.host}/32")


class NetworkOfNamespaces:
    """Namespaces on a bridge, with a node in each."""

    def __init__(self, home: Path, count: int) -> None:
        self.nodes = [NodeInNamespace(number, home) for number in range(1, count + 1)]
        self._hub = f"td{os.getpid()}-hub"

    def __getitem__(self, number: int) -> NodeInNamespace:
        return self.nodes[number - 1]

    def _make(self) -> None:
        ip("netns", "add", self._hub)
        ip("-n", self._hub, "link", "add", "br0", "type", "bridge")
        ip("-n", self._hub, "link", "set", "br0", "up")
        for node in self.nodes:
            inside = ("-n", node.namespace)
            ip("netns", "add", node.namespace)
            port = f"v{node.number}"
            ip("-n", self._hub, "link", "add", port, "type", "veth", "peer", "eth0", "netns", node.namespace)
            ip("-n", self._hub, "link", "set", port, "master", "br0", "up")
            for device in ("all", "eth0"):
                setting = f"net.ipv4.conf.{device}.route_localnet=1"
                command = ("ip", "netns", "exec", node.namespace, "sysctl", "-qw", setting)
                subprocess.run(command, check=True)
            ip(*inside, "addr", "add", f"{node.host}/24", "dev", "eth0")
            ip(*inside, "link", "set", "eth0", "up")

    @contextlib.contextmanager
    def made(self) -> Iterator[None]:
        """Make the namespaces, and take them away at the end, with the nodes that still run."""
        try:
            self._make()
            yield
        finally:
            for node in self.nodes:
                node.stop()
            for name in (self._hub, *(node.namespace for node in self.nodes)):
                subprocess.run(("ip", "netns", "del", name), check=False, capture_output=True)

    def cut(self, *pairs: tuple[int, int]) -> None:
        """Let all packets between two nodes vanish."""
        for one, other in pairs:
            self[one].route(self[other], "add")
            self[other].route(self[one], "add")

    def heal(self, *pairs: tuple[int, int]) -> None:
        """Let them through again."""
        for one, other in pairs:
            self[one].route(self[other], "del")
            self[other].route(self[one], "del")

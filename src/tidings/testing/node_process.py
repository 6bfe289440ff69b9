"""A node as a process of its own, which a test can kill and start again."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Self

import msgspec

import tidings
from tidings.errors import ConfigError, Disconnected, UserError
from tidings.node.config import NodeConfig

START_S_MAX = 60.0
"""How long a node may take to listen before it is killed, and its start counts as failed."""
STOP_S_MAX = 30.0
"""How long a node may take to end after it was asked to; then it is killed."""
LOG_TAIL = 2_000
"""Characters of its log that are shown when a node did not start."""
QUICK = {"port": 0, "compiled": False, "log_seal_s": 0.0}
"""Settings that differ from a node's defaults: a free port, and a quick start."""


class NodeProcess:
    """A node with a directory and an address that stay the same in all its lives.

    `settings` are those of docs/node.md, such as `http_port=0`. By default it listens on a free port of
    127.0.0.1, runs without compiled code and does not seal its log. Its log is the file `node.log` in
    `home`, its store the directory `store`.
    """

    def __init__(self, home: Path, **settings: Any) -> None:
        self.log = home / "node.log"
        """The file of everything the node has logged."""
        self.address = ""
        """Address at which it listens, from the first start on."""
        try:
            given = {"dir": str(home / "store"), **QUICK, **settings}
            self._config = msgspec.convert(given, NodeConfig)
        except msgspec.ValidationError as error:
            raise ConfigError("settings of the test's node", "", str(error)) from None
        self._process: subprocess.Popen[str] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The number of the process in its current or last life."""
        if self._process is None:
            raise UserError("the node was not started; use it inside `with`, or call start()")
        return self._process.pid

    def start(self) -> Self:
        """Start the node, and return when it listens; raises Disconnected with its log if it does not."""
        if self.is_running:
            raise UserError(f"the node runs already, as process {self.pid}; stop() or kill() it first")
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tidings.node.main", msgspec.json.encode(self._config).decode()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=_environment(),
            )
        self.address = self._listening(self._process)
        port = int(self.address.rpartition(":")[2])
        self._config = msgspec.structs.replace(self._config, port=port)
        return self

    def _listening(self, process: subprocess.Popen[str]) -> str:
        """Return the address in the first line that the node prints."""
        assert process.stdout is not None
        late = threading.Timer(START_S_MAX, process.kill)
        late.start()
        try:
            words = process.stdout.readline().split()
        finally:
            late.cancel()
        if words[:2] != ["listening", "on"]:
            self.kill()
            raise Disconnected(f"the node did not start:\n{self.log.read_text()[-LOG_TAIL:]}")
        return words[2]

    def kill(self) -> None:
        """End the process at once, as a crash would (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def stop(self) -> None:
        """End the node in good order (SIGTERM), or kill it if it takes longer than STOP_S_MAX."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.communicate(timeout=STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()

    def restart(self) -> None:
        """Start it again on the same directory and address; one that still runs is stopped first."""
        if self.is_running:
            self.stop()
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def __repr__(self) -> str:
        state = f"process {self.pid}" if self.is_running else "not running"
        return f"<NodeProcess {self.address or 'without address'}, {state}>"


def _environment() -> dict[str, str]:
    """Return this process's environment, in which the child finds the same tidings."""
    source = str(Path(tidings.__file__).parent.parent)
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

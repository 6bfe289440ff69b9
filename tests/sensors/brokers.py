"""For tests, a real Mosquitto on a free port of the loopback address; it keeps what it has over a restart."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from effort import ANSWER_S
from ports import free_port

START_S_MAX = ANSWER_S
LOOK_S = 0.02
# Debian puts servers where the path of ordinary users does not lead.
PROGRAM = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
MISSING = "mosquitto is not installed"


class Mosquitto:
    """One broker; `start` again after `stop` finds what was kept."""

    def __init__(self, home: Path) -> None:
        self.port = free_port()
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        file = self._home / "mosquitto.conf"
        # Else it would give up its rights, and could not write its file.
        user = f"user {os.environ.get('USER', 'root')}\n" if os.geteuid() == 0 else ""
        file.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\n{user}"
            f"persistence true\npersistence_location {self._home}/\n"
            "max_queued_messages 0\nmax_inflight_messages 0\n"
        )
        log = (self._home / "log").open("ab")
        self._process = subprocess.Popen([str(PROGRAM), "-c", str(file)], stdout=log, stderr=log)
        log.close()
        deadline = time.monotonic() + START_S_MAX
        while not self._listens():
            assert self._process.poll() is None, (self._home / "log").read_text()
            assert time.monotonic() < deadline, "the broker does not listen"
            time.sleep(LOOK_S)

    def stop(self) -> None:
        """Stop it, and wait until it is gone; it writes what it keeps."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(START_S_MAX)
            self._process = None

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1.0).close()
        except OSError:
            return False
        return True


@contextlib.contextmanager
def mosquitto(home: Path) -> Iterator[Mosquitto]:
    """A broker that runs until the block ends."""
    broker = Mosquitto(home)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()

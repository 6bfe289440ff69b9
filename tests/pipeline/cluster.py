"""A Spark cluster of processes on this machine: a master, workers with one executor each, and drivers.

Each of them can be killed by itself, as if its machine had died. All listen on the loopback, write what they
have to say into files of one folder, and end with the block.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pyspark
from effort import patience
from ports import free_port
from quick_java import QUICK_JAVA

from tidings.pipeline.session import check_java

TESTS = Path(__file__).parents[1]
SPARK = Path(pyspark.__file__).parent
PATIENCE_S = patience(240.0)
"""After this a test that waits for something is taken to wait for ever; to start takes long as it is."""
LOOK_S = 0.05
SURROUNDINGS = {
    "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
    "PYTHONPATH": f"{TESTS.parent / 'src'}{os.pathsep}{TESTS}",
    "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_HOME": str(SPARK),
    "SPARK_LOCAL_IP": "127.0.0.1",
}
"""What all processes have, and executors of their workers."""


class Mortal:
    """A process and those it has started, with a file that has all they print."""

    def __init__(self, file: Path, command: list[str], **surroundings: str) -> None:
        self._file = file
        with file.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **SURROUNDINGS, **surroundings},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """It must not have ended by itself."""
        assert self._process.poll() is None, f"{self._file.name}: {self._file.read_text()[-4000:]}"

    def kill(self) -> None:
        """Kill it with all it has started, if they are still there, and wait for its end."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE_S)


class Cluster:
    """See the module; `home` is a folder for what the processes write."""

    def __init__(self, home: Path, workers: int = 2) -> None:
        self.home = home
        self.address = f"spark://127.0.0.1:{free_port()}"
        self._count = workers
        self._master: Mortal
        self._workers: dict[int, Mortal] = {}

    def __enter__(self) -> Self:
        check_java()
        self.home.mkdir()
        host, _, port = self.address.removeprefix("spark://").partition(":")
        self._master = self._spawn("master", "master.Master", "--host", host, "--port", port)
        try:
            wait_until(lambda: listens(int(port)), self._master)
            for number in range(self._count):
                self.start_worker(number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self._workers.values(), self._master):
            process.kill()

    def start_worker(self, number: int) -> None:
        """Start a worker, for the first time or anew."""
        folder = self.home / f"worker-{number}"
        self._workers[number] = self._spawn(
            folder.name,
            "worker.Worker",
            *("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--work-dir", str(folder)),
            self.address,
        )

    def kill_worker(self, of: int) -> int:
        """Kill the worker that has started this process, its executor and all else of it; its number."""
        number = next(number for number, one in self._workers.items() if one.pid in ancestors(of))
        self._workers[number].kill()
        return number

    def kill_executor(self, of: int) -> None:
        """Kill the executor that has started this process, and nothing else: its worker starts another."""
        pids = {one.pid for one in self._workers.values()}
        line = ancestors(of)
        place = next(place for place, pid in enumerate(line) if pid in pids)
        os.kill(line[place - 1], signal.SIGKILL)

    def _spawn(self, name: str, kind: str, *flags: str) -> Mortal:
        command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"]
        local = str(self.home / "local")
        return Mortal(
            self.home / f"{name}.log", [*command, "--webui-port", "0", *flags], SPARK_LOCAL_DIRS=local
        )


def ancestors(pid: int) -> list[int]:
    """The parent of a process, its parent, and so on."""
    found = []
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found.append(pid)
    return found


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True


def wait_until(is_so: Callable[[], bool], *needed: Mortal) -> None:
    """Wait for a condition; one that never comes, or the death of a process it needs, fails the test."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        for process in needed:
            process.check()
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(LOOK_S)

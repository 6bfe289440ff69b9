"""A PostgreSQL server of the tests' own: in a temporary folder, on a Unix socket, without fsync."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

BIN = Path("/usr/lib/postgresql")


def binaries() -> Path | None:
    """Where the newest server lies, if one is installed."""
    found = [*sorted(BIN.glob("*/bin/initdb"), key=lambda one: int(one.parts[-3])), shutil.which("initdb")]
    places = [Path(one).parent for one in found if one is not None]
    return places[-1] if places else None


def lacking() -> str:
    """What a test needs that is not here; empty if it is."""
    if binaries() is None:
        return "needs PostgreSQL"
    if os.getuid() == 0 and not (
        shutil.which("runuser") and "postgres" in {one.pw_name for one in pwd.getpwall()}
    ):
        return "needs runuser and the user postgres: its server does not run as root"
    return ""


class Server:
    """One server; `conninfo` leads to it."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="tidings-pg-"))
        place = binaries()
        assert place is not None
        self._bin = place
        self._user: list[str] = []
        if os.getuid() == 0:
            shutil.chown(self.home, "postgres")
            self._user = ["runuser", "-u", "postgres", "--"]
        self.home.chmod(0o755)
        self._run(
            "initdb", "-D", str(self.home / "data"), "-A", "trust", "-U", "tidings", "-E", "UTF8", "--no-sync"
        )
        self.start()

    @property
    def conninfo(self) -> str:
        return f"host={self.home} user=tidings dbname=postgres"

    def start(self) -> None:
        options = f"-F -k {self.home} -c listen_addresses='' -c max_connections=40"
        log = str(self.home / "log")
        self._run("pg_ctl", "-D", str(self.home / "data"), "-w", "-l", log, "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-D", str(self.home / "data"), "-w", "-m", mode, "stop")

    def reload(self) -> None:
        self._run("pg_ctl", "-D", str(self.home / "data"), "reload")

    def remove(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self.home)

    def _run(self, command: str, *arguments: str) -> None:
        line = [*self._user, str(self._bin / command), *arguments]
        result = subprocess.run(
            line, cwd="/", stdin=subprocess.DEVNULL, capture_output=False, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        assert result.returncode == 0, (
            command,
            (self.home / "log").read_text() if (self.home / "log").exists() else "",
        )

"""A real node that is killed with SIGKILL and started again on its directory and port."""

from __future__ import annotations

import asyncio
from pathlib import Path

from node.peers import Process, Start


class MortalNode:
    """One node in many lives; its address stays the same."""

    def __init__(self, start: Start, home: Path) -> None:
        self.kills = 0
        self._start = start
        self._flags = ("--dir", str(home / "node"), "--log-level", "error")
        self._process: Process
        self._port = "0"

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"tidings://127.0.0.1:{self._port}"

    async def start(self) -> str:
        """Start it, and give its address: the same each time."""
        self._process = self._start("--port", self._port, *self._flags)
        address = await asyncio.to_thread(self._process.address)
        self._port = address.rpartition(":")[2]
        return address

    async def kill(self) -> None:
        """Kill it; it must not have ended by itself, nor have had anything to complain of."""
        assert self._process.process.poll() is None, self._process.finish()
        self.kills += 1
        self._process.process.kill()
        _, errors = await asyncio.to_thread(self._process.finish)
        assert errors == ""

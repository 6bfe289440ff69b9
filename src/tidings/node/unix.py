"""A Unix socket at which a node listens, put back if it is removed.

Who cleans up a temporary folder removes sockets too: the node would go on listening where nobody finds it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from tidings.errors import UserError
from tidings.node import logs
from tidings.node.ports import Port, close_server, listen_unix


class UnixServer:
    """Listens at a path; `look` is to be called now and then."""

    def __init__(self, make: Callable[[], Port], path: Path) -> None:
        self.path = path
        self.address = ""
        self._make = make
        self._server: asyncio.Server | None = None
        self._inode = 0
        self._restoring: asyncio.Task[None] | None = None
        self._has_failed = False  # to put it back, and that was logged
        self._is_closed = False

    async def listen(self) -> None:
        """Make the socket, and take connections; UserError if that can't be."""
        server, self.address = await listen_unix(self._make, self.path)
        self._inode = self.path.stat().st_ino
        await server.start_serving()
        before, self._server = self._server, server
        if before is not None:
            await close_server(before)  # those who came by it stay

    def look(self) -> None:
        """Put the socket back if it is gone, unless it was closed: the end of a node takes a while."""
        is_restoring = self._restoring is not None and not self._restoring.done()
        if not (self._is_closed or is_restoring or self._is_there()):
            self._restoring = asyncio.get_running_loop().create_task(self._restore())

    async def _restore(self) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            await self.listen()
        except (UserError, OSError) as error:
            if not self._has_failed:
                logs.error("the socket was removed and can't be put back", problem=str(error))
            self._has_failed = True
            return
        self._has_failed = False
        logs.warning("the socket was removed and is put back", path=self.path)

    async def close(self) -> None:
        """Take no more connections, and remove the socket, unless another node has put its own there."""
        self._is_closed = True
        if self._restoring is not None:
            self._restoring.cancel()
            await asyncio.wait([self._restoring])
        if self._server is not None:
            await close_server(self._server)
        if self._is_there():
            with contextlib.suppress(OSError):
                self.path.unlink()

    def _is_there(self) -> bool:
        with contextlib.suppress(OSError):
            return self.path.stat().st_ino == self._inode
        return False

"""A pipe between two protocols of one loop: what one writes, the other has when the loop runs next.

For a client in the node's own process: all is as over a socket, without the system in between. Nothing holds
up who writes, as no more is ever under way than the protocol's own window and credit allow.
"""

from __future__ import annotations

import asyncio
from typing import Any


def connect(one: asyncio.Protocol, other: asyncio.Protocol) -> None:
    """Connect two protocols of the running loop; `one` hears of it first."""
    loop = asyncio.get_running_loop()
    ends = End(loop, one), End(loop, other)
    ends[0].peer, ends[1].peer = ends[1], ends[0]
    for end in ends:
        end.protocol.connection_made(end)


class End(asyncio.Transport):
    """One end, as its protocol sees it."""

    peer: End

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.protocol = protocol
        self._loop = loop
        self._arrived: list[bytes] = []
        self._is_reading = True
        self._is_closing = False
        self._is_gone = False

    # What the protocol calls

    def write(self, data: Any) -> None:
        """Have the other end get this."""
        if not self._is_closing:
            self.peer.arrive(bytes(data))

    def close(self) -> None:
        """End the pipe when all that was written has arrived."""
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self.peer.hang_up)
            self._loop.call_soon(self.hang_up)

    def abort(self) -> None:
        """End it; there is nothing that could hold it up."""
        self.close()

    def is_closing(self) -> bool:
        """Whether it ends, or has ended."""
        return self._is_closing

    def pause_reading(self) -> None:
        """Keep what arrives."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Give what has arrived, and go on."""
        self._is_reading = True
        if self._arrived:
            self._loop.call_soon(self._give)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""

    def get_write_buffer_size(self) -> int:
        """There is no buffer."""
        return 0

    # What the other end calls

    def arrive(self, data: bytes) -> None:
        """Something was written for this end."""
        self._arrived.append(data)
        if len(self._arrived) == 1 and self._is_reading:
            self._loop.call_soon(self._give)

    def _give(self) -> None:
        if self._arrived and self._is_reading and not self._is_gone:
            arrived, self._arrived = self._arrived, []
            self.protocol.data_received(arrived[0] if len(arrived) == 1 else b"".join(arrived))

    def hang_up(self) -> None:
        """The pipe has ended; called by either end, after what was written before."""
        self._is_closing = True
        if not self._is_gone:
            self._is_gone = True
            self.protocol.connection_lost(None)

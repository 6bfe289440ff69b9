"""Carries what a core says to the socket of a node that was dialled, which may read slowly."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

WRITE_BUFFER = 1 << 20
"""Bytes the transport may hold; beyond that they wait in the core."""


class Core(Protocol):
    """What is carried for."""

    is_given_up: bool

    def output(self) -> list[bytes]:
        """The frames that may be sent now."""


class Carrier(asyncio.Protocol):
    """See the module; whoever derives from it dials, and hands in what is received and that all is lost."""

    def __init__(self, carried: Core) -> None:
        self._carried = carried
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._is_gone = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Write there from now on."""
        # uvloop's transports are none of asyncio's classes, though they do the same.
        self._transport, self._is_paused = cast("asyncio.Transport", transport), False
        self._is_gone.clear()
        self._transport.set_write_buffer_limits(WRITE_BUFFER)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        """There is nothing to write to any more."""
        self._transport = None
        self._is_gone.set()

    def pause_writing(self) -> None:
        """The node reads slowly: what is to be said stays with the core."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """It has read."""
        self._is_paused = False
        self.flush()

    def flush(self) -> None:
        """Write what may leave now, in one piece."""
        # asyncio's transports with TLS can neither be closed twice nor be written to after that.
        if self._transport is None or self._is_paused or self._transport.is_closing():
            return
        frames = self._carried.output()
        if frames:
            self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))
        if self._carried.is_given_up:
            self._transport.close()

    async def _hang_up(self, limit_s: float) -> None:
        """End the connection; what was taken by the transport is written out first, if that is soon."""
        if self._transport is None:
            return
        if not self._transport.is_closing():
            self._transport.close()
        try:
            async with asyncio.timeout(limit_s):
                await self._is_gone.wait()
        except TimeoutError:
            self._transport.abort()

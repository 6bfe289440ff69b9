"""The connection of a gateway to its node on the loop: the socket of its uplink."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from tidings.gateway.uplink import Uplink
from tidings.transport.link import Link

SYSTEM_BUFFER = 2 << 20
"""Bytes that the system holds for the node, if it allows so many: what it reads while this process reads."""


class UplinkLink(Link):
    """See the module."""

    def __init__(self, uplink: Uplink, random: Callable[[], float]) -> None:
        super().__init__(uplink.core, True, random)
        self._uplink = uplink
        uplink.flush, uplink.flush_soon = self.flush, self.flush_soon

    async def close(self) -> None:
        """Say goodbye and end the connection."""
        self._uplink.is_closing = True
        await super().close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        channel: Any = transport.get_extra_info("socket")
        if channel is not None and channel.family == socket.AF_UNIX:  # other kinds grow by themselves
            channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SYSTEM_BUFFER)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        super().data_received(data)
        self._uplink.on_progress()

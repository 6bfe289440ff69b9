"""Addresses of nodes, and how to reach them.

tidings://127.0.0.1:7300        TCP
tidings+unix:///run/node.sock   a Unix socket
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from urllib.parse import unquote, urlsplit

from tidings.errors import AddressError

PORT = 7300
"""Where a node listens unless it is told otherwise."""
DIAL_S_MAX = 10.0
"""How long one attempt to connect may take."""

Dial = Callable[[asyncio.Protocol], Awaitable[None]]
"""Connects a protocol to a node, or raises OSError."""


def dial(address: str) -> Dial:
    """How to reach the node at an address; AddressError if it is none."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise AddressError(f"{address!r} is no address: {error}") from None
    if parts.scheme == "tidings+unix" and parts.path and not parts.netloc:
        return dial_unix(unquote(parts.path))
    if parts.scheme == "tidings" and host and not parts.path.strip("/"):
        return dial_tcp(host, PORT if port is None else port)
    raise AddressError(f"{address!r} is neither tidings://HOST:PORT nor tidings+unix:///PATH")


def dial_tcp(host: str, port: int) -> Dial:
    """By TCP."""

    async def connect(protocol: asyncio.Protocol) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(DIAL_S_MAX):
            transport, _ = await loop.create_connection(lambda: protocol, host, port)
        connected = transport.get_extra_info("socket")
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    return connect


def dial_unix(path: str) -> Dial:
    """By a Unix socket."""

    async def connect(protocol: asyncio.Protocol) -> None:
        async with asyncio.timeout(DIAL_S_MAX):
            await asyncio.get_running_loop().create_unix_connection(lambda: protocol, path)

    return connect

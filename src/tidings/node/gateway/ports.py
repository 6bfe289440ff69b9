"""The ports of a gateway: TCP, with or without TLS, and UDP, under one number.

A port only carries: bytes to the hub, messages to the network.
"""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from tidings.gateway.hub import Hub
from tidings.gateway.networks import DatagramAddress
from tidings.node import logs
from tidings.node.ports import caller_of, close_soon, listen_tcp, not_listening, pause_reading

if TYPE_CHECKING:
    from ssl import SSLContext

WRITE_BUFFER_MAX = 64 << 10
"""Unread bytes from which on a network is given up: it does not read its messages."""
DATAGRAM_BUFFER = 8 << 20
"""Bytes of datagrams that the system may hold for the gateway, if it allows so many."""
FREE_TRIES = 20
"""Attempts to find a number that is free for both TCP and UDP."""

_numbers = count(1)


class SensorPort(asyncio.Protocol):
    """Connection of a network; its key at the hub is a number."""

    __slots__ = ("_connections_max", "_hub", "_key", "_lines", "_transport")

    def __init__(self, hub: Hub, connections_max: int) -> None:
        self._hub = hub
        self._connections_max = connections_max
        self._key = next(_numbers)
        self._lines: list[bytes] | None = None  # since the loop ran last
        self._transport: asyncio.Transport

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if len(self._hub) >= self._connections_max:
            logs.warning("a sensor connection was turned away", connections=len(self._hub))
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(WRITE_BUFFER_MAX)
        caller = caller_of(transport)
        self._hub.opened(self._key, caller, self.send, self.part, partial(pause_reading, self._transport))

    def data_received(self, data: bytes) -> None:
        self._hub.feed(self._key, data)

    def pause_writing(self) -> None:
        """Called when the network does not read what is sent to it."""
        self._transport.abort()

    def connection_lost(self, _error: Exception | None) -> None:
        self._hub.closed(self._key)

    # Called by the hub

    def send(self, line: bytes) -> None:
        """Write a message, together with all others in this turn of the loop."""
        if self._lines is None:
            self._lines = []
            asyncio.get_running_loop().call_soon(self._flush)
        self._lines.append(line)

    def _flush(self) -> None:
        lines, self._lines = self._lines, None
        if lines and not self._transport.is_closing():
            self._transport.write(b"".join(lines))

    def part(self) -> None:
        """Close when everything is written, or soon anyway."""
        self._flush()
        close_soon(self._transport)


class Datagrams(asyncio.DatagramProtocol):
    """UDP port."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._transport: asyncio.DatagramTransport
        self._is_gone = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)
        channel: Any = transport.get_extra_info("socket")
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, DATAGRAM_BUFFER)
        self._hub.send_datagram = self._transport.sendto

    def datagram_received(self, data: bytes, address: tuple[Any, ...]) -> None:
        self._hub.datagram(DatagramAddress(address[0], address[1]), data)

    def connection_lost(self, _error: Exception | None) -> None:
        self._is_gone.set()

    def error_received(self, exc: Exception) -> None:
        """Called when a datagram could not be sent: the gateway repeats it, or forgets the network."""

    async def close(self) -> None:
        """Close the port, and wait for that."""
        self._transport.close()
        await self._is_gone.wait()


class GatewayPorts(NamedTuple):
    """Both ports of a gateway, open; the server accepts connections when it is started."""

    server: asyncio.Server
    datagrams: Datagrams
    address: str

    async def close(self) -> None:
        """Close both ports, and wait until the UDP port is closed."""
        self.server.close()
        await self.datagrams.close()


async def listen(
    hub: Hub, host: str, port: int, connections_max: int, context: SSLContext | None = None
) -> GatewayPorts:
    """Open TCP and UDP under one number, 0 for a free one; UserError if that fails."""
    for _ in range(FREE_TRIES):
        server, place = await listen_tcp(
            lambda: SensorPort(hub, connections_max), host, port, context, kind="tcp "
        )
        number = server.sockets[0].getsockname()[1]
        try:
            _, datagrams = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: Datagrams(hub), (host, number)
            )
        except OSError as error:
            server.close()
            problem = not_listening(f"udp {host}:{number}", error)
            if port != 0:
                raise problem from None
        else:
            return GatewayPorts(server, datagrams, place)
    raise problem

"""Dialling of nodes by TCP or UDP, with TLS or without, or by a Unix socket; the carrier of a core's bytes.

Every kind of connection has one interface, that of asyncio: `dial` opens it for a protocol, which receives;
its transport sends and closes. What adds to a connection, as TLS does, has a transport on each side.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from tidings.errors import Disconnected, TidingsError, UserError
from tidings.transport.address import Address, parse
from tidings.transport.credentials import Credentials

if TYPE_CHECKING:
    from ssl import SSLContext, SSLError

DIAL_S_MAX = 10.0
"""Longest duration of one attempt to connect."""
LOOK_S_MAX = 5.0
"""Longest time for finding the fault of a certificate."""
WRITE_BUFFER = 1 << 20
"""Bytes that the transport may hold; beyond that they wait in the core."""

ConnectTo = Callable[[asyncio.Protocol], Awaitable[None]]
"""Connects a protocol to a node, or raises OSError, or Hopeless."""


class Hopeless(Exception):
    """An attempt that would fail however often it is repeated; `error` says why."""

    def __init__(self, error: TidingsError) -> None:
        super().__init__(str(error))
        self.error = error


def dial(address: str, credentials: Credentials | None = None) -> ConnectTo:
    """Return a function that connects to the node at an address; AddressError if that is invalid.

    Credentials go with TLS only: UserError for another address, where others could read them. HOST:PORT is by
    TLS if there are any.
    """
    given = Credentials() if credentials is None else credentials
    place = parse(address, not given.is_empty)
    if place.kind == "tls":
        return dial_tls(place, given)
    if not given.is_empty:
        raise UserError(f"{address}: credentials need TLS; use tidings+tls://HOST:PORT")
    return dial_unix(place.path) if place.kind == "unix" else dial_plain(place)


def dial_plain(place: Address) -> ConnectTo:
    """Return a function that connects without TLS."""

    async def connect(protocol: asyncio.Protocol) -> None:
        async with asyncio.timeout(DIAL_S_MAX):
            await _open(protocol, place)

    return connect


async def _open(protocol: asyncio.Protocol, place: Address, context: SSLContext | None = None) -> None:
    """Connect by what the address says."""
    if not place.is_udp:
        await _connect(protocol, place.host, place.port, context)
        return
    from tidings.transport.udp import dial_udp

    try:
        await dial_udp(protocol, place.host, place.port, context)
    except (socket.gaierror, UnicodeError) as error:
        raise unknown_host(place.host, error) from None


def dial_tls(place: Address, credentials: Credentials) -> ConnectTo:
    """Return a function that connects with TLS; certificates and secrets are read anew each time."""

    async def connect(protocol: asyncio.Protocol) -> None:
        from ssl import SSLError

        from tidings.transport.tls import client_context

        try:
            credentials.read()
            context = client_context(
                credentials.ca, credentials.cert, credentials.key, credentials.checks_host
            )
            async with asyncio.timeout(DIAL_S_MAX):
                await _open(protocol, place, context)
        except UserError as error:
            raise Hopeless(error) from None
        except SSLError as error:
            await _judge(error, place, credentials)
            raise

    return connect


async def _judge(error: SSLError, place: Address, credentials: Credentials) -> None:
    """Raise Hopeless, with a helpful text, if a handshake has failed that would fail again."""
    from tidings.transport.tls import can_be_looked_at, dial_verdict, looking_context

    shown = None
    if can_be_looked_at(error) and not place.is_udp:
        shown = await _look(place, looking_context(credentials.ca))
    verdict = dial_verdict(error, place.host, credentials.ca, shown)
    if verdict is not None:
        raise Hopeless(verdict) from None


async def _look(place: Address, context: SSLContext) -> dict[str, Any] | None:
    """Return the certificate of a node, if its issuer is trusted; nothing is sent to the node."""
    with contextlib.suppress(OSError):
        async with asyncio.timeout(LOOK_S_MAX):
            protocol = asyncio.Protocol()
            transport = await _connect(protocol, place.host, place.port, context)
            shown: dict[str, Any] | None = transport.get_extra_info("peercert")
            transport.abort()
            return shown
    return None


async def look_at_chain(place: Address) -> list[str]:
    """Return the certificates that a node shows, as PEM, unverified; nothing is sent to it.

    Raises OSError, TimeoutError or Disconnected if nothing with TLS answers there.
    """
    from tidings.transport.tls import shown_chain, unverified_context

    async with asyncio.timeout(DIAL_S_MAX):
        transport = await _connect(asyncio.Protocol(), place.host, place.port, unverified_context())
    chain = shown_chain(transport.get_extra_info("ssl_object"))
    transport.abort()
    return chain


def dial_unix(path: str) -> ConnectTo:
    """Return a function that connects by a Unix socket; UserError on a system that has none."""
    if not hasattr(socket, "AF_UNIX"):
        raise UserError(f"{path}: this system has no Unix sockets; use tidings://HOST:PORT")

    async def connect(protocol: asyncio.Protocol) -> None:
        async with asyncio.timeout(DIAL_S_MAX):
            await asyncio.get_running_loop().create_unix_connection(lambda: protocol, path)

    return connect


async def _connect(
    protocol: asyncio.Protocol, host: str, port: int, context: SSLContext | None = None
) -> asyncio.Transport:
    loop = asyncio.get_running_loop()
    try:
        transport, _ = await loop.create_connection(lambda: protocol, host, port, ssl=context)
    except (socket.gaierror, UnicodeError) as error:  # a name that no DNS could have
        raise unknown_host(host, error) from None
    transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return transport


def unknown_host(host: str, error: socket.gaierror | UnicodeError) -> Disconnected:
    """Return the error for a host whose address can't be found, which may pass: a name may be new."""
    reason = error.strerror if isinstance(error, socket.gaierror) else str(error)
    return Disconnected(f"unknown host: {host} ({reason}); check its name, or give an IP address")


class Core(Protocol):
    """Core of a carrier."""

    is_given_up: bool

    def output(self) -> list[bytes]:
        """Return the frames that may be sent now."""


class Carrier(asyncio.Protocol):
    """Carrier of a core's output to the socket of a dialled node, which may read slowly.

    A subclass dials, and passes received bytes and the loss of the connection to the core.
    """

    def __init__(self, carried: Core) -> None:
        self._carried = carried
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._is_gone = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Write to this transport from now on."""
        # uvloop's transports are none of asyncio's classes, though they do the same.
        self._transport, self._is_paused = cast("asyncio.Transport", transport), False
        self._is_gone.clear()
        self._transport.set_write_buffer_limits(WRITE_BUFFER)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        """Drop the transport."""
        self._transport = None
        self._is_gone.set()

    def pause_writing(self) -> None:
        """Leave output with the core: the node reads slowly."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Write again: the node has read."""
        self._is_paused = False
        self.flush()

    def flush(self) -> None:
        """Write the pending output, in one piece."""
        # asyncio's transports with TLS can neither be closed twice nor be written to after that.
        if self._transport is None or self._is_paused or self._transport.is_closing():
            return
        frames = self._carried.output()
        if frames:
            self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))
        if self._carried.is_given_up:
            self._transport.close()

    async def _hang_up(self, limit_s: float) -> None:
        """Close the connection; bytes in the transport are written first, if that is soon."""
        if self._transport is None:
            return
        if not self._transport.is_closing():
            self._transport.close()
        try:
            async with asyncio.timeout(limit_s):
                await self._is_gone.wait()
        except TimeoutError:
            self._transport.abort()

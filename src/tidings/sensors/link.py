"""Link from networks to their gateway: a connection that is reopened when it breaks, or datagrams.

A driver: it carries bytes, and informs the networks of connections. A token in the first line, only inside
TLS, identifies the user of a connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import UNSET, Struct

from tidings.errors import AddressError, CodecError, Disconnected, UserError
from tidings.sensors.network import Ear, Heard
from tidings.timers import Backoff
from tidings.transport.credentials import Credentials

if TYPE_CHECKING:
    from ssl import SSLContext

PORT = 4242
"""Default port of a gateway for sensor networks."""
CONNECT_S_MAX = 10.0
RETRY_S_MIN = 0.1
"""Delay before the second attempt to connect; the next are longer."""
LOOK_S = 0.1
"""Time between two checks whether a link is connected."""
BUFFER_SIZE_MAX = 1 << 20
"""Bytes that may wait to be sent before writers must wait."""


class GatewayPlace(Struct, frozen=True):
    """Address of a gateway, and its transport."""

    host: str
    port: int = PORT
    udp: bool = False
    tls: bool = False
    ca: Path | None = None
    token: Path | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def place_of(
    text: str, *, udp: bool = False, tls: bool = False, ca: Path | None = None, token: Path | None = None
) -> GatewayPlace:
    """Return the gateway at HOST, HOST:PORT or [HOST]:PORT; AddressError for any other text.

    Files are read, so that their problems are reported at once.
    """
    host, port = host_and_port(text, PORT)
    is_tls = tls or ca is not None
    if udp and (is_tls or token):
        raise UserError("datagrams can't be encrypted: --udp goes without --tls, --ca and --token-file")
    if token and not is_tls:
        raise UserError("a token is sent over TLS only; use --tls or --ca")
    place = GatewayPlace(host, port, udp, is_tls, ca, token)
    login_line(place)
    tls_context(place.tls, ca)
    return place


def host_and_port(text: str, port: int) -> tuple[str, int]:
    """Return the parts of HOST, HOST:PORT or [HOST]:PORT; AddressError for any other text."""
    host, colon, number = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, number = text, str(port)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not number.isascii() or not number.isdigit() or not 0 < int(number) < 65_536:
        raise AddressError(f"{text!r} is no HOST:PORT")
    return host, int(number)


class Party(Protocol):
    """User of a link."""

    def connected(self) -> None:
        """Called when there is a connection to the gateway, or a new one."""

    def disconnected(self) -> None:
        """Called when the connection is gone; the link opens another."""

    def heard(self, message: Heard) -> None:
        """Called with a message of the gateway."""


class GatewayLink(asyncio.Protocol, asyncio.DatagramProtocol):
    """Connection, or socket for datagrams. `run` keeps it until it is cancelled.

    `on_problem` is called with a sentence on a transient fault; `gate` bounds how many links connect at
    the same time.
    """

    def __init__(
        self,
        place: GatewayPlace,
        party: Party,
        on_problem: Callable[[str], None] | None = None,
        gate: asyncio.Semaphore | None = None,
    ) -> None:
        self._place = place
        self._gate = gate or asyncio.Semaphore()
        self._party = party
        self._on_trouble = on_problem or (lambda _: None)
        self._reported = ""
        self._ear = Ear()
        self._login = b""
        self._transport: asyncio.Transport | None = None
        self._datagrams: asyncio.DatagramTransport | None = None
        self._is_lost = asyncio.Event()
        self._has_room = asyncio.Event()

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection to the gateway just now."""
        return self._transport is not None or self._datagrams is not None

    @property
    def has_room(self) -> bool:
        """Whether more may be sent without piling up here."""
        return self._has_room.is_set()

    def send(self, data: bytes) -> None:
        """Send whole lines, or as a datagram one line; does nothing without a connection."""
        if self._transport is not None:
            if not self._transport.is_closing():
                self._transport.write(data)
        elif self._datagrams is not None:
            self._datagrams.sendto(data)

    def cut(self) -> None:
        """Break the connection, as a bad network would do; it is reopened."""
        if self._transport is not None:
            self._transport.abort()

    async def run(self) -> None:
        """Connect, and again when the connection breaks."""
        backoff = Backoff(random.random, RETRY_S_MIN)
        try:
            while True:
                try:
                    await self._connect()
                    backoff.reset()
                    await self._is_lost.wait()
                except TimeoutError:
                    self._on_problem(f"no gateway answers at {self._place} in time")
                except (OSError, UserError) as error:
                    self._on_problem(f"no way to the gateway at {self._place}: {error}")
                await asyncio.sleep(backoff.next_s())
        finally:
            self.close()

    def close(self) -> None:
        """Send pending bytes, and close the connection."""
        for transport in (self._transport, self._datagrams):
            if transport is not None:
                transport.close()

    def _on_problem(self, problem: str) -> None:
        """Report a problem, once as long as it stays the same."""
        if problem != self._reported:
            self._reported = problem
            self._on_trouble(problem)

    async def _connect(self) -> None:
        place, loop = self._place, asyncio.get_running_loop()
        self._is_lost.clear()
        async with self._gate, asyncio.timeout(CONNECT_S_MAX):
            if place.udp:
                await loop.create_datagram_endpoint(lambda: self, remote_addr=(place.host, place.port))
                return
            self._login = login_line(place)
            context = tls_context(place.tls, place.ca)
            transport, _ = await loop.create_connection(lambda: self, place.host, place.port, ssl=context)
            # A port of this machine without a listener may become that of our own end: we would hear us.
            if transport.get_extra_info("sockname") == transport.get_extra_info("peername"):
                transport.abort()

    # Called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a new connection or socket."""
        self._ear = Ear()
        self._reported = ""
        if isinstance(transport, asyncio.DatagramTransport) or self._place.udp:
            self._datagrams = transport  # type: ignore[assignment]  # uvloop's have no such base
        else:
            self._transport = transport  # type: ignore[assignment]
            self._transport.set_write_buffer_limits(high=BUFFER_SIZE_MAX)  # type: ignore[union-attr]
            self.send(self._login)
        self._has_room.set()
        self._party.connected()

    def connection_lost(self, _error: Exception | None) -> None:
        """Note that the connection is gone."""
        self._transport = self._datagrams = None
        self._has_room.clear()
        self._is_lost.set()
        self._party.disconnected()

    def data_received(self, data: bytes) -> None:
        """Decode bytes of a connection."""
        self._hear(lambda: self._ear.feed(data))

    def datagram_received(self, data: bytes, _address: object) -> None:
        """Decode one datagram."""
        self._hear(lambda: self._ear.feed_whole(data))

    def error_received(self, exc: Exception) -> None:
        """Report a datagram that could not be delivered, as happens without a gateway."""
        self._on_problem(f"no gateway answers at {self._place}: {exc}")

    def pause_writing(self) -> None:
        """Note that as much as may waits to be sent."""
        self._has_room.clear()

    def resume_writing(self) -> None:
        """Note that enough of it was sent."""
        self._has_room.set()

    def _hear(self, messages: Callable[[], list[Heard]]) -> None:
        try:
            for message in messages():
                self._party.heard(message)
        except CodecError as error:
            self._on_problem(f"{self._place} speaks no sensor protocol: {error}")
            self.cut()


def login_line(place: GatewayPlace) -> bytes:
    """Return the first line for a gateway with users; UserError if the token can't be read."""
    if place.token is None:
        return b""
    credentials = Credentials(token=place.token)
    credentials.read()
    return msgspec.json.encode({"login": {"token": credentials.says()[1]}}) + b"\n"


def tls_context(is_tls: bool, ca: Path | None) -> SSLContext | None:
    """Return the TLS context for a server, if any; ConfigError if the file of the CA is invalid."""
    if not is_tls:
        return None
    from tidings.transport.tls import client_context

    return client_context(ca, None, None)


def sensing_id_of(message: Heard) -> str | None:
    """Return the network that a message is for, None if it names none."""
    found = message.sensing_id
    return None if found is UNSET else found


async def wait_connected(is_so: Callable[[], bool], place: GatewayPlace, timeout_s: float) -> None:
    """Wait until a link is connected; Disconnected if that takes too long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while not is_so():
                await asyncio.sleep(LOOK_S)
    if not is_so():
        raise Disconnected(f"no gateway answers at {place}; start one with 'tidings node --sensor-port'")

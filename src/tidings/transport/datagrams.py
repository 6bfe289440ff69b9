"""Datagrams over UDP, which may be lost: to one place, to all of a set, or to a group of the local network.

A driver for what needs no connection: beacons, searches for nodes, and below `udp.py` the streams that are
made of datagrams. `targets` are the places, or the group, to which a datagram for all goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any, cast

Place = tuple[str, int]
Hear = Callable[[bytes, Any], None]
"""Called with a datagram, and the place from which it came."""


class DatagramPort(asyncio.DatagramProtocol):
    """One UDP socket, from `open` to `close`; `failed` is called with what the system says of sending."""

    def __init__(self, hear: Hear, failed: Callable[[Exception], None] = lambda _error: None) -> None:
        self._hear = hear
        self._failed = failed
        self._transport: asyncio.DatagramTransport | None = None
        self.targets: Sequence[Place] = ()

    async def open(self, made: socket.socket | None = None, **places: Any) -> None:
        """Hear and send by a socket, or by one that the loop makes for these places; OSError if it can't."""
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: self, sock=made, **places)

    def about(self, name: str) -> Any:
        """Return what the transport knows by this name."""
        return None if self._transport is None else self._transport.get_extra_info(name)

    @property
    def is_open(self) -> bool:
        """Whether datagrams can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, data: bytes, place: Place | None = None, but: Place | None = None) -> None:
        """Send a datagram to a place, or to all targets, but one; nothing if the port is closed."""
        for one in self.targets if place is None else (place,):
            if one != but:
                self._send(one, data)

    def answer(self, data: bytes) -> None:
        """Send a datagram to the one place to which the socket is connected."""
        self._send(None, data)

    def _send(self, place: Place | None, data: bytes) -> None:
        if self.is_open:
            try:
                cast("asyncio.DatagramTransport", self._transport).sendto(data, place)
            except OSError as error:
                self._failed(error)

    def close(self) -> None:
        """Send and hear nothing any more."""
        if self._transport is not None:
            self._transport.abort()

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note by what to send."""
        self._transport = cast("asyncio.DatagramTransport", transport)  # uvloop's derives from nothing

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """Hand a datagram on."""
        if self.is_open:
            self._hear(data, addr)

    def error_received(self, exc: Exception) -> None:
        """Tell of a datagram that could not be sent."""
        self._failed(exc)


def plain_socket(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address; OSError if it can't be had."""
    family = socket.AF_INET6 if ip_address(numeric(host)).version == 6 else socket.AF_INET
    return _bound(socket.socket(family, socket.SOCK_DGRAM), (numeric(host), port))


def sending_socket(host: str) -> socket.socket:
    """Return a socket with a free port that sends to groups on the network of an address."""
    made = plain_socket(host, 0)
    interface = ip_address(numeric(host))
    with contextlib.ExitStack() as failed:
        failed.callback(made.close)
        if not interface.is_unspecified:
            made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface.packed)
        failed.pop_all()
    return made


def group_socket(group: str, port: int, host: str, at: str = "", hops: int = 1) -> socket.socket:
    """Return a socket in a group on the network of an IPv4 address; all programs of a machine share its port.

    With `at` it hears only what is sent to that address. What it sends to the group passes so many hops.
    """
    interface = ip_address(numeric(host))
    if interface.version == 6:
        raise OSError("multicast is for IPv4 only")
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with contextlib.suppress(AttributeError, OSError):  # where it is needed, as on macOS, it is there
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    _bound(made, (at, port))
    with contextlib.ExitStack() as failed:
        failed.callback(made.close)
        set_hops(made, hops)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
        if not interface.is_unspecified:
            made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface.packed)
        membership = socket.inet_aton(group) + interface.packed
        made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        failed.pop_all()
    return made


def set_hops(made: Any, hops: int) -> None:
    """Have what a socket sends to groups pass so many hops."""
    made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, hops)


def widen(made: Any, size: int) -> None:
    """Have the system hold so many bytes of datagrams that wait to be read from a socket."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)


def numeric(host: str) -> str:
    """Return an address in numbers."""
    return "127.0.0.1" if host == "localhost" else host


def _bound(made: socket.socket, place: Place) -> socket.socket:
    with contextlib.ExitStack() as failed:
        failed.callback(made.close)
        made.setblocking(False)
        made.bind(place)
        failed.pop_all()
    return made

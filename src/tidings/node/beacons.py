"""Beacons of a node that meets hosts by chance: sent and received as UDP datagrams, by the standard library.

By default they go to a multicast group of the local network, or of this machine where the node listens on
loopback, and no further (a time to live of 1). With targets they go to these addresses instead; a node with a
free port and no targets sends none. What a beacon
says is judged by the core (`tidings.adhoc.beacons`).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import cast

from tidings.adhoc.beacons import Beacon, encode_beacon
from tidings.errors import UserError
from tidings.node import logs

GROUP = "239.255.73.5"
"""Multicast group of the beacons."""
RECEIVED_MAX = 1_000
"""Datagrams of others that are looked at between two of our own; further ones are passed over."""

Target = tuple[str, int]


class Beacons(asyncio.DatagramProtocol):
    """Sends the beacon of a node, and hands on those of others with the address they came from."""

    def __init__(self, beacon: Beacon, every_s: float, on_beacon: Callable[[bytes, str, int], None]) -> None:
        self._data = encode_beacon(beacon)
        self._every_s = every_s
        self._on_beacon = on_beacon
        self._received = 0
        self._transport: asyncio.DatagramTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_mute = False  # it was logged that beacons can't be sent
        self._targets: Sequence[Target] = ()
        self._is_group = False  # all hosts of a machine have one port: none can be addressed alone
        self.port = 0

    async def start(self, host: str, port: int, targets: Sequence[Target]) -> None:
        """Listen and send; UserError if that can't be."""
        loop = asyncio.get_running_loop()
        try:
            made = _multicast(host, port) if not targets else _plain(host, port)
            self._is_group = not targets
            self._targets = targets or (((GROUP, port),) if port else ())
            self.port = made.getsockname()[1]
            await loop.create_datagram_endpoint(lambda: self, sock=made)
        except OSError as error:
            raise UserError(f"can't send beacons from {host}, UDP port {port}: {error}") from None
        self._send()

    def send(self, data: bytes, target: Target | None) -> None:
        """Send a datagram to one host, or to all in reach."""
        for one in self._targets if target is None else (target,):
            self._send_to(one, data)

    def _send(self) -> None:
        self._received = 0
        self.send(self._data, None)
        self._timer = asyncio.get_running_loop().call_later(self._every_s, self._send)

    def _send_to(self, target: Target, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        try:
            self._transport.sendto(data, target)
        except OSError as error:
            self.error_received(error)

    def close(self) -> None:
        """Send no more, and hear nothing."""
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note by what to send."""
        self._transport = cast("asyncio.DatagramTransport", transport)  # uvloop's derives from nothing

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Hand a beacon on, unless there are too many."""
        self._received += 1
        if self._received <= RECEIVED_MAX and data != self._data:
            self._on_beacon(data, addr[0], 0 if self._is_group else addr[1])

    def error_received(self, error: Exception) -> None:
        """Log once that a beacon could not be sent: hosts that are not there refuse it again and again."""
        if not self._is_mute and not isinstance(error, ConnectionRefusedError):
            self._is_mute = True
            logs.warning("a beacon could not be sent", problem=str(error))


def _plain(host: str, port: int) -> socket.socket:
    """Return a socket for beacons to given addresses."""
    family = socket.AF_INET6 if ip_address(_numeric(host)).version == 6 else socket.AF_INET
    made = socket.socket(family, socket.SOCK_DGRAM)
    return _bound(made, (_numeric(host), port))


def _multicast(host: str, port: int) -> socket.socket:
    """Return a socket in the group of the network that the node is on; all hosts of a machine share it."""
    interface = ip_address(_numeric(host))
    if interface.version == 6:
        raise OSError("multicast beacons are for IPv4; give adhoc_to")
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with contextlib.suppress(AttributeError, OSError):  # where it is needed, as on macOS, it is there
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
    made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
    _bound(made, ("", port))
    try:
        made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface.packed)
        membership = socket.inet_aton(GROUP) + interface.packed
        made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    except OSError:
        made.close()
        raise
    return made


def _bound(made: socket.socket, place: tuple[str, int]) -> socket.socket:
    try:
        made.setblocking(False)
        made.bind(place)
    except OSError:
        made.close()
        raise
    return made


def _numeric(host: str) -> str:
    return "127.0.0.1" if host == "localhost" else host

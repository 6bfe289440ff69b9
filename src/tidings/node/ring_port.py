"""Datagrams of a growing-ring search: multicast over IPv4, within a number of hops.

Questions come at a port that all nodes of a machine share. A node asks from a port of its own, to which the
answers go. `overlay/ring_search.py` has the rules.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Callable, Iterable
from functools import partial
from ipaddress import ip_address
from typing import cast

from tidings.errors import UserError
from tidings.node import logs
from tidings.overlay.ring_search import (
    AnswerRing,
    AskRing,
    CandidateFound,
    CandidateLost,
    RingEffect,
    RingSearch,
)

GROUP = "239.192.73.73"
"""Organisation-local scope (RFC 2365): routers let it pass within a site, as their administrators allow."""
PORT = 7373
LOOK_S = 1.0
"""How often to look whether a search is due."""

IsLinked = Callable[[], bool]
OnFound = Callable[[str, str], None]
OnLost = Callable[[str], None]


class _Datagrams(asyncio.DatagramProtocol):
    """Hands datagrams on, with the transport on which they came."""

    def __init__(self, hear: Callable[[asyncio.DatagramTransport, bytes, tuple[str, int]], None]) -> None:
        self._hear = hear
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if self._transport is not None:
            self._hear(self._transport, data, addr)


class RingPort:
    """Searches for other nodes, and answers their searches; `start`, then `close`, on one loop."""

    def __init__(
        self,
        name: str,
        node: str,
        port: int,
        hops_max: int,
        is_linked: IsLinked,
        on_found: OnFound,
        on_lost: OnLost,
        *,
        host: str = "0.0.0.0",
        configured: Iterable[str] = (),
    ) -> None:
        """`host` is where the node listens; its network is the one that is asked first."""
        self._host = "127.0.0.1" if host == "localhost" else host
        is_near = ip_address(self._host).is_loopback
        self.search = RingSearch(node, name, port, hops_max, secrets.randbits, configured, is_near)
        self._is_linked = is_linked
        self._on_found, self._on_lost = on_found, on_lost
        self._asking: asyncio.DatagramTransport | None = None
        self._transports: list[asyncio.DatagramTransport] = []
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Listen and ask; UserError where there is no multicast."""
        loop = asyncio.get_running_loop()
        try:
            for make in (self._listening_socket, self._asking_socket):
                transport, _ = await loop.create_datagram_endpoint(
                    partial(_Datagrams, self._hear), sock=make()
                )
                self._transports.append(transport)
        except OSError as error:
            self.close()
            raise UserError(f"can't search for nodes by multicast on {self._host}: {error}") from None
        self._asking = self._transports[-1]
        self._look()

    def _listening_socket(self) -> socket.socket:
        with contextlib.ExitStack() as failed:
            made = failed.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((GROUP, PORT))
            joined = socket.inet_aton(GROUP) + socket.inet_aton(self._host)
            made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
            made.setblocking(False)
            failed.pop_all()
            return made

    def _asking_socket(self) -> socket.socket:
        with contextlib.ExitStack() as failed:
            made = failed.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            made.bind((self._host, 0))
            if not ip_address(self._host).is_unspecified:
                interface = socket.inet_aton(self._host)
                made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
            made.setblocking(False)
            failed.pop_all()
            return made

    def _hear(self, transport: asyncio.DatagramTransport, data: bytes, place: tuple[str, int]) -> None:
        now = asyncio.get_running_loop().time()
        for effect in self.search.hear(data, place[0], now):
            if isinstance(effect, AnswerRing):
                # From a port of its own: the one that all share would be answered for another node.
                (self._asking or transport).sendto(effect.data, place)
            else:
                self._carry_out(effect)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LOOK_S, self._look)
        for effect in self.search.wake(loop.time(), self._is_linked()):
            self._carry_out(effect)

    def _carry_out(self, effect: RingEffect) -> None:
        match effect:
            case AskRing(data, hops) if self._asking is not None:
                made = self._asking.get_extra_info("socket")
                made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, hops)
                self._asking.sendto(data, (GROUP, PORT))
            case CandidateFound(name, address):
                logs.info("found a node by multicast", name=name, address=address)
                self._on_found(name, address)
            case CandidateLost(name):
                self._on_lost(name)

    def close(self) -> None:
        """Listen and ask no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._asking = None
        for transport in self._transports:
            transport.close()
        self._transports = []

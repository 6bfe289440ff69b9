"""Datagrams of a growing-ring search: multicast over IPv4, within a number of hops.

Questions come at a port that all nodes of a machine share. A node asks from a port of its own, to which the
answers go. `overlay/ring_search.py` has the rules.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable
from ipaddress import ip_address

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
from tidings.transport.datagrams import (
    DatagramPort,
    Place,
    group_socket,
    numeric,
    sending_socket,
    set_hops,
)

GROUP = "239.192.73.73"
"""Organisation-local scope (RFC 2365): routers let it pass within a site, as their administrators allow."""
PORT = 7373
LOOK_S = 1.0
"""How often to look whether a search is due."""

IsLinked = Callable[[], bool]
OnFound = Callable[[str, str], None]
OnLost = Callable[[str], None]


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
        self._host = numeric(host)
        is_near = ip_address(self._host).is_loopback
        self.search = RingSearch(node, name, port, hops_max, secrets.randbits, configured, is_near)
        self._is_linked = is_linked
        self._on_found, self._on_lost = on_found, on_lost
        # Questions and answers leave from a port of its own: at the one that all share others hear, too.
        self._listening, self._asking = DatagramPort(self._hear), DatagramPort(self._hear)
        self._asking.targets = ((GROUP, PORT),)
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Listen and ask; UserError where there is no multicast."""
        try:
            await self._listening.open(group_socket(GROUP, PORT, self._host, at=GROUP))
            await self._asking.open(sending_socket(self._host))
        except OSError as error:
            self.close()
            raise UserError(f"can't search for nodes by multicast on {self._host}: {error}") from None
        self._look()

    def _hear(self, data: bytes, place: Place) -> None:
        now = asyncio.get_running_loop().time()
        for effect in self.search.hear(data, place[0], now):
            if isinstance(effect, AnswerRing):
                self._asking.send(effect.data, place)
            else:
                self._carry_out(effect)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LOOK_S, self._look)
        for effect in self.search.wake(loop.time(), self._is_linked()):
            self._carry_out(effect)

    def _carry_out(self, effect: RingEffect) -> None:
        match effect:
            case AskRing(data, hops):
                set_hops(self._asking.about("socket"), hops)
                self._asking.send(data)
            case CandidateFound(name, address):
                logs.info("found a node by multicast", name=name, address=address)
                self._on_found(name, address)
            case CandidateLost(name):
                self._on_lost(name)

    def close(self) -> None:
        """Listen and ask no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._listening.close()
        self._asking.close()

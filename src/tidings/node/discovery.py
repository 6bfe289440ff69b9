"""Nodes found by multicast DNS: each announces itself on its network, and receives the others' announcements.

A node announces the service `_tidings._tcp.local.` under its id, with its name, its port and its addresses.
Announcements are not trusted: anyone on the network can send any, also in another's name. They are checked as
untrusted input, and yield a *candidate*: a name, an id and an address that may be tried. The certificate
shows whether the node of that name is there, when it is dialled.

The rules kept: a candidate never stands in for a peer that was configured; its address is an IP address of
a network that this machine is on, and never of this machine's loopback unless the node itself is there; no
question is asked on a stranger's word; and there is a limit to how many are kept.

Import this module only where it is needed: it is built on the `mdns` extra.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, ip_address, ip_interface
from typing import Any

from msgspec import Struct

from tidings.errors import MissingExtra, UserError
from tidings.node import logs

try:
    import ifaddr
    from zeroconf import (
        Error,
        InterfaceChoice,
        IPVersion,
        ServiceInfo,
        ServiceStateChange,
        Zeroconf,
        current_time_millis,
    )
    from zeroconf.asyncio import AsyncServiceBrowser, AsyncZeroconf
except ImportError:
    raise MissingExtra("finding nodes by mDNS", "mdns") from None

SERVICE = "_tidings._tcp.local."
VERSION = "1"
CANDIDATES_MAX = 256
"""Candidates that are kept; announcements of further ones are ignored."""
LIFE_S_MAX = 5_400.0
"""After this a candidate that was not heard of again is lost, however long it said it would be there.

A node is asked again after 4,500 s at the latest, as multicast DNS has it.
"""
SWEEP_S = 60.0
"""How often candidates are looked for that are lost without a word."""
START_S_MAX = 10.0
CLOSE_S_MAX = 3.0
"""How long it may take to withdraw what was announced, which is said three times."""

IpAddress = IPv4Address | IPv6Address
Interface = IPv4Interface | IPv6Interface

_NAME = re.compile(rb"[A-Za-z0-9_.-]{1,64}")
_NODE = re.compile(r"[A-Za-z0-9_-]{1,63}")
_SUFFIX = f".{SERVICE}"


class FoundNode(Struct, frozen=True):
    """A node that someone says is there."""

    name: str
    node: str  # its id
    address: str


class AnnouncedNodes:
    """Announced nodes: reports each name once, with the first node that has it.

    Others of the same name wait, and the next of them takes its place when it is lost.
    """

    def __init__(
        self, taken: Iterable[str], on_found: Callable[[FoundNode], None], on_lost: Callable[[str], None]
    ) -> None:
        """`taken` are names that no candidate may have: the node's own, and those of its peers."""
        self._taken = frozenset(taken)
        self._on_found = on_found
        self._on_lost = on_lost
        self._known: dict[str, FoundNode] = {}  # by id
        self._reported: dict[str, str] = {}  # name → id of the candidate that was reported
        self._passed_over = False
        self.on_taken: Callable[[FoundNode], None] = lambda _found: None
        """Called with an announcement of a name that no candidate may have; it says nothing more."""

    @property
    def has_room(self) -> bool:
        """Whether another one would be kept."""
        return len(self._known) < CANDIDATES_MAX

    @property
    def nodes(self) -> list[str]:
        """The ids of all that are kept."""
        return list(self._known)

    def add(self, candidate: FoundNode) -> None:
        """A node is there, or says something else than before."""
        if self._known.get(candidate.node) == candidate:
            return
        self.remove(candidate.node)
        if candidate.name in self._taken:
            self.on_taken(candidate)
            return
        if not self.has_room:
            self._pass_over()
            return
        self._known[candidate.node] = candidate
        if candidate.name not in self._reported:
            self._report(candidate)

    def remove(self, node: str) -> None:
        """A node is not there any more, or says nothing that can be used."""
        candidate = self._known.pop(node, None)
        if candidate is None or self._reported[candidate.name] != node:
            return
        del self._reported[candidate.name]
        self._on_lost(candidate.name)
        following = next((one for one in self._known.values() if one.name == candidate.name), None)
        if following is not None:
            self._report(following)

    def _report(self, candidate: FoundNode) -> None:
        self._reported[candidate.name] = candidate.node
        self._on_found(candidate)

    def _pass_over(self) -> None:
        """Log it once: a flood of announcements on the network must not fill the log too."""
        if not self._passed_over:
            self._passed_over = True
            logs.warning("too many nodes announce themselves", kept=CANDIDATES_MAX)


def read(
    node: str,
    properties: Mapping[bytes, bytes | None],
    addresses: Iterable[IpAddress],
    port: int | None,
    near: Iterable[Interface],
) -> FoundNode | None:
    """Return the candidate of an announcement under this id, on these networks; None if it is unusable."""
    name = properties.get(b"name") or b""
    expected = {b"node": node.encode(), b"tls": b"1", b"v": VERSION.encode()}
    if any(properties.get(key) != value for key, value in expected.items()):
        return None
    if not (_NODE.fullmatch(node) and _NAME.fullmatch(name) and port):
        return None
    networks = [one.network for one in near]
    for address in addresses:
        if any(address in network for network in networks):
            host = f"[{address}]" if address.version == 6 else str(address)
            return FoundNode(name.decode(), node, f"tidings+tls://{host}:{port}")
    return None


class Discovery:
    """Announces a node, and finds others; `start`, then `close`, on one loop.

    `on_found` and `on_lost` are called from the loop, and not after `close`. They must not raise.
    """

    def __init__(
        self,
        name: str,
        node_id: str,
        port: int,
        on_found: Callable[[FoundNode], None],
        on_lost: Callable[[str], None],
        *,
        host: str = "0.0.0.0",
        configured: Iterable[str] = (),
        on_taken: Callable[[FoundNode], None] = lambda _found: None,
    ) -> None:
        """`host` is where the node listens: its network is the one used, or all if it listens everywhere.

        `configured` are the names of peers, which no candidate may have; `on_taken` is called if one has.
        """
        self._name = name
        self._node = node_id
        self._port = port
        self._host = ip_address("127.0.0.1" if host == "localhost" else host)
        self._candidates = AnnouncedNodes({name, *configured}, on_found, on_lost)
        self._candidates.on_taken = on_taken
        self._near: list[Interface] = []
        self._zeroconf: AsyncZeroconf | None = None
        self._browser: AsyncServiceBrowser | None = None
        self._announcing: asyncio.Future[Any] | None = None
        self._sweeping: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Announce, and listen; UserError where there is no multicast, or the port is in use.

        The networks are those of now: one that the machine joins later is used after the next start.
        """
        self._near = near(self._host)
        if not self._near:
            raise UserError(f"can't announce a node on {self._host}: this machine is on no such network")
        try:
            await self._announce()
        except (OSError, RuntimeError, Error) as error:
            raise UserError(f"can't announce a node on {self._host}: {error}") from None
        finally:
            if self._browser is None:
                await self.close()

    async def _announce(self) -> None:
        # zeroconf logs bad packets, and strangers send as many of them as they like.
        logging.getLogger("zeroconf").setLevel(logging.CRITICAL)
        interfaces = InterfaceChoice.All if self._host.is_unspecified else [str(self._host)]
        version = IPVersion.V4Only if self._host.version == 4 else IPVersion.V6Only
        self._zeroconf = AsyncZeroconf(interfaces, ip_version=version)
        # The id is random, so nobody need be asked whether it is free, and nobody can say that it is not.
        async with asyncio.timeout(START_S_MAX):
            announcing = await self._zeroconf.async_register_service(
                self._service(), cooperating_responders=True
            )
        self._announcing = asyncio.ensure_future(announcing)
        self._browser = AsyncServiceBrowser(self._zeroconf.zeroconf, SERVICE, handlers=[self._changed])
        self._sweep_later()

    def _service(self) -> ServiceInfo:
        everywhere = self._host.is_unspecified
        return ServiceInfo(
            SERVICE,
            self._node + _SUFFIX,
            port=self._port,
            properties={"node": self._node, "name": self._name, "tls": "1", "v": VERSION},
            server=f"tidings-{self._node}.local.",
            parsed_addresses=[str(one.ip) for one in self._near] if everywhere else [str(self._host)],
        )

    def _changed(
        self,
        zeroconf: Zeroconf,
        service_type: str,  # noqa: ARG002 - given by name
        name: str,
        state_change: ServiceStateChange,
    ) -> None:
        """Called by zeroconf when a service has come, changed or gone."""
        if state_change is ServiceStateChange.Removed:
            self._candidates.remove(name.removesuffix(_SUFFIX))
        else:
            self._look(zeroconf, name)

    def _look(self, zeroconf: Zeroconf, name: str) -> None:
        """Look at what is known of a service.

        What a node announces is in one packet, and said again when it is asked for; so what is not known now
        need not be asked for, and a stranger can't make this node ask.
        """
        node = name.removesuffix(_SUFFIX)
        if node == self._node or not name.endswith(_SUFFIX) or not _NODE.fullmatch(node):
            return
        said = ServiceInfo(SERVICE, name)
        if said.load_from_cache(zeroconf):
            addresses = said.ip_addresses_by_version(IPVersion.All)
            candidate = read(node, said.properties, addresses, said.port, self._near)
            if candidate is None:
                self._candidates.remove(node)
            else:
                self._candidates.add(candidate)

    def sweep(self, now_ms: float) -> None:
        """Lose those who were not heard of for too long, and look at those for whom there is room now.

        zeroconf does not report the ones that it has forgotten to make room for others.
        """
        assert self._zeroconf is not None
        zeroconf, since_ms = self._zeroconf.zeroconf, now_ms - LIFE_S_MAX * 1e3
        records = [one for one in zeroconf.cache.entries_with_name(SERVICE) if one.created > since_ms]
        heard = {getattr(one, "alias", "") for one in records}  # they are pointers, as all of that name
        for node in self._candidates.nodes:
            if node + _SUFFIX not in heard:
                self._candidates.remove(node)
        for name in heard:
            if self._candidates.has_room:
                self._look(zeroconf, name)

    def _sweep_later(self) -> None:
        def sweep() -> None:
            self.sweep(current_time_millis())
            self._sweep_later()

        self._sweeping = asyncio.get_running_loop().call_later(SWEEP_S, sweep)

    async def close(self) -> None:
        """Withdraw what was announced, and listen no more."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._browser is not None:
            browser, self._browser = self._browser, None
            await browser.async_cancel()
        if self._announcing is not None:
            self._announcing.cancel()
        if self._zeroconf is not None:
            zeroconf, self._zeroconf = self._zeroconf, None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S_MAX):
                    await zeroconf.async_close()


def near(host: IpAddress) -> list[Interface]:
    """The addresses of this machine, with their networks, that are on the network where a node listens.

    One that listens everywhere is on all networks but the loopback. An address that means another machine on
    each link, as IPv6 has them, is left out.
    """
    texts = (
        f"{one.ip if isinstance(one.ip, str) else one.ip[0]}/{one.network_prefix}"
        for adapter in ifaddr.get_adapters()
        for one in adapter.ips
    )
    all_of_them = [one for one in map(ip_interface, texts) if one.version == host.version]
    if host.is_unspecified:
        return [
            one for one in all_of_them if not one.is_loopback and not (one.version == 6 and one.is_link_local)
        ]
    return [one for one in all_of_them if host in one.network]

"""How a node finds others: on its network (mDNS), in growing rings while it has no link, or met by chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.node.config import NodeConfig
from tidings.node.config_checks import parse_targets
from tidings.node.driver import Driver

if TYPE_CHECKING:
    from tidings.node.beacons import Beacons
    from tidings.node.discovery import Discovery, FoundNode
    from tidings.node.ring_port import RingPort


class Finding:
    """Ways in which a node looks for others; `port` is that at which it can be dialled itself."""

    def __init__(self, driver: Driver, config: NodeConfig, port: int, is_secured: bool) -> None:
        self._driver = driver
        self._config = config
        self._port = port
        self._is_secured = is_secured
        self._discovery: Discovery | None = None
        self._ring: RingPort | None = None
        self._beacons: Beacons | None = None

    async def start(self) -> None:
        """Begin with what the settings say."""
        if self._config.mdns:
            await self._discover()
        if self._config.search_hops:
            await self._search()
        if self._config.adhoc:
            await self._meet()

    async def close(self) -> None:
        """Look for no others any more, and be found by none."""
        if self._ring is not None:
            self._ring.close()
        if self._discovery is not None:
            await self._discovery.close()
        if self._beacons is not None:
            self._beacons.close()

    async def _discover(self) -> None:
        """Say on the network that the node is there, and look at others who say so."""
        from tidings.node.discovery import Discovery

        broker = self._driver.broker
        configured = [peer.name for peer in self._driver.core.registry]
        self._discovery = Discovery(
            broker.name,
            broker.node,
            self._port,
            self._found_near,
            self.gone,
            host=self._config.host,
            configured=configured,
            on_taken=self._taken_near,
        )
        await self._discovery.start()

    def _found_near(self, found: FoundNode) -> None:
        self.found(found.name, found.address)
        self._driver.do(found.address, self._driver.core.overlay.found_near, found.name, found.node)

    def _taken_near(self, found: FoundNode) -> None:
        """A node on the network has the name of a peer: it is that peer, if it is at the same address."""
        peer = self._driver.core.registry.find(found.name)
        if peer is not None and peer.address == found.address:
            self._driver.do(found.address, self._driver.core.overlay.found_near, found.name, found.node)

    async def _search(self) -> None:
        """Look for others by multicast, ring by ring, while the node has no link."""
        from tidings.node.ring_port import RingPort

        core, broker = self._driver.core, self._driver.broker
        about = broker.name, broker.node, self._port, self._config.search_hops
        self._ring = RingPort(
            *about,
            lambda: any(neighbour.is_up for neighbour in core.overlay),
            self.found,
            self.gone,
            host=self._config.host,
            configured=[peer.name for peer in core.registry],
        )
        await self._ring.start()

    async def _meet(self) -> None:
        """Send beacons, and look at those of others."""
        from tidings.adhoc.beacons import Beacon
        from tidings.node.beacons import Beacons

        broker, adhoc, config = self._driver.broker, self._driver.core.adhoc, self._config
        assert adhoc is not None
        is_secured = self._is_secured
        beacon = Beacon(broker.name, broker.node, self._port, "tidings+tls" if is_secured else "tidings")

        def hear(data: bytes, sender: str, port: int) -> None:
            self._driver.do(sender, adhoc.hear, data, sender, is_secured, port)

        self._beacons = Beacons(beacon, config.adhoc_beacon_s, hear)
        adhoc.send_datagram = self._beacons.send
        await self._beacons.start(config.host, config.adhoc_port, parse_targets(config.adhoc_to or ""))

    def found(self, name: str, address: str) -> None:
        """A node says on the network that it is there."""
        self._driver.do(address, self._driver.core.peering.found, name, address)

    def gone(self, name: str) -> None:
        """Forget a candidate that is not found any more."""
        self._driver.do(name, self._driver.core.peering.gone, name)
        self._driver.do(name, self._driver.core.overlay.found_near, name, "")

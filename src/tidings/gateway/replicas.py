"""Replicas: several gateways of one cell, each of which can serve the networks of the others.

A gateway publishes a record of each network that it serves in a replicated cell; the other gateways of that
cell keep it. A network that finds its gateway dead goes on at another one without registering again: that
gateway registers it by the record, if the network belongs to whoever speaks for it there.

| event | meaning |
| --- | --- |
| `tidings.gateway.network` | `member` serves a network; without a body it does so no longer |
| `tidings.gateway.replica` | the digest of all records that `member` has for `partner`; `anew`: they follow |
| `tidings.gateway.resend` | `member` asks `partner` for all its records, as the digest differs from its own |

Events may be lost, so digests are compared every DIGEST_S. A record has a version, one higher than the one
before it, whoever published that: of two gateways the one with the higher version serves the network, though
the other may still have an open connection to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from math import inf

import msgspec
from msgspec import Struct

from tidings.event import Event
from tidings.filters import Filter
from tidings.gateway.areas import AreaBox, box_of
from tidings.gateway.messages import Number, Point, Register, Sensor
from tidings.gateway.networks import NETWORKS_MAX, Network, NetworkCaller
from tidings.gateway.policy import GatewayGrid

RECORD = "tidings.gateway.network"
DIGEST = "tidings.gateway.replica"
RESEND = "tidings.gateway.resend"
DIGEST_S = 10.0
"""Time between two digests of a gateway."""
RESEND_S = 30.0
"""Least time between two requests of a gateway for all records of another."""
SILENT_S_MAX = 3_600.0
"""How long the records of a gateway are kept after its last digest."""


class NetworkRecord(Struct, frozen=True, rename="kebab"):
    """Network as another gateway has registered it; `lease_s` is that of a network that sends datagrams."""

    sensing_id: str
    version: int
    sensors: list[Sensor]
    area: list[Point] | None = None
    lease_s: Number | None = None
    host: str = ""
    user: str = ""

    @property
    def box(self) -> AreaBox | None:
        """Area of the network."""
        return box_of(self.area)

    def belongs_to(self, caller: NetworkCaller) -> bool:
        """Whether a caller may speak for the network."""
        if self.user or caller.user:
            return caller.user == self.user
        return bool(self.host) and caller.host == self.host

    def registration(self) -> Register:
        """Return the message by which the network would register."""
        return Register(self.sensing_id, self.sensors, area=self.area, lease_s=self.lease_s)


class _Served(Struct, frozen=True):
    """Network that this gateway serves: the version of its record, and the other gateways of its cell."""

    version: int
    partners: tuple[str, ...]


class _Standby(Struct, frozen=True):
    """Network that another gateway serves."""

    member: str
    record: NetworkRecord


class Replicas:
    """Core of one gateway's part in the replication; `member` is its name in the grid."""

    def __init__(self, grid: GatewayGrid, member: str) -> None:
        self._grid = grid
        self._member = member
        self._partners = tuple(name for name in grid.members if name != member)
        self._served: dict[str, _Served] = {}
        self._standby: dict[str, _Standby] = {}
        self._sums: dict[str, int] = dict.fromkeys(self._partners, 0)  # of the records for each partner
        self._their_sums: dict[str, int] = dict.fromkeys(self._partners, 0)  # of the records of each partner
        self._heard_at: dict[str, float] = {}
        self._asked_at: dict[str, float] = {}
        self.wake_at = 0.0

    @property
    def filter(self) -> str:
        """Events that concern this gateway."""
        text = "type IN (:record, :digest, :resend) AND member <> :me AND (partner IS NULL OR partner = :me)"
        return str(Filter(text, record=RECORD, digest=DIGEST, resend=RESEND, me=self._member))

    def __contains__(self, sensing_id: str) -> bool:
        return sensing_id in self._standby

    def record_for(self, sensing_id: str, caller: NetworkCaller) -> NetworkRecord | None:
        """Return the record of a network that another gateway serves, if the caller may speak for it."""
        standby = self._standby.get(sensing_id)
        return standby.record if standby is not None and standby.record.belongs_to(caller) else None

    def serve(self, network: Network) -> Iterator[Event]:
        """Yield the record of a network that has registered here, if its cell is replicated."""
        sensing_id = network.sensing_id
        before = self._end(sensing_id)
        members = self._grid.members_for(sensing_id, network.box)
        partners = tuple(name for name in members if name != self._member)
        if not partners:
            return
        served = self._served[sensing_id] = _Served(before + 1, partners)
        for partner in partners:
            self._sums[partner] ^= _digest(sensing_id, served.version)
        yield self._described(network, served.version)

    def leave(self, sensing_id: str) -> Iterator[Event]:
        """Yield the notice that a network is gone, if this gateway was the one to serve it."""
        if sensing_id in self._served:
            version = self._end(sensing_id)
            attributes = {"member": self._member, "version": version}
            yield Event(RECORD, attributes, subject=sensing_id)

    def hear(self, event: Event, networks: Iterable[Network], now: float) -> Iterator[Event]:
        """Take an event of another gateway; `networks` are those that are registered here."""
        member = event.attributes.get("member")
        if not isinstance(member, str) or member not in self._sums:
            return
        self._heard_at[member] = now
        if event.type == RESEND:
            yield self._digest_for(member, is_anew=True)
            for network in networks:
                served = self._served.get(network.sensing_id)
                if served is not None and member in served.partners:
                    yield self._described(network, served.version)
        elif event.type == DIGEST:
            if event.attributes.get("anew"):
                self._forget(member)
            elif event.attributes.get("digest") != f"{self._their_sums[member]:016x}":
                yield from self._ask(member, now)
        elif event.body:
            self._take(member, event.body)
        else:
            self._drop(member, event)

    def wake(self, now: float) -> Iterator[Event]:
        """Yield the digests that are due, and forget gateways that have been silent for too long."""
        if now < self.wake_at:
            return
        self.wake_at = now + DIGEST_S
        for partner in self._partners:
            if now - self._heard_at.setdefault(partner, now) > SILENT_S_MAX:
                self._forget(partner)
            yield self._digest_for(partner)

    # Inside

    def _end(self, sensing_id: str) -> int:
        """Forget who serves a network; return the version of its record."""
        version = 0
        if (served := self._served.pop(sensing_id, None)) is not None:
            version = served.version
            for partner in served.partners:
                self._sums[partner] ^= _digest(sensing_id, version)
        if (standby := self._standby.pop(sensing_id, None)) is not None:
            version = max(version, standby.record.version)
            self._their_sums[standby.member] ^= _digest(sensing_id, standby.record.version)
        return version

    def _take(self, member: str, body: bytes) -> None:
        """Keep a record, unless a later one of this network is known."""
        try:
            record = msgspec.json.decode(body, type=NetworkRecord)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return  # of a gateway that says it in another way: its digests go on differing
        if self._member not in self._grid.members_for(record.sensing_id, record.box):
            return
        served, standby = self._served.get(record.sensing_id), self._standby.get(record.sensing_id)
        mine = (0, "") if served is None else (served.version, self._member)
        known = (0, "") if standby is None else (standby.record.version, standby.member)
        has_room = standby is not None or len(self._standby) < NETWORKS_MAX
        if has_room and (record.version, member) > max(mine, known):
            self._end(record.sensing_id)
            self._standby[record.sensing_id] = _Standby(member, record)
            self._their_sums[member] ^= _digest(record.sensing_id, record.version)

    def _drop(self, member: str, event: Event) -> None:
        """Forget a network that is gone there."""
        standby = self._standby.get(event.subject or "")
        version = event.attributes.get("version")
        if standby is not None and standby.member == member and standby.record.version == version:
            self._end(standby.record.sensing_id)

    def _forget(self, member: str) -> None:
        """Forget all records of a gateway."""
        for sensing_id in [one for one, standby in self._standby.items() if standby.member == member]:
            self._end(sensing_id)

    def _ask(self, member: str, now: float) -> Iterator[Event]:
        if now >= self._asked_at.get(member, now - RESEND_S) + RESEND_S:
            self._asked_at[member] = now
            yield Event(RESEND, {"member": self._member, "partner": member})

    def _digest_for(self, partner: str, is_anew: bool = False) -> Event:
        digest = f"{self._sums[partner]:016x}"
        attributes = {"member": self._member, "partner": partner, "digest": digest, "anew": is_anew}
        return Event(DIGEST, attributes)

    def _described(self, network: Network, version: int) -> Event:
        sensors = [one.as_sensor() for one in network.instruments.values()]
        box = network.box
        area = None if box is None else [Point(box.x_low, box.y_low), Point(box.x_high, box.y_high)]
        lease_s = None if network.lease_s == inf else network.lease_s
        host, user = network.caller.host, network.caller.user
        record = NetworkRecord(network.sensing_id, version, sensors, area, lease_s, host, user)
        attributes = {"member": self._member, "version": version}
        return Event(RECORD, attributes, subject=network.sensing_id, body=msgspec.json.encode(record))


def _digest(sensing_id: str, version: int) -> int:
    return int.from_bytes(blake2b(f"{version} {sensing_id}".encode(), digest_size=8).digest())

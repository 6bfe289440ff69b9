"""Beacons: one datagram each, by which a host says where it can be dialled. They are not trusted.

A beacon gives a candidate: a name and an address that may be tried. The address has the host from which the
datagram came, so nobody can have a third host dialled by its name; and what it dials shows by its certificate
who it is. Without certificates only hosts of this machine are believed.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

BEACON_SIZE_MAX = 512
"""Bytes of a beacon."""
BEACONS_MAX = 256
"""Hosts that are remembered; beacons of further ones are refused."""
MISSED_MAX = 4
"""Beacons that may be lost before a host counts as gone."""


TAG = b"tidings-adhoc-1"


class Beacon(Struct, frozen=True, array_like=True, tag=TAG.decode()):
    """What a host says of itself."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]
    node: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]
    port: Annotated[int, Meta(ge=1, le=65_535)]
    scheme: Literal["tidings", "tidings+tls"]


class FoundHost(Struct, frozen=True):
    """A host that says it is there."""

    name: str
    node: str
    address: str
    heard_at: tuple[str, int] | None = None  # where its beacon came from, by UDP


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Beacon)


def encode_beacon(beacon: Beacon) -> bytes:
    """The datagram of a beacon."""
    return _encoder.encode(beacon)


def is_beacon(data: bytes) -> bool:
    """Whether a datagram is meant to be a beacon; others are frames of hosts."""
    return data[1 : 2 + len(TAG)] == b"%c%s" % (0xA0 + len(TAG), TAG)


def read_beacon(data: bytes, sender: str, is_secured: bool, port: int = 0) -> FoundHost | None:
    """Return the host of a beacon from this address; None for anything that can't be used."""
    try:
        beacon = _decoder.decode(data[: BEACON_SIZE_MAX + 1])
        address = ip_address(sender)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if len(data) > BEACON_SIZE_MAX or (beacon.scheme == "tidings+tls") is not is_secured:
        return None
    if not is_secured and not address.is_loopback:
        return None
    host = f"[{address}]" if address.version == 6 else str(address)
    reached = f"{beacon.scheme}://{host}:{beacon.port}"
    return FoundHost(beacon.name, beacon.node, reached, (sender, port) if port else None)


class HeardBeacons:
    """Hosts whose beacons come; `name` and `node` are those of this host."""

    def __init__(self, name: str, node: str, beacon_s: float) -> None:
        self._name = name
        self._node = node
        self.life_s = MISSED_MAX * beacon_s
        self._heard: dict[str, tuple[str, float]] = {}  # by name: the node that has it, and when it was heard

    def __contains__(self, name: str) -> bool:
        return name in self._heard

    def __len__(self) -> int:
        return len(self._heard)

    def is_own(self, found: FoundHost) -> bool:
        """Whether a beacon is that of this host itself."""
        return (found.name, found.node) == (self._name, self._node)

    def note(self, found: FoundHost, now: float) -> bool:
        """Note a host; False if it is one too many, or another has its name."""
        known = self._heard.get(found.name)
        if found.name == self._name:
            return False
        if known is not None and known[0] != found.node and now - known[1] <= self.life_s:
            return False
        if known is None and len(self._heard) >= BEACONS_MAX:
            self.sweep(now)
            if len(self._heard) >= BEACONS_MAX:
                return False
        self._heard[found.name] = found.node, now
        return True

    def sweep(self, now: float) -> None:
        """Forget the hosts whose beacons come no more."""
        self._heard = {name: one for name, one in self._heard.items() if now - one[1] <= self.life_s}

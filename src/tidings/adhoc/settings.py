"""Settings of a node for hosts that it meets by chance."""

from __future__ import annotations

from msgspec import Struct

from tidings.adhoc.proofs import Proofs
from tidings.adhoc.registry import LEASE_S

BUFFER_BYTES = 64 << 20
"""Bytes of the messages that a node carries, its own and those of others."""
MEETING_BYTES = 256 << 20
"""Bytes that a node takes from another, and gives it, in one meeting."""
ORIGIN_BYTES = 16 << 20
"""Bytes that a node carries for one other sender."""
RATE = 16 << 20
"""Bytes a second that a node takes from all hosts that are met."""
BEACON_S = 1.0
"""Seconds between two beacons."""


class AdhocSettings(Struct, frozen=True, kw_only=True):
    """How a node exchanges messages with hosts that it meets; `proofs` signs as this node."""

    strategy: str = "acknowledged"
    buffer_bytes: int = BUFFER_BYTES
    meeting_bytes: int = MEETING_BYTES
    origin_bytes: int = ORIGIN_BYTES
    rate: float = RATE
    beacon_s: float = BEACON_S
    datagrams: bool = True  # short messages go to their recipients by UDP, too
    lease_s: float = LEASE_S  # of the queues and topics that it holds
    place: tuple[float, float] | None = None  # where the node is, as areas of messages count
    proofs: Proofs | None = None  # None: everything is believed, for the hosts of one machine

"""Effects of a host, carried out in the order of their list."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from tidings.adhoc.frames import AdhocFrame, Naming
from tidings.adhoc.messages import CarriedMessage, MessageId, Replica

Outcome = Literal["delivered", "expired", "undeliverable"]
"""Outcome of a persistent message that its sender gets, once for each recipient."""


class SendFrame(Struct, frozen=True):
    """Send a frame to a host that is met."""

    peer: str
    frame: AdhocFrame


class DeliverMessage(Struct, frozen=True):
    """Deliver a message to the application here; its id is remembered from now on."""

    message: CarriedMessage
    hops: int
    left_s: float
    """What is left of its life."""


class ReportOutcome(Struct, frozen=True):
    """Report to the sender what has become of its message; `recipient` is '' for all that are left."""

    id: MessageId
    recipient: str
    outcome: Outcome


class StoreReplica(Struct, frozen=True):
    """Store a replica, which is new or has changed."""

    replica: Replica


class DropReplica(Struct, frozen=True):
    """Store a replica no longer; `reason` is displaced, expired, acknowledged or spent."""

    replica: Replica
    reason: str


class TakePlace(Struct, frozen=True):
    """Hold a queue or topic from now on, in place of its holder, who is gone or has offered it."""

    name: str
    kind: str
    about: bytes = b""
    """What the holder has said of it with an offer."""


class LeavePlace(Struct, frozen=True):
    """Hold a queue or topic no longer, by this naming: another host does, which gets what is here."""

    name: str
    kind: str
    naming: Naming
    holder: str


class StorePlace(Struct, frozen=True):
    """Store a place, of which other deputies were named: by this host, or by the holder."""

    name: str


PlaceEffect = TakePlace | LeavePlace | StorePlace
AdhocEffect = SendFrame | DeliverMessage | ReportOutcome | StoreReplica | DropReplica | PlaceEffect

"""Effects of a gateway, carried out in the order of their list."""

from __future__ import annotations

from msgspec import Struct

from tidings.gateway.messages import GatewayMessage
from tidings.gateway.networks import Key


class SendMessage(Struct, frozen=True):
    """Send a message over a connection, or in one datagram to an Address."""

    key: Key
    message: GatewayMessage


class Close(Struct, frozen=True):
    """End a connection."""

    key: Key
    reason: str


class AdvertiseFilter(Struct, frozen=True):
    """Tell the node what may be published; it tells, under this number, which filters demand that."""

    number: int
    filter: str


class Widen(Struct, frozen=True):
    """Tell the node a wider filter for an advertisement: the new one first, then the old one is withdrawn."""

    number: int
    filter: str


class Withdraw(Struct, frozen=True):
    """Take an advertisement back: nothing is left behind it."""

    number: int


GatewayEffect = SendMessage | Close | AdvertiseFilter | Widen | Withdraw

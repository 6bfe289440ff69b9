"""Effects of a gateway, carried out in the order of their list."""

from __future__ import annotations

from msgspec import Struct

from tidings.event import Event
from tidings.gateway.messages import GatewayMessage
from tidings.gateway.networks import Key


class SendMessage(Struct, frozen=True):
    """Send a message over a connection, or in one datagram to an Address."""

    key: Key
    message: GatewayMessage


class Close(Struct, frozen=True):
    """Close a connection."""

    key: Key
    reason: str


class AdvertiseFilter(Struct, frozen=True):
    """Advertise a filter at the node, which then reports the filters that demand it, under this number."""

    number: int
    filter: str


class Widen(Struct, frozen=True):
    """Widen an advertisement at the node: the new filter is advertised first, then the old one withdrawn."""

    number: int
    filter: str


class Withdraw(Struct, frozen=True):
    """Withdraw an advertisement: there are no sensors left behind it."""

    number: int


class PublishEvent(Struct, frozen=True):
    """Publish an event for the other gateways of the grid."""

    event: Event


GatewayEffect = SendMessage | Close | AdvertiseFilter | Widen | Withdraw | PublishEvent

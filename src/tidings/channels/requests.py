"""What clients and neighbour nodes ask of the channels of a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from tidings.channels.description import (
    ChannelDelivery,
    ChannelDescription,
    ChannelOrder,
    ChannelProtocol,
    ChannelQuery,
    ExpectedGroup,
)
from tidings.channels.protocols import SearchScope
from tidings.protocol.service import IncomingRequest

ChannelOperations = Mapping[str, tuple[Any, Callable[[IncomingRequest, Any], Any]]]
"""What clients and neighbours may ask for: by name, the arguments and who does it."""


class CreateChannel(Struct, frozen=True):
    """The arguments of `channel.create`; what is expected of the channel chooses its protocol."""

    name: str
    delivery: ChannelDelivery = "transient"
    types: tuple[str, ...] = ()
    private: bool = False
    order: ChannelOrder = "fifo"
    protocol: ChannelProtocol = "broadcast"
    expect: ExpectedGroup | None = None


class NamedChannel(Struct, frozen=True):
    """The arguments of operations on one channel."""

    channel: str


class KnownChannel(Struct, frozen=True):
    """The arguments of operations on one channel, which take the reference of a private one or membership."""

    channel: str
    reference: str = ""


class RenewedChannel(Struct, frozen=True):
    """The arguments of `link.channel.renew`: a channel with its new reference."""

    channel: ChannelDescription


class DeleteChannel(Struct, frozen=True):
    """The arguments of `link.channel.delete`; `towards`: a node that takes part, if the caller does not."""

    channel: str
    towards: str = ""


class ArchiveChannel(Struct, frozen=True):
    """The arguments of `channel.archive`: whether this node is to keep all events of a channel."""

    channel: str
    kept: bool = True


class FeedChannel(Struct, frozen=True):
    """The arguments of `channel.feed`: that the client sends what comes in one channel into another."""

    channel: str
    into: str
    ends: bool = False


class JoinChannel(Struct, frozen=True):
    """The arguments of `link.channel.join`: the nodes that lie behind the one asked, and take part.

    `marks`: how far an ordered channel has come at the caller; `sequencer`: a node that may know it.
    """

    channel: ChannelDescription
    towards: tuple[str, ...]
    through: bool = False
    marks: bytes = b""
    sequencer: str = ""


class TellChannel(Struct, frozen=True):
    """The arguments of `link.channel.tell`: a message of a node to another that takes part in a channel."""

    channel: str
    sender: str
    to: str
    body: bytes
    hops: int = 0


class FindChannels(Struct, frozen=True):
    """The arguments of `link.channel.find`; `hops` are the links that lie between who asks and the caller."""

    query: ChannelQuery
    hops: int = 0
    scope: SearchScope = SearchScope()

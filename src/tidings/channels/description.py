"""Descriptions of channels, and what a node keeps of one that it takes part in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from msgspec import Struct

from tidings.filters import Filter
from tidings.protocol.channels import filter_of
from tidings.store.interface import RecordKind

TYPES_MAX = 1_000
"""Types of events that a channel may name."""
CHANNELS_MAX = 100_000
"""Channels in which a node takes part."""

ChannelDelivery = Literal["transient", "reliable", "persistent"]
"""Whether events are stored until all members have them, or kept in the log for later ones, too."""
ChannelOrder = Literal["fifo", "causal", "total"]
"""Order in which members get events.

`fifo`: those of each sender in the order in which it sent them. `causal`: also none before another that its
sender may have known. `total`: all members get all events in one order.
"""

ChannelProtocol = Literal["broadcast", "insertion", "rendezvous"]
"""How a node that joins finds those that take part.

`broadcast`: it asks all nodes. `insertion`: those around it, then more. `rendezvous`: nodes to which the id
of the channel is hashed, and which take part without members, too.
"""
PROTOCOLS: tuple[ChannelProtocol, ...] = get_args(ChannelProtocol)
SEPARATOR = "-"
"""Between the protocol and the random part of an id."""


class ExpectedGroup(Struct, frozen=True, forbid_unknown_fields=True):
    """What is expected of a channel: how many nodes have members, and joins and leaves for each event."""

    size: int = 2
    fluctuation: float = 0.1


def protocol_of(channel: str) -> ChannelProtocol:
    """Return the protocol of a channel by its id."""
    name, found, _ = channel.partition(SEPARATOR)
    return next((one for one in PROTOCOLS if found and one == name), "broadcast")


def id_of(protocol: ChannelProtocol, token: str) -> str:
    """Return the id of a new channel, with a random token."""
    return token if protocol == "broadcast" else f"{protocol}{SEPARATOR}{token}"


class ChannelDescription(Struct, frozen=True):
    """What is known of a channel wherever it is used.

    `node` is the name of the node at which it was created. `types`: the types of its events, all if empty. A
    private channel has a `reference`, a secret of its own, without which nobody can find or join it. It was
    replaced `renewals` times.
    """

    id: str
    name: str
    node: str
    delivery: ChannelDelivery = "transient"
    types: tuple[str, ...] = ()
    reference: str = ""
    order: ChannelOrder = "fifo"
    renewals: int = 0

    def admits(self, reference: str) -> bool:
        """Whether a client that is no member may know of the channel, and join it, by a reference."""
        return reference == self.reference or not self.reference

    def is_newer(self, other: ChannelDescription) -> bool:
        """Whether the reference here was given later; of two that were given at once one counts."""
        return (self.renewals, self.reference) > (other.renewals, other.reference)

    @property
    def token(self) -> str:
        """By what those know the channel who are no members."""
        return self.reference or self.id

    @property
    def is_private(self) -> bool:
        """Whether it takes the reference to join it."""
        return bool(self.reference)

    @property
    def filter(self) -> Filter:
        """The events of the channel."""
        return filter_of(self.id)


class ChannelQuery(Struct, frozen=True, omit_defaults=True):
    """A search for channels: by name, by id or by reference; all that are not private if nothing is given.

    `logs`: also for the nodes that have stored its events; then it has an id. `feeds`: also for the channels
    that feed others. `measured`: also for what each node has counted.
    """

    name: str = ""
    id: str = ""
    reference: str = ""
    logs: bool = False
    feeds: bool = False
    measured: bool = False

    def agrees(self, channel: ChannelDescription) -> bool:
        """Whether a channel is meant."""
        if self.id:
            return channel.id == self.id
        if self.reference:
            return channel.reference == self.reference
        if channel.is_private:
            return False
        name, _, node = self.name.partition("@")
        return not self.name or (channel.name == name and node in ("", channel.node))


class ChannelCounts(Struct, frozen=True):
    """What a node has counted since it takes part: members that came and went, events that they sent.

    `rate`: events a second in about the last minute.
    """

    joins: int = 0
    leaves: int = 0
    sent: int = 0
    rate: float = 0.0


class ChannelPlace(Struct, frozen=True, omit_defaults=True):
    """A channel, and a node that takes part in it, so many links away from who asks.

    `neighbours` take part, too; they and `counts` are there if they were asked for.
    """

    channel: ChannelDescription
    node: str
    distance: int = 0
    members: int = 0
    neighbours: tuple[str, ...] = ()
    counts: ChannelCounts = ChannelCounts()


class ChannelInfo(Struct, frozen=True):
    """A channel that is there: `members` are the numbers of its members by the names of nodes."""

    id: str
    name: str
    node: str
    delivery: ChannelDelivery
    types: tuple[str, ...]
    members: dict[str, int]
    order: ChannelOrder = "fifo"
    protocol: ChannelProtocol = "broadcast"


class ChannelStatus(ChannelInfo, frozen=True, kw_only=True):
    """What is measured of a channel; nodes are given by their names.

    `links`: those that its events go over, and `extent`: their weight as a share of that of all links in the
    tree of the network. `joins`, `leaves` and `sent` are counted since the nodes take part, `sent` at each,
    and `rate` is the number of events a second in about the last minute. `fluctuation`: joins and leaves for
    each event, None if there was none. `reached`: nodes that were asked, `missing`: those that could not be.
    """

    links: list[tuple[str, str]]
    extent: float
    joins: int
    leaves: int
    sent: dict[str, int]
    rate: float
    fluctuation: float | None
    missing: list[str]
    reached: list[str] = []


def newest(places: Sequence[ChannelPlace]) -> ChannelDescription | None:
    """Return what is known last of a channel that is at some places, if there are any."""
    channels = (place.channel for place in places)
    return max(channels, key=lambda one: (one.renewals, one.reference), default=None)


class LogPlace(Struct, frozen=True):
    """A node that has stored events of a channel, from one position to before another.

    `are_copies`: of events that other nodes have taken in.
    """

    node: str
    first: int
    end: int
    are_copies: bool = False


class FoundChannels(Struct, frozen=True):
    """The outcome of a search: `nodes` has the ids of those that were asked, `missing` of the others.

    `logs` are the places at which events are stored, if they were asked for.
    """

    places: list[ChannelPlace] = []
    nodes: list[str] = []
    missing: list[str] = []
    logs: list[LogPlace] = []
    feeds: list[tuple[str, str]] = []


class StoredChannel(Struct, frozen=True):
    """The stored record of a channel in which a node takes part: with which of its neighbours."""

    channel: ChannelDescription
    neighbours: tuple[str, ...] = ()


class LoggedChannel(Struct, frozen=True):
    """The stored record of a node that has events of a channel in its log, from this position on."""

    first: int


LOGGED: RecordKind[tuple[str], LoggedChannel] = RecordKind("channel-logged", LoggedChannel)
EVER_LOGGED = ("",)
"""The key of the record that stays when all these channels are deleted, as the log does."""


CHANNELS: RecordKind[tuple[str], StoredChannel] = RecordKind("channel", StoredChannel)

"""Events of channels, at the node: who may publish them, and who gets them.

The header field `channel` of such an event is MARK and the channel's id. It is for the members of the channel
alone: a subscription that was made without joining does not get it, whatever its filter, nor do last values
and archives. Other events pay nothing for them: the check of a batch notes whether any has the field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from tidings.event import Batch, Event
from tidings.event.relayed import RelayedBatch
from tidings.exchange import NodeSubscription, Positions, Rows
from tidings.filters import Filter

if TYPE_CHECKING:
    from tidings.errors import TidingsError
    from tidings.event.wire import Checked
    from tidings.protocol.incoming import IncomingStream
    from tidings.protocol.session import Session
    from tidings.replies import Deferred

MARK = "~channel."
"""How the header field `channel` begins in the events of channels."""
EXPEDITED = "!"
"""How it ends in those that are expedited: members get them at once, whatever the order of the channel."""
UPDATE = "="
"""How it ends in updates, whose key is their subject: of those that a member has not got, only the newest."""
MARK_BYTES = MARK.encode()
"""The same in a batch: one without these bytes has no such event."""
CHANNEL_EVENTS = Filter("STARTS_WITH(channel, :mark)", mark=MARK)
"""All events of channels."""
OTHER_EVENTS = Filter("channel IS NULL OR NOT STARTS_WITH(channel, :mark)", mark=MARK)
"""All other events."""


class OneChannel(Mapping[int, str]):
    """The rows of a batch all of which are for the members of one channel, as most are that are for any."""

    __slots__ = ("_count", "channel")

    def __init__(self, channel: str, count: int) -> None:
        self.channel = channel
        self._count = count

    def __getitem__(self, row: int) -> str:
        if not 0 <= row < self._count:
            raise KeyError(row)
        return self.channel

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._count))

    def __len__(self) -> int:
        return self._count


class JoiningClient(Protocol):
    """Client that joins a channel: its session here, or its arrival, if it is on its way."""

    @property
    def is_closed(self) -> bool:
        """Whether it has gone."""


class Channels(Protocol):
    """The channels of a node, as the broker asks for them."""

    @property
    def members_of(self) -> Mapping[NodeSubscription, str]:
        """Subscriptions to all events of channels with members here; they take nothing, a match is all."""

    def join(self, client: JoiningClient, channel: str, reference: str | None) -> Deferred[None]:
        """Return a reply that comes when events of a channel come to this node; a member follows.

        A private channel is joined by its `reference`; None: the client is a member already.
        """

    @property
    def are_logged(self) -> bool:
        """Whether the log of this node has events of channels."""

    def admit_reader(self, session: Session, token: str) -> Deferred[str]:
        """Return the id of the channel whose stored events a client may read: as a member, or by a token.

        The token of an open channel is its id, that of a private one its reference; NotAllowed for others.
        """

    def refusals(
        self, session: Session, batch: Batch, channels: Mapping[int, str], deliveries: bytes
    ) -> dict[int, TidingsError]:
        """Return the rows of a publication that a client may not publish, and why not.

        `channels` is what `channels_in` finds in it, and `deliveries` the places of theirs in DELIVERIES.
        """

    def routed(
        self, channels: Mapping[int, str], matches: list[tuple[NodeSubscription, Rows]]
    ) -> list[tuple[NodeSubscription, Rows]]:
        """Return the matches of a batch, with the events of channels for their members and on their ways."""

    def is_ordered(self, channel: str) -> bool:
        """Whether the events of a channel have an order beyond that of each sender."""

    def sent(self, batch: Batch, channel: str) -> Batch:
        """Return events of an ordered channel that a client has sent with what comes before them."""

    def was_sent(
        self, batch: Batch, channel: str, position: int, stream: IncomingStream | None, checked: Checked
    ) -> None:
        """They were handed on; `position` is that of the first, 0 if they were not stored."""

    def was_expedited(self, batch: Batch, channel: str, position: int) -> None:
        """The same of events that skip the order."""

    def expedited(self, batch: RelayedBatch, channel: str) -> None:
        """Members of an ordered channel get events at once that a neighbour has handed on."""

    def arrived(self, batch: RelayedBatch, channel: str) -> bool:
        """Whether members of an ordered channel get events now that a neighbour has handed on."""

    def settle(self, channel: str) -> None:
        """Let members of an ordered channel have what has waited for what they got last."""

    def missed(self, node: str, epoch: int, last: int) -> None:
        """Events of a first node up to a number were reported as missed."""

    def progress(self, channel: str) -> bytes:
        """Return how far the members of an ordered channel have come here."""

    def reach(self, channel: str, told: bytes, is_coming: bool) -> Deferred[None]:
        """Return a reply that comes when the members of an ordered channel have come so far here.

        `is_coming`: a member comes that had all that; it leaves otherwise, and has sent what was sent by now.
        """

    def beyond(self, told: bytes, batch: RelayedBatch) -> list[int]:
        """Return the rows of a batch that a member had not got when it had come so far."""

    def numbered(self, batch: Batch, positions: Positions, rows: Rows) -> RelayedBatch:
        """Return rows of events that are being handed on as other nodes know them."""


def filter_of(channel: str) -> Filter:
    """Return the filter of the events of a channel."""
    names = MARK + channel, MARK + channel + EXPEDITED, MARK + channel + UPDATE
    return Filter("channel IN :names", names=list(names))


def channel_of(event: Event) -> str | None:
    """Return the id of the channel that an event is for; None if it is for anyone."""
    name = event.channel
    if name is None or not name.startswith(MARK):
        return None
    return name[len(MARK) :].rstrip(EXPEDITED + UPDATE)


def is_expedited(event: Event) -> bool:
    """Whether an event of a channel is for its members at once."""
    return event.channel is not None and event.channel.endswith(EXPEDITED)


def key_of_update(event: Event) -> str | None:
    """Return the key of an event that supersedes older ones of its channel; None if it is no update."""
    name = event.channel
    if name is None or not name.endswith(UPDATE) or not name.startswith(MARK):
        return None
    return event.subject


def channels_in(batch: Batch) -> dict[int, str]:
    """Return the rows of a batch that are for the members of channels, and which these are."""
    raw = batch.raw
    if MARK_BYTES not in raw:
        return {}
    offsets = batch.offsets
    marked = (row for row in range(len(batch)) if raw.find(MARK_BYTES, offsets[row], offsets[row + 1]) >= 0)
    return {row: found for row in marked if (found := channel_of(batch[row])) is not None}


def may_hear(member: NodeSubscription, event: Event) -> bool:
    """Whether an event may be delivered to a subscription, as far as channels go."""
    channel = channel_of(event)
    return channel is None or channel == member.channel


def is_of_channel(filter: str) -> bool:
    """Whether a filter, as the table of a neighbour has it, is that of channels, and of nothing else."""
    return MARK in filter and CHANNEL_EVENTS.covers(Filter(filter))

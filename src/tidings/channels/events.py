"""Events of channels at a node: which a client may send, and who gets them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tidings.channels.logged import LoggedChannels
from tidings.channels.trees import ChannelTrees
from tidings.errors import NotAllowed, Refused, TidingsError
from tidings.event import Batch
from tidings.event.header import DELIVERIES
from tidings.exchange import NodeSubscription, Rows
from tidings.filters import Filter
from tidings.overlay.relaying import LinkCursor
from tidings.protocol.broker import Broker
from tidings.protocol.channels import MARK, OneChannel
from tidings.protocol.session import Session

MatchedRows = list[tuple[NodeSubscription, Rows]]
_PERSISTENT = DELIVERIES.index("persistent")


class ChannelEvents:
    """The events of the channels in which a node takes part."""

    def __init__(self, broker: Broker, trees: ChannelTrees, logged: LoggedChannels) -> None:
        self._broker = broker
        self._trees = trees
        self._logged = logged
        self._watched: dict[str, NodeSubscription] = {}
        self.members_of: dict[NodeSubscription, str] = {}
        """Subscriptions to all events of channels with members here; they take nothing, a match is all."""

    def watch(self, channel: str) -> None:
        """Have the index find the events of a channel that has members here."""
        if channel not in self._watched:
            name = Filter("channel = :name", name=MARK + channel)
            self._watched[channel] = granted = self._broker.exchange.grant(name)
            self.members_of[granted] = channel

    def unwatch(self, channel: str) -> None:
        """The last member is gone."""
        granted = self._watched.pop(channel, None)
        if granted is not None:
            del self.members_of[granted]
            self._broker.exchange.revoke(granted)

    def refusals(
        self, session: Session, batch: Batch, channels: Mapping[int, str], deliveries: bytes
    ) -> dict[int, TidingsError]:
        """Return the rows of a publication that a client may not publish, and why not."""
        if isinstance(channels, OneChannel) and self._takes_all(session, channels.channel, deliveries):
            self._note_sent(channels.channel, len(deliveries))
            return {}
        found = {row: self._refusal(session, batch, row, channels[row], deliveries) for row in channels}
        for channel, count in Counter(channels[row] for row, error in found.items() if not error).items():
            self._note_sent(channel, count)
        return {row: error for row, error in found.items() if error is not None}

    def _note_sent(self, channel: str, count: int) -> None:
        if (part := self._trees.get(channel)) is not None:
            part.meter.note_sent(count, self._broker.now)

    def _takes_all(self, session: Session, channel: str, deliveries: bytes) -> bool:
        """Whether a channel takes all events of these deliveries, of whichever type, from a client."""
        part = self._trees.get(channel)
        if part is None or part.channel.types or channel not in session.channels:
            return False
        highest = max(deliveries)
        if highest > DELIVERIES.index(part.channel.delivery):
            return False
        if highest == _PERSISTENT:
            self._logged.note(channel)
        return True

    def _refusal(
        self, session: Session, batch: Batch, row: int, channel: str, deliveries: bytes
    ) -> TidingsError | None:
        part = self._trees.get(channel)
        if part is None or channel not in session.channels:
            return NotAllowed("only a member of a channel may send to it")
        about = part.channel
        if about.types and (kind := batch[row].type) not in about.types:
            return Refused("type", f"channel {about.name!r} takes no events of the type {kind!r}")
        if deliveries[row] > DELIVERIES.index(about.delivery):
            asked = DELIVERIES[deliveries[row]]
            return Refused(
                "delivery", f"channel {about.name!r} takes no {asked} events: it is {about.delivery}"
            )
        if deliveries[row] == _PERSISTENT:
            self._logged.note(channel)
        return None

    def routed(self, channels: Mapping[int, str], matches: MatchedRows) -> MatchedRows:
        """Return the matches of a batch, with the events of channels for their members and on their ways."""
        if isinstance(channels, OneChannel):
            return [one for one in matches if self._is_for(one[0], channels.channel)]
        routed: MatchedRows = []
        for subscription, rows in matches:
            kept = [row for row in map(int, rows) if self._is_for(subscription, channels.get(row))]
            if kept:
                routed.append((subscription, kept))
        return routed

    def _is_for(self, subscription: NodeSubscription, channel: str | None) -> bool:
        if channel is None or subscription.channel == channel:
            return True
        cursor, part = subscription.owner, self._trees.get(channel)
        return isinstance(cursor, LinkCursor) and part is not None and part.is_shared_with(cursor.name)

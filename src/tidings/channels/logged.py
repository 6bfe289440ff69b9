"""Which channels a node has stored for members that come later: in its log, and as copies of other nodes.

Events of a persistent channel are in the log of their first node, as all persistent events are; a record says
from which position on. A node that *archives* a channel has a cursor on the stored stream for it, which never
acknowledges: so its events stay, whichever node took them in, up to KEPT_MAX positions back. It is a member
of the channel, as long as nobody ends it.
"""

from __future__ import annotations

from tidings.channels.description import EVER_LOGGED, LOGGED, ChannelDescription, LoggedChannel, LogPlace
from tidings.errors import Refused
from tidings.protocol.broker import Broker
from tidings.protocol.channels import filter_of
from tidings.protocol.cursor import INTERNAL, Cursor, Options
from tidings.store.interface import Durable

OWNER = INTERNAL + "channel"
"""Owner of the cursors by which channels are archived: no client can have this name."""
KEPT_MAX = 1_000_000
"""Positions of the stored stream that are kept for a channel that is archived here."""
KEPT_AFTER = 1_000
"""Positions by which that is moved on at once."""
ARCHIVED_MAX = 1_000
"""Channels that a node archives."""


class LoggedChannels:
    """The channels of which a node has stored events to be read again."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        known = {channel: one.first for (channel,), one in LOGGED.known(broker.state).items()}
        self.are_any = EVER_LOGGED[0] in known
        """Whether the log has events of channels."""
        known.pop(EVER_LOGGED[0], None)
        self._first = known
        self._trim_at = 1  # the least position that is to be kept when that is looked at next

    def note(self, channel: str) -> None:
        """Events of a persistent channel are about to be stored."""
        if channel in self._first:
            return
        if not self.are_any:
            self.are_any = True
            self._broker.store(LOGGED.set(EVER_LOGGED, LoggedChannel(0)))
        first = self._first[channel] = self._broker.position + 1
        self._broker.store(LOGGED.set((channel,), LoggedChannel(first)))

    def archive(self, channel: ChannelDescription) -> None:
        """Keep all events of a channel, as one of its members."""
        if self.archived(channel.id) is not None:
            return
        if sum(one.owner == OWNER for one in self._broker.cursors.named) >= ARCHIVED_MAX:
            raise Refused("limit", f"a node archives at most ARCHIVED_MAX = {ARCHIVED_MAX} channels")
        start, options = self._broker.position, Options(passive=True, channel=channel.id).encode()
        record = Durable(channel.id, OWNER, str(filter_of(channel.id)), start, start, options)
        self._broker.cursors.open(Cursor(self._broker, record))

    def archived(self, channel: str) -> Cursor | None:
        """Return the cursor by which a channel is archived here."""
        return self._broker.cursors.find(OWNER, channel)

    def end_archive(self, channel: str) -> None:
        """Keep its events no longer."""
        cursor = self.archived(channel)
        if cursor is not None:
            self._broker.cursors.end(cursor)

    def forget(self, channel: str) -> None:
        """A channel was deleted: what is in the log stays there, for nobody."""
        if self._first.pop(channel, None) is not None:
            self._broker.store(LOGGED.drop((channel,)))

    def places(self, channel: str, first_logged: int = 0) -> list[LogPlace]:
        """Return what of a channel can be read here; `first_logged` is the begin of the log."""
        places: list[LogPlace] = []
        node, end = self._broker.node, self._broker.position + 1
        first = self._first.get(channel)
        if first is not None:
            places.append(LogPlace(node, max(first, first_logged), end))
        cursor = self.archived(channel)
        if cursor is not None:
            places.append(LogPlace(node, cursor.acknowledged + 1, end, are_copies=True))
        return places

    def trim(self) -> None:
        """Give up what is too old of what is archived; called after each tick."""
        least = self._broker.position - KEPT_MAX
        if least < self._trim_at:
            return
        self._trim_at = least + KEPT_AFTER
        for cursor in self._broker.cursors.named:
            if cursor.owner == OWNER and cursor.acknowledged < least:
                cursor.acknowledge(least)

"""System events of a channel: members that have joined or left, and those that are lost with their node."""

from __future__ import annotations

from collections.abc import Mapping

from tidings.channels.description import ChannelStatus
from tidings.event import Event

JOINED, LEFT, LOST = "channel.joined", "channel.left", "channel.lost"


class ChannelChanges:
    """The members of a channel as they were seen last, by the names of their nodes."""

    def __init__(self) -> None:
        self._members: dict[str, int] = {}

    def seen(self, status: ChannelStatus) -> list[Event]:
        """Return what has changed since the last time; at first all members have joined."""
        now = {node: count for node, count in status.members.items() if count}
        events = []
        for node in sorted({*self._members, *now}):
            before, members = self._members.get(node, 0), now.get(node, 0)
            if members != before:
                is_lost = node not in status.reached
                kind = JOINED if members > before else LOST if is_lost else LEFT
                about: Mapping[str, str | int] = {
                    "node": node,
                    "count": abs(members - before),
                    "members": members,
                }
                events.append(Event(kind, about, channel=status.name))
        self._members = now
        return events

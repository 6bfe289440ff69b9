"""Which channels feed others, as far as clients of this node have them do so: none may feed itself."""

from __future__ import annotations

from collections.abc import Iterable

from tidings.channels.calls import ChannelCalls
from tidings.channels.description import ChannelQuery, FoundChannels
from tidings.channels.requests import ChannelOperations, FeedChannel
from tidings.errors import NotAllowed, Refused
from tidings.protocol.service import IncomingRequest
from tidings.protocol.session import Session
from tidings.replies import Deferred, resolved

FEEDS_MAX = 1_000
"""Channels that one client may have fed by others."""
NO_CHANNEL = "-"
"""No channel has this id: a search for it finds feeds alone."""

Feed = tuple[str, str]
"""The ids of a channel and of the one that it feeds."""


class ChannelFeeds:
    """The feeds of the clients of a node, until they end them or go."""

    def __init__(self, calls: ChannelCalls) -> None:
        self._calls = calls
        self._feeds: dict[Session, dict[Feed, None]] = {}
        self.operations: ChannelOperations = {"channel.feed": (FeedChannel, self._feed)}

    @property
    def all(self) -> list[Feed]:
        """All feeds of this node's clients."""
        return [feed for feeds in self._feeds.values() for feed in feeds]

    def parted(self, session: Session) -> None:
        """A client has gone, and feeds nothing any more."""
        self._feeds.pop(session, None)

    def _feed(self, asked: IncomingRequest, request: FeedChannel) -> Deferred[None]:
        """A client sends what comes in one channel into another, unless that feeds the first."""
        session, feed = asked.session, (request.channel, request.into)
        own = self._feeds.get(session, {})
        if request.ends:
            own.pop(feed, None)
            return resolved(None)
        if not set(feed) <= set(session.channels):
            raise NotAllowed("only a member of both channels may have one feed the other")
        if len(own) >= FEEDS_MAX:
            raise Refused("limit", f"a client has at most FEEDS_MAX = {FEEDS_MAX} channels fed")

        def begin(found: FoundChannels) -> None:
            if _leads(request.into, request.channel, found.feeds):
                raise Refused("loop", "the channel that is to be fed feeds the other one already")
            self._feeds.setdefault(session, {})[feed] = None

        return self._calls.find(ChannelQuery(id=NO_CHANNEL, feeds=True)).map(begin)


def _leads(start: str, end: str, feeds: Iterable[Feed]) -> bool:
    """Whether what comes in one channel comes into another in the end."""
    following: dict[str, list[str]] = {}
    for one, other in feeds:
        following.setdefault(one, []).append(other)
    reached, left = {start}, [start]
    while left:
        new = [one for one in following.get(left.pop(), ()) if one not in reached]
        reached.update(new)
        left += new
    return end in reached

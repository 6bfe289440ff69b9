"""What a node asks others about channels: neighbours, a node far away, and all that can be reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import structs

from tidings.channels.description import ChannelQuery, FoundChannels, newest
from tidings.channels.protocols import ChannelProtocols, SearchScope
from tidings.channels.requests import ChannelOperations, FindChannels, TellChannel
from tidings.overlay.neighbours import Neighbour
from tidings.overlay.service import Overlay
from tidings.protocol.broker import Broker
from tidings.protocol.service import IncomingRequest
from tidings.replies import Deferred, gathered, ignore, resolved

FIND_S = 10.0
"""How long a neighbour may take to answer for all nodes behind it; then they are missing."""
TOLD_HOPS_MAX = 100
"""Links over which a message to another node of a channel goes."""


class ChannelCalls:
    """Requests to other nodes; `look` returns what this node has of a search, so many links away."""

    def __init__(
        self,
        broker: Broker,
        overlay: Overlay,
        protocols: ChannelProtocols,
        look: Callable[[ChannelQuery, int], FoundChannels],
        hear: Callable[[str, str, bytes], None],
    ) -> None:
        """`hear` takes a message of another node to this one: the channel, the node, and what it says."""
        self._broker = broker
        self._overlay = overlay
        self._protocols = protocols
        self._look = look
        self._hear = hear
        self.operations: ChannelOperations = {
            "link.channel.find": (FindChannels, self._find_behind),
            "link.channel.tell": (TellChannel, self._told_by),
        }

    # Searching

    def find(self, query: ChannelQuery) -> Deferred[FoundChannels]:
        """Search this node and all others that can be reached."""
        return self._search(FindChannels(query), None).map(self._compared)

    def find_referred(self, reference: str) -> Deferred[FoundChannels]:
        """Search a private channel by its reference; one that was not reached may know a former one."""

        def current(found: FoundChannels) -> FoundChannels:
            channel = newest(found.places)
            is_current = channel is not None and channel.reference == reference
            return found if is_current else structs.replace(found, places=[])

        def known(found: FoundChannels) -> Deferred[FoundChannels]:
            channel = newest(found.places)
            return resolved(found) if channel is None else self.find(ChannelQuery(id=channel.id)).map(current)

        return self.find(ChannelQuery(reference=reference)).chain(known)

    def find_near(self, channel: str) -> Deferred[FoundChannels]:
        """Search nodes that take part in a channel: in each scope of its protocol, and then at all nodes."""
        return self._find_in(ChannelQuery(id=channel), self._protocols.scopes(channel))

    def _find_in(self, query: ChannelQuery, scopes: Iterator[SearchScope]) -> Deferred[FoundChannels]:
        scope = next(scopes, None)
        if scope is None:
            return self.find(query)

        def found(channels: FoundChannels) -> Deferred[FoundChannels]:
            if any(place.members or place.channel.order != "total" for place in channels.places):
                return resolved(channels)
            return self._find_in(query, scopes)  # a total order needs a node that knows the sequencer

        return self._search(FindChannels(query, scope=scope), None).chain(found)

    def _compared(self, found: FoundChannels) -> FoundChannels:
        """Name the nodes that were not asked: behind cut links, or as the tree was changing its shape."""
        topology, asked = self._overlay.topology, set(found.nodes)
        missing = [node for node in topology.tree.nodes if node not in asked]
        return structs.replace(found, missing=sorted(missing))

    def _find_behind(self, asked: IncomingRequest, request: FindChannels) -> Deferred[Any]:
        """The same for a neighbour: at this node, and at those behind it."""
        node = self._overlay.linking.caller(asked.session).node
        return self._search(structs.replace(request, hops=request.hops + 1), node).map(msgspec.to_builtins)

    def _search(self, request: FindChannels, asking: str | None) -> Deferred[FoundChannels]:
        own = self._broker.node
        here = self._look(request.query, request.hops)
        others = [one for one in self._behind(request, here) if one.node != asking]
        arguments = msgspec.to_builtins(request)
        replies = [self._ask_behind(one, arguments) for one in others]

        def join(found: list[FoundChannels]) -> FoundChannels:
            places = [place for one in (here, *found) for place in one.places]
            logs = [place for one in (here, *found) for place in one.logs]
            feeds = [feed for one in (here, *found) for feed in one.feeds]
            nodes = [own, *(node for one in found for node in one.nodes)]
            return FoundChannels(places, nodes, [], logs, feeds)

        return gathered(replies).map(join)

    def _behind(self, request: FindChannels, here: FoundChannels) -> list[Neighbour]:
        """Return the neighbours at which a search goes on; in a scope it ends where it has found any."""
        scope, others = request.scope, self._overlay.neighbours.in_tree
        if scope == SearchScope():
            return others
        if here.places or (scope.hops_max and request.hops >= scope.hops_max):
            return []
        ways = {self._overlay.topology.way(node) for node in scope.towards}
        return [one for one in others if not scope.towards or one.node in ways]

    def _ask_behind(self, neighbour: Neighbour, arguments: dict[str, Any]) -> Deferred[FoundChannels]:
        """Ask a neighbour for what it and the nodes behind it know; without an answer that is nothing."""
        reply: Deferred[FoundChannels] = Deferred()

        def answered(answer: Any) -> None:
            try:
                reply.resolve(msgspec.convert(answer, FoundChannels))
            except msgspec.ValidationError:
                reply.resolve(FoundChannels())

        asked = self.ask(neighbour.node, "link.channel.find", arguments)
        asked.then(answered, lambda _error: reply.resolve(FoundChannels()))
        self._overlay.later(FIND_S, lambda: reply.resolve(FoundChannels()))
        return reply

    def ask(self, node: str, operation: str, arguments: dict[str, Any]) -> Deferred[Any]:
        """Send a request to a neighbour."""
        return self._overlay.neighbours.ask(node, operation, arguments)

    def delete(self, channel: str, towards: str, but: str = "") -> None:
        """Have a channel deleted from a node that takes part, which this one does not."""
        step = self._overlay.topology.way(towards)
        if step not in (None, but):
            self.ask(step, "link.channel.delete", {"channel": channel, "towards": towards})

    # Messages

    def tell(self, request: TellChannel) -> None:
        """Send a message on the way to a node, or take it; it may be lost."""
        if request.to == self._broker.node:
            self._hear(request.channel, request.sender, request.body)
            return
        step = self._overlay.topology.way(request.to)
        if step is not None and request.hops < TOLD_HOPS_MAX:
            passed = structs.replace(request, hops=request.hops + 1)
            self.ask(step, "link.channel.tell", structs.asdict(passed)).then(ignore, ignore)

    def _told_by(self, asked: IncomingRequest, request: TellChannel) -> None:
        self._overlay.linking.caller(asked.session)
        self.tell(request)

"""What clients ask of the channels of a node: to create, find, list and delete them."""

from __future__ import annotations

from base64 import b32encode
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from tidings.channels.calls import ChannelCalls
from tidings.channels.description import (
    CHANNELS_MAX,
    TYPES_MAX,
    ChannelDescription,
    ChannelPlace,
    ChannelQuery,
    FoundChannels,
    id_of,
    newest,
)
from tidings.channels.logged import LoggedChannels
from tidings.channels.measured import info_of, status_of
from tidings.channels.ordering import Ordering
from tidings.channels.protocols import ChannelProtocols
from tidings.channels.requests import (
    ArchiveChannel,
    ChannelOperations,
    CreateChannel,
    KnownChannel,
    NamedChannel,
)
from tidings.channels.trees import ChannelTrees
from tidings.errors import ChannelAmbiguous, ChannelExists, ChannelNotFound, NotAllowed, Refused
from tidings.overlay.service import Overlay
from tidings.protocol.arguments import NAME_LENGTH_MAX, check_readable
from tidings.protocol.broker import Broker
from tidings.protocol.service import IncomingRequest
from tidings.protocol.session import Session
from tidings.replies import Deferred, resolved

ID_SIZE = 15
"""Random bytes in the id of a channel, and in a reference: none can be guessed."""


class ChannelRequests:
    """Requests of clients; `entropy` returns random bytes, `end` ends a channel here and at the others."""

    def __init__(
        self,
        broker: Broker,
        overlay: Overlay,
        calls: ChannelCalls,
        trees: ChannelTrees,
        ordering: Ordering,
        logged: LoggedChannels,
        protocols: ChannelProtocols,
        entropy: Callable[[int], bytes],
        end: Callable[[str], None],
    ) -> None:
        self._broker = broker
        self._overlay = overlay
        self._calls = calls
        self._trees = trees
        self._ordering = ordering
        self._logged = logged
        self._protocols = protocols
        self._entropy = entropy
        self._end = end
        self.operations: ChannelOperations = {
            "channel.create": (CreateChannel, self._create),
            "channel.find": (ChannelQuery, self._find),
            "channel.list": (ChannelQuery, self._list),
            "channel.show": (KnownChannel, self._show),
            "channel.delete": (KnownChannel, self._delete),
            "channel.renew": (NamedChannel, self._renew),
            "channel.archive": (ArchiveChannel, self._archive),
        }

    def _create(self, asked: IncomingRequest, request: CreateChannel) -> Deferred[Any]:
        asked.session.principal.check_manage()
        name = request.name
        if not 0 < len(name) <= NAME_LENGTH_MAX or "@" in name:
            raise Refused("protocol", f"a channel's name has 1 to {NAME_LENGTH_MAX} characters and no @")
        check_readable(name, "the name of a channel")
        if len(request.types) > TYPES_MAX:
            raise Refused("limit", f"a channel has at most {TYPES_MAX} types")
        if len(self._trees) >= CHANNELS_MAX:
            raise Refused("limit", f"a node takes part in at most {CHANNELS_MAX} channels")
        if request.expect is not None:
            request = replace(request, protocol=self._protocols.choose(request.expect), expect=None)
        if request.private:
            return resolved(self._begin(request))

        def found(channels: FoundChannels) -> Any:
            if channels.places:
                raise ChannelExists(name, f"it exists at node {channels.places[0].channel.node!r}")
            return self._begin(request)

        return self._calls.find(ChannelQuery(name)).map(found)

    def _begin(self, request: CreateChannel) -> Any:
        reference = self._token() if request.private else ""
        about = request.delivery, request.types, reference, request.order
        channel = ChannelDescription(
            id_of(request.protocol, self._token()), request.name, self._broker.name, *about
        )
        self._trees.create(channel)
        self._ordering.create(channel.id, channel.order)
        return msgspec.to_builtins(channel)

    def _token(self) -> str:
        return b32encode(self._entropy(ID_SIZE)).decode().lower()

    def _find(self, asked: IncomingRequest, query: ChannelQuery) -> Deferred[Any]:
        """Return the one channel of a name, or of a reference."""

        def one(found: FoundChannels) -> Any:
            channels = {
                place.channel.id: place.channel
                for place in found.places
                if self._knows(asked.session, place.channel, query.reference)
            }
            name = query.name or query.reference or query.id
            if not channels:
                names = sorted(map(self.name_of, found.missing))
                missing = f"; not reached: {', '.join(names)}" if names else ""
                raise ChannelNotFound(name, f"there is no such channel{missing}")
            if len(channels) > 1:
                nodes = ", ".join(sorted(f"{one.name}@{one.node}" for one in channels.values()))
                raise ChannelAmbiguous(name, f"several channels have this name: {nodes}")
            (channel,) = channels.values()
            return msgspec.to_builtins(channel)

        return self._search(query).map(one)

    def _search(self, query: ChannelQuery) -> Deferred[FoundChannels]:
        return self._calls.find_referred(query.reference) if query.reference else self._calls.find(query)

    def _knows(self, session: Session, channel: ChannelDescription, reference: str) -> bool:
        """Whether a client may know of a channel: as a member, or by its reference if it is private."""
        return channel.admits(reference) or channel.id in session.channels

    def _list(self, asked: IncomingRequest, query: ChannelQuery) -> Deferred[Any]:
        """Return all channels that a search finds, with the nodes that take part and their members."""

        def listed(found: FoundChannels) -> list[Any]:
            places: defaultdict[str, list[ChannelPlace]] = defaultdict(list)
            for place in found.places:
                if self._knows(asked.session, place.channel, query.reference):
                    places[place.channel.id].append(place)
            channels = [info_of(those, self.name_of) for those in places.values()]
            return [msgspec.to_builtins(one) for one in sorted(channels, key=lambda one: (one.name, one.id))]

        return self._search(query).map(listed)

    def _check_known(
        self, session: Session, request: KnownChannel, channel: ChannelDescription | None
    ) -> None:
        """Raise ChannelNotFound if there is no such channel, or none that a client may know of."""
        if channel is None or not self._knows(session, channel, request.reference):
            raise ChannelNotFound(request.channel, "there is no such channel")

    def _show(self, asked: IncomingRequest, request: KnownChannel) -> Deferred[Any]:
        """Return what all nodes that take part have measured of a channel."""

        def measured(found: FoundChannels) -> Any:
            self._check_known(asked.session, request, newest(found.places))
            tree = self._overlay.topology.tree.edges
            told = status_of(found.places, tree, found.missing, self.name_of, found.nodes)
            return msgspec.to_builtins(told)

        return self._calls.find(ChannelQuery(id=request.channel, measured=True)).map(measured)

    def name_of(self, node: str) -> str:
        """Return the name of a node, its id if it has none."""
        if node == self._broker.node:
            return self._broker.name
        return self._overlay.topology.name_of(node) or node

    def _delete(self, asked: IncomingRequest, request: KnownChannel) -> Deferred[None]:
        """Delete a channel in which this node takes part, or another."""
        asked.session.principal.check_manage()
        if (part := self._trees.get(request.channel)) is not None:
            self._check_known(asked.session, request, part.channel)
            self._end(request.channel)
            return resolved(None)

        def found(channels: FoundChannels) -> None:
            self._check_known(asked.session, request, newest(channels.places))
            self._calls.delete(request.channel, channels.places[0].node)

        return self._calls.find(ChannelQuery(id=request.channel)).map(found)

    def _renew(self, asked: IncomingRequest, request: NamedChannel) -> str:
        """Give a private channel another reference, and return it: nobody joins by the former one."""
        asked.session.principal.check_manage()
        channel = self._joined(asked.session, request.channel, "renew its reference")
        if not channel.is_private:
            raise Refused("protocol", f"channel {channel.name!r} is not private: it has no reference")
        renewed = replace(channel, reference=self._token(), renewals=channel.renewals + 1)
        self._trees.renew(renewed)
        return renewed.reference

    def _archive(self, asked: IncomingRequest, request: ArchiveChannel) -> None:
        """Keep the events of a channel of which the client is a member for those that come later, or not."""
        asked.session.principal.require("keep", "archiving a channel")
        channel = self._joined(asked.session, request.channel, "have it archived")
        if not request.kept:
            self._logged.end_archive(request.channel)
        elif channel.delivery == "transient":
            raise Refused("delivery", f"channel {channel.name!r} is transient: nothing of it is stored")
        else:
            self._logged.archive(channel)

    def _joined(self, session: Session, channel: str, what: str) -> ChannelDescription:
        """Return a channel of which a client is a member; NotAllowed, which says what others may not do."""
        part = self._trees.get(channel)
        if part is None or channel not in session.channels:
            raise NotAllowed(f"only a member of a channel may {what}")
        return part.channel

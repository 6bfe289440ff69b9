"""Stored events of a channel, read again: at this node for clients and neighbours, and at others behind it.

A client asks its node, which asks hop by hop along the network's tree; each node on the way narrows the
request to what its caller may have. A client may read as a member, or if it may become one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, structs

from tidings.channels.calls import ChannelCalls
from tidings.channels.description import ChannelDescription, ChannelQuery, FoundChannels, newest
from tidings.channels.history import PIECE_SIZE_MAX, HistoryRange, KeptHistory
from tidings.channels.logged import LoggedChannels
from tidings.channels.parts import HistoryPage
from tidings.channels.requests import ChannelOperations
from tidings.channels.trees import ChannelTrees
from tidings.errors import ChannelNotFound, Disconnected, NotAllowed, Refused
from tidings.filters import Filter
from tidings.ids import NUMBER_MAX
from tidings.overlay.service import Overlay
from tidings.protocol.arguments import NAME_LENGTH_MAX
from tidings.protocol.broker import Broker
from tidings.protocol.service import IncomingRequest
from tidings.protocol.session import Session
from tidings.replies import Deferred, failed, resolved

READS_MAX = 8
"""Readings of stored events that one client, or one neighbour, may have under way."""
HOPS_MAX = 100
"""Links over which a request to read goes."""
ADMITTED_S = 30.0
"""How long a client that may read a channel need not be looked up again."""
ADMITTED_MAX = 1_000
"""Clients and channels of which that is known."""

Text = Annotated[str, Meta(max_length=NAME_LENGTH_MAX)]


class FindPlaces(Struct, frozen=True):
    """The arguments of `channel.places`: a channel by its id, or a private one by its reference."""

    channel: Text


class ReadPlace(Struct, frozen=True):
    """The arguments of `channel.read` and `link.channel.read`; `to` is the node that has the events.

    `channel` is a token in the first and an id in the second. With `since_us` it begins at a time.
    """

    channel: Text
    to: Text
    start: Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
    end: Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
    where: str = ""
    without: Annotated[tuple[Text, ...], Meta(max_length=10_000)] = ()
    size_max: Annotated[int, Meta(ge=1, le=PIECE_SIZE_MAX)] = PIECE_SIZE_MAX
    since_us: int | None = None
    hops: int = 0


class ChannelReading:
    """The stored events of channels, as clients and neighbours ask for them."""

    def __init__(
        self,
        broker: Broker,
        overlay: Overlay,
        calls: ChannelCalls,
        trees: ChannelTrees,
        logged: LoggedChannels,
        history: KeptHistory,
        name_of: Callable[[str], str],
    ) -> None:
        self._broker = broker
        self._overlay = overlay
        self._calls = calls
        self._trees = trees
        self._logged = logged
        self._history = history
        self._name_of = name_of
        self._reads: dict[Session, int] = {}
        self._admitted: dict[tuple[Session, str], tuple[str, float]] = {}
        self.operations: ChannelOperations = {
            "channel.places": (FindPlaces, self._find_places),
            "channel.read": (ReadPlace, self._read),
            "link.channel.read": (ReadPlace, self._read_for),
        }

    # Who may read

    def admit(self, session: Session, token: str) -> Deferred[str]:
        """Return the id of the channel whose stored events a client may read, by its id or reference."""
        if token in session.channels:
            return resolved(token)
        known = self._admitted.get((session, token))
        if known is not None and self._broker.now < known[1] and self._is_token(known[0], token):
            return resolved(known[0])
        session.principal.grant("subscribe")

        def admit(found: FoundChannels) -> str:
            channel = newest(found.places)
            if channel is None:
                raise ChannelNotFound(token, "there is no such channel")
            if token != channel.token:
                raise NotAllowed("only members read what is stored of a private channel, or by its reference")
            return self._note_admitted(session, token, channel)

        def by_reference(found: FoundChannels) -> Deferred[FoundChannels]:
            return resolved(found) if found.places else self._calls.find_referred(token)

        return self._calls.find(ChannelQuery(id=token)).chain(by_reference).map(admit)

    def _is_token(self, channel: str, token: str) -> bool:
        """Whether a token is still that of a channel, as far as is known here."""
        part = self._trees.get(channel)
        return part is None or part.channel.token == token

    def _note_admitted(self, session: Session, token: str, channel: ChannelDescription) -> str:
        while len(self._admitted) >= ADMITTED_MAX:
            del self._admitted[next(iter(self._admitted))]
        self._admitted[session, token] = channel.id, self._broker.now + ADMITTED_S
        return channel.id

    def parted(self, session: Session) -> None:
        """Forget a session that has ended."""
        self._reads.pop(session, None)
        for key in [one for one in self._admitted if one[0] is session]:
            del self._admitted[key]

    def forget(self, channel: str) -> None:
        """A channel was deleted: nobody may read it any more."""
        for key in [key for key, (known, _) in self._admitted.items() if known == channel]:
            del self._admitted[key]

    # Where events are

    def _find_places(self, asked: IncomingRequest, wanted: FindPlaces) -> Deferred[Any]:
        """Return the nodes that have stored events of a channel, and those that could not be asked."""

        def find(channel: str) -> Deferred[Any]:
            return self._calls.find(ChannelQuery(id=channel, logs=True)).map(self._named)

        return self.admit(asked.session, wanted.channel).chain(find)

    def _named(self, found: FoundChannels) -> dict[str, Any]:
        logs = [msgspec.to_builtins(one) for one in found.logs]
        return {"logs": logs, "missing": sorted(map(self._name_of, found.missing))}

    # Reading

    def _read(self, asked: IncomingRequest, wanted: ReadPlace) -> Deferred[Any]:
        """Read for a client."""
        where = str(asked.session.narrow_stored(Filter(wanted.where)))

        def read(channel: str) -> Deferred[Any]:
            return self._pass_on(asked.session, structs.replace(wanted, channel=channel, where=where, hops=0))

        return self.admit(asked.session, wanted.channel).chain(read)

    def _read_for(self, asked: IncomingRequest, wanted: ReadPlace) -> Deferred[Any]:
        """Read for a neighbour, as far as that may have it."""
        self._overlay.linking.caller(asked.session)
        where = str(asked.session.narrow("subscribe", Filter(wanted.where)))
        return self._pass_on(asked.session, structs.replace(wanted, where=where))

    def _pass_on(self, session: Session, wanted: ReadPlace) -> Deferred[Any]:
        under_way = self._reads.get(session, 0)
        if under_way >= READS_MAX:
            raise Refused("limit", f"READS_MAX = {READS_MAX} readings of channels are under way already")
        self._reads[session] = under_way + 1
        reply = self._read_here(wanted) if wanted.to == self._broker.node else self._ask(wanted)
        reply.then(partial(self._ended, session), partial(self._ended, session))
        return reply

    def _ended(self, session: Session, _outcome: object) -> None:
        if session in self._reads:
            self._reads[session] -= 1

    def _ask(self, wanted: ReadPlace) -> Deferred[Any]:
        step = self._overlay.topology.way(wanted.to)
        if step is None or wanted.hops >= HOPS_MAX:
            return failed(Disconnected(f"no way leads to node {self._name_of(wanted.to)!r}"))
        passed = structs.replace(wanted, hops=wanted.hops + 1)
        return self._calls.ask(step, "link.channel.read", structs.asdict(passed)).map(self._checked)

    def _checked(self, answer: Any) -> Any:
        """Return an answer if it is one: it goes on to a client or to another node."""
        try:
            msgspec.convert(answer, HistoryPage)
        except msgspec.ValidationError:
            raise Refused("protocol", "what another node has answered is no part of a channel") from None
        return answer

    def _read_here(self, wanted: ReadPlace) -> Deferred[Any]:
        end = min(wanted.end, self._broker.position_durable + 1)
        if not self._logged.places(wanted.channel):
            return failed(Refused("not-found", "this node has stored nothing of the channel"))
        about = wanted.where, wanted.without, wanted.size_max
        history, wall = self._history, self._broker.wall

        def run() -> HistoryPage:
            start = wanted.start
            if wanted.since_us is not None:
                start = max(start, history.position_at(wanted.since_us))
            return history.read(HistoryRange(wanted.channel, start, end, *about), wall)

        return self._broker.offload(run).map(msgspec.to_builtins)

"""What is advertised at other nodes: lists that are read there, and word of their changes.

A list is read as last values are (`reading.py`). While clients wait for a change, their node asks each
neighbour to answer when a list at it, or behind it, has another *version*; the neighbour in turn asks those
beyond. So notice of a change comes from node to node, and none is sent where nobody waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, structs

from tidings.errors import FilterError, Refused
from tidings.filters import Filter
from tidings.overlay.moving import Sides
from tidings.overlay.neighbours import Neighbour, NeighbourLink
from tidings.overlay.reading import FILTER_LENGTH_MAX, NodeReading, Place, Text
from tidings.overlay.relaying import at_node
from tidings.protocol.advertised import LISTED_MAX, PAUSE_S, Advertised, Seen
from tidings.protocol.service import IncomingRequest
from tidings.replies import Deferred, failed
from tidings.steps import Steps

CHECKED_AT_ONCE = 16
"""Advertisements that are compared with what a neighbour may publish in one step."""


class ReadOffers(Struct, frozen=True):
    """The arguments of `link.advertisements`: those of the node `to`, behind the one of a number."""

    to: Text
    filter: Annotated[str, Meta(max_length=FILTER_LENGTH_MAX)] = ""
    after: Place = 0
    hops: Place = 0
    sides: Sides | None = None


class ListedOffer(Struct, frozen=True):
    """An advertisement in a list."""

    number: int
    filter: str
    source: str


class OffersPage(Struct, frozen=True):
    """Some advertisements of a node, and the number behind which others follow."""

    version: int
    advertisements: Annotated[list[ListedOffer], Meta(max_length=LISTED_MAX)]
    next: int | None = None


class OfferedElsewhere:
    """Advertisements of other nodes, as this one reads them; see `Elsewhere`."""

    def __init__(self, reading: NodeReading, advertised: Advertised) -> None:
        self._reading = reading
        self._advertised = advertised
        self._changes: dict[str, int] = {}  # by neighbour, of which this node was notified
        self._versions: dict[str, int] = {}  # the last one of each
        self._asked: dict[str, NeighbourLink] = {}  # those that are to answer when they have another
        self._waiting: dict[str, tuple[int, Deferred[dict[str, int]]]] = {}  # neighbours that have a version
        self.operations: Mapping[str, tuple[Any, Callable[[IncomingRequest, Any], Any]]] = {
            "link.advertisements": (ReadOffers, self._list_for),
            "link.advertisements.wait": (Seen, self._wait_for),
        }

    # Lists

    def page_of(self, node: str, filter: Filter, after: int) -> Deferred[Any]:
        """Return a page of a node's advertisements; the filter is narrowed to what the client may have."""
        text = str(filter)
        if len(text) > FILTER_LENGTH_MAX:
            problem = f"the filter has more than FILTER_LENGTH_MAX = {FILTER_LENGTH_MAX} characters"
            return failed(Refused("limit", f"{problem}, which other nodes are not asked about"))
        return self._pass_on(ReadOffers(node, text, after)).map(msgspec.to_builtins)

    def _list_for(self, asked: IncomingRequest, wanted: ReadOffers) -> Deferred[Any]:
        session = asked.session
        filter = self._reading.admit(session, wanted.sides, wanted.filter)
        if self._reading.is_here(wanted.to):
            reply = self._reading.work(self._own_page(self._advertised.page(session, filter, wanted.after)))
        else:
            reply = self._pass_on(structs.replace(wanted, filter=str(filter)))
        return self._reading.count(session, reply).map(msgspec.to_builtins)

    def _own_page(self, reading: Steps[dict[str, Any]]) -> Steps[OffersPage]:
        page = msgspec.convert((yield from reading), OffersPage)
        own = self._reading.own_name
        named = [structs.replace(one, source=at_node(one.source, own)) for one in page.advertisements]
        return structs.replace(page, advertisements=named)

    def _pass_on(self, wanted: ReadOffers) -> Deferred[OffersPage]:
        neighbour = self._reading.way(wanted.to)
        asked = self._reading.ask(wanted.to, "link.advertisements", structs.asdict(wanted))
        return asked.chain(lambda page: self._reading.work(self._checked(neighbour, wanted.to, page)))

    def _checked(self, neighbour: Neighbour | None, node: str, answer: Any) -> Steps[OffersPage]:
        """Return what a neighbour may say of an answer that is a page of a node."""
        try:
            page = msgspec.convert(answer, OffersPage)
        except msgspec.ValidationError as error:
            raise Refused("protocol", f"node {node!r} has answered no advertisements: {error}") from None
        session = None if neighbour is None or neighbour.link is None else neighbour.link.session
        granted = None if session is None or session.granted is None else session.granted.filter
        kept = []
        for count, one in enumerate(page.advertisements, 1):
            if not self._reading.is_source_of(node, one.source):
                raise Refused("protocol", f"node {node!r} lists an advertisement of {one.source!r}")
            if granted is None or _overlaps(granted, one.filter):
                kept.append(one)
            if not count % CHECKED_AT_ONCE:
                yield
        return structs.replace(page, advertisements=kept)

    # Changes

    def changed(self, but: str = "") -> int:
        """Return a number that grows when a list of another node changes, but those behind one neighbour."""
        return sum(count for node, count in self._changes.items() if node != but)

    def _wait_for(self, asked: IncomingRequest, seen: Seen) -> Deferred[dict[str, int]]:
        """Answer a neighbour when a list here, or behind others, has another version."""
        node = self._reading.caller(asked.session).node
        if node in self._waiting:
            self._answer(node)
        reply: Deferred[dict[str, int]] = Deferred()
        self._waiting[node] = seen.version, reply
        return reply

    def _version(self, node: str) -> int:
        return self._advertised.own_version + self.changed(but=node)

    def _answer(self, node: str) -> None:
        _, reply = self._waiting.pop(node)
        reply.resolve({"version": self._version(node)})

    def work(self, neighbours: list[Neighbour]) -> None:
        """Notify those that wait, and ask others for them."""
        if not (self._waiting or self._advertised.is_awaited):
            return
        up = {one.node: one for one in neighbours if one.is_up}
        self._waiting = {node: one for node, one in self._waiting.items() if node in up}
        for node, (seen, _) in list(self._waiting.items()):
            if self._version(node) != seen:
                self._answer(node)
        for node, neighbour in up.items():
            is_awaited = self._advertised.is_awaited or self._waiting.keys() - {node}
            if is_awaited and neighbour.link is not None and self._asked.get(node) is not neighbour.link:
                self._ask(node, neighbour.link)

    def _ask(self, node: str, link: NeighbourLink) -> None:
        """Have a neighbour answer when it has another version than at its last answer on this link."""
        self._asked[node] = link
        asked = link.send("link.advertisements.wait", {"version": self._versions.get(node, -1)})
        asked.then(partial(self._told, node, link))

    def _told(self, node: str, link: NeighbourLink, answer: Any) -> None:
        version = answer.get("version") if isinstance(answer, dict) else None
        if isinstance(version, int):
            self._changes[node] = self._changes.get(node, 0) + 1
            self._versions[node] = version
            self._reading.later(PAUSE_S, lambda: self._ask_again(node, link))

    def _ask_again(self, node: str, link: NeighbourLink) -> None:
        """Let a neighbour be asked again, if somebody waits still."""
        if self._asked.get(node) is link:
            del self._asked[node]

    def link_changed(self, node: str) -> None:
        """A link has come up or gone down, and the lists behind it with it."""
        self._changes[node] = self._changes.get(node, 0) + 1


def _overlaps(granted: Filter, text: str) -> bool:
    try:
        return granted.overlaps(Filter(text))
    except FilterError as error:
        raise Refused("protocol", f"an advertisement is no filter: {error}") from None

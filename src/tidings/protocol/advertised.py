"""Advertisements as consumers may see them: a list, and a notification of each change.

A client gets the advertisements that overlap its grant to subscribe, each narrowed to that: so no client
learns what is offered to others. A watching client waits for a change, and then asks for the list again, at
its own pace; many changes in a row are one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from tidings.errors import Refused
from tidings.filters import Filter
from tidings.interest import Advertisement
from tidings.interest.demand import COMPARED_MAX, Weight, comparing, weigh
from tidings.protocol.service import IncomingRequest, Service
from tidings.protocol.session import Session
from tidings.replies import Deferred
from tidings.steps import Steps

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker

FILTER_LENGTH_MAX = 8_192
"""Characters of a filter by which advertisements are sought."""
LISTED_MAX = 1_000
"""Advertisements in one answer; the rest is asked for behind the last of these."""
LISTED_SIZE_MAX = 256 << 10
"""Characters of filters in one answer; the one that passes it is the last."""
LOOKED_AT_ONCE = 16
"""Advertisements that are compared in one step."""
WAITING_MAX = 100
"""Requests of one session that wait for a change; of more the oldest is answered."""
PAUSE_S = 0.1
"""The least time between two notifications of changes."""


class AdvertisementSearch(Struct, frozen=True):
    """Which advertisements are meant: those that overlap a filter, behind the one of a number.

    `to` is the id of another node, if those of that one are meant.
    """

    filter: Annotated[str, Meta(max_length=FILTER_LENGTH_MAX)] = ""
    after: int = 0
    to: str = ""


class Seen(Struct, frozen=True):
    """A list that the client has, by its version."""

    version: int


class Advertised(Service):
    """A service of the broker that lists what is advertised, and answers those who wait for a change."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._base = broker.boot << 32  # so that no version is that of an earlier start
        self._waiting: dict[Session, list[Deferred[dict[str, int]]]] = {}
        self._waits_since = 0  # the version that those who wait have, or an earlier one
        self._pause_until = 0.0
        self.operations = {
            "advertisements.list": (AdvertisementSearch, self._list),
            "advertisements.wait": (Seen, self._wait),
        }

    @property
    def own_version(self) -> int:
        """Changes whenever the list of this node does."""
        return self._base + self._broker.exchange.offers_changed

    @property
    def version(self) -> int:
        """Changes whenever a list of the network does, as far as somebody waits for that."""
        elsewhere = self._broker.elsewhere
        return self.own_version + (0 if elsewhere is None else elsewhere.offers_changed)

    @property
    def is_awaited(self) -> bool:
        """Whether clients wait for a change."""
        return bool(self._waiting)

    def _list(self, asked: IncomingRequest, sought: AdvertisementSearch) -> Any:
        wanted, elsewhere = asked.session.narrow("subscribe", Filter(sought.filter)), self._broker.elsewhere
        if sought.to not in ("", self._broker.node):
            if elsewhere is None:
                raise Refused("no-way", f"no way leads to node {sought.to!r}")
            return elsewhere.advertisements(sought.to, wanted, sought.after)
        return self._list_own(asked.session, wanted, sought.after)

    def _list_own(self, session: Session, wanted: Filter, after: int) -> Steps[dict[str, Any]]:
        """Return a page, and with the last one the nodes that have lists of their own."""
        page = yield from self.page(session, wanted, after)
        others = {} if self._broker.elsewhere is None else self._broker.elsewhere.others
        return {**page, "others": others} if others and page["next"] is None else page

    def page(self, session: Session, wanted: Filter, after: int) -> Steps[dict[str, Any]]:
        """Return advertisements of this node that overlap a filter, as a client or neighbour may see them."""
        version = self.version
        weight, size = weigh(wanted), 0
        listed: list[dict[str, Any]] = []
        for count, (one, theirs) in enumerate(self._broker.exchange.offers(wanted), 1):
            text = _shown(session, one, theirs, wanted, weight) if one.number > after else None
            if text is not None:
                listed.append({"number": one.number, "filter": text, "source": one.source})
                size += len(text)
            if len(listed) >= LISTED_MAX or size > LISTED_SIZE_MAX:
                return {"version": version, "advertisements": listed, "next": one.number}
            if not count % LOOKED_AT_ONCE:
                yield
        return {"version": version, "advertisements": listed, "next": None}

    def _wait(self, asked: IncomingRequest, seen: Seen) -> Any:
        if seen.version != self.version:
            return {"version": self.version}
        if not self._waiting:
            self._waits_since = seen.version
        waiting = self._waiting.setdefault(asked.session, [])
        changed: Deferred[dict[str, int]] = Deferred()
        waiting.append(changed)
        if len(waiting) > WAITING_MAX:
            waiting.pop(0).resolve({"version": self.version})
        return changed

    def _answer_all(self, waiting: list[Deferred[dict[str, int]]]) -> Steps[None]:
        """Answer one session, in its own time: very many may wait for the same change."""
        for changed in waiting:
            changed.resolve({"version": self.version})
            yield

    # What the broker calls

    def parted(self, session: Session, is_clean: bool) -> None:  # noqa: ARG002
        """A session has ended, and waits for nothing."""
        self._waiting.pop(session, None)

    def finish_tick(self) -> None:
        """Notify waiting clients of a change, unless they were notified of one just now."""
        if not self._waiting or self._waits_since == self.version:
            return
        if self._broker.now < self._pause_until:
            self._broker.timers.by(self._pause_until, self._go_on)
            return
        waiting, self._waiting = self._waiting, {}
        self._pause_until = self._broker.now + PAUSE_S
        for session, some in waiting.items():
            session.do(self._answer_all(some))

    def _go_on(self, _now: float) -> None:
        self.finish_tick()


def _shown(
    session: Session, advertisement: Advertisement, theirs: Weight, wanted: Filter, weight: Weight
) -> str | None:
    """Return an advertisement as a client may see it, None if it may not, or that is too costly to decide."""
    is_free = session.principal.rules is None
    if comparing(theirs, weight) > COMPARED_MAX:
        return str(advertisement.asked) if is_free else None
    if not advertisement.filter.overlaps(wanted):
        return None
    granted = None if is_free else session.principal.grant("subscribe")
    if granted is None or granted.covers(advertisement.asked):
        return str(advertisement.asked)
    shared = advertisement.asked & granted
    return str(shared.simplify()) if shared.normal else None

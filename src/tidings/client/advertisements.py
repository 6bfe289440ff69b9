"""Advertisements: the demand for a client's own, and the list of others'.

    async with bus.advertise("type = 'air.pm10'") as interest:
        await interest.wait_wanted()
    for offer in await bus.advertisements("type = 'air.pm10'"):
        print(offer.source, offer.filter)
    async for offers in bus.watch_advertisements():
        ...

A list of others' advertisements has those that overlap a filter and that the client may subscribe to, of all
nodes of the network.
"""

from __future__ import annotations

from asyncio import gather
from contextlib import suppress
from math import inf
from typing import Self

import msgspec
from msgspec import Struct, field

from tidings.client.sessions import Page, fetch_pages, read_as
from tidings.errors import Disconnected, NoAnswer, NotAllowed, Refused, UserError
from tidings.filters import Filter
from tidings.protocol.arguments import InForce
from tidings.protocol.subscriber import ClientAdvertisement
from tidings.transport.link import Link, Wait

PLACE = "$.advertisements"
ASKED_AT_ONCE = 8
"""Nodes that are asked for their advertisements at a time."""
NOT_ASKED = Refused, NotAllowed, Disconnected, NoAnswer
"""Errors of a node that is missing in a list then."""


class Interest:
    """An advertisement inside an `async with` block; made by `Bus.advertise`.

    As an async iterator it gives the filters of the subscriptions that want it, now and after each change; of
    several changes in a row only the last is seen.
    """

    def __init__(self, link: Link, filter: str, timeout_s: float | None) -> None:
        self._texts: tuple[str, ...] = ()
        self._link = link
        self._filter = filter
        self._timeout_s = timeout_s
        self._offer: ClientAdvertisement | None = None
        self._is_new = True  # the iterator has not given the filters yet
        self._reason: str | None = None  # why it has ended
        self._waiting: list[Wait] = []

    @property
    def wanted(self) -> bool:
        """Whether a subscription wants it now."""
        return bool(self._texts)

    @property
    def filters(self) -> tuple[Filter, ...]:
        """The filters of the subscriptions that want it now; MissingExtra if one needs an extra."""
        return tuple(Filter(text) for text in self._texts)

    async def in_force(self, *, timeout_s: float | None = None) -> InForce:
        """Wait until all nodes of the network know of this advertisement, and have announced their demand.

        A node that can't be reached is named as `missing`. At a node without links this returns at once.
        """
        reply = await self._link.call("in_force", {"of_offers": True}, timeout_s, "again")
        return msgspec.convert(reply, InForce)

    async def __aenter__(self) -> Self:
        if self._offer is not None:
            raise UserError("an advertisement can be entered once; make another")
        self._link.flush_soon()
        offer = self._offer = self._link.core.advertise(self._filter, self)
        try:
            begun = self._link.outcome(offer.begun)
            await self._link.within(begun, self._timeout_s, "advertise", "answered")
        except BaseException:
            self._link.core.withdraw(offer)
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._offer is not None
        withdrawn = self._link.core.withdraw(self._offer)
        self._link.flush_soon()
        if kind is None:
            with suppress(NoAnswer, Disconnected):  # the node then ends it with the connection
                await self._link.within(self._link.outcome(withdrawn), None, "unadvertise", "answered")

    async def wait_wanted(self) -> None:
        """Wait until a subscription wants it."""
        while not self.wanted:
            await self._wait_change()

    async def wait_unwanted(self) -> None:
        """Wait until no subscription wants it."""
        while self.wanted:
            await self._wait_change()

    def __aiter__(self) -> Interest:
        return self

    def _check_entered(self) -> None:
        if self._offer is None:
            raise UserError(
                "an advertisement begins with its block: write `async with bus.advertise(…) as interest:`"
            )

    async def __anext__(self) -> tuple[Filter, ...]:
        self._check_entered()
        while not self._is_new:
            await self._wait_change()
        self._is_new = False
        return self.filters

    async def _wait_change(self) -> None:
        self._link.core.check()
        self._check_entered()
        if self._reason is not None:
            raise Refused("ended", f"the advertisement was ended: {self._reason}")
        wait = self._link.future()
        self._waiting.append(wait)
        await wait

    # What the core calls

    def changed(self, filters: list[str]) -> None:
        """Keep the new filters and wake the waiting tasks."""
        if tuple(filters) != self._texts:
            self._texts, self._is_new = tuple(filters), True
            self._notify()

    def ended(self, reason: str) -> None:
        """Keep the reason and wake the waiting tasks."""
        self._reason = reason
        self._notify()

    def _notify(self) -> None:
        waiting, self._waiting = self._waiting, []
        for wait in waiting:
            if not wait.done():
                wait.set_result(None)


# What others advertise


class Offered(Struct, frozen=True):
    """An advertisement as others see it: the text of its filter, and its source."""

    text: str
    source: str = ""

    @property
    def filter(self) -> Filter:
        """The events that may be published; MissingExtra if the filter needs an extra."""
        return Filter(self.text)


class _Listed(Struct, frozen=True):
    number: int
    filter: str
    source: str = ""


class _OffersPage(Page, frozen=True):
    version: int
    advertisements: list[_Listed]
    others: dict[str, str] = field(default_factory=dict)  # nodes that have lists of their own: names by ids


class _Changed(Struct, frozen=True):
    version: int


class OfferList(list[Offered]):
    """Advertisements; `missing` are the nodes that could not be asked for theirs."""

    missing: tuple[str, ...] = ()


async def fetch_offers(link: Link, where: str, timeout_s: float | None) -> tuple[int, OfferList]:
    """Return the version of the list and the advertisements of all nodes."""
    pages = await _fetch(link, {"filter": where}, timeout_s)
    others = sorted(pages[-1].others)
    found, missing = OfferList(_offers_in(pages)), []
    for start in range(0, len(others), ASKED_AT_ONCE):
        nodes = others[start : start + ASKED_AT_ONCE]
        asked = [_fetch(link, {"filter": where, "to": node}, timeout_s) for node in nodes]
        for node, answer in zip(nodes, await gather(*asked, return_exceptions=True), strict=True):
            if isinstance(answer, NOT_ASKED) and link.core.is_up:
                missing.append(pages[-1].others[node])
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found += _offers_in(answer)
    found.missing = tuple(sorted(missing))
    return pages[0].version, found


async def _fetch(link: Link, asked: dict[str, str], timeout_s: float | None) -> list[_OffersPage]:
    return await fetch_pages(link, "advertisements.list", asked, timeout_s, _OffersPage, PLACE)


def _offers_in(pages: list[_OffersPage]) -> list[Offered]:
    return [Offered(one.filter, one.source) for page in pages for one in page.advertisements]


class Offers:
    """The current advertisements, and the new list after each change; made by `Bus.watch_advertisements`.

    Of several changes in a row only the last is seen.
    """

    def __init__(self, link: Link, where: str) -> None:
        self._link = link
        self._where = where
        self._version: int | None = None
        self._offers: OfferList | None = None

    def __aiter__(self) -> Offers:
        return self

    async def __anext__(self) -> OfferList:
        while True:
            if self._version is not None:
                asked = {"version": self._version}
                read_as(await self._link.call("advertisements.wait", asked, inf, "again"), _Changed, PLACE)
            self._version, offers = await fetch_offers(self._link, self._where, None)
            if self._offers is None or (offers, offers.missing) != (self._offers, self._offers.missing):
                self._offers = offers
                return offers

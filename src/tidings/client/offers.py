"""What others advertise, for those who look for something to subscribe to.

    for offer in await bus.advertisements("type = 'air.pm10'"):
        print(offer.source, offer.filter)
    async for offers in bus.watch_advertisements():
        ...

A list has what overlaps a filter, as far as the client may subscribe to it.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from tidings.errors import CodecError
from tidings.filters import Filter
from tidings.transport.link import Link

PAGES_MAX = 1_000
"""Answers that one list is put together from."""


class Offered(Struct, frozen=True):
    """An advertisement as others see it: the text of its filter, and who made it."""

    text: str
    source: str = ""

    @property
    def filter(self) -> Filter:
        """What may be published; MissingExtra if the filter needs what is not here."""
        return Filter(self.text)


class _Listed(Struct, frozen=True):
    number: int
    filter: str
    source: str = ""


class _Page(Struct, frozen=True):
    version: int
    advertisements: list[_Listed]
    next: int | None = None


class _Changed(Struct, frozen=True):
    version: int


async def fetch_offers(link: Link, where: str, timeout_s: float | None) -> tuple[int, list[Offered]]:
    """The version of the list, and what is on it."""
    asked: dict[str, Any] = {"filter": where}
    first: int | None = None
    offers: list[Offered] = []
    for _ in range(PAGES_MAX):
        page = _read(await link.call("advertisements.list", asked, timeout_s, "again"), _Page)
        first = page.version if first is None else first
        offers += [Offered(one.filter, one.source) for one in page.advertisements]
        if page.next is None:
            return first, offers
        asked["after"] = page.next
    raise CodecError("$.advertisements", f"has more than {PAGES_MAX} pages")


def _read(result: Any, kind: type[Any]) -> Any:
    try:
        return msgspec.convert(result, kind)
    except msgspec.ValidationError as error:
        raise CodecError("$.advertisements", str(error)) from None


class Offers:
    """The advertisements as they are, and again after each change; made by `Bus.watch_advertisements`.

    Of several changes in a row only the last is seen.
    """

    def __init__(self, link: Link, where: str) -> None:
        self._link = link
        self._where = where
        self._version: int | None = None
        self._offers: list[Offered] | None = None

    def __aiter__(self) -> Offers:
        return self

    async def __anext__(self) -> list[Offered]:
        while True:
            if self._version is not None:
                asked = {"version": self._version}
                _read(await self._link.call("advertisements.wait", asked, None, "again"), _Changed)
            self._version, offers = await fetch_offers(self._link, self._where, None)
            if offers != self._offers:
                self._offers = offers
                return list(offers)

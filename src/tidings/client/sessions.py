"""Sessions and invitations of a node, as those who manage it see them; and lists that come in pages."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from tidings.errors import CodecError
from tidings.transport.link import Link

PAGES_MAX = 1_000
"""Answers that one list is put together from."""

INVITATION_S = 3_600.0
"""Seconds until an invitation expires, unless another time is given."""

T = TypeVar("T")
P = TypeVar("P", bound="Page")


class SessionInfo(Struct, frozen=True):
    """A session: one connection of a client.

    `session` is its name at the node, `client` the name that the client gave itself, `address` that of its
    machine, empty for a Unix socket. `waiting_bytes` wait until the client reads them.
    """

    session: str
    client: str = ""
    user: str = ""
    address: str = ""
    for_s: float = 0.0
    subscriptions: int = 0
    waiting_bytes: int = 0


class MadeInvitation(Struct, frozen=True):
    """A new invitation: the line for the new node, which holds a secret, and until when it is good.

    `until` is in seconds since 1970; `addresses` are those at which the new node will look for this one.
    """

    line: str
    name: str
    until: int
    addresses: list[str] = []

    def __repr__(self) -> str:
        return f"<MadeInvitation of {self.name}>"


class InvitationInfo(Struct, frozen=True):
    """An invitation: the node that is invited, the hosts in its certificate, and the state.

    `state` is `open`, `joining`, `used`, `revoked` or `expired`.
    """

    name: str
    state: str
    until: int
    hosts: list[str] = []


class Page(Struct, frozen=True, kw_only=True):
    """A part of a list; `next` is where the next part begins, None for the last one."""

    next: int | None = None


class DemandInfo(Struct, frozen=True):
    """A filter by which clients of a node demand events, and the number of subscriptions that have it."""

    filter: str
    subscriptions: int


class _Filters(Page, frozen=True):
    filters: list[tuple[str, int]]


class _Sessions(Page, frozen=True):
    sessions: list[SessionInfo]


async def fetch_sessions(link: Link, timeout_s: float | None) -> list[SessionInfo]:
    """Return the sessions of a node."""
    pages = await fetch_pages(link, "session.list", {"after": 0}, timeout_s, _Sessions, "$.sessions")
    return [session for page in pages for session in page.sessions]


async def fetch_demands(link: Link, timeout_s: float | None) -> list[DemandInfo]:
    """Return the filters of the subscriptions of a node."""
    pages = await fetch_pages(link, "subscription.list", {"after": 0}, timeout_s, _Filters, "$.filters")
    counts: dict[str, int] = {}
    for page in pages:
        for text, count in page.filters:
            counts[text] = counts.get(text, 0) + count
    return [DemandInfo(text, count) for text, count in counts.items()]


async def fetch_pages(
    link: Link, operation: str, asked: dict[str, Any], timeout_s: float | None, kind: type[P], place: str
) -> list[P]:
    """Return all pages of a list; CodecError, with the place, if an answer is none or there are too many."""
    pages: list[P] = []
    for _ in range(PAGES_MAX):
        page = read_as(await link.call(operation, asked, timeout_s, "again"), kind, place)
        pages.append(page)
        if page.next is None:
            return pages
        asked = {**asked, "after": page.next}
    raise CodecError(place, f"has more than {PAGES_MAX} pages")


def read_as(result: object, kind: type[T], place: str) -> T:
    """Return an answer as this kind of struct; CodecError, with the place, if it is none."""
    try:
        return msgspec.convert(result, kind)
    except msgspec.ValidationError as error:
        raise CodecError(place, str(error)) from None

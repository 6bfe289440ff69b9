"""The sessions of a node's clients, as those who manage it see them."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from tidings.errors import CodecError
from tidings.transport.link import Link

PAGES_MAX = 1_000
"""Answers that one list is put together from."""


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


class _Page(Struct, frozen=True):
    sessions: list[SessionInfo]
    next: int | None = None


async def fetch_sessions(link: Link, timeout_s: float | None) -> list[SessionInfo]:
    """Return the sessions of a node, page after page."""
    found: list[SessionInfo] = []
    after: int | None = 0
    for _ in range(PAGES_MAX):
        page = _read(await link.call("session.list", {"after": after}, timeout_s, "again"))
        found += page.sessions
        after = page.next
        if after is None:
            return found
    raise CodecError("$.sessions", f"has more than {PAGES_MAX} pages")


def _read(result: object) -> _Page:
    try:
        return msgspec.convert(result, _Page)
    except msgspec.ValidationError as error:
        raise CodecError("$.sessions", str(error)) from None

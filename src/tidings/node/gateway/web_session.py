"""Networks that speak in HTTP requests: between two of them, messages of the gateway wait here.

To the hub a *visit* is a connection like any other. It begins with the first request that registers a network
and is known by its token from then on; it ends when nothing was heard for its lease, or when its messages are
not fetched. A request that registers nothing is a visit of its own, and leaves nothing behind.

Here are the answers to requests, too, and the fields by which pages of listed origins may read them.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from tidings.gateway.hub import Hub
from tidings.gateway.messages import Error, encode
from tidings.gateway.networks import bounded_lease
from tidings.node.http import HttpError, HttpRequest
from tidings.protocol.access import PeerInfo

VISITS_MAX = 10_000
"""Visits that are remembered."""
WAITING_MAX = 1_000
"""Messages that wait for one network to fetch them, before it is given up."""
TOKEN_SIZE = 24
COOKIE = "tidings-network"
TOKEN = "sensing-token"
"""Field by which a network that keeps no cookies identifies itself, in requests and answers."""
SINGLE = {
    "authorization",
    "content-length",
    "cookie",
    "host",
    "origin",
    "transfer-encoding",
    "upgrade",
    TOKEN,
}
"""Fields that a request must not have twice."""

_COMMANDS = (b'{"subscribe"', b'{"unsubscribe"', b'{"redirect"')
_ANSWERS = (b'{"ack"', b'{"error"')


class _Body(Struct, rename="kebab"):
    sensing_id: str = ""
    place: str = ""


_decode = msgspec.json.Decoder(dict[str, _Body]).decode


class Visit:
    """One network, or some that share their requests; it is its own key at the hub."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.ids: set[str] = set()  # networks that it has registered
        self.lease_s = bounded_lease(None)
        self.heard_at = 0.0
        self.is_open = True
        self.turn = asyncio.Lock()  # posts are processed one after the other
        self.polls: Counter[str] = Counter()  # by network; changes when a later request waits for the same
        self.waiting = 0  # requests that wait for messages
        self._lines: list[bytes] = []
        self._changed = asyncio.Event()

    # Called by the hub

    def send(self, line: bytes) -> None:
        """Keep a message of the gateway."""
        self._lines.append(line)
        self._changed.set()

    def end(self) -> None:
        """Note that the gateway has ended it."""
        self.is_open = False
        self._changed.set()

    # Called by requests

    @property
    def is_forsaken(self) -> bool:
        """Whether more messages wait than anybody would fetch."""
        return len(self._lines) > WAITING_MAX

    def answers(self) -> int:
        """Return how many of the waiting messages are answers to a post."""
        return sum(line.startswith(_ANSWERS) for line in self._lines)

    def take(self, sensing_id: str | None = None) -> list[bytes]:
        """Take the waiting messages, of one network or of all; answers to a post in progress are left."""
        prefixes = _COMMANDS if sensing_id is not None and self.turn.locked() else (b"",)
        taken = [line for line in self._lines if line.startswith(prefixes) and _is_of(sensing_id, line)]
        self._lines = [line for line in self._lines if line not in taken]
        return taken

    async def wait(self, is_there: Callable[[], bool], timeout_s: float) -> None:
        """Wait until something is there, the visit is over, or for so long."""
        self.waiting += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    while self.is_open and not is_there():
                        self._changed.clear()
                        await self._changed.wait()
        finally:
            self.waiting -= 1

    def disturb(self) -> None:
        """Wake the waiting requests."""
        self._changed.set()

    def register(self, sensing_id: str, lease_s: float | None) -> None:
        """Note that a network is registered in it."""
        self.ids.add(sensing_id)
        self.lease_s = bounded_lease(lease_s)


class Visits:
    """All visits, by token."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._visits: dict[str, Visit] = {}

    def __len__(self) -> int:
        return len(self._visits)

    def find(self, token: str, now: float) -> Visit:
        """Return the visit of a token; HttpError if there is none any more."""
        visit = self._visits.get(token)
        if visit is None or not visit.is_open:
            raise HttpError(410, "nothing is known of this token any more: register again, without it")
        visit.heard_at = now
        return visit

    def begin(self, caller: PeerInfo, now: float) -> Visit:
        """Begin a new visit, which is forgotten unless it is kept."""
        visit = Visit(secrets.token_urlsafe(TOKEN_SIZE))
        visit.heard_at = now
        self._hub.opened(visit, caller, visit.send, visit.end)
        return visit

    def check_room(self) -> None:
        """Raise HttpError if no more visits can be remembered."""
        if len(self._visits) >= VISITS_MAX:
            raise HttpError(503, "there are too many networks")

    def keep(self, visit: Visit) -> None:
        """Remember a visit."""
        self._visits[visit.token] = visit

    def end(self, visit: Visit) -> None:
        """End the session; no network is expected to come back."""
        self._visits.pop(visit.token, None)
        visit.end()
        self._hub.closed(visit)

    def sweep(self, now: float) -> None:
        """End visits that were silent for too long, or do not fetch their messages."""
        for visit in list(self._visits.values()):
            is_silent = not visit.waiting and visit.heard_at + visit.lease_s <= now
            if not visit.is_open or visit.is_forsaken or is_silent:
                self.end(visit)

    def close(self) -> None:
        """End all visits."""
        for visit in list(self._visits.values()):
            self.end(visit)


def _is_of(sensing_id: str | None, line: bytes) -> bool:
    return sensing_id is None or any(body.sensing_id == sensing_id for body in _decode(line).values())


def refused(lines: Iterable[bytes]) -> set[str]:
    """Return the networks whose registration the gateway has refused."""
    errors = (_decode(line)["error"] for line in lines if line.startswith(b'{"error"'))
    return {error.sensing_id for error in errors if error.place.startswith("$.register")}


def as_array(lines: Iterable[bytes]) -> bytes:
    """Return messages as one array of JSON."""
    return b"[" + b",".join(line.rstrip(b"\n") for line in lines) + b"]"


# Requests and answers


def token_of(request: HttpRequest) -> str | None:
    """Return the token of a visit, if there is one."""
    for part in request.fields.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return request.fields.get(TOKEN)


class WebAnswer(Struct, frozen=True):
    """Answer to a request."""

    status: int
    body: bytes = b""
    fields: dict[str, str] = {}


def allowing(origin: str | None) -> dict[str, str]:
    """Return the fields that let a page of a listed origin read the answer."""
    return {} if origin is None else {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}


def preflight(origin: str) -> dict[str, str]:
    """Return the fields that tell a browser what a page of a listed origin may send."""
    return {
        **allowing(origin),
        "Access-Control-Allow-Methods": "GET, POST",
        "Access-Control-Allow-Headers": "Content-Type, Sensing-Token, Authorization",
        "Access-Control-Max-Age": "600",
    }


def refusal(error: HttpError) -> WebAnswer:
    """Return an error as the protocol has it, in an array like any other answer."""
    fields = {"Retry-After": "1"} if error.status == 503 else {}
    return WebAnswer(error.status, b"[" + encode(Error(str(error))).rstrip() + b"]", fields)

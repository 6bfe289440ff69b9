"""Sensor networks over HTTP and WebSocket: `/sensors` on a port of its own.

    GET /sensors, upgraded         a WebSocket: messages both ways, as over TCP
        POST /sensors                  messages in the body; the answer is an array of the gateway's messages
        GET /sensors/ID?wait=30        messages of the gateway to one network, waited for if there are none

A network that registers by POST gets a token, in a cookie and in the field `Sensing-Token`, and is known by
it: only with that can messages to the network be fetched. Requests may follow each other on one connection. A
request that comes slowly is given up, and the number of requests in progress is limited.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TypeVar

from tidings.gateway.hub import Hub
from tidings.gateway.intake import NetworkReader
from tidings.gateway.message_reader import Said
from tidings.gateway.messages import Error, Register, Sensing
from tidings.gateway.peer import WorkClient
from tidings.node.gateway.web_port import WebPort
from tidings.node.gateway.web_session import (
    COOKIE,
    Visit,
    Visits,
    WebAnswer,
    as_array,
    preflight,
    refused,
    token_of,
)
from tidings.node.http import HttpError, HttpRequest, check_page
from tidings.node.ports import listen_tcp
from tidings.protocol.access import PeerInfo
from tidings.steps import Steps

if TYPE_CHECKING:
    from ssl import SSLContext

Result = TypeVar("Result")

PATH = "/sensors"
ANSWER_S_MAX = 5.0
"""How long the answer to numbered readings waits for their acknowledgement; later ones come with the next."""
WAIT_S_MAX = 60.0
"""Longest wait of a request for messages."""
CONNECTIONS_MAX = 15_000
SWEEP_S = 1.0


class Web:
    """State that all connections share. `origins`: sites whose pages may connect, beside this port's own."""

    def __init__(
        self,
        hub: Hub,
        origins: frozenset[str] = frozenset(),
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        self.hub = hub
        self.visits = Visits(hub)
        self.ports: set[WebPort] = set()
        self.connections_max = connections_max
        self._origins = origins
        self._is_tls = False
        self._clock = asyncio.get_running_loop().time
        self._timer: asyncio.TimerHandle | None = None
        self._server: asyncio.Server | None = None
        self._sweep()

    async def serve(self, host: str, port: int, context: SSLContext | None = None) -> str:
        """Listen there, 0 for a free port, with TLS if there is a context for it; return the address."""
        self._is_tls = context is not None
        self._server, place = await listen_tcp(lambda: WebPort(self), host, port, context, kind="http ")
        await self._server.start_serving()
        return f"{'https' if self._is_tls else 'http'}://{place}{PATH}"

    def close(self) -> None:
        """Accept nothing more, and close all connections."""
        if self._server is not None:
            self._server.close()
        if self._timer is not None:
            self._timer.cancel()
        for port in list(self.ports):
            port.close()
        self.visits.close()

    def _sweep(self) -> None:
        self.visits.sweep(self._clock())
        self._timer = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    # Requests

    def check(self, request: HttpRequest) -> str | None:
        """Refuse what must not be answered, before its body is read; the origin of a page that is listed."""
        origin = check_page(request, self._origins, self._is_tls)
        methods = {PATH: ("GET", "POST")}.get(request.path, ("GET",))
        if request.path != PATH and not request.path.startswith(f"{PATH}/"):
            raise HttpError(404, f"there is only {PATH}")
        if request.method not in methods and not (request.method == "OPTIONS" and origin is not None):
            raise HttpError(405, f"this takes {' and '.join(methods)}")
        return origin

    async def answer(
        self, request: HttpRequest, body: bytes, caller: PeerInfo, origin: str | None, client: WorkClient
    ) -> WebAnswer:
        """Answer a request; HttpError if it can't be served.

        `client` is the connection, in whose turn the body is decoded.
        """
        if request.method == "OPTIONS":
            return WebAnswer(204, b"", preflight(origin or ""))
        if request.method == "POST":
            return await self._post(request, body, caller, client)
        if request.path == PATH:
            raise HttpError(
                426, "this is for WebSocket; messages are posted, or fetched under the sensing-id"
            )
        return await self._fetch(request)

    async def _post(
        self, request: HttpRequest, body: bytes, caller: PeerInfo, client: WorkClient
    ) -> WebAnswer:
        if self.hub.is_full:
            raise HttpError(503, "the node does not take more now: try again in a second")
        registers, numbered, is_clear = await self._wait_done(client, _look_at(body))
        token = token_of(request)
        visit = None if token is None else self.visits.find(token, self._clock())
        if visit is None:
            if registers:
                self.visits.check_room()
            visit = self.visits.begin(caller, self._clock())
        status = 200 if is_clear else 400
        try:
            async with visit.turn:
                if request.bearer is not None and not self.hub.login(visit, request.bearer):
                    status = 401
                else:
                    await self._hear(visit, body, numbered)
                said = visit.take()
            for one in registers:
                if visit.is_open and one.sensing_id not in refused(said):
                    visit.register(one.sensing_id, one.lease_s)
        finally:
            if not visit.ids or not visit.is_open:
                self.visits.end(visit)
        fields = self._introduce(visit) if token is None and visit.is_open else {}
        return WebAnswer(status, as_array(said), fields)

    async def _hear(self, visit: Visit, body: bytes, numbered: int) -> None:
        """Pass a body to the gateway, and wait a while for its answers to numbered readings."""
        expected = visit.answers() + numbered
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.hub.do(visit, _into(done, self.hub.reading(visit, body + b"\n")))
        await done
        if numbered:
            await visit.wait(lambda: visit.answers() >= expected, ANSWER_S_MAX)

    async def _wait_done(self, client: WorkClient, steps: Steps[Result]) -> Result:
        """Return the result of steps that are done in the turn of a connection."""
        done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.hub.work.do(client, _into(done, steps))
        return await done

    def _introduce(self, visit: Visit) -> dict[str, str]:
        """Keep a visit; return the fields with its token."""
        self.visits.keep(visit)
        cookie = f"{COOKIE}={visit.token}; Path={PATH}; HttpOnly; SameSite=Strict"
        return {
            "Set-Cookie": f"{cookie}; Secure" if self._is_tls else cookie,
            "Sensing-Token": visit.token,
            "Access-Control-Expose-Headers": "Sensing-Token",
        }

    async def _fetch(self, request: HttpRequest) -> WebAnswer:
        """Return the messages for one network, as soon as there are some."""
        token = token_of(request)
        if token is None:
            raise HttpError(403, "the token that was given when the network was registered is needed")
        visit, sensing_id = self.visits.find(token, self._clock()), request.path[len(PATH) + 1 :]
        if sensing_id not in visit.ids:
            raise HttpError(404, "this network was not registered with this token")
        wait_s = _seconds(request.query.get("wait", "0"))
        visit.polls[sensing_id] += 1
        number, said = visit.polls[sensing_id], visit.take(sensing_id)
        visit.disturb()  # of two requests for the same, the later one gets it

        def is_there() -> bool:
            is_later = visit.polls[sensing_id] != number
            said.extend(() if is_later else visit.take(sensing_id))
            return is_later or bool(said)

        await visit.wait(is_there, wait_s)
        visit.heard_at = self._clock()
        return WebAnswer(200, as_array(said))


def _into(done: asyncio.Future[Result], steps: Steps[Result]) -> Steps[None]:
    """Do these steps, and set the outcome; if they are given up, that is one too."""
    try:
        result = yield from steps
    except Exception as error:
        if not done.done():
            done.set_exception(error)
    else:
        if not done.done():
            done.set_result(result)
    finally:
        done.cancel()  # unless it is done


def _look_at(body: bytes) -> Steps[tuple[list[Register], int, bool]]:
    """Return the registrations in a body, the number of its numbered readings, and whether any part is valid.

    HttpError if it is empty or ends within an object: then nothing of it is accepted.
    """
    intake = NetworkReader()
    said: list[Said] = []
    yield from intake.read(body + b"\n", said)
    if intake.is_open:
        raise HttpError(400, "the body ends within an object")
    if not said:
        raise HttpError(400, "the body has no objects")
    registers = [one for one in said if isinstance(one, Register)]
    numbered = sum(isinstance(one, Sensing) and one.seq is not None for one in said)
    return registers, numbered, not all(isinstance(one, Error) for one in said)


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        seconds = float(text)
        if 0 <= seconds < float("inf"):
            return min(seconds, WAIT_S_MAX)
    raise HttpError(400, "wait is a number of seconds")

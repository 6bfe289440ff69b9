"""Connection that carries HTTP requests, one after the other, until one of them makes it a WebSocket.

A port only carries: `web` decides about requests. While a request is answered the next one waits, unread; one
that comes slowly is given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from tidings.errors import MissingExtra
from tidings.gateway.peer import WorkClient
from tidings.node import logs
from tidings.node.gateway.web_session import SINGLE, WebAnswer, allowing, refusal
from tidings.node.gateway.websocket import GONE, WRITE_BUFFER_MAX, WebSocket
from tidings.node.http import HEAD_END, REQUEST_SIZE_MAX, HttpError, HttpRequest, encode_response, parse_head
from tidings.node.ports import caller_of, close_soon
from tidings.protocol.access import PeerInfo

if TYPE_CHECKING:
    from tidings.node.gateway.web import Web

REQUEST_S_MAX = 10.0
"""Longest time for a request to come, from its first byte on."""
IDLE_S_MAX = 75.0
"""How long a connection may be open without a request."""
LINGER_S = 1.0
"""How long the rest of a refused request is read."""


class WebPort(asyncio.Protocol):
    """One connection: requests one after the other, until one of them makes it a WebSocket."""

    def __init__(self, web: Web) -> None:
        self._web = web
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._caller = PeerInfo()
        self._client = WorkClient()
        self._held = bytearray()
        self._is_parting = False
        self._head: tuple[HttpRequest, str | None, int] | None = None  # the size is that of the body
        self._task: asyncio.Task[None] | None = None
        self._socket: WebSocket | None = None
        self._timer: asyncio.TimerHandle | None = None

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(WRITE_BUFFER_MAX)
        self._caller = caller_of(transport)
        if len(self._web.ports) >= self._web.connections_max:
            self._refuse(HttpError(503, "there are too many connections"))
            return
        self._web.ports.add(self)
        self._wait(IDLE_S_MAX, self._transport.close)

    def data_received(self, data: bytes) -> None:
        if self._socket is not None:
            self._socket.feed(data)
        elif not self._is_parting:
            is_new = not self._held and self._head is None
            self._held += data
            if self._task is None:
                if is_new:
                    self._wait(REQUEST_S_MAX, self._give_up)
                self._go_on()

    def pause_writing(self) -> None:
        """Called when the other side does not read what is sent to it."""
        self._transport.abort()

    def connection_lost(self, _error: Exception | None) -> None:
        self._web.ports.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            self._web.hub.work.drop(self._client)
        if self._socket is not None:
            self._socket.lost()

    def close(self) -> None:
        """Close the connection, as the gateway stops."""
        if self._socket is not None:
            self._socket.close(GONE, "the gateway stops")
        else:
            self._transport.close()

    # Reading

    def _go_on(self) -> None:
        """Read the next request, as far as it has come; while one is answered the next has to wait."""
        try:
            if self._head is None and not self._read_head():
                return
            self._read_body()
        except HttpError as error:
            self._refuse(error)

    def _read_head(self) -> bool:
        """Read a head; return whether it is there, and its body comes next."""
        head, end, rest = self._held.partition(HEAD_END)
        if not end and len(self._held) <= REQUEST_SIZE_MAX:
            return False
        if len(head) > REQUEST_SIZE_MAX:
            raise HttpError(431, f"the head of a request has at most {REQUEST_SIZE_MAX} bytes")
        request = parse_head(bytes(head + end), SINGLE)
        origin = self._web.check(request)
        if request.is_websocket and request.method == "GET":
            self._upgrade(request, bytes(head + end), bytes(rest))
            return False
        self._head, self._held = (request, origin, request.size), rest
        if request.fields.get("expect", "").lower() == "100-continue" and len(rest) < request.size:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    def _read_body(self) -> None:
        assert self._head is not None
        request, origin, size = self._head
        if len(self._held) < size:
            return
        body, self._held, self._head = bytes(self._held[:size]), self._held[size:], None
        self._stop_waiting()
        self._transport.pause_reading()
        self._task = self._loop.create_task(self._answer(request, body, origin))

    def _upgrade(self, request: HttpRequest, head: bytes, rest: bytes) -> None:
        self._stop_waiting()
        self._held.clear()
        try:
            socket = WebSocket(self._web.hub, self._transport, self._caller, head)
        except MissingExtra as missing:
            raise HttpError(500, str(missing)) from None
        bearer = request.bearer
        if socket.is_open and (bearer is None or self._web.hub.login(socket, bearer)):
            self._socket = socket
            if rest:
                socket.feed(rest)

    # Answering

    async def _answer(self, request: HttpRequest, body: bytes, origin: str | None) -> None:
        try:
            answer = await self._web.answer(request, body, self._caller, origin, self._client)
        except HttpError as error:
            answer = refusal(error)
        except Exception as error:  # the one place: an error here must not end the gateway
            logs.error("a request could not be answered", problem=repr(error))
            answer = refusal(HttpError(500, "the request could not be answered"))
        self._task = None
        self._write(answer, request.is_last, origin)
        if request.is_last:
            self._part()
        elif not self._transport.is_closing():
            self._transport.resume_reading()
            self._wait(REQUEST_S_MAX if self._held else IDLE_S_MAX, self._give_up)
            if self._held:
                self._go_on()

    def _write(self, answer: WebAnswer, is_last: bool, origin: str | None = None) -> None:
        fields = {"Cache-Control": "no-store", **allowing(origin), **answer.fields}
        self._transport.write(
            encode_response(answer.status, "application/json", answer.body, fields, is_last)
        )

    def _refuse(self, error: HttpError) -> None:
        """Answer an invalid request; where the next one begins is not known then.

        The rest of it is read and thrown away for a while: closing a connection with unread bytes would
        discard the answer.
        """
        answer = refusal(error)
        self._is_parting = True
        self._held.clear()
        self._write(answer, is_last=True)
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._wait(LINGER_S, self._part)

    def _part(self) -> None:
        """Close when everything is written, or soon anyway."""
        self._is_parting = True
        self._stop_waiting()
        close_soon(self._transport)

    def _give_up(self) -> None:
        """Refuse a request that did not come in time."""
        if self._held or self._head is not None:
            self._refuse(HttpError(408, "the request did not come in time"))
        else:
            self._part()

    def _wait(self, seconds: float, act: Callable[[], None]) -> None:
        self._stop_waiting()
        self._timer = self._loop.call_later(seconds, act)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

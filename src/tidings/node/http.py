"""HTTP, as far as it is needed: heads parsed, pages of other sites refused, and a responder for a few pages.

A web page that someone on this machine looks at can send requests here too, under a name that its author made
resolve to 127.0.0.1. So without TLS the Host must be a loopback name, and a request that a browser marks as
that of a page is accepted only from the same origin, or from one that the settings list.

The responder answers `GET` of a few pages: one request a connection, loopback only.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from http import HTTPStatus
from urllib.parse import parse_qs, unquote, urlsplit

from msgspec import Struct

from tidings.node import logs

REQUEST_SIZE_MAX = 8 << 10
REQUEST_S_MAX = 5.0
"""How long a request may take to arrive."""
REQUESTS_MAX = 20
"""Requests at a time."""
BODY_SIZE_MAX = 1 << 20
"""Bytes of the body of one request."""
QUERY_MAX = 20
HEAD_END = b"\r\n\r\n"
HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
PLAIN_TEXT = "text/plain; charset=utf-8"

Page = Callable[[str], Awaitable[tuple[str, str]]]
"""Makes a page, its content type and its text, for one whose field Authorization says this; empty: none."""

_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")


class HttpError(Exception):
    """A request that gets another status than 200."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


class HttpRequest(Struct, frozen=True):
    """Head of a request; names of fields are in small letters, and values of the same one are joined."""

    method: str
    path: str
    query: dict[str, str]
    fields: dict[str, str]
    is_last: bool
    """Whether the connection ends with it."""

    @property
    def size(self) -> int:
        """Return the bytes of its body; HttpError if unknown, or too large."""
        if "transfer-encoding" in self.fields:
            raise HttpError(411, "a body needs a Content-Length")
        length = self.fields.get("content-length", "0")
        if not (length.isascii() and length.isdigit() and len(length) < 20):
            raise HttpError(400, "the Content-Length is no number")
        if int(length) > BODY_SIZE_MAX:
            raise HttpError(413, f"a body has at most {BODY_SIZE_MAX} bytes")
        return int(length)

    @property
    def is_websocket(self) -> bool:
        """Whether it requests an upgrade to WebSocket."""
        return self.fields.get("upgrade", "").lower() == "websocket"

    @property
    def bearer(self) -> str | None:
        """Return the token of a user, if there is one."""
        kind, _, token = self.fields.get("authorization", "").partition(" ")
        return token.strip() if kind.lower() == "bearer" else None


def parse_head(head: bytes, single: Collection[str]) -> HttpRequest:
    """Parse a head; HttpError if it is invalid or ambiguous, also by a field that must be single."""
    first, *lines = head.decode("latin-1").removesuffix(HEAD_END.decode()).split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.0", "HTTP/1.1") or not words[1].startswith("/"):
        raise HttpError(400, "this is no HTTP/1 request")
    fields = _read_fields(lines, single)
    path, query = _read_target(words[1])
    options = {option.strip().lower() for option in fields.get("connection", "").split(",")}
    is_last = "close" in options or (words[2] == "HTTP/1.0" and "keep-alive" not in options)
    return HttpRequest(words[0], path, query, fields, is_last)


def _read_fields(lines: list[str], single: Collection[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in lines:
        found = _FIELD.fullmatch(line)
        if found is None:
            raise HttpError(400, "a field is not well formed")
        name, value = found[1].lower(), found[2].strip()
        if name in fields and name in single:
            raise HttpError(400, f"{name} is there twice")
        fields[name] = f"{fields[name]}, {value}" if name in fields else value
    return fields


def _read_target(text: str) -> tuple[str, dict[str, str]]:
    """Return the path, and the query after it."""
    try:
        target = urlsplit(text)
        query = parse_qs(target.query, max_num_fields=QUERY_MAX)
    except ValueError:
        raise HttpError(400, "this can't be asked for") from None
    return unquote(target.path), {name: values[-1] for name, values in query.items()}


def check_page(
    request: HttpRequest, origins: frozenset[str] = frozenset(), is_tls: bool = False
) -> str | None:
    """Refuse a request that may come from a page of another site; return the origin of a listed page."""
    host = request.fields.get("host")
    if host is None or not (is_tls or is_loopback(host)):
        raise HttpError(403, "the Host must be a loopback name")
    origin = request.fields.get("origin")
    if origin in origins:
        return origin
    own = f"{'https' if is_tls else 'http'}://{host}".lower()
    is_foreign_page = origin is not None and origin.lower() != own
    is_foreign_site = request.fields.get("sec-fetch-site", "none").lower() not in ("same-origin", "none")
    if is_foreign_page or is_foreign_site:
        raise HttpError(403, "pages of other sites are not answered")
    return None


def is_loopback(host: str) -> bool:
    """Whether a Host field names this machine, with or without a port."""
    name, colon, port = host.rpartition(":")
    if colon and port.isdigit():
        host = name
    return host.lower() in HOSTS


def encode_response(status: int, kind: str, body: bytes, fields: Mapping[str, str], is_last: bool) -> bytes:
    """Encode a response whose body is of this kind, with the fields of all."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Content-Length: {len(body)}"]
    if body:
        lines.append(f"Content-Type: {kind}")
    lines.append("X-Content-Type-Options: nosniff")
    lines.append(f"Connection: {'close' if is_last else 'keep-alive'}")
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return "\r\n".join(lines).encode("latin-1") + HEAD_END + body


class Responder:
    """Answers requests for pages by their paths."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self._pages = pages
        self._busy = 0

    async def serve(self, host: str, port: int) -> asyncio.Server:
        """Listen; the server is the caller's to close."""
        return await asyncio.start_server(self._answer, host, port, limit=REQUEST_SIZE_MAX)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Called by asyncio once for each connection."""
        self._busy += 1
        try:
            writer.write(await self._response(reader))
            await asyncio.wait_for(writer.drain(), REQUEST_S_MAX)
        except (ConnectionError, TimeoutError):
            writer.transport.abort()
        finally:
            self._busy -= 1
            writer.close()

    async def _response(self, reader: asyncio.StreamReader) -> bytes:
        try:
            if self._busy > REQUESTS_MAX:
                raise HttpError(503, "too many requests at a time")
            request = await _read_request(reader)
            page = self._pages.get(request.path)
            if page is None:
                raise HttpError(404, f"there is only {', '.join(self._pages)}")
            kind, text = await page(request.fields.get("authorization", ""))
            body = text.encode()
            response = encode_response(200, kind, body, {}, is_last=True)
            return response if request.method == "GET" else response.removesuffix(body)
        except HttpError as error:
            return _plain(error.status, str(error))
        except Exception as error:  # the one place: a page that fails must not end the node
            logs.error("a page could not be made", problem=repr(error))
            return _plain(500, "the page could not be made")


def _plain(status: int, text: str) -> bytes:
    return encode_response(status, PLAIN_TEXT, f"{text}\n".encode(), {}, is_last=True)


async def _read_request(reader: asyncio.StreamReader) -> HttpRequest:
    try:
        head = await asyncio.wait_for(reader.readuntil(HEAD_END), REQUEST_S_MAX)
    except TimeoutError:
        raise HttpError(408, "the request did not come in time") from None
    except asyncio.LimitOverrunError:
        raise HttpError(431, f"a request has at most {REQUEST_SIZE_MAX} bytes") from None
    except asyncio.IncompleteReadError:
        raise HttpError(400, "the request did not come whole") from None
    request = parse_head(head, single=("authorization",))
    check_page(request)
    if request.method not in ("GET", "HEAD"):
        raise HttpError(405, "only GET and HEAD are answered")
    return request

"""A responder for `GET` of a few pages: HTTP/1.1, one request a connection, loopback only.

A web page that someone on this machine looks at can send requests here too, under a name that its author made
resolve to 127.0.0.1. So a Host that is no loopback name is refused, and so is whatever a browser marks as the
request of a page from elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from tidings.node import logs

REQUEST_SIZE_MAX = 8 << 10
REQUEST_S_MAX = 5.0
"""How long a request may take to arrive."""
REQUESTS_MAX = 20
"""Requests at a time."""
HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})

Page = Callable[[str], Awaitable[tuple[str, str]]]
"""Makes a page, its content type and its text, for one whose field Authorization says this; empty: none."""

REASONS = {
    100: "Continue",
    200: "OK",
    204: "No Content",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    410: "Gone",
    411: "Length Required",
    413: "Content Too Large",
    426: "Upgrade Required",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class HttpError(Exception):
    """A request that gets another status than 200."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


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
            method, path, authorization = await _read_request(reader)
            page = self._pages.get(path)
            if page is None:
                raise HttpError(404, f"there is only {', '.join(self._pages)}")
            kind, text = await page(authorization)
            return _encode(200, kind, text, with_body=method == "GET")
        except HttpError as error:
            return _encode(error.status, "text/plain; charset=utf-8", f"{error}\n")
        except Exception as error:  # the one place: a page that fails must not end the node
            logs.error("a page could not be made", problem=repr(error))
            return _encode(500, "text/plain; charset=utf-8", "the page could not be made\n")


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, str, str]:
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), REQUEST_S_MAX)
    except TimeoutError:
        raise HttpError(408, "the request did not come in time") from None
    except asyncio.LimitOverrunError:
        raise HttpError(431, f"a request has at most {REQUEST_SIZE_MAX} bytes") from None
    except asyncio.IncompleteReadError:
        raise HttpError(400, "the request did not come whole") from None
    return parse_request(head)


def parse_request(head: bytes) -> tuple[str, str, str]:
    """Method, path and authorization of a request that may be answered; HttpError for any other."""
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise HttpError(400, "this is no HTTP/1 request")
    fields = [
        (name.strip().lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)
    ]
    _check_origin(fields)
    if words[0] not in ("GET", "HEAD"):
        raise HttpError(405, "only GET and HEAD are answered")
    authorizations = [value for name, value in fields if name == "authorization"]
    if len(authorizations) > 1:
        raise HttpError(400, "a request has one Authorization")
    return words[0], words[1].partition("?")[0], "".join(authorizations)


def _check_origin(fields: list[tuple[str, str]]) -> None:
    """Refuse what a page of another site may have sent."""
    hosts = [value for name, value in fields if name == "host"]
    if len(hosts) != 1 or not is_loopback(hosts[0]):
        raise HttpError(403, "the Host must be a loopback name")
    for name, value in fields:
        is_foreign_page = name == "origin" and value.lower() != f"http://{hosts[0].lower()}"
        is_foreign_site = name == "sec-fetch-site" and value.lower() not in ("same-origin", "none")
        if is_foreign_page or is_foreign_site:
            raise HttpError(403, "pages of other sites are not answered")


def is_loopback(host: str) -> bool:
    """Whether a Host field names this machine, with or without a port."""
    name, colon, port = host.rpartition(":")
    if colon and port.isdigit():
        host = name
    return host.lower() in HOSTS


def _encode(status: int, kind: str, text: str, with_body: bool = True) -> bytes:
    body = text.encode()
    head = (
        f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")

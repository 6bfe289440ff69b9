"""HTTP requests of sensor networks, as far as they are needed: heads parsed, pages of other sites refused.

A browser sends requests for any page it shows. So without TLS the Host must be a loopback name, and a request
of a page is accepted only from the same origin or from one that the settings list.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qs, unquote, urlsplit

from msgspec import Struct

from tidings.gateway.messages import Error, encode
from tidings.node.http import REASONS, HttpError, is_loopback

HEAD_SIZE_MAX = 8 << 10
BODY_SIZE_MAX = 1 << 20
"""Bytes of the body of one request."""
QUERY_MAX = 20
COOKIE = "tidings-network"
TOKEN = "sensing-token"
"""Field by which a network that keeps no cookies identifies itself, in requests and answers."""

_SINGLE = {
    "authorization",
    "content-length",
    "cookie",
    "host",
    "origin",
    "transfer-encoding",
    "upgrade",
    TOKEN,
}
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")


class WebRequest(Struct, frozen=True):
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
    def token(self) -> str | None:
        """Return the token of a visit, if there is one."""
        for part in self.fields.get("cookie", "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == COOKIE:
                return value
        return self.fields.get(TOKEN)

    @property
    def bearer(self) -> str | None:
        """Return the token of a user, if there is one."""
        kind, _, token = self.fields.get("authorization", "").partition(" ")
        return token.strip() if kind.lower() == "bearer" else None


class WebAnswer(Struct, frozen=True):
    """Answer to a request."""

    status: int
    body: bytes = b""
    fields: dict[str, str] = {}


def parse_head(head: bytes) -> WebRequest:
    """Parse a head; HttpError if it is invalid or ambiguous."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.0", "HTTP/1.1") or not words[1].startswith("/"):
        raise HttpError(400, "this is no HTTP/1 request")
    fields = _read_fields(lines)
    path, query = _read_target(words[1])
    options = {option.strip().lower() for option in fields.get("connection", "").split(",")}
    is_last = "close" in options or (words[2] == "HTTP/1.0" and "keep-alive" not in options)
    return WebRequest(words[0], path, query, fields, is_last)


def _read_fields(lines: list[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in lines:
        found = _FIELD.fullmatch(line)
        if found is None:
            raise HttpError(400, "a field is not well formed")
        name, value = found[1].lower(), found[2].strip()
        if name in fields and name in _SINGLE:
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


def check_page(request: WebRequest, origins: frozenset[str], is_tls: bool) -> str | None:
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


def encode_response(status: int, body: bytes, fields: dict[str, str], is_last: bool) -> bytes:
    """Encode a response, with the fields of all."""
    lines = [f"HTTP/1.1 {status} {REASONS[status]}", f"Content-Length: {len(body)}"]
    if body:
        lines.append("Content-Type: application/json")
    lines += ["Cache-Control: no-store", "X-Content-Type-Options: nosniff"]
    lines.append(f"Connection: {'close' if is_last else 'keep-alive'}")
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


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

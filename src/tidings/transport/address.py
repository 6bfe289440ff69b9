"""Addresses of nodes.

tidings://127.0.0.1:7300              TCP
tidings+tls://alice@10.0.0.7:7300     TCP with TLS, as a user of that node
tidings+unix:///run/node.sock         a Unix socket
tidings+udp://127.0.0.1:7300          a reliable stream over UDP datagrams (`reliable.py`)
tidings+udp+tls://alice@10.0.0.7:7300 the same with TLS
127.0.0.1:7300                        the same as tidings://; with credentials, tidings+tls://

The rule kept: an address may be shown to anyone, so it contains no password.
"""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import Struct

from tidings.errors import AddressError

PORT = 7300
"""Default port of a node."""

AddressKind = Literal["tcp", "tls", "unix"]
_KINDS: dict[str, AddressKind] = {
    "tidings": "tcp",
    "tidings+tls": "tls",
    "tidings+unix": "unix",
    "tidings+udp": "tcp",
    "tidings+udp+tls": "tls",
}
# A colon before an @: whatever else is wrong with such a text, it must not be shown.
_PASSWORD = re.compile(r"//[^@]*:.*@|^[^@/]*:(?!//).*@", re.DOTALL)
_BARE = re.compile(r"([^\s:/?#@\[\]]+|\[[0-9A-Fa-f:.]+\]):[0-9]+")


class Address(Struct, frozen=True):
    """Address of a node: a host and a port, or the path of a socket."""

    kind: AddressKind
    host: str = ""
    port: int = PORT
    path: str = ""
    user: str = ""  # the user to log in as
    is_udp: bool = False  # of `tcp` and `tls`: by UDP instead of TCP


def parse(text: str, has_credentials: bool = False) -> Address:
    """Parse an address; AddressError if the text is invalid.

    HOST:PORT is by TLS if there are credentials, and otherwise by TCP without it. A word alone is none: it is
    mistyped more often than meant as a host.
    """
    if _PASSWORD.search(text):
        raise AddressError(
            "an address has no password in it, as it is shown in logs and lists of processes;"
            " keep the password in a file: password=Path(…), or --password-file"
        )
    scheme = "tidings+tls" if has_credentials else "tidings"
    try:
        parts = urlsplit(f"{scheme}://{text}" if _BARE.fullmatch(text) else text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise AddressError(f"{text!r} is no address: {error}") from None
    kind = _KINDS.get(parts.scheme)
    if kind == "unix" and parts.path and not parts.netloc and _ends_there(parts):
        return Address("unix", path=unquote(parts.path))
    if kind in ("tcp", "tls") and host and not parts.path.strip("/") and _ends_there(parts):
        if kind == "tcp" and parts.username is not None:
            raise AddressError(f"{text!r}: only an address with TLS has a user, tidings+tls://USER@HOST:PORT")
        user, is_udp = unquote(parts.username or ""), "udp" in parts.scheme
        return Address(kind, host, PORT if port is None else port, user=user, is_udp=is_udp)
    raise AddressError(
        f"{text!r} is no address; say HOST:PORT, tidings://HOST:PORT, tidings+tls://HOST:PORT,"
        " tidings+udp://HOST:PORT, tidings+udp+tls://HOST:PORT or tidings+unix:///PATH"
    )


def _ends_there(parts: SplitResult) -> bool:
    return not parts.query and not parts.fragment

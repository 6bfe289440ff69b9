"""Security directories and wires with TLS for measurements, and how fast clients are let in.

The users are `device`, who may do everything with events and queues, and `bounded`, who may publish what a
rule says; both have tokens. Clients that log in do so again and again, a few at a time, from hosts of their
own where a host would be remembered.
"""

from __future__ import annotations

import os
import secrets
import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.load import HOST, RECEIVE_SIZE, WAIT_S_MAX, Pipe
from benchmarks.wires import MARKER, TidingsWire
from tidings.errors import PeerError
from tidings.ids import new_system
from tidings.protocol.frames import FRAME_MAX, FrameReader, encode
from tidings.protocol.messages import VERSION, Hello, Welcome
from tidings.security.directory import SecurityDirectory, edited
from tidings.security.passwords import Token, hash_token, make_password, make_token
from tidings.security.provision import Admin, add_allowance, make_security
from tidings.transport.tls import client_context

ADMIN, BOUNDED = "admin", "bounded"
RULE = f"type = '{MARKER.decode()}' AND value < 1000"
"""What `bounded` may publish: everything that the load has, which has to be found out for each event."""
AT_A_TIME = 4
"""Clients that log in at the same time."""


@dataclass(frozen=True)
class Secured:
    """A security directory, and the secrets of its users."""

    path: Path
    password: str = field(repr=False)
    token: str = field(repr=False)
    bounded_token: str = field(repr=False)

    @property
    def ca(self) -> Path:
        """Whom clients are to trust."""
        return self.path / "ca.pem"


def make_secured(path: Path, name: str) -> Secured:
    """A new directory for a node of this name."""
    password, token = secrets.token_urlsafe(24), make_token(os.urandom)
    admin = Admin(ADMIN, make_password(password, os.urandom))
    make_security(path, name, [HOST], admin, os.urandom, datetime.now(UTC))
    home = SecurityDirectory(path)
    with edited(home) as lines:
        lines.add_token(BOUNDED, Token("first", hash_token(token)))
    add_allowance(home, f'\n[[allow]]\nusers = ["{BOUNDED}"]\nactions = ["publish"]\nwhere = "{RULE}"\n')
    return Secured(path, password, (path / "device.token").read_text().strip(), token)


@dataclass(frozen=True)
class TlsWire(TidingsWire):
    """The native protocol with TLS, by a user who has a token."""

    ca: Path = Path("ca.pem")
    token: str = field(default="", repr=False)

    def wrap(self, channel: socket.socket) -> ssl.SSLSocket:
        """With TLS; the node must be whom it says."""
        return client_context(self.ca, None, None).wrap_socket(channel, server_hostname=HOST)

    def _hello(self) -> bytes:
        return encode(Hello([VERSION], new_system(os.urandom), 1, secret=self.token))


# Logging in


@dataclass(frozen=True)
class Login:
    """How clients come: with nothing but a handshake, or with a secret too; from so many hosts."""

    port: int
    ca: Path
    user: str = ""
    secret: str = field(default="", repr=False)
    hosts: int = 1

    def go(self, place: int) -> None:
        """Come once; PeerError if one is not let in."""
        with self._connected(place) as channel:
            if self.secret:
                hello = Hello([VERSION], new_system(os.urandom), 1, user=self.user, secret=self.secret)
                channel.sendall(encode(hello))
                answers = FrameReader(FRAME_MAX).feed(channel.recv(RECEIVE_SIZE))
                if not any(isinstance(message, Welcome) for message, _ in answers):
                    raise PeerError("a client was not let in")

    @contextmanager
    def _connected(self, place: int) -> Iterator[ssl.SSLSocket]:
        host = f"127.0.1.{1 + place % self.hosts}"  # loopback is all of 127, on Linux
        with socket.create_connection((HOST, self.port), WAIT_S_MAX, (host, 0)) as channel:
            channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            context = client_context(self.ca, None, None)
            with context.wrap_socket(channel, server_hostname=HOST) as secured:
                yield secured


def log_in(pipe: Pipe, login: Login, count: int) -> None:
    """Come so many times, AT_A_TIME at a time; then send how many that were in a second."""
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        login.go(count)
        started = time.monotonic()
        list(threads.map(login.go, range(count)))
        pipe.send(count / (time.monotonic() - started))

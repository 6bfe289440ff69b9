"""How commands find their node, say who they are, and what they say when there is none.

A command that connects has the option `--node` and is marked with `connects`, which adds those that say who
it is. A secret is in a file or in the environment, or is asked for; it is never an argument, which all others
on the machine could see.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import sys
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli.options import CREDENTIALS, credential_options, with_options
from tidings.errors import Disconnected, TidingsError
from tidings.transport.address import Address as Place
from tidings.transport.address import parse

if TYPE_CHECKING:
    from tidings.client import Bus

DEFAULT = "tidings://127.0.0.1:7300"
CONNECT_S_MAX = 5.0

Address = Annotated[
    str | None,
    typer.Option(
        "--node",
        envvar="TIDINGS_NODE",
        metavar="ADDRESS",
        help=f"The node: tidings://HOST:PORT, tidings+tls://… or tidings+unix:///PATH."
        f"  [this machine's, or {DEFAULT}]",
    ),
]
Name = Annotated[str, typer.Option(help="Who this client says it is.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]


IDENTITY = tuple(
    credential_options(
        "With TLS",
        "TIDINGS_",
        password_file="Your password; without it, you are asked.",
        token_file="A token, which may also be in TIDINGS_TOKEN.",
        ca="Whom to trust; without it, whom this system trusts.",
    )
)


class Who:
    """Whom the options say this is."""

    def __init__(
        self,
        user: str | None = None,
        password_file: Path | None = None,
        token_file: Path | None = None,
        ca: Path | None = None,
        cert: Path | None = None,
        key: Path | None = None,
    ) -> None:
        self.user = user
        self.password: str | Path | None = password_file
        self.token: str | Path | None = token_file
        self.ca = ca
        self.cert = cert
        self.key = key

    def credentials(self, place: Place) -> dict[str, Any]:
        """What `tidings.connect` is told; nothing where there is no TLS. Asks for a password if it must."""
        if place.kind != "tls":
            return {}
        self.user = self.user or place.user or None
        if not (self.password or self.token or self.cert):
            self.token = os.environ.get("TIDINGS_TOKEN") or None
            if self.token is None and self.user is not None and sys.stdin.isatty():
                self.password = typer.prompt(f"Password of {self.user}", hide_input=True, err=True)
        return dict(vars(self))


_who: ContextVar[Who] = ContextVar("who")


def connects(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say who it is, by which `bus_at` goes."""

    @functools.wraps(command)
    def known(**options: Any) -> None:
        _who.set(Who(**{name: options.pop(name) for name in CREDENTIALS}))
        command(**options)

    return with_options(*IDENTITY)(known)


def bus_at(address: str, name: str = "", reconnect: bool = True) -> Bus:
    """A bus to a node, as the options of the command and the environment say."""
    import tidings

    who = _who.get(None) or Who()
    return tidings.connect(address, name=name, reconnect=reconnect, **who.credentials(parse(address)))


def find_node(address: str | None) -> str:
    """The address of a node that is there; Disconnected, with what to do, if there is none.

    A command does not start a node by itself: that something listens from then on would come as a surprise.
    """
    from tidings.node.local import machine_socket
    from tidings.node.ports import answers

    if address is None:
        path = machine_socket()
        address = f"tidings+unix://{path}" if answers(path) else DEFAULT
    if not _is_there(address):
        raise Disconnected(
            f"no node answers at {address}; start one with 'tidings node', or name another with --node"
        )
    return address


def _is_there(address: str) -> bool:
    """Whether something listens at an address; AddressError if it is none."""
    from tidings.node.ports import answers

    place = parse(address)
    if place.kind == "unix":
        return answers(Path(place.path))
    try:
        socket.create_connection((place.host, place.port), CONNECT_S_MAX).close()
    except OSError:
        return False
    return True


def run(work: Coroutine[Any, Any, None]) -> None:
    """Do the work of a command; errors become one line, Ctrl-C a quiet end."""
    try:
        asyncio.run(work)
    except TidingsError as error:
        typer.echo(f"tidings: {error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None

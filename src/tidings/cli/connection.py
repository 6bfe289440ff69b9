"""How commands find their node, and what they say when there is none."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

import typer

from tidings.errors import Disconnected, TidingsError

DEFAULT = "tidings://127.0.0.1:7300"
CONNECT_S_MAX = 5.0

Address = Annotated[
    str | None,
    typer.Option(
        "--node",
        envvar="TIDINGS_NODE",
        metavar="ADDRESS",
        help=f"The node: tidings://HOST:PORT or tidings+unix:///PATH.  [this machine's, or {DEFAULT}]",
    ),
]
Name = Annotated[str, typer.Option(help="Who this client says it is.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]


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
    """Whether something listens at an address; what is no address is left to `connect` to refuse."""
    from tidings.node.ports import answers
    from tidings.transport.dial import dial

    dial(address)
    parts = urlsplit(address)
    if parts.scheme == "tidings+unix":
        return answers(Path(unquote(parts.path)))
    try:
        socket.create_connection((parts.hostname, parts.port or 7300), CONNECT_S_MAX).close()
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

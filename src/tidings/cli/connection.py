"""Commands and their node: how they find it, log in, and run; and their error when there is no node.

A command that connects is marked with `connects`, which adds the option `--node` and those that say who it
is; one that is given its node in another way with `identifies`, which adds the latter.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from tidings.cli.options import CREDENTIALS, NODE, NODE_OPTION, credential_options, with_options
from tidings.cli.printing import print_json
from tidings.errors import (
    Disconnected,
    NoAnswer,
    NotAllowed,
    PeerError,
    QueueNotFound,
    TidingsError,
    UserError,
)
from tidings.transport.address import parse
from tidings.transport.credentials import Credentials
from tidings.transport.dial import unknown_host

if TYPE_CHECKING:
    from tidings.client import Bus, Queue

T = TypeVar("T")

CONNECT_S_MAX = 5.0
NOTES = "tidings.notes"
"""Logger of the client for notes on filters."""
CREATE = "tidings queue create"
UNREACHED = 1
"""The exit code of commands about a node itself, if it does not answer."""
PREFIX = "TIDINGS_"
"""With which the variables begin that say who it is."""
IDENTITY = tuple(
    credential_options(
        "With TLS",
        PREFIX,
        password_file="Your password; without it, it is prompted for.",
        token_file="A token, which may also be in TIDINGS_TOKEN.",
        ca="Trusted certificates; by default, the system's.",
    )
)


class Who:
    """The identity that the options give, by the names in `CREDENTIALS`; None is one that is not given."""

    def __init__(self, **options: str | None) -> None:
        self._options = {name: value for name, value in options.items() if value}
        self._password: str | None = None  # as it was entered
        self.is_given = bool(self._options)
        self.user = self._options.get("user")

    def credentials(self, address: str) -> dict[str, Any]:
        """Return the arguments for `tidings.connect`; none without TLS. Prompts for a password if it must.

        Variables may be meant for other nodes, so without TLS they have no effect; UserError for an option.
        """
        place = parse(address, self.is_given)
        if place.kind != "tls":
            self._refuse_typed(address)
            return {}
        files = {name: Path(file) for name, file in self._options.items() if name != "user"}
        given: dict[str, Any] = {name.removesuffix("_file"): file for name, file in files.items()}
        given["user"] = self.user = self.user or place.user or None
        if not given.keys() & {"password", "token", "cert"}:
            given["token"] = os.environ.get("TIDINGS_TOKEN") or None
            if given["token"] is None and self.user is not None and sys.stdin.isatty():
                if self._password is None:
                    self._password = typer.prompt(f"Password of {self.user}", hide_input=True, err=True)
                given["password"] = self._password
        return given

    def _refuse_typed(self, address: str) -> None:
        for name, value in self._options.items():
            if value != os.environ.get(PREFIX + name.upper()):
                problem = f"--{name.replace('_', '-')} needs TLS: {address}"
                raise UserError(f"{problem}; use tidings+tls://HOST:PORT, or leave it out")


_who: ContextVar[Who] = ContextVar("who")
_node: ContextVar[str | None] = ContextVar("node", default=None)


def connects(command: Callable[..., Coroutine[Any, Any, None] | None]) -> Callable[..., None]:
    """Give a command the option `--node`, by which `find_node` goes, and those of `identifies`."""

    @functools.wraps(command)
    def placed(node: str | None, **options: Any) -> Coroutine[Any, Any, None] | None:
        _node.set(node)
        return command(**options)

    return identifies(with_options(NODE_OPTION, before="json")(placed))


def identifies(command: Callable[..., Coroutine[Any, Any, None] | None]) -> Callable[..., None]:
    """Give a command the options that say who it is, by which `bus_at` goes; run it if it is a coroutine."""

    @functools.wraps(command)
    def known(**options: Any) -> None:
        _who.set(Who(**{name: options.pop(name) for name in CREDENTIALS}))
        _node.set(None)
        with _unlogged(NOTES):
            work = command(**options)
            if inspect.iscoroutine(work):
                run(work)

    return with_options(*IDENTITY)(known)


@contextmanager
def _unlogged(name: str) -> Iterator[None]:
    """Keep a logger silent: commands print the notes on their filters themselves."""
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def current_user() -> str | None:
    """Return the user that the options name, if they do."""
    return (_who.get(None) or Who()).user


# A node


def bus_at(address: str, name: str = "", reconnect: bool = True) -> Bus:
    """A bus to a node, as the options of the command and the environment say."""
    import tidings

    who = _who.get(None) or Who()
    # A person ends a command that takes too long; work on a large store may take minutes.
    options = {"call_timeout_s": None, **who.credentials(address)}
    return tidings.connect(address, name=name, reconnect=reconnect, **options)


@asynccontextmanager
async def bus_of(name: str = "", reconnect: bool = False, node: str | None = None) -> AsyncIterator[Bus]:
    """A bus to the node that was named; QueueNotFound from the block names queues that may be meant."""
    async with bus_at(find_node(node), name, reconnect) as bus:
        try:
            yield bus
        except QueueNotFound as error:
            hint = "" if CREATE in error.problem else await _hint(bus, error.queue)
            raise QueueNotFound(error.queue, error.problem + hint) from None


@asynccontextmanager
async def queue_of(queue: str, name: str = "", reconnect: bool = False) -> AsyncIterator[Queue]:
    """The queue of this name, at the node that was named."""
    async with bus_of(name, reconnect) as bus:
        yield await bus.queue(queue)


async def _hint(bus: Bus, queue: str) -> str:
    """The queues whose names are close to what was typed, in words to be added."""
    from tidings.queues.description import TRANSMISSION

    names = [one.name for one in await bus.lookup() if not one.name.startswith(TRANSMISSION)]
    close = get_close_matches(queue, names)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return "" if names else f"; this node has none, '{CREATE}' makes one"


def find_node(address: str | None = None) -> str:
    """The address of a node that is there, by default the one that was named; Disconnected if there is none.

    A command does not start a node by itself: that something listens from then on would come as a surprise.
    """
    address = _node.get() if address is None else address
    if address is None:
        address = default_node()
    if not _is_there(address):
        raise Disconnected(
            f"no node answers at {address}; start one with 'tidings node', or name another with --node"
        )
    return address


def default_node() -> str:
    """Return the address where commands look for a node if none is named, whether or not one is there."""
    from tidings.node.local import machine_socket
    from tidings.node.ports import answers

    path = machine_socket()
    return f"tidings+unix://{path}" if answers(path) else NODE


def credentials_at(address: str) -> Credentials:
    """Return the credentials that the options give for a node; AddressError for what is no address."""
    return Credentials(**(_who.get(None) or Who()).credentials(address))


@contextmanager
def reaching(address: str, json: bool) -> Iterator[None]:
    """End a command with the exit code UNREACHED and the reason if no node answers there, or it refuses."""
    try:
        yield
    except (PeerError, NotAllowed) as error:
        if json:
            print_json({"address": address, "error": str(error)})
        else:
            is_silent = isinstance(error, Disconnected | NoAnswer)
            problem = "no answer from" if is_silent else "refused by"
            typer.echo(f"tidings: {problem} {address}: {error}", err=True)
        raise typer.Exit(UNREACHED) from None


def _is_there(address: str) -> bool:
    """Whether something listens at an address; AddressError if it is none, Disconnected for no such host."""
    from tidings.node.ports import answers

    place = parse(address)
    if place.kind == "unix":
        return answers(Path(place.path))
    try:
        socket.create_connection((place.host, place.port), CONNECT_S_MAX).close()
    except (socket.gaierror, UnicodeError) as error:
        raise unknown_host(place.host, error) from None
    except OSError:
        return False
    return True


# Running


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do the work of a command; errors become one line, Ctrl-C a quiet end."""
    try:
        return asyncio.run(work)
    except TidingsError as error:
        typer.echo(f"tidings: {error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def run_quickly(work: Coroutine[Any, Any, Any]) -> bool:
    """Do the work of a command on the fastest loop there is; False if it was ended with Ctrl-C."""
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with suppress(ModuleNotFoundError):
        import uvloop

        new_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=new_loop) as runner:
        try:
            runner.run(work)
        except KeyboardInterrupt:
            return False
    return True


async def until_terminated(
    work: Coroutine[Any, Any, None], signals: Iterable[signal.Signals] = (signal.SIGTERM,)
) -> None:
    """Work until a signal comes: then all is given back and cleaned up, as with Ctrl-C."""
    task, came = asyncio.ensure_future(work), []

    def terminate(number: signal.Signals) -> None:
        came.append(number)
        task.cancel()

    for number in signals:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            with suppress(NotImplementedError):  # on Windows, where Ctrl-C is left
                asyncio.get_running_loop().add_signal_handler(number, terminate, number)
    try:
        await task
    except asyncio.CancelledError:
        if not came:
            raise
        raise typer.Exit(128 + came[0]) from None

"""Ways to a bus: to the node at an address, the node of this machine, or a node in this process."""

from __future__ import annotations

import asyncio
import logging
import os
import random as chance
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from tidings.client.bus import CALL_S, CONNECT_S, Bus
from tidings.client.numbering import Numbering
from tidings.errors import AddressError, UserError
from tidings.peers.registry import ForwardOrder, Neighbours, Upstream, check_peers
from tidings.queues.types import Volatile
from tidings.transport.address import parse
from tidings.transport.credentials import Credentials
from tidings.transport.dial import ConnectTo, Hopeless, dial

VARIABLE = "TIDINGS_NODE"
"""The environment variable with the address of the node."""
START_S = 130.0
"""Seconds to wait for a node that may have to be started, on a busy machine."""


def connect(
    address: str | None = None,
    *,
    name: str = "",
    user: str | None = None,
    password: str | Path | None = None,
    token: str | Path | None = None,
    ca: str | Path | None = None,
    cert: str | Path | None = None,
    key: str | Path | None = None,
    reconnect: bool = True,
    timeout_s: float | None = None,
    call_timeout_s: float | None = CALL_S,
    elsewhere_s: float | None = None,
    random: Callable[[], float] = chance.random,
    ids: Numbering = "clock",
) -> Bus:
    """Return a bus to the node at an address, to be entered with `async with`.

    An address is HOST:PORT, or begins with tidings://, tidings+tls:// or tidings+unix://. The default is that
    of the variable TIDINGS_NODE, and without it the node of this machine: at the user's own socket, then at
    port 7300. If neither answers, it starts a node, which stays, and logs where. `timeout_s` is for the first
    connection. `name` is the client's name; with a user it is the user, or begins with `user/`.

    `call_timeout_s` limits how long the node may take to answer a call that has no `timeout_s` of its own;
    None sets no limit. It does not limit the wait for a message or an event.

    `elsewhere_s`: after so many seconds without its node the client goes on at another one, whose address it
    has from it; None: never. It is for programs that publish and subscribe: queues, and durable
    subscriptions, with which it stays, are at their node.

    At an address with TLS, a client authenticates with a user and a password, a token, or a certificate and
    its key. A password or token given as a path is read from that file for each connection. `ca` is the file
    of trusted certificates; the default is the system's.

    `ids` says how the ids of published and put events are made: `clock`, with the start time in them; without
    the clock, `random` or the path of a file that keeps a system id and counts its starts; or an object of
    your own, such as `tidings.ids.StoredIds`.
    """
    _warn_of_variables()
    if address is None:
        address = _from_environment()
    options: dict[str, Any] = {
        "name": name,
        "reconnect": reconnect,
        "random": random,
        "ids": ids,
        "call_timeout_s": call_timeout_s,
        "elsewhere_s": elsewhere_s,
        "place": "the node of this machine" if address is None else address,
    }
    credentials = Credentials(_user(user, address), password, token, ca, cert, key)
    if address is None:
        if not credentials.is_empty:
            raise UserError("credentials need an address, such as tidings+tls://HOST:PORT")
        return Bus(machine_node, timeout_s=START_S if timeout_s is None else timeout_s, **options)
    reach = dial(address, credentials)

    async def find(_held: AsyncExitStack) -> ConnectTo:
        return reach

    patience_s = CONNECT_S if timeout_s is None else timeout_s
    elsewhere = partial(dial, credentials=credentials)
    return Bus(find, timeout_s=patience_s, says=credentials.says, reach=elsewhere, **options)


def _from_environment() -> str | None:
    """Return the address in the environment, None if there is none; AddressError names the variable."""
    address = os.environ.get(VARIABLE)
    if not address:
        return None
    try:
        parse(address)
    except AddressError as error:
        raise AddressError(f"{VARIABLE}: {error}") from None
    return address


def _warn_of_variables() -> None:
    """Log once which variables are probably misspelt: they would be passed over."""
    from tidings.node.variables import new_hints

    for hint in new_hints(os.environ):
        logging.getLogger("tidings").warning("%s", hint)


def _user(user: str | None, address: str | None) -> str | None:
    """Return the user: the argument, or the one in the address."""
    named = parse(address).user if address is not None else ""
    if user and named and user != named:
        raise UserError(f"the address names the user {named!r}, the argument {user!r}; give one of them")
    return user or named or None


def open(
    path: str | Path | None = None,
    *,
    name: str = "",
    queue_types: Sequence[type[Volatile]] = (),
    peers: Mapping[str, str] | None = None,
    upstream: str | None = None,
    upstream_filter: str | None = None,
    order: ForwardOrder = "oldest",
    user: str | None = None,
    password: str | Path | None = None,
    token: str | Path | None = None,
    ca: str | Path | None = None,
    cert: str | Path | None = None,
    key: str | Path | None = None,
    adhoc: bool | Mapping[str, Any] = False,
    call_timeout_s: float | None = CALL_S,
    ids: Numbering = "clock",
) -> Bus:
    """Return a bus to a node in this process, which ends with the bus; without a path it stores nothing.

    `queue_types` are queue types beside those that every node has. `peers` maps names of other nodes to their
    addresses; the node finds and uses their queues like its own.

    `upstream` is the address of a node to which this one forwards all published events, or those that match
    `upstream_filter`, each once: at once while it is reachable, otherwise when it is again, the oldest or the
    newest first. The other arguments are this node's credentials there and at its peers; `call_timeout_s`
    and `ids` are as for `connect`.

    `adhoc` lets the node carry messages for hosts that it meets by chance, as `tidings node --adhoc` does. It
    is True, or has further settings of a node, such as `{"name": "boat", "adhoc_to": "127.0.0.1:7306"}`.
    """
    credentials = Credentials(user, password, token, ca, cert, key)
    known = Neighbours({} if peers is None else check_peers(peers), credentials)
    above = None
    if upstream is not None:
        credentials.user = credentials.user or parse(upstream).user
        above = Upstream(upstream, credentials, order, upstream_filter)
    elif upstream_filter is not None or not (credentials.is_empty or peers):
        raise UserError("credentials need an upstream or peers; upstream_filter needs an upstream")
    settings = None if adhoc is False else {} if adhoc is True else dict(adhoc)
    find = partial(process_node, path, queue_types, above, known, settings)
    place = "the node in this process"
    return Bus(find, name=name, ids=ids, call_timeout_s=call_timeout_s, place=place, is_inside=True)


async def machine_node(_held: AsyncExitStack) -> ConnectTo:
    """Return how to reach the node of this machine, which is found or started again after each loss.

    One that was found at a port is waited for instead: a new node would not have what it has stored.
    """
    from tidings.node import local

    found: list[str] = []

    async def connect(protocol: asyncio.Protocol) -> None:
        try:
            address = found[0] if found else await local.find_or_start()
        except UserError as error:
            raise Hopeless(error) from None
        if not found and parse(address).kind == "tcp":
            found.append(address)
        await dial(address)(protocol)

    return connect


async def process_node(
    path: str | Path | None,
    queue_types: Sequence[type[Volatile]],
    upstream: Upstream | None,
    peers: Neighbours,
    adhoc: dict[str, Any] | None,
    held: AsyncExitStack,
) -> ConnectTo:
    """Return how to reach a node that runs in this process until the stack is closed."""
    from tidings.node import local

    running = local.run_in_process(path, queue_types, upstream, peers, adhoc=adhoc)
    node = await held.enter_async_context(running)

    async def connect(protocol: asyncio.Protocol) -> None:
        node.attach(protocol)

    return connect

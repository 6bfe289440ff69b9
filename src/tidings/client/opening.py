"""How a program gets a bus: to a node at an address, to that of this machine, or to one in this process."""

from __future__ import annotations

import asyncio
import random as chance
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from tidings.client.bus import CONNECT_S, Bus
from tidings.client.numbering import Numbering
from tidings.errors import UserError
from tidings.peers.registry import ForwardOrder, Neighbours, Upstream, check_peers
from tidings.queues.types import Volatile
from tidings.transport.address import parse
from tidings.transport.credentials import Credentials
from tidings.transport.dial import ConnectTo, dial

START_S = 130.0
"""How long to wait for a node that may have to be started, and to compile its code for the first time."""


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
    random: Callable[[], float] = chance.random,
    ids: Numbering = "clock",
) -> Bus:
    """A bus to the node at an address, to be entered with `async with`.

    Without an address it is the node of this machine, which is started if there is none. `timeout_s` is for
    the first connection. `name` is who the client says it is; with a user, that is the user, or begins with
    `user/`.

    At an address with TLS, a client proves who it is by a user and a password, a token, or a certificate and
    its key. A password or a token that is a path is read from that file, for each connection anew. `ca` is
    the file of whom to trust; without it, that is whom this system trusts.

    `ids` says how the ids of what is published and put are made: `clock`, with the time of the start in them;
    without the clock: `random`, or a path, a file that keeps a system and counts its starts; or an object of
    one's own, as `tidings.ids.StoredIds`.
    """
    options: dict[str, Any] = {"name": name, "reconnect": reconnect, "random": random, "ids": ids}
    credentials = Credentials(_user(user, address), password, token, ca, cert, key)
    if address is None:
        if not credentials.is_empty:
            raise UserError("who a client is matters at an address only, such as tidings+tls://HOST:PORT")
        return Bus(machine_node, timeout_s=START_S if timeout_s is None else timeout_s, **options)
    reach = dial(address, credentials)

    async def find(_held: AsyncExitStack) -> ConnectTo:
        return reach

    patience_s = CONNECT_S if timeout_s is None else timeout_s
    return Bus(find, timeout_s=patience_s, says=credentials.says, **options)


def _user(user: str | None, address: str | None) -> str | None:
    """Whom the client means to be: as it was said, or as the address says."""
    named = parse(address).user if address is not None else ""
    if user and named and user != named:
        raise UserError(f"the address says that the user is {named!r}, and not {user!r}")
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
    ids: Numbering = "clock",
) -> Bus:
    """A bus to a node in this process, which ends with it; without a path it keeps nothing.

    `queue_types` are the types of queues there are beside those that every node has. `peers` are other nodes,
    addresses by name, whose queues are found and used from here as its own.

    `upstream` is the address of a node to which goes on all that is published here, or what matches the
    filter, each event once: at once while it can be reached, and otherwise when it can be again, the oldest
    or the newest first. The rest says who this node is there, and at its peers, and how ids are made, as for
    `connect`.
    """
    credentials = Credentials(user, password, token, ca, cert, key)
    known = Neighbours({} if peers is None else check_peers(peers), credentials)
    above = None
    if upstream is not None:
        credentials.user = credentials.user or parse(upstream).user
        above = Upstream(upstream, credentials, order, upstream_filter)
    elif upstream_filter is not None or not (credentials.is_empty or peers):
        raise UserError("who a client is matters with an upstream or peers only, a filter with an upstream")
    return Bus(partial(process_node, path, queue_types, above, known), name=name, ids=ids)


async def machine_node(_held: AsyncExitStack) -> ConnectTo:
    """How to reach the node of this machine; it is looked for, and started, again after each loss."""
    from tidings.node import local

    async def connect(protocol: asyncio.Protocol) -> None:
        await dial(await local.find_or_start())(protocol)

    return connect


async def process_node(
    path: str | Path | None,
    queue_types: Sequence[type[Volatile]],
    upstream: Upstream | None,
    peers: Neighbours,
    held: AsyncExitStack,
) -> ConnectTo:
    """How to reach a node that runs in this process until the stack is closed."""
    from tidings.node import local

    node = await held.enter_async_context(local.run_in_process(path, queue_types, upstream, peers))

    async def connect(protocol: asyncio.Protocol) -> None:
        node.attach(protocol)

    return connect

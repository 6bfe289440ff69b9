"""Nodes that need no address: the one of this machine, and one in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from tidings.peers.registry import Neighbours
from tidings.peers.upstream import Upstream
from tidings.queues.types import Volatile
from tidings.transport.dial import Dial, dial

START_S = 130.0
"""How long to wait for a node that may have to be started, and to compile its code for the first time."""


async def find_or_start() -> str:
    """The address of the node of this machine, which is started if there is none."""
    from tidings.node import local

    return await local.find_or_start()


async def machine_node(_held: AsyncExitStack) -> Dial:
    """How to reach the node of this machine; it is looked for, and started, again after each loss."""

    async def connect(protocol: asyncio.Protocol) -> None:
        await dial(await find_or_start())(protocol)

    return connect


async def process_node(
    path: str | Path | None,
    queue_types: Sequence[type[Volatile]],
    upstream: Upstream | None,
    peers: Neighbours,
    held: AsyncExitStack,
) -> Dial:
    """How to reach a node that runs in this process until the stack is closed."""
    from tidings.node import local

    node = await held.enter_async_context(local.run_in_process(path, queue_types, upstream, peers))

    async def connect(protocol: asyncio.Protocol) -> None:
        node.attach(protocol)

    return connect

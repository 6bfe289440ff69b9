"""Three real nodes in the test's own loop: `home`, and its peers `kitchen` and `garage`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import tidings
from tidings.client import Bus
from tidings.node.config import NodeConfig
from tidings.node.server import Node

PEERS = ("kitchen", "garage")


@contextlib.asynccontextmanager
async def node_at(place: Path, name: str, keeps: bool = False, **settings: Any) -> AsyncIterator[str]:
    """A node on a Unix socket, for as long as the block lasts; its address."""
    directory = str(place / f"{name}.store") if keeps else None
    socket = place / name
    running = Node(NodeConfig(dir=directory, name=name, unix=str(socket), compiled=False, **settings))
    await running.start()
    try:
        yield address_of(place, name)
    finally:
        await running.close()


def address_of(place: Path, name: str) -> str:
    return f"tidings+unix://{place / name}"


def home_at(place: Path, **settings: Any) -> contextlib.AbstractAsyncContextManager[str]:
    """The node with peers, whether or not these are there."""
    peers = ", ".join(f"{name}={address_of(place, name)}" for name in PEERS)
    return node_at(place, "home", peers=peers, **settings)


async def wait_peer(bus: Bus, name: str = "kitchen", state: str = "there") -> None:
    """Wait until the node of a bus has found a peer, or lost it."""
    while True:
        status = await bus.status()
        if next(one["state"] for one in status["peers"] if one["name"] == name) == state:
            return
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def neighbours(place: Path, keeps: bool = False) -> AsyncIterator[tuple[Bus, Bus, Bus]]:
    """A bus at `home`, which has found its peers, and one at each of these."""
    async with contextlib.AsyncExitStack() as stack:
        buses = []
        for name in PEERS:
            address = await stack.enter_async_context(node_at(place, name, keeps))
            buses.append(await stack.enter_async_context(tidings.connect(address, name=f"at-{name}")))
        home = await stack.enter_async_context(home_at(place, keeps=keeps))
        bus = await stack.enter_async_context(tidings.connect(home, name="ann"))
        for name in PEERS:
            await wait_peer(bus, name)
        yield bus, buses[0], buses[1]

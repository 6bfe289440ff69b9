"""How a program gets a bus."""

from __future__ import annotations

import random as chance
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from tidings.client.bus import CONNECT_S, Bus
from tidings.client.local import START_S, machine_node, process_node
from tidings.queues.types import Volatile
from tidings.transport.dial import Dial, dial


def connect(
    address: str | None = None,
    *,
    name: str = "",
    reconnect: bool = True,
    timeout_s: float | None = None,
    random: Callable[[], float] = chance.random,
) -> Bus:
    """A bus to the node at an address, to be entered with `async with`.

    Without an address it is the node of this machine, which is started if there is none. `timeout_s` is for
    the first connection. `name` is who the client says it is.
    """
    if address is None:
        patience_s = START_S if timeout_s is None else timeout_s
        return Bus(machine_node, name=name, reconnect=reconnect, timeout_s=patience_s, random=random)
    reach = dial(address)

    async def find(_held: AsyncExitStack) -> Dial:
        return reach

    patience_s = CONNECT_S if timeout_s is None else timeout_s
    return Bus(find, name=name, reconnect=reconnect, timeout_s=patience_s, random=random)


def open(
    path: str | Path | None = None, *, name: str = "", queue_types: Sequence[type[Volatile]] = ()
) -> Bus:
    """A bus to a node in this process, which ends with it; without a path it keeps nothing.

    `queue_types` are the types of queues there are beside those that every node has.
    """
    return Bus(partial(process_node, path, queue_types), name=name)

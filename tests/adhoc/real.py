"""Real hosts for tests: node processes, and nodes in the loop of a test, that hear some others' beacons."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from effort import ANSWER_S

BEACON_S = 0.1
T = TypeVar("T")


def free_udp_ports(count: int) -> list[int]:
    """Return ports of the loopback address at which nobody listens just now."""
    channels = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for channel in channels:
        channel.bind(("127.0.0.1", 0))
    ports = [int(channel.getsockname()[1]) for channel in channels]
    for channel in channels:
        channel.close()
    return ports


def meeting(name: str, own: int, *others: int) -> dict[str, Any]:
    """Return the settings of a host whose beacons go to these ports."""
    return {
        "name": name,
        "adhoc_port": own,
        "adhoc_to": ",".join(f"127.0.0.1:{port}" for port in others),
        "adhoc_beacon_s": BEACON_S,
    }


async def until(look: Callable[[], Awaitable[T]], is_fine: Callable[[T], bool] = bool) -> T:
    """Look again until what is found is fine, and return it."""
    async with asyncio.timeout(ANSWER_S):
        while True:
            found = await look()
            if is_fine(found):
                return found
            await asyncio.sleep(0.02)

"""The threads in which a node runs what would block its loop: see `tidings.protocol.service`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tidings.node import logs
from tidings.protocol.service import BlockingCall

THREADS = {"io": 2, "compute": 1, "password": 2}
"""How many calls of a pool run at a time; the gate says how many passwords may wait."""

Conclude = Callable[[BlockingCall, BaseException | None, Any], None]
"""Called on the loop with what a call has raised, or returned."""


class Threads:
    """All pools of a node; a thread is started when it is first needed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, conclude: Conclude) -> None:
        self._loop = loop
        self._conclude = conclude
        self._pools = {pool: ThreadPoolExecutor(count, f"tidings {pool}") for pool, count in THREADS.items()}

    def run(self, call: BlockingCall) -> None:
        """Run a call in a thread of its pool, and conclude it on the loop."""

        def tell(ran: Future[Any]) -> None:
            if not ran.cancelled():
                self._loop.call_soon_threadsafe(self._ran, call, ran)

        self._pools[call.pool].submit(call.run).add_done_callback(tell)

    def _ran(self, call: BlockingCall, ran: Future[Any]) -> None:
        error = ran.exception()
        if error is not None and call.pool == "password":  # by its kind alone, as it is about a secret
            logs.error("a fault in tidings", problem=type(error).__name__)
        self._conclude(call, error, None if error else ran.result())

    async def close(self) -> None:
        """Wait for the calls that run, and leave the others."""
        for pool in self._pools.values():
            await asyncio.to_thread(pool.shutdown, cancel_futures=True)

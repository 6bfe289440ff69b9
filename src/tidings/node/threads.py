"""Threads beside the loop of a node: for calls that would block it (`protocol.service`), and a database's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tidings.node import logs
from tidings.postgres import open_postgres
from tidings.protocol.service import BlockingCall

if TYPE_CHECKING:
    from tidings.node.driver import Driver
    from tidings.postgres.backend import SharedQueues

THREADS = {"io": 2, "compute": 1, "password": 2}
"""How many calls of a pool run at a time; the authenticator says how many passwords may wait."""

Conclude = Callable[[BlockingCall, BaseException | None, Any], None]
"""Called on the loop with what a call has raised, or returned."""


class Threads:
    """All pools of a node; a thread is started when it is first needed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, conclude: Conclude) -> None:
        self._loop = loop
        self._conclude = conclude
        self.running = 0  # calls that are not concluded
        self._pools = {pool: ThreadPoolExecutor(count, f"tidings {pool}") for pool, count in THREADS.items()}

    def run(self, call: BlockingCall) -> None:
        """Run a call in a thread of its pool, and conclude it on the loop."""

        def conclude(ran: Future[Any]) -> None:
            if not ran.cancelled():
                self._loop.call_soon_threadsafe(self._ran, call, ran)

        self.running += 1
        self._pools[call.pool].submit(call.run).add_done_callback(conclude)

    def _ran(self, call: BlockingCall, ran: Future[Any]) -> None:
        self.running -= 1
        error = ran.exception()
        if error is not None and call.pool == "password":  # by its kind alone, as it is about a secret
            logs.error("a fault in tidings", problem=type(error).__name__)
        self._conclude(call, error, None if error else ran.result())

    async def close(self) -> None:
        """Wait for the calls that run, and leave the others."""
        for pool in self._pools.values():
            await asyncio.to_thread(pool.shutdown, cancel_futures=True)


class SharedDatabase:
    """The queues of one database; made on the loop of the node, and closed before the driver is."""

    def __init__(self, conninfo: str, driver: Driver) -> None:
        """ConfigError for what is no conninfo, MissingExtra; a database that is away is waited for."""
        self._driver = driver
        self._loop = asyncio.get_running_loop()
        self.queues: SharedQueues = open_postgres(conninfo, driver.broker.node, self._call, self._report)
        driver.core.queues.backends.append(self.queues)

    def _call(self, act: Callable[[], None]) -> None:
        """Called in the thread of the database: have something done on the loop."""
        self._loop.call_soon_threadsafe(self._act, act)

    def _act(self, act: Callable[[], None]) -> None:
        if not self._driver.is_closed:
            self._driver.time()
            act()
            self._driver.schedule()

    def _report(self, problem: str | None) -> None:
        if problem is None:
            logs.info("the database is there", database=repr(self.queues))
        else:
            logs.warning("the database is away", database=repr(self.queues), problem=problem)

    async def close(self) -> None:
        """Give back all that clients of this node hold there."""
        await asyncio.to_thread(self.queues.close)

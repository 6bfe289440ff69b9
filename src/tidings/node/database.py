"""The queues of a database beside those of a node: its thread and the loop of the node, joined."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidings.node import logs
from tidings.node.driver import Driver
from tidings.postgres import open_postgres

if TYPE_CHECKING:
    from tidings.postgres.shared import SharedQueues


class Database:
    """The queues of one database; made on the loop of the node, and closed before the driver is."""

    def __init__(self, conninfo: str, driver: Driver) -> None:
        """ConfigError for what is no conninfo, MissingExtra; a database that is away is waited for."""
        self._driver = driver
        self._loop = asyncio.get_running_loop()
        self.queues: SharedQueues = open_postgres(conninfo, driver.broker.node, self._call, self._tell)
        driver.core.queues.backends.append(self.queues)

    def _call(self, act: Callable[[], None]) -> None:
        """Called in the thread of the database: have something done on the loop."""
        self._loop.call_soon_threadsafe(self._act, act)

    def _act(self, act: Callable[[], None]) -> None:
        if not self._driver.is_closed:
            self._driver.time()
            act()
            self._driver.schedule()

    def _tell(self, problem: str | None) -> None:
        if problem is None:
            logs.info("the database is there", database=repr(self.queues))
        else:
            logs.warning("the database is away", database=repr(self.queues), problem=problem)

    async def close(self) -> None:
        """Give back all that clients of this node hold there."""
        await asyncio.to_thread(self.queues.close)

"""Transactions: puts, gets and publications that take effect together or not at all.

    async with bus.transaction() as tx:
        order = await tx.get("orders", timeout_s=5)
        await tx.put("bills", "bill", of=order["number"])

It is committed at the clean end of the block and rolled back when the block raises. Other clients see its
puts from the commit on, the transaction itself at once; a rollback returns the messages that it got.
TransactionLost means that it ended before it could be committed: nothing of it took effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from tidings.client.get import Where, check_time
from tidings.client.message import Message
from tidings.client.put import Putter, event_of
from tidings.client.queue import Queue
from tidings.client.transaction_core import TransactionCore
from tidings.errors import UserError
from tidings.event import Event
from tidings.event.typed import Typed
from tidings.transport.link import Link

TRANSACTION_S = 30.0
"""Seconds that a transaction may take by default."""


class Transaction(TransactionCore):
    """Puts, gets and publications that take effect together or not at all; made by `Bus.transaction`.

    It is entered once, with `async with`: committed at the clean end of the block, else rolled back. A queue
    is given as an object or by its name.
    """

    def __init__(self, link: Link, named: Callable[[str], Queue], timeout_s: float | None) -> None:
        """`named` finds a queue by its name."""
        if check_time(timeout_s) == 0:
            raise UserError("timeout_s of a transaction must be more than 0")
        super().__init__(link, timeout_s)
        self._named = named
        self._publications = Putter(link, "")

    def _queue(self, queue: Queue | str) -> Queue:
        return queue if isinstance(queue, Queue) else self._named(queue)

    async def put(
        self,
        queue: Queue | str,
        event: Event | Typed | str,
        attributes: Mapping[str, object] | None = None,
        /,
        **fields: Any,
    ) -> None:
        """Put an event into a queue; see `Queue.put`."""
        await self._queue(queue).put(event, attributes, transaction=self, **fields)

    async def put_all(
        self,
        queue: Queue | str,
        events: Iterable[Event],
        *,
        delay_s: float | None = None,
        not_before: datetime | None = None,
        group: str | None = None,
    ) -> None:
        """Put many events into a queue; see `Queue.put_all`."""
        await self._queue(queue).put_all(
            events, delay_s=delay_s, not_before=not_before, group=group, transaction=self
        )

    async def publish(
        self, event: Event | Typed | str, attributes: Mapping[str, object] | None = None, /, **fields: object
    ) -> None:
        """Publish an event when the transaction commits."""
        await self._publications.put(event_of(event, attributes, fields), self, None)

    async def get(
        self,
        queue: Queue | str,
        where: Where = None,
        *,
        timeout_s: float | None = None,
        if_exists: bool = False,
    ) -> Message:
        """Get a message out of a queue; see `Queue.get`."""
        own = self._queue(queue)
        return await own.get(where, timeout_s=timeout_s, if_exists=if_exists, transaction=self)

    async def get_all(self, queue: Queue | str, where: Where = None) -> list[Message]:
        """Get all messages that match out of a queue; see `Queue.get_all`."""
        return await self._queue(queue).get_all(where, transaction=self)

    async def read(
        self,
        queue: Queue | str,
        where: Where = None,
        *,
        timeout_s: float | None = 0,
        if_exists: bool = False,
    ) -> Event:
        """Read a message, which other clients may read but not take until the end; see `Queue.read`."""
        own = self._queue(queue)
        return await own.read(where, timeout_s=timeout_s, if_exists=if_exists, transaction=self)

    async def read_all(self, queue: Queue | str, where: Where = None) -> list[Event]:
        """Read all messages that match; see `Queue.read_all`."""
        return await self._queue(queue).read_all(where, transaction=self)

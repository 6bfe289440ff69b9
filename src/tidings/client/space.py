"""A space: a queue addressed by content. An entry stays until it is taken or its lease ends.

    space = await bus.space("board")
    lease = await space.write(("temperature", "north", 21.5), lease_s=60)
    name, place, value = await space.take(("temperature", str, float), timeout_s=5)

It is a view of a queue and adds nothing to it: to write is to put, to take is to get, a lease is the `ttl_s`
of the message. An entry is an event, a mapping with a type, or a tuple of plain values. A template selects
entries: an example in which some fields are open, a filter or its text; None means any. `timeout_s` says how
long to wait for an entry, None without a limit; if none comes in time, the call raises QueueEmpty.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any, Self

from msgspec.structs import replace

from tidings.client.listener import Listener, OnError
from tidings.client.queue import PREFETCH_WATCH, Queue, WatchSlow
from tidings.client.subscription import Subscription
from tidings.client.transaction import Transaction
from tidings.client.transaction_core import TransactionCore
from tidings.client.tuples import OWN_ID, Entry, Like, Template, Written, found, template_of, written
from tidings.errors import QueueEmpty, UserError
from tidings.event import Event
from tidings.event.header import EMPTY_HEADER
from tidings.filters import Filter
from tidings.ids import StoredIds, make_id, new_system
from tidings.queues.description import SECONDS_MAX, Description
from tidings.timers import granted_s

ReactFunction = Callable[[Entry, Transaction], Awaitable[None]]
"""Called with an entry and the transaction that keeps it in its space."""


class Lease:
    """The time that an entry may stay in its space; made by `Space.write`."""

    def __init__(self, space: Space, identity: str, granted_s: float | None) -> None:
        self.granted_s = granted_s
        """Seconds from the grant, or from the commit of its transaction; None: without end."""
        self._space = space
        self._identity = identity

    async def renew(self, lease_s: float) -> float:
        """Renew the lease from now on and return the seconds granted, which the space may shorten.

        Raises MessageNotHeld if the entry is gone or in a transaction, or its own is not committed yet.
        """
        self._space.check_lease(lease_s)
        self.granted_s = await self._space.queue.renew(self._identity, lease_s)
        return self.granted_s

    async def cancel(self) -> None:
        """Remove the entry now; raises MessageNotHeld as `renew` does."""
        self.granted_s = await self._space.queue.renew(self._identity, 0)

    def __repr__(self) -> str:
        granted = "without end" if self.granted_s is None else f"{self.granted_s:g} s"
        return f"<Lease {granted}>"


class Space:
    """A queue addressed by content; made by `Bus.space`. Every operation can be part of a transaction."""

    def __init__(self, queue: Queue, transaction: Callable[[], Transaction]) -> None:
        """`transaction` makes one at this node."""
        self.queue = queue
        """The queue that it is a view of."""
        self._transaction = transaction
        # Every entry has an id of its own, by which its lease is found.
        self._ids = StoredIds(OWN_ID + new_system(os.urandom), 0)

    def __repr__(self) -> str:
        return f"<Space {self.name!r}>"

    @property
    def name(self) -> str:
        """The name that the client used."""
        return self.queue.name

    @property
    def description(self) -> Description:
        """The description of the queue that the node last returned."""
        return self.queue.description

    # Templates

    def template(self, like: Like = None, /, **fields: Any) -> Template:
        """Make a template from any form of one and named fields: `template(type="shape", radius=float)`."""
        return Template(like, **fields)

    def snapshot(self, template: Like) -> Template:
        """Return the template compiled, for repeated use in any space."""
        return template_of(template)

    # Writing

    async def write(
        self,
        entry: Written,
        lease_s: float | None = None,
        transaction: TransactionCore | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Lease:
        """Write an entry; it is in the space on return, and visible to others when the transaction commits.

        It may stay for `lease_s` seconds; if that is None, for its own `ttl_s`, or the default of the space.
        The lease holds the time granted.
        """
        event = written(entry)
        lease_s = self._lease_of(event, lease_s)
        header = event.header or EMPTY_HEADER
        identity = header.id
        if identity is None or identity.startswith(OWN_ID):
            origin = self._ids.origin
            identity = make_id(origin.system or "", origin.epoch, self._ids.next_counter())
        header = replace(header, id=identity, ttl_s=lease_s)
        await self.queue.put(replace(event, header=header), transaction=transaction, timeout_s=timeout_s)
        return Lease(self, identity, self._granted(lease_s))

    def _lease_of(self, event: Event, lease_s: float | None) -> float | None:
        if lease_s is not None:
            self.check_lease(lease_s)
            return float(lease_s)
        if event.ttl_s is not None:
            _check_seconds("ttl_s", event.ttl_s)
        return event.ttl_s

    def check_lease(self, lease_s: float) -> None:
        """Raise UserError if the value is no lease, or entries of this space never expire."""
        _check_seconds("lease_s", lease_s)
        if not self.description.expiry:
            raise UserError(f"lease_s={lease_s!r}: entries of {self.name!r} never expire (expiry=False)")

    def _granted(self, lease_s: float | None) -> float | None:
        """The seconds that the node grants for a lease."""
        about = self.description
        if not about.expiry:
            return None
        return granted_s(about.ttl_s if lease_s is None else lease_s, about.lease_s_max)

    # Reading and taking

    async def read(
        self,
        template: Like = None,
        *,
        timeout_s: float | None = None,
        transaction: TransactionCore | None = None,
    ) -> Entry:
        """Read the first matching entry, which stays; in a transaction no one else takes it until the end."""
        where = template_of(template).where
        return found(await self.queue.read(where, timeout_s=timeout_s, transaction=transaction))

    async def take(
        self,
        template: Like = None,
        *,
        timeout_s: float | None = None,
        transaction: TransactionCore | None = None,
    ) -> Entry:
        """Take the first matching entry; it comes back if the transaction is rolled back."""
        where = template_of(template).where
        message = await self.queue.get(where, timeout_s=timeout_s, transaction=transaction)
        return found(message.event)

    async def read_if_exists(
        self,
        template: Like = None,
        *,
        timeout_s: float | None = None,
        transaction: TransactionCore | None = None,
    ) -> Entry:
        """Read as `read` does, but wait only while a matching entry is in others' transactions."""
        where = template_of(template).where
        event = await self.queue.read(where, timeout_s=timeout_s, if_exists=True, transaction=transaction)
        return found(event)

    async def take_if_exists(
        self,
        template: Like = None,
        *,
        timeout_s: float | None = None,
        transaction: TransactionCore | None = None,
    ) -> Entry:
        """Take as `take` does, but wait only while a matching entry is in others' transactions."""
        where = template_of(template).where
        message = await self.queue.get(where, timeout_s=timeout_s, if_exists=True, transaction=transaction)
        return found(message.event)

    # All at once

    async def scan(self, template: Like = None, *, transaction: TransactionCore | None = None) -> list[Entry]:
        """Read all matching entries that are there now; they stay."""
        events = await self.queue.read_all(template_of(template).where, transaction=transaction)
        return [found(event) for event in events]

    async def take_all(
        self, template: Like = None, *, transaction: TransactionCore | None = None
    ) -> list[Entry]:
        """Take all matching entries that are there now."""
        messages = await self.queue.get_all(template_of(template).where, transaction=transaction)
        return [found(message.event) for message in messages]

    async def count(self, template: Like = None, *, transaction: TransactionCore | None = None) -> int:
        """Count the matching entries, without those that others' transactions have taken.

        In a transaction its own entries count too, and no other client takes a counted entry until the end.
        """
        if transaction is not None:
            return len(await self.scan(template, transaction=transaction))
        if template is None:
            return (await self.queue.describe()).messages
        return len(await self.queue.headers(template_of(template).where))

    # Watching

    def watch(
        self,
        template: Like = None,
        *,
        on_slow: WatchSlow = "drop-oldest",
        slow_key: str | None = None,
        prefetch: int = PREFETCH_WATCH,
        timeout_s: float | None = None,
    ) -> Watch:
        """Watch for matching entries that are written from now on: an async iterator inside `async with`.

        Each is delivered once, when its transaction commits, and stays in the space. The options are those of
        `Queue.watch`.
        """
        where = template_of(template).where
        copies = self.queue.watch(
            where, on_slow=on_slow, slow_key=slow_key, prefetch=prefetch, timeout_s=timeout_s
        )
        return Watch(copies)

    def react(self, template: Like, function: ReactFunction, *, on_error: OnError | None = None) -> Listener:
        """Call a coroutine function with each matching entry that is written from now on, in `async with`.

        It is a strong reaction: the function gets the entry and a transaction in which it was read, so that
        no other client takes the entry before the function has returned, and all that it does in the
        transaction takes effect then, together. An entry that is gone before that is passed over. The space
        has to be at this node. If the function raises, the transaction is rolled back; for `on_error` see
        `Bus.listen`.
        """

        async def call(copy: Event) -> None:
            async with self._transaction() as transaction:
                same = Filter("id = :id", id=copy.id)
                try:
                    event = await self.queue.read(
                        same, timeout_s=None, if_exists=True, transaction=transaction
                    )
                except QueueEmpty:
                    return
                await function(found(event), transaction)

        return Listener(self.queue.watch(template_of(template).where), call, on_error, None)


class Watch:
    """Entries as they are written; made by `Space.watch`."""

    def __init__(self, copies: Subscription) -> None:
        self.copies = copies
        """The subscription that delivers the entries and counts gaps."""

    async def __aenter__(self) -> Self:
        await self.copies.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        await self.copies.__aexit__(kind, *rest)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Entry:
        return found(await self.copies.__anext__())

    async def take(self) -> list[Entry]:
        """Return all entries that have arrived; waits for at least one."""
        return [found(event) for event in await self.copies.take()]


def _check_seconds(name: str, seconds: float) -> None:
    if type(seconds) not in (int, float) or not 0 < seconds <= SECONDS_MAX:
        raise UserError(f"{name}={seconds!r}: must be more than 0 and at most {SECONDS_MAX:g} seconds")

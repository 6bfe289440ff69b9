"""A federated space: the spaces of one name at a node and at its peers, used as one while they are connected.

    trip = await bus.space("trip", federated=True)
    await trip.write(("seen", "heron"))                at this node
    await trip.write(("call", "ben"), to="kitchen")    at that node, as soon as it can be reached
    place, = (await trip.take(("seen", str)))[1:]      from whichever node has one first

Each node keeps its own entries; what is merged is the search. A call asks all spaces side by side, its own
node's and those that the last call has found, and looks for further ones at once and every LOOK_S while it
waits, so nodes engage and disengage without further notice. The rule kept: an entry is taken once. A `take`
holds an entry before it acknowledges it, keeps the first that comes and gives the others back unread; if the
node that has it is cut off just then, the call raises Disconnected, and the entry may have been taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import chain
from math import inf
from typing import Generic, NamedTuple, Self, TypeVar

from tidings.client.message import Holder, Message, acknowledge
from tidings.client.queue import GET_TRIES_MAX
from tidings.client.space import Lease, Space
from tidings.client.transaction import Transaction
from tidings.client.tuples import Entry, Like, Written, found, template_of
from tidings.errors import (
    Disconnected,
    MessageNotHeld,
    NoAnswer,
    NotAllowed,
    QueueEmpty,
    QueueError,
)
from tidings.protocol.messages import UNOPENED
from tidings.queues.description import TRANSMISSION, Description

LOOK_S = 1.0
"""How often a call that waits looks for further spaces of its name."""
MOVED_AT_ONCE = 100
"""Entries that are moved in one transaction."""
WATCHED_MAX = 1_000
"""Entries of all nodes that wait to be returned by a watch; the rest wait at the nodes."""

Found = TypeVar("Found")
Lookup = Callable[..., Awaitable[list[Description]]]
"""`Bus.lookup`."""

_PARTED = (QueueError, Disconnected, NoAnswer, NotAllowed)
"""Errors of a space at another node after which the search goes on without it."""


class Engagement(NamedTuple):
    """A node whose space has become part of a federated one, or is so no longer."""

    node: str
    is_engaged: bool


class _HeldEntry(NamedTuple):
    """An entry that was taken and not acknowledged yet."""

    holder: Holder
    message: Message

    def give_back(self) -> None:
        self.holder.say_all([self.message], UNOPENED)


class FederatedSpace:
    """The spaces of one name at this node and its peers; made by `Bus.space` with `federated=True`.

    With `at`, a call is bound to the space of one node, and raises what that raises.
    """

    def __init__(
        self,
        own: Space,
        lookup: Lookup,
        named: Callable[[Space, str], Space],
        transaction: Callable[[], Transaction],
    ) -> None:
        """`named` makes a space like another, by the address of its queue."""
        self.own = own
        """The space at this node, for calls in transactions."""
        self._lookup = lookup
        self._named = named
        self._transaction = transaction
        self.engaged: dict[str, Space] = {}
        """The spaces of other nodes that were part of it when that was asked last."""

    def __repr__(self) -> str:
        return f"<FederatedSpace {self.own.name!r}>"

    async def nodes(self) -> list[str]:
        """Return the names of the other nodes whose spaces are part of it now."""
        return sorted(await self.spaces())

    async def engagements(self) -> AsyncIterator[Engagement]:
        """Yield the nodes whose spaces are part of it, then each that engages or disengages."""
        known: set[str] = set()
        while True:
            now = set(await self.spaces())
            for node in sorted(now ^ known):
                yield Engagement(node, node in now)
            known = now
            await asyncio.sleep(LOOK_S)

    async def spaces(self) -> dict[str, Space]:
        """Return the spaces of other nodes that are part of it now, by the names of these."""
        others = await self._lookup(self.own.name, scope="remote")
        self.engaged = {one.node: self._at(one.node) for one in others}
        return self.engaged

    def _at(self, node: str) -> Space:
        return self._named(self.own, f"{self.own.name}@{node}")

    # Writing

    async def write(
        self,
        entry: Written,
        lease_s: float | None = None,
        *,
        to: str | None = None,
        timeout_s: float | None = None,
    ) -> Lease:
        """Write an entry at this node, or `to` another one.

        While that can't be reached the entry is misplaced: stored here, and moved there once it can. Nobody
        takes it before it has arrived; its lease begins there.
        """
        space = self.own if to is None else self._at(to)
        return await space.write(entry, lease_s, timeout_s=timeout_s)

    async def misplaced(self, template: Like = None) -> dict[str, list[Entry]]:
        """Return the matching entries that wait here for other nodes, by the names of these."""
        prefix = f"{TRANSMISSION}{self.own.name}@"
        queues = [one.name for one in await self._lookup() if one.name.startswith(prefix) and one.messages]
        waiting = {name: await self._named(self.own, name).scan(template) for name in queues}
        return {name.removeprefix(prefix): entries for name, entries in waiting.items() if entries}

    async def move(self, to: str) -> int:
        """Move all entries at this node to another one, and return their number; their leases begin anew.

        Each is at one of the two nodes at any time, or on its way, whatever is cut or killed meanwhile.
        """
        target, moved = self._at(to), 0
        while True:
            async with self._transaction() as transaction:
                count = await self._move_some(target, transaction)
            moved += count
            if count < MOVED_AT_ONCE:
                return moved

    async def _move_some(self, target: Space, transaction: Transaction) -> int:
        for count in range(MOVED_AT_ONCE):
            try:
                message = await self.own.queue.get(timeout_s=0, transaction=transaction)
            except QueueEmpty:
                return count
            await target.queue.put(message.event, transaction=transaction)
        return MOVED_AT_ONCE

    # Reading and taking

    async def read(
        self, template: Like = None, *, timeout_s: float | None = None, at: str | None = None
    ) -> Entry:
        """Read a matching entry of any node, which stays; raises QueueEmpty if none comes in time."""
        if at is not None:
            return await self._at(at).read(template, timeout_s=timeout_s)
        template = template_of(template)
        search = _FederatedSearch(self, lambda space, left_s: space.read(template, timeout_s=left_s), _ignore)
        return await search.first(timeout_s)

    async def take(
        self, template: Like = None, *, timeout_s: float | None = None, at: str | None = None
    ) -> Entry:
        """Take a matching entry of any node; raises QueueEmpty if none comes in time.

        Disconnected means that the node that had it is cut off, and that it may have been taken.
        """
        if at is not None:
            return await self._at(at).take(template, timeout_s=timeout_s)
        where = template_of(template).where
        ends = _ends(timeout_s)

        async def hold(space: Space, left_s: float | None) -> _HeldEntry:
            return _HeldEntry(*await space.queue.hold(where, timeout_s=left_s))

        for _ in range(GET_TRIES_MAX):
            held = await _FederatedSearch(self, hold, _HeldEntry.give_back).first(_left_s(ends))
            if await acknowledge(held.holder, [held.message]):
                return found(held.message.event)
        problem = f"{GET_TRIES_MAX} entries went back before they were acknowledged"
        raise MessageNotHeld(self.own.name, problem)

    async def scan(self, template: Like = None) -> list[Entry]:
        """Read all matching entries that are at connected nodes now; they stay."""
        return list(chain.from_iterable(await self._everywhere(lambda one: one.scan(template))))

    async def count(self, template: Like = None) -> int:
        """Count the matching entries at connected nodes."""
        return sum(await self._everywhere(lambda one: one.count(template)))

    async def _everywhere(self, call: Callable[[Space], Awaitable[Found]]) -> list[Found]:
        """Return what a call returns for the own space and for those of other nodes that answer."""
        others = await self.spaces()
        own, *rest = await asyncio.gather(
            call(self.own), *(call(others[node]) for node in sorted(others)), return_exceptions=True
        )
        if isinstance(own, BaseException):
            raise own
        results = [own]
        for one in rest:
            if not isinstance(one, BaseException):
                results.append(one)
            elif not isinstance(one, _PARTED):
                raise one
        return results

    # Reacting

    def watch(self, template: Like = None) -> FederatedWatch:
        """Watch for matching entries that are written at any node: an async iterator inside `async with`.

        It is a weak reaction: each entry is returned after it was written, and may be gone by then. What is
        written at a node before it engages, or while it is cut off, is not returned.
        """
        return FederatedWatch(self, template_of(template))


class _FederatedSearch(Generic[Found]):
    """One call at all spaces of a federated one, side by side: the first result counts, others are undone."""

    def __init__(
        self,
        space: FederatedSpace,
        call: Callable[[Space, float | None], Awaitable[Found]],
        undo: Callable[[Found], None],
    ) -> None:
        self._space = space
        self._call = call
        self._undo = undo
        self._asked: dict[asyncio.Task[Found], str] = {}  # the node of each; "" is the own one
        self._looking: asyncio.Task[dict[str, Space]] | None = None

    async def first(self, timeout_s: float | None) -> Found:
        """Return the first result; raises QueueEmpty if no space has one in time."""
        clock, ends = asyncio.get_running_loop().time, _ends(timeout_s)
        for node, space in {"": self._space.own, **self._space.engaged}.items():
            self._ask(node, space, timeout_s)
        look_at = clock()
        try:
            while True:
                now = clock()
                if self._looking is None and now >= look_at:
                    self._looking = asyncio.ensure_future(self._space.spaces())
                    look_at = now + LOOK_S if now < ends else inf  # with a time limit of 0, once
                await asyncio.wait(
                    [*self._asked, *([self._looking] if self._looking else [])],
                    timeout=None if now >= ends else max(0.0, min(look_at, ends) - now),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in [one for one in self._asked if one.done()]:
                    if self._has_result(task):
                        return task.result()
                self._engage(_left_s(ends))
                if clock() >= ends and not self._asked and self._looking is None:
                    name = self._space.own.name
                    raise QueueEmpty(name, "no matching entry, here or at connected nodes")
        finally:
            self._end()

    def _ask(self, node: str, space: Space, left_s: float | None) -> None:
        task = asyncio.ensure_future(self._call(space, left_s))
        self._asked[task] = node

    def _has_result(self, task: asyncio.Task[Found]) -> bool:
        """Whether a call has found something; the own node's errors are raised."""
        node, error = self._asked.pop(task), task.exception()
        if error is None or isinstance(error, QueueEmpty):
            return error is None
        if not node or not isinstance(error, _PARTED):
            raise error
        return False

    def _engage(self, left_s: float | None) -> None:
        """Ask spaces that were found since, and those again that were cut off."""
        if self._looking is None or not self._looking.done():
            return
        spaces, self._looking = self._looking.result(), None
        for node in spaces.keys() - set(self._asked.values()):
            self._ask(node, spaces[node], left_s)

    def _end(self) -> None:
        """End the other calls; what they find nevertheless is undone."""
        if self._looking is not None:
            self._looking.cancel()
        for task in self._asked:
            task.add_done_callback(self._discard)
            task.cancel()

    def _discard(self, task: asyncio.Task[Found]) -> None:
        if not task.cancelled() and task.exception() is None:
            self._undo(task.result())


class FederatedWatch:
    """Entries as they are written at any node; made by `FederatedSpace.watch`."""

    def __init__(self, space: FederatedSpace, template: Like) -> None:
        self._space = space
        self._template = template
        self._entries: asyncio.Queue[Entry | BaseException] = asyncio.Queue(WATCHED_MAX)
        self._watching: dict[str, asyncio.Task[None]] = {}  # by node; "" is the own one
        self._engaging: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        for node, space in {"": self._space.own, **await self._space.spaces()}.items():
            await self._begin(node, space)
        self._engaging = asyncio.create_task(self._engage())
        return self

    async def _begin(self, node: str, space: Space) -> None:
        """Watch a space from now on; another node's that is cut off is left out."""
        entries = space.watch(self._template)
        try:
            await entries.__aenter__()
        except _PARTED:
            if not node:
                raise
            return

        async def pass_on() -> None:
            try:
                async for entry in entries:
                    await self._entries.put(entry)
            except _PARTED as error:
                if not node:
                    await self._entries.put(error)
            finally:
                self._watching.pop(node, None)
                await entries.__aexit__(None, None, None)

        self._watching[node] = asyncio.create_task(pass_on())

    async def _engage(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                spaces = await self._space.spaces()
            except _PARTED as error:
                await self._entries.put(error)
                return
            for node in spaces.keys() - self._watching.keys():
                await self._begin(node, spaces[node])

    async def __aexit__(self, *_: object) -> None:
        tasks = [*self._watching.values(), *([self._engaging] if self._engaging else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Entry:
        entry = await self._entries.get()
        if isinstance(entry, BaseException):
            raise entry
        return entry


def _ends(timeout_s: float | None) -> float:
    """When a time limit is over, by the clock of the loop."""
    return inf if timeout_s is None else asyncio.get_running_loop().time() + timeout_s


def _left_s(ends: float) -> float | None:
    return None if ends == inf else max(0.0, ends - asyncio.get_running_loop().time())


def _ignore(_found: object) -> None:
    """A read leaves nothing to be undone."""

"""Assertions about events, which say what came nearest when they fail.

`published` receives all events while its block runs and compares them here, so that it can say which
condition those that do not match fail. Where the loop goes by a virtual clock, waiting skips time. The rule
kept: an assertion that fails names the filter, and the nearest events with the reasons.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from heapq import nsmallest
from typing import Any, Self, TypeVar, overload

from tidings.client import blocking
from tidings.client.bus import Bus
from tidings.client.queue import Queue
from tidings.client.subscription import Subscription
from tidings.errors import TidingsError, UserError
from tidings.event import Event
from tidings.filters import Filter
from tidings.testing.clock import VirtualClock

WITHIN_S = 5.0
"""Seconds that an assertion waits for what must become true, by default."""
POLL_S = 0.02
"""Seconds between two looks of `eventually`."""
SHOWN = 3
"""Events that the message of an assertion shows."""
SEEN_MAX = 100_000
"""Events of one block that are kept to be compared; of more, the first are forgotten unless they match."""

T = TypeVar("T")


class Published(Sequence[Event]):
    """The events that matched, once the block has ended; made by `published`."""

    def __init__(self, bus: Bus | blocking.Bus, filter: Filter, count: int | None, within_s: float) -> None:
        self._front = bus if isinstance(bus, blocking.Bus) else None
        self._bus = bus._inner if isinstance(bus, blocking.Bus) else bus
        self._filter = filter
        self._count = count
        self._within_s = within_s
        self._found: list[Event] = []
        self._others: list[Event] = []
        self._subscription: Subscription | None = None

    @overload
    def __getitem__(self, at: int) -> Event: ...
    @overload
    def __getitem__(self, at: slice) -> list[Event]: ...
    def __getitem__(self, at: int | slice) -> Event | list[Event]:
        return self._found[at]

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Event]:
        return iter(self._found)

    def __repr__(self) -> str:
        return f"<published {str(self._filter)!r}: {self._found}>"

    # The block

    async def __aenter__(self) -> Self:
        if self._subscription is not None:
            raise UserError("published(…) can be entered once; call it again")
        self._subscription = self._bus.subscribe(passive=True)
        await self._subscription.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        subscription = self._subscription
        assert subscription is not None
        try:
            if kind is None:
                await self._collect(subscription)
        finally:
            await subscription.__aexit__(kind, *rest)
        if kind is None:
            self._check(subscription.dropped)

    def __enter__(self) -> Self:
        if self._front is None:
            raise UserError("published(…) needs `async with`, unless the bus is one of tidings.blocking")
        self._front._runner.run(self.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        assert self._front is not None
        self._front._runner.run(self.__aexit__(kind, *rest))

    # What arrived

    async def _collect(self, subscription: Subscription) -> None:
        """Take what arrived in the block, and wait while too little of it matches."""
        await self._take_arrived(subscription)
        wanted = 1 if self._count is None else self._count
        clock = VirtualClock.running()
        waiting = self._wait(subscription, wanted)
        await (waiting if clock is None else clock.run(waiting))
        await self._take_arrived(subscription)

    async def _take_arrived(self, subscription: Subscription) -> None:
        # The reply comes behind everything that this client has published.
        await self._bus.status()
        while subscription.pending:
            self._sort(await subscription.take())

    async def _wait(self, subscription: Subscription, wanted: int) -> None:
        with suppress(TimeoutError):  # which the check will find
            async with asyncio.timeout(self._within_s):
                while len(self._found) < wanted:
                    self._sort(await subscription.take())

    def _sort(self, events: list[Event]) -> None:
        for event in events:
            (self._found if self._filter.matches(event) else self._others).append(event)
        del self._others[:-SEEN_MAX]

    def _check(self, dropped: int) -> None:
        """Raise AssertionError if not as many matched as should."""
        found = len(self._found)
        if found == self._count or (self._count is None and found):
            return
        if self._count is not None and found > self._count:
            shown = "".join(f"\n  {event!r}" for event in self._found[:SHOWN])
            raise AssertionError(
                f"expected {_events(self._count)} to match `{self._filter}`, got {found}:{shown}"
            )
        expected = "an event" if self._count is None else _events(self._count)
        missing = f"expected {expected} to match `{self._filter}` within {self._within_s:g} s"
        lost = f"\n  {_events(dropped)} dropped by the node, as too many came at once" if dropped else ""
        near = _nearest(self._filter, self._others) or "nothing else was published"
        raise AssertionError(f"{missing}, got {found}; {near}{lost}")


def published(
    bus: Bus | blocking.Bus,
    filter: Filter | str = "",
    *,
    count: int | None = None,
    within_s: float = WITHIN_S,
    **parameters: Any,
) -> Published:
    """Assert that events which match the filter are published while the block runs.

    For example::

        async with published(bus, "type = 'alarm' AND level > :limit", limit=2) as alarms:
            await program(bus)
        assert alarms[0]["sensor"] == "quay"

    At the end of the block it waits up to `within_s` for the first match, or until `count` events have
    matched; with a `count`, more matches fail too, and `count=0` asserts that none matches. It raises
    AssertionError, which explains why the nearest events do not match. The bus may be one of
    `tidings.blocking`, then without `async`. Events of other clients count as well.
    """
    if isinstance(filter, Filter) and parameters:
        raise UserError(f"a Filter has its parameters already: {', '.join(parameters)}; give text instead")
    wanted = filter if isinstance(filter, Filter) else Filter(filter, **parameters)
    return Published(bus, wanted, count, within_s)


async def queued(queue: Queue, filter: Filter | str = "", **parameters: Any) -> Event:
    """Return the first message in a queue that matches, without its body, and leave it there.

    Raises AssertionError, which explains why the nearest messages do not match. To wait for one:
    `await eventually(lambda: queued(jobs, "n = 3"))`.
    """
    wanted = filter if isinstance(filter, Filter) else Filter(filter, **parameters)
    messages = await queue.headers()
    for event in messages:
        if wanted.matches(event):
            return event
    near = _nearest(wanted, messages) or "nothing else is in it"
    raise AssertionError(f"expected a message in {queue.name!r} to match `{wanted}`; {near}")


async def eventually(check: Callable[[], Awaitable[T] | T], *, within_s: float = WITHIN_S) -> T:
    """Call a function, or await a coroutine function, again and again until it returns something true.

    An AssertionError or TidingsError that it raises counts as false. After `within_s`, the last of them is
    raised, or an AssertionError with what was returned last.
    """
    clock = VirtualClock.running()
    patience = _Patience(check, asyncio.get_running_loop().time, within_s)
    while True:
        try:
            outcome = check()
            value: T = await outcome if inspect.isawaitable(outcome) else outcome
        except (AssertionError, TidingsError) as error:
            patience.wait_after(error)
        else:
            if value:
                return value
            patience.wait_after(value)
        await (asyncio.sleep(POLL_S) if clock is None else clock.advance(POLL_S))


def eventually_blocking(
    check: Callable[[], T], *, within_s: float = WITHIN_S, clock: VirtualClock | None = None
) -> T:
    """Do the same in a test without a loop; with a clock, its time is skipped."""
    patience = _Patience(check, time.monotonic if clock is None else clock.time, within_s)
    while True:
        try:
            value = check()
        except (AssertionError, TidingsError) as error:
            patience.wait_after(error)
        else:
            if value:
                return value
            patience.wait_after(value)
        (time.sleep if clock is None else clock.advance_blocking)(POLL_S)


class _Patience:
    """Time limit of `eventually`."""

    def __init__(self, check: Callable[[], Any], now: Callable[[], float], within_s: float) -> None:
        self._check = check
        self._now = now
        self._within_s = within_s
        self._ends_at = now() + within_s

    def wait_after(self, outcome: object) -> None:
        """Return if there is time for another attempt, else raise the error or value of the last."""
        if self._now() < self._ends_at:
            return
        if isinstance(outcome, Exception):
            outcome.add_note(f"still so after {self._within_s:g} s")
            raise outcome
        name = getattr(self._check, "__name__", repr(self._check))
        raise AssertionError(f"{name} still returns {outcome!r} after {self._within_s:g} s")


def _nearest(filter: Filter, events: Sequence[Event]) -> str:
    """Say of the events that come nearest why they do not match, the newest first; nothing of none."""
    if not events:
        return ""
    explained = ((filter.explain(event), event) for event in reversed(events))
    near = nsmallest(SHOWN, explained, key=lambda pair: pair[0].distance)
    lines = "".join(f"\n  {event.type}: {explanation}" for explanation, event in near)
    return f"the nearest of {_events(len(events))}:{lines}"


def _events(count: int) -> str:
    return "1 event" if count == 1 else f"{count} events"

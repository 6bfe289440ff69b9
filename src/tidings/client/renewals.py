"""Leases of the agents of a program, renewed while its location sees them alive.

The location, and not the agent, asks for more: so an agent that computes for minutes without a pause is no
orphan. Renewals run in a thread with a connection of their own, which a loop that stands still does not hold
up; where the node is in this process, in its loop. If nobody can be asked, the lease is used up, and the
agent ends by that.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from tidings.agents.arguments import TOGETHER_MAX, LeaseTerms
from tidings.agents.orphans import LeaseAnswer, LeaseHolder, NoticeSender
from tidings.client.runner import Runner
from tidings.client.sessions import read_as
from tidings.errors import Disconnected, NoAnswer, TidingsError
from tidings.timers import Timers
from tidings.transport.link import Link

if TYPE_CHECKING:
    from tidings.client.bus import Bus

ASK_S_MAX = 10.0
"""How long an answer is waited for, at most; then nobody could be asked."""
LEAVING_MAX = 1_000
TOGETHER_S = 0.005
"""Leases that are due within so long are asked for together, where there are many."""
OnOrder = Callable[[str, float], None]
"""Called in the loop of the bus with the reason and the grace, when an agent has to end."""


class HeldLife:
    """One life of an agent at this location, its lease, and its notices if the group has times for them."""

    def __init__(self, terms: LeaseTerms, cookie: str, where: str, on_order: OnOrder) -> None:
        self.terms = terms
        self.cookie = cookie
        self.where = where
        self.on_order = on_order
        now = time.monotonic()
        self.holder = LeaseHolder(terms.lease_s, random.random, now)
        self._notices = None if terms.notice_s is None else NoticeSender(terms.notice_s, now)

    @property
    def wake_at(self) -> float:
        """When to ask, or to end the agent; never once it is released."""
        holder, notices = self.holder, self._notices
        notice_at = inf if notices is None or holder.is_released else notices.wake_at
        return min(holder.wake_at, notice_at)

    def takes(self, terms: LeaseTerms) -> bool:
        """Take an answer for what it is: that of a home which another has replaced does not count."""
        if terms.generation < self.terms.generation:
            return False
        self.terms = terms
        return True

    def said(self, terms: LeaseTerms) -> None:
        """It has done something, and got its terms: that counts as a notice."""
        self.takes(terms)
        if self._notices is not None:
            self._notices.said(time.monotonic())

    def asks(self, now: float) -> bool:
        """Whether to ask now: it has to, or a notice is due, which asks for more, too."""
        is_notice_due = self._notices is not None and not self.holder.is_released and self._notices.wake(now)
        if self.holder.asks(now):
            return True
        if is_notice_due:
            self.holder.ask(now)
        return is_notice_due

    def asked(self, now: float) -> None:
        """It is asked for with others: that is a notice, too."""
        self.holder.ask(now)
        if self._notices is not None:
            self._notices.said(now)

    def is_with(self, other: HeldLife, now: float) -> bool:
        """Whether another life, which may go on, is asked for with this one."""
        is_live = not (other.holder.is_released or other.holder.is_over(now))
        return is_live and other.terms.group == self.terms.group

    @property
    def arguments(self) -> dict[str, Any]:
        """How it is named in requests."""
        terms = self.terms
        about = {"agent": terms.agent, "life": terms.life, "cookie": self.cookie, "where": self.where}
        return {**about, "generation": terms.generation}


class Renewals:
    """Renews the leases of a bus, from when the first life is added until `close`."""

    def __init__(self, link: Link, twin: Callable[[], Bus | None]) -> None:
        self.leaving = asyncio.Semaphore(LEAVING_MAX)
        """To be held while the node is told of an end: very many agents may end at once."""
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._lives: dict[HeldLife, None] = {}
        self._added: deque[HeldLife] = deque()  # by the loop of the bus, for that of the thread
        self._due: Timers[HeldLife] = Timers()
        self._changed: asyncio.Event | None = None
        self._runner: Runner | None = None
        self._running: Any = None
        self._task: asyncio.Task[Any] | None = None  # in the thread
        self._is_closing = False
        bus = twin()
        if bus is None:
            self._running = self._loop.create_task(self._renew(lambda: link))
        else:
            self._runner = Runner()
            work = self._renew_beside(bus)
            self._running = asyncio.run_coroutine_threadsafe(work, self._runner.loop)

    def add(self, life: HeldLife) -> None:
        """Renew the lease of a life from now on."""
        self._lives[life] = None
        self._added.append(life)
        self._wake()

    def remove(self, life: HeldLife) -> None:
        """Renew it no more."""
        self._lives.pop(life, None)

    def _wake(self) -> None:
        changed, runner = self._changed, self._runner
        if changed is not None:
            (self._loop if runner is None else runner.loop).call_soon_threadsafe(changed.set)

    async def close(self) -> None:
        """End it, and its thread."""
        self._is_closing = True
        if self._runner is None:
            self._running.cancel()
            await asyncio.wait([self._running])
            return
        self._runner.loop.call_soon_threadsafe(self._cancel)
        await asyncio.wait([asyncio.wrap_future(self._running)])
        await asyncio.to_thread(self._runner.stop)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _renew_beside(self, bus: Bus) -> None:
        """Renew over a connection of its own; before that is there, nobody can be asked."""
        self._task = asyncio.current_task()
        connecting = asyncio.ensure_future(bus.__aenter__())
        try:
            if not self._is_closing:
                await self._renew(lambda: bus._link if connecting.done() else None)
        except asyncio.CancelledError:
            pass
        finally:
            connecting.cancel()
            await asyncio.wait([connecting])
            if not connecting.cancelled() and connecting.exception() is None:
                await bus.__aexit__(None)

    async def _renew(self, link_of: Callable[[], Link | None]) -> None:
        self._changed = asyncio.Event()
        asking: set[asyncio.Task[None]] = set()
        try:
            while True:
                self._changed.clear()
                now = time.monotonic()
                for lives in self._asked_together(self._due_lives(now), now):
                    # By themselves: those that wait for their answer hold up no others.
                    asked = asyncio.create_task(self._ask(link_of(), lives))
                    asking.add(asked)
                    asked.add_done_callback(asking.discard)
                wait_s = max(TOGETHER_S, self._due.wake_at - now)
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if wait_s == inf else wait_s):
                        await self._changed.wait()
        finally:
            for asked in asking:
                asked.cancel()

    def _due_lives(self, now: float) -> Iterator[HeldLife]:
        """Yield the lives for which more has to be asked, and end those whose leases are used up."""
        while self._added:
            life = self._added.popleft()
            self._due.at(life.wake_at, life)
        for life in self._due.due(now):
            if life not in self._lives:
                continue
            if life.holder.is_over(now):
                self._order(life, "orphan")
                continue
            if life.asks(now):
                yield life
            self._due.at(life.wake_at, life)

    def _asked_together(self, due: Iterable[HeldLife], now: float) -> Iterator[list[HeldLife]]:
        """Yield the lives of each request: by themselves, or with all others of their group that are here."""
        served: set[HeldLife] = set()
        for life in due:
            if not life.terms.together:
                yield [life]
            elif life not in served:
                others = (one for one in list(self._lives) if one not in served and life.is_with(one, now))
                lives = [life, *(one for one in others if one is not life)][:TOGETHER_MAX]
                served.update(lives)
                for one in lives:
                    one.asked(now)
                    self._due.at(one.wake_at, one)
                yield lives

    async def _ask(self, link: Link | None, lives: list[HeldLife]) -> None:
        limit_s = max(0.01, min(ASK_S_MAX, lives[0].holder.ends_at - time.monotonic()))
        try:
            if link is None:
                raise Disconnected("the connection is not there yet")
            if lives[0].terms.together:
                arguments = {"group": lives[0].terms.group, "lives": [one.arguments for one in lives]}
                reply = await link.call("agent.renew-all", arguments, limit_s, "again")
                found = [None if "problem" in one else one for one in reply["agents"]]
                answers = read_as(found, list[LeaseTerms | None], "$.agents")
            else:
                reply = await link.call("agent.renew", lives[0].arguments, limit_s, "again")
                answers = [read_as(reply, LeaseTerms, "$.agent")]
        except (NoAnswer, Disconnected):
            self._answer(lives, "can't ask")
        except TidingsError:  # its life is over; or it may not: its rights, or its user, were taken away
            self._answer(lives, "no")
        else:
            for life, terms in zip(lives, answers, strict=False):
                if terms is not None and not life.takes(terms):
                    self._answer([life], "can't ask")
                    continue
                self._answer([life], "no" if terms is None else "yes")
                if terms is not None and not terms.goes_on:
                    self._order(life, terms.reason or "user")

    def _answer(self, lives: list[HeldLife], answer: LeaseAnswer) -> None:
        for life in lives:
            if not life.holder.answered(answer, time.monotonic()):
                self._order(life, "orphan")

    def _order(self, life: HeldLife, reason: str) -> None:
        """Have an agent ended, in the loop of its bus."""
        if self._lives.pop(life, 0) is None:
            self._loop.call_soon_threadsafe(life.on_order, reason, life.terms.grace_s)

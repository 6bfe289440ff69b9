"""The members of groups that run in this program: coroutines and programs, from their start to their end.

One that is ordered to end is cancelled, or gets SIGTERM, and has the grace of its group for a last step.
However it ends, the node hears of it; if it can't be reached, it finds out by the lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from tidings import processes
from tidings.agents.images import PROBLEM_LENGTH_MAX
from tidings.client.agent import Agent, Member
from tidings.client.renewals import HeldLife, OnOrder, Renewals
from tidings.errors import AgentError, Disconnected, NoAnswer, NotAllowed, UserError
from tidings.transport.link import Link


class RunningMembers:
    """The members of one group that run here."""

    def __init__(self, link: Link, renewals: Callable[[], Renewals]) -> None:
        self._link = link
        self._renewals = renewals
        self._running: dict[str, tuple[asyncio.Task[None], OnOrder]] = {}
        self._elsewhere: dict[str, OnOrder] = {}  # agents here that were not started by this program

    def __bool__(self) -> bool:
        return bool(self._running)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Each is done when its member has ended."""
        return [task for task, _order in self._running.values()]

    def add(self, agent: str, order: OnOrder) -> None:
        """Have an agent that was started otherwise ordered to end."""
        self._elsewhere[agent] = order

    def forget(self, agent: str) -> None:
        """An agent that was started otherwise is over."""
        self._elsewhere.pop(agent, None)

    def order(self, agent: str, reason: str, grace_s: float) -> None:
        """Have a member end, if it is here."""
        order = self._running[agent][1] if agent in self._running else self._elsewhere.get(agent)
        if order is not None:
            order(reason, grace_s)

    def order_all(self, reason: str, grace_s: float) -> None:
        """Have all end that were started here."""
        for _task, order in list(self._running.values()):
            order(reason, grace_s)

    # Lives

    def run_task(self, agent: Agent, life: HeldLife, work: Callable[[], Awaitable[Any]]) -> Member:
        """Start a coroutine."""
        return self._begin(agent, life, partial(self._live_task, agent, life, work))

    def run_process(
        self, agent: Agent, life: HeldLife, command: tuple[str, ...], options: Mapping[str, Any]
    ) -> Member:
        """Start a program."""
        return self._begin(agent, life, partial(self._live_process, agent, life, command, options))

    def _begin(self, agent: Agent, life: HeldLife, living: Callable[[], Awaitable[None]]) -> Member:
        async def live() -> None:
            agent.has_begun = True
            if agent.stop_reason is None:
                await living()
            else:
                await self.leave(agent, life, agent.stop_reason, "it was not started")

        task = asyncio.ensure_future(live())

        def order(reason: str, _grace_s: float) -> None:
            if agent.stop_reason is None and not agent.is_leaving:
                agent.stop_reason = reason
                if agent.has_begun:  # else it would be gone without having left
                    task.cancel()

        life.on_order = order
        self._running[agent.id] = task, order
        self._renewals().add(life)
        return Member(agent, task, order)

    async def _live_task(self, agent: Agent, life: HeldLife, work: Callable[[], Awaitable[Any]]) -> None:
        """Run a coroutine until it ends, or is ordered to: then it has the grace for its last step."""
        working = asyncio.ensure_future(work())
        reason, problem, result = "done", "", None
        try:
            await self._finish(agent, life, working)
            result = working.result()
        except asyncio.CancelledError:
            reason = agent.stop_reason or "user"
        except Exception as error:
            reason, problem = "error", f"{type(error).__name__}: {error}"[:PROBLEM_LENGTH_MAX]
        await self.leave(agent, life, reason, problem, result)

    async def _finish(self, agent: Agent, life: HeldLife, working: asyncio.Future[Any]) -> None:
        try:
            await asyncio.wait([working])
        except asyncio.CancelledError:
            working.cancel()
            await asyncio.wait([working], timeout=life.terms.grace_s)
            working.cancel()  # what is left of it has had its time
            if not working.done():
                raise
            if agent.stop_reason is None:
                raise

    async def _live_process(
        self, agent: Agent, life: HeldLife, command: tuple[str, ...], options: Mapping[str, Any]
    ) -> None:
        """Run a program until it ends, or is ordered to."""
        reason, problem, result = "done", "", None
        try:
            process = processes.start(*command, **options)
            try:
                agent.ended = ended = await process.wait()
                process.close()
                result = {"exit": ended.code}
                if ended.code:
                    reason, problem, result = "error", f"exit code {ended.code}", None
            except asyncio.CancelledError:
                reason = agent.stop_reason or "user"
                agent.ended = await process.end(reason, life.terms.grace_s)
        except OSError as error:
            reason, problem = "error", f"{command[0]}: {error.strerror}"
        await self.leave(agent, life, reason, problem, result)

    async def leave(
        self, agent: Agent, life: HeldLife, reason: str, problem: str = "", result: Any = None
    ) -> None:
        """Say that an agent has ended; a node that can't be reached finds out by its lease."""
        agent.is_leaving = True
        renewals = self._renewals()
        renewals.remove(life)
        try:
            async with renewals.leaving:
                await report_end(self._link, agent, life, reason, problem, result)
        finally:
            self._running.pop(agent.id, None)


async def report_end(
    link: Link, agent: Agent, life: HeldLife, reason: str, problem: str = "", result: Any = None
) -> None:
    """Report the result of an agent, if it has one, and that it has ended, if its node can be reached."""
    with suppress(AgentError, NotAllowed, NoAnswer, Disconnected):
        if result is not None:
            try:
                await agent.result(result)
            except UserError as error:  # too large, or JSON can't be made of it; or its life is over
                reason, problem = "error", f"{type(error).__name__}: {error}"[:PROBLEM_LENGTH_MAX]
        leaving = {**life.arguments, "reason": reason, "problem": problem}
        await link.call("agent.leave", leaving, None, "again")

"""An agent, for its own code and for the one that has started it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from tidings.agents.arguments import LeaseTerms, encode_result
from tidings.agents.events import Reason
from tidings.client.renewals import HeldLife, OnOrder
from tidings.client.sessions import read_as
from tidings.errors import Disconnected

if TYPE_CHECKING:
    from tidings import processes
    from tidings.client.agents import AgentGroup

AGAIN_S = 0.5
"""How often the home is asked again while nobody can be asked."""
Amount = Mapping[str, float]
"""Amounts by unit."""
AgentFunction = Callable[..., Awaitable[Any]]
"""Called with its `Agent`, and the arguments of `spawn`."""


class Agent:
    """An agent, for its own code: what it may, what it has done, and those that it starts."""

    def __init__(self, group: AgentGroup, life: HeldLife, name: str) -> None:
        self._group = group
        self._life = life
        self._steps = self._asks = 0  # so that what is sent again counts once
        self.name = name
        self.stop_reason: str | None = None
        """Why it is to end; None while it may go on."""
        self.problem = ""
        """What was wrong, if that is why."""
        self.ended: processes.ProcessEnd | None = None
        """How its program has ended, if it is one."""
        self.has_begun = False
        """Whether it runs, or has run."""
        self.is_leaving = False
        """Whether its work is done, and only the node has to be told."""

    @property
    def id(self) -> str:
        """Its id, which no other agent has."""
        return self._life.terms.agent

    @property
    def life(self) -> int:
        """The number of its life."""
        return self._life.terms.life

    @property
    def limits(self) -> LeaseTerms:
        """Its limits, as it was last told.

        The lease, the grace, the budget it holds, the time left to the group.
        """
        return self._life.terms

    @property
    def budget(self) -> dict[str, float]:
        """What it holds, as it was last told."""
        return self._life.terms.budget

    async def spend(self, what: str = "", **amounts: float) -> None:
        """Spend something before it is used.

        Raises BudgetExceeded if it holds less, and nothing is spent then.
        """
        self._steps += 1
        await self._call("agent.spend", amounts=amounts, what=what, step=self._steps)

    async def ask_for(self, **amounts: float) -> None:
        """Get more out of the account of its parent; raises BudgetExceeded if that holds less."""
        self._asks += 1
        await self._call("agent.more", amounts=amounts, step=self._asks)

    async def result(self, value: object, *, partial: bool = False) -> None:
        """Report a result, of which JSON can be made; a partial one may be followed by others."""
        await self._call("agent.result", result=encode_result(value), partial=partial)

    async def release(self) -> None:
        """Need no lease from now on: live as long as the group does, wherever the location is."""
        await self._call("agent.release")
        self._life.holder.release()

    async def declare_partners(self, *names: str) -> None:
        """Declare those, by name, without whom it can't do its task: nobody else counts from now on.

        If none of that name is heard of for the check of the group, which is opened with `alive`, it ends as
        an orphan. One that is done, or that restarts within that time, is no loss.
        """
        await self._call("agent.partners", partners=list(names))

    async def spawn(self, function: AgentFunction, /, *arguments: Any, **options: Any) -> Member:
        """Start an agent below this one, whose budget comes out of this one's; see `AgentGroup.spawn`.

        Without `lease_s` it has a lease as long as this one's.
        """
        return await self._group.spawn(function, *arguments, **self._below(options))

    async def run(self, *command: str, **options: Any) -> Member:
        """Start a program below this one; see `spawn`, and `AgentGroup.run`."""
        return await self._group.run(*command, **self._below(options))

    def _below(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"lease_s": self.limits.lease_s, **options, "parent": self.id}

    async def _call(self, operation: str, **arguments: Any) -> None:
        """Ask the home; while nobody can be asked, again and again until the lease is used up."""
        link, life = self._group._link, self._life
        while True:
            try:
                reply = await link.call(operation, {**life.arguments, **arguments}, None, "again")
                break
            except Disconnected:
                if link.core.failure is not None or life.holder.is_over(time.monotonic()):
                    raise
                await asyncio.sleep(AGAIN_S)
        if reply is not None:
            life.said(read_as(reply, LeaseTerms, "$.agent"))


class Member:
    """A started member of a group, for the one that has started it."""

    def __init__(self, agent: Agent, task: asyncio.Task[None], order: OnOrder) -> None:
        self._agent = agent
        self._task = task
        self._order = order

    @property
    def ended(self) -> processes.ProcessEnd | None:
        """How its program has ended; None while it runs, and for coroutines."""
        return self._agent.ended

    @property
    def stop_reason(self) -> str | None:
        """Why it was ordered to end; None if it was not."""
        return self._agent.stop_reason

    def stop(self, reason: Reason = "user") -> None:
        """Have it end, here: with its grace for a last step."""
        self._order(reason, self._agent.limits.grace_s)

    @property
    def id(self) -> str:
        """The id of the agent."""
        return self._agent.id

    @property
    def name(self) -> str:
        """Its name."""
        return self._agent.name

    @property
    def limits(self) -> LeaseTerms:
        """Its limits, which its starter learns before it has begun."""
        return self._agent.limits

    async def wait(self) -> None:
        """Wait until it has ended, here."""
        await asyncio.wait([self._task])

"""The ledger of a group: what is decided about its members, their lives, results, ends and money.

    ledger = GroupLedger.opened(Opened(…))
    happened = ledger.enter("hotel", …)     a decision: checked, then what happened, which is applied already
    GroupLedger.replay(all of these)        the same state, wherever it is computed

A member is entered before it starts, at one place: so it is either in the ledger when the group ends, and
ends with it, or it is refused. A life has a number and a cookie; what an ended life still asks for is
refused. An agent is never judged by its parent: it ends when its group does, when it is stopped, or when its
lease does.

Members move between these states, and never back:

    running → ending    it was ordered to end, and has the grace for a last step
    running, ending → ended

A new life of a member that was lost, entered under the same name and cookie, is a restart.
"""

from __future__ import annotations

from collections import deque
from typing import Any, cast

import msgspec

from tidings.agents.amounts import Amounts
from tidings.agents.events import (
    AgentKind,
    AnyHappening,
    Closed,
    Deputed,
    Ended,
    Ending,
    Entered,
    Exempted,
    Granted,
    Low,
    Moved,
    Noted,
    Ordered,
    Partnered,
    Placed,
    Reason,
    Rested,
    Resulted,
    Sealed,
    Spent,
    WrittenOff,
)
from tidings.agents.group_state import GroupState
from tidings.agents.records import AgentRecord, digest
from tidings.errors import AgentError, GroupEnded, LifeEnded

MEMBERS_MAX = 10_000
"""Members that a group ever has."""
RESULT_SIZE_MAX = 32 << 10
"""Bytes of a result."""
PROBLEM_LENGTH_MAX = 500
"""Characters of a problem that are kept."""


class GroupLedger(GroupState):
    """A group and its members, of which is decided.

    Decisions return what has happened, in order; refusals raise, and change nothing.
    """

    # Members begin

    def enter(
        self,
        name: str,
        *,
        parent: str = "",
        user: str = "",
        cookie: str,
        kind: AgentKind = "task",
        where: str = "",
        lease_s: float,
        share: Amounts | None = None,
        now_us: int,
    ) -> list[AnyHappening]:
        """Enter a new member, before it starts; GroupEnded, LifeEnded or BudgetExceeded if it may not."""
        self.check_open()
        if len(self.members) >= MEMBERS_MAX:
            raise AgentError(self.group.name, f"a group has at most {MEMBERS_MAX} members")
        share = share or {}
        if parent and self.find(parent).state != "running":
            raise LifeEnded(self._named(parent), "it ends, and starts nobody any more")
        self.account(parent).check(share, self._named(parent))
        number = self.group.agents + 1
        agent = f"{self.group.group}.{number}"
        place: dict[str, Any] = {"user": user, "cookie": digest(cookie), "where": where}
        return self._decide(
            now_us,
            Entered(
                agent=agent,
                name=name or str(number),
                life=1,
                parent=parent,
                kind=kind,
                lease_s=lease_s,
                share=share,
                at_us=now_us,
                **place,
            ),
        )

    def restart(self, agent: str, cookie: str, where: str, now_us: int) -> list[AnyHappening]:
        """Begin a new life of a member; the earlier one is over from now on, whether or not it knows.

        What it holds goes along, so a restart neither makes nor resets a budget.
        """
        self.check_open()
        found = self.find(agent)
        if found.cookie != digest(cookie):
            raise LifeEnded(agent, "this is not the agent's own cookie")
        if found.state != "running":
            raise LifeEnded(agent, f"it has been ended: {found.reason or 'it ends'}")
        return self._decide(now_us, _new_life(found, where, now_us))

    def arrive(
        self,
        agent: str,
        packed: int,
        cookie: str,
        where: str,
        now_us: int,
        *,
        step: str = "",
        user: str | None = None,
    ) -> list[AnyHappening]:
        """Begin a new life of an agent that was packed by an earlier one, and pays for its next step.

        It may arrive again where its location has died meanwhile; a copy from before that is refused. One
        that was ordered to end on its way has ended now.
        """
        found = self.find(agent)
        is_its_own = found.cookie == digest(cookie) and user in (None, found.user)
        if not is_its_own or found.kind != "mobile":
            raise LifeEnded(agent, "this is not the agent's own cookie")
        if not found.packed <= packed <= found.life:
            raise LifeEnded(agent, f"packed by life {packed}, it is a copy: it has life {found.life}")
        if found.state == "ending":
            return self.leave(found, "user", now_us)
        if found.state == "ended":
            raise LifeEnded(agent, f"it has been ended: {found.reason}")
        self.check_open()
        arrived = self._decide(now_us, _new_life(found, where, now_us, packed, step))
        return arrived + self._pay(found, self.group.step_rates, found.step, now_us)

    def rest(
        self, agent: AgentRecord, where: str, step: str, until_us: int, now_us: int
    ) -> list[AnyHappening]:
        """Note that an agent rests until a moment, or is on its way, before its next step."""
        rested = Rested(agent=agent.agent, where=where, step=step, until_us=max(1, until_us), at_us=now_us)
        return self._decide(now_us, rested)

    def seal(self, now_us: int) -> list[AnyHappening]:
        """Say that all members are there that whoever opened the group starts."""
        if self.group.is_sealed or self.group.phase != "open":
            return []
        return self._decide(now_us, Sealed(at_us=now_us))

    # Members work; the caller has checked their lives with `living`

    def place(self, agent: AgentRecord, where: str, now_us: int) -> list[AnyHappening]:
        """Note where an agent is."""
        if agent.where == where:
            return []
        return self._decide(now_us, Placed(agent=agent.agent, where=where, at_us=now_us))

    def declare(self, agent: AgentRecord, partners: list[str], now_us: int) -> list[AnyHappening]:
        """Note the partners of an agent, by name; AgentError if the group could not notice their loss."""
        if self.group.alive is None:
            raise AgentError(agent.name, "partners need a group with times for notices: alive=AliveTimes(…)")
        if agent.name in partners:
            raise AgentError(agent.name, "it can't be its own partner")
        if partners == agent.partners:
            return []
        return self._decide(now_us, Partnered(agent=agent.agent, partners=partners, at_us=now_us))

    def spend(
        self, agent: AgentRecord, amounts: Amounts, what: str, now_us: int, step: int = 0
    ) -> list[AnyHappening]:
        """Spend what an agent holds; BudgetExceeded if that is less. When all of a unit is spent, it ends.

        `step` numbers what it spends, from 1 on: what was asked for twice is spent once.
        """
        if 0 < step <= agent.steps:
            return []
        agent.account.check(amounts, agent.name)
        spent = Spent(agent=agent.agent, amounts=amounts, what=what, step=step, at_us=now_us)
        return self._decide(now_us, spent)

    def charge(self, agent: AgentRecord, elapsed_s: float, now_us: int) -> list[AnyHappening]:
        """Charge an agent for existing so long, by the rates of the group; as far as it holds it."""
        due = {unit: round(rate * elapsed_s) for unit, rate in self.group.rates.items()}
        return self._pay(agent, due, "time", now_us)

    def _pay(self, agent: AgentRecord, due: Amounts, what: str, now_us: int) -> list[AnyHappening]:
        """Have an agent pay what it owes, as far as it holds it."""
        amounts = {unit: min(value, agent.account.held.get(unit, 0)) for unit, value in due.items()}
        amounts = {unit: value for unit, value in amounts.items() if value > 0}
        if not amounts:
            return []
        return self._decide(now_us, Spent(agent=agent.agent, amounts=amounts, what=what, at_us=now_us))

    def grant(self, agent: AgentRecord, amounts: Amounts, now_us: int, ask: int = 0) -> list[AnyHappening]:
        """Give an agent more out of its parent's account; BudgetExceeded if that holds less.

        `ask` numbers what it asks for, from 1 on: what was asked for twice is given once.
        """
        if 0 < ask <= agent.asks:
            return []
        self.check_open()
        parent = self.living_parent(agent)
        self.account(parent).check(amounts, self._named(parent))
        return self._decide(now_us, Granted(agent=agent.agent, amounts=amounts, ask=ask, at_us=now_us))

    def result(self, agent: AgentRecord, value: bytes, partial: bool, now_us: int) -> list[AnyHappening]:
        """Note a result; one that is not partial is the last, and may meet the condition."""
        if len(value) > RESULT_SIZE_MAX:
            raise AgentError(agent.name, f"a result has at most {RESULT_SIZE_MAX} bytes, not {len(value)}")
        if agent.is_done:
            raise AgentError(agent.name, "it has its result already")
        raw = msgspec.Raw(value)
        return self._decide(now_us, Resulted(agent=agent.agent, result=raw, partial=partial, at_us=now_us))

    def settle(self, agent: AgentRecord, spent: Amounts, lost: Amounts, now_us: int) -> list[AnyHappening]:
        """Take over what a group has spent and lost, that was a member here."""
        happened = self._decide(now_us, WrittenOff(agent=agent.agent, amounts=lost)) if lost else []
        if spent:
            happened += self._decide(
                now_us, Spent(agent=agent.agent, amounts=spent, what="group", at_us=now_us)
            )
        return happened

    def note(self, where: str, times: int, now_us: int) -> list[AnyHappening]:
        """Count events of the group that match a filter of the condition."""
        if self.group.phase != "open" or where not in self.group.condition.filters():
            return []
        return self._decide(now_us, Noted(where=where, times=times, at_us=now_us))

    def exempt(self, agent: AgentRecord, now_us: int) -> list[AnyHappening]:
        """Let an agent live without a lease, for as long as its group does."""
        return [] if agent.is_exempt else self._decide(now_us, Exempted(agent=agent.agent, at_us=now_us))

    # Ends

    def stop(self, agent: AgentRecord, reason: Reason, now_us: int, below: bool = True) -> list[AnyHappening]:
        """Order an agent to end within the grace, and its children and theirs."""
        all_of_them = [agent, *(self.children(agent.agent) if below else [])]
        grace_s = self.group.grace_s
        orders = [
            Ordered(agent=one.agent, reason=reason, grace_s=grace_s, at_us=now_us)
            for one in all_of_them
            if one.state == "running"
        ]
        return self._decide(now_us, *orders)

    def leave(
        self, agent: AgentRecord, reason: Reason, now_us: int, problem: str = "", lost: bool = False
    ) -> list[AnyHappening]:
        """Note that an agent has ended; the reason for which it was ordered to is the reason."""
        if agent.state == "ended":
            return []
        if agent.state == "ending" and agent.reason is not None and not (agent.is_done and reason == "done"):
            reason = agent.reason
        ended = Ended(
            agent=agent.agent,
            reason=reason,
            lost=lost,
            problem=problem[:PROBLEM_LENGTH_MAX],
            spent=dict(agent.account.spent),
            held=dict(agent.account.held),
            lived_us=max(0, now_us - agent.entered_us),
            at_us=now_us,
        )
        return self._decide(now_us, ended)

    def end(self, reason: Reason, now_us: int, problem: str = "") -> list[AnyHappening]:
        """End the group: all members are ordered to, and nobody is entered any more."""
        if self.group.phase != "open":
            return []
        return self._decide(now_us, Ending(reason=reason, problem=problem, at_us=now_us))

    def go_on_ending(self, now_us: int) -> list[AnyHappening]:
        """Order those to end whose orders were lost, as the node stopped in the middle of the group's end."""
        return self._decide(now_us, *self._orders(self.group.reason or "user", now_us))

    def move(self, home: str, now_us: int) -> list[AnyHappening]:
        """Note that the group has another home."""
        return self._decide(now_us, Moved(home=home, at_us=now_us))

    def depute(self, voters: dict[str, str], now_us: int) -> list[AnyHappening]:
        """Note that other nodes keep the group than before."""
        self.check_open()
        return self._decide(now_us, Deputed(voters=voters, at_us=now_us))

    # How one thing leads to another

    def check_open(self) -> None:
        """Raise GroupEnded if nobody may be entered any more."""
        if self.group.phase != "open":
            raise GroupEnded(self.group.name, f"the group ends or has ended: {self.group.reason}")

    def _decide(self, now_us: int, *events: AnyHappening) -> list[AnyHappening]:
        """Apply events, and what follows from them; return all of it."""
        happened: list[AnyHappening] = []
        line = deque(events)
        while line:
            event = line.popleft()
            self.apply(event)
            happened.append(event)
            if not line:
                line += self._consequences(event, now_us)
        return happened

    def _consequences(self, event: AnyHappening, now_us: int) -> list[AnyHappening]:
        group = self.group
        if isinstance(event, Spent):
            return self._limits(self.members[event.agent], event, now_us)
        if group.phase == "open" and isinstance(event, Resulted | Ended | Sealed | Noted):
            verdict = group.condition.verdict(self.facts)
            if verdict == "met":
                return [Ending(reason="condition", at_us=now_us)]
            if verdict == "impossible":
                return [Ending(reason="error", problem="the condition can't be met any more", at_us=now_us)]
        if isinstance(event, Ending):
            orders = self._orders(event.reason, now_us)
            if orders:
                return orders
        if group.phase == "ending" and not self._running:
            return [Closed(reason=cast(Reason, group.reason), at_us=now_us)]
        return []

    def _orders(self, reason: Reason, now_us: int) -> list[AnyHappening]:
        """All running members are ordered to end."""
        grace_s = self.group.grace_s
        return [
            Ordered(agent=one.agent, reason=reason, grace_s=grace_s, at_us=now_us)
            for one in self._running.values()
            if one.state == "running"
        ]

    def _limits(self, agent: AgentRecord, event: Spent, now_us: int) -> list[AnyHappening]:
        """What follows from spending: a warning at the soft limit, the end at the hard one."""
        account, follows = agent.account, list[AnyHappening]()
        for unit in event.amounts:
            held, given = account.held.get(unit, 0), account.given.get(unit, 0)
            if held == 0 and agent.state == "running":
                order = Ordered(agent=agent.agent, reason="budget", grace_s=self.group.grace_s, at_us=now_us)
                return [*follows, order]
            if held < self.group.soft * given and unit not in agent.low:
                follows.append(Low(agent=agent.agent, unit=unit, at_us=now_us))
        return follows

    def _named(self, agent: str) -> str:
        """Return the name of an agent, or of the group."""
        return self.members[agent].name if agent else self.group.name


def _new_life(agent: AgentRecord, where: str, now_us: int, packed: int = 0, step: str = "") -> Entered:
    """Return the event that the next life of an agent begins, with what the one before holds."""
    return Entered(
        agent=agent.agent,
        name=agent.name,
        life=agent.life + 1,
        parent=agent.parent,
        user=agent.user,
        cookie=agent.cookie,
        kind=agent.kind,
        where=where,
        lease_s=agent.lease_s,
        share={},
        packed=packed,
        step=step,
        at_us=now_us,
    )

"""The ledger of a group: its members, their lives, results, ends and money, as a fold over its events.

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

from collections.abc import Iterable
from typing import Any, cast

import msgspec

from tidings.agents.amounts import Account, Amounts, total
from tidings.agents.conditions import Facts, Outcome
from tidings.agents.events import (
    AgentKind,
    AnyHappening,
    Closed,
    Ended,
    Ending,
    Entered,
    Exempted,
    Granted,
    Low,
    Noted,
    Opened,
    Ordered,
    Placed,
    Reason,
    Rested,
    Resulted,
    Sealed,
    Spent,
    WrittenOff,
)
from tidings.agents.records import AgentRecord, GroupRecord, Totals, digest
from tidings.errors import AgentError, GroupEnded, LifeEnded

MEMBERS_MAX = 10_000
"""Members that a group ever has."""
RESULT_SIZE_MAX = 32 << 10
"""Bytes of a result."""


class GroupLedger:
    """A group and its members.

    Decisions return what has happened, in order; refusals raise, and change nothing.
    """

    def __init__(self, group: GroupRecord, members: Iterable[AgentRecord] = ()) -> None:
        self.group = group
        self.members = {one.agent: one for one in members}
        self._running = {one.agent: one for one in self.members.values() if one.state != "ended"}

    @classmethod
    def opened(cls, event: Opened) -> GroupLedger:
        """A new group."""
        group = GroupRecord(
            group=event.group,
            name=event.name,
            user=event.user,
            condition=event.condition,
            grace_s=event.grace_s,
            opened_us=event.at_us,
            until_us=event.until_us,
            rates=event.rates,
            step_rates=event.step_rates,
            soft=event.soft,
            parent_group=event.parent_group,
            parent=event.parent,
        )
        group.account.fund(event.budget)
        return cls(group)

    @classmethod
    def replay(cls, events: Iterable[AnyHappening]) -> GroupLedger:
        """The state after these events, of which the first opens the group."""
        first, *others = events
        assert isinstance(first, Opened), "a group begins by being opened"
        ledger = cls.opened(first)
        for event in others:
            ledger.apply(event)
        return ledger

    # What is asked of it

    def find(self, agent: str) -> AgentRecord:
        """Return a member by its id; AgentError if there is none."""
        found = self.members.get(agent)
        if found is None:
            raise AgentError(agent, f"there is no such agent in group {self.group.name!r}")
        return found

    def living(self, agent: str, life: int, cookie: str, user: str | None = None) -> AgentRecord:
        """Return a member that this life may speak for; LifeEnded if it is over, or not that one's."""
        found = self.find(agent)
        if found.cookie != digest(cookie) or (user is not None and found.user != user):
            raise LifeEnded(agent, "this is not the agent's own cookie")
        if found.life != life:
            raise LifeEnded(agent, f"life {life} is over; the agent has life {found.life}")
        if found.state == "ended":
            raise LifeEnded(agent, f"it has ended: {found.reason}")
        return found

    @property
    def facts(self) -> Facts:
        """What the condition sees."""
        outcomes: dict[str, list[Outcome]] = {}
        for one in self.members.values():
            outcomes.setdefault(one.name, []).append(one.outcome)
        return Facts(outcomes, self.group.is_sealed, self.group.counts)

    @property
    def running(self) -> list[AgentRecord]:
        """The members that have not ended, those that were entered first first."""
        return list(self._running.values())

    def children(self, agent: str) -> list[AgentRecord]:
        """The members below one, at whatever depth, that have not ended."""
        below, found = {agent}, []
        for one in self.members.values():  # parents are entered before their children
            if one.parent in below:
                below.add(one.agent)
                if one.state != "ended":
                    found.append(one)
        return found

    @property
    def totals(self) -> Totals:
        """The money of the whole group."""
        accounts = [self.group.account, *(one.account for one in self.members.values())]
        return Totals(
            dict(self.group.account.given),
            total(one.spent for one in accounts),
            dict(self.group.account.refunded),
            total(one.held for one in accounts),
            total(one.written_off for one in accounts),
        )

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
        self._check_open()
        if len(self.members) >= MEMBERS_MAX:
            raise AgentError(self.group.name, f"a group has at most {MEMBERS_MAX} members")
        share = share or {}
        if parent and self.find(parent).state != "running":
            raise LifeEnded(self._named(parent), "it ends, and starts nobody any more")
        self._account(parent).check(share, self._named(parent))
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
        self._check_open()
        found = self.find(agent)
        if found.cookie != digest(cookie):
            raise LifeEnded(agent, "this is not the agent's own cookie")
        if found.state != "running":
            raise LifeEnded(agent, f"it has been ended: {found.reason or 'it ends'}")
        again = Entered(
            agent=agent,
            name=found.name,
            life=found.life + 1,
            parent=found.parent,
            user=found.user,
            cookie=found.cookie,
            kind=found.kind,
            where=where,
            lease_s=found.lease_s,
            share={},
            at_us=now_us,
        )
        return self._decide(now_us, again)

    def arrive(
        self, agent: str, packed: int, cookie: str, where: str, now_us: int, user: str | None = None
    ) -> list[AnyHappening]:
        """Begin a new life of an agent that was packed by an earlier one, and pays for its next step.

        It may arrive again where its location has died meanwhile; a copy from before that is refused.
        """
        self._check_open()
        found = self.find(agent)
        is_its_own = found.cookie == digest(cookie) and user in (None, found.user)
        if not is_its_own or found.kind != "mobile":
            raise LifeEnded(agent, "this is not the agent's own cookie")
        if found.state != "running":
            raise LifeEnded(agent, f"it has been ended: {found.reason or 'it ends'}")
        if not found.packed <= packed <= found.life:
            raise LifeEnded(agent, f"packed by life {packed}, it is a copy: it has life {found.life}")
        arrived = Entered(
            agent=agent,
            name=found.name,
            life=found.life + 1,
            parent=found.parent,
            user=found.user,
            cookie=found.cookie,
            kind=found.kind,
            where=where,
            lease_s=found.lease_s,
            share={},
            packed=packed,
            at_us=now_us,
        )
        return self._decide(now_us, arrived) + self._pay(found, self.group.step_rates, found.step, now_us)

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
        return [] if agent.where == where else self._decide(now_us, Placed(agent=agent.agent, where=where))

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
        self._check_open()
        parent = self._living_parent(agent)
        self._account(parent).check(amounts, self._named(parent))
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
        ended = Ended(agent=agent.agent, reason=reason, lost=lost, problem=problem[:500], at_us=now_us)
        return self._decide(now_us, ended)

    def end(self, reason: Reason, now_us: int, problem: str = "") -> list[AnyHappening]:
        """End the group: all members are ordered to, and nobody is entered any more."""
        if self.group.phase != "open":
            return []
        return self._decide(now_us, Ending(reason=reason, problem=problem, at_us=now_us))

    # How one thing leads to another

    def _check_open(self) -> None:
        if self.group.phase != "open":
            raise GroupEnded(self.group.name, f"the group ends or has ended: {self.group.reason}")

    def _decide(self, now_us: int, *events: AnyHappening) -> list[AnyHappening]:
        """Apply events, and what follows from them; return all of it."""
        happened: list[AnyHappening] = []
        line = list(events)
        while line:
            event = line.pop(0)
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
            orders: list[AnyHappening] = [
                Ordered(agent=one.agent, reason=event.reason, grace_s=group.grace_s, at_us=now_us)
                for one in self.running
                if one.state == "running"
            ]
            if orders:
                return orders
        if group.phase == "ending" and not self._running:
            return [Closed(reason=cast(Reason, group.reason), at_us=now_us)]
        return []

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

    def _account(self, agent: str) -> Account:
        return self.members[agent].account if agent else self.group.account

    def _living_parent(self, agent: AgentRecord) -> str:
        """The nearest ancestor that has not ended; the group itself, if there is none."""
        parent = agent.parent
        while parent and self.members[parent].state == "ended":
            parent = self.members[parent].parent
        return parent

    def apply(self, event: AnyHappening) -> None:
        """Change the state by what has happened; nothing else changes it."""
        match event:
            case Entered():
                self._begin(event)
            case Rested():
                agent = self.members[event.agent]
                agent.where, agent.step, agent.rests_until_us = event.where, event.step, event.until_us
            case Placed():
                self.members[event.agent].where = event.where
            case Spent():
                agent = self.members[event.agent]
                agent.account.spend(event.amounts)
                agent.steps = max(agent.steps, event.step)
            case WrittenOff():
                self.members[event.agent].account.lose(event.amounts)
            case Low():
                self.members[event.agent].low.append(event.unit)
            case Granted():
                agent = self.members[event.agent]
                self._account(self._living_parent(agent)).pass_on(event.amounts, agent.account)
                agent.low = [unit for unit in agent.low if unit not in event.amounts]
                agent.asks = max(agent.asks, event.ask)
            case Resulted():
                agent = self.members[event.agent]
                agent.result, agent.is_done = bytes(event.result), not event.partial
            case Exempted():
                self.members[event.agent].is_exempt = True
            case Ordered():
                agent = self.members[event.agent]
                agent.state, agent.reason = "ending", event.reason
            case Ended():
                self._finish(event)
            case _:
                self._apply_to_group(event)

    def _apply_to_group(self, event: Opened | Sealed | Noted | Ending | Closed) -> None:
        group = self.group
        match event:
            case Sealed():
                group.is_sealed = True
            case Noted():
                group.counts[event.where] = group.counts.get(event.where, 0) + event.times
            case Ending():
                group.phase, group.reason, group.problem = "ending", event.reason, event.problem
            case Closed():
                group.phase, group.ended_us = "ended", event.at_us
                group.account.give_back(None)
            case Opened():
                raise AssertionError("a group is opened once")

    def _begin(self, event: Entered) -> None:
        found = self.members.get(event.agent)
        if found is not None:
            found.life, found.where = event.life, event.where
            found.packed, found.rests_until_us = max(found.packed, event.packed), 0
            found.steps = found.asks = 0  # a new life counts anew; what an earlier one asks for is refused
            return
        self.group.agents += 1
        member = AgentRecord(
            agent=event.agent,
            name=event.name,
            life=event.life,
            parent=event.parent,
            user=event.user,
            cookie=event.cookie,
            kind=event.kind,
            where=event.where,
            lease_s=event.lease_s,
            entered_us=event.at_us,
        )
        if event.kind == "mobile":  # it is on its way to a queue
            member.rests_until_us = max(1, event.at_us)
        self._account(event.parent).pass_on(event.share, member.account)
        self.members[event.agent] = self._running[event.agent] = member

    def _finish(self, event: Ended) -> None:
        agent = self.members[event.agent]
        self._running.pop(event.agent, None)
        agent.state, agent.reason, agent.ended_us = "ended", event.reason, event.at_us
        agent.is_lost, agent.problem = event.lost, event.problem
        if event.lost:
            agent.account.write_off()
        else:
            agent.account.give_back(self._account(self._living_parent(agent)))

"""What a group and its members are after all that has happened: a fold over the events of its ledger.

Nothing but an event changes this state, so it is the same wherever it is computed: at the home of the group,
after a restart, and by a reader of the log. Sums over all members are kept up as events are applied, since
groups are large, and their conditions are looked at with each result.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from tidings.agents.amounts import Account, total
from tidings.agents.conditions import Facts
from tidings.agents.events import (
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
    Opened,
    Ordered,
    Partnered,
    Placed,
    Rested,
    Resulted,
    Sealed,
    Spent,
    WrittenOff,
)
from tidings.agents.records import AgentRecord, GroupRecord, digest
from tidings.errors import AgentError, LifeEnded


class GroupState:
    """A group and its members, at some moment."""

    def __init__(self, group: GroupRecord, members: Iterable[AgentRecord] = ()) -> None:
        self.group = group
        self.members = {one.agent: one for one in members}
        self._running = {one.agent: one for one in self.members.values() if one.state != "ended"}
        self.totals = self.summed()
        self.facts = Facts(is_sealed=group.is_sealed, counts=group.counts)
        for one in self.members.values():
            self.facts.count(one.name, one.outcome)

    @classmethod
    def opened(cls, event: Opened) -> Self:
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
            alive=event.alive,
            parent_group=event.parent_group,
            parent=event.parent,
            kept_by=event.kept_by,
            together=event.together,
        )
        group.account.fund(event.budget)
        return cls(group)

    @classmethod
    def replay(cls, events: Iterable[AnyHappening]) -> Self:
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
    def running(self) -> list[AgentRecord]:
        """The members that have not ended, those that were entered first first."""
        return list(self._running.values())

    @property
    def running_count(self) -> int:
        """How many that are."""
        return len(self._running)

    def children(self, agent: str) -> list[AgentRecord]:
        """The members below one, at whatever depth, that have not ended."""
        below, found = {agent}, []
        for one in self.members.values():  # parents are entered before their children
            if one.parent in below:
                below.add(one.agent)
                if one.state != "ended":
                    found.append(one)
        return found

    def summed(self) -> Account:
        """The money of the whole group, as outside sees it: its own account, and those of all members."""
        accounts = [self.group.account, *(one.account for one in self.members.values())]
        return Account(
            given=dict(self.group.account.given),
            spent=total(one.spent for one in accounts),
            refunded=dict(self.group.account.refunded),
            held=total(one.held for one in accounts),
            written_off=total(one.written_off for one in accounts),
        )

    def account(self, agent: str) -> Account:
        """Return the account of an agent, or of the group."""
        return self.members[agent].account if agent else self.group.account

    def living_parent(self, agent: AgentRecord) -> str:
        """Return the nearest ancestor that has not ended; the group itself, if there is none."""
        parent = agent.parent
        while parent and self.members[parent].state == "ended":
            parent = self.members[parent].parent
        return parent

    # What happens

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
            case Partnered():
                self.members[event.agent].partners = event.partners
            case Spent():
                agent = self.members[event.agent]
                agent.account.spend(event.amounts)
                self.totals.spend(event.amounts)
                agent.steps = max(agent.steps, event.step)
            case WrittenOff():
                self.members[event.agent].account.lose(event.amounts)
                self.totals.lose(event.amounts)
            case Low():
                self.members[event.agent].low.append(event.unit)
            case Granted():
                agent = self.members[event.agent]
                self.account(self.living_parent(agent)).pass_on(event.amounts, agent.account)
                agent.low = [unit for unit in agent.low if unit not in event.amounts]
                agent.asks = max(agent.asks, event.ask)
            case Resulted():
                agent = self.members[event.agent]
                before = agent.outcome
                agent.result, agent.is_done = bytes(event.result), not event.partial
                self.facts.change(agent.name, before, agent.outcome)
            case Exempted():
                self.members[event.agent].is_exempt = True
            case Ordered():
                agent = self.members[event.agent]
                agent.state, agent.reason = "ending", event.reason
            case Ended():
                self._finish(event)
            case _:
                self._apply_to_group(event)

    def _apply_to_group(self, event: Opened | Sealed | Noted | Ending | Moved | Deputed | Closed) -> None:
        group = self.group
        match event:
            case Sealed():
                group.is_sealed = self.facts.is_sealed = True
            case Noted():
                group.counts[event.where] = group.counts.get(event.where, 0) + event.times
            case Ending():
                group.phase, group.reason, group.problem = "ending", event.reason, event.problem
            case Moved():
                group.home, group.generation = event.home, group.generation + 1
            case Deputed():
                group.kept_by = sorted(event.voters.values()) if len(event.voters) > 1 else []
            case Closed():
                group.phase, group.ended_us = "ended", event.at_us
                self.totals.refund(group.account.give_back(None))
            case Opened():
                raise AssertionError("a group is opened once")

    def _begin(self, event: Entered) -> None:
        found = self.members.get(event.agent)
        if found is not None:
            found.life, found.where = event.life, event.where
            found.packed, found.rests_until_us = max(found.packed, event.packed), 0
            found.step = event.step or found.step
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
        self.account(event.parent).pass_on(event.share, member.account)
        self.members[event.agent] = self._running[event.agent] = member
        self.facts.count(member.name, member.outcome)

    def _finish(self, event: Ended) -> None:
        agent = self.members[event.agent]
        self._running.pop(event.agent, None)
        before = agent.outcome
        agent.state, agent.reason, agent.ended_us = "ended", event.reason, event.at_us
        agent.is_lost, agent.problem = event.lost, event.problem
        self.facts.change(agent.name, before, agent.outcome)
        if event.lost:
            self.totals.lose(agent.account.write_off())
        else:
            agent.account.give_back(self.account(self.living_parent(agent)))

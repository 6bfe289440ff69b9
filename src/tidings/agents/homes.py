"""The groups whose home this node is: what is kept of them, and how one thing leads to another.

What a group does is decided by its ledger. Here its records are kept in the commit of the same tick, each
event is published as `agent.…` into the log, and what follows elsewhere is done: orders to groups that are
members, money that comes back, how long one that was ordered to end may take to say that it has.

What happens is decided at once. Orders to end, of which there may be thousands, are kept and published one
behind the other, and so is what follows from events; after a restart what was not done is done again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from typing import Any

import msgspec

from tidings.agents.events import AnyHappening, Closed, Ended, Ending, Entered, Ordered, Reason
from tidings.agents.kept_tree import changed_by
from tidings.agents.lease_watch import LeaseWatch
from tidings.agents.ledger import RESULT_SIZE_MAX, GroupLedger
from tidings.agents.news import GroupNews
from tidings.agents.notices import NoticeWatch
from tidings.agents.records import AgentRecord, GroupRecord
from tidings.agents.sights import Sights
from tidings.agents.views import TYPE, published, type_of
from tidings.errors import AgentError, Disconnected, GroupNotFound
from tidings.event import Event
from tidings.protocol.broker import Broker
from tidings.replies import Deferred
from tidings.steps import Steps
from tidings.store.interface import RecordKind
from tidings.timers import Alarm

KEPT_MAX = 1_000
"""Groups of a node that have ended and are still shown; the log has all."""
AT_ONCE = 8
"""Events of which one step sees what follows."""
CONFIRM_S = 5.0
"""How long after its grace one that was ordered to end may take to say that it has."""

GROUPS: RecordKind[tuple[str], GroupRecord] = RecordKind("agent-group", GroupRecord)
MEMBERS: RecordKind[tuple[str, str], AgentRecord] = RecordKind("agent", AgentRecord)

LifeKey = tuple[str, str]
"""A group and an agent of it; without an agent, the group itself."""


class HomeGroup:
    """A group at its home: the ledger, and what is not kept."""

    def __init__(self, ledger: GroupLedger) -> None:
        self.ledger = ledger
        self.version = 0
        self.watches: dict[Deferred[Any], int] = {}  # with the version that each knows
        self.orders = {one.agent: 0 for one in ledger.running if one.state == "ending"}
        """Agents that are to end, with the version in which they were ordered to."""
        self.told_at = -inf
        self.report: Alarm | None = None
        self.timeout: Alarm | None = None
        self.cookies = {one.cookie: one.agent for one in ledger.members.values()}
        self.untold: dict[str, Ordered] = {}  # orders that are neither kept nor published yet, by agent
        self.is_kept = False  # other nodes keep it, too: what happens counts once they agree

    @property
    def group(self) -> GroupRecord:
        """The group without its members."""
        return self.ledger.group


class GroupHomes:
    """The groups of a node."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.groups: dict[str, HomeGroup] = {}
        self.ended: dict[str, None] = {}  # ids of groups that have ended, the first first
        self.leases = LeaseWatch(self)
        self.notices = NoticeWatch(self)
        self.news = GroupNews(broker, self.leases)
        self.sights = Sights(broker.exchange, self._seen)
        self._forcing: dict[LifeKey, Alarm] = {}
        self._members: dict[LifeKey, HomeGroup] = {}  # groups by what they are members as
        self._line: deque[tuple[HomeGroup, AnyHappening]] = deque()  # events from which something follows
        self._is_working = self._is_in_line = False
        self._happened: list[Event] = []  # in this tick, and not published yet
        self.on_kept: Callable[[HomeGroup, list[AnyHappening], Callable[[], None]], None] | None = None
        """Called with what has happened in a group that others keep, and what to call when it is agreed."""
        self.on_forgotten: Callable[[str], None] = lambda _group: None
        """Called with each group that has ended and is shown no more."""

    @property
    def now_us(self) -> int:
        """The time of day, in microseconds."""
        return int(self.broker.wall * 1e6)

    def restored(self) -> dict[str, GroupLedger]:
        """Return the groups that were kept, by id."""
        members: dict[str, list[AgentRecord]] = {}
        for (group, _agent), member in MEMBERS.taken(self.broker.state).items():
            members.setdefault(group, []).append(member)
        for mine in members.values():
            mine.sort(key=lambda one: int(one.agent.rpartition(".")[2]))
        groups = GROUPS.taken(self.broker.state).items()
        return {group: GroupLedger(record, members.get(group, [])) for (group,), record in groups}

    def begin_all(self, ledgers: Iterable[GroupLedger], is_kept: bool = False) -> list[HomeGroup]:
        """Be the home of groups: each lease begins anew, as nobody could be heard meanwhile."""
        homes = [HomeGroup(ledger) for ledger in ledgers]
        for home in homes:
            home.is_kept = is_kept
            self.begin(home)
        for home in homes:
            for member in home.ledger.running:
                self.leases.begin(home, member)
        if homes:
            self.broker.background.add(self._resume(homes))
        return homes

    def adopt(self, ledger: GroupLedger, happened: list[AnyHappening]) -> None:
        """Be the home of a group that had another one, and keep all of it."""
        (home,) = self.begin_all([ledger])
        for member in ledger.members.values():
            self.broker.store(MEMBERS.set((ledger.group.group, member.agent), member))
        self.took(home, happened)

    def adopt_kept(self, ledgers: Iterable[GroupLedger], is_new: bool) -> None:
        """Be the home of groups that other nodes keep, too; `is_new`: another node was their home."""
        for home in self.begin_all(ledgers, is_kept=True):
            if is_new and home.group.phase != "ended":
                self.took(home, home.ledger.move(self.broker.node, self.now_us))
            self.sights.go_on(home.group.group)

    def let_go(self, groups: Iterable[str]) -> None:
        """Be the home of groups no longer, and do nothing more for them: another node is."""
        for group in groups:
            home = self.groups.pop(group, None)
            if home is None:
                continue
            for agent in ["", *home.ledger.members]:
                key = group, agent
                self.leases.forget(key)
                self.broker.timers.cancel(self._forcing.pop(key, None))
            self._members.pop((home.group.parent_group, home.group.parent), None)
            self.ended.pop(group, None)
            self._end_watching(home)
            self._line = deque(one for one in self._line if one[0] is not home)
            watches, home.watches = home.watches, {}
            for watch in watches:
                watch.fail(Disconnected(f"group {group} has another home"))

    def _resume(self, homes: list[HomeGroup]) -> Steps[None]:
        """See to what the node may not have come to before it stopped."""
        for home in homes:
            for member in home.ledger.running:
                if member.state == "ending":
                    self._ordered(home, member, member.reason or "user")
                    yield
            if home.group.phase == "ending":
                self.took(home, home.ledger.go_on_ending(self.now_us))
            elif home.group.phase == "ended":
                self._closed(home)
            yield

    def begin(self, home: HomeGroup) -> None:
        """Have a group, with its timers and the events that its condition waits for."""
        group = home.group
        self.groups[group.group] = home
        if group.parent:
            self._members[group.parent_group, group.parent] = home
        if group.phase == "ended":
            self.ended[group.group] = None
            return
        self.leases.begin_group(home)
        self.notices.begin_group(home)
        if group.until_us is not None:
            until = self.broker.deadline(group.until_us / 1e6)
            home.timeout = partial(self._time_out, home)
            self.broker.timers.at(until, home.timeout)
        self.sights.begin(group)

    def _time_out(self, home: HomeGroup, _now: float) -> None:
        home.timeout = None
        self.took(home, home.ledger.end("time", self.now_us))

    def _seen(self, group: str, where: str, times: int) -> None:
        home = self.groups[group]
        self.took(home, home.ledger.note(where, times, self.now_us))

    # What is there

    def find(self, which: str) -> HomeGroup:
        """The group of an id, or the one that has a name and has not ended, or that has ended last."""
        home = self.groups.get(which)
        if home is not None:
            return home
        named = [one for one in self.groups.values() if one.group.name == which]
        going = [one for one in named if one.group.phase != "ended"]
        if len(going) > 1:
            ids = ", ".join(one.group.group for one in going)
            raise GroupNotFound(which, f"several groups have this name: {ids}")
        if not named:
            raise GroupNotFound(which, "there is no such group at this node")
        return (going or named)[-1]

    def of_agent(self, agent: str) -> HomeGroup:
        """The group of an agent, which its id names."""
        home = self.groups.get(agent.rpartition(".")[0])
        if home is None:
            raise AgentError(agent, "there is no such agent at this node")
        return home

    def sought(self, which: str) -> tuple[HomeGroup, AgentRecord | None]:
        """The agent of an id, or the group of an id or name."""
        group, dot, number = which.rpartition(".")
        if dot and number.isdigit() and group in self.groups:
            home = self.groups[group]
            return home, home.ledger.find(which)
        return self.find(which), None

    def group_of(self, home: HomeGroup, member: AgentRecord) -> HomeGroup | None:
        """The group that a member stands for, if it has not ended."""
        other = self._members.get((home.group.group, member.agent))
        return other if other is not None and other.group.phase != "ended" else None

    def below(self, home: HomeGroup) -> list[HomeGroup]:
        """The groups that are members of this one, each itself with others below it, maybe."""
        return [one for (group, _agent), one in self._members.items() if group == home.group.group]

    # What has happened

    def took(self, home: HomeGroup, happened: Iterable[AnyHappening]) -> None:
        """Keep, publish and report what has happened, and see to what follows from it."""
        events = list(happened)
        if not events or self.groups.get(home.group.group) is not home:
            return  # nothing, or another node is its home meanwhile
        self._keep(home, [event for event in events if not isinstance(event, Ordered)])
        if home.is_kept and self.on_kept is not None:
            self.on_kept(home, events, partial(self._tell, home, events))
        else:
            self._tell(home, events)

    def _tell(self, home: HomeGroup, events: list[AnyHappening]) -> None:
        for event in events:
            if isinstance(event, Ordered):
                home.untold[event.agent] = event
            else:
                self._keep_order(home, _agent_of(event))
                self._publish(home, event)
        self._line.extend((home, event) for event in events)
        self._report(home, any(isinstance(event, Ending | Closed) for event in events))
        self._begin_work()

    def _report(self, home: HomeGroup, is_urgent: bool) -> None:
        home.version += 1
        if home.watches:
            self.news.report(home, is_urgent)

    def _publish(self, home: HomeGroup, event: AnyHappening) -> None:
        self._happened.append(published(home.ledger, event))  # the log keeps it
        self.broker.count("agent_events", reason=type_of(event).removeprefix(TYPE))

    def _keep(self, home: HomeGroup, events: list[AnyHappening]) -> None:
        changed: dict[str, None] = {}
        for event in events:
            if isinstance(event, Entered):
                home.cookies[event.cookie] = event.agent
            changed |= dict.fromkeys(changed_by(home.ledger, event))
        for agent in changed:
            if agent:
                self._keep_member(home, agent)
            else:
                self.broker.store(GROUPS.set((home.group.group,), home.group))

    def _keep_member(self, home: HomeGroup, agent: str) -> None:
        """Keep what is known of an agent; that it was ordered to end is published first."""
        order = home.untold.pop(agent, None)
        if order is not None:
            self._publish(home, order)
        self.broker.store(MEMBERS.set((home.group.group, agent), home.ledger.members[agent]))

    def _keep_order(self, home: HomeGroup, agent: str) -> None:
        """Keep and publish that an agent was ordered to end, if that is still to be done."""
        if agent in home.untold:
            self._keep_member(home, agent)

    def finish_tick(self) -> None:
        """Publish what has happened in this tick, and answer those who watch groups that have changed."""
        while self._happened:  # conditions may count some of it
            happened, self._happened = self._happened, []
            self.broker.announce(*happened)
        self.news.finish_tick()

    # What follows

    @property
    def is_behind(self) -> bool:
        """Whether something is still to follow from what has happened."""
        return bool(self._line)

    def _begin_work(self) -> None:
        """Do what follows: a step of it now, and the rest in turn with other work of the node."""
        if self._is_working:
            return
        self.work()
        if self._line and not self._is_in_line:
            self._is_in_line = True
            self.broker.background.add(self._work_off())

    def _work_off(self) -> Steps[None]:
        try:
            while self._line:
                self.work()
                yield
        finally:
            self._is_in_line = False

    def work(self) -> None:
        """Do a step of what follows."""
        self._is_working = True
        try:
            for _ in range(min(AT_ONCE, len(self._line))):
                self._follow(*self._line.popleft())
        finally:
            self._is_working = False

    def _follow(self, home: HomeGroup, event: AnyHappening) -> None:
        if isinstance(event, Ordered):
            self._keep_order(home, event.agent)
            self._ordered(home, home.ledger.members[event.agent], event.reason)
        elif isinstance(event, Ended):
            key = home.group.group, event.agent
            home.orders.pop(event.agent, None)
            self.leases.forget(key)
            self.broker.timers.cancel(self._forcing.pop(key, None))
        elif isinstance(event, Closed):
            self._closed(home)

    def _ordered(self, home: HomeGroup, member: AgentRecord, reason: Reason) -> None:
        if member.state != "ending":
            return
        self._report(home, True)
        home.orders[member.agent] = home.version
        below = self.group_of(home, member)
        if below is not None:
            self.took(below, below.ledger.end(reason, self.now_us))
        elif member.is_at_rest:  # it does nothing, and is refused on arrival
            self.took(home, home.ledger.leave(member, reason, self.now_us))
        else:
            self._force(home, member.agent)

    def _force(self, home: HomeGroup, agent: str) -> None:
        """Take one for lost that was ordered to end, and does not say that it has."""
        key = home.group.group, agent

        def force(_now: float) -> None:
            self._forcing.pop(key, None)
            member = home.ledger.members[agent]
            problem = "it did not say that it had ended"
            self.took(home, home.ledger.leave(member, "orphan", self.now_us, problem, lost=True))

        self._forcing[key] = force
        self.broker.timers.at(self.broker.now + home.group.grace_s + CONFIRM_S, force)

    # A group that has ended

    def _closed(self, home: HomeGroup) -> None:
        group = home.group
        self._end_watching(home)
        self.leases.forget((group.group, ""))
        self.ended[group.group] = None
        while len(self.ended) > KEPT_MAX:
            oldest = next(iter(self.ended))
            del self.ended[oldest]
            self.broker.background.add(self._forget(oldest))
        above = self.groups.get(group.parent_group)
        member = None if above is None else above.ledger.members.get(group.parent)
        if above is not None and member is not None and member.state != "ended":
            self._end_member(home, above, member)

    def _end_watching(self, home: HomeGroup) -> None:
        """Wait no more for the time-out of a group, events that its condition needs, and notices."""
        self.broker.timers.cancel(home.timeout)
        self.broker.timers.cancel(home.report)
        self.sights.end([home.group.group])
        self.notices.end_group(home)

    def _end_member(self, home: HomeGroup, above: HomeGroup, member: AgentRecord) -> None:
        """End the member that a group has been of another one, with its results and its money."""
        group, totals, now_us = home.group, home.ledger.totals, self.now_us
        if group.reason == "condition" and not member.is_done:
            results = _joined([one for one in home.ledger.members.values() if one.is_done])
            self.took(above, above.ledger.result(member, results, False, now_us))
        self.took(above, above.ledger.settle(member, totals.spent, totals.written_off, now_us))
        reason: Reason = "done" if group.reason == "condition" else group.reason or "error"
        self.took(above, above.ledger.leave(member, reason, now_us, group.problem))

    def _forget(self, group: str) -> Steps[None]:
        home = self.groups[group]
        for agent in home.ledger.members:
            self.broker.store(MEMBERS.drop((group, agent)))
            yield
        self.broker.store(GROUPS.drop((group,)))
        self._members.pop((home.group.parent_group, home.group.parent), None)
        del self.groups[group]
        self.on_forgotten(group)


def _agent_of(event: AnyHappening) -> str:
    """Return the agent that something has happened to, or nothing."""
    return getattr(event, "agent", "")


def _joined(members: list[AgentRecord]) -> bytes:
    """Return the results of members as one; how many there are, if that would be too long."""
    if sum(len(one.result or b"") for one in members) <= RESULT_SIZE_MAX:
        results = msgspec.json.encode({one.name: msgspec.Raw(one.result or b"null") for one in members})
        if len(results) <= RESULT_SIZE_MAX:
            return results
    return msgspec.json.encode({"results": len(members)})  # they are in the group itself, and in the log

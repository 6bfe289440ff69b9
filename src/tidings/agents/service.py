"""The agents of a node: the groups whose home it is, as a service of the broker.

What a group does is decided by its ledger. This service checks who may ask for it, keeps the records in the
commit of the same tick, publishes each event as `agent.…` into the log, and has the timers: time-outs,
leases, and how long one that was ordered to end may take to say that it has. Clients ask by requests, each of
which may be sent twice; `agent.watch` tells them of changes.

A member whose lease ends was not heard of for as long: it is lost, and what it held is written off. If this
node itself stood still meanwhile, nobody could have been heard: then each lease gets a renewal's time more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from typing import Any

import msgspec

from tidings.agents.amounts import amounts_of
from tidings.agents.arguments import (
    AgentLife,
    EnterAgent,
    GiveResult,
    GroupInfo,
    LeaseTerms,
    LeaveGroup,
    OpenGroup,
    SpendAmounts,
    StopAgents,
    WatchGroup,
    WhichGroup,
)
from tidings.agents.conditions import decode_condition
from tidings.agents.events import (
    AnyHappening,
    Closed,
    Ended,
    Ending,
    Entered,
    Opened,
    Ordered,
    Reason,
)
from tidings.agents.ledger import RESULT_SIZE_MAX, GroupLedger
from tidings.agents.records import AgentRecord, GroupRecord, digest
from tidings.agents.rights import check_may, check_owner, check_sees, sees
from tidings.agents.views import TYPE, group_info, lease_terms, published, type_of
from tidings.errors import AgentError, GroupNotFound, Refused
from tidings.event import Batch
from tidings.exchange import EventSink, NodeSubscription, Positions, Rows
from tidings.filters import Filter
from tidings.log.arguments import Nothing
from tidings.protocol.access import Principal
from tidings.protocol.arguments import check_readable
from tidings.protocol.broker import Broker
from tidings.protocol.service import IncomingRequest, Service
from tidings.replies import Deferred, resolved
from tidings.store.interface import RecordKind
from tidings.timers import Alarm, Leases, renewal_s

GROUPS_MAX = 10_000
"""Groups of a node that have not ended."""
CONDITION_SIZE_MAX = 16 << 10
"""Bytes of a condition, which is part of the record of its group."""
KEPT_MAX = 1_000
"""Groups of a node that have ended and are still shown; the log has all."""
CONFIRM_S = 5.0
"""How long after its grace one that was ordered to end may take to say that it has."""
WATCH_S = 10.0
"""After so long a watch is answered though nothing has changed."""
NEWS_S = 0.1
"""How often those who watch a group are told of changes that are no end."""
WATCHES_MAX = 10_000
"""Watches of a node that wait."""
STALL_S = 1.0
"""A node that is so late for the end of a lease stood still itself."""
IDLE_S = 60.0
"""A group in which nobody runs, and that nobody has watched for so long, ends: it is an orphan itself."""

GROUPS: RecordKind[tuple[str], GroupRecord] = RecordKind("agent-group", GroupRecord)
MEMBERS: RecordKind[tuple[str, str], AgentRecord] = RecordKind("agent", AgentRecord)


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
        self.sights: list[NodeSubscription] = []
        self.cookies = {one.cookie: one.agent for one in ledger.members.values()}

    @property
    def group(self) -> GroupRecord:
        """The group without its members."""
        return self.ledger.group


class _Sight(EventSink):
    """Counts events of a group that its condition waits for."""

    def __init__(self, count: Callable[[int], None]) -> None:
        self._count = count

    def deliver(self, _batch: Batch, rows: Rows, _positions: Positions) -> None:
        self._count(len(rows))


class AgentService(Service):
    """The groups of a node."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._groups: dict[str, HomeGroup] = {}
        self._ended: dict[str, None] = {}  # ids of groups that have ended, the first first
        self._heard: dict[tuple[str, str], float] = {}  # when each life was last heard of
        self._leases: Leases[tuple[str, str]] = Leases(self._lease_end)
        self._forcing: dict[tuple[str, str], Alarm] = {}
        self._alarm = self._wake
        self._waiting = 0
        self._told: dict[HomeGroup, None] = {}  # changed in this tick, and watched
        self.operations = {
            "agent.open": (OpenGroup, self._open),
            "agent.seal": (WhichGroup, self._seal),
            "agent.enter": (EnterAgent, self._enter),
            "agent.restart": (AgentLife, self._restart),
            "agent.renew": (AgentLife, self._renew),
            "agent.spend": (SpendAmounts, self._spend),
            "agent.more": (SpendAmounts, self._more),
            "agent.result": (GiveResult, self._result),
            "agent.release": (AgentLife, self._release),
            "agent.leave": (LeaveGroup, self._leave),
            "agent.stop": (StopAgents, self._stop),
            "agent.exempt": (StopAgents, self._exempt),
            "agent.extend": (StopAgents, self._extend),
            "agent.watch": (WatchGroup, self._watch),
            "agent.show": (WhichGroup, self._show),
            "agent.list": (Nothing, self._list),
        }
        self._restore()

    def _restore(self) -> None:
        """Begin with what was kept: each lease begins anew, as nobody could be heard meanwhile."""
        members: dict[str, list[AgentRecord]] = {}
        for (group, _agent), member in MEMBERS.taken(self._broker.state).items():
            members.setdefault(group, []).append(member)
        for (group,), record in GROUPS.taken(self._broker.state).items():
            mine = sorted(members.get(group, []), key=lambda one: int(one.agent.rpartition(".")[2]))
            self._begin(HomeGroup(GroupLedger(record, mine)))
        for home in self._groups.values():
            for member in home.ledger.running:
                self._begin_lease(home, member)
                if member.state == "ending":
                    self._force(home, member.agent)

    def _begin(self, home: HomeGroup) -> None:
        group = home.group
        self._groups[group.group] = home
        if group.phase == "ended":
            self._ended[group.group] = None
            return
        self._care(home)
        self._leases.watch((group.group, ""))
        self._set_alarm()
        if group.until_us is not None:
            until = self._broker.deadline(group.until_us / 1e6)
            home.timeout = partial(self._time_out, home)
            self._broker.timers.at(until, home.timeout)
        for where in sorted(group.condition.filters()):
            wanted = Filter(where) & Filter("group = :group", group=group.group)
            sight = NodeSubscription(wanted, _Sight(partial(self._seen, home, where)), passive=True)
            self._broker.exchange.subscribe(sight)
            home.sights.append(sight)

    def status(self) -> dict[str, Any]:
        """Return the number of groups and agents that have not ended."""
        running = [one for one in self._groups.values() if one.group.phase != "ended"]
        return {"groups": len(running), "agents": sum(len(one.ledger.running) for one in running)}

    # Groups

    def _open(self, asked: IncomingRequest, request: OpenGroup) -> Any:
        principal = asked.session.principal
        found = self._groups.get(request.group)
        if found is not None and found.group.user == principal.user and found.group.name == request.name:
            return _built(self._about(found))
        if found is not None:
            raise Refused("exists", f"there is a group {request.group!r} already")
        check_readable(request.name, "the name of a group")
        if len(self._groups) - len(self._ended) >= GROUPS_MAX:
            raise Refused("limit", f"a node has at most {GROUPS_MAX} groups")
        budget, parent_group = amounts_of(request.budget), ""
        check_may(principal, "opened", request.group, request.name)
        if request.parent:
            above, member = self._spoken_for(principal, request.parent, request.parent_cookie)
            if member.kind != "group":
                raise AgentError(member.name, "only an agent of the kind 'group' stands for a group")
            parent_group, budget = above.group.group, dict(member.account.held)
        elif budget:
            check_may(principal, "funded", request.group, request.name)
        condition = decode_condition(request.condition)
        if len(msgspec.msgpack.encode(condition)) > CONDITION_SIZE_MAX:
            raise Refused("limit", f"a condition has at most {CONDITION_SIZE_MAX} bytes")
        now_us = self._now_us
        opened = Opened(
            group=request.group,
            name=request.name,
            user=principal.user,
            condition=condition,
            grace_s=request.grace_s,
            until_us=None if request.timeout_s is None else now_us + round(request.timeout_s * 1e6),
            budget=budget,
            rates=amounts_of(request.rates, "rates"),
            soft=request.soft,
            parent_group=parent_group,
            parent=request.parent,
            at_us=now_us,
        )
        home = HomeGroup(GroupLedger.opened(opened))
        self._begin(home)
        self._leases.cancel((parent_group, request.parent))  # it lives as long as its group
        self._took(home, [opened])
        return _built(self._about(home))

    def _seal(self, asked: IncomingRequest, request: WhichGroup) -> None:
        home = self._find(request.group)
        check_owner(asked.session.principal, home.group, "entered")
        self._took(home, home.ledger.seal(self._now_us))

    def _time_out(self, home: HomeGroup, _now: float) -> None:
        home.timeout = None
        self._took(home, home.ledger.end("time", self._now_us))

    def _seen(self, home: HomeGroup, where: str, times: int) -> None:
        self._took(home, home.ledger.note(where, times, self._now_us))

    # Lives

    def _enter(self, asked: IncomingRequest, request: EnterAgent) -> Any:
        principal, home = asked.session.principal, self._find(request.group)
        known = home.cookies.get(digest(request.cookie))
        if known is not None:
            return _built(
                self._terms(home, home.ledger.living(known, home.ledger.find(known).life, request.cookie))
            )
        check_may(principal, "entered", home.group.group, home.group.name, request.name)
        check_readable(request.name, "the name of an agent")
        happened = home.ledger.enter(
            request.name,
            parent=request.parent,
            user=principal.user,
            cookie=request.cookie,
            kind=request.kind,
            where=request.where,
            lease_s=request.lease_s,
            share=amounts_of(request.share, "share"),
            now_us=self._now_us,
        )
        (entered,) = happened
        assert isinstance(entered, Entered)
        self._took(home, happened)
        member = home.ledger.members[entered.agent]
        self._begin_lease(home, member)
        return _built(self._terms(home, member))

    def _restart(self, asked: IncomingRequest, request: AgentLife) -> Any:
        home, member = self._own(asked, request)
        self._took(home, home.ledger.restart(member.agent, request.cookie, request.where, self._now_us))
        return _built(self._terms(home, member))

    def _renew(self, asked: IncomingRequest, request: AgentLife) -> Any:
        home, member = self._own(asked, request)
        return _built(self._terms(home, member))

    def _spend(self, asked: IncomingRequest, request: SpendAmounts) -> Any:
        home, member = self._own(asked, request)
        amounts = amounts_of(request.amounts, "amounts")
        self._took(home, home.ledger.spend(member, amounts, request.what, self._now_us, request.step))
        return _built(self._terms(home, member))

    def _more(self, asked: IncomingRequest, request: SpendAmounts) -> Any:
        home, member = self._own(asked, request)
        amounts = amounts_of(request.amounts, "amounts")
        check_may(asked.session.principal, "granted", home.group.group, home.group.name)
        self._took(home, home.ledger.grant(member, amounts, self._now_us))
        return _built(self._terms(home, member))

    def _result(self, asked: IncomingRequest, request: GiveResult) -> Any:
        home, member = self._own(asked, request)
        try:
            msgspec.json.decode(request.result)
        except msgspec.DecodeError as error:
            raise AgentError(member.name, f"its result is no JSON: {error}") from None
        if not (member.is_done and member.result == request.result):  # not asked for twice
            self._took(home, home.ledger.result(member, request.result, request.partial, self._now_us))
        return _built(self._terms(home, member))

    def _release(self, asked: IncomingRequest, request: AgentLife) -> None:
        home, member = self._own(asked, request)
        self._let_go(home, member)

    def _leave(self, asked: IncomingRequest, request: LeaveGroup) -> None:
        home, agent = self._home_of(request.agent)
        member = home.ledger.find(agent)
        if (
            member.state == "ended"
            and member.life == request.life
            and member.cookie == digest(request.cookie)
        ):
            return  # asked for twice, or judged meanwhile
        home, member = self._own(asked, request)
        self._took(home, home.ledger.leave(member, request.reason, self._now_us, request.problem))

    def _own(self, asked: IncomingRequest, request: AgentLife) -> tuple[HomeGroup, AgentRecord]:
        """The agent that a life speaks for, which was heard of by that, and pays for its time."""
        home, member = self._spoken_for(asked.session.principal, request.agent, request.cookie, request.life)
        if request.where:
            self._took(home, home.ledger.place(member, request.where, self._now_us))
        key = home.group.group, member.agent
        before = self._heard.get(key, self._broker.now)
        self._heard[key] = self._broker.now
        if home.group.rates and member.kind != "group":
            self._took(home, home.ledger.charge(member, self._broker.now - before, self._now_us))
        return home, member

    def _spoken_for(
        self, principal: Principal, agent: str, cookie: str, life: int | None = None
    ) -> tuple[HomeGroup, AgentRecord]:
        home, agent = self._home_of(agent)
        number = home.ledger.find(agent).life if life is None else life
        return home, home.ledger.living(agent, number, cookie, principal.user)

    # Ends

    def _stop(self, asked: IncomingRequest, request: StopAgents) -> None:
        home, member = self._sought(request.which)
        check_owner(asked.session.principal, home.group, "stop")
        if member is None:
            self._took(home, home.ledger.end(request.reason, self._now_us))
        else:
            self._took(home, home.ledger.stop(member, request.reason, self._now_us))

    def _exempt(self, asked: IncomingRequest, request: StopAgents) -> None:
        """Let an agent live without a lease, as the owner of its group."""
        home, member = self._sought(request.which)
        check_owner(asked.session.principal, home.group, "released")
        for one in home.ledger.running if member is None else [member]:
            self._let_go(home, one)

    def _extend(self, asked: IncomingRequest, request: StopAgents) -> int:
        """Renew leases, as the owner of the group who still wants its result; how many."""
        home, member = self._sought(request.which)
        check_owner(asked.session.principal, home.group, "renewed")
        agents = home.ledger.running if member is None else [member]
        keys = [key for one in agents if (key := (home.group.group, one.agent)) in self._leases]
        for key in keys:
            self._heard[key] = self._broker.now
        return len(keys)

    def _let_go(self, home: HomeGroup, member: AgentRecord) -> None:
        self._leases.cancel((home.group.group, member.agent))
        self._took(home, home.ledger.exempt(member, self._now_us))

    def _care(self, home: HomeGroup) -> None:
        """Note that somebody wants to know of a group."""
        self._heard[home.group.group, ""] = self._broker.now

    def _begin_lease(self, home: HomeGroup, member: AgentRecord) -> None:
        if not member.is_exempt and self._group_of(home, member) is None:
            key = home.group.group, member.agent
            self._heard[key] = self._broker.now
            self._leases.watch(key)
            self._set_alarm()

    def _lease_end(self, key: tuple[str, str]) -> float:
        group, agent = key
        home = self._groups.get(group)
        if home is not None and not agent:
            return -inf if home.group.phase == "ended" else self._heard[key] + IDLE_S
        member = None if home is None else home.ledger.members.get(agent)
        if member is None or member.state == "ended":
            return -inf
        return self._heard.get(key, 0.0) + member.lease_s

    def _wake(self, now: float) -> None:
        """End the agents whose leases have ended."""
        late_s = now - self._leases.wake_at
        for group, agent in list(self._leases.ended(now)):
            home = self._groups.get(group)
            if home is not None and not agent:
                self._look_after(home)
                continue
            member = None if home is None else home.ledger.members.get(agent)
            if home is None or member is None or member.state == "ended":
                continue
            if late_s > STALL_S:
                self._heard[group, agent] = now - member.lease_s + renewal_s(member.lease_s)
                self._leases.watch((group, agent))
                continue
            self._took(
                home, home.ledger.leave(member, "orphan", self._now_us, "its lease has ended", lost=True)
            )
        self._set_alarm()

    def _look_after(self, home: HomeGroup) -> None:
        """End a group that nobody cares for, and in which nobody runs."""
        if home.group.phase != "open":
            return
        if home.ledger.running:
            self._care(home)
            self._leases.watch((home.group.group, ""))
        else:
            self._took(
                home, home.ledger.end("orphan", self._now_us, "nobody runs in it, and nobody watches it")
            )

    def _set_alarm(self) -> None:
        self._broker.timers.at(self._leases.wake_at, self._alarm)

    def _force(self, home: HomeGroup, agent: str) -> None:
        """Take one for lost that was ordered to end, and does not say that it has."""
        key = home.group.group, agent

        def force(_now: float) -> None:
            self._forcing.pop(key, None)
            member = home.ledger.members[agent]
            problem = "it did not say that it had ended"
            self._took(home, home.ledger.leave(member, "orphan", self._now_us, problem, lost=True))

        self._forcing[key] = force
        self._broker.timers.at(self._broker.now + home.group.grace_s + CONFIRM_S, force)

    # What has happened

    def _took(self, home: HomeGroup, happened: Iterable[AnyHappening]) -> None:
        """Keep, publish and report what has happened, and do what follows in other groups."""
        events = list(happened)
        if not events:
            return
        home.version += 1
        for event in events:
            self._broker.announce(published(home.ledger, event))  # the log keeps it
            self._broker.count("agent_events", reason=type_of(event).removeprefix(TYPE))
        self._keep(home, events)
        for event in events:
            self._follow(home, event)
        if home.watches:
            self._report(
                home, is_urgent=any(isinstance(event, Ordered | Ending | Closed) for event in events)
            )

    def _report(self, home: HomeGroup, is_urgent: bool) -> None:
        """Have those who watch a group told, of an end at once, else not more often than every NEWS_S."""
        if is_urgent or self._broker.now >= home.told_at + NEWS_S:
            self._told[home] = None
        elif home.report is None:

            def report(_now: float) -> None:
                home.report = None
                self._told[home] = None

            home.report = self._broker.timers.at(home.told_at + NEWS_S, report)

    def finish_tick(self) -> None:
        """Answer those who watch groups that have changed in this tick."""
        told, self._told = self._told, {}
        for home in told:
            home.told_at = self._broker.now
            watches, home.watches = home.watches, {}
            for watch, after in watches.items():
                watch.resolve(_built(self._news(home, after)))

    def _news(self, home: HomeGroup, after: int) -> GroupInfo:
        """What watchers get: of the agents only those that were ordered to end since a version."""
        members = home.ledger.members
        return self._about(home, [members[one] for one, version in home.orders.items() if version > after])

    def _keep(self, home: HomeGroup, events: list[AnyHappening]) -> None:
        broker, group = self._broker, home.group.group
        changed: dict[str, None] = {}
        for event in events:
            agent = getattr(event, "agent", "")
            if isinstance(event, Entered):
                home.cookies[event.cookie] = agent
            while agent and agent not in changed:  # money moves between an agent and those above it
                changed[agent] = None
                agent = home.ledger.members[agent].parent
        for agent in changed:
            broker.store(MEMBERS.set((group, agent), home.ledger.members[agent]))
        broker.store(GROUPS.set((group,), home.group))

    def _follow(self, home: HomeGroup, event: AnyHappening) -> None:
        if isinstance(event, Ordered):
            member = home.ledger.members[event.agent]
            if member.state == "ending":
                home.orders[event.agent] = home.version
            below = self._group_of(home, member)
            if below is not None:
                self._took(below, below.ledger.end(event.reason, self._now_us))
            elif member.state == "ending":
                self._force(home, event.agent)
        elif isinstance(event, Ended):
            key = home.group.group, event.agent
            home.orders.pop(event.agent, None)
            self._heard.pop(key, None)
            self._leases.cancel(key)
            self._broker.timers.cancel(self._forcing.pop(key, None))
        elif isinstance(event, Closed):
            self._closed(home)

    def _group_of(self, home: HomeGroup, member: AgentRecord) -> HomeGroup | None:
        """The group that a member stands for, if it has not ended."""
        if member.kind != "group":
            return None
        for other in self._groups.values():
            mine = other.group.parent_group == home.group.group and other.group.parent == member.agent
            if mine and other.group.phase != "ended":
                return other
        return None

    def _closed(self, home: HomeGroup) -> None:
        group, now_us = home.group, self._now_us
        if home.timeout is not None:
            self._broker.timers.cancel(home.timeout)
        for sight in home.sights:
            self._broker.exchange.unsubscribe(sight)
        home.sights.clear()
        self._leases.cancel((group.group, ""))
        self._heard.pop((group.group, ""), None)
        self._ended[group.group] = None
        while len(self._ended) > KEPT_MAX:
            self._forget(next(iter(self._ended)))
        above = self._groups.get(group.parent_group)
        member = None if above is None else above.ledger.members.get(group.parent)
        if above is None or member is None or member.state == "ended":
            return
        totals = home.ledger.totals
        if group.reason == "condition" and not member.is_done:
            done = [one for one in home.ledger.members.values() if one.is_done]
            results = msgspec.json.encode({one.name: msgspec.Raw(one.result or b"null") for one in done})
            if len(results) > RESULT_SIZE_MAX:  # they are in the group itself, and in the log
                results = msgspec.json.encode({"results": len(done)})
            self._took(above, above.ledger.result(member, results, False, now_us))
        self._took(above, above.ledger.settle(member, totals.spent, totals.written_off, now_us))
        reason: Reason = "done" if group.reason == "condition" else group.reason or "error"
        self._took(above, above.ledger.leave(member, reason, now_us, group.problem))

    def _forget(self, group: str) -> None:
        del self._ended[group]
        home = self._groups.pop(group)
        for agent in home.ledger.members:
            self._broker.store(MEMBERS.drop((group, agent)))
        self._broker.store(GROUPS.drop((group,)))

    # Looking

    def _watch(self, asked: IncomingRequest, request: WatchGroup) -> Deferred[Any]:
        home = self._find(request.group)
        check_sees(asked.session.principal, home.group)
        self._care(home)
        after = request.after if request.after <= home.version else -1  # that of an earlier life of this node
        if home.version > after or home.group.phase == "ended":
            return resolved(_built(self._news(home, after)))
        if self._waiting >= WATCHES_MAX:
            raise Refused("limit", f"{WATCHES_MAX} watches wait already")

        def over(_outcome: object = None) -> None:
            home.watches.pop(watch, None)

        watch: Deferred[Any] = Deferred(over)
        home.watches[watch] = after
        self._waiting += 1

        def late(_now: float) -> None:
            self._waiting -= 1
            if not watch.is_over:
                over()
                watch.resolve(_built(self._news(home, after)))

        self._broker.timers.at(self._broker.now + WATCH_S, late)
        return watch

    def _show(self, asked: IncomingRequest, request: WhichGroup) -> Any:
        home = self._find(request.group)
        check_sees(asked.session.principal, home.group)
        return _built(self._about(home))

    def _list(self, asked: IncomingRequest, _nothing: Nothing) -> list[Any]:
        """Return the groups that a client may see, without their members."""
        seen = [one for one in self._groups.values() if sees(asked.session.principal, one.group)]
        return [_built(self._about(one, [])) for one in seen]

    def _about(self, home: HomeGroup, agents: Iterable[AgentRecord] | None = None) -> GroupInfo:
        agents = home.ledger.members.values() if agents is None else agents

        def left_s(one: AgentRecord) -> float | None:
            key = home.group.group, one.agent
            return self._lease_end(key) - self._broker.now if key in self._leases else None

        return group_info(home.ledger, home.version, agents, left_s)

    def _terms(self, home: HomeGroup, member: AgentRecord) -> LeaseTerms:
        return lease_terms(home.group, member, self._now_us)

    # Who may what

    @property
    def _now_us(self) -> int:
        return int(self._broker.wall * 1e6)

    def _find(self, which: str) -> HomeGroup:
        """The group of an id, or the one that has a name and has not ended, or that has ended last."""
        home = self._groups.get(which)
        if home is not None:
            return home
        named = [one for one in self._groups.values() if one.group.name == which]
        going = [one for one in named if one.group.phase != "ended"]
        if len(going) > 1:
            ids = ", ".join(one.group.group for one in going)
            raise GroupNotFound(which, f"several groups have this name: {ids}")
        if not named:
            raise GroupNotFound(which, "there is no such group at this node")
        return (going or named)[-1]

    def _home_of(self, agent: str) -> tuple[HomeGroup, str]:
        home = self._groups.get(agent.rpartition(".")[0])
        if home is None:
            raise AgentError(agent, "there is no such agent at this node")
        return home, agent

    def _sought(self, which: str) -> tuple[HomeGroup, AgentRecord | None]:
        """The agent of an id, or the group of an id or name."""
        group, dot, number = which.rpartition(".")
        if dot and number.isdigit() and group in self._groups:
            home = self._groups[group]
            return home, home.ledger.find(which)
        return self._find(which), None


def _built(info: GroupInfo | LeaseTerms) -> Any:
    return msgspec.to_builtins(info)

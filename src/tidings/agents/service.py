"""The agents of a node, as a service of the broker: who may ask for what, and what is answered.

What there is and follows is in `homes`. Clients ask by requests, each of which may be sent twice; a watch is
answered when its group has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tidings.agents.amounts import amounts_of
from tidings.agents.arguments import (
    AgentLife,
    ArriveAgent,
    ArriveAgents,
    AskHome,
    ChangeDeputies,
    DeclarePartners,
    EnterAgent,
    GiveResult,
    LeaseTerms,
    LeaveGroup,
    OpenGroup,
    RenewAgents,
    RestAgent,
    RestAgents,
    ShowGroup,
    SpendAmounts,
    StopAgents,
    TakeGroup,
    WatchGroup,
    WhichGroup,
)
from tidings.agents.conditions import decode_condition
from tidings.agents.elsewhere import Elsewhere, known_as, named_in, then_answer
from tidings.agents.events import (
    Entered,
    Opened,
)
from tidings.agents.homes import AT_ONCE, GroupHomes, HomeGroup
from tidings.agents.keeping import Keeping
from tidings.agents.ledger import GroupLedger
from tidings.agents.news import built
from tidings.agents.records import AgentRecord, digest
from tidings.agents.rights import check_may, check_owner, check_sees, sees
from tidings.agents.takeover import Takeovers
from tidings.agents.views import group_info, lease_terms
from tidings.errors import (
    AgentError,
    BudgetExceeded,
    Disconnected,
    GroupEnded,
    GroupNotFound,
    LifeEnded,
    Refused,
    UserError,
)
from tidings.log.arguments import Nothing
from tidings.peers.backend import Peers
from tidings.protocol.access import Principal
from tidings.protocol.arguments import check_readable
from tidings.protocol.broker import Broker
from tidings.protocol.service import IncomingRequest, Service
from tidings.replies import Deferred, failed
from tidings.steps import Steps

GROUPS_MAX = 10_000
"""Groups of a node that have not ended."""
CONDITION_SIZE_MAX = 16 << 10
"""Bytes of a condition, which is part of the record of its group."""

_LOOKS = "agent.show", "agent.watch"
"""Operations that decide nothing, and are answered at once."""
_REASONS: dict[type[UserError], str] = {
    LifeEnded: "life",
    BudgetExceeded: "budget",
    GroupEnded: "ended",
    GroupNotFound: "unknown",
}
"""Reasons for which requests are refused, as they are counted."""

Asked = Callable[[IncomingRequest, Any], Any]


class AgentService(Service):
    """The groups of a node."""

    def __init__(
        self, broker: Broker, peers: Peers, chance: Callable[[], float], deputies: Sequence[str] = ()
    ) -> None:
        """`chance` returns a number from 0 to 1; `deputies` are nodes that keep each group opened here."""
        self._broker = broker
        self._deputies = deputies
        self._homes = GroupHomes(broker)
        self.keeping = Keeping(self._homes, peers, chance)
        self._takeovers = Takeovers(self._homes, peers)
        self._elsewhere = Elsewhere(peers, self._takeovers, self.keeping)
        own: dict[str, tuple[Any, Asked]] = {
            "agent.open": (OpenGroup, self._open),
            "agent.seal": (WhichGroup, self._seal),
            "agent.deputies": (ChangeDeputies, self._depute),
            "agent.enter": (EnterAgent, self._enter),
            "agent.restart": (AgentLife, self._restart),
            "agent.arrive": (ArriveAgent, self._arrive),
            "agent.arrive-all": (ArriveAgents, _for_each(self._arrive)),
            "agent.rest": (RestAgent, self._rest),
            "agent.rest-all": (RestAgents, _for_each(self._rest)),
            "agent.renew": (AgentLife, self._renew),
            "agent.renew-all": (RenewAgents, _for_each(self._renew)),
            "agent.partners": (DeclarePartners, self._partners),
            "agent.spend": (SpendAmounts, self._spend),
            "agent.more": (SpendAmounts, self._more),
            "agent.result": (GiveResult, self._result),
            "agent.release": (AgentLife, self._release),
            "agent.leave": (LeaveGroup, self._leave),
            "agent.stop": (StopAgents, self._stop),
            "agent.exempt": (StopAgents, self._exempt),
            "agent.extend": (StopAgents, self._extend),
            "agent.watch": (WatchGroup, self._watch),
            "agent.show": (ShowGroup, self._show),
        }
        self._done_here = own
        routed = {name: (kind, self._routed(name, do)) for name, (kind, do) in own.items()}
        self.operations = {**routed, **self.keeping.operations, "agent.list": (Nothing, self._list)}
        self.operations["agent.take"] = (TakeGroup, self._take)
        self.operations["agent.at-home"] = (AskHome, self._at_home)
        ledgers = self._homes.restored()
        self.keeping.restore(ledgers)
        self._homes.begin_all(ledgers.values())
        self._takeovers.restore()

    def _routed(self, operation: str, do: Asked) -> Asked:
        """Do something here, or have another node do it, if the request names that: `trip@node`."""

        def routed(asked: IncomingRequest, request: Any) -> Any:
            try:
                route = self._elsewhere.of(request)
            except Disconnected as error:
                return failed(error)
            if route.is_here:
                answer = self._decided(operation, asked, route.request, do)
                return known_as(answer, route.label) if route.label else answer
            return self._elsewhere.ask(asked.session.principal, operation, route)

        return routed

    def _at_home(self, asked: IncomingRequest, request: AskHome) -> Any:
        """Do something as the home of a group that several nodes keep; Disconnected if another node is."""
        if request.operation not in self._done_here:
            raise AgentError(request.operation, "there is no such operation of a home")
        kind, do = self._done_here[request.operation]
        wanted = msgspec.convert(request.arguments, kind, builtin_types=(bytes,))
        if not self._elsewhere.is_home(wanted):
            return failed(Disconnected("this node is not the home of the group"))
        return self._decided(request.operation, asked, wanted, do)

    def _decided(self, operation: str, asked: IncomingRequest, request: Any, do: Asked) -> Any:
        """Do something here; if others keep the group, it is answered once they agree."""
        if operation in _LOOKS:
            return do(asked, request)
        answer: Any
        try:
            answer = do(asked, request)
        except UserError as error:
            self._broker.count("agent_refusals", reason=_REASONS.get(type(error), "other"))
            answer = failed(error)
        except Disconnected as error:
            answer = failed(error)
        settled = self.keeping.settled(named_in(request))
        return then_answer(settled, answer)

    def status(self) -> dict[str, Any]:
        """Return the number of groups and agents that have not ended."""
        running = [one for one in self._homes.groups.values() if one.group.phase != "ended"]
        return {"groups": len(running), "agents": sum(one.ledger.running_count for one in running)}

    # Groups

    def _open(self, asked: IncomingRequest, request: OpenGroup) -> Any:
        principal = asked.session.principal
        found = self._homes.groups.get(request.group)
        if found is not None and found.group.user == principal.user and found.group.name == request.name:
            return built(self._homes.news.about(found))
        if found is not None:
            raise Refused("exists", f"there is a group {request.group!r} already")
        check_readable(request.name, "the name of a group")
        if request.alive is not None:
            request.alive.check()
        if len(self._homes.groups) - len(self._homes.ended) >= GROUPS_MAX:
            raise Refused("limit", f"a node has at most {GROUPS_MAX} groups")
        budget, parent_group = amounts_of(request.budget), ""
        check_may(principal, "opened", request.group, request.name)
        if request.parent:
            above, member = self._spoken_for(principal, request.parent, request.parent_cookie)
            if member.kind != "group":
                raise AgentError(member.name, "only an agent of the kind 'group' stands for a group")
            if self._homes.group_of(above, member) is not None:
                raise AgentError(member.name, "it stands for another group already, which has not ended")
            parent_group, budget = above.group.group, dict(member.account.held)
        elif budget:
            check_may(principal, "funded", request.group, request.name)
        condition = decode_condition(request.condition)
        if len(msgspec.msgpack.encode(condition)) > CONDITION_SIZE_MAX:
            raise Refused("limit", f"a condition has at most {CONDITION_SIZE_MAX} bytes")
        names = self._deputies if request.deputies is None else request.deputies
        voters = self.keeping.deputies.voters(names) if names and not request.parent else {}
        now_us = self._homes.now_us
        opened = Opened(
            group=request.group,
            name=request.name,
            user=principal.user,
            condition=condition,
            grace_s=request.grace_s,
            until_us=None if request.timeout_s is None else now_us + round(request.timeout_s * 1e6),
            budget=budget,
            rates=amounts_of(request.rates, "rates"),
            step_rates=amounts_of(request.step_rates, "step_rates"),
            soft=request.soft,
            alive=request.alive,
            parent_group=parent_group,
            parent=request.parent,
            kept_by=sorted(voters.values()),
            together=request.together,
            at_us=now_us,
        )
        home = HomeGroup(GroupLedger.opened(opened))
        self._homes.begin(home)
        if voters:
            self.keeping.begin(home, voters)
        else:
            self.keeping.include(home)
        self._homes.leases.cancel((parent_group, request.parent))  # it lives as long as its group
        self._homes.took(home, [opened])
        return built(self._homes.news.about(home))

    def _take(self, asked: IncomingRequest, request: TakeGroup) -> Steps[Any]:
        """Take a group over whose home is gone for good."""
        if request.group:
            check_may(asked.session.principal, "moved", request.group, request.group)
            taken = self.keeping.take(request.group)
            if taken is None:
                raise GroupNotFound(
                    request.group, "this node does not keep it; give its events to take it over"
                )
            return taken.map(lambda ledger: built(group_info(ledger, 0)))
        taking = yield from self._takeovers.take(asked.session.principal, request)
        return taking.map(lambda ledger: built(group_info(ledger, 0)))

    def _seal(self, asked: IncomingRequest, request: WhichGroup) -> None:
        home = self._homes.find(request.group)
        check_owner(asked.session.principal, home.group, "entered")
        self._homes.took(home, home.ledger.seal(self._homes.now_us))

    def _depute(self, asked: IncomingRequest, request: ChangeDeputies) -> Deferred[Any]:
        home = self._homes.find(request.group)
        check_owner(asked.session.principal, home.group, "deputed")
        done = self.keeping.deputies.change(home, request.deputies)
        return done.map(lambda _none: built(self._homes.news.about(home)))

    # Lives

    def _enter(self, asked: IncomingRequest, request: EnterAgent) -> Any:
        principal, home = asked.session.principal, self._homes.find(request.group)
        known = home.cookies.get(digest(request.cookie))
        if known is not None:
            return built(
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
            now_us=self._homes.now_us,
        )
        (entered,) = happened
        assert isinstance(entered, Entered)
        self._homes.took(home, happened)
        member = home.ledger.members[entered.agent]
        self._homes.leases.begin(home, member)
        return built(self._terms(home, member))

    def _restart(self, asked: IncomingRequest, request: AgentLife) -> Any:
        home, member = self._own(asked, request)
        self._homes.took(
            home, home.ledger.restart(member.agent, request.cookie, request.where, self._homes.now_us)
        )
        return built(self._terms(home, member))

    def _arrive(self, asked: IncomingRequest, request: ArriveAgent) -> Any:
        """An agent has arrived for its next step; `life` is the one that has packed it."""
        home, now_us = self._homes.of_agent(request.agent), self._homes.now_us
        member = home.ledger.find(request.agent)
        was_at_rest = member.is_at_rest
        life = member.agent, request.life, request.cookie, request.where
        user = _user_of(asked.session.principal, home, member)
        happened = home.ledger.arrive(*life, now_us, step=request.what, user=user)
        silent_s = self._homes.leases.hear((home.group.group, member.agent))
        if not was_at_rest:  # its last step was not paid for
            happened += home.ledger.charge(member, silent_s, now_us)
        self._homes.took(home, happened)
        if member.state == "ended":
            raise LifeEnded(member.agent, f"it has been ended: {member.reason}")
        return built(self._terms(home, member))

    def _rest(self, asked: IncomingRequest, request: RestAgent) -> Any:
        home, member = self._own(asked, request)
        if member.kind != "mobile":
            raise LifeEnded(member.agent, "it can't rest: it is no mobile agent")
        if member.state != "running":  # its step is over, and the next one does not begin
            self._homes.took(home, home.ledger.leave(member, "user", self._homes.now_us))
            raise LifeEnded(member.agent, f"it can't rest: {member.reason}")
        until_us = self._homes.now_us + round(request.rests_s * 1e6)
        happened = home.ledger.rest(member, request.where, request.what, until_us, self._homes.now_us)
        self._homes.took(home, happened)
        self._homes.leases.hear((home.group.group, member.agent), request.rests_s)
        return built(self._terms(home, member))

    def _renew(self, asked: IncomingRequest, request: AgentLife) -> Any:
        home, member = self._own(asked, request)
        self._homes.notices.tell(home, member)
        return built(self._terms(home, member))

    def _partners(self, asked: IncomingRequest, request: DeclarePartners) -> Any:
        home, member = self._own(asked, request)
        self._homes.took(home, home.ledger.declare(member, request.partners, self._homes.now_us))
        self._homes.notices.declare(home, member)
        return built(self._terms(home, member))

    def _spend(self, asked: IncomingRequest, request: SpendAmounts) -> Any:
        home, member = self._own(asked, request)
        amounts = amounts_of(request.amounts, "amounts")
        self._homes.took(
            home, home.ledger.spend(member, amounts, request.what, self._homes.now_us, request.step)
        )
        return built(self._terms(home, member))

    def _more(self, asked: IncomingRequest, request: SpendAmounts) -> Any:
        home, member = self._own(asked, request)
        amounts = amounts_of(request.amounts, "amounts")
        check_may(asked.session.principal, "granted", home.group.group, home.group.name)
        self._homes.took(home, home.ledger.grant(member, amounts, self._homes.now_us, request.step))
        return built(self._terms(home, member))

    def _result(self, asked: IncomingRequest, request: GiveResult) -> Any:
        home, member = self._own(asked, request)
        try:
            msgspec.json.decode(request.result)
        except msgspec.DecodeError as error:
            raise AgentError(member.name, f"its result is no JSON: {error}") from None
        if not (member.is_done and member.result == request.result):  # not asked for twice
            self._homes.took(
                home, home.ledger.result(member, request.result, request.partial, self._homes.now_us)
            )
        return built(self._terms(home, member))

    def _release(self, asked: IncomingRequest, request: AgentLife) -> None:
        home, member = self._own(asked, request)
        self._let_go(home, member)

    def _leave(self, asked: IncomingRequest, request: LeaveGroup) -> None:
        home = self._homes.of_agent(request.agent)
        member = home.ledger.find(request.agent)
        if (
            member.state == "ended"
            and member.life == request.life
            and member.cookie == digest(request.cookie)
        ):
            return  # asked for twice, or judged meanwhile
        home, member = self._own(asked, request)
        self._homes.took(home, home.ledger.leave(member, request.reason, self._homes.now_us, request.problem))

    def _own(self, asked: IncomingRequest, request: AgentLife) -> tuple[HomeGroup, AgentRecord]:
        """The agent that a life speaks for, which was heard of by that, and pays for its time."""
        home, member = self._spoken_for(asked.session.principal, request.agent, request.cookie, request.life)
        if request.generation > home.group.generation:
            raise Disconnected(f"group {home.group.group} has another home")  # which has answered it
        if request.where and not isinstance(request, RestAgent):  # which says that itself
            self._homes.took(home, home.ledger.place(member, request.where, self._homes.now_us))
        silent_s = self._homes.leases.hear((home.group.group, member.agent))
        if home.group.rates and member.kind != "group":
            self._homes.took(home, home.ledger.charge(member, silent_s, self._homes.now_us))
        return home, member

    def _spoken_for(
        self, principal: Principal, agent: str, cookie: str, life: int | None = None
    ) -> tuple[HomeGroup, AgentRecord]:
        home = self._homes.of_agent(agent)
        number = home.ledger.find(agent).life if life is None else life
        user = _user_of(principal, home, home.ledger.find(agent))
        return home, home.ledger.living(agent, number, cookie, user)

    # Ends

    def _stop(self, asked: IncomingRequest, request: StopAgents) -> Steps[None]:
        """Order agents to end; answered when all orders are kept."""
        home, member = self._homes.sought(request.which)
        check_owner(asked.session.principal, home.group, "stop")
        if member is None:
            self._homes.took(home, home.ledger.end(request.reason, self._homes.now_us))
        else:
            self._homes.took(home, home.ledger.stop(member, request.reason, self._homes.now_us))
        while self._homes.is_behind:
            self._homes.work()
            yield

    def _exempt(self, asked: IncomingRequest, request: StopAgents) -> Steps[None]:
        """Let an agent live without a lease, as the owner of its group."""
        home, member = self._homes.sought(request.which)
        check_owner(asked.session.principal, home.group, "released")
        for one in home.ledger.running if member is None else [member]:
            self._let_go(home, one)
            yield

    def _extend(self, asked: IncomingRequest, request: StopAgents) -> Steps[int]:
        """Renew leases, as the owner of the group who still wants its result; how many."""
        home, member = self._homes.sought(request.which)
        check_owner(asked.session.principal, home.group, "renewed")
        agents, renewed = home.ledger.running if member is None else [member], 0
        for start in range(0, len(agents), AT_ONCE):
            some = agents[start : start + AT_ONCE]
            renewed += sum(self._homes.leases.renew((home.group.group, one.agent)) for one in some)
            yield
        return renewed

    def _let_go(self, home: HomeGroup, member: AgentRecord) -> None:
        self._homes.leases.cancel((home.group.group, member.agent))
        self._homes.took(home, home.ledger.exempt(member, self._homes.now_us))

    def durable(self, mark: int) -> None:
        """Go on with what waited for the disk."""
        self.keeping.standing.durable(mark)

    def finish_tick(self) -> None:
        """Let others know what has happened in this tick."""
        self._homes.finish_tick()

    # Looking

    def _watch(self, asked: IncomingRequest, request: WatchGroup) -> Deferred[Any]:
        home = self._homes.find(request.group)
        check_sees(asked.session.principal, home.group)
        self._homes.leases.care(home)
        return self._homes.news.watch(home, request.after)

    def _show(self, asked: IncomingRequest, request: ShowGroup) -> Steps[Any]:
        home = self._homes.find(request.group)
        check_sees(asked.session.principal, home.group)
        return (yield from self._homes.news.page(home, request.first))

    def _list(self, asked: IncomingRequest, _nothing: Nothing) -> Steps[list[Any]]:
        """Return the groups that a client may see, without their members."""
        listed = []
        for home in list(self._homes.groups.values()):
            if sees(asked.session.principal, home.group):
                listed.append(built(self._homes.news.about(home)))
                yield
        return listed

    def _terms(self, home: HomeGroup, member: AgentRecord) -> LeaseTerms:
        return lease_terms(home.group, member, self._homes.now_us)


def _for_each(do: Asked) -> Asked:
    """Do something for lives of one location: the terms of each, or why it may not go on."""

    def done(asked: IncomingRequest, request: RenewAgents) -> Steps[Any]:
        answers: list[Any] = []
        for life in request.lives:
            try:
                answers.append(do(asked, life))
            except AgentError as error:
                answers.append({"agent": life.agent, "problem": error.problem})
            if len(answers) % AT_ONCE == 0:
                yield
        return {"agents": answers}

    return done


def _user_of(principal: Principal, home: HomeGroup, member: AgentRecord) -> str | None:
    """The user that must have entered an agent; None for nodes, which are trusted with those that move.

    A group that has moved has members that were entered by way of other nodes, as users of these.
    """
    is_free = member.kind == "mobile" or home.group.home
    return principal.bound if is_free else principal.user

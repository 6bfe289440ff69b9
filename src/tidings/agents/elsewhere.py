"""Groups whose home is another node: requests that name it, such as `trip@kitchen`, are asked there.

The node that is asked is a client of the home, as it is for queues. So agents may be anywhere where their
node knows the home. What it answers has the names that are used here, which end in `@kitchen` too. Rights are
checked twice: here by the rules of the user, there by those of this node.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from tidings.agents.arguments import (
    AgentLife,
    ArriveAgents,
    ChangeDeputies,
    EnterAgent,
    OpenGroup,
    RenewAgents,
    RestAgents,
    ShowGroup,
    StopAgents,
    WatchGroup,
    WhichGroup,
)
from tidings.agents.deputies import DEPUTE_S_MAX
from tidings.agents.keeping import GroupHome, Keeping
from tidings.agents.news import WATCH_S
from tidings.agents.rights import check_may, check_may_see
from tidings.agents.standing import read_answer
from tidings.agents.takeover import Takeovers
from tidings.errors import AgentError, Disconnected, TidingsError
from tidings.peers.backend import Peers
from tidings.peers.peer_client import AWAY_S, PeerClient
from tidings.protocol.access import Principal
from tidings.replies import Deferred, failed, gathered, resolved
from tidings.steps import Steps

_FIELDS: dict[type, str] = {
    WhichGroup: "group",
    ShowGroup: "group",
    ChangeDeputies: "group",
    WatchGroup: "group",
    RenewAgents: "group",
    RestAgents: "group",
    ArriveAgents: "group",
    EnterAgent: "group",
    StopAgents: "which",
    OpenGroup: "parent",
}
"""The field that names a group or an agent; lives have `agent`. A group is opened where its parent is."""
_RIGHTS = {
    "agent.open": "opened",
    "agent.enter": "entered",
    "agent.seal": "entered",
    "agent.deputies": "deputed",
    "agent.more": "granted",
    "agent.stop": "stop",
    "agent.exempt": "released",
    "agent.extend": "renewed",
}
"""The events that one must be allowed to publish for it; with other operations, one has a cookie or sees."""
_SEES = "agent.show", "agent.watch"
_MORE_S = {"agent.watch": WATCH_S, "agent.deputies": DEPUTE_S_MAX}
"""How much longer some may take."""
MOVED_MAX = 10_000
"""Groups of other nodes of which another home is remembered."""


class Route(NamedTuple):
    """Where a request is done: here, or by the client of another node.

    The answer has names that end in `label`, if that is given. `is_home`: the other node is asked as the home
    of a group that several nodes keep. `is_away`: no such node is known just now.
    """

    request: Any
    relay: PeerClient | None = None
    label: str = ""
    is_home: bool = False
    is_away: bool = False

    @property
    def is_here(self) -> bool:
        """Whether it is done here."""
        return self.relay is None and not self.is_away


class Elsewhere:
    """Asks the homes of groups that are elsewhere."""

    def __init__(self, peers: Peers, takeovers: Takeovers, keeping: Keeping) -> None:
        self._peers = peers
        self._takeovers = takeovers
        self._keeping = keeping
        self._asked: dict[Deferred[Any], str] = {}  # what is under way, with the group or agent
        self._moved: dict[tuple[str, str], str] = {}  # homes of groups of others, by their first one and id
        takeovers.on_taken = self._ask_again
        keeping.on_moved = self._ask_again

    def of(self, request: Any) -> Route:
        """Where a request is done; Disconnected if the group has no home just now.

        The name of a group here may have an `@` of its own.
        """
        if isinstance(request, OpenGroup) and self._keeping.home_of(request.group) is not None:
            return self._kept(Route(request), request.group)  # asked for again
        field = _field(request)
        named = getattr(request, field) if field else ""
        name, _, node = named.rpartition("@")
        registry = self._peers.registry
        peer, is_own = registry.find(node), node in (registry.name, registry.node)
        is_kept = self._keeping.is_kept_by(name, node)
        is_away = not (peer is not None or is_own or is_kept)
        if not name or (is_away and self._keeping.is_group(named)):
            return self._kept(Route(request), named)
        parts: dict[str, Any] = {field: name}
        if isinstance(request, EnterAgent):
            parts["parent"] = self._own_name(request.parent, node)
        elif isinstance(request, RenewAgents):
            lives = [(one, self._own_name(one.agent, node)) for one in request.lives]
            parts["lives"] = [structs.replace(one, agent=agent) for one, agent in lives]
        own = structs.replace(request, **parts)
        if is_own:
            return self._kept(Route(own), name)
        label = node if peer is None else peer.name
        if is_kept:
            return self._kept(Route(own, None, label), name)
        if peer is not None and self._takeovers.is_here(name, peer):
            return Route(own, None, label)
        moved = registry.find(self._moved.get((label, _group_of(name)), ""))
        at = moved or peer
        return Route(
            own, None if at is None else self._peers.relays[at], label, moved is not None, at is None
        )

    def _kept(self, route: Route, name: str) -> Route:
        """Send a request to the home of a group that is kept here, if that is another node."""
        home = self._keeping.home_of(name)
        if home is None or home == self._peers.registry.node:
            return route
        relay = self._keeping.relay_of(name) if home else None
        if relay is None:
            raise Disconnected(f"group {_group_of(name)} has no home just now")
        return route._replace(relay=relay, is_home=True)

    def is_home(self, request: Any) -> bool:
        """Whether this node is the home of the group of a request, which several nodes keep."""
        return self._keeping.is_home(named_in(request))

    def _own_name(self, agent: str, node: str) -> str:
        """Return the id that an agent has at its home, which may be named by its name or by its id."""
        name, _, other = agent.rpartition("@")
        registry = self._peers.registry
        is_same = other == node or {other, node} == {registry.name, registry.node}
        peer = registry.find(node)
        return name if name and (is_same or (peer is not None and registry.find(other) is peer)) else agent

    def ask(self, principal: Principal, operation: str, route: Route) -> Deferred[Any]:
        """Have the home do it; Disconnected if it is away."""
        request, node = route.request, route.label
        name = named_in(request)
        at = node if route.relay is None else node or route.relay.peer.name
        address = f"{name}@{at}"
        if operation in _RIGHTS:
            check_may(principal, _RIGHTS[operation], address, address)
        elif operation in _SEES:
            check_may_see(principal, address, address)

        def labelled(error: TidingsError) -> TidingsError:
            if isinstance(error, AgentError) and node:
                return type(error)(f"{error.agent}@{node}", error.problem)
            return error

        reply = _sent(operation, route)
        reply = self._or_elsewhere(reply, operation, route, name)
        asked = reply.map(lambda found: qualified(found, node) if node else found, labelled)
        self._asked[asked] = name

        def over(_outcome: object) -> None:
            self._asked.pop(asked, None)

        asked.then(over, over)
        return asked

    def _or_elsewhere(self, reply: Deferred[Any], operation: str, route: Route, name: str) -> Deferred[Any]:
        """Have another node do it that is the home now, if the first home is away."""
        outcome: Deferred[Any] = Deferred(reply.cancel)

        def unanswered(error: TidingsError) -> None:
            if not isinstance(error, Disconnected):
                outcome.fail(error)
                return
            found = self._find_home(route, name)
            found.map(lambda relay: _sent(operation, route._replace(relay=relay, is_home=True))).then(
                lambda again: again.then(outcome.resolve, outcome.fail), lambda _none: outcome.fail(error)
            )

        reply.then(outcome.resolve, unanswered)
        return outcome

    def _find_home(self, route: Route, name: str) -> Deferred[PeerClient]:
        """Ask the other nodes for the home of a group: those that keep it know."""
        group = _group_of(name)
        relays = [one for one in self._peers.relays.values() if one.is_up and one is not route.relay]
        asked = [one.ask("agent.home", {"group": group}, AWAY_S) for one in relays]

        def newest(replies: list[Any]) -> PeerClient:
            known = [read_answer(reply, GroupHome) for reply in replies]
            best = max(known, key=lambda one: one.generation, default=None)
            peer = None if best is None else self._peers.registry.find(best.home)
            if best is None or peer is None or self._peers.relays[peer] is route.relay:
                raise Disconnected("no other home is known")
            while len(self._moved) >= MOVED_MAX:
                del self._moved[next(iter(self._moved))]
            self._moved[route.label, group] = best.home
            return self._peers.relays[peer]

        return gathered(asked).map(newest)

    def _ask_again(self, groups: Collection[str]) -> None:
        """What a home was asked that is gone is to be asked again, where the home is now."""
        for asked, name in list(self._asked.items()):
            if name in groups or _group_of(name) in groups:
                asked.fail(Disconnected(f"group {_group_of(name)} has another home now"))


def _sent(operation: str, route: Route) -> Deferred[Any]:
    if route.relay is None:
        return failed(Disconnected(f"node {route.label} is not known here just now"))
    arguments = msgspec.to_builtins(route.request, builtin_types=(bytes,))
    wait_s = AWAY_S + (_MORE_S.get(operation, 0.0) if route.relay.is_up else 0.0)
    if route.is_home:
        operation, arguments = "agent.at-home", {"operation": operation, "arguments": arguments}
    return route.relay.ask(operation, arguments, wait_s)


def _field(request: Any) -> str:
    return "agent" if isinstance(request, AgentLife) else _FIELDS.get(type(request), "")


def _group_of(name: str) -> str:
    """Return the group of an agent's id; a group has no dot."""
    return name.rpartition(".")[0] or name


def named_in(request: Any) -> str:
    """Return the agent or group that a request is about; one that is opened is its own."""
    return request.group if isinstance(request, OpenGroup) else str(getattr(request, _field(request)))


def then_answer(settled: Deferred[None], answer: Any) -> Any:
    """Return an answer, now or later, that waits for something else, too."""
    if isinstance(answer, Generator):
        return _then_later(settled, answer)
    return settled.chain(lambda _none: answer if isinstance(answer, Deferred) else resolved(answer))


def _then_later(settled: Deferred[None], steps: Steps[Any]) -> Steps[Any]:
    answer = yield from steps
    return then_answer(settled, answer)


def known_as(answer: Any, node: str) -> Any:
    """Return an answer, now or later, with the names by which those ask who know the old home of a group."""
    if isinstance(answer, Deferred):
        return answer.map(lambda reply: qualified(reply, node))
    if isinstance(answer, Generator):
        return _known_later(answer, node)
    return qualified(answer, node)


def _known_later(steps: Steps[Any], node: str) -> Steps[Any]:
    answer = yield from steps
    return known_as(answer, node)


def qualified(reply: Any, node: str) -> Any:
    """Return an answer of another node with the names that are used here."""
    if not isinstance(reply, dict):
        return reply
    ends = f"@{node}"
    named = {key: f"{reply[key]}{ends}" for key in ("agent", "group", "parent") if reply.get(key)}
    agents = reply.get("agents")
    below = {"agents": [qualified(one, node) for one in agents]} if isinstance(agents, list) else {}
    orders = reply.get("orders")
    ordered = {"orders": {f"{one}{ends}": why for one, why in orders.items()}} if orders else {}
    return {**reply, **named, **below, **ordered}

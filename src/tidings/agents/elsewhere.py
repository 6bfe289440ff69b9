"""Groups whose home is another node: requests that name it, such as `trip@kitchen`, are asked there.

The node that is asked is a client of the home, as it is for queues. So agents may be anywhere where their
node knows the home. What it answers has the names that are used here, which end in `@kitchen` too. Rights are
checked twice: here by the rules of the user, there by those of this node.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import msgspec
from msgspec import structs

from tidings.agents.arguments import (
    AgentLife,
    EnterAgent,
    OpenGroup,
    ShowGroup,
    StopAgents,
    WatchGroup,
    WhichGroup,
)
from tidings.agents.news import WATCH_S
from tidings.agents.rights import check_may, check_may_see
from tidings.agents.takeover import Takeovers
from tidings.errors import AgentError, Disconnected, TidingsError
from tidings.peers.backend import Peers
from tidings.peers.peer_client import AWAY_S, PeerClient
from tidings.peers.registry import Peer
from tidings.protocol.access import Principal
from tidings.replies import Deferred
from tidings.steps import Steps

_FIELDS: dict[type, str] = {
    WhichGroup: "group",
    ShowGroup: "group",
    WatchGroup: "group",
    EnterAgent: "group",
    StopAgents: "which",
    OpenGroup: "parent",
}
"""The field that names a group or an agent; lives have `agent`. A group is opened where its parent is."""
_RIGHTS = {
    "agent.open": "opened",
    "agent.enter": "entered",
    "agent.seal": "entered",
    "agent.more": "granted",
    "agent.stop": "stop",
    "agent.exempt": "released",
    "agent.extend": "renewed",
}
"""The events that one must be allowed to publish for it; with other operations, one has a cookie or sees."""
_SEES = "agent.show", "agent.watch"


class Elsewhere:
    """Asks the homes of groups that are elsewhere."""

    def __init__(self, peers: Peers, takeovers: Takeovers) -> None:
        self._peers = peers
        self._takeovers = takeovers
        self._asked: dict[Deferred[Any], str] = {}  # what is under way, with the group or agent
        takeovers.on_taken = self._moved

    def of(self, request: Any) -> tuple[Any, PeerClient | None, str] | None:
        """The request without the node that it names, and the client of that, unless it is to be done here.

        None if it names no node that is known: then a name may have an `@` of its own. Last is the node that
        names in the answer have to end with: the old home of a group that was taken over from it.
        """
        field = "agent" if isinstance(request, AgentLife) else _FIELDS.get(type(request), "")
        name, _, node = (getattr(request, field) if field else "").rpartition("@")
        if not name:
            return None
        registry = self._peers.registry
        peer = registry.find(node)
        is_own = node in (registry.name, registry.node)
        if peer is None and not is_own:
            return None
        parts = {field: name}
        if isinstance(request, EnterAgent):
            parts["parent"] = self._own_name(request.parent, peer)
        own = structs.replace(request, **parts)
        if peer is None or is_own:
            return own, None, ""
        if self._takeovers.is_here(name, peer):
            return own, None, peer.name
        return own, self._peers.relays[peer], ""

    def _own_name(self, agent: str, peer: Peer | None) -> str:
        """Return the id that an agent has at its home, which may be named by its name or by its id."""
        name, _, node = agent.rpartition("@")
        registry = self._peers.registry
        is_there = node in (registry.name, registry.node) if peer is None else registry.find(node) is peer
        return name if name and is_there else agent

    def ask(self, principal: Principal, operation: str, request: Any, relay: PeerClient) -> Deferred[Any]:
        """Have the home do it; Disconnected if it is away."""
        node = relay.peer.name
        field = "agent" if isinstance(request, AgentLife) else _FIELDS[type(request)]
        address = f"{getattr(request, field)}@{node}"
        if operation in _RIGHTS:
            check_may(principal, _RIGHTS[operation], address, address)
        elif operation in _SEES:
            check_may_see(principal, address, address)
        arguments = msgspec.to_builtins(request, builtin_types=(bytes,))
        wait_s = AWAY_S + WATCH_S if operation == "agent.watch" else AWAY_S

        def named(error: TidingsError) -> TidingsError:
            if isinstance(error, AgentError):
                return type(error)(f"{error.agent}@{node}", error.problem)
            return error

        asked = relay.ask(operation, arguments, wait_s).map(lambda reply: qualified(reply, node), named)
        self._asked[asked] = getattr(request, field)

        def over(_outcome: object) -> None:
            self._asked.pop(asked, None)

        asked.then(over, over)
        return asked

    def _moved(self, group: str) -> None:
        """What a home was asked that is gone is to be asked again, here."""
        for asked, name in list(self._asked.items()):
            if group in (name, name.rpartition(".")[0]):
                asked.fail(Disconnected(f"group {group} has moved to this node"))


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

"""A group whose home is gone for good, taken over by another node from the events of the group.

A client that has kept the events `agent.…` of a group, at any node, may have a node replay them: the state of
a group is a fold over its events, so what comes out is the group as it was after the last of them. The rule
that keeps it from having two homes is simple, and asks for a person: the home must be away, and each other
node that this one knows must say that it does not have the group. One that can't be asked might have it.

The old home may come back from the dead. Until it has been told to end what it has of the group, the new one
asks it again and again, also after a restart. Lives named by the old home, `…@a`, are found at the new one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from tidings.agents.arguments import TakeGroup
from tidings.agents.events import Opened, decode_happening
from tidings.agents.ledger import GroupLedger
from tidings.agents.rights import check_may
from tidings.errors import AgentError, Disconnected, GroupNotFound, NoAnswer, TidingsError
from tidings.peers.backend import Peers
from tidings.peers.peer_client import AWAY_S, PeerClient
from tidings.peers.registry import Peer
from tidings.protocol.access import Principal
from tidings.replies import Deferred, resolved
from tidings.steps import Steps
from tidings.store.interface import RecordKind

if TYPE_CHECKING:
    from tidings.agents.homes import GroupHomes

EVENTS_AT_ONCE = 64
"""Events that are replayed in one step."""
RETRY_S = 1.0
"""How often an old home that is away is asked to end what it has of a group."""


class TakenGroup(Struct):
    """A group that was taken over: the id of its old home, or its name, and whether that has ended it."""

    home: str
    is_ended_there: bool = False


TAKEN: RecordKind[tuple[str], TakenGroup] = RecordKind("agent-taken", TakenGroup)


class Takeovers:
    """The groups that this node has taken over from others."""

    def __init__(self, homes: GroupHomes, peers: Peers) -> None:
        self._homes = homes
        self._broker = homes.broker
        self._peers = peers
        self._taken: dict[str, TakenGroup] = {}
        self.on_taken: Callable[[list[str]], None] | None = None
        """Called with each group that was taken over."""

    def restore(self) -> None:
        """Go on with what was kept."""
        for (group,), taken in TAKEN.taken(self._broker.state).items():
            self._begin(group, taken)

    def is_here(self, group: str, peer: Peer) -> bool:
        """Whether a group was taken over from that node; agents are found by their groups."""
        taken = self._taken.get(group) or self._taken.get(group.rpartition(".")[0])
        return taken is not None and taken.home in (peer.node, peer.name)

    def take(self, principal: Principal, request: TakeGroup) -> Steps[Deferred[GroupLedger]]:
        """Replay the events of a group, and be its home if nobody else is."""
        ledger = yield from _replayed(request)
        group = ledger.group
        check_may(principal, "moved", group.group, group.name)
        if principal.rules is not None and principal.user != group.user:
            check_may(principal, "opened", group.group, group.name)
        taken = self._taken.get(group.group)
        if group.group in self._homes.groups:
            if taken is not None and request.home in (taken.home, self._broker.node):
                return resolved(self._homes.groups[group.group].ledger)  # asked for twice
            raise AgentError(group.name, "this node is its home already")
        if group.phase == "ended":
            raise AgentError(group.name, "it has ended; there is nothing to take over")
        if group.parent:
            raise AgentError(group.name, "it is a member of a group of its home, which is gone with that")
        home = self._peers.registry.find(request.home.partition("@")[0])  # …@a, from over a link
        if home is None:
            raise AgentError(group.name, f"its home {request.home!r} is not known here")
        asked: Deferred[None] = resolved(None)
        for peer, relay in self._peers.relays.items():
            asked = asked.chain(partial(self._refused, group.group, peer, relay, home))
        return asked.map(lambda _none: self._take(ledger, home.node or home.name))

    def _refused(
        self, group: str, peer: Peer, relay: PeerClient, home: Peer, _before: None
    ) -> Deferred[None]:
        """Ask one node for the group; an error if it has it, or if it is not the home and can't be asked."""
        outcome: Deferred[None] = Deferred()

        def has_it(_reply: Any) -> None:
            is_home = peer is home
            problem = "its home lives" if is_home else "another node is its home already"
            outcome.fail(AgentError(group, f"{problem}: {peer.name}"))

        def failed(error: TidingsError) -> None:
            is_away = isinstance(error, Disconnected | NoAnswer)
            if isinstance(error, GroupNotFound) or (is_away and peer is home):
                outcome.resolve(None)
            elif is_away:
                outcome.fail(
                    AgentError(group, f"node {peer.name} can't be asked, and may have taken it over")
                )
            else:
                has_it(None)

        relay.ask("agent.show", {"group": group}, AWAY_S).then(has_it, failed)
        return outcome

    def _take(self, ledger: GroupLedger, home: str) -> GroupLedger:
        group = ledger.group.group
        if group in self._homes.groups:  # somebody else was faster
            raise AgentError(ledger.group.name, "this node is its home already")
        moved = ledger.move(self._broker.node, self._homes.now_us)
        taken = TakenGroup(home)
        self._broker.store(TAKEN.set((group,), taken))
        self._homes.adopt(ledger, moved)
        self._begin(group, taken)
        if self.on_taken is not None:
            self.on_taken([group])
        return ledger

    # The old home

    def _begin(self, group: str, taken: TakenGroup) -> None:
        self._taken[group] = taken
        if not taken.is_ended_there:
            self._broker.timers.at(self._broker.now, self._ending(group, taken))

    def _ending(self, group: str, taken: TakenGroup) -> Callable[[float], None]:
        """Return what asks the old home to end what it has of a group, until it has answered."""

        def again() -> None:
            self._broker.timers.at(self._broker.now + RETRY_S, end)

        def ended(_reply: Any = None) -> None:
            taken.is_ended_there = True
            self._broker.store(TAKEN.set((group,), taken))

        def failed(error: TidingsError) -> None:
            if isinstance(error, GroupNotFound):
                ended()
            else:
                again()

        def end(_now: float) -> None:
            peer = self._peers.registry.find(taken.home)
            relay = None if peer is None else self._peers.relays.get(peer)
            if relay is None or not relay.is_up:
                again()
            else:
                relay.ask("agent.stop", {"which": group}, AWAY_S).then(ended, failed)

        return end


def _replayed(request: TakeGroup) -> Steps[GroupLedger]:
    """Return the group of these events; AgentError if they are not those of one group from its beginning."""
    ledger: GroupLedger | None = None
    for number, body in enumerate(request.events, 1):
        try:
            event = decode_happening(body)
            if ledger is None:
                if not isinstance(event, Opened):
                    raise AgentError("the group", "the events do not begin with that of its opening")
                ledger = GroupLedger.opened(event)
            else:
                ledger.apply(event)
        except (msgspec.DecodeError, KeyError, AssertionError) as error:
            problem = f"event {number} does not follow from those before it: {error!r}"
            raise AgentError("the group", problem) from None
        if number % EVENTS_AT_ONCE == 0:
            yield
    if ledger is None:
        raise AgentError("the group", "there are no events")
    accounts = [ledger.group.account, *(one.account for one in ledger.members.values())]
    if not (ledger.totals.is_conserved and all(one.is_sound for one in accounts)):
        raise AgentError(ledger.group.name, "events are missing: its money does not add up")
    return ledger

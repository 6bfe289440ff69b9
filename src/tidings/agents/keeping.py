"""The groups that several nodes keep, at one of them: `kept_tree` with its messages, timers and records.

A deputy stands in for a home that has been away for STAND_IN_S, by itself. A node that starts again does so,
too, for the groups whose home it was: it may have been taken for dead meanwhile. Nobody gets the place of a
home that another node can still reach.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from tidings.agents.arguments import WhichGroup
from tidings.agents.deputies import Deputies
from tidings.agents.events import AnyHappening
from tidings.agents.homes import GROUPS, KEPT_MAX, MEMBERS, GroupHomes, HomeGroup
from tidings.agents.kept_tree import (
    KeepGroups,
    Kept,
    KeptRecord,
    KeptTree,
    StandForHome,
)
from tidings.agents.ledger import GroupLedger
from tidings.agents.standing import Standing, built, read_answer
from tidings.errors import (
    AgentError,
    CodecError,
    Disconnected,
    GroupNotFound,
    NotAllowed,
    Refused,
    TidingsError,
)
from tidings.peers.backend import Peers
from tidings.peers.peer_client import AWAY_S, PeerClient
from tidings.protocol.service import IncomingRequest
from tidings.replies import Deferred, resolved
from tidings.store.interface import DropRecord, RecordKind, SetRecord
from tidings.timers import Alarm

STAND_IN_S = 5.0
"""How long a home may be away before a deputy stands in; some wait up to twice as long."""
LOOK_S = 1.0
"""How often to look after groups that are kept, and after what was not answered."""
LEARN_S = 60.0
"""How long a node that is to keep a group waits for the home to go on with that."""
TREES_MAX = 20_000
"""Groups that a node keeps with others, not counting those below them."""

KEPT: RecordKind[tuple[str], KeptRecord] = RecordKind("agent-kept", KeptRecord)


class GroupHome(Struct, frozen=True):
    """The answer of `agent.home`: the node that is the home of a group, as far as it is known here."""

    home: str
    generation: int


class _Waiter(Struct):
    """Waits until a question is answered, and events are agreed."""

    question: int
    index: int
    reply: Deferred[None]
    late: Alarm | None = None


class Keeping:
    """The trees of groups that this node keeps with others, as their home or as a deputy."""

    def __init__(self, homes: GroupHomes, peers: Peers, chance: Callable[[], float]) -> None:
        self._homes = homes
        self._broker = homes.broker
        self._peers = peers
        self._chance = chance
        self.trees: dict[str, KeptTree] = {}
        self._of: dict[str, KeptTree] = {}  # by the ids of all groups
        self._over: dict[str, None] = {}  # those that have ended, as deputies know
        self._asking: set[tuple[str, str]] = set()  # trees and deputies that are asked just now
        self._waiting: dict[str, list[_Waiter]] = {}
        self._agreeing: dict[str, list[tuple[int, Callable[[], None]]]] = {}
        self._away: dict[str, float] = {}  # until when the home of a tree may be away
        self.standing = Standing(self._broker, self._relay, self._store, self._stand_in, self._hear_of)
        self.deputies = Deputies(self, homes, peers.registry)
        self._look = self._wake
        self.operations: dict[str, tuple[Any, Callable[[IncomingRequest, Any], Any]]] = {
            "agent.keep": (KeepGroups, self._keep),
            "agent.vote": (StandForHome, self._vote),
            "agent.home": (WhichGroup, self._home),
        }
        self.on_moved: Callable[[list[str]], None] = lambda _groups: None
        """Called with groups whose home is another node than before."""
        homes.on_kept, homes.on_forgotten = self._propose, self._forget

    def restore(self, ledgers: dict[str, GroupLedger]) -> None:
        """Go on with what was kept, and take these groups out: of some, it is to be the home again."""
        for (tree,), record in KEPT.taken(self._broker.state).items():
            groups = {group: ledgers[group] for group in record.groups if group in ledgers}
            if not (record.is_over and record.home == self._broker.node):
                for group in groups:
                    del ledgers[group]
            self._add(KeptTree(self._broker.node, tree, record, groups))
            for one in groups.values():
                if record.home == self._broker.node and one.group.phase != "ended":
                    self._homes.sights.hold(one.group)
        self._look_later()

    def _add(self, tree: KeptTree) -> None:
        self.trees[tree.tree] = tree
        self._follow_groups(tree)

    def _follow_groups(self, tree: KeptTree) -> None:
        self._of |= dict.fromkeys(tree.record.groups, tree)

    # What the service asks

    def begin(self, home: HomeGroup, voters: dict[str, str]) -> KeptTree:
        """Keep a group with others, and all below it."""
        if len(self.trees) >= TREES_MAX:
            raise Refused("limit", f"a node keeps at most {TREES_MAX} groups with others")
        group = home.group.group
        tree = KeptTree(self._broker.node, group, KeptRecord(voters=voters, home=self._broker.node))
        tree.begin(1)
        self._add(tree)
        self._include(tree, home)
        self._look_later()
        return tree

    def include(self, home: HomeGroup) -> None:
        """Keep a new group below another one, if that is kept."""
        above = self._of.get(home.group.parent_group)
        if above is not None:
            self._include(above, home)

    def _include(self, tree: KeptTree, home: HomeGroup) -> None:
        home.is_kept = True
        tree.ledgers[home.group.group] = home.ledger
        tree.record.groups.append(home.group.group)
        self._follow_groups(tree)
        for below in self._homes.below(home):
            self._include(tree, below)

    def home_of(self, group: str) -> str | None:
        """Return the node that is the home of a group that is kept here, by id or name; None if it is not.

        It is empty while this node was the home, and does not know whether it still is.
        """
        tree = self._find(group)
        if tree is None or (tree.record.is_over and tree.record.home == self._broker.node):
            return None
        return "" if tree.record.home == self._broker.node and not tree.is_home else tree.record.home

    def is_group(self, name: str) -> bool:
        """Whether this node is the home of a group of this name or id."""
        try:
            return self._homes.find(name) is not None
        except GroupNotFound:
            return False

    def is_home(self, which: str) -> bool:
        """Whether this node is the home of a group that is kept here."""
        tree = self._find(which)
        is_own = tree is not None and tree.record.home == self._broker.node
        return tree is not None and (tree.is_home or (is_own and tree.record.is_over))

    def is_kept_by(self, which: str, node: str) -> bool:
        """Whether a node, by name or id, keeps a group with this one."""
        tree = self._find(which) if self.trees else None
        return tree is not None and (node in tree.record.voters or node in tree.record.voters.values())

    def tree_of(self, group: str) -> KeptTree | None:
        """Return the tree of a group that is kept here, by its id."""
        return self._of.get(group)

    def _by_id(self, which: str) -> KeptTree | None:
        return self._of.get(which) or self._of.get(which.rpartition(".")[0])

    def _find(self, which: str) -> KeptTree | None:
        """A tree by a group or agent in it: by its id, or by the name of a group here or open elsewhere."""
        found = self._by_id(which)
        if found is None and self.trees:
            if self.is_group(which):
                return self._of.get(self._homes.find(which).group.group)
            return next((one for one in self.trees.values() if one.is_open_as(which)), None)
        return found

    def settled(self, which: str) -> Deferred[None]:
        """Return a reply that comes when all that is decided is agreed, and this still is the home."""
        tree = self._find(which)
        if tree is None or tree.record.is_over:
            return resolved(None)
        if not tree.is_home:
            return _failed(tree)
        waiter = _Waiter(tree.ask(), tree.record.index, Deferred())
        self._waiting.setdefault(tree.tree, []).append(waiter)
        late = partial(self._late, tree, waiter)
        waiter.late = self._broker.timers.at(self._broker.now + AWAY_S, late)
        self.pump(tree)
        return waiter.reply

    def _late(self, tree: KeptTree, waiter: _Waiter, _now: float) -> None:
        self._waiting[tree.tree].remove(waiter)
        waiter.reply.fail(Disconnected(f"group {tree.tree}: too few of its deputies can be asked"))

    def take(self, which: str) -> Deferred[GroupLedger] | None:
        """Stand for home of a group now, as someone asks for that; None if it is not kept here."""
        tree = self._find(which)
        if tree is None:
            return None
        if tree.has_ended or not tree.is_voter:
            problem = "it has ended" if tree.has_ended else "this node keeps it no more"
            raise AgentError(which, f"{problem}; there is nothing to take over")
        stood = self.standing.stand(tree) if not tree.is_home else resolved(None)
        return stood.chain(lambda _none: self.settled(tree.tree)).map(lambda _none: tree.ledgers[tree.tree])

    # The home

    def _propose(self, home: HomeGroup, events: list[AnyHappening], agreed: Callable[[], None]) -> None:
        tree = self._of[home.group.group]
        index = tree.propose(home.group.group, events)
        self._store(tree)
        self._agreeing.setdefault(tree.tree, []).append((index, agreed))
        self.pump(tree)

    def pump(self, tree: KeptTree) -> None:
        """Ask the deputies that lack something, each by one message at a time."""
        for node in tree.followers:
            relay = self._relay(tree, node)
            key = tree.tree, node
            if tree.is_home and key not in self._asking and relay is not None and tree.lacks(node):
                self._asking.add(key)
                question, message = tree.message(node)
                asked = relay.ask("agent.keep", built(message), AWAY_S)
                about = tree, node, question, tree.record.generation
                asked.then(partial(self._answered, *about), partial(self._not_answered, key))
        if tree.is_home and not tree.others:  # it agrees with itself
            self._settle(tree)

    def _answered(self, tree: KeptTree, node: str, question: int, generation: int, reply: Any) -> None:
        self._asking.discard((tree.tree, node))
        if not tree.is_home or generation != tree.record.generation:
            return
        try:
            is_home = tree.hear_answer(node, question, read_answer(reply, Kept))
        except CodecError:
            self._broker.count("agent_homes", reason="refused")
            return
        if not is_home:
            self._step_back(tree)
            return
        self.deputies.heard(tree, node)
        self._settle(tree)
        if tree.is_home:
            self.pump(tree)

    def _not_answered(self, key: tuple[str, str], _error: TidingsError) -> None:
        self._asking.discard(key)
        self._look_later()

    def _settle(self, tree: KeptTree) -> None:
        """Go on with what is agreed now."""
        agreeing = self._agreeing.get(tree.tree, [])
        while agreeing and agreeing[0][0] <= tree.agreed:
            agreeing.pop(0)[1]()
        waiting = self._waiting.get(tree.tree, [])
        while waiting and waiting[0].question <= tree.answered and waiting[0].index <= tree.agreed:
            waiter = waiting.pop(0)
            self._broker.timers.cancel(waiter.late)
            waiter.reply.resolve(None)
        if tree.has_ended and not any(tree.lacks(one) for one in tree.others) and not agreeing:
            tree.record.is_over = True
            self._store(tree)

    def _step_back(self, tree: KeptTree) -> None:
        """Be the home no longer: there is a later generation."""
        tree.step_back()
        self._homes.let_go(tree.record.groups)
        self._agreeing.pop(tree.tree, None)
        for waiter in self._waiting.pop(tree.tree, []):
            self._broker.timers.cancel(waiter.late)
            waiter.reply.fail(Disconnected(f"group {tree.tree} has another home"))
        self._store(tree)
        self._broker.count("agent_homes", reason="stepped-back")
        self._look_later()

    # A deputy

    def _keep(self, asked: IncomingRequest, message: KeepGroups) -> Any:
        _check_node(asked)
        tree = self.trees.get(message.tree)
        if tree is None:
            if len(self.trees) >= TREES_MAX:
                raise Refused("limit", f"a node keeps at most {TREES_MAX} groups with others")
            tree = KeptTree(self._broker.node, message.tree, KeptRecord(voters={}, home=""))
            self._add(tree)
        if tree.is_home and message.generation > tree.record.promised:
            self._step_back(tree)
        before = tree.record.home
        try:
            answer = tree.hear(message)
        except AgentError:  # a copy replaces what it has
            self._broker.count("agent_homes", reason="refused")
            answer = Kept(tree.record.promised)
        self._check_clash(tree)
        for group, agent in tree.changed:
            self._broker.store(_stored(tree, group, agent))
        tree.changed.clear()
        self._follow_groups(tree)
        if not tree.is_home:
            self._homes.sights.end(tree.record.groups)
        if tree.record.home != before:
            self.on_moved(tree.record.groups)
        if tree.record.is_out:
            self._part(tree)
        self._store(tree)
        self._away.pop(tree.tree, None)
        if not tree.is_voter:
            self._away[tree.tree] = self._broker.now + LEARN_S
        self._note_end(tree)
        self._look_later()
        return msgspec.to_builtins(answer)

    def _check_clash(self, tree: KeptTree) -> None:
        """Raise Refused for a tree with a group whose id another one here has: clients choose these."""
        for group in tree.record.groups:
            if self._of.get(group, None if group in self._homes.groups else tree) is not tree:
                self.trees.pop(tree.tree, None)
                raise Refused("exists", f"there is a group {group!r} already")

    def _note_end(self, tree: KeptTree) -> None:
        """Forget the oldest of the groups that have ended elsewhere, if there are too many."""
        if tree.record.is_out or (tree.has_ended and not tree.is_home):
            self._over[tree.tree] = None
        else:
            self._over.pop(tree.tree, None)
        while len(self._over) > KEPT_MAX:
            oldest = next(iter(self._over))
            del self._over[oldest]
            self._drop(self.trees[oldest])

    def _part(self, tree: KeptTree) -> None:
        """Keep nothing of a tree but who its home is."""
        self._drop_groups(tree)
        tree.part()

    def _drop(self, tree: KeptTree) -> None:
        """Know nothing of a tree any more."""
        self._drop_groups(tree)
        for group in tree.record.groups:
            self._of.pop(group, None)
        self._drop_tree(tree)

    def _drop_groups(self, tree: KeptTree) -> None:
        for group, ledger in tree.ledgers.items():
            for agent in ledger.members:
                self._broker.store(MEMBERS.drop((group, agent)))
            self._broker.store(GROUPS.drop((group,)))

    def _forget(self, group: str) -> None:
        """A group that has ended is shown no more."""
        tree = self._of.pop(group, None)
        if tree is None:
            return
        tree.ledgers.pop(group, None)
        tree.record.groups.remove(group)
        if tree.record.groups:
            self._store(tree)
        else:
            self._drop_tree(tree)

    def _drop_tree(self, tree: KeptTree) -> None:
        del self.trees[tree.tree]
        self._broker.store(KEPT.drop((tree.tree,)))

    def _vote(self, asked: IncomingRequest, request: StandForHome) -> Any:
        _check_node(asked)
        tree = self.trees.get(request.tree)
        if tree is None or tree.record.is_out:
            raise GroupNotFound(request.tree, "it is not kept here")
        relay = self._relay(tree, tree.record.home)
        answer = tree.vote(request, relay is not None and relay.is_up)
        self._store(tree)
        return msgspec.to_builtins(answer)

    def _home(self, asked: IncomingRequest, request: WhichGroup) -> Any:
        _check_node(asked)
        tree = self._find(request.group)
        if tree is None or not tree.record.home:
            raise GroupNotFound(request.group, "it is not kept here")
        return msgspec.to_builtins(GroupHome(tree.record.home, tree.record.promised))

    # Standing in

    def _look_later(self) -> None:
        if self.trees:
            self._broker.timers.by(self._broker.now + LOOK_S, self._look)

    def _wake(self, now: float) -> None:
        """Look after groups that have not ended, or whose end some deputies do not know."""
        is_wanted = False
        for tree in list(self.trees.values()):
            record = tree.record
            if record.is_over or record.is_out or (record.home != self._broker.node and tree.has_ended):
                continue
            is_wanted = True
            if tree.is_home:
                self.pump(tree)
            elif not tree.is_voter:
                if now >= self._away.setdefault(tree.tree, now + LEARN_S):
                    self._part(tree)  # it was to join, and did not
                    self._store(tree)
                    self._note_end(tree)
            elif record.home == self._broker.node or self._is_away(tree, now):
                self.standing.stand(tree)
        if is_wanted:
            self._look_later()

    def _is_away(self, tree: KeptTree, now: float) -> bool:
        """Whether the home of a tree has been away for too long."""
        relay = self._relay(tree, tree.record.home)
        if not tree.record.generation or (relay is not None and relay.is_up):
            self._away.pop(tree.tree, None)
            return False
        until = self._away.setdefault(tree.tree, now + STAND_IN_S * (1 + self._chance()))
        if now < until:
            return False
        self._away[tree.tree] = now + STAND_IN_S * self._chance()
        return True

    def _stand_in(self, tree: KeptTree) -> None:
        """Be the home from now on."""
        is_new = tree.record.home != self._broker.node
        self._homes.let_go(tree.record.groups)
        tree.begin(tree.record.promised)
        self._store(tree)
        self._homes.adopt_kept(tree.ledgers.values(), is_new)
        self._away.pop(tree.tree, None)
        self._over.pop(tree.tree, None)
        if is_new:
            self._broker.count("agent_homes", reason="stood-in")
            self.on_moved(tree.record.groups)
        self.pump(tree)
        self._look_later()

    def _hear_of(self, tree: KeptTree, home: str) -> None:
        """Another node is the home."""
        tree.record.home = home
        self._store(tree)
        self.on_moved(tree.record.groups)

    # Nodes and records

    def _relay(self, tree: KeptTree, node: str) -> PeerClient | None:
        registry = self._peers.registry
        peer = registry.find(node) or registry.find(tree.record.voters.get(node, ""))
        return None if peer is None else self._peers.relays.get(peer)

    def relay_of(self, group: str) -> PeerClient | None:
        """Return the client of the home of a group that is kept here."""
        tree = self._find(group)
        return None if tree is None else self._relay(tree, tree.record.home)

    def _store(self, tree: KeptTree) -> None:
        self._broker.store(KEPT.set((tree.tree,), tree.record))


def _stored(tree: KeptTree, group: str, agent: str) -> SetRecord | DropRecord:
    """Return what stores a member, or a group without one; or drops it, if a copy does not have it."""
    ledger = tree.ledgers.get(group)
    if not agent:
        return GROUPS.drop((group,)) if ledger is None else GROUPS.set((group,), ledger.group)
    member = None if ledger is None else ledger.members.get(agent)
    return MEMBERS.drop((group, agent)) if member is None else MEMBERS.set((group, agent), member)


def _failed(tree: KeptTree) -> Deferred[None]:
    reply: Deferred[None] = Deferred()
    reply.fail(Disconnected(f"group {tree.tree} has no home just now"))
    return reply


def _check_node(asked: IncomingRequest) -> None:
    principal = asked.session.principal
    if principal.bound is not None:
        raise NotAllowed(f"{principal.user!r} is no node: only nodes keep groups for each other")

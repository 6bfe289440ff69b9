"""Which nodes keep a group with its home, and how that changes while the group runs.

One node joins or goes at a time, and the next not before more than half have agreed to that. A node that
joins gets a copy before it counts, so it is known to be there. One that goes hears of it when that is agreed:
it forgets the group, and passes requests on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from tidings.agents.homes import GroupHomes, HomeGroup
from tidings.agents.kept_tree import VOTERS_MAX, KeptTree
from tidings.errors import AgentError, Disconnected
from tidings.peers.registry import PeerRegistry
from tidings.replies import Deferred, failed, resolved
from tidings.timers import Alarm

if TYPE_CHECKING:
    from tidings.agents.keeping import Keeping

JOIN_S = 10.0
"""How long a node that joins may take to get a copy."""
DEPUTE_S_MAX = 60.0
"""How long other nodes wait for a change of those that keep a group; each step of it has its own limit."""


class _Joining(Struct):
    """Waits until a node has got all up to an index."""

    index: int
    reply: Deferred[None]
    late: Alarm | None = None


class Deputies:
    """The changes of the nodes that keep this node's groups."""

    def __init__(self, keeping: Keeping, homes: GroupHomes, registry: PeerRegistry) -> None:
        self._keeping = keeping
        self._homes = homes
        self._registry = registry
        self._changing: set[str] = set()  # trees
        self._joining: dict[tuple[str, str], _Joining] = {}
        self._leaving: dict[tuple[str, str], int] = {}  # with the index that says so

    def voters(self, names: Sequence[str]) -> dict[str, str]:
        """Return the nodes that keep a group with this one; AgentError for such as can't."""
        broker = self._homes.broker
        found = {broker.node: broker.name or broker.node}
        for name in names:
            peer = None if name in found.values() else self._registry.find(name)
            if peer is None or not peer.node:
                raise AgentError(name, "it is no other node that this one knows, and has met")
            found[peer.node] = peer.name
        if not 3 <= len(found) <= VOTERS_MAX:
            problem = f"name 2 to {VOTERS_MAX - 1} others: more than half of all must agree"
            raise AgentError("deputies", f"{', '.join(names)}: {problem}")
        return found

    def change(self, home: HomeGroup, names: Sequence[str]) -> Deferred[None]:
        """Have these nodes keep a group with this one, which is its home, and no others."""
        group = home.group.group
        if home.group.parent:
            raise AgentError(home.group.name, "it is kept by those that keep the group above it")
        if group in self._changing:
            raise AgentError(home.group.name, "its deputies are being changed already; try again later")
        broker = self._homes.broker
        own = {broker.node: broker.name or broker.node}
        voters = self.voters(names) if names else own
        home.ledger.check_open()
        tree = self._keeping.tree_of(group)
        if tree is None:
            if not names:
                return resolved(None)
            tree = self._keeping.begin(home, own)
        self._changing.add(group)
        done = self._keeping.settled(group).chain(lambda _none: self._go_on(tree, voters))

        def over(_outcome: object) -> None:
            self._changing.discard(group)

        done.then(over, over)
        return done

    def _go_on(self, tree: KeptTree, wanted: dict[str, str]) -> Deferred[None]:
        """Have one node join or go, and when that is agreed the next."""
        voters = tree.record.voters
        joins = next((one for one in wanted if one not in voters), "")
        goes = next((one for one in voters if one not in wanted), "")
        if joins:
            changed = {**voters, joins: wanted[joins]}
            ready = self._join(tree, joins, wanted[joins])
        elif goes:
            changed = {one: name for one, name in voters.items() if one != goes}
            ready = resolved(None)
        else:
            return resolved(None)
        agreed = ready.chain(lambda _none: self._decide(tree, changed))
        if not joins:
            agreed = agreed.map(lambda _none: self._part(tree, goes))
        return agreed.chain(lambda _none: self._go_on(tree, wanted))

    def _decide(self, tree: KeptTree, voters: dict[str, str]) -> Deferred[None]:
        home = self._homes.groups.get(tree.tree)
        if home is None or not tree.is_home:
            return failed(Disconnected(f"group {tree.tree} has another home"))
        self._homes.took(home, home.ledger.depute(voters, self._homes.now_us))
        return self._keeping.settled(tree.tree)

    def _join(self, tree: KeptTree, node: str, name: str) -> Deferred[None]:
        """Let a node have all of the tree; AgentError if it does not take it in time."""
        key, joining = (tree.tree, node), _Joining(tree.record.index, Deferred())
        broker = self._homes.broker

        def late(_now: float) -> None:
            del self._joining[key]
            tree.unlearn(node)
            joining.reply.fail(AgentError(name, f"it has not got a copy of the group within {JOIN_S:g} s"))

        self._leaving.pop(key, None)
        self._joining[key] = joining
        joining.late = broker.timers.at(broker.now + JOIN_S, late)
        tree.learn(node)
        self._keeping.pump(tree)
        return joining.reply

    def _part(self, tree: KeptTree, node: str) -> None:
        """Let a node know that it keeps the tree no more, once it can be asked."""
        self._leaving[tree.tree, node] = tree.record.index
        tree.learn(node)
        self._keeping.pump(tree)

    def heard(self, tree: KeptTree, node: str) -> None:
        """A node has answered what the home has sent it."""
        key = tree.tree, node
        joining, left = self._joining.get(key), self._leaving.get(key)
        if joining is not None and tree.has(node, joining.index):
            del self._joining[key]
            self._homes.broker.timers.cancel(joining.late)
            joining.reply.resolve(None)
        if left is not None and tree.has(node, left):
            del self._leaving[key]
            tree.unlearn(node)

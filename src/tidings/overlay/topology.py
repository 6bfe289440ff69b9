"""Topology of the overlay, as one node knows it: records of all nodes, flooded over the links.

    link_up ──► the node's own record changes ──► it is sent over all links
            └─► the ends compare their records: digests, then stamps of the slots that differ, then records
    hear    ──► what is newer than the known is kept and sent over all other links

A link stays in the records of its ends while it is cut, and until it is removed. After a while it is lost:
the tree goes round it where it can, and when it comes back it counts as new. All nodes with the same records
have the same tree (`overlay.tree`). What is measured of links is in the records, too, and the smallest node
decides when it counts (`overlay.rebuilding`).

The driver calls `link_up` when a connection is there, before it hands in what comes over it, and `link_down`
when that is lost; a connection keeps the order of its messages. It calls `wake` at `wake_at`. Effects are
carried out in their order: an adjacency is stored before other nodes are told of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

from msgspec.structs import replace

from tidings.errors import CodecError, UserError
from tidings.ids import NUMBER_MAX
from tidings.overlay.bypass import Bypass
from tidings.overlay.comparing import Comparing
from tidings.overlay.coordinating import Coordinating, Subnets
from tidings.overlay.cut_links import FORGET_S, CutLinks
from tidings.overlay.flooding import Flooding
from tidings.overlay.known_records import KnownRecords
from tidings.overlay.pacing import Pacing
from tidings.overlay.rebuilding import Rebuilding
from tidings.overlay.records import (
    LINKS_MAX,
    SINCE_MAX,
    LinkRecord,
    NodeRecord,
    check_record,
    is_newer,
)
from tidings.overlay.topology_effects import (
    Approach,
    Attach,
    Effect,
    IdentityClash,
    NodesExceeded,
    SendRecords,
    StoreAdjacency,
    TakeEpoch,
    TreeChanged,
)
from tidings.overlay.tree import Edge, Tree, edges_of, is_lost, spanning_tree, ways_from

LOOK_S = 5.0
"""How long after a change of edges a node looks which nodes are out of reach."""
APPROACH_S = 5.0
"""How long a node that was approached may take to come within reach, before another is tried."""
CLASHES_MAX = 5
"""Times within CLASH_S that a node may find a newer record of itself, before that is reported."""
CLASH_S = 60.0
"""See CLASHES_MAX."""


class Topology:
    """What one node knows of all nodes and their links; `now` is of the clock that never jumps."""

    def __init__(
        self,
        node: str,
        name: str,
        epoch: int,
        leaf: bool = False,
        known: Iterable[NodeRecord] = (),
        address: str = "",
        newest: int = 0,
        reroute_s: float = inf,
        rebuilding: Rebuilding | None = None,
        coordinating: Coordinating | None = None,
    ) -> None:
        """`known` has the record that was stored last (StoreAdjacency), and may have others.

        `newest` is what that was in the last life: a new link must be younger than all that were known then.
        After `reroute_s` a link that is cut is lost. Without `rebuilding` this node begins no run, without
        `coordinating` it is on no subnet.
        """
        self.node = node
        self.clashes = 0
        """Newer records of this node that came from others."""
        self.refused = 0
        """Records for which there was no room."""
        self._known = KnownRecords()
        self._known.newest = newest
        self._pacing = Pacing()
        self.comparing = Comparing(node, self._known, self._take_compared)
        self._flooding = Flooding(self.comparing)
        self._clashes_at: deque[float] = deque(maxlen=CLASHES_MAX)
        self._is_full = False
        self._look_at = inf
        self._cut = CutLinks(reroute_s)
        self._bypass = Bypass(node)
        self._bypass_at = inf
        self._rebuilding = rebuilding or Rebuilding(node, wait_s=inf)
        self._coordinating = coordinating or Coordinating(node)
        self._is_draining = self._is_stale = False
        self._names: dict[str, str | None] | None = None
        own = NodeRecord(node, name, epoch, 1, (), leaf, address, subnet=self._coordinating.label)
        for record in known:
            if record.node != node:
                self._known.put(record)
            else:
                links = tuple(replace(link, is_up=False) for link in record.links)
                version = record.version + 1 if record.epoch >= epoch else 1
                epoch = max(epoch, record.epoch)
                own = replace(own, epoch=epoch, version=version, links=links, run=record.run)
        self._known.put(own)
        self._tree = self._grown()

    # What it knows

    @property
    def own(self) -> NodeRecord:
        """The record of this node."""
        return self._known[self.node]

    @property
    def records(self) -> list[NodeRecord]:
        """The newest record of each node that is known, also of such as are out of reach."""
        return list(self._known)

    @property
    def newest(self) -> int:
        """Latest moment since when a link is there, in any record so far."""
        return self._known.newest

    @property
    def connected(self) -> list[str]:
        """The neighbours whose links are up."""
        return list(self.comparing.connected)

    @property
    def tree(self) -> Tree:
        """The spanning tree; the same object as long as its edges are the same."""
        if self._is_stale:
            self._is_stale = False
            tree = self._grown()
            if tree.edges != self._tree.edges:
                self._tree, self._names = tree, None
        return self._tree

    def _edges(self) -> list[Edge]:
        return edges_of(self._known, self._known.run)

    def _grown(self) -> Tree:
        """Return the tree of the current records."""
        edges = self._edges()
        return Tree(self.node, spanning_tree(edges, Subnets(self._known, edges).leaves))

    @property
    def subnets(self) -> Subnets:
        """Coordinators and leaves, as the records have them now."""
        return Subnets(self._known, self._edges())

    def is_active(self, neighbour: str) -> bool:
        """Whether the link to a neighbour is in the tree, and does not stand by."""
        return self.tree.way(neighbour) == neighbour

    def way(self, node: str) -> str | None:
        """Return the neighbour through which a node is reached; None if it is not, or is this one."""
        return self.tree.way(node)

    def is_lost(self, neighbour: str) -> bool:
        """Whether this node or a neighbour has called the link between them lost, and it is not there."""
        here, there = self._ends(neighbour)
        is_said = any(link is not None and link.lost for link in (here, there))
        return is_said and here is not None and not here.is_up

    def has_edge(self, neighbour: str) -> bool:
        """Whether both ends' records name the link to a neighbour."""
        return None not in self._ends(neighbour)

    def _ends(self, neighbour: str) -> tuple[LinkRecord | None, LinkRecord | None]:
        """Return the link to a neighbour by the record of this node, and by that of the neighbour."""
        return self._known.link(self.node, neighbour), self._known.link(neighbour, self.node)

    @property
    def _links(self) -> dict[str, LinkRecord]:
        """The links in this node's record, by neighbours; the caller may change them."""
        return {link.neighbour: link for link in self.own.links}

    @property
    def _next_moment(self) -> int:
        """The moment of a change of links, later than all that are known."""
        return min(self._known.newest + 1, SINCE_MAX)

    def weights_said(self, neighbour: str) -> tuple[int, int]:
        """Return what this end and the other have measured of a link; 0 for nothing."""
        here, there = (0 if link is None else link.weight for link in self._ends(neighbour))
        return here, there

    def name_of(self, node: str) -> str | None:
        """Return the name of a node; None if it is not known."""
        record = self._known.get(node)
        return None if record is None else record.name

    def epoch_of(self, node: str) -> int:
        """Return the epoch of a node's last start; 0 if the node is not known."""
        record = self._known.get(node)
        return 0 if record is None else record.epoch

    def behind(self, neighbour: str) -> frozenset[str]:
        """Return the nodes that are reached through a neighbour, itself too; none if its link stands by."""
        return self.tree.behind(neighbour)

    @property
    def names(self) -> dict[str, str | None]:
        """The ids of the nodes in the tree by their names; None for a name that several have."""
        tree = self.tree
        if self._names is None:
            self._names = self._known.names(tree.nodes)
        return self._names

    # Links of this node

    def start(self, now: float) -> None:
        """Begin to wait for the links that were there before."""
        self._cut.start(self.own.links, now)

    def link_up(self, neighbour: str, since: int, now: float, theirs: bytes = b"") -> list[Effect]:
        """Note that the connection to a neighbour is there, also one in place of another.

        `since` is when it was established, in µs; of a link that was known before, and not lost, the first
        moment counts: a clock that was set back would make it older than others, and change the tree.
        A new link counts as younger than all that are known, whatever the clocks say, so that it changes no
        established tree. UserError if it is one too many. `theirs` is the digest in the neighbour's greeting:
        if it has the same records of others, these need not be compared.
        """
        links = self._links
        link = links.get(neighbour)
        if neighbour == self.node:
            raise UserError("a node has no link to itself")
        if link is None and len(links) >= LINKS_MAX:
            raise UserError(f"a node has at most {LINKS_MAX} links; remove one first")
        self._cut.forget(neighbour)
        if link is None or link.lost:
            link = LinkRecord(neighbour, min(max(since, self._known.newest + 1), SINCE_MAX))
        if self._is_draining:
            link = replace(link, lost=self._next_moment)
        links[neighbour] = replace(link, is_up=True)
        self.comparing.end(neighbour)  # it is sent the record with the digest
        effects = self._change(links, now)
        self._flooding.up(neighbour, self.own.version)
        return [*effects, *self.comparing.begin(neighbour, theirs)]

    def link_down(self, neighbour: str, now: float, is_dead: bool = False) -> list[Effect]:
        """Note that the connection to a neighbour is lost; the link stays in the records.

        If it, or the neighbour, was found dead, the link is lost at once, and one record says both.
        """
        self.comparing.end(neighbour)
        self._flooding.down(neighbour)
        links = self._links
        if neighbour in links:
            links[neighbour] = replace(links[neighbour], is_up=False)
            self._cut.note(neighbour, now, is_dead)
            links = self._given_up(links, now)
        return self._change(links, now)

    def lose(self, neighbour: str, now: float) -> list[Effect]:
        """Call a link that is cut lost at once: it, or the neighbour, was found dead."""
        if neighbour in self._cut:
            self._cut.note(neighbour, now, is_dead=True)
        return self.wake(now)

    def drain(self, now: float) -> list[Effect]:
        """Call all links lost, so that others go round this node; neighbours are sent that at once."""
        self._is_draining, lost = True, self._next_moment
        links = {one: replace(link, lost=link.lost or lost) for one, link in self._links.items()}
        return [*self._change(links, now), *self._flooding.own(self.own)]

    def _given_up(self, links: dict[str, LinkRecord], now: float) -> dict[str, LinkRecord]:
        """Return links, with those called lost that were cut for too long."""
        for neighbour in self._cut.lost(now):
            links[neighbour] = replace(links[neighbour], lost=self._next_moment)
            self._bypass_at = now
        return links

    def _forget_links(self, now: float) -> list[Effect]:
        """Remove links that were lost for long, and that the tree does without."""
        removed = [neighbour for neighbour in self._cut.old(now) if not self.is_active(neighbour)]
        return [effect for neighbour in removed for effect in self.link_removed(neighbour, now)]

    def _approach(self, now: float) -> list[Effect]:
        """Choose nodes to make links to in place of lost ones, and look again as long as any are missed."""
        if self._is_draining:
            self._bypass_at = inf
            return []
        edges = [edge for edge in self._edges() if not is_lost(edge)]
        chosen = self._bypass.choose(self._known, ways_from(self.node, edges))
        self._bypass_at = now + max(APPROACH_S, self._cut.reroute_s) if self._bypass.is_wanted else inf
        return [Approach(record) for record in chosen]

    def found_near(self, name: str, node: str, now: float) -> None:
        """Note that a node is found on the local network, or with no id that it is not any more."""
        self._coordinating.near(name, node, now)

    def _coordinate(self, now: float) -> list[Effect]:
        """Take the label of the subnet, and make the links that it needs."""
        found = self._coordinating.look(self._known, self._edges(), self.comparing.connected, now)
        label = self._coordinating.label
        effects = [] if label == self.own.subnet else self._renew(now, subnet=label)
        return effects if self._is_draining else [*effects, *map(Attach, found)]

    def set_address(self, address: str, now: float) -> list[Effect]:
        """Let others know where this node can be reached."""
        return self._renew(now, address=address)

    def measured(self, neighbour: str, weight: int, now: float) -> list[Effect]:
        """Note what a link weighs by this end: it counts for the tree from the next run on."""
        links, run = self._links, self._known.run
        link = links.get(neighbour)
        if link is None or link.lost or link.weight == weight:
            return []
        links[neighbour] = replace(link, weight=weight, before=link.weight_in(run), run=run)
        return self._change(links, now)

    def _rebuild(self, now: float) -> list[Effect]:
        """Let what was measured count, if this node is to decide that and it makes a better tree."""
        run = self._rebuilding.decide(self._known, self.tree, self.subnets.leaves, now)
        return [] if run == self.own.run else self._renew(now, run=run)

    def link_removed(self, neighbour: str, now: float) -> list[Effect]:
        """Remove a link; the neighbour is told if it is connected, and its connection may be closed then."""
        links = self._links
        if links.pop(neighbour, None) is None:
            return []
        was_up = self.comparing.end(neighbour)
        self._cut.forget(neighbour)
        effects = self._change(links, now)
        return [*effects, SendRecords(neighbour, (self.own,))] if was_up else effects

    def _change(self, links: dict[str, LinkRecord], now: float) -> list[Effect]:
        """Make a new version of this node's record, unless nothing has changed."""
        new = tuple(links[neighbour] for neighbour in sorted(links))
        return [] if new == self.own.links else self._renew(now, links=new)

    def _renew(self, now: float, **changes: Any) -> list[Effect]:
        """Make a new version of this node's record, and store it if that matters for the tree."""
        stored, record = self.own.shape, replace(self.own, version=self.own.version + 1, **changes)
        effects = self._publish(record, now)
        return effects if stored == record.shape else [StoreAdjacency(record), *effects]

    def _publish(self, record: NodeRecord, now: float) -> list[Effect]:
        """Take a new record of this node, and send it as often as that is allowed."""
        is_changed = self._put(record, now)
        effects = self._flooding.own(self.own) if self._pacing.admit(record, "", now) else []
        return self._noted(effects, is_changed)

    # Records of others

    def hear(self, neighbour: str, records: Sequence[NodeRecord], now: float) -> list[Effect]:
        """Take what is newer than the known records; if one is invalid, CodecError and none is taken."""
        if neighbour not in self.comparing.connected:
            return []
        return self._take(neighbour, self._news(records), now)

    def _take_compared(self, neighbour: str, record: NodeRecord, place: str, now: float) -> list[Effect]:
        """Take a neighbour's own record, which stands in a message at this place."""
        return self._take(neighbour, self._news([record], place), now)

    def _news(self, records: Iterable[NodeRecord], place: str = "$.records[{}]") -> list[NodeRecord]:
        """Return what is newer than the known, after a check; `place` is where the records stand."""
        known_of = self._known.get
        news = []
        for number, record in enumerate(records):
            known = known_of(record.node)
            if known is None or (known is not record and is_newer(record, known)):
                try:
                    check_record(record)
                except CodecError as error:
                    raise CodecError(place.format(number) + error.place[1:], error.problem) from None
                news.append(record)
        return news

    def _take(self, neighbour: str, news: Iterable[NodeRecord], now: float) -> list[Effect]:
        effects: list[Effect] = []
        taken: list[NodeRecord] = []
        is_changed = False
        for record in news:
            known = self._known.get(record.node)
            if record.node == self.node:
                effects += self._reclaim(neighbour, record, now)
            elif known is not None and not self._pacing.admit(record, neighbour, now):
                continue
            elif not self._has_room(record):
                self.refused += 1
                effects += [] if self._is_full else [NodesExceeded(neighbour, record)]
                self._is_full = True
            else:
                is_changed |= self._put(record, now)
                taken.append(record)
        return self._noted([*effects, *self._flooding.others(taken, neighbour)], is_changed)

    def _put(self, record: NodeRecord, now: float) -> bool:
        """Put a record among the known; return whether edges may have changed."""
        known = self._known.get(record.node)
        if known is None or known.name != record.name:
            self._names = None
        was_lost = self._known.lost.pop(record.node, None) is not None
        is_changed = self._known.put(record)
        if self._known.link(self.node, record.node) is not None and record.loses(self.node):
            self._bypass_at = min(self._bypass_at, now)
        if is_changed or was_lost or known is None:
            self._look_at = min(self._look_at, now + LOOK_S)
        self._rebuilding.note(now)
        self._coordinating.note(now)
        return is_changed

    def _noted(self, effects: list[Effect], is_changed: bool) -> list[Effect]:
        """Return effects, with TreeChanged if edges have changed and the tree was read since the last one."""
        if is_changed and not self._is_stale:
            self._is_stale = True
            effects.append(TreeChanged())
        return effects

    def _has_room(self, record: NodeRecord) -> bool:
        """Whether there is room for a record; those of lost nodes make it."""
        if self._known.fits(record):
            return True
        for node in list(self._known.lost):
            self._forget(node)
        return self._known.fits(record)

    def _reclaim(self, neighbour: str, record: NodeRecord, now: float) -> list[Effect]:
        """Make a record of this node that is newer than one of a former life, or of another program.

        A directory that was restored from a backup, or copied, has such former lives.
        """
        self.clashes += 1
        self._clashes_at.append(now)
        is_later = record.epoch > self.own.epoch
        number = (record.epoch + 1, 1) if is_later else (record.epoch, record.version + 1)
        if max(number) > NUMBER_MAX:  # nothing is newer
            return [IdentityClash(neighbour, record)]
        effects: list[Effect] = [TakeEpoch(number[0])] if is_later else []
        effects += self._publish(replace(self.own, epoch=number[0], version=number[1]), now)
        if len(self._clashes_at) == CLASHES_MAX and now - self._clashes_at[0] <= CLASH_S:
            self._clashes_at.clear()
            effects.append(IdentityClash(neighbour, record))
        return effects

    # Time

    @property
    def wake_at(self) -> float:
        """When `wake` is to be called; inf if nothing is due."""
        own = self._look_at, self._bypass_at, self._rebuilding.wake_at, self._coordinating.wake_at
        return min(self._pacing.wake_at, self._cut.wake_at, *own)

    def wake(self, now: float) -> list[Effect]:
        """Take the changes that waited for their time, and forget nodes that were out of reach for long."""
        effects: list[Effect] = []
        for record, source in self._pacing.due(now):
            if record.node == self.node:
                effects += self._flooding.own(self.own)
                continue
            known = self._known.get(record.node)
            if known is not None and is_newer(record, known) and self._has_room(record):
                is_changed = self._put(record, now)
                effects += self._noted(self._flooding.others([record], source), is_changed)
                if record.node == source and source in self.comparing.connected:
                    # It may be of a life that ended while this waited: then that node takes a later number.
                    effects.append(SendRecords(source, (record,)))
        if self._look_at <= now:
            effects += self._look(now)
        effects += self._change(self._given_up(self._links, now), now) + self._forget_links(now)
        if self._bypass_at <= now:
            effects += self._approach(now)
        if self._rebuilding.wake_at <= now:
            effects += self._rebuild(now)
        if self._coordinating.wake_at <= now:
            effects += self._coordinate(now)
        return effects

    def _look(self, now: float) -> list[Effect]:
        """Look which nodes are out of reach, and send the records of those that no longer are."""
        found = self._known.reach(ways_from(self.node, self._edges()), now + FORGET_S)
        for node in self._known.due(now):
            self._forget(node)
        self._look_at = min(self._known.lost.values(), default=inf)
        return self._flooding.others(found)

    def _forget(self, node: str) -> None:
        self._known.drop(node)
        self._pacing.forget(node)
        self._is_full = False

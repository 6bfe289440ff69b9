"""Switch from one tree to another in five steps, for what must arrive in one order everywhere (Wall, 1980).

    1. Switch    from the node that begins it over the old tree; a leaf begins the next step
    2. Stop      convergecast: a node sends it when all neighbours but one have, and takes in no new events
    3. Last      from the centre over the old tree: no event is under way on the old tree behind it
    4. TearDown  convergecast: a node that has sent it does not need the old tree any more
    5. Resume    from the centre over the new tree: events that were kept back meanwhile go on

In a *convergecast* each node of a tree sends one message, to the neighbour that has not sent one yet; the
edge over which two meet is the centre, and the smaller node at it goes on. So N nodes send N messages, one
more than edges, and a switch costs 5N - 3. Connections keep the order of their messages.

The new tree is given to each node at the beginning, or found on the way for 2N messages (`links`): Stop
brings the links of all nodes to the centre, which computes their minimum spanning tree, and Last brings that
to all. A publisher is never stopped: what it publishes during a switch waits at its node, up to a limit.

A message of another run changes nothing. A node that dies during a switch leaves the others waiting, so this
is for trees whose nodes are watched. Routing by content switches without a stop instead (`moving.py`), since
its events need no common order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf
from typing import Any

from msgspec import Struct

from tidings.overlay.gallager import Key
from tidings.overlay.tree import spanning_tree

KEPT_MAX = 10_000
"""Events that wait at a node during a switch; further ones are refused."""


class SwitchMessage(Struct, frozen=True, tag=True):
    """Message between neighbours in a run."""

    run: int


class Switch(SwitchMessage, frozen=True):
    """A switch begins."""


class Stop(SwitchMessage, frozen=True):
    """No new events come from here; `links` has those behind here, if the tree is to be found."""

    links: tuple[Key, ...] = ()


class Last(SwitchMessage, frozen=True):
    """Nothing follows on the old tree; `tree` has each node's neighbours in one that was found on the way."""

    tree: Mapping[str, Collection[str]] = {}


class TearDown(SwitchMessage, frozen=True):
    """The old tree is not needed here any more."""


class Resume(SwitchMessage, frozen=True):
    """Use the new tree."""


class Carry(SwitchMessage, frozen=True):
    """An event, in the run whose tree it takes."""

    event: Any


class Post(Struct, frozen=True):
    """Send a neighbour a message."""

    neighbour: str
    message: SwitchMessage


class TreeSwitch:
    """One node on a tree that can be switched; `delivered` has the events that came, in their order.

    `tree` has its neighbours in the tree, `links` its links with their weights, if trees are to be found.
    """

    wake_at = inf

    def __init__(self, node: str, tree: Collection[str], links: Mapping[str, float] | None = None) -> None:
        self.node = node
        self.tree = frozenset(tree)
        self.run = 0
        self.delivered: list[Any] = []
        self._links = links
        self._finds = links is not None
        self._step: type[SwitchMessage] | None = None  # None: no switch is under way
        self._next: frozenset[str] = frozenset()
        self._kept: list[Any] = []
        self._begin()

    def _begin(self) -> None:
        self._stopped: set[str] = set()  # neighbours that have sent Stop
        self._torn: set[str] = set()  # neighbours that have sent TearDown
        self._known: set[Key] = set()
        self._has_sent: set[type[SwitchMessage]] = set()
        self._inward = ""  # to whom the last message of a convergecast went
        if self._links is not None:
            ends = ((self.node, other, weight) for other, weight in self._links.items())
            self._known = {(weight, min(one, two), max(one, two)) for one, two, weight in ends}

    @property
    def is_switching(self) -> bool:
        """Whether a switch is under way."""
        return self._step is not None

    # What the node does

    def publish(self, event: Any) -> list[Post] | None:
        """Send an event to all nodes, now or after the switch; None if too many wait."""
        if Stop in self._has_sent:
            if len(self._kept) >= KEPT_MAX:
                return None
            self._kept.append(event)
            return []
        self.delivered.append(event)
        return [Post(one, Carry(self.run, event)) for one in sorted(self.tree)]

    def plan(self, tree: Collection[str]) -> None:
        """Have these neighbours in the next tree."""
        self._next = frozenset(tree)

    def begin(self) -> list[Post]:
        """Begin a switch; one at a time."""
        return [] if self.is_switching else self._switch("", self.run + 1)

    def hear(self, neighbour: str, message: SwitchMessage, now: float = 0.0) -> list[Post]:  # noqa: ARG002
        """Take a message of a neighbour; one of another run changes nothing."""
        match message:
            case Carry(run=run, event=event):
                return self._carry(neighbour, run, event)
            case Switch(run=run) if not self.is_switching and run == self.run + 1:
                return self._switch(neighbour, run)
            case _ if not self.is_switching or message.run != self.run + 1:
                return []
            case Stop(links=links):
                self._stopped.add(neighbour)
                self._known.update(links)
                return self._converge(Stop, self._stopped)
            case Last(tree=tree):
                return self._last(neighbour, tree)
            case TearDown():
                self._torn.add(neighbour)
                return self._converge(TearDown, self._torn)
            case Resume():
                return self._resume(neighbour)
        return []

    def wake(self, now: float) -> list[Post]:  # noqa: ARG002
        """Nothing is due by time."""
        return []

    # Events

    def _carry(self, neighbour: str, run: int, event: Any) -> list[Post]:
        if run != self.run or neighbour not in self.tree:
            return []
        self.delivered.append(event)
        return [Post(one, Carry(run, event)) for one in sorted(self.tree - {neighbour})]

    # The five steps

    def _switch(self, neighbour: str, run: int) -> list[Post]:
        self._step = Switch
        self._begin()
        posts = [Post(one, Switch(run)) for one in sorted(self.tree - {neighbour})]
        return [*posts, *self._converge(Stop, self._stopped)]

    def _converge(self, kind: type[Stop | TearDown], heard: set[str]) -> list[Post]:
        """Send a message of a convergecast when all neighbours but one have; go on if this is the centre."""
        posts: list[Post] = []
        left = self.tree - heard
        if kind not in self._has_sent and len(left) <= 1:
            if kind is TearDown and Last not in self._has_sent:
                return []
            self._has_sent.add(kind)
            self._inward = next(iter(left), "")  # nobody, if the node is alone
            posts = [Post(one, self._message(kind)) for one in left]
        if kind in self._has_sent and not left and self.node <= (self._inward or self.node):
            posts += self._centre(kind)
        return posts

    def _message(self, kind: type[Stop | TearDown]) -> SwitchMessage:
        if kind is TearDown:
            return TearDown(self.run + 1)
        return Stop(self.run + 1, tuple(self._known) if self._finds else ())

    def _centre(self, kind: type[Stop | TearDown]) -> list[Post]:
        """Both ends of the edge at which a convergecast has met know that; the smaller one goes on."""
        if kind is TearDown:
            return self._resume("")
        return self._last("", self._found())

    def _found(self) -> dict[str, set[str]]:
        """Return the minimum spanning tree of all links that were brought here."""
        found: dict[str, set[str]] = {}
        ranked = enumerate(sorted(self._known)) if self._finds else ()
        for _, one, other in spanning_tree((rank, *key[1:]) for rank, key in ranked):
            found.setdefault(one, set()).add(other)
            found.setdefault(other, set()).add(one)
        return found

    def _last(self, neighbour: str, tree: Mapping[str, Collection[str]]) -> list[Post]:
        if self._finds:
            self._next = frozenset(tree.get(self.node, ()))
        self._has_sent.add(Last)
        posts = [Post(one, Last(self.run + 1, tree)) for one in sorted(self.tree - {neighbour})]
        return [*posts, *self._converge(TearDown, self._torn)]

    def _resume(self, neighbour: str) -> list[Post]:
        self.tree, self._next = self._next, frozenset()
        self.run += 1
        self._step = None
        self._begin()
        posts = [Post(one, Resume(self.run)) for one in sorted(self.tree - {neighbour})]
        kept, self._kept = self._kept, []
        for event in kept:
            posts += self.publish(event) or []
        return posts

"""Minimum spanning tree by messages between neighbours: the algorithm of Gallager, Humblet and Spira (1983).

Nodes form *fragments* of the tree, each with a level. A fragment looks for its lightest edge to another one:
its nodes test their edges, report inwards what they have found, and the *core*, the edge at which two
fragments of one level have merged, decides where the fragment connects. Fragments of one level that choose
the same edge merge to one of the next level; one of a lower level is absorbed; one of a higher level waits.

Two things are added. First both ends of a link send each other what they have measured, and take the mean; of
equal weights the ids decide. In the end the two nodes of the last core notify all others that the tree is
*ready*. That makes at most 4E + 5N·log2 N + N messages for N nodes with E links.

If a node dies, the others would wait without end. So a node that hears nothing for a while asks its
neighbours whether they are there. One that does not answer, or takes part in nothing any more, is left out,
and the node begins another *run* without it, which all others join as they hear of it. A message of an older
run changes nothing. Connections keep the order of their messages.

Nodes of tidings know the whole graph and compute the tree alone (`tree.py`); `docs/architecture.md` compares
the two. The simulator runs this one beside it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import inf
from typing import Literal

from msgspec import Struct

Key = tuple[float, str, str]
"""Weight of an edge and its ends, the smaller id first: no two edges are equal, so there is one tree."""
NONE: Key = (inf, "", "")

WAIT_S = 5.0
"""How long a node hears nothing before it asks its neighbours, and how long it waits for their answers."""


class TreeMessage(Struct, frozen=True, tag=True):
    """Message between neighbours in a run."""

    run: int


class Weigh(TreeMessage, frozen=True):
    """What this end has measured."""

    weight: float


class Connect(TreeMessage, frozen=True):
    """Join the fragments at the ends of this edge."""

    level: int


class Initiate(TreeMessage, frozen=True):
    """Belong to this fragment; find its lightest edge to another, if `is_finding`."""

    level: int
    fragment: Key
    is_finding: bool


class Test(TreeMessage, frozen=True):
    """Reply whether the other end is in another fragment."""

    level: int
    fragment: Key


class Accept(TreeMessage, frozen=True):
    """It is."""


class Reject(TreeMessage, frozen=True):
    """It is not: the edge is not in the tree."""


class Report(TreeMessage, frozen=True):
    """The lightest edge to another fragment that was found here and behind here."""

    best: Key


class ChangeRoot(TreeMessage, frozen=True):
    """The lightest edge of the fragment is here, or behind here: connect over it."""


class Ready(TreeMessage, frozen=True):
    """The tree is built."""


class Ask(TreeMessage, frozen=True):
    """Request a sign of life, and whether the node takes part."""


class Here(TreeMessage, frozen=True):
    """I am, in the run of this message; whether the link is part of it."""

    is_used: bool


class Send(Struct, frozen=True):
    """Send a neighbour a message."""

    neighbour: str
    message: TreeMessage


EdgeState = Literal["basic", "branch", "rejected"]


class TreeBuilder:
    """One node. `links` has its neighbours, each with what this end has measured; see `branches`, `core`."""

    def __init__(self, node: str, links: Mapping[str, float], wait_s: float = WAIT_S) -> None:
        self.node = node
        self.run = 0
        self.left_out: set[str] = set()
        """Neighbours that did not answer."""
        self.wake_at = inf
        """When `wake` is to be called."""
        self._links = dict(links)
        self._wait_s = wait_s
        self._begin(0)

    def _begin(self, run: int) -> None:
        self.run = run
        self.is_ready = False
        self.core: tuple[str, str] | None = None
        self._state: dict[str, EdgeState] = {}  # of the links in the run: both ends have sent their weights
        self._key: dict[str, Key] = {}
        self._awake = self._is_finding = False
        self._level, self._fragment = 0, NONE
        self._waiting: deque[tuple[str, TreeMessage]] = deque()
        self._find_count = 0
        self._test_edge: str | None = None
        self._best_edge: str | None = None
        self._best = NONE
        self._inward = ""
        self._asked: set[str] = set()
        self._has_changed = False
        self._out: list[Send] = []

    @property
    def branches(self) -> set[str]:
        """Neighbours to which edges of the tree lead; those of the whole tree once it is ready."""
        return {one for one, state in self._state.items() if state == "branch"}

    # Runs

    def start(self, now: float, run: int = 1) -> list[Send]:
        """Begin a run, or join one that others have begun."""
        self._begin(run)
        self.wake_at = now + self._wait_s
        for neighbour, weight in self._links.items():
            if neighbour not in self.left_out:
                self._send(neighbour, Weigh(run, weight))
        self._wake_up()
        return self._taken()

    def hear(self, neighbour: str, message: TreeMessage, now: float) -> list[Send]:
        """Take a message of a neighbour; one of an older run, or of a neighbour left out, changes nothing."""
        if neighbour not in self._links or neighbour in self.left_out or message.run < self.run:
            return []
        sends = self.start(now, message.run) if message.run > self.run else []
        if isinstance(message, Ask):
            return [*sends, Send(neighbour, Here(self.run, neighbour in self._state))]
        if isinstance(message, Here):
            if message.is_used or not self._awake:
                self._asked.discard(neighbour)
            return sends
        self.wake_at = inf if self.is_ready else now + self._wait_s
        self._asked.clear()
        self._waiting.append((neighbour, message))
        self._work()
        if self.is_ready:
            self.wake_at = inf
        return [*sends, *self._taken()]

    def wake(self, now: float) -> list[Send]:
        """Ask neighbours that were not heard of, and go on without those that do not answer."""
        if now < self.wake_at:
            return []
        self.wake_at = now + self._wait_s
        waits_for = set(self._state) if self._awake else set(self._links) - self.left_out
        if not self._awake:  # nothing but weights was exchanged with those that are silent
            silent = {one for one in waits_for if one not in self._state}
            if silent and self._asked >= silent:
                self.left_out |= silent
                self._wake_up()
                self._work()
                return self._taken()
            waits_for = silent
        elif self._asked:
            self.left_out |= self._asked
            return self.start(now, self.run + 1)
        self._asked = waits_for
        return [Send(one, Ask(self.run)) for one in sorted(waits_for)]

    def _send(self, neighbour: str, message: TreeMessage) -> None:
        self._out.append(Send(neighbour, message))

    def _taken(self) -> list[Send]:
        out, self._out = self._out, []
        return out

    # Messages

    def _work(self) -> None:
        """Take the messages that wait, in their order, and those again that can be taken now."""
        while True:
            waiting, self._waiting, self._has_changed = self._waiting, deque(), False
            for neighbour, message in waiting:
                self._take(neighbour, message)
            if not self._waiting or not self._has_changed:
                return

    def _take(self, neighbour: str, message: TreeMessage) -> None:
        if isinstance(message, Weigh):
            self._agree(neighbour, message.weight)
            return
        is_taken = self._awake and neighbour in self._state and self._do(neighbour, message)
        if is_taken:
            self._has_changed = True
        else:
            self._waiting.append((neighbour, message))

    def _agree(self, neighbour: str, weight: float) -> None:
        """Both ends know what the other has measured: the mean is the weight."""
        self._has_changed = True
        if neighbour not in self._state and not self._awake:
            mean = (weight + self._links[neighbour]) / 2
            self._key[neighbour] = (mean, min(self.node, neighbour), max(self.node, neighbour))
            self._state[neighbour] = "basic"
            self._wake_up()

    def _wake_up(self) -> None:
        """Connect over the lightest edge, once all weights are known."""
        if self._awake or len(self._state) + len(self.left_out & self._links.keys()) < len(self._links):
            return
        self._awake = True
        lightest = self._lightest()
        if lightest is None:  # it is alone
            self.is_ready, self.wake_at = True, inf
        else:
            self._state[lightest] = "branch"
            self._send(lightest, Connect(self.run, 0))

    def _lightest(self) -> str | None:
        """Return the lightest edge of which it is not known whether it is in the tree."""
        basic = [one for one, state in self._state.items() if state == "basic"]
        return min(basic, key=self._key.__getitem__, default=None)

    def _do(self, neighbour: str, message: TreeMessage) -> bool:
        """Do what a message says; return whether that was possible yet."""
        match message:
            case Connect(level=level):
                return self._connect(neighbour, level)
            case Initiate():
                self._initiate(neighbour, message)
            case Test(level=level, fragment=fragment):
                return self._tested(neighbour, level, fragment)
            case Accept():
                self._test_edge = None
                self._found(neighbour, self._key[neighbour])
                self._report()
            case Reject():
                if self._state[neighbour] == "basic":
                    self._state[neighbour] = "rejected"
                self._test()
            case Report(best=best):
                return self._reported(neighbour, best)
            case ChangeRoot():
                self._change_root()
            case Ready():
                self._be_ready(neighbour)
        return True

    def _connect(self, neighbour: str, level: int) -> bool:
        if level < self._level:  # absorb
            self._state[neighbour] = "branch"
            self._send(neighbour, Initiate(self.run, self._level, self._fragment, self._is_finding))
            self._find_count += self._is_finding
            return True
        if self._state[neighbour] == "basic":
            return False
        self._send(neighbour, Initiate(self.run, self._level + 1, self._key[neighbour], is_finding=True))
        return True

    def _initiate(self, neighbour: str, message: Initiate) -> None:
        self._level, self._fragment, self._is_finding = message.level, message.fragment, message.is_finding
        self._inward, self._best_edge, self._best = neighbour, None, NONE
        for other in sorted(self.branches - {neighbour}):
            self._send(other, message)
            self._find_count += message.is_finding
        if message.is_finding:
            self._test()

    def _test(self) -> None:
        self._test_edge = self._lightest()
        if self._test_edge is None:
            self._report()
        else:
            self._send(self._test_edge, Test(self.run, self._level, self._fragment))

    def _tested(self, neighbour: str, level: int, fragment: Key) -> bool:
        if level > self._level:
            return False
        if fragment != self._fragment:
            self._send(neighbour, Accept(self.run))
            return True
        if self._state[neighbour] == "basic":
            self._state[neighbour] = "rejected"
        if self._test_edge == neighbour:
            self._test()  # the other end learns it from the test of this one
        else:
            self._send(neighbour, Reject(self.run))
        return True

    def _found(self, neighbour: str, key: Key) -> None:
        if key < self._best:
            self._best_edge, self._best = neighbour, key

    def _report(self) -> None:
        if not self._find_count and self._test_edge is None:
            self._is_finding = False
            self._send(self._inward, Report(self.run, self._best))

    def _reported(self, neighbour: str, best: Key) -> bool:
        if neighbour != self._inward:
            self._find_count -= 1
            self._found(neighbour, best)
            self._report()
        elif self._is_finding:
            return False
        elif best > self._best:
            self._change_root()
        elif best == self._best == NONE:
            self.core = (min(self.node, neighbour), max(self.node, neighbour))
            self._be_ready(neighbour)
        return True

    def _change_root(self) -> None:
        if self._best_edge is None:
            return  # nothing was found here: the neighbour is wrong
        if self._state[self._best_edge] == "branch":
            self._send(self._best_edge, ChangeRoot(self.run))
        else:
            self._state[self._best_edge] = "branch"
            self._send(self._best_edge, Connect(self.run, self._level))

    def _be_ready(self, neighbour: str) -> None:
        """The tree is built: notify the nodes behind here."""
        self.is_ready = True
        for other in sorted(self.branches - {neighbour}):
            self._send(other, Ready(self.run))

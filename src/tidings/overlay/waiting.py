"""Waiting for the network: until a subscription is in force everywhere, and until events are held elsewhere.

A subscription is *in force* for the events that a node takes in from a number on: all above it come. A node
asks each neighbour, behind what it has announced to it; the neighbour asks its own other neighbours in the
same way, and answers when all have. On a tree that ends by itself. It is asked again while the two ends see
other sides of their link (`moving.py`): events could come another way than the one that is asked. A link that
is cut answers nothing, so it is named as missing, with all nodes behind it.

An advertisement is in force when each node has announced back what its subscribers want of it.

An event is *held* when every neighbour that wants it has stored it, and all that want it within
`tolerate` - 1 further hops: from then on it survives the deaths of as many nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Struct

from tidings.errors import Disconnected, Refused, TidingsError
from tidings.overlay.announcing import Announcer
from tidings.overlay.moving import Sides
from tidings.overlay.neighbours import Later, Neighbour
from tidings.overlay.relaying import LinkCursor
from tidings.protocol.arguments import InForce
from tidings.replies import Deferred, gathered

HELD_S = 15.0
"""How long a client waits at most for the answer whether all other nodes have what it has sent."""
ANSWER_S = 20.0
"""How long a neighbour may take to answer for all that lies behind it; then it is missing."""
AGAIN_S = 0.1
"""How long to wait before a neighbour is asked again that knows another tree."""

SidesOf = Callable[[str], Sides | None]
"""Returns the sides of the link to a neighbour, as the tree is now."""


def ask(
    neighbour: Neighbour,
    of_offers: bool,
    missing: list[str],
    later: Later,
    sides_of: SidesOf,
    settled: bool = False,
) -> Deferred[InForce]:
    """Ask a neighbour from which numbers on all that was announced to it so far is in force.

    `of_offers`: whether what is offered is meant, or what is wanted. `settled`: the neighbour is to answer
    when this node has stored all that they have for it up to these numbers.
    """
    reply: Deferred[InForce] = Deferred()
    silent = InForce(missing=missing)

    def answered(told: Any) -> None:
        try:
            reply.resolve(msgspec.convert(told, InForce))
        except msgspec.ValidationError:
            reply.resolve(silent)

    arguments = {"of_offers": of_offers, "settled": settled}
    announcer = neighbour.offerer if of_offers else neighbour.announcer
    asked = ask_behind(neighbour, announcer, "link.in_force", arguments, later, sides_of)
    asked.then(answered, lambda _error: reply.resolve(silent))
    return reply


def ask_behind(
    neighbour: Neighbour,
    announcer: Announcer,
    operation: str,
    arguments: dict[str, Any],
    later: Later,
    sides_of: SidesOf,
    within_s: float = ANSWER_S,
) -> Deferred[Any]:
    """Send a neighbour a request behind all that was announced to it, with the sides of the link.

    It is sent again while the neighbour knows another tree, or has too many requests under way, and fails if
    no answer comes in time.
    """
    reply: Deferred[Any] = Deferred()
    link = neighbour.link

    def cut(problem: str = "is not there") -> None:
        reply.fail(Disconnected(f"the link to {neighbour.name or neighbour.node!r} {problem}"))

    def refused(error: TidingsError) -> None:
        if isinstance(error, Refused) and error.code in ("exists", "limit") and not reply.is_over:
            later(AGAIN_S, known)
        else:
            reply.fail(error)

    def known(_none: None = None) -> None:
        if link is None or neighbour.link is not link:
            cut()
        else:
            told = {**arguments, "sides": sides_of(neighbour.node)}
            link.send(operation, told).then(reply.resolve, refused)

    if link is None or not link.is_up:
        cut()
    else:
        announcer.barrier().then(known, reply.fail)
        later(within_s, lambda: cut(f"has not answered within {within_s:g} s"))
    return reply


def joined(own: InForce, replies: Iterable[Deferred[InForce]]) -> Deferred[InForce]:
    """Return what this node and all that were asked say, when all have answered."""

    def join(told: list[InForce]) -> InForce:
        nodes = dict(own.nodes)
        for one in told:
            nodes |= one.nodes
        return InForce(nodes, sorted(name for one in told for name in one.missing))

    return gathered(list(replies)).map(join)


def after(reply: Deferred[InForce], barrier: Callable[[], Deferred[None]]) -> Deferred[InForce]:
    """Return a reply that comes when this one has come, and then a barrier is passed."""
    passed: Deferred[InForce] = Deferred()

    def found(told: InForce) -> None:
        barrier().then(lambda _none: passed.resolve(told), passed.fail)

    reply.then(found, passed.fail)
    return passed


class Settling:
    """Questions of neighbours whether they have stored all that was stored for them so far."""

    def __init__(self) -> None:
        self._waiting: list[tuple[LinkCursor, int, Deferred[None]]] = []

    def wait(self, neighbour: Neighbour) -> Deferred[None]:
        """Return a reply that comes when a neighbour has confirmed all that it wants of what is stored."""
        reply: Deferred[None] = Deferred()
        cursor = neighbour.cursor
        if cursor is None:
            reply.resolve(None)
        else:
            self._waiting.append((cursor, cursor.broker.position, reply))
            self.look()
        return reply

    def look(self) -> None:
        """Reply to those that have all by now."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for cursor, position, reply in waiting:
                if cursor.confirmed(0) >= position:
                    reply.resolve(None)
                elif not cursor.subscription.is_over:
                    self._waiting.append((cursor, position, reply))


class HeldRequest(Struct, frozen=True):
    """The arguments of `held`: whether all nodes are meant that want it.

    Then it is answered after HELD_S at the latest, with whether all have it.
    """

    by_all: bool = False


class Holding:
    """Calls that wait until what was published before them is held; `cursors` are those of neighbours."""

    def __init__(self, cursors: Callable[[], Iterable[LinkCursor]], level: int) -> None:
        self._cursors = cursors
        self._level = level
        self._waiting: list[tuple[int, int, Deferred[bool | None]]] = []  # position, level

    def wait(self, position: int, request: HeldRequest, later: Later) -> Deferred[bool | None]:
        """Return a reply that comes when all up to this position is held."""
        reply: Deferred[bool | None] = Deferred()
        self._waiting.append((position, -1 if request.by_all else self._level, reply))

        def give_up() -> None:
            if not reply.is_over:
                reply.resolve(False)

        if request.by_all:
            later(HELD_S, give_up)
        self.look()
        return reply

    def dropped(self, position: int, node: str) -> None:
        """Events from this position on were given up for a neighbour that is away: they are not held."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if one[0] >= position:
                problem = f"events were given up for {node}, which is away for too long, or wants too many"
                one[2].fail(Refused("gap", problem))
            else:
                self._waiting.append(one)

    def look(self) -> None:
        """Reply to those whose events are held by now."""
        if not self._waiting:
            return
        cursors = list(self._cursors())
        held = {level: [cursor.confirmed(level) for cursor in cursors] for level in (self._level, -1)}
        waiting, self._waiting = self._waiting, []
        for position, level, reply in waiting:
            if reply.is_over:
                continue
            if all(one >= position for one in held[level]):
                reply.resolve(None)
            else:
                self._waiting.append((position, level, reply))

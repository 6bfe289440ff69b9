"""Liveness of neighbours: drives the pings on the links of a node, and its suspicion of silent neighbours.

A node that suspects a neighbour asks others that have links with it, over links that are up and not through
the one in question. The question names its whole way (`HeardRequest.path`), so it can't go round in circles;
the answer comes back the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from math import inf
from typing import Annotated, Any

from msgspec import Meta, Struct

from tidings.errors import Refused
from tidings.overlay.linking import Linking
from tidings.overlay.neighbours import KnownNeighbours, Neighbour, NeighbourLink
from tidings.overlay.pinging import Pinging
from tidings.overlay.records import NodeRecord
from tidings.overlay.settings import OverlaySettings
from tidings.overlay.suspicion import ASK_S, Lose, Suspect, Suspicion, SuspicionEffect, Trust
from tidings.overlay.topology import Topology
from tidings.protocol.broker import Broker
from tidings.replies import Deferred, failed, resolved

ASKED_MAX = 3
"""Nodes that are asked about a neighbour, the nearest first."""
HOPS_MAX = 8
"""Links that a question crosses at most."""
FORWARDED_MAX = 100
"""Questions of others that are passed on within ASK_S; further ones are refused."""

Log = Callable[..., None]


class HeardRequest(Struct, frozen=True):
    """The arguments of `link.heard`: the node in question, and the nodes to which the question goes on."""

    about: Annotated[str, Meta(max_length=64)]
    path: Annotated[tuple[str, ...], Meta(max_length=HOPS_MAX)] = ()


class Liveness:
    """Pings and suspicion of a node. `on_lost` is called when a link was found dead, and parted from."""

    def __init__(
        self,
        broker: Broker,
        topology: Topology,
        neighbours: KnownNeighbours,
        linking: Linking,
        log: Log,
        settings: OverlaySettings,
    ) -> None:
        self._broker = broker
        self._topology = topology
        self._neighbours = neighbours
        self._linking = linking
        self._log = log
        self._forwarded = 0
        self.pinging = Pinging(settings.ping_s)
        times = settings.suspect_s, settings.ping_s
        self.suspicion = Suspicion(*times, self._heard_at, lambda node: self.pinging.of(node).longest_s)
        self.on_lost: Callable[[Neighbour], None] = lambda _neighbour: None
        self.dying: Neighbour | None = None
        """The neighbour that is parted from because it was found dead, while that is done."""

    def _heard_at(self, node: str) -> float:
        neighbour = self._neighbours.get(node)
        link = None if neighbour is None else neighbour.link
        if link is None:
            return -inf
        return self._broker.now if link.is_kept_waiting else link.received_at

    # Links

    def link_up(self, neighbour: Neighbour, link: NeighbourLink) -> None:
        """A link is there."""
        node, now = neighbour.node, self._broker.now
        link.connection.on_pong = lambda number: self.pinging.answered(node, number, self._broker.now)
        self.pinging.link_up(node, now)
        self.suspicion.link_up(node, now)
        self._watch()

    def link_down(self, neighbour: Neighbour) -> None:
        """A link is gone."""
        self.pinging.link_down(neighbour.node)
        self.suspicion.link_down(neighbour.node, self._broker.now)
        self._watch()

    def forget(self, neighbour: Neighbour) -> None:
        """A link was removed."""
        self.pinging.forget(neighbour.node)
        self.suspicion.forget(neighbour.node)
        self._watch()

    def _watch(self) -> None:
        self._broker.timers.at(min(self.pinging.wake_at, self.suspicion.wake_at), self._wake)

    def _wake(self, now: float) -> None:
        for ping in self.pinging.wake(now):
            neighbour = self._neighbours.get(ping.neighbour)
            if neighbour is not None and neighbour.link is not None:
                neighbour.link.connection.ping(ping.number)
                neighbour.link.flush()
        self._carry_out(self.suspicion.wake(now))
        self._watch()

    def _carry_out(self, effects: list[SuspicionEffect]) -> None:
        for effect in effects:
            neighbour = self._neighbours.get(effect.neighbour)
            if neighbour is None:
                continue
            about = {"name": neighbour.name, "node": neighbour.node, "silent_s": round(effect.silent_s, 2)}
            match effect:
                case Suspect(is_cut=is_cut):
                    if not is_cut:
                        self._broker.count("neighbours_suspected")
                        self._log("warning", "a neighbour is silent: asking others", **about)
                    self._ask(neighbour)
                case Trust():
                    self._broker.count("neighbours_slow")
                    self._log("warning", "a neighbour was slow, and is heard again", **about)
                case Lose(cause=cause):
                    self._broker.count("neighbours_dead", reason=cause)
                    self._log("warning", "a neighbour is dead to this node", cause=cause, **about)
                    self._part(neighbour)

    def _part(self, neighbour: Neighbour) -> None:
        link = neighbour.link
        if link is not None:
            self.dying = neighbour
            self._linking.part(neighbour)
            self.dying = None
            link.hang_up()
            self.suspicion.forget(neighbour.node)
        self.on_lost(neighbour)

    # Asking others

    def _ask(self, neighbour: Neighbour) -> None:
        """Ask others that have links with a neighbour since when they have heard nothing of it."""
        about = neighbour.node
        paths = self._paths(about)
        self.suspicion.asked(about, len(paths))
        for path in paths:
            reply = self._send(HeardRequest(about, path))
            reply.then(partial(self._answered, about), lambda _error: self._answered(about, None))

    def _answered(self, about: str, silent_s: float | None) -> None:
        self._carry_out(self.suspicion.answered(about, silent_s, self._broker.now))
        self._watch()

    def _paths(self, about: str) -> list[tuple[str, ...]]:
        """Return ways to the nearest nodes that say they have a link with a node, and not through that."""
        records = {record.node: record for record in self._topology.records}
        if about not in records:
            return []
        beside = {link.neighbour for link in records[about].links} - {self._broker.node}
        silent = {about, *self.suspicion.suspected}
        first = [one.node for one in self._neighbours if one.is_up and one.node not in silent]
        found = paths_over(records, self._broker.node, first, about)
        return list(islice((path for path in found if path[-1] in beside), ASKED_MAX))

    def _send(self, request: HeardRequest) -> Deferred[float | None]:
        """Send a question to the first node on its way; the reply is that of the last one."""
        next_one = self._neighbours.get(request.path[0])
        if next_one is None or not next_one.is_up:
            return failed(Refused("no-way", f"there is no link to {request.path[0]!r}"))

        def answered(found: Any) -> float | None:
            silent_s = found.get("silent_s") if isinstance(found, dict) else None
            return float(silent_s) if isinstance(silent_s, int | float) and silent_s >= 0 else None

        asked = next_one.send("link.heard", {"about": request.about, "path": request.path[1:]})
        return asked.map(answered)

    def heard(self, request: HeardRequest) -> Deferred[dict[str, Any]]:
        """Answer, or pass on, the question of another node: how long a neighbour of this one was silent."""
        if not request.path:
            return resolved({"silent_s": self.suspicion.silent_s(request.about, self._broker.now)})
        if self._forwarded >= FORWARDED_MAX:
            raise Refused("limit", f"{FORWARDED_MAX} questions were passed on in the last second")
        reply = self._send(request).map(lambda silent_s: {"silent_s": silent_s})

        def end(_now: float) -> None:
            self._forwarded -= 1
            reply.fail(Refused("timeout", "no answer"))

        self._forwarded += 1
        self._broker.timers.at(self._broker.now + ASK_S, end)
        return reply


def paths_over(
    records: Mapping[str, NodeRecord], own: str, first: Iterable[str], avoided: str
) -> Iterator[tuple[str, ...]]:
    """Yield a shortest way to each node within HOPS_MAX links that are up, the nearest nodes first.

    Ways begin with one of the nodes in `first`, and none goes through the avoided one.
    """
    paths: list[tuple[str, ...]] = [(node,) for node in first]
    met = {own, avoided, *(path[0] for path in paths)}
    for _ in range(HOPS_MAX):
        further: list[tuple[str, ...]] = []
        for path in paths:
            yield path
            record = records.get(path[-1])
            for link in () if record is None else record.links:
                if link.is_up and not link.lost and link.neighbour not in met:
                    met.add(link.neighbour)
                    further.append((*path, link.neighbour))
        paths = further

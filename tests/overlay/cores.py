"""Network of topology cores: connections that keep their order and lose what is under way when cut.

Messages pass through their bytes, as over a wire, unless there are very many nodes. Everything is decided by
one random generator, so a seed repeats a run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from random import Random
from typing import Any

import msgspec

from tidings.overlay.records import Digest, NodeRecord, Stamp, Stamps
from tidings.overlay.topology import Topology
from tidings.overlay.topology_effects import (
    Effect,
    IdentityClash,
    SendDigest,
    SendOwn,
    SendRecords,
    SendStamps,
    StoreAdjacency,
    TakeEpoch,
)
from tidings.overlay.tree import Edge, Tree

START_US = 1_700_000_000_000_000
Message = Stamp | Digest | Stamps | list[NodeRecord]


class Network:
    def __init__(self, seed: int, as_bytes: bool = True) -> None:
        self.random = Random(seed)
        self.cores: dict[str, Topology] = {}
        self.stored: dict[str, NodeRecord] = {}
        self.now = 0.0
        self.sent: list[tuple[str, str, Message]] = []
        self.reported: list[tuple[str, Effect]] = []
        self._as_bytes = as_bytes
        self._channels: dict[tuple[str, str], deque[Message]] = {}  # of each direction of a connection

    @property
    def wall_us(self) -> int:
        return START_US + int(self.now * 1e6)

    # Nodes and links

    def start(self, node: str, name: str = "", leaf: bool = False, epoch: int | None = None) -> Topology:
        known = [self.stored[node]] if node in self.stored else []
        epoch = self.wall_us if epoch is None else epoch
        core = self.cores[node] = Topology(node, name or node, epoch, leaf, known)
        return core

    def stop(self, node: str) -> None:
        """Kill a node: its neighbours lose their connections."""
        for one, other in [ends for ends in self._channels if ends[0] == node]:
            self.cut(one, other)
        del self.cores[node]

    def connect(self, one: str, other: str, skew_us: int = 0, greets: bool | None = None) -> None:
        """Connect two nodes, also in place of a connection of which they do not know that it is cut.

        `greets`: whether their greetings have digests; by default some have, and hear of others meanwhile.
        """
        near, far = self.cores[one].comparing.digest(other), self.cores[other].comparing.digest(one)
        self._channels.pop((one, other), None)
        self._channels.pop((other, one), None)
        for _ in range(self.random.choice((0, 0, 1, 2)) if greets is None else 0):
            self.step()
        if not (self.random.random() < 0.7 if greets is None else greets):
            near = far = b""
        self._channels[one, other], self._channels[other, one] = deque(), deque()
        self.do(one, self.cores[one].link_up(other, self.wall_us + skew_us, self.now, far))
        self.do(other, self.cores[other].link_up(one, self.wall_us, self.now, near))

    def attach(self, one: str, other: str) -> None:
        """Connect two nodes that know all records already: what they would send is dropped."""
        self._channels[one, other], self._channels[other, one] = deque(), deque()
        self.cores[one].link_up(other, self.wall_us, self.now)
        self.cores[other].link_up(one, self.wall_us, self.now)

    def cut(self, one: str, other: str, is_noticed: bool = True) -> None:
        """Cut a connection: what is under way is lost."""
        for near, far in ((one, other), (other, one)):
            if self._channels.pop((near, far), None) is not None and is_noticed:
                self.do(near, self.cores[near].link_down(far, self.now))

    def remove(self, one: str, other: str) -> None:
        for near, far in ((one, other), (other, one)):
            self.do(near, self.cores[near].link_removed(far, self.now))
        self._channels.pop((one, other), None)
        self._channels.pop((other, one), None)

    def is_connected(self, one: str, other: str) -> bool:
        return (one, other) in self._channels

    # Messages

    def do(self, node: str, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendRecords):
                self._send(node, effect.neighbour, list(effect.records))
            elif isinstance(effect, SendOwn):
                self._send(node, effect.neighbour, effect.stamp)
            elif isinstance(effect, SendDigest):
                self._send(node, effect.neighbour, effect.digest)
            elif isinstance(effect, SendStamps):
                self._send(node, effect.neighbour, effect.stamps)
            elif isinstance(effect, StoreAdjacency):
                self.stored[node] = effect.record
            elif isinstance(effect, IdentityClash | TakeEpoch):
                self.reported.append((node, effect))

    def _send(self, node: str, neighbour: str, message: Message) -> None:
        channel = self._channels.get((node, neighbour))
        if channel is None:
            return
        self.sent.append((node, neighbour, message))
        last = channel[-1] if channel else None
        if isinstance(last, list) and isinstance(message, list):
            last += message  # as a node sends all records of a tick in one frame
        else:
            channel.append(list(message) if isinstance(message, list) else message)

    def deliver(self, one: str, other: str) -> None:
        """Deliver the next message of a connection, perhaps twice."""
        message: Any = self._channels[one, other].popleft()
        if self._as_bytes:
            shapes: dict[Any, Any] = {list: list[NodeRecord], tuple: Stamp}
            shape = shapes.get(type(message), type(message))
            message = msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=shape)
        core = self.cores[other]
        if isinstance(message, tuple):
            self.do(other, core.comparing.hear_own(one, message, self.now))
        elif isinstance(message, Digest):
            self.do(other, core.comparing.hear_digest(one, message, self.now))
        elif isinstance(message, Stamps):
            self.do(other, core.comparing.hear_stamps(one, message))
        else:
            for _ in range(1 + (self._as_bytes and self.random.random() < 0.1)):
                self.do(other, core.hear(one, message, self.now))

    def step(self) -> bool:
        """Deliver a message of any connection; return whether there was one."""
        waiting = [ends for ends, channel in self._channels.items() if channel]
        if waiting:
            self.deliver(*self.random.choice(waiting))
        return bool(waiting)

    def settle(self, for_s: float = 10.0) -> None:
        """Deliver everything, and let time pass, in jumps to the next moment at which a core is woken."""
        end = self.now + for_s
        while True:
            while waiting := [ends for ends, channel in self._channels.items() if channel]:
                self.random.shuffle(waiting)
                for ends in waiting:
                    if self._channels[ends]:
                        self.deliver(*ends)
            moment = min(core.wake_at for core in self.cores.values())
            if moment > end:
                self.now = end
                return
            self.now = max(self.now, moment)
            for node, core in self.cores.items():
                if core.wake_at <= self.now:
                    self.do(node, core.wake(self.now))

    # What must hold

    def trees(self) -> dict[frozenset[str], set[frozenset[Edge]]]:
        """The trees that the nodes of each part have computed."""
        found: dict[frozenset[str], set[frozenset[Edge]]] = {}
        for core in self.cores.values():
            tree: Tree = core.tree
            found.setdefault(frozenset(tree.nodes), set()).add(tree.edges)
        return found


def oracle(edges: Iterable[Edge], leaves: Iterable[str] = ()) -> set[Edge]:
    """The minimum spanning forest by definition: an edge is in it unless lighter ones connect its ends."""
    leaves = set(leaves)
    edges = sorted(edges)
    inner = [edge for edge in edges if not leaves & set(edge[1:])]
    tree = {edge for number, edge in enumerate(inner) if not _connects(inner[:number], *edge[1:])}
    for leaf in leaves:
        own = [edge for edge in edges if leaf in edge[1:] and not leaves >= set(edge[1:])]
        tree |= set(own[:1])
    return tree


def _connects(edges: list[Edge], one: str, other: str) -> bool:
    reached = {one}
    while True:
        more = {end for _, *ends in edges if reached & set(ends) for end in ends} - reached
        if not more:
            return other in reached
        reached |= more

"""Network that carries messages of cores between neighbours: in order on each link, each after some time.

All chance comes from one seed. Messages are counted by their kinds. A node that is *silent* neither sends nor
hears, as one that has died.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import Generic, Protocol, TypeVar

M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)


class Sending(Protocol[M_co]):
    """Effect of a core: a message to a neighbour."""

    @property
    def neighbour(self) -> str:
        """To whom."""

    @property
    def message(self) -> M_co:
        """What."""


class MessageCore(Protocol[M]):
    """Core of one node."""

    @property
    def wake_at(self) -> float:
        """When `wake` is to be called; inf if nothing is due."""

    def hear(self, neighbour: str, message: M, now: float) -> Iterable[Sending[M]]:
        """Take a message."""

    def wake(self, now: float) -> Iterable[Sending[M]]:
        """Do what is due."""


class MessageNetwork(Generic[M]):
    """Cores of all nodes; `delay_s` returns how long a message takes from one node to a neighbour."""

    def __init__(
        self,
        cores: Mapping[str, MessageCore[M]],
        seed: int = 0,
        delay_s: Callable[[str, str], float] = lambda _one, _other: 0.01,
    ) -> None:
        self.cores = cores
        self.now = 0.0
        self.sent: Counter[str] = Counter()
        """Messages by the names of their kinds."""
        self.silent: set[str] = set()
        self._random = Random(seed)
        self._delay_s = delay_s
        self._number = 0
        self._under_way: list[tuple[float, int, str, str, M]] = []
        self._wake_at = inf  # at most when a core is due
        self._last: dict[tuple[str, str], float] = {}  # when the last message of a link arrives

    def do(self, node: str, sends: Iterable[Sending[M]]) -> None:
        """Send what a core wants to be sent."""
        for one in sends:
            if node not in self.silent:
                self._send(node, one.neighbour, one.message)

    def _send(self, node: str, neighbour: str, message: M) -> None:
        self.sent[type(message).__name__] += 1
        self._number += 1
        link = node, neighbour
        arrives = self.now + self._delay_s(*link) * self._random.uniform(1, 2)
        arrives = self._last[link] = max(arrives, self._last.get(link, 0.0))
        heappush(self._under_way, (arrives, self._number, node, neighbour, message))

    def step(self) -> bool:
        """Deliver the next message; return whether there was one."""
        if not self._under_way:
            return False
        self.now, _, node, neighbour, message = heappop(self._under_way)
        if neighbour not in self.silent:
            core = self.cores[neighbour]
            self.do(neighbour, core.hear(node, message, self.now))
            self._wake_at = min(self._wake_at, core.wake_at)
        return True

    def run(self, until: float = inf) -> None:
        """Deliver everything, and wake cores, until nothing is left to do or the time is over."""
        self._look()  # cores may have been told something from elsewhere
        while True:
            arrives = self._under_way[0][0] if self._under_way else inf
            at = min(arrives, self._wake_at)
            if at > until or at == inf:
                self.now = until if until < inf else self.now
                return
            if arrives <= self._wake_at:
                self.step()
            else:
                self._wake()

    def _awake(self) -> list[tuple[str, MessageCore[M]]]:
        return [(name, core) for name, core in self.cores.items() if name not in self.silent]

    def _look(self) -> None:
        self._wake_at = min((core.wake_at for _, core in self._awake()), default=inf)

    def _wake(self) -> None:
        """Wake the cores that are due."""
        self.now = max(self.now, self._wake_at)
        for name, core in self._awake():
            if core.wake_at <= self.now:
                self.do(name, core.wake(self.now))
        self._look()

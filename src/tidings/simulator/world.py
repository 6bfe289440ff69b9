"""World: one virtual clock, one network, one source of chance, and everything that lives in it.

All chance comes from `random.Random(seed)` and all order from the clock, so the same seed gives the same
world: `trace` is a digest of all notes, equal for two runs exactly if they were the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import sha256
from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING

from tidings.simulator.network import SimulatedNetwork

if TYPE_CHECKING:
    from tidings.simulator.node import SimulatedNode

NOTES_MAX = 200
"""Last notes, which are shown with a failure."""


Action = Callable[[], None]


class Clock:
    """Virtual clock, moved on by scheduled actions; of those due at the same time, the oldest runs first."""

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        self._due: list[tuple[float, int, Action]] = []
        self._scheduled = 0

    def after(self, delay_s: float, action: Action) -> None:
        """Schedule an action."""
        assert delay_s >= 0
        self._scheduled += 1
        heappush(self._due, (self.now + delay_s, self._scheduled, action))

    def run(self, until: float) -> None:
        """Run all actions that are due up to that time."""
        while self._due and self._due[0][0] <= until:
            self.now, _, action = heappop(self._due)
            self.steps += 1
            action()
        self.now = max(self.now, until)


class World:
    """World of simulated nodes and clients."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.clock = Clock()
        self.network = SimulatedNetwork(self.clock, self.random)
        self.nodes: dict[str, SimulatedNode] = {}
        self.notes: deque[str] = deque(maxlen=NOTES_MAX)
        self._digest = sha256()

    @property
    def trace(self) -> str:
        """Digest of all notes so far."""
        return self._digest.hexdigest()

    def note(self, who: str, *what: object) -> None:
        """Add a note of an occurrence to the trace."""
        line = f"{self.clock.now:.6f} {who} {' '.join(map(str, what))}"
        self.notes.append(line)
        self._digest.update(line.encode() + b"\n")

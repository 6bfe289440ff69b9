"""A world: one clock, one network, one source of chance, and everything that lives in it.

All chance comes from `random.Random(seed)` and all order from the clock, so the same seed gives the same
world: `trace` is a digest of everything that was noted, equal for two runs exactly if they were the same.
"""

from __future__ import annotations

from collections import deque
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING

from tidings.simulator.clock import Clock
from tidings.simulator.network import Network

if TYPE_CHECKING:
    from tidings.simulator.node import SimulatedNode

NOTES_MAX = 200
"""Notes that are kept to be shown."""


class World:
    """Where simulated nodes and clients live."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.clock = Clock()
        self.network = Network(self.clock, self.random)
        self.nodes: dict[str, SimulatedNode] = {}
        self.notes: deque[str] = deque(maxlen=NOTES_MAX)
        self._digest = sha256()

    @property
    def trace(self) -> str:
        """A digest of all notes so far."""
        return self._digest.hexdigest()

    def note(self, who: str, *what: object) -> None:
        """Something worth telling has happened."""
        line = f"{self.clock.now:.6f} {who} {' '.join(map(str, what))}"
        self.notes.append(line)
        self._digest.update(line.encode() + b"\n")

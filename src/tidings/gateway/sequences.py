"""Numbered readings: repeated over a link that breaks, counted once, acknowledged when they are safe.

A number is *pending* from when its readings are handed on until the node has taken them; only then is it
acknowledged, and remembered among the last WINDOW of its network. What the node refuses is forgotten, so
that the network may send it again.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from enum import Enum

WINDOW = 1_024
"""Numbers of one network that are remembered after they were acknowledged."""
PENDING_MAX = 10_000
"""Numbers of one network that may wait for the node."""
NETWORKS_MAX = 100_000
"""Networks whose numbers are remembered; the one that used none for longest is forgotten."""


class Standing(Enum):
    """What is known of a number."""

    NEW = "new"
    PENDING = "pending"
    DONE = "done"


class Sequence:
    """The numbers of one network."""

    __slots__ = ("done", "order", "pending")

    def __init__(self) -> None:
        self.pending: set[int] = set()
        self.done: set[int] = set()
        self.order: deque[int] = deque()

    def take(self, seq: int) -> Standing:
        """Readings of this number came; a new number is pending from now on, if there is room for it."""
        if seq in self.done:
            return Standing.DONE
        if seq in self.pending or len(self.pending) >= PENDING_MAX:
            return Standing.PENDING  # without room: it is repeated, since nobody acknowledges it
        self.pending.add(seq)
        return Standing.NEW

    def finish(self, seq: int) -> None:
        """The node has taken the readings."""
        self.pending.discard(seq)
        if seq in self.done:
            return
        self.done.add(seq)
        self.order.append(seq)
        if len(self.order) > WINDOW:
            self.done.discard(self.order.popleft())


class Sequences:
    """The numbers of all networks that use them."""

    def __init__(self) -> None:
        self._sequences: OrderedDict[str, Sequence] = OrderedDict()

    def take(self, sensing_id: str, seq: int) -> Standing:
        """Readings of this number came."""
        sequence = self._sequences.get(sensing_id)
        if sequence is None:
            sequence = self._sequences[sensing_id] = Sequence()
            if len(self._sequences) > NETWORKS_MAX:
                self._sequences.popitem(last=False)
        self._sequences.move_to_end(sensing_id)
        return sequence.take(seq)

    def finish(self, sensing_id: str, seq: int) -> None:
        """The node has taken the readings of this number."""
        if sensing_id in self._sequences:
            self._sequences[sensing_id].finish(seq)

    def forget(self, sensing_id: str, seq: int) -> None:
        """The node has not taken them: they may come again."""
        if sensing_id in self._sequences:
            self._sequences[sensing_id].pending.discard(seq)

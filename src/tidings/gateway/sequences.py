"""Numbered readings: repeated over a link that breaks, counted once, acknowledged when they are safe.

A number is *pending* from when its readings are handed on until the node has taken them; only then is it
acknowledged, and remembered among the last WINDOW of its network: those, as a network may begin anew with its
numbers. What the node refuses is forgotten, so that the network may send it again.
"""

from __future__ import annotations

from enum import Enum

from tidings.event.values import INT_MIN
from tidings.seen import SeenNumbers

WINDOW = 1_024
"""Numbers of one network that are remembered after they were acknowledged, at least: up to twice as many."""
PENDING_MAX = 10_000
"""Numbers of one network that may wait for the node."""
NETWORKS_MAX = 100_000
"""Networks whose numbers are remembered; the one that used none for longest is forgotten."""

_BELOW = INT_MIN - 1


class Standing(Enum):
    """What is known of a number."""

    NEW = "new"
    PENDING = "pending"
    DONE = "done"


class Sequence:
    """The numbers of one network: those done last, and the WINDOW before them."""

    __slots__ = ("before", "count", "done", "pending")

    def __init__(self) -> None:
        self.pending: set[int] = set()
        self.done, self.before = SeenNumbers(_BELOW), SeenNumbers(_BELOW)
        self.count = 0  # of those done last

    def take(self, seq: int) -> Standing:
        """Readings of this number came; a new number is pending from now on, if there is room for it."""
        if seq in self.done or seq in self.before:
            return Standing.DONE
        if seq in self.pending or len(self.pending) >= PENDING_MAX:
            return Standing.PENDING  # without room: it is repeated, since nobody acknowledges it
        self.pending.add(seq)
        return Standing.NEW

    def finish(self, seq: int) -> None:
        """The node has taken the readings."""
        self.pending.discard(seq)
        if self.count == WINDOW:
            self.done, self.before = SeenNumbers(_BELOW), self.done
            self.count = 0
        self.count += self.done.add(seq)

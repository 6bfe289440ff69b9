"""Logical clocks: order without time.

A Lamport clock gives every step a number larger than that of whatever led to it. A vector clock counts the
steps of every node it has heard of, and so also shows when neither of two steps led to the other.
(Lamport 1978; Mattern 1989.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

Order = Literal["before", "after", "equal", "concurrent"]


class LamportClock:
    """Numbers that grow along every chain of cause and effect."""

    def __init__(self, time: int = 0) -> None:
        self.time = time

    def tick(self) -> int:
        """Return the number of a step taken here, such as sending."""
        self.time += 1
        return self.time

    def observe(self, time: int) -> int:
        """Return the number of the step of receiving something that was sent at `time`."""
        self.time = max(self.time, time) + 1
        return self.time


class VectorClock:
    """Number of earlier steps of each node; immutable, so it can be shared and be a key."""

    __slots__ = ("_counts", "_hash")

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        given = counts or {}
        if any(type(count) is not int or count < 0 for count in given.values()):
            raise ValueError("a vector clock counts from 0 on")
        # A node that has taken no step equals one never heard of.
        self._counts = {node: count for node, count in given.items() if count}
        self._hash: int | None = None

    def tick(self, node: str) -> VectorClock:
        """Return the clock after one more step of `node`."""
        return VectorClock({**self._counts, node: self[node] + 1})

    def merge(self, other: VectorClock) -> VectorClock:
        """Return the earliest clock that is not before either."""
        counts = dict(self._counts)
        for node, count in other._counts.items():
            counts[node] = max(count, counts.get(node, 0))
        return VectorClock(counts)

    def compare(self, other: VectorClock) -> Order:
        """Compare with `other`: 'before' when everything it counts, `other` counts too."""
        below, above = self <= other, other <= self
        if below and above:
            return "equal"
        if below:
            return "before"
        return "after" if above else "concurrent"

    def to_dict(self) -> dict[str, int]:
        """Return the counts, for the wire; `VectorClock(counts)` reads them."""
        return dict(self._counts)

    def __getitem__(self, node: str) -> int:
        return self._counts.get(node, 0)

    def __iter__(self) -> Iterator[str]:
        return iter(self._counts)

    def __le__(self, other: object) -> bool:
        if not isinstance(other, VectorClock):
            return NotImplemented
        return all(count <= other[node] for node, count in self._counts.items())

    def __lt__(self, other: VectorClock) -> bool:
        return self.compare(other) == "before"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VectorClock) and self._counts == other._counts

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._counts.items()))
        return self._hash

    def __repr__(self) -> str:
        return f"VectorClock({self._counts!r})"

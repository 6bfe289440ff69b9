"""Displacement: which of the things in a bounded place go for a better one.

A thing has a rank, and the lowest goes first. Nothing goes for one whose rank is lower than its own. It
knows ranks only; the owner has the things, and their sizes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

Rank = TypeVar("Rank", bound=tuple[Any, ...])


class RoomLimits(NamedTuple):
    """Limits in things, in bytes, both or none."""

    count_max: int | None
    bytes_max: int | None

    def fit(self, count: int, size: int) -> bool:
        """Whether so many things of so many bytes are within them."""
        return (self.count_max is None or count <= self.count_max) and (
            self.bytes_max is None or size <= self.bytes_max
        )


class DisplacementOrder(Generic[Rank]):
    """Ranks in order, each once."""

    def __init__(self) -> None:
        self._ranks: list[Rank] = []

    def __len__(self) -> int:
        return len(self._ranks)

    def __iter__(self) -> Iterator[Rank]:
        return iter(self._ranks)

    def add(self, rank: Rank) -> None:
        """Add the rank of a thing that has come."""
        insort(self._ranks, rank)

    def remove(self, rank: Rank) -> None:
        """Remove the rank of a thing that is gone."""
        del self._ranks[bisect_left(self._ranks, rank)]

    def displaced(
        self, own: Rank, count: int, size: int, limits: RoomLimits, size_of: Callable[[Rank], int | None]
    ) -> list[Rank] | None:
        """Return what must go for a thing, with which there are so many; None if a better one would have to.

        `size_of` returns the bytes of a thing, None if it can't go now.
        """
        gone: list[Rank] = []
        for rank in self._ranks:
            if limits.fit(count, size) or rank > own:
                break
            freed = size_of(rank)
            if freed is not None:
                gone.append(rank)
                count, size = count - 1, size - freed
        return gone if limits.fit(count, size) else None

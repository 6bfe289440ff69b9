"""Numbers for things that come and go: each thing in use has one, and numbers no longer in use return.

A number stays with its thing until `collect` is called, even when nobody counts on it any more; so a thing
that comes back soon finds its number again, and collecting is worth its cost only when much is unused.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from typing import Generic, TypeVar

UNUSED_MIN = 256
"""Unused numbers that are not worth collecting."""

Thing = TypeVar("Thing", bound=Hashable)


class Counted(Generic[Thing]):
    """Things with small numbers, and how often each is in use."""

    def __init__(self) -> None:
        self.numbers: dict[Thing, int] = {}
        self.uses = array("q")
        self.fresh: list[Thing] = []  # numbered since their owner last looked
        self.used = 0  # things that are in use at all
        self._free: list[int] = []

    def number(self, thing: Thing) -> int:
        """The number of a thing, given now if it has none; `use` says how often it counts."""
        known = self.numbers.get(thing)
        if known is not None:
            return known
        if self._free:
            new = self._free.pop()
        else:
            new = len(self.uses)
            self.uses.append(0)
        self.numbers[thing] = new
        self.fresh.append(thing)
        return new

    @property
    def size(self) -> int:
        """One more than the highest number ever given."""
        return len(self.uses)

    @property
    def is_wasteful(self) -> bool:
        """Whether more than half of the things are unused, and not just a few."""
        unused = len(self.numbers) - self.used
        return unused > UNUSED_MIN and 2 * unused > len(self.numbers)

    def collect(self) -> list[int]:
        """Forget the things that are not in use; their numbers may be given again."""
        gone = [thing for thing, number in self.numbers.items() if not self.uses[number]]
        freed = [self.numbers.pop(thing) for thing in gone]
        self._free += freed
        return freed

    def use(self, number: int, times: int) -> None:
        """Count a number as used so many times more, or less if negative."""
        before = self.uses[number]
        after = before + times
        assert after >= 0
        self.uses[number] = after
        self.used += (after > 0) - (before > 0)

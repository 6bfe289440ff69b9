"""A timer wheel: very many things that are due at their times, for the price of a list.

Time goes round in slots of one tick. What is due later than one round has to wait until its round has come.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Wheel(Generic[T]):
    """Things by when they are due; times are in seconds, and never go back."""

    def __init__(self, now: float, tick_s: float = 0.01, slots: int = 1_024) -> None:
        self._tick_s = tick_s
        self._start = now
        self._slots: list[list[tuple[int, T]]] = [[] for _ in range(slots)]
        self._tick = 0  # all up to this one have been taken
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, at: float, thing: T) -> None:
        """Have a thing come out at a time, or with the next tick if that has passed."""
        tick = max(int((at - self._start) / self._tick_s) + 1, self._tick + 1)
        self._slots[tick % len(self._slots)].append((tick, thing))
        self._count += 1

    def due(self, now: float) -> list[T]:
        """Take out what is due, in the order of the ticks."""
        last = int((now - self._start) / self._tick_s)
        found: list[T] = []
        while self._tick < last:
            self._tick += 1
            self._turn(found)
        return found

    def _turn(self, found: list[T]) -> None:
        place = self._tick % len(self._slots)
        slot = self._slots[place]
        if not slot:
            return
        later = [entry for entry in slot if entry[0] != self._tick]
        found.extend(thing for tick, thing in slot if tick == self._tick)
        self._count -= len(slot) - len(later)
        self._slots[place] = later

    def wait_s(self, now: float) -> float:
        """How long until the next tick."""
        return max(0.0, self._start + (self._tick + 1) * self._tick_s - now)

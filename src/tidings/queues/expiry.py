"""When messages expire: those that have a ttl, in a queue that uses it, by the moment at which it is over.

Moments are of the clock that never jumps: a wall clock that is set while a message is here neither shortens
its life nor prolongs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from math import inf

from tidings.queues.message import Message, sight

TIDY_AFTER = 1_000
"""Moments that hold no more, and as many as there are others, before they are swept out."""

_OVER = -inf
"""The moment of a message that was told by `due`, and is still in someone's hands."""


class Expiry:
    """The moments at which messages of one queue expire; `is_used` says whether they do at all."""

    def __init__(self, is_used: bool) -> None:
        self._is_used = is_used
        self._heap: list[tuple[float, int]] = []
        self._at: dict[int, float] = {}  # of each message, the moment that holds: it may have been prolonged

    def ttl_s(self, message: Message) -> float:
        """How long it may be here; inf if for ever."""
        if not self._is_used:
            return inf
        ttl_s = sight(message).ttl_s
        return inf if ttl_s is None else ttl_s

    def note(self, number: int, at: float) -> None:
        """Have a message told by `due` when its time is over, which is at this moment."""
        if self._at.get(number) != at:
            self._at[number] = at
            heappush(self._heap, (at, number))
            if len(self._heap) > 2 * len(self._at) + TIDY_AFTER:
                self._heap = [(moment, one) for one, moment in self._at.items() if moment != _OVER]
                heapify(self._heap)

    def at(self, number: int) -> float:
        """The moment from which on nobody may have a message."""
        return self._at.get(number, inf)

    def forget(self, number: int) -> None:
        """The message is gone."""
        self._at.pop(number, None)

    def is_over(self, number: int, now: float) -> bool:
        """Whether the time of a message is over."""
        return self._at.get(number, inf) <= now

    @property
    def next_at(self) -> float:
        """When there may be something due."""
        return self._heap[0][0] if self._heap else inf

    def due(self, now: float, most: int) -> Iterator[int]:
        """The numbers of messages whose time is over, each once; they may be in someone's hands.

        At most so many moments are looked at; `next_at` says whether that were all.
        """
        for _ in range(most):
            if not self._heap or self._heap[0][0] > now:
                return
            at, number = heappop(self._heap)
            if self._at.get(number) == at:
                self._at[number] = _OVER
                yield number

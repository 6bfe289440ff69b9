"""When messages expire: those that have a ttl, in a queue that uses it, by the moment at which it is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from math import inf

from tidings.queues.message import Message, sight

TIDY_AFTER = 1_000
"""Messages that may have gone by themselves, and as many as there are others, before they are swept out."""


class Expiry:
    """The moments at which messages of one queue expire; `is_used` says whether they do at all."""

    def __init__(self, is_used: bool) -> None:
        self._is_used = is_used
        self._heap: list[tuple[float, int]] = []

    def expires_at(self, message: Message) -> float:
        """The moment from which on nobody may have it."""
        if not self._is_used:
            return inf
        ttl_s = sight(message).ttl_s
        return inf if ttl_s is None else message.number / 1e6 + ttl_s

    def note(self, message: Message) -> float:
        """Have it told by `due` when its time is over; that moment."""
        at = self.expires_at(message)
        if at < inf:
            heappush(self._heap, (at, message.number))
        return at

    @property
    def next_at(self) -> float:
        """When there may be something due."""
        return self._heap[0][0] if self._heap else inf

    def due(self, now: float) -> Iterator[int]:
        """The numbers of the messages whose time may be over; some are gone, or have had it prolonged."""
        while self._heap and self._heap[0][0] <= now:
            yield heappop(self._heap)[1]

    def tidy(self, size: int, is_there: Callable[[int], bool]) -> None:
        """Forget messages that have gone, once they are many for a queue of so many messages."""
        if len(self._heap) > 2 * size + TIDY_AFTER:
            self._heap = [one for one in self._heap if is_there(one[1])]
            heapify(self._heap)

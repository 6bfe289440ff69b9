"""When messages expire: those that have a ttl, in a queue that uses it, by the moment at which it is over.

Moments are of the clock that never jumps: a wall clock that is set while a message is here neither shortens
its life nor prolongs it. A message that was due, and is still in someone's hands, is over until it is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from tidings.queues.message import Message, sight
from tidings.timers import Timers


class Expiry(Timers[int]):
    """The numbers of one queue's messages that expire; `is_used` says whether they do at all."""

    __slots__ = ("_is_used", "_over")

    def __init__(self, is_used: bool) -> None:
        super().__init__()
        self._is_used = is_used
        self._over: set[int] = set()

    def ttl_s(self, message: Message) -> float:
        """How long it may be here; inf if for ever."""
        if not self._is_used:
            return inf
        ttl_s = sight(message).ttl_s
        return inf if ttl_s is None else ttl_s

    def moment(self, key: int) -> float:
        """The moment from which on nobody may have a message."""
        return -inf if key in self._over else super().moment(key)

    def cancel(self, key: int | None) -> None:
        """The message is gone, or has another moment."""
        self._over.discard(key)
        super().cancel(key)

    def due(self, now: float, most: float = inf) -> Iterator[int]:
        """The numbers of messages whose time is over, each once; they may be in someone's hands."""
        for number in super().due(now, most):
            self._over.add(number)
            yield number

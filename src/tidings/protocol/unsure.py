"""Events whose sender does not know whether the node has them: sent again, they keep their numbers.

A put or publication that was sent and not answered in time stays in the numbered stream, so the node does it
once if it can be reached again. The usual retry loop sends the same event again meanwhile; then the caller
waits for the item that is under way, and there is no second one.

An event is recognised as the object that it is, together with the place that it was sent to: a queue, or the
exchange (a queue without a name), and a transaction. Events can't be referred to weakly, so they are kept
here, and the oldest are forgotten beyond the limits below.
"""

from __future__ import annotations

from msgspec import Struct

from tidings.event import Event

UNSURE_MAX = 65_536
"""Events that are remembered; beyond that the oldest are forgotten, and have a new number when sent again."""
UNSURE_SIZE_MAX = 8 << 20
"""Bytes of the bodies of these events, about as many as the send buffer holds."""

Key = tuple[int, str, int]


class _Unsure(Struct, gc=False):
    event: Event  # kept, so that no other event has its identity
    counters: list[int]
    size: int


class UnsureEvents:
    """Events that may have been accepted, each with the counters under which it was sent."""

    def __init__(self) -> None:
        self.known: dict[Key, _Unsure] = {}
        """The events; empty unless a call has failed. Callers test that first, as it costs nothing."""
        self._size = 0

    def add(self, event: Event, queue: str, transaction: int, counter: int) -> None:
        """Remember under which counter an event was sent to a place."""
        key = id(event), queue, transaction
        known = self.known.get(key)
        if known is None:
            size = len(event.body or b"")
            known = self.known[key] = _Unsure(event, [], size)
            self._size += size
        known.counters.append(counter)
        while len(self.known) > UNSURE_MAX or (self._size > UNSURE_SIZE_MAX and len(self.known) > 1):
            self._forget(next(iter(self.known)))

    def take(self, event: Event, queue: str, transaction: int) -> int:
        """Return the counter of an event that is sent again, and forget it; 0 if it is not known."""
        key = id(event), queue, transaction
        known = self.known.get(key)
        if known is None:
            return 0
        counter = known.counters.pop(0)
        if not known.counters:
            self._forget(key)
        return counter

    def _forget(self, key: Key) -> None:
        self._size -= self.known.pop(key).size

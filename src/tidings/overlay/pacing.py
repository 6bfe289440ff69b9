"""Pace of changes: those of each node are taken at most so often; of those that wait the newest is kept.

A node whose links flap, or two programs that use one identity, would else make every node of the overlay work
at the rate of their changes. The first change of a quiet node is taken at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidings.overlay.records import NodeRecord, is_newer
from tidings.queues.schedule import TokenBucket
from tidings.timers import Timers

CHANGES_A_SECOND_MAX = 10
"""Changes of one node's record that are taken and passed on in a second."""


class Pacing:
    """Changes of all nodes, each with the neighbour that it came from."""

    def __init__(self) -> None:
        self.merged = 0
        """Changes that were replaced by newer ones before they were taken."""
        self._buckets: dict[str, TokenBucket] = {}
        self._waiting: dict[str, tuple[NodeRecord, str]] = {}
        self._timers: Timers[str] = Timers()

    @property
    def wake_at(self) -> float:
        """When a change that waits may be taken; inf if none does."""
        return self._timers.wake_at

    def admit(self, record: NodeRecord, source: str, now: float) -> bool:
        """Whether a change may be taken now; else it waits, or the newer one that waits already does."""
        node = record.node
        bucket = self._buckets.get(node)
        if bucket is None:
            bucket = self._buckets[node] = TokenBucket(CHANGES_A_SECOND_MAX, now)
        waits = self._waiting.get(node)
        if waits is None and bucket.available(now):
            bucket.take()
            return True
        if waits is None:
            self._timers.at(bucket.wake_at, node)
        else:
            self.merged += 1
        if waits is None or is_newer(record, waits[0]):
            self._waiting[node] = record, source
        return False

    def due(self, now: float) -> Iterator[tuple[NodeRecord, str]]:
        """Take out the changes whose time has come, each with its source."""
        for node in list(self._timers.due(now)):
            self._buckets[node].available(now)
            self._buckets[node].take()
            yield self._waiting.pop(node)

    def forget(self, node: str) -> None:
        """Forget a node and its change that waits."""
        self._timers.cancel(node)
        self._waiting.pop(node, None)
        self._buckets.pop(node, None)

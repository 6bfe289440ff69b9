"""Buffer of a host: the replicas that it carries, for itself and for others.

A full buffer displaces: non-persistent messages go first, then those of low priority, then the oldest. A
message that would itself be the first to go is refused. A buffer has a limit in messages, in bytes, both or
none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import inf

from tidings.adhoc.messages import MessageId, Replica
from tidings.queues.displacing import DisplacementOrder, RoomLimits
from tidings.timers import Timers

Rank = tuple[bool, int, int, MessageId]


def rank(replica: Replica) -> Rank:
    """Return the place of a replica among those that are displaced: the lowest goes first."""
    message = replica.message
    return message.persistent, message.priority, replica.arrival, message.id


class ReplicaBuffer:
    """Replicas by id; `messages_max` and `bytes_max` are its limits, None for none."""

    def __init__(self, messages_max: int | None = None, bytes_max: int | None = None) -> None:
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.size = 0  # bytes
        self.sizes: Counter[str] = Counter()  # bytes by sender
        self._replicas: dict[MessageId, Replica] = {}
        self._order: DisplacementOrder[Rank] = DisplacementOrder()
        self._expiry: Timers[MessageId] = Timers()
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._replicas)

    def __contains__(self, id: MessageId) -> bool:
        return id in self._replicas

    def __iter__(self) -> Iterator[Replica]:
        return iter(list(self._replicas.values()))

    def get(self, id: MessageId) -> Replica | None:
        """The replica of a message, None if it is not here."""
        return self._replicas.get(id)

    def raw_of(self, replica: Replica) -> bytes:
        """Return the bytes of a replica's message."""
        return replica.message.raw

    @property
    def ids(self) -> tuple[MessageId, ...]:
        """The ids of all, oldest first."""
        return tuple(self._replicas)

    @property
    def held(self) -> int:
        """Bytes that count against the limit."""
        return self.size

    @property
    def free(self) -> float:
        """The share of it that is free, from 0 to 1."""
        shares = [1.0]
        if self.bytes_max is not None:
            shares.append(1 - self.size / self.bytes_max if self.bytes_max else 0.0)
        if self.messages_max is not None:
            shares.append(1 - len(self._replicas) / self.messages_max if self.messages_max else 0.0)
        return min(shares)

    @property
    def room(self) -> tuple[float, float]:
        """How many messages, and how many bytes, it may take before it displaces; inf without a limit."""
        messages = inf if self.messages_max is None else max(0, self.messages_max - len(self._replicas))
        return messages, inf if self.bytes_max is None else max(0, self.bytes_max - self.held)

    @property
    def wake_at(self) -> float:
        """When the next one may expire."""
        return self._expiry.wake_at

    def put(self, replica: Replica) -> list[Replica] | None:
        """Take a replica in; those that it displaces, or None if it is refused and nothing has changed."""
        assert replica.id not in self._replicas
        replica.arrival = self._arrivals + 1
        limits = RoomLimits(self.messages_max, self.bytes_max)
        count, size = len(self._replicas) + 1, self.size + replica.size
        ranks = self._order.displaced(
            rank(replica), count, size, limits, lambda one: self._replicas[one[-1]].size
        )
        if ranks is None:
            return None
        displaced = [self._replicas[one[-1]] for one in ranks]
        for gone in displaced:
            self.remove(gone.id)
        self._order.add(rank(replica))
        self._add(replica)
        return displaced

    def _add(self, replica: Replica) -> None:
        self._arrivals += 1
        self._replicas[replica.id] = replica
        self.size += replica.size
        self.sizes[replica.id.system] += replica.size
        self._expiry.at(replica.expires_at, replica.id)

    def remove(self, id: MessageId) -> Replica | None:
        """Take a replica out; None if it is not here."""
        replica = self._forget(id)
        if replica is not None:
            self._order.remove(rank(replica))
        return replica

    def _forget(self, id: MessageId) -> Replica | None:
        replica = self._replicas.pop(id, None)
        if replica is not None:
            self.size -= replica.size
            self.sizes[replica.id.system] -= replica.size
            if self.sizes[replica.id.system] <= 0:
                del self.sizes[replica.id.system]
            self._expiry.cancel(id)
        return replica

    def expired(self, now: float) -> Iterator[Replica]:
        """Take out the replicas whose life is over."""
        for id in self._expiry.due(now):
            replica = self.remove(id)
            assert replica is not None
            yield replica

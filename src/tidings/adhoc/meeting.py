"""State of one meeting: what the other host has, and which copies are still to be offered to it, the best
first.

The best is a message for the host that is met; then persistent ones, higher priorities and the oldest. So two
hosts that are together for a moment exchange what matters most. Each message goes to the other host at most
once in a meeting.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from heapq import heappop, heappush

from tidings.adhoc.messages import MessageId, Replica

HAS_MAX = 500_000
"""Messages of which it is known in one meeting that the other host has them."""

_Place = tuple[bool, bool, int, int, MessageId]


def urgency(replica: Replica) -> tuple[bool, int, int, MessageId]:
    """Return the place of a replica among those for the same host: the lowest goes first."""
    message = replica.message
    return not message.persistent, -message.priority, replica.arrival, message.id


class Meeting:
    """Meeting with one host."""

    def __init__(self, peer: str, is_first: bool, is_new: bool, context: dict[str, float]) -> None:
        self.peer = peer
        self.is_first = is_first  # whether this host has begun it
        self.is_new = is_new  # whether the two have been apart before
        self.context = context  # of this host, as it was when the two met
        self.has: set[MessageId] = set()  # what the other host has, or does not want
        self.begun: dict[MessageId, int] = {}  # bytes that it has of messages of which it lacks the rest
        self.is_open = False  # whether copies may be sent
        self.acknowledged_to = 0  # number in the ring up to which it was sent acknowledgements
        self.is_confirmed = False  # whether it has these
        self.offered: tuple[MessageId, ...] = ()  # ids of the first step
        self.tried: set[MessageId] = set()  # of which a copy was begun to be sent
        self.copies: dict[MessageId, int] = {}  # of copies whose receipt has not come
        self.bytes_received = self.bytes_sent = 0  # of messages
        self.salt = b""  # of hashes, if the two do not list their ids
        self.hashes: dict[int, MessageId] = {}  # of what was offered
        self.symbols = b""  # that have come
        self.asked = 0  # how often for symbols
        self._candidates: list[_Place] = []

    def learn(self, ids: Collection[MessageId]) -> bool:
        """Note what the other host has; False if it says more than anybody can carry."""
        if len(self.has) + len(ids) > HAS_MAX:
            return False
        self.has.update(ids)
        return True

    def offer(self, replicas: Iterable[Replica]) -> None:
        """Consider replicas for this host, unless it has them, or has sent them."""
        for replica in replicas:
            id = replica.message.id
            if id not in self.has and id.system != self.peer:
                heappush(self._candidates, self._place(replica))

    def _place(self, replica: Replica) -> _Place:
        return self.peer not in replica.pending, *urgency(replica)

    def next(self) -> MessageId | None:
        """Take out the best candidate that the other host lacks."""
        while self._candidates:
            id = heappop(self._candidates)[-1]
            if id not in self.has:
                return id
        return None

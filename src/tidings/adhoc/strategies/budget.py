"""A budget of copies, from the wanted reliability and the meetings seen; purged by acknowledgements.

If a host meets a given other one at a rate of λ, then a message with L carriers is delivered within T seconds
with the probability 1 − exp(−λ L T). So the sender gives a message as many copies as the wanted `reliability`
needs in its life: L = ln(1 / (1 − reliability)) / (λ T). A host hands out copies by halves, as in spray and
wait; of two hosts the one with the fuller battery gets more.

A carrier gets a copy only if it has room: one that has none would have to displace another message for it,
perhaps the last copy of that. So each host says at the beginning of a meeting how much it may take, and full
buffers bound the copies. If half of the life that was left has gone by
without an acknowledgement, a carrier doubles its copies, as long as a part of its buffer is free: the copies
of a message that is not delivered grow as its end comes nearer, and those of one that is delivered are
dropped.

λ is measured: each host counts its meetings, the hosts that it has heard of, and which share of the copies
that it has begun to send came whole; the others were cut, since the meeting was too short for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, inf, log

from tidings.adhoc.frames import CONTEXT_MAX
from tidings.adhoc.messages import Replica
from tidings.adhoc.strategies.base import ReplicationStrategy

RELIABILITY = 0.9
"""Wanted share of deliveries, unless the message names one."""
RELIABILITY_MAX = 0.9999
"""Reliability that a wanted one of 1 stands for."""
COPIES_FIRST = 6
"""Copies while too few meetings were seen."""
COPIES_MAX = 1_024
"""Copies of one message."""
MEETINGS_MIN = 8
"""Meetings from which on the rate counts."""
COPIES_MIN = 4
"""Copies that count as having come whole before any was sent."""
WHOLE_MIN = 0.1
"""The least share of copies that counts as having come whole."""
FREE_MIN = 0.25
"""Share of the buffer that must be free before copies are doubled."""
BATTERY, MESSAGES, BYTES = "*", "*messages", "*bytes"
"""Where the context has the battery, and the room for messages and bytes; no host has such a name."""
OWN = frozenset((BATTERY, MESSAGES, BYTES))


class CopyBudget(ReplicationStrategy):
    """Rules of the budget; `battery` is the share that is left of it, which its owner sets."""

    name = "budget"

    def __init__(self, host: str, battery: float = 1.0) -> None:
        super().__init__(host)
        self.battery = battery
        self._known: dict[str, None] = {}  # hosts that were heard of
        self._batteries: dict[str, float] = {}  # of those that are or were met
        self._rooms: dict[str, list[float]] = {}  # likewise: for messages and bytes
        self._meetings = 0
        self._begun = self._ended = 0  # copies
        self._began_at: float | None = None

    def meet(self, peer: str, now: float) -> None:
        """Count the meeting."""
        if self._began_at is None:
            self._began_at = now
        self._meetings += 1
        self._know(peer)

    def _know(self, host: str) -> None:
        if len(self._known) < CONTEXT_MAX - 1 and host != self.host:
            self._known[host] = None

    def context(self, now: float) -> dict[str, float]:
        """The battery, the room, and the hosts that were heard of."""
        messages, size = self.room()
        own = {BATTERY: self.battery, MESSAGES: messages, BYTES: size}
        return dict.fromkeys(self._known, 1.0) | {key: value for key, value in own.items() if value < inf}

    def learn(self, peer: str, context: Mapping[str, float], is_new: bool, now: float) -> None:
        """Hear of more hosts, and of the other's battery and room."""
        if peer in self._known:
            self._batteries[peer] = min(context.get(BATTERY, 1.0), 1.0)
            self._rooms[peer] = [context.get(MESSAGES, inf), context.get(BYTES, inf)]
        if is_new:
            for host in context.keys() - self._known.keys() - OWN:
                self._know(host)

    def begin_copy(self) -> None:
        """Count it."""
        self._begun += 1

    def end_copy(self) -> None:
        """Count it."""
        self._ended += 1

    def rate(self, now: float) -> float:
        """Meetings a second with one given host that last for a message; 0 if too few were seen.

        Of the meetings, those count in whose like a copy that was begun has come whole.
        """
        if self._began_at is None or self._meetings < MEETINGS_MIN or now <= self._began_at:
            return 0.0
        share = max((self._ended + COPIES_MIN) / (self._begun + COPIES_MIN), WHOLE_MIN)
        return share * self._meetings / (len(self._known) * (now - self._began_at))

    def needed(self, reliability: float, left_s: float, now: float) -> int:
        """Return how many carriers a message needs that is to be delivered in so many seconds."""
        rate = self.rate(now)
        if rate <= 0 or left_s <= 0:
            return COPIES_FIRST
        wanted = -log(1 - min(reliability, RELIABILITY_MAX))
        return min(max(1, ceil(wanted / (rate * left_s))), COPIES_MAX)

    def begin(self, replica: Replica, now: float) -> None:
        """Give a message the copies that it needs."""
        asked = replica.message.reliability
        replica.copies = self.needed(RELIABILITY if asked is None else asked, replica.left_s(now), now)

    def share(self, replica: Replica, peer: str, now: float) -> int:
        """Half of what is here, or more to a fuller battery; never the last copy, and none without room."""
        self._renew(replica, now)
        theirs = self._batteries.get(peer, 1.0)
        both = theirs + self.battery
        wanted = int(replica.copies * theirs / both) if both > 0 else 0
        shared = min(wanted, replica.copies - 1)
        return shared if shared > 0 and self._fits(replica, peer) else 0

    def _fits(self, replica: Replica, peer: str) -> bool:
        """Whether a host has room for a copy, which it gets then."""
        room = self._rooms.get(peer)
        if room is None:
            return True
        if room[0] < 1 or room[1] < replica.size:
            return False
        room[0] -= 1
        room[1] -= replica.size
        return True

    def _renew(self, replica: Replica, now: float) -> None:
        """Double the copies each time that half of the life is gone that was left."""
        left_s = replica.left_s(now)
        if left_s <= replica.counted_s / 2 and self.free_share() >= FREE_MIN:
            replica.counted_s = left_s
            replica.copies = min(2 * replica.copies, COPIES_MAX)

    def given(self, replica: Replica, copies: int) -> None:
        """Keep the rest."""
        replica.copies -= copies

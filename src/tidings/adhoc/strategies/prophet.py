"""PRoPHET (Lindgren and others, 2003; RFC 6693): a copy goes to hosts that are likelier to meet the
recipient.

The predictability of meeting a host rises with each meeting, ages with time, and is inherited in part from
hosts that are met often. The constants are those of the paper, and of the ONE.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidings.adhoc.frames import CONTEXT_MAX
from tidings.adhoc.messages import Replica
from tidings.adhoc.strategies.base import NO_CONTEXT, ReplicationStrategy

FIRST = 0.75
"""By how much of what it lacks to 1 the predictability rises with a meeting."""
INHERITED = 0.25
"""The part that is inherited from a host that is met."""
AGEING = 0.98
"""What is left of it after one unit of time."""
UNIT_S = 30.0
"""The unit of time."""


class Prophet(ReplicationStrategy):
    """Rules of PRoPHET."""

    name = "prophet"
    acknowledges = False

    def __init__(self, host: str) -> None:
        super().__init__(host)
        self.predictability: dict[str, float] = {}
        self._aged_at = 0.0
        self._peers: dict[str, Mapping[str, float]] = {}

    def meet(self, peer: str, now: float) -> None:
        """Expect to meet it again."""
        self._age(now)
        before = self.predictability.get(peer, 0.0)
        if peer in self.predictability or len(self.predictability) < CONTEXT_MAX:
            self.predictability[peer] = before + (1.0 - before) * FIRST

    def _age(self, now: float) -> None:
        units = (now - self._aged_at) / UNIT_S
        if units > 0:
            factor = AGEING**units
            self.predictability = {host: value * factor for host, value in self.predictability.items()}
            self._aged_at = now

    def context(self, now: float) -> dict[str, float]:
        """What this host expects."""
        self._age(now)
        return dict(self.predictability)

    def learn(self, peer: str, context: Mapping[str, float], is_new: bool, now: float) -> None:
        """Expect to meet the hosts that this one expects to meet; a figure above 1 counts as 1."""
        self._age(now)
        self._peers[peer] = context
        if not is_new:
            return
        own = self.predictability.get(peer, 0.0)
        for host, theirs in context.items():
            if host == self.host:
                continue
            before = self.predictability.get(host, 0.0)
            if host in self.predictability or len(self.predictability) < CONTEXT_MAX:
                self.predictability[host] = before + (1.0 - before) * own * min(theirs, 1.0) * INHERITED

    def share(self, replica: Replica, peer: str, now: float) -> int:
        """One copy, if the carrier is likelier to meet any of the recipients."""
        self._age(now)
        theirs = self._peers.get(peer, NO_CONTEXT)
        return int(any(theirs.get(one, 0.0) > self.predictability.get(one, 0.0) for one in replica.pending))

"""Epidemic routing (Vahdat and Becker, 2000): every host that is met gets everything that it lacks.

Plain, a delivered message goes on spreading until its life ends. With acknowledgements its replicas are
dropped as its acknowledgement spreads, as in EMMA.
"""

from __future__ import annotations

from tidings.adhoc.messages import Replica
from tidings.adhoc.strategies.base import ReplicationStrategy


class AcknowledgedEpidemic(ReplicationStrategy):
    """Rules of epidemic routing with acknowledgements."""

    name = "acknowledged"

    def share(self, replica: Replica, peer: str, now: float) -> int:
        """One copy for everyone."""
        return 1


class PlainEpidemic(AcknowledgedEpidemic):
    """Rules of epidemic routing without acknowledgements."""

    name = "epidemic"
    acknowledges = False

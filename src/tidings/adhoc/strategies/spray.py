"""Binary spray and wait (Spyropoulos and others, 2005): a message has L copies.

A host with more than one copy gives half of them to a host without; with one it waits for the recipient.
"""

from __future__ import annotations

from tidings.adhoc.messages import Replica
from tidings.adhoc.strategies.base import ReplicationStrategy

COPIES = 6
"""Copies of a message, as in the default scenario of the ONE."""


class SprayAndWait(ReplicationStrategy):
    """Rules of binary spray and wait."""

    name = "spray"
    acknowledges = False

    def __init__(self, host: str, copies: int = COPIES) -> None:
        super().__init__(host)
        self.copies = copies

    def begin(self, replica: Replica, now: float) -> None:
        """All messages have the same number of copies."""
        replica.copies = self.copies

    def share(self, replica: Replica, peer: str, now: float) -> int:
        """Half of what is here."""
        return replica.copies // 2

    def given(self, replica: Replica, copies: int) -> None:
        """Keep the rest."""
        replica.copies -= copies

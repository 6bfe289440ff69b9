"""The interface of strategies: who is given a copy of a message that is for somebody else.

A host delivers a message to its recipient whatever its strategy is. The strategy decides about carriers: how
many copies a message has at first, how many of these a host that is met gets, and whether acknowledgements
purge replicas. One object serves one host. A strategy of your own derives from this class and is named to
`AdhocHost`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import ClassVar

from tidings.adhoc.messages import Replica

NO_CONTEXT: dict[str, float] = {}


class ReplicationStrategy:
    """Rules by which one host replicates messages. This one gives no copy to any carrier."""

    name: ClassVar[str] = ""
    acknowledges: ClassVar[bool] = True
    """Whether replicas of delivered messages are dropped, and acknowledgements are handed on."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.free_share: Callable[[], float] = lambda: 1.0
        """The share of the host's buffer that is free; the host sets it."""
        self.room: Callable[[], tuple[float, float]] = lambda: (inf, inf)
        """How many messages and bytes the buffer may take before it displaces; the host sets it."""

    def begin(self, replica: Replica, now: float) -> None:
        """Set the copies of a message that this host sends."""

    def meet(self, peer: str, now: float) -> None:
        """Note that a host is met; not called again while the two stay together."""

    def context(self, now: float) -> dict[str, float]:
        """Return figures by host that the other host gets at the beginning of a meeting."""
        return NO_CONTEXT

    def learn(self, peer: str, context: Mapping[str, float], is_new: bool, now: float) -> None:
        """Take the context of a host that is met; `is_new` is False while the two stay together."""

    def share(self, replica: Replica, peer: str, now: float) -> int:
        """Return how many copies a carrier gets that is no recipient, 0 for none."""
        return 0

    def begin_copy(self) -> None:
        """Note that a copy of a message begins to be sent to a host, carrier or recipient."""

    def end_copy(self) -> None:
        """Note that a host has answered a copy, so that it has come whole; it has not if the two parted."""

    def given(self, replica: Replica, copies: int) -> None:
        """Note that a carrier has taken so many copies."""

    def is_spent(self, replica: Replica) -> bool:
        """Whether this host has handed on its only copy, and keeps none."""
        return replica.copies < 1


class DirectDelivery(ReplicationStrategy):
    """Rules of direct delivery: the sender keeps its one copy of a message until it meets the recipient."""

    name = "direct"

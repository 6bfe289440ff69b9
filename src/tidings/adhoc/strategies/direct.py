"""Direct delivery: the sender keeps a message until it meets its recipient. One copy, no carriers."""

from __future__ import annotations

from tidings.adhoc.strategies.base import ReplicationStrategy


class DirectDelivery(ReplicationStrategy):
    """Rules of direct delivery."""

    name = "direct"

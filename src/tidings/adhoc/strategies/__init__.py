"""Strategies of replication by name, behind one interface (`base.py`)."""

from __future__ import annotations

from tidings.adhoc.strategies.base import DirectDelivery, ReplicationStrategy
from tidings.adhoc.strategies.budget import CopyBudget
from tidings.adhoc.strategies.epidemic import AcknowledgedEpidemic, PlainEpidemic
from tidings.adhoc.strategies.prophet import Prophet
from tidings.adhoc.strategies.spray import SprayAndWait
from tidings.errors import UserError

STRATEGIES: dict[str, type[ReplicationStrategy]] = {
    kind.name: kind
    for kind in (DirectDelivery, PlainEpidemic, AcknowledgedEpidemic, SprayAndWait, Prophet, CopyBudget)
}


def strategy_type(name: str) -> type[ReplicationStrategy]:
    """The strategy of this name; UserError lists those that there are."""
    if name not in STRATEGIES:
        raise UserError(f"strategy {name!r} is not one of {', '.join(STRATEGIES)}")
    return STRATEGIES[name]

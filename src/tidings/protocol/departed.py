"""Clients that this node has handed over to another one, and that may not know it yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.ids import Origin
from tidings.protocol.ledger import identity_of
from tidings.protocol.messages import HandedOver
from tidings.store.interface import RecordKind

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker

DEPARTED_MAX = 10_000
"""Clients that are remembered; of more, the oldest are forgotten."""

DEPARTED: RecordKind[tuple[str, str], HandedOver] = RecordKind("departed", HandedOver)
"""Clients that were handed over and may not know it, by who they are."""


class Departed:
    """Clients that this node has handed over, until the other node has seen them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._known = DEPARTED.known(broker.state)

    def add(self, origin: Origin, to: HandedOver) -> None:
        """Remember where a client goes on; the oldest are forgotten if there are too many."""
        key = _departed_key(origin)
        self._known[key] = to
        self._broker.store(DEPARTED.set(key, to))
        if len(self._known) > DEPARTED_MAX:
            self._drop(next(iter(self._known)))

    def find(self, origin: Origin) -> HandedOver | None:
        """Return where a client was to go on that is here again."""
        return self._known.get(_departed_key(origin))

    def forget(self, origin: Origin) -> None:
        """Forget a client: it is there, or has come back."""
        if _departed_key(origin) in self._known:
            self._drop(_departed_key(origin))

    def _drop(self, key: tuple[str, str]) -> None:
        del self._known[key]
        self._broker.store(DEPARTED.drop(key))


def _departed_key(origin: Origin) -> tuple[str, str]:
    system, epoch = identity_of(origin)
    return system, str(epoch)

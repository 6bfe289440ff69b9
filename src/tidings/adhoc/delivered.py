"""Deliveries that a host hears of: a recipient that has a message is taken off its list, and a message is
dropped that all recipients have.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

from tidings.adhoc.effects import AdhocEffect, StoreReplica
from tidings.adhoc.messages import EVERYBODY, MessageId
from tidings.adhoc.proofs import acknowledged
from tidings.adhoc.ring import Acknowledgement

if TYPE_CHECKING:
    from tidings.adhoc.host import AdhocHost


class HeardDeliveries:
    """Acknowledgements as one host hears them; it looks at `heard_max` of one frame."""

    def __init__(self, host: AdhocHost, heard_max: int) -> None:
        self._host = host
        self._heard_max = heard_max

    def hear(
        self,
        giver: str,
        acknowledgements: Sequence[Acknowledgement],
        now: float,
        effects: list[AdhocEffect],
    ) -> None:
        """Take acknowledgements from another host; forged ones, and too many at once, are counted."""
        ignored = len(acknowledgements) - self._heard_max
        if ignored > 0:
            self._host.tallies["refused", "acknowledgements"] += ignored
        for one in acknowledgements[max(0, ignored) :]:
            if not 0 < one.left_s < inf or one.recipient in self._host.ring.recipients(one.id):
                continue
            is_of_host = one.recipient != EVERYBODY
            if not is_of_host or not self._host.proofs.verify(
                one.recipient, acknowledged(one.id, one.recipient), one.proof
            ):
                self._host.tallies["refused", "forged acknowledgement"] += 1
                continue
            expires_at = now + one.left_s
            self.note(one.id, one.recipient, expires_at, one.proof, giver, effects, now)

    def note(
        self,
        id: MessageId,
        recipient: str,
        expires_at: float,
        proof: bytes,
        giver: str,
        effects: list[AdhocEffect],
        now: float,
    ) -> None:
        """Take a recipient off the list of a message, which is dropped without any, and hand that on."""
        effects += self._host.awaited.acknowledge(id, recipient)
        if not self._host.strategy.acknowledges:
            return
        if self._host.ring.add(id, recipient, expires_at, proof):
            news = (Acknowledgement(id, recipient, expires_at - now, proof),)
            self._host.spread_news((), news, giver, effects)
        replica = self._host.buffer.get(id)
        if replica is not None and recipient in replica.pending:
            replica.pending.discard(recipient)
            if replica.pending:
                effects.append(StoreReplica(replica))
            else:
                self._host.drop(replica, "acknowledged", effects)

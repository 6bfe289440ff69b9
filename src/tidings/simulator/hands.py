"""Whose hands messages are in, as can be told from outside a node: by what leaves it, and who comes and goes.

A hand ends when its holder settles it, has held it too long, is gone for RESUME_S, or when the transaction
that holds it ends. Where only the node can tell when that is, the earliest moment is taken.
"""

from __future__ import annotations

from math import inf

from msgspec import Struct

from tidings.protocol.session import Session
from tidings.queues.inflight import RESUME_S
from tidings.simulator.account import EventIdentity

Client = tuple[str, int]
"""System and epoch."""


class HeldMessage(Struct, eq=False):
    """A message that has left the node, until it is settled or given up."""

    number: int
    delivery: int
    client: Client
    request: int
    unit: OpenUnit | None
    due: float
    was_shown: bool  # before that
    is_doubtful: bool = False  # its holder was gone for so long that it may have been given up

    def is_with(self, client: Client, delivery: int) -> bool:
        """Whether this client holds it by itself."""
        return self.unit is None and (self.client, self.delivery) == (client, delivery)


class OpenUnit(Struct, eq=False):
    """A transaction that is open."""

    ends_at: float
    puts: list[EventIdentity] = []
    hands: list[HeldMessage] = []


class HeldMessages:
    """All hands of one life of a node."""

    def __init__(self) -> None:
        self._held: dict[int, HeldMessage] = {}
        self._present: dict[Client, set[Session]] = {}
        self._gone: dict[Client, float] = {}

    def get(self, number: int) -> HeldMessage | None:
        """The hand that a message is in."""
        return self._held.get(number)

    def add(self, hand: HeldMessage) -> None:
        """A message is in someone's hands."""
        self._held[hand.number] = hand
        if hand.unit is not None:
            hand.unit.hands.append(hand)

    def remove(self, hand: HeldMessage) -> bool:
        """It is not any more; whether it was."""
        if self._held.get(hand.number) is not hand:
            return False
        del self._held[hand.number]
        return True

    def of(self, client: Client) -> list[HeldMessage]:
        """What a client holds by itself."""
        return [hand for hand in self._held.values() if hand.client == client and hand.unit is None]

    def end(self, unit: OpenUnit) -> list[HeldMessage]:
        """A transaction has ended; what it held until then."""
        return [hand for hand in unit.hands if self.remove(hand)]

    def is_over(self, hand: HeldMessage, now: float) -> bool:
        """Whether the node may have given it to another by now."""
        if hand.unit is not None:
            return now >= hand.unit.ends_at
        return hand.is_doubtful or now >= min(hand.due, self._gone.get(hand.client, inf) + RESUME_S)

    def come(self, client: Client, session: Session, now: float) -> None:
        """A client is there, maybe again."""
        self._present.setdefault(client, set()).add(session)
        if now >= self._gone.pop(client, inf) + RESUME_S:
            for hand in self.of(client):
                hand.is_doubtful = True

    def go(self, client: Client, session: Session, is_clean: bool, now: float) -> None:
        """A session of a client has ended; whether it has said so."""
        self._present[client].discard(session)
        if is_clean:
            for hand in self.of(client):
                self.remove(hand)
        elif not self._present[client]:
            self._gone[client] = now

"""Messages in flight, as seen from outside a node: by the frames that leave it, and by its sessions.

A *hand* is one message in flight at one client. It ends when the client settles the message, has held it too
long or is gone for RESUME_S, or when the transaction that took it ends. If only the node knows that moment,
the earliest possible one counts.
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
    """Message that has left the node, until it is settled or given up."""

    number: int
    delivery: int
    client: Client
    request: int
    unit: OpenUnit | None
    due: float
    was_shown: bool  # to any client, before this delivery
    is_doubtful: bool = False  # its client was gone for so long that the node may have given it up

    def is_with(self, client: Client, delivery: int) -> bool:
        """Whether this client holds it outside a transaction."""
        return self.unit is None and (self.client, self.delivery) == (client, delivery)


class OpenUnit(Struct, eq=False):
    """Open transaction."""

    ends_at: float
    puts: list[EventIdentity] = []
    hands: list[HeldMessage] = []


class HeldMessages:
    """Messages in flight in one life of a node."""

    def __init__(self) -> None:
        self._held: dict[int, HeldMessage] = {}
        self._present: dict[Client, set[Session]] = {}
        self._gone: dict[Client, float] = {}

    def get(self, number: int) -> HeldMessage | None:
        """Return the hand that a message is in."""
        return self._held.get(number)

    def add(self, hand: HeldMessage) -> None:
        """Note that a message is in flight."""
        self._held[hand.number] = hand
        if hand.unit is not None:
            hand.unit.hands.append(hand)

    def remove(self, hand: HeldMessage) -> bool:
        """Note that it is in flight no more; return whether it was."""
        if self._held.get(hand.number) is not hand:
            return False
        del self._held[hand.number]
        return True

    def of(self, client: Client) -> list[HeldMessage]:
        """Return the messages that a client holds outside transactions."""
        return [hand for hand in self._held.values() if hand.client == client and hand.unit is None]

    def end(self, unit: OpenUnit) -> list[HeldMessage]:
        """End a transaction, and return the messages that it held until now."""
        return [hand for hand in unit.hands if self.remove(hand)]

    def is_over(self, hand: HeldMessage, now: float) -> bool:
        """Whether the node may have given the message to another client by now."""
        if hand.unit is not None:
            return now >= hand.unit.ends_at
        return hand.is_doubtful or now >= min(hand.due, self._gone.get(hand.client, inf) + RESUME_S)

    def come(self, client: Client, session: Session, now: float) -> None:
        """Note that a session of a client has begun, maybe after an absence."""
        self._present.setdefault(client, set()).add(session)
        if now >= self._gone.pop(client, inf) + RESUME_S:
            for hand in self.of(client):
                hand.is_doubtful = True

    def go(self, client: Client, session: Session, is_clean: bool, now: float) -> None:
        """Note that a session of a client has ended, with a farewell if `is_clean`."""
        self._present[client].discard(session)
        if is_clean:
            for hand in self.of(client):
                self.remove(hand)
        elif not self._present[client]:
            self._gone[client] = now

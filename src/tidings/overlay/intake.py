"""Intake: events that a neighbour relays, taken once and confirmed when they are safe here.

Events are handed on in the turn of the neighbour's session. What was stored is acknowledged to the neighbour,
by its own positions, when the commit with it is on disk. How far those beyond this node have come is told
level by level: a position of the neighbour is at level k when all other neighbours have confirmed, at level
k - 1, what this node had stored when it took that position. It is at the last level when they have confirmed
that at the last level, too: all nodes behind this one have it.

The neighbour gets credit for what was taken, save while the link to another one is crowded (`relaying.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tidings.errors import CodecError
from tidings.event import Batch
from tidings.event.relayed import RelayedBatch
from tidings.event.wire import check
from tidings.protocol.broker import Broker
from tidings.protocol.connection import Connection
from tidings.protocol.ledger import check_growing
from tidings.protocol.session import Session
from tidings.protocol.subscriber import ClientSubscription, MissedNumbers, Wanted
from tidings.steps import Steps

PREFETCH = 20_000
"""Events that may be under way from one neighbour."""


class Taken(NamedTuple):
    """A position of the neighbour that was taken, and the position here at that time."""

    mark: int
    theirs: int
    ours: int


class IntakeOwner(Protocol):
    """Owner of an intake, who knows the tree."""

    node: str
    """The neighbour."""

    def refusal(self, batch: RelayedBatch) -> str:
        """Why a batch is not taken, such as from the wrong side; empty if it is."""

    def confirmed(self, level: int) -> int:
        """The position here that all other neighbours have confirmed at a level."""

    def begun(self) -> None:
        """The neighbour relays from here on."""

    def ended(self) -> None:
        """It does not, or no longer."""


class Intake:
    """Receiving end of one link, whose connection and session these are.

    `cursor` is that of the neighbour, to which nothing goes back. What lies beyond is confirmed up to
    `tolerate` hops.
    """

    def __init__(
        self,
        owner: IntakeOwner,
        broker: Broker,
        connection: Connection,
        session: Session,
        cursor: object,
        tolerate: int,
        wanted: Wanted,
    ) -> None:
        self._owner = owner
        self._broker = broker
        self._connection = connection
        self._session = session
        self._cursor = cursor
        self._unsafe: deque[Taken] = deque()  # taken, and not on disk
        # What is not confirmed at each level: so many hops beyond, then by all.
        self._beyond: list[deque[Taken]] = [deque() for _ in range(tolerate + 1)]
        self._levels = [0] * (tolerate + 1)
        self._told = list(self._levels)
        self._is_over = False
        self.is_begun = False
        self.received = 0
        self._unconsumed = 0  # events that were taken while another link was crowded
        self.subscription: ClientSubscription = connection.subscribe(wanted, self, PREFETCH)
        self.subscription.begun.then(self._begun, lambda _error: owner.ended())

    def end(self) -> None:
        """Take no more, not even what has arrived: the neighbour sends again what is not acknowledged."""
        self._is_over = True
        self._connection.unsubscribe(self.subscription)

    def _begun(self, told: object) -> None:
        """The neighbour relays from here on; what it knows to be taken, it need not be told again."""
        if self._is_over:
            return
        position = told.get("acknowledged") if isinstance(told, dict) else None
        if isinstance(position, int):
            self._safe(Taken(0, position, self._broker.position))
            self.confirm_beyond()
        self.is_begun = True
        self._owner.begun()

    # What the connection calls

    def deliver(self, batch: Batch, positions: Sequence[int] | None, redelivered: bool) -> None:  # noqa: ARG002
        """Take events, in the turn of the neighbour's session."""
        self._session.do(self._taking(batch, positions))

    def gap(self, dropped: int, reason: str, missed: MissedNumbers | None = None) -> None:  # noqa: ARG002
        """Count events that the neighbour could not relay."""
        self._broker.count("relays_lost", max(1, dropped), reason)

    def ended(self, reason: str) -> None:  # noqa: ARG002
        """The neighbour relays no more."""
        self._owner.ended()

    def _taking(self, batch: Batch, positions: Sequence[int] | None) -> Steps[None]:
        if self._is_over:
            return
        if not isinstance(batch, RelayedBatch):
            raise CodecError("$", "Deliver is not for a node")
        if not isinstance(batch.numbers, range):
            check_growing(batch.numbers, 0)
        self.received += len(batch)
        refusal = self._owner.refusal(batch)
        if refusal:
            self._broker.count("relays_refused", len(batch), refusal)
            if refusal == "way" and positions:
                # A node that has just started may not know all links yet: it asks again a little later.
                self._is_over = True
                self._owner.ended()
                return
        else:
            batch.via = self._owner.node
            relaying = self._broker.relays.relay(batch, check(batch.raw), self._cursor, self._session)
            for _ in relaying:
                yield
                if self._is_over:  # what came before it may be lost, and must be counted before it
                    relaying.close()  # type: ignore[unreachable]  # it may be over since then
                    return
        self._unconsumed += len(batch)
        self.go_on()
        if positions:
            self._unsafe.append(Taken(self._broker.promise, positions[-1], self._broker.position))
            self.durable(self._broker.mark_durable)
        yield

    def go_on(self) -> None:
        """Give the neighbour credit for what was taken, unless too much of it waits for another link."""
        if self._unconsumed and not (self._is_over or self._broker.crowded_links - {self._cursor}):
            self._connection.consume(self.subscription, self._unconsumed)
            self._unconsumed = 0

    # What is safe

    def durable(self, mark: int) -> None:
        """Acknowledge what is on disk."""
        while self._unsafe and self._unsafe[0].mark <= mark:
            taken = self._unsafe.popleft()
            self._connection.acknowledge(self.subscription, taken.theirs)
            self._safe(taken)

    def _safe(self, taken: Taken) -> None:
        for waiting in self._beyond:
            if waiting and waiting[-1].ours == taken.ours:
                waiting.pop()
            waiting.append(taken)

    def confirm_beyond(self) -> None:
        """Tell the neighbour how far the others have come, if that has changed."""
        for level, waiting in enumerate(self._beyond):
            of_others = level if level < len(self._beyond) - 1 else level + 1
            confirmed = self._owner.confirmed(of_others) if waiting else 0
            while waiting and waiting[0].ours <= confirmed:
                self._levels[level] = waiting.popleft().theirs
        if self._levels != self._told:
            self._told = list(self._levels)
            self._connection.confirm(self.subscription, self._told)

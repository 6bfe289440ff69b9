"""Archive: a cursor that only has events kept, and nobody consumes them."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from msgspec import Struct

from tidings.event import Batch
from tidings.exchange import Need, Positions, Rows
from tidings.filters import Filter
from tidings.protocol.access import NOBODY, OWNER, Authenticator, Principal
from tidings.protocol.cursor import Cursor, Options
from tidings.store.interface import Durable, Operation, RecordKind

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker


class Terms(Struct, frozen=True, omit_defaults=True):
    """The stored terms of an archive, beside its place."""

    holds: bool = False  # its position matters
    lease_s: float | None = None
    until: float | None = None  # when the lease ends, by the wall clock: that is what a later start goes by
    left: bool = False  # its reader has ended it, and may come back
    user: str = ""  # whose rights it has, and no more than these; the owner of the node has all


TERMS: RecordKind[tuple[str, str], Terms] = RecordKind("archive", Terms)


class Archive(Cursor):
    """A cursor that has what matches kept in the log, and delivers nothing.

    The log is what of the stored stream is persistent: events that ask for it, and what an archive wants.
    Readers of the log ask for it by position; an archive only keeps it there. One with a name outlives
    connections and restarts, until its lease ends or somebody ends it. One that `holds` is a reader's, behind
    whose position nothing may be pruned. One that has `left` wants nothing any more: it only says that it did
    not simply vanish.
    """

    is_archive = True

    def __init__(self, broker: Broker, record: Durable, terms: Terms, filter: Filter | None = None) -> None:
        super().__init__(broker, record, filter)
        # It keeps what its own node takes in; a reader's demand concerns the sources of all nodes.
        self.subscription.is_local = self.subscription.passive
        self.terms = terms
        self.ends_at = self._end()

    def _end(self) -> float:
        until, lease_s = self.terms.until, self.terms.lease_s
        return inf if until is None else self.broker.deadline(until, inf if lease_s is None else lease_s)

    @property
    def has_left(self) -> bool:  # type: ignore[override]  # it depends on its terms
        """Whether it wants nothing any more, and is only remembered."""
        return self.terms.left

    @property
    def passed(self) -> int:
        """The position up to which its reader, if it has one, needs nothing any more."""
        return self.acknowledged if self.terms.holds else self.broker.position

    @property
    def released(self) -> int:
        """Everything: what it needs is in the log."""
        return self.broker.position

    def principal(self, authenticator: Authenticator) -> Principal:
        """Return the owner's rights by the current rules."""
        return (authenticator.principal_of(self.terms.user) or NOBODY) if self.terms.user else OWNER

    def review(self) -> None:
        """Keep for a user what it may subscribe to now."""
        principal = self.principal(self.broker.authenticator)
        self.broker.cursors.refilter(self, self.filter, principal.reach(self.filter), principal.bound)

    def renew(self, terms: Terms) -> None:
        """Renew the lease of its reader."""
        self.terms = terms
        self.ends_at = self._end()
        self.broker.store(TERMS.set(self.key, terms))

    def pass_to(self, position: int) -> None:
        """Pass a position, up to which its reader needs nothing; one passed before changes nothing."""
        if position > self.acknowledged:
            self.handed = position
            self.acknowledge(position)

    def demand(self, passive: bool) -> None:
        """Create demand for what it wants, unless it is passive."""
        subscription, exchange = self.subscription, self.broker.exchange
        if subscription.passive is not passive:
            exchange.unsubscribe(subscription)
            subscription.passive = subscription.is_local = passive
            exchange.subscribe(subscription)
            self.options = Options(log=True, passive=passive).encode()
            self.broker.cursors.keep(self)

    def need(self, count: int) -> Need:  # noqa: ARG002
        """Have all that matches kept in the log."""
        return Need.LOGGED

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        """Deliver nothing: the events are in the log."""

    def dropped(self) -> list[Operation]:
        return [*super().dropped(), TERMS.drop(self.key)]

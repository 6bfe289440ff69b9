"""A place in the stored stream that has what matches kept in the log, and delivers nothing.

The log is what of the stored stream is persistent: events that ask for it, and what an archive wants. Whoever
reads the log asks for it by position; an archive only has it there. With a record it is *named*: it outlives
connections and restarts, until its lease ends or somebody ends it. One that `holds` has a cursor, behind
which nothing may be pruned. One that has `left` wants nothing any more: its record only says that it did not
simply vanish.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tidings.event import Batch
from tidings.exchange import Need, Positions, Rows
from tidings.filters import Filter
from tidings.protocol.access import NOBODY, OWNER, Gate, Permit
from tidings.protocol.streams import Stream
from tidings.store.interface import Durable

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker


class Terms(Struct, frozen=True, omit_defaults=True):
    """What is stored of an archive beside its filter and its cursor."""

    log: bool = False  # it is an archive, and no subscription that delivers
    passive: bool = False
    holds: bool = False  # its cursor matters
    lease_s: float | None = None
    until: float | None = None  # when the lease ends, by the wall clock: that is what a later start goes by
    left: bool = False  # its reader has ended it, and may come back
    user: str = ""  # whose rights it has, and no more than these; the owner of the node has all


def terms_of(options: bytes) -> Terms:
    """The terms that a record has; those of a subscription have no `log`."""
    return msgspec.msgpack.decode(options, type=Terms) if options else Terms()


class Archive(Stream):
    """See the module; it never has a client."""

    def __init__(
        self, broker: Broker, filter: Filter, record: Durable | None = None, terms: Terms | None = None
    ) -> None:
        self.terms = terms or Terms(log=True, passive=True)
        start = broker.position + 1 if record is None else record.cursor + 1
        super().__init__(broker, filter, start, record, passive=self.terms.passive)
        self.ends_at = self._end()  # when its lease ends, by the clock that never jumps

    def _end(self) -> float:
        until, lease_s = self.terms.until, self.terms.lease_s
        return inf if until is None else self.broker.deadline(until, inf if lease_s is None else lease_s)

    @property
    def cursor(self) -> int:
        """The position up to which its reader, if it has one, needs nothing any more."""
        if self.record is None or not self.terms.holds:
            return self.broker.position
        return self.record.cursor

    def permit(self, gate: Gate) -> Permit:
        """What whoever has it may do, as the rules are now."""
        return (gate.permit_of(self.terms.user) or NOBODY) if self.terms.user else OWNER

    def reach(self, gate: Gate) -> Filter:
        """What it may have kept of what it wants."""
        assert self.record is not None
        return self.permit(gate).reach(Filter(self.record.filter))

    def renew(self, terms: Terms) -> None:
        """Its reader is still there."""
        assert self.record is not None
        self.terms = terms
        self.ends_at = self._end()
        self._keep(replace(self.record, options=msgspec.msgpack.encode(terms)))

    def pass_to(self, position: int) -> None:
        """Its reader needs nothing up to this position; one that was passed before changes nothing."""
        assert self.record is not None
        if position > self.record.cursor:
            self._keep(replace(self.record, cursor=position, handed=position))

    def want(self, filter: Filter) -> None:
        """Its reader wants something else from now on, before what it was granted is ANDed to it."""
        assert self.record is not None
        if self.record.filter != str(filter):
            self._keep(replace(self.record, filter=str(filter)))

    def _keep(self, record: Durable) -> None:
        self.record = record
        self.broker.places.keep(record)

    def need(self, count: int) -> Need:  # noqa: ARG002
        """Have all that matches kept in the log."""
        return Need.LOGGED

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        """They are in the log, and that is all."""

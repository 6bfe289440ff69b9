"""Events that other nodes hand on: which of them are new here, which are late, and which others may lack.

The number of an event at its first node says whether it was had, whichever way it came. What is new goes the
way of all published events. What was had goes on to those neighbours only behind which nodes may lack it,
because events reach them another way than before.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, Protocol

from tidings.event import Batch
from tidings.event.relayed import Had, RelayedBatch
from tidings.event.wire import Checked
from tidings.ids import Origin
from tidings.protocol.publishing import MatchedRows, PublishedEvents, without_faded
from tidings.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tidings.exchange import NodeSubscription
    from tidings.protocol.broker import Broker
    from tidings.protocol.session import Session

FIRST = "@"
"""Stands before the id of a first node: by that the ledger knows its numbers."""


class RelayMeter(Protocol):
    """Measures what comes over links."""

    def look(self, batch: RelayedBatch, matches: MatchedRows, granted: NodeSubscription | None) -> None:
        """New events have come over a link, and these want them; the rights of its node match them, too."""


class Relays:
    """The way of events that come over links through a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._publishing = broker.publishing
        self.meter: RelayMeter | None = None
        self.restore()

    def restore(self) -> None:
        """Read anew which epochs of first nodes the ledger knows, as after a commit that failed."""
        self._first_epochs = self._broker.ledger.latest_epochs(FIRST)

    def relay(self, batch: RelayedBatch, checked: Checked, link: Hashable, session: Session) -> Steps[None]:
        """Give events that another node has handed on to all who want them, but not to the same `link`.

        Those that were not granted to the other node, whose session here is this one, are dropped.
        """
        return self._publishing.in_parts(batch, checked, partial(self._relay, link, session))

    def _relay(self, link: Hashable, session: Session, batch: Batch, checked: Checked) -> Steps[None] | None:
        assert isinstance(batch, RelayedBatch)
        if self._broker.missed and (late := self._broker.missed.late_rows(batch)):
            return self._relay_late(link, session, batch, checked, set(late))
        had = self._had(batch)
        if had:
            self._relay_again(link, session, batch.slice(0, had), checked.slice(0, had))
            if had == len(batch):
                return None
            batch, checked = batch.slice(had, len(batch)), checked.slice(had, len(batch))
        return self._relay_new(link, session, batch, checked)

    def _relay_new(
        self, link: Hashable, session: Session, batch: RelayedBatch, checked: Checked
    ) -> Steps[None] | None:
        """Give events that were not had to all who want them."""
        if not (checked.is_plain or batch.first.is_volatile):
            repeats = self._broker.repeats
            note = repeats.repeats if batch.is_repeat else repeats.originals
            twice = note(batch.origin or Origin(), checked.counters)
            if twice:
                batch, checked = self._relay_repeated(link, session, batch, checked, set(twice))
                if not len(batch):
                    return None
        batch, checked, matches = self._granted(link, session, batch, checked)
        if not len(batch):
            return None
        if self.meter is not None:
            self.meter.look(batch, matches, session.granted)
        channels = self._publishing.channels_of(batch, checked, matches)
        if channels and self._broker.ordered.concerns(channels):
            self._broker.ordered.relay(link, batch, checked, matches, channels)
            return None
        return self._publishing.pass_on(batch, checked, matches, None, not checked.is_plain, channels)

    def _relay_repeated(
        self, link: Hashable, session: Session, batch: RelayedBatch, checked: Checked, had: set[int]
    ) -> tuple[RelayedBatch, Checked]:
        """Hand on what was had under another number, to neighbours only; return the others."""
        rows, others = sorted(had), [row for row in range(len(batch)) if row not in had]
        part, facts, matches = self._granted(link, session, batch.take(rows), checked.take(rows))
        self._broker.count("repeats_had", len(rows))
        matches = [one for one in self._publishing.routed(part, matches) if one[0].origin is not None]
        if matches:
            part.is_had = True
            positions = self._broker.appending.keep(part, facts, matches) or [None] * len(part)
            published = PublishedEvents(part, facts.counters, None, facts.deliveries)
            self._publishing.deliver(published, matches, positions)
        return batch.take(others), checked.take(others)

    def _relay_late(
        self, link: Hashable, session: Session, batch: RelayedBatch, checked: Checked, late: set[int]
    ) -> Steps[None]:
        """Hand on events of which some were reported as missed: these are new, and marked as late."""
        for is_late, group in groupby(range(len(batch)), late.__contains__):
            rows = list(group)
            part, facts = batch.take(rows), checked.take(rows)
            if is_late:
                self._had(part)
                self._broker.missed.fill(part)
                part.is_late = True
                left = self._relay_new(link, session, part, facts)
            else:
                left = self._relay(link, session, part, facts)
            if left is not None:
                yield from left
            yield

    def had_up_to(self, node: str, epoch: int) -> float:
        """The number up to which all that is wanted here of a node's events was had, in an epoch of it."""
        system = f"{FIRST}{node}"
        if epoch < self._first_epochs.get(system, 0):
            return inf
        return self._broker.ledger.counter_of(Origin(system, epoch))

    def had_numbers(self) -> dict[str, Had]:
        """The numbers up to which all that is wanted here was had, of each first node; not its own."""
        ledger, prefix = self._broker.ledger, len(FIRST)
        return {
            system[prefix:]: Had(epoch, ledger.counter_of(Origin(system, epoch)))
            for system, epoch in self._first_epochs.items()
            if not system.endswith("~")
        }

    def first_epoch(self, node: str) -> int | None:
        """The last epoch of a node of which events were had; None if none were."""
        return self._first_epochs.get(f"{FIRST}{node}")

    def _granted(
        self, link: Hashable, session: Session, batch: RelayedBatch, checked: Checked
    ) -> tuple[RelayedBatch, Checked, MatchedRows]:
        """Return what of relayed events was granted to the other node, and who wants that."""
        matches = self._broker.exchange.match(batch, link)
        if session.granted is not None:
            allowed = next((rows for one, rows in matches if one is session.granted), ())
            if len(allowed) < len(batch):
                self._broker.count("relays_refused", len(batch) - len(allowed), "not-allowed")
                batch, checked = batch.take(allowed), checked.take(allowed)
                matches = self._broker.exchange.match(batch, link)
        return batch, checked, matches

    def _relay_again(self, link: Hashable, session: Session, batch: RelayedBatch, checked: Checked) -> None:
        """Give events that were had before to those neighbours that may lack them."""
        matches: MatchedRows = []
        if batch.is_again and not batch.first.is_volatile:
            batch, checked, matches = self._granted(link, session, batch, checked)
            matches = self._publishing.routed(batch, matches, is_stored=True)
            matches = [one for one in matches if one[0] in self._broker.changed_links]
            batch.is_had = True
        if not matches:
            self._broker.count("relays_refused", len(batch), "had")
            return
        self._broker.count("relayed_again", len(batch))
        checked = without_faded(batch, checked)
        # What is stored no longer does not overtake what is.
        positions = self._broker.appending.keep(batch, checked, matches) or [None] * len(batch)
        published = PublishedEvents(batch, checked.counters, None, checked.deliveries)
        self._publishing.deliver(published, matches, positions)

    def _had(self, batch: RelayedBatch) -> int:
        """Count the numbers of relayed events; how many of these were had before, by whichever way."""
        first, numbers = batch.first, batch.numbers
        system = f"{FIRST}{first.node}{'~' if first.is_volatile else ''}"
        stream, latest = Origin(system, first.epoch), self._first_epochs.get(system, 0)
        if first.epoch < latest:
            return len(numbers)
        self._first_epochs[system] = first.epoch
        highest = self._broker.ledger.count_up(stream, int(numbers[-1]))
        if not first.is_volatile:
            self._broker.ledger.keep(stream)
        return 0 if numbers[0] > highest else bisect_right(numbers, highest)

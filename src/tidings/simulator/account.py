"""Account of a simulation: the events published, accepted and delivered, and a check that they are right.

Rules, checked at every delivery: a subscriber gets an event again only if it is marked as redelivered, and
never twice in one life; events of a publisher come in order; every event matches the filter and was
published. At the end, when everything has healed: each event that was accepted and had to arrive has arrived.
"""

from __future__ import annotations

from tidings.event import Event
from tidings.filters import Filter
from tidings.protocol.subscriber import Wanted

EventIdentity = tuple[str, int, int]
"""System, epoch and counter of an event."""


class SubscriberAccount:
    """Account of one subscriber, over all its lives."""

    def __init__(self, wanted: Wanted, keeps: frozenset[str]) -> None:
        self.filter = Filter(wanted.filter)
        self.keeps = keeps  # kinds of delivery of which it must get every event
        self.is_rereading = wanted.since is not None  # each life starts in the past again
        self.had: set[EventIdentity] = set()
        self.known: set[EventIdentity] = set()  # may come again only if marked as redelivered
        self.marked = 0
        self.dropped = 0
        self.last: dict[tuple[str, int], int] = {}  # counter, by system and epoch, in this life


class StormAccount:
    """Account of the events published, accepted and delivered in a simulation."""

    def __init__(self) -> None:
        self.events: dict[EventIdentity, Event] = {}
        self.promised: dict[EventIdentity, None] = {}
        self.readers: dict[str, SubscriberAccount] = {}

    def read_by(self, name: str, wanted: Wanted, keeps: frozenset[str]) -> None:
        """Add a subscriber, before anything is published."""
        self.readers[name] = SubscriberAccount(wanted, keeps)

    def begin(self, name: str) -> None:
        """Begin a new life of a subscriber."""
        reader = self.readers[name]
        reader.last = {}
        if reader.is_rereading:
            reader.known.clear()

    def published(self, identity: EventIdentity, event: Event) -> None:
        """Note that a publisher has sent an event."""
        self.events[identity] = event

    def accepted(self, identity: EventIdentity) -> None:
        """Note that the node has accepted an event."""
        self.promised[identity] = None

    def dropped(self, name: str, count: int) -> None:
        """Note a gap that was reported to a subscriber."""
        self.readers[name].dropped += count

    def delivered(self, name: str, identity: EventIdentity, event: Event, redelivered: bool) -> None:
        """Check and note the delivery of an event to a subscriber."""
        reader = self.readers[name]
        sent = self.events.get(identity)
        assert sent is not None, f"{name} got {identity}, which nobody published"
        assert event.values == sent.values, f"{name} got {identity} changed"
        assert reader.filter.matches(event), f"{name} got {identity}, which it does not want"
        assert redelivered or identity not in reader.known, f"{name} got {identity} twice"
        system, epoch, counter = identity
        last = reader.last.get((system, epoch), 0)
        assert counter > last, f"{name} got {identity} after {last}"
        reader.last[system, epoch] = counter
        reader.had.add(identity)
        reader.known.add(identity)
        reader.marked += redelivered

    def missing(self) -> list[tuple[str, EventIdentity]]:
        """Return the events that were accepted, had to arrive, and did not, each with its subscriber."""
        return [
            (name, identity)
            for name, reader in self.readers.items()
            for identity in self.promised
            if identity not in reader.had
            and self.events[identity].delivery in reader.keeps
            and reader.filter.matches(self.events[identity])
        ]

"""The account: what was published, accepted and delivered in a simulation, and whether that is right.

The rules, checked at every delivery: no event comes twice unless it is marked, or marked within one life of
an application; the events of a publisher come in their order; nothing comes that does not match or was never
published. At the end, when everything has healed: all that was accepted and had to arrive has arrived.
"""

from __future__ import annotations

from tidings.event import Event
from tidings.filters import Filter
from tidings.protocol.subscriber import Wanted

EventIdentity = tuple[str, int, int]
"""System, epoch and counter of an event."""


class SubscriberAccount:
    """What one subscriber has had, in all its lives."""

    def __init__(self, wanted: Wanted, keeps: frozenset[str]) -> None:
        self.filter = Filter(wanted.filter)
        self.keeps = keeps  # the deliveries of which it must get every event
        self.is_rereading = wanted.since is not None  # each life asks for the past again
        self.had: set[EventIdentity] = set()
        self.known: set[EventIdentity] = set()  # what may come again only if it is marked
        self.marked = 0
        self.dropped = 0
        self.last: dict[tuple[str, int], int] = {}  # in this life, by system and epoch


class StormAccount:
    """Account of what was published, accepted and delivered in a simulation."""

    def __init__(self) -> None:
        self.events: dict[EventIdentity, Event] = {}
        self.promised: dict[EventIdentity, None] = {}
        self.readers: dict[str, SubscriberAccount] = {}

    def read_by(self, name: str, wanted: Wanted, keeps: frozenset[str]) -> None:
        """There is a subscriber, from before anything is published."""
        self.readers[name] = SubscriberAccount(wanted, keeps)

    def begin(self, name: str) -> None:
        """A subscriber begins a life."""
        reader = self.readers[name]
        reader.last = {}
        if reader.is_rereading:
            reader.known.clear()

    def published(self, identity: EventIdentity, event: Event) -> None:
        """A publisher has sent an event on its way."""
        self.events[identity] = event

    def accepted(self, identity: EventIdentity) -> None:
        """A publisher was promised that an event is as safe as it asked to be."""
        self.promised[identity] = None

    def dropped(self, name: str, count: int) -> None:
        """A subscriber was told that it missed some."""
        self.readers[name].dropped += count

    def delivered(self, name: str, identity: EventIdentity, event: Event, redelivered: bool) -> None:
        """An event has come to a subscriber."""
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
        """What was accepted, had to arrive, and did not."""
        return [
            (name, identity)
            for name, reader in self.readers.items()
            for identity in self.promised
            if identity not in reader.had
            and self.events[identity].delivery in reader.keeps
            and reader.filter.matches(self.events[identity])
        ]

"""Simulated clients: the connection's core in virtual time, and applications that are slow or crash.

A client tries to connect until it succeeds, with growing pauses, and survives cuts as the real one does. An
application that crashes loses its memory: a publisher begins a new epoch, a subscriber a new life. The
*account* keeps the history of both, and checks each delivery.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from tidings.errors import TidingsError
from tidings.event import Batch, Delivery, Event
from tidings.ids import StoredIds
from tidings.protocol.connection import Connection
from tidings.protocol.subscriber import ClientSubscription, MissedNumbers, Wanted
from tidings.simulator.account import EventIdentity, StormAccount
from tidings.simulator.node import SimulatedNode
from tidings.simulator.world import End, World
from tidings.timers import Backoff
from tidings.transport.address import parse

RETRY_S_MIN = 0.02
WAKE_S = 1.0
SUBJECTS = 7
"""One event of so many has no subject, and the others have one each."""


class SimulatedClient:
    """Client of one node that survives cuts, until it crashes."""

    def __init__(self, world: World, name: str, node: SimulatedNode) -> None:
        self.world = world
        self.name = name
        self.node = node
        self.follows = False  # whether it goes where its node sends it
        self.roams = False  # whether it goes to another node if its own can't be reached
        self.is_up = False
        self.pace_s = 0.0  # longest time that it takes to process one batch
        self._epoch = 0
        self._life = 0
        self.start()
        self._wake()

    def start(self) -> None:
        """Start with an empty memory, and connect."""
        self._epoch += 1
        self._life += 1
        self.is_up = True
        self.connection = Connection(StoredIds(self.name, self._epoch), self.name)
        self._end: End | None = None
        self._backoff = Backoff(self.world.random.random, RETRY_S_MIN)
        self.world.note(self.name, "started")
        self._connect(self._life)

    def crash(self) -> None:
        """Lose all memory and the connection."""
        self.world.note(self.name, "crashed")
        self.is_up = False
        self._life += 1
        if self._end is not None:
            self.world.network.drop(self._end)
            self._end = None

    def pump(self) -> None:
        """Send the output of the core."""
        if self._end is not None and not self._end.is_paused:
            self._end.send(b"".join(self.connection.output()))
        if self.connection.is_given_up and self._end is not None:
            end = self._end
            end.close()
            self.lost(end)

    # Called by the network

    def receive(self, end: End, data: bytes) -> None:
        """Pass bytes to the core."""
        if end is self._end:
            self.connection.receive(data, self.world.clock.now)
            assert self.connection.failure is None, f"{self.name}: {self.connection.failure}"
            if self.connection.is_up:
                self._backoff.reset()
            self.arrived()
            self.pump()

    def lost(self, end: End) -> None:
        """Report the loss of the connection to the core, and reconnect after a pause."""
        if end is self._end:
            self.world.note(self.name, "lost")
            self._end = None
            self.connection.lost(self.world.clock.now)
            if self.follows and self.connection.leaving.places:
                self.node = self.world.nodes[parse(self.connection.leaving.places[0]).host]
            self._retry()

    def resume(self, end: End) -> None:
        """Send more, now that the connection takes it."""
        if end is self._end:
            self.pump()

    def arrived(self) -> None:
        """Do nothing; a subclass may look at the new state of the connection."""

    def _connect(self, life: int) -> None:
        if self._life == life:
            link = self.world.network.link(self.name, self.node.name)
            self.world.network.connect(link, self, self.node, lambda end: self._answer(end, life))

    def _answer(self, end: End | None, life: int) -> None:
        if self._life != life:
            if end is not None:
                end.close()
        elif end is None:
            if self.roams and self.connection.leaving.refuges:
                self.node = self.world.nodes[parse(self.connection.leaving.refuges[0]).host]
            self._retry()
        else:
            self._end = end
            self.connection.connect(self.world.clock.now)
            self.world.note(self.name, "connected")
            self.pump()

    def _retry(self) -> None:
        life = self._life
        self.world.clock.after(self._backoff.next_s(), lambda: self._connect(life))

    def _wake(self) -> None:
        if self.is_up:
            self.connection.wake(self.world.clock.now)
            self.pump()
        self.world.clock.after(WAKE_S, self._wake)


class PublisherAccount(Protocol):
    """Account of what is published."""

    def published(self, identity: EventIdentity, event: Event) -> None:
        """Note that a publisher has sent an event."""

    def accepted(self, identity: EventIdentity) -> None:
        """Note that the node has accepted an event."""


class Publisher(SimulatedClient):
    """Client that publishes events, numbered in their attribute `n`, and notes which were accepted."""

    def __init__(self, world: World, name: str, node: SimulatedNode, account: PublisherAccount) -> None:
        self.account = account
        self._made = 0
        self._noted = 0
        super().__init__(world, name, node)

    def start(self) -> None:
        """Begin a new epoch; events that were not accepted in the old one are not promised."""
        self._noted = 0
        super().start()

    def publish(self, delivery: Delivery, size: int = 0) -> None:
        """Publish one event, if the window has room."""
        publications = self.connection.publications
        if not self.is_up or publications.is_full:
            return
        self._made += 1
        event = self._event(delivery, size)
        counter = self.connection.publish(event)
        if delivery != "transient":
            self.node.watch.publishing(self.name, self._epoch, counter)
        self.account.published((self.name, self._epoch, counter), event)
        self.pump()

    def _event(self, delivery: Delivery, size: int) -> Event:
        """Make the next event."""
        moment = datetime.fromtimestamp(self.world.clock.now, UTC)
        attributes: dict[str, Any] = {
            "n": self._made,
            "parity": self._made % 2,
            "third": self._made % 3,
            "text": "x" * size,
        }
        subject = f"s{self._made % SUBJECTS}" if self._made % SUBJECTS else None
        return Event(f"storm.{self.name}", attributes, time=moment, delivery=delivery, subject=subject)

    def arrived(self) -> None:
        """Note the events that were accepted."""
        accepted = min(self.connection.publications.accepted, self.connection.publications.last)
        while self._noted < accepted:
            self._noted += 1
            self.account.accepted((self.name, self._epoch, self._noted))


class SubscriberClient(SimulatedClient):
    """Client with one subscription, which processes its events at its own pace."""

    def __init__(
        self,
        world: World,
        name: str,
        node: SimulatedNode,
        account: StormAccount,
        wanted: Wanted,
        prefetch: int,
    ) -> None:
        self.account = account
        self.wanted = wanted
        self.prefetch = prefetch
        self.is_open = False
        super().__init__(world, name, node)

    def start(self) -> None:
        """Subscribe, in a life without memory."""
        super().start()
        self.account.begin(self.name)
        self._arrived: list[tuple[int, int | None]] = []  # (number of events, last position)
        self._is_busy = False
        self._intake: ClientSubscription = self.connection.subscribe(self.wanted, self, self.prefetch)
        self._intake.begun.then(self._opened, must_not)

    def _opened(self, _result: object) -> None:
        self.is_open = True
        self.world.note(self.name, "subscribed")

    def deliver(self, batch: Batch, positions: Sequence[int] | None, redelivered: bool) -> None:
        """Note events, and process them later, in their order."""
        for event in batch:
            assert event.origin is not None
            identity = event.origin.system or "", event.origin.epoch, event.counter
            self.account.delivered(self.name, identity, event, redelivered)
        self.world.note(self.name, len(batch), batch[0].counter, redelivered)
        self._arrived.append((len(batch), None if positions is None else positions[-1]))
        self._work()

    def gap(self, dropped: int, _reason: str, _missed: MissedNumbers | None = None) -> None:
        """Note dropped events."""
        self.account.dropped(self.name, dropped)

    def ended(self, reason: str) -> None:
        """Fail: the node ends no subscription here."""
        raise AssertionError(f"{self.name} was ended: {reason}")

    def _work(self) -> None:
        if not self._is_busy and self._arrived:
            self._is_busy = True
            life, pace_s = self._life, self.world.random.uniform(0, self.pace_s)
            self.world.clock.after(pace_s, lambda: self._finish(life))

    def _finish(self, life: int) -> None:
        if self._life != life:
            return
        self._is_busy = False
        count, position = self._arrived.pop(0)
        self.connection.consume(self._intake, count)
        if position is not None and self.wanted.durable is not None:
            self.connection.acknowledge(self._intake, position)
        self.pump()
        self._work()


def must_not(error: TidingsError) -> None:
    """Fail: no error is expected."""
    raise AssertionError(error)

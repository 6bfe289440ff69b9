"""Applications at the nodes of an overlay: they publish, subscribe, unsubscribe, and come again.

An application remembers over its crashes which durable subscriptions it has, and which of them it has begun
to end. Its live subscriptions end when it crashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from tidings.errors import Refused, TidingsError
from tidings.event import Batch, Delivery, Event
from tidings.protocol.arguments import OnSlow
from tidings.protocol.subscriber import ClientSubscription, MissedNumbers, Wanted
from tidings.simulator.client import Publisher, must_not
from tidings.simulator.node import SimulatedNode
from tidings.simulator.overlay_account import OverlayAccount, SubscriptionAccount
from tidings.simulator.world import World

FILTERS = (
    "",
    "x > 3",
    "x > 3",
    "x > 6",
    "x < 5",
    "x BETWEEN 2 AND 7",
    "type = 'a'",
    "type = 'a' AND x > 3",
    "type = 'a' AND x > 6",
    "type = 'b' AND x < 5",
    "type = 'b'",
    "type IN ('b', 'c') AND x <> 5",
    "type = 'a' OR x = 1",
)
"""Filters that cover, overlap and exclude each other."""
TYPES = ("a", "b", "c")
DELIVERIES: tuple[Delivery, ...] = ("transient", "reliable", "reliable", "persistent")
ON_SLOW: tuple[OnSlow, ...] = ("drop-oldest", "drop-oldest", "spill")
PREFETCHES = (1, 3, 20, 1_000)
LIVE_MAX = 3
DURABLES = ("first", "second")
"""Names of durable subscriptions; each application may have all of them."""


class AppSubscription:
    """One subscription in one life of its application, which takes its events at the application's pace."""

    def __init__(self, app: Application, noted: SubscriptionAccount, prefetch: int) -> None:
        self.app = app
        self.noted = noted
        self.is_over = False
        self._arrived: list[tuple[int, int | None]] = []  # (number of events, last position)
        self._is_busy = False
        self.subscription: ClientSubscription = app.connection.subscribe(noted.wanted, self, prefetch)
        self.subscription.begun.then(self._opened, must_not)

    def _opened(self, _told: object) -> None:
        self.noted.is_open = True
        self.app.world.note(self.noted.name, "subscribed", self.noted.wanted.filter)
        if self.noted.is_durable and self.app.world.random.random() < 0.5:
            self.app.connection.request("in_force", {}).then(self._in_force, lambda _error: None)

    def _in_force(self, told: dict[str, Any]) -> None:
        """Note for which nodes the subscription is in force, as its own node says."""
        self.app.world.note(self.noted.name, "in force", *told["nodes"])
        self.noted.promising.update(told["nodes"])

    def deliver(self, batch: Batch, positions: Sequence[int] | None, redelivered: bool) -> None:
        """Note events, and process them later, in their order."""
        for event in batch:
            identity = self.app.account.delivered(self.noted, event, redelivered)
            self.app.world.note(self.noted.name, "got", *identity, redelivered)
        self._arrived.append((len(batch), None if positions is None else positions[-1]))
        self._work()

    def gap(self, dropped: int, reason: str, missed: MissedNumbers | None = None) -> None:
        """Pass over what was dropped: nothing of it was promised."""

    def ended(self, reason: str) -> None:
        """Fail: the node ends no subscription here."""
        raise AssertionError(f"{self.noted.name} was ended: {reason}")

    def _work(self) -> None:
        if not self._is_busy and self._arrived:
            self._is_busy = True
            pace_s = self.app.world.random.uniform(0, self.app.pace_s)
            self.app.world.clock.after(pace_s, self._finish)

    def _finish(self) -> None:
        if self.is_over:
            return
        self._is_busy = False
        count, position = self._arrived.pop(0)
        self.app.connection.consume(self.subscription, count)
        if position is not None and self.noted.is_durable:
            self.app.connection.acknowledge(self.subscription, position)
        self.app.pump()
        self._work()


class Application(Publisher):
    """Application at one node."""

    account: OverlayAccount

    def __init__(self, world: World, name: str, node: SimulatedNode, account: OverlayAccount) -> None:
        account.places[name] = node.name
        self._durables: dict[str, SubscriptionAccount] = {}  # by name: what it wants of its node
        self._ending: dict[str, None] = {}  # names that it has begun to end
        self._begun = 0
        self.listening: list[AppSubscription] = []
        super().__init__(world, name, node, account)

    def start(self) -> None:
        """Take up the durable subscriptions again, and end those that it was ending."""
        super().start()
        for noted in self._durables.values():
            noted.begin()
            self._listen(noted)
        for name in self._ending:
            self._end_durable(name)

    def crash(self) -> None:
        """Lose all live subscriptions."""
        super().crash()
        for one in self.listening:
            one.is_over = True
            if not one.noted.is_durable:
                self.account.end(one.noted)
        self.listening.clear()

    def die(self) -> None:
        """Crash with its node, for which nobody waits."""
        if self.is_up:
            self.crash()
        self._durables.clear()
        self._ending.clear()

    # Publishing

    def _event(self, delivery: Delivery, size: int) -> Event:  # noqa: ARG002
        random = self.world.random
        moment = datetime.fromtimestamp(self.world.clock.now, UTC)
        attributes = {"n": self._made, "x": random.randint(0, 9)}
        return Event(random.choice(TYPES), attributes, time=moment, delivery=delivery)

    def burst(self, count: int) -> None:
        """Publish a few events."""
        for _ in range(count):
            self.publish(self.world.random.choice(DELIVERIES))

    # Subscribing

    def act(self) -> None:
        """Do something."""
        if self.is_up:
            random = self.world.random
            chance = random.random()
            if chance < 0.8:
                self.burst(random.choice((1, 1, 2, 3, 10)))
            elif chance < 0.9:
                self.subscribe_somehow()
            else:
                self.unsubscribe_somehow()
            self.pump()

    def subscribe_somehow(self, is_durable: bool | None = None) -> None:
        """Make a live or a durable subscription, if there are not too many."""
        random = self.world.random
        if is_durable if is_durable is not None else random.random() < 0.4:
            free = [name for name in DURABLES if name not in self._durables and name not in self._ending]
            if free:
                passive = random.random() < 0.2
                self.subscribe(Wanted(random.choice(FILTERS), durable=free[0], passive=passive))
        elif len(self.listening) < LIVE_MAX + len(DURABLES):
            on_slow = random.choice(ON_SLOW)
            self.subscribe(Wanted(random.choice(FILTERS), on_slow=on_slow, passive=random.random() < 0.2))

    def subscribe(self, wanted: Wanted) -> AppSubscription:
        """Make a subscription."""
        self._begun += 1
        noted = self.account.subscribe(f"{self.name}/{self._begun}", wanted, self.node.name)
        if wanted.durable is not None:
            self._durables[wanted.durable] = noted
        return self._listen(noted)

    def _listen(self, noted: SubscriptionAccount) -> AppSubscription:
        listening = AppSubscription(self, noted, self.world.random.choice(PREFETCHES))
        self.listening.append(listening)
        self.pump()
        return listening

    def unsubscribe_somehow(self) -> None:
        """End one of the subscriptions."""
        if self.listening:
            self.unsubscribe(self.world.random.choice(self.listening))

    def unsubscribe(self, listening: AppSubscription) -> None:
        """End a subscription, a durable one for good."""
        noted, name = listening.noted, listening.noted.wanted.durable
        self.world.note(noted.name, "unsubscribes")
        listening.is_over = True
        self.listening.remove(listening)
        self.account.end(noted)
        self.connection.unsubscribe(listening.subscription)
        if name is not None:
            del self._durables[name]
            self._ending[name] = None
            self._end_durable(name)
        self.pump()

    def _end_durable(self, name: str) -> None:
        life = self._life

        def done(_told: object) -> None:
            if self._life == life:
                self._ending.pop(name)

        def failed(error: TidingsError) -> None:
            assert isinstance(error, Refused) and error.code == "not-found", error  # noqa: PT018 - one fact
            done(None)

        self.connection.request("unsubscribe", {"durable": name}, "again").then(done, failed)
        self.pump()

"""Clients that want all of a node's time, beside one that wants little; the clock of the node is set, too."""

from __future__ import annotations

import pytest
from effort import often

from tidings import exchange
from tidings.protocol.subscriber import Wanted
from tidings.simulator import World
from tidings.simulator.account import StormAccount
from tidings.simulator.client import Publisher, SubscriberClient
from tidings.simulator.node import SimulatedNode

SEEDS = range(often(4))
GREEDY = 5
PILE = 400
"""Events that each greedy client sends at once, again and again."""
ROUNDS = 20
WAIT_S = 0.25
"""How long an event of the good client may take, in the world's time, whatever the others have piled up."""
MISSED = "n < parity"
"""A filter that no index finds, and no event matches."""


class Crowd:
    """A good publisher and its subscriber, and greedy clients."""

    def __init__(self, seed: int) -> None:
        self.world, self.account = World(seed), StormAccount()
        self.node = SimulatedNode(self.world, "node")
        self.reader = self._reader("reader", "type = 'storm.good'")
        for number in range(GREEDY):
            self._reader(f"watcher{number}", MISSED)
        self.good = Publisher(self.world, "good", self.node, self.account)
        self.greedy = [Publisher(self.world, f"g{n}", self.node, self.account) for n in range(GREEDY)]
        self.world.clock.run(5.0)

    def _reader(self, name: str, filter: str) -> SubscriberClient:
        wanted = Wanted(filter)
        self.account.read_by(name, wanted, frozenset())
        return SubscriberClient(self.world, name, self.node, self.account, wanted, prefetch=1_000)

    def pile_up(self) -> None:
        """Have the greedy ones send much at once, and the clock of the node jump."""
        random = self.world.random
        self.node.ahead_s = random.choice((0.0, -5.0, 3_600.0))
        for publisher in self.greedy:
            for _ in range(PILE):
                publisher.publish("transient", random.choice((0, 300)))

    def exchange(self) -> float:
        """Publish one event of the good client; how long it takes to its subscriber."""
        begun, had = self.world.clock.now, len(self.account.readers["reader"].had)
        self.good.publish("transient")
        while len(self.account.readers["reader"].had) == had:
            self.world.clock.run(self.world.clock.now + 0.005)
            assert self.world.clock.now - begun < 60.0, "it never comes"
        return self.world.clock.now - begun


@pytest.mark.parametrize("seed", SEEDS)
def test_who_wants_little_is_served_soon_while_others_want_everything(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "ROWS_AT_ONCE", 1)  # so each event is a step
    crowd = Crowd(seed)
    idle_s = max(crowd.exchange() for _ in range(3))
    waits = []
    for _ in range(ROUNDS):
        crowd.pile_up()
        waits.append(crowd.exchange())
    assert len(crowd.node.broker.turns) > 0, "the greedy ones were through: nothing was shown"
    assert max(waits) < idle_s + WAIT_S, waits

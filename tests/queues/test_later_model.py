"""Random lives of a queue with delays, pauses and groups, against a model of one list.

Whatever clients do, and however often the node crashes and the clock moves, a reader gets what the model
says: nothing before it is due, of a group one message at a time and the first one, and in the end everything.
"""

from __future__ import annotations

from dataclasses import dataclass

from effort import often
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from queues.rig import DONE, GIVE_BACK, UNOPENED, Client, Hand, Rig, job, pass_time
from tidings.client.put import planned
from tidings.queues.inflight import RESUME_S
from tidings.queues.schedule import JITTER, pause_s

NAMES = ("a", "b")
PAUSES = (8.5, 40.5)
LONG_S = 1_000.0
START_S = 2.0
"""For a node to start: until then the numbers of messages may be ahead of the clock."""

clients = st.sampled_from(NAMES)
# The clock moves by whole seconds, so nothing is due at the very moment at which it is asked for.
delays = st.sampled_from([None, None, 5.5, 20.5])
plans = st.lists(st.tuples(st.sampled_from([None, "x", "y"]), delays), min_size=1, max_size=4)


@dataclass
class Item:
    """A message, as the model knows it."""

    n: int
    group: str | None
    due: float
    deliveries: int = 0
    is_paused: bool = False  # it was delivered before, and waits until it is due
    hand: Hand | None = None
    holder: str = ""
    request: int = 0


def someone_holds(machine: Later) -> bool:
    return any(item.hand for item in machine.items)


class Later(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig()
        self.items: list[Item] = []
        self.made = 0
        self.clients = {name: Client(self.rig, name, name) for name in NAMES}
        self.clients["a"].create("jobs", retry_s=PAUSES, deliveries_max=None, redelivery_s=None)

    # The model

    def _is_blocked(self, item: Item) -> bool:
        """Whether another message of its group is in flight, pauses, or comes before it."""
        others = [one for one in self.items if one.group == item.group and one is not item]
        return item.group is not None and any(
            one.hand or (one.is_paused and one.due > self.rig.now) or self._is_ready(one, item.n)
            for one in others
        )

    def _is_ready(self, item: Item, below: int) -> bool:
        return item.due <= self.rig.now and item.n < below

    def _available(self) -> list[Item]:
        ready = [one for one in self.items if one.hand is None and one.due <= self.rig.now]
        return [one for one in ready if not self._is_blocked(one)]

    def _back(self, item: Item, counts: bool, delay_s: float | None = None) -> None:
        assert item.hand is not None
        number, item.hand = item.hand.number, None
        item.deliveries += counts
        if delay_s is None:
            delay_s = pause_s(PAUSES, number, item.deliveries) if counts else 0.0
        item.due, item.is_paused = self.rig.now + delay_s, delay_s > 0

    # Rules

    @rule(name=clients, plan=plans, is_lost=st.booleans())
    def put(self, name: str, plan: list[tuple[str | None, float | None]], is_lost: bool) -> None:
        """Put messages; if the node crashes before they are on disk, they are put again."""
        client, first = self.clients[name], self.made
        for group, delay_s in plan:
            self.made += 1
            self.items.append(Item(self.made, group, self.rig.now + (delay_s or 0.0)))
            client.put("jobs", planned(job(self.made), delay_s, None, group))
        if is_lost:
            self.rig.tick()
            del self.items[len(self.items) - len(plan) :]
            self.crash()
            client.counter = client.welcome.counter
            self.made = first
            self.put(name, plan, is_lost=False)
        self.rig.run()

    @rule(name=clients, count=st.integers(1, 4), waits=st.booleans())
    def get(self, name: str, count: int, waits: bool) -> None:
        client, expected = self.clients[name], self._available()[:count]
        number = client.wait("jobs", None if waits and expected else 0.0, count=count)
        self.rig.run()
        hands = client.got(number)
        assert hands is not None
        assert [hand.n for hand in hands] == [item.n for item in expected]
        for item, hand in zip(expected, hands, strict=True):
            assert hand.delivery == item.deliveries + 1
            item.hand, item.holder, item.request = hand, name, number
            item.is_paused = False

    @precondition(someone_holds)
    @rule(
        choice=st.integers(0, 5),
        outcome=st.sampled_from([DONE, DONE, GIVE_BACK, UNOPENED]),
        delay_s=st.sampled_from([None, 0.0, 7.5]),
    )
    def settle(self, choice: int, outcome: int, delay_s: float | None) -> None:
        held = [item for item in self.items if item.hand]
        item = held[choice % len(held)]
        assert item.hand is not None
        given_s = delay_s if outcome == GIVE_BACK else None
        self.clients[item.holder].settle(outcome, item.hand, delay_s=given_s)
        self.rig.run()
        if outcome == DONE:
            self.items.remove(item)
        else:
            self._back(item, outcome == GIVE_BACK, given_s)

    @rule(name=clients)
    def lose(self, name: str) -> None:
        """A client is gone for too long; of what came with one request the first counts as delivered."""
        client = self.clients[name]
        client.lose()
        pass_time(self.rig, RESUME_S)
        counted: set[int] = set()
        for item in [item for item in self.items if item.hand and item.holder == name]:
            self._back(item, item.request not in counted)
            counted.add(item.request)
        client.come()

    @rule(seconds=st.integers(1, 30))
    def wait(self, seconds: int) -> None:
        pass_time(self.rig, float(seconds))

    @rule()
    def crash(self) -> None:
        """The node is started anew; who held a message had begun with it, which is not known any more."""
        again = self.rig = self.rig.restart(self.rig.now + START_S)
        for item in [item for item in self.items if item.hand]:
            self._back(item, counts=False)
        for client in self.clients.values():
            client.come(again)

    # What must be so

    @invariant()
    def the_counts_are_those_of_the_model(self) -> None:
        told = self.clients["a"].describe("jobs")
        held = sum(item.hand is not None for item in self.items)
        later = sum(item.hand is None and item.due > self.rig.now for item in self.items)
        groups = {item.group for item in self.items if item.group}
        assert (told.get("in_flight", 0), told.get("delayed", 0)) == (held, later)
        assert told.get("messages", 0) == len(self.items) - held - later
        assert told.get("groups", 0) <= len(groups)
        assert self.rig.queues.find("jobs").size == len(self.items)

    def teardown(self) -> None:
        """In the end everything arrives, group by group in order, and nothing is left."""
        for name in NAMES:
            self.lose(name)
        pass_time(self.rig, LONG_S * (1 + JITTER))
        while self.items:
            before = len(self.items)
            self.get("a", 4, waits=False)
            while someone_holds(self):
                self.settle(0, DONE, None)
            assert len(self.items) < before
        self.rig.run()
        assert self.rig.queues.size == 0
        assert list(self.rig.store.messages()) == []


TestLater = Later.TestCase
TestLater.settings = settings(max_examples=often(40), stateful_step_count=40)

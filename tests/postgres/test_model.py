"""A queue in a database against a list in memory: whatever is done with it, both say the same."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, cycle
from typing import Any

import pytest
from effort import often
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postgres.rig import DONE, GIVE_BACK, REJECT, UNOPENED, Client, Hand, Node, job, numbers

NAMES = (f"queue-{number}" for number in count())  # another for each example
PRIORITY = st.integers(3, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(PRIORITY, min_size=1, max_size=3)),
        st.tuples(st.just("get"), st.integers(1, 3), st.none() | PRIORITY),
        st.tuples(st.just("read"), st.integers(1, 5)),
        st.tuples(st.just("settle"), st.sampled_from([DONE, GIVE_BACK, UNOPENED, REJECT]), st.integers(0, 5)),
        st.tuples(st.just("settle"), st.sampled_from([GIVE_BACK, UNOPENED]), st.just(0)),
    ),
    min_size=10,
    max_size=30,
)


class Both:
    """The queue, asked by two nodes in turn, and the list: messages as (number, priority)."""

    def __init__(self, nodes: list[Node], priorities: bool) -> None:
        self.name = next(NAMES)
        self.priorities = priorities
        self.nodes = cycle(nodes)
        self.client = Client(self.name)
        self.list: list[tuple[int, int]] = []
        self.deliveries: dict[int, int] = {}
        self.held: list[tuple[Node, Hand]] = []
        nodes[0].create(self.name, priorities=priorities, deliveries_max=None)

    @property
    def order(self) -> list[tuple[int, int]]:
        return sorted(self.list, key=lambda one: (-one[1] if self.priorities else 0, one[0]))

    def put(self, priorities: list[int]) -> None:
        new = list(enumerate(priorities, self.client.counter))
        events = [job(number, priority=priority) for number, priority in new]
        assert next(self.nodes).put(self.client, *events, name=self.name) == [None] * len(new)
        self.list += new

    def get(self, most: int, least: int | None) -> None:
        node = next(self.nodes)
        hands = node.get(self.name, count=most, where="" if least is None else f"priority >= {least}")
        wanted = [one for one in self.order if least is None or one[1] >= least][:most]
        expected = [(number, self.deliveries.get(number, 0) + 1) for number, _ in wanted]
        assert [(hand.event["number"], hand.delivery) for hand in hands] == expected
        self.list = [one for one in self.list if one not in wanted]
        self.held += [(node, hand) for hand in hands]

    def read(self, most: int) -> None:
        hands = next(self.nodes).get(self.name, action="read", count=most)
        assert numbers(hands) == [number for number, _ in self.order[:most]]

    def settle(self, outcome: int, which: int) -> None:
        if not self.held:
            return
        node, hand = self.held.pop(which % len(self.held))
        node.settle(hand, outcome, name=self.name)
        if outcome in (GIVE_BACK, UNOPENED):
            number = int(str(hand.event["number"]))
            self.list.append((number, hand.event.priority))
            self.deliveries[number] = hand.delivery - (outcome == UNOPENED)


@pytest.fixture
def nodes(start: Callable[..., Node]) -> list[Node]:
    return [start("a"), start("b")]


@settings(
    max_examples=often(50), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(priorities=st.booleans(), steps=STEPS)
def test_two_nodes_and_a_list_hand_out_the_same(
    nodes: list[Node], priorities: bool, steps: list[tuple[Any, ...]]
) -> None:
    both = Both(nodes, priorities)
    for step, *arguments in steps:
        getattr(both, step)(*arguments)
    told = nodes[1].describe(both.name)
    assert (told.messages, told.in_flight) == (len(both.list), len(both.held))

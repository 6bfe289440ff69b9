"""A node that was killed, and what its clients held at other nodes then."""

from __future__ import annotations

import pytest
from peers.nodes import Home
from queues.rig import DONE, GIVE_BACK, Hand, numbers

AT_KITCHEN = "jobs@kitchen"


def with_jobs(*jobs: int) -> Home:
    """A node whose peer has these in a queue."""
    home = Home()
    owner = home.owner_of("kitchen")
    owner.create("jobs")
    for one in jobs:
        owner.put("jobs", one)
    home.run()
    return home


@pytest.fixture
def held() -> Hand:
    """What a client has got of a queue elsewhere, at a node that is no more."""
    (hand,) = with_jobs(1).client().get(AT_KITCHEN)
    return hand


@pytest.mark.parametrize("outcome", [DONE, GIVE_BACK])
def test_what_was_held_elsewhere_is_not_taken_for_settled(held: Hand, outcome: int) -> None:
    home = Home()
    ann = home.client()
    counter = ann.settle(outcome, held)
    home.run()
    assert (ann.accepted, ann.refusals) == (counter, [(counter, counter, "away")])


def test_what_is_held_since_then_is_settled(held: Hand) -> None:
    home = with_jobs(2, 3)
    home.pass_time(1.0)
    ann = home.client()
    hands = ann.get(AT_KITCHEN, 2)
    counter = ann.settle(DONE, hands[0], held, hands[1])
    home.run()
    assert (ann.accepted, ann.refusals) == (counter, [(counter - 1, counter - 1, "away")])
    assert numbers(hands) == [2, 3]
    assert home.owner_of("kitchen").get("jobs") == []


def test_a_message_of_its_own_queues_that_is_gone_was_settled(held: Hand) -> None:
    home = Home()
    ann = home.client()
    assert held.received is not None
    ann.settle(DONE, Hand(held.received, 1, False, None, 0, None, 0, b""))
    home.run()
    assert [code for _, _, code in ann.refusals] == ["not-yours"]


def test_what_was_taken_back_elsewhere_is_refused_by_the_name_of_its_queue() -> None:
    home = with_jobs(1)
    ann = home.client()
    (hand,) = ann.get(AT_KITCHEN)
    ann.peer.lose()
    home.run()
    home.pass_time(2.0)
    ann.come()
    counter = ann.settle(DONE, hand)
    home.run()
    assert ann.refused_at == [(counter, AT_KITCHEN)]
    assert numbers(home.owner_of("kitchen").get("jobs")) == [1]

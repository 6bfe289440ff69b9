"""What another node says late, to a client that has come again meanwhile, or whose node could not store."""

from __future__ import annotations

from peers.nodes import Home
from queues.rig import DONE, numbers

from tidings.errors import QueueFull
from tidings.protocol.messages import Bye

AT_KITCHEN = "jobs@kitchen"


def test_a_client_that_has_come_again_is_told_that_what_it_put_before_was_refused() -> None:
    home = Home()
    home.owner_of("kitchen").create("jobs")
    ann = home.client()
    counter = ann.put(AT_KITCHEN, 1)
    home.run()
    ann.lose()
    ann.come()
    assert ann.welcome.counter < counter
    home.kept.undone[0](QueueFull("jobs", "it holds 5 messages"))
    home.run()
    assert ann.refusals == [(counter, counter, "queue-full")]
    assert ann.accepted == counter


def test_a_settlement_that_comes_again_while_the_peer_has_not_answered_is_not_taken_for_done() -> None:
    home = Home()
    owner = home.owner_of("kitchen")
    owner.create("jobs")
    owner.put("jobs", 1)
    ann = home.client()
    ann.create("local")
    home.run()
    (hand,) = ann.get(AT_KITCHEN)
    home.links["kitchen"].hears_nothing = True
    ann.put("local", 2)
    counter = ann.settle(DONE, hand)
    home.rig.tick()
    home.rig.fail()
    home.run()
    assert ann.peer.got(Bye)
    ann.lose()
    ann.come()
    ann.settle_again(counter, DONE, hand)
    home.run()
    assert ann.refusals == [(counter, counter, "away")]
    assert numbers(owner.get("jobs")) == []

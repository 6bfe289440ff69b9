"""What clients say again, late or to a node that was started anew; and what is undone with a transaction."""

from __future__ import annotations

from queues.rig import DONE, Client, Rig, numbers, pass_time
from tidings.protocol.messages import Hello, Refusal
from tidings.queues.inflight import RESUME_S


def holder() -> Client:
    """A client that holds job 1, as is on disk."""
    ann = Client(Rig())
    ann.create("jobs")
    ann.put("jobs", 1)
    ann.rig.run()
    return ann


def refused_in(client: Client) -> list[str]:
    """The queues that the refusals on this connection name."""
    return [one.failure.details["queue"] for one in client.peer.got(Refusal)]


def test_what_was_acknowledged_and_not_stored_in_time_is_acknowledged_when_that_is_said_again() -> None:
    ann = holder()
    hands = ann.get("jobs")
    counter = ann.settle(DONE, *hands)
    ann.come(ann.rig.restart())
    assert ann.describe("jobs")["messages"] == 1
    ann.settle_again(counter, DONE, *hands)
    ann.rig.run()
    assert ann.refusals == []
    assert ann.accepted == counter
    assert Client(ann.rig.restart(), "b").get("jobs") == []


def test_what_another_has_got_since_is_refused_with_the_name_of_its_queue() -> None:
    ann = holder()
    hands = ann.get("jobs")
    counter = ann.settle(DONE, *hands)
    ann.come(ann.rig.restart())
    bob = Client(ann.rig, "b")
    (hand,) = bob.get("jobs")
    assert hand.redelivered
    ann.settle_again(counter, DONE, *hands)
    ann.rig.run()
    assert refused_in(ann) == ["jobs"]
    bob.settle(DONE, hand)
    bob.rig.run()
    assert bob.refusals == []


def test_what_a_transaction_has_read_since_is_not_taken_out_of_it() -> None:
    ann = holder()
    hands = ann.get("jobs")
    counter = ann.settle(DONE, *hands)
    ann.come(ann.rig.restart())
    bob = Client(ann.rig, "b")
    bob.begin(1)
    assert numbers(bob.read("jobs", transaction=1)) == [1]
    ann.settle_again(counter, DONE, *hands)
    ann.rig.run()
    assert refused_in(ann) == ["jobs"]
    assert numbers(bob.get("jobs", transaction=1)) == [1]


def test_what_was_given_back_before_is_nobodys() -> None:
    ann = holder()
    hands = ann.get("jobs")
    ann.leave()
    ann.come(ann.rig.restart())
    counter = ann.settle(DONE, *hands)
    ann.rig.run()
    assert ann.refusals == [(counter, counter, "not-yours")]
    assert refused_in(ann) == ["jobs"]
    assert ann.describe("jobs")["messages"] == 1


def test_what_is_in_no_queue_any_more_is_refused_without_a_name() -> None:
    ann = holder()
    hands = ann.get("jobs")
    ann.settle(DONE, *hands)
    ann.rig.run()
    ann.come(ann.rig.restart())
    ann.settle(DONE, *hands)
    ann.rig.run()
    assert refused_in(ann) == [""]


def test_a_hello_that_comes_late_on_a_connection_given_up_takes_nothing_from_the_client() -> None:
    ann = holder()
    late = ann.rig.connect()
    session = ann.session
    ann.come()
    assert numbers(ann.get("jobs")) == [1]
    late.send(Hello([1], ann.system, 1, ann.name, session))
    late.lose()
    pass_time(ann.rig, 2 * RESUME_S)
    bob = Client(ann.rig, "b")
    assert bob.get("jobs") == []  # ann is still there, and holds it
    ann.leave()
    assert numbers(bob.get("jobs")) == [1]


def test_what_is_published_in_a_transaction_is_for_nobody_before_the_commit_is_on_disk() -> None:
    ann = holder()
    ann.create("bound", bind="type = 'job'")
    bob = Client(ann.rig, "b")
    bob.subscribe("type = 'job'")
    ann.begin(1)
    ann.put("", 7, transaction=1)
    ann.commit(1)
    ann.rig.tick()
    assert bob.told == []
    ann.rig.sync()
    assert bob.told == [7]
    assert numbers(ann.get("bound")) == [7]


def test_what_was_published_in_a_transaction_that_could_not_be_stored_reaches_nobody() -> None:
    ann = holder()
    ann.create("bound", bind="type = 'job'")
    bob = Client(ann.rig, "b")
    bob.subscribe("type = 'job'")
    ann.begin(1)
    ann.put("", 7, transaction=1)
    ann.commit(1)
    ann.rig.tick()
    ann.rig.fail()
    ann.rig.run()
    assert bob.told == []
    assert Client(ann.rig, "c").get("bound") == []


def test_what_is_put_into_a_volatile_queue_in_a_transaction_is_handed_out_when_that_is_on_disk() -> None:
    ann = holder()
    ann.create("fast", persistent=False)
    bob = Client(ann.rig, "b")
    wanted = bob.wait("fast")
    ann.begin(1)
    ann.put("jobs", 2, transaction=1)
    ann.put("fast", 3, transaction=1)
    ann.commit(1)
    ann.rig.tick()
    assert bob.got(wanted) is None
    ann.rig.sync()
    assert numbers(bob.got(wanted) or []) == [3]


def test_what_was_taken_in_a_transaction_that_could_not_be_stored_comes_again_marked() -> None:
    ann = holder()
    ann.begin(1)
    assert [hand.redelivered for hand in ann.get("jobs", transaction=1)] == [False]
    ann.commit(1)
    ann.rig.tick()
    ann.rig.fail()
    ann.rig.run()
    assert [hand.redelivered for hand in Client(ann.rig, "b").get("jobs")] == [True]


def test_what_was_taken_in_such_a_transaction_for_the_last_time_is_a_dead_letter() -> None:
    ann = Client(Rig())
    ann.create("few", deliveries_max=1)
    ann.put("few", 1)
    ann.rig.run()
    ann.begin(1)
    assert numbers(ann.get("few", transaction=1)) == [1]
    ann.commit(1)
    ann.rig.tick()
    ann.rig.fail()
    ann.rig.run()
    bob = Client(ann.rig, "b")
    assert bob.get("few") == []
    assert numbers(bob.get("tidings.dead")) == [1]

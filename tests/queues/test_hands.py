"""Messages in readers' hands: settled once by who holds them, and back in the queue if they are not."""

from __future__ import annotations

import pytest

from queues.rig import DONE, GIVE_BACK, UNOPENED, Client, Rig, numbers, pass_time
from tidings.protocol.messages import Bye, Refusal, Settle
from tidings.queues.inflight import RESUME_S


def client(**fields: object) -> Client:
    """A client of a queue."""
    ann = Client(Rig())
    ann.create("jobs", **fields)
    return ann


def test_two_readers_never_hold_the_same_message() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    ann.put("jobs", 1, 2)
    assert numbers(ann.get("jobs")) == [1]
    assert numbers(bob.get("jobs", 5)) == [2]
    assert bob.get("jobs") == []


def test_what_was_acknowledged_is_gone() -> None:
    ann = client()
    ann.put("jobs", 1)
    ann.settle(DONE, *ann.get("jobs"))
    pass_time(ann.rig, 1_000.0)
    assert ann.get("jobs") == []
    assert ann.rig.queues.find("jobs").size == 0
    assert list(ann.rig.store.messages()) == []


def test_what_is_given_back_is_handed_out_again_and_marked() -> None:
    ann = client()
    ann.put("jobs", 1)
    (hand,) = ann.get("jobs")
    assert (hand.delivery, hand.redelivered) == (1, False)
    ann.settle(GIVE_BACK, hand)
    (again,) = ann.get("jobs")
    assert (again.delivery, again.redelivered) == (2, True)


def test_what_comes_back_unopened_does_not_count_as_a_delivery() -> None:
    ann = client(deliveries_max=1)
    ann.put("jobs", 1)
    for _ in range(5):
        (hand,) = ann.get("jobs")
        assert (hand.delivery, hand.redelivered) == (1, False)
        ann.settle(UNOPENED, hand)


def test_a_message_that_is_held_for_too_long_goes_to_another() -> None:
    ann = client(redelivery_s=10.0)
    bob = Client(ann.rig, "b")
    ann.put("jobs", 1)
    ann.get("jobs")
    pass_time(ann.rig, 9.0)
    assert bob.get("jobs") == []
    pass_time(ann.rig, 2.0)
    (hand,) = bob.get("jobs")
    assert (hand.n, hand.delivery, hand.redelivered) == (1, 2, True)


def test_a_message_is_held_for_a_minute_unless_something_else_is_said() -> None:
    ann = client()
    ann.put("jobs", 1)
    ann.get("jobs")
    pass_time(ann.rig, 59.0)
    assert ann.get("jobs") == []
    pass_time(ann.rig, 2.0)
    assert numbers(ann.get("jobs")) == [1]


def test_without_a_limit_a_message_is_held_for_as_long_as_its_reader_is_there() -> None:
    ann = client(redelivery_s=None)
    ann.put("jobs", 1)
    ann.get("jobs")
    pass_time(ann.rig, 1e6)
    assert ann.get("jobs") == []


def test_each_message_is_held_for_its_own_time() -> None:
    ann = client(redelivery_s=10.0)
    bob = Client(ann.rig, "b")
    ann.put("jobs", 1, 2)
    ann.get("jobs")
    pass_time(ann.rig, 6.0)
    ann.get("jobs")
    pass_time(ann.rig, 5.0)
    assert numbers(bob.get("jobs", 2)) == [1]
    pass_time(ann.rig, 6.0)
    assert numbers(bob.get("jobs", 2)) == [2]


# Not yours


def refused(ann: Client, counter: int) -> str:
    """The queue that a refusal of one settlement names."""
    ann.rig.run()
    (refusal,) = ann.peer.got(Refusal)
    assert (refusal.first, refusal.last, refusal.failure.code) == (counter, counter, "not-yours")
    return str(refusal.failure.details["queue"])


def test_acknowledging_twice_is_refused() -> None:
    ann = client()
    ann.put("jobs", 1)
    (hand,) = ann.get("jobs")
    ann.settle(DONE, hand)
    refused(ann, ann.settle(DONE, hand))


def test_what_another_holds_can_not_be_settled() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    ann.put("jobs", 1)
    (hand,) = ann.get("jobs")
    assert refused(bob, bob.settle(DONE, hand)) == "jobs"
    ann.settle(DONE, hand)
    ann.rig.run()
    assert ann.refusals == []


def test_an_earlier_delivery_can_not_be_settled() -> None:
    ann = client()
    ann.put("jobs", 1)
    (hand,) = ann.get("jobs")
    ann.settle(GIVE_BACK, hand)
    ann.get("jobs")
    assert refused(ann, ann.settle(DONE, hand)) == "jobs"
    assert ann.describe("jobs")["in_flight"] == 1


def test_what_went_back_after_too_long_can_not_be_settled() -> None:
    ann = client(redelivery_s=10.0)
    ann.put("jobs", 1)
    (hand,) = ann.get("jobs")
    pass_time(ann.rig, 11.0)
    refused(ann, ann.settle(DONE, hand))
    assert numbers(ann.get("jobs")) == [1]


def test_of_many_settlements_only_the_wrong_ones_are_refused() -> None:
    ann = client()
    ann.put("jobs", 1, 2, 3)
    one, two, three = ann.get("jobs", 3)
    last = ann.settle(DONE, one, one, two, three)
    ann.rig.run()
    assert ann.refusals == [(last - 2, last - 2, "not-yours")]
    assert ann.accepted == last
    assert ann.rig.queues.find("jobs").size == 0


@pytest.mark.parametrize(
    ("handles", "outcome"), [(b"", DONE), (b"x" * 11, DONE), (b"x" * 12, 4), (b"x" * 12, -1)]
)
def test_a_settlement_that_says_nothing_ends_the_connection(handles: bytes, outcome: int) -> None:
    ann = client()
    ann.peer.send(Settle(1, 0, handles, outcome))
    ann.rig.run()
    assert [bye.code for bye in ann.peer.got(Bye)] == ["protocol"]


# Connections


def test_a_clean_goodbye_gives_back_at_once() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    ann.put("jobs", 1)
    ann.get("jobs")
    ann.leave()
    (hand,) = bob.get("jobs")
    assert (hand.delivery, hand.redelivered) == (2, True)


def test_a_lost_connection_is_given_time_to_come_back() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    ann.put("jobs", 1)
    ann.get("jobs")
    ann.lose()
    pass_time(ann.rig, RESUME_S / 2)
    assert bob.get("jobs") == []
    pass_time(ann.rig, RESUME_S)
    assert numbers(bob.get("jobs")) == [1]


def test_a_client_that_comes_back_goes_on_holding_what_it_held() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    ann.put("jobs", 1)
    (hand,) = ann.get("jobs")
    ann.lose()
    ann.come()
    pass_time(ann.rig, 10 * RESUME_S)
    assert bob.get("jobs") == []
    ann.settle(DONE, hand)
    ann.rig.run()
    assert ann.refusals == []


def test_a_client_that_comes_back_before_its_loss_was_seen_goes_on_holding() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    ann.put("jobs", 1)
    (hand,) = ann.get("jobs")
    before = ann.peer
    ann.come()
    before.lose()
    pass_time(ann.rig, 10 * RESUME_S)
    assert bob.get("jobs") == []
    ann.settle(DONE, hand)
    ann.rig.run()
    assert ann.refusals == []


def test_another_life_of_the_same_client_holds_nothing() -> None:
    ann = client()
    ann.put("jobs", 1)
    ann.get("jobs")
    other = Client(ann.rig, "other")
    assert other.get("jobs") == []


def test_a_get_that_is_asked_again_gets_the_same_messages() -> None:
    ann = client()
    ann.put("jobs", 1, 2, 3)
    number = ann.request("get", queue="jobs", count=2)
    ann.rig.run()
    told = ann.got(number)
    ann.lose()
    ann.come()
    ann.request_again(number, "get", queue="jobs", count=2)
    ann.rig.run()
    assert ann.got(number) == told
    assert numbers(ann.get("jobs", 5)) == [3]


def test_a_get_that_was_handed_a_message_while_the_connection_was_breaking_gets_it_again() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    number = ann.wait("jobs")
    ann.rig.run()
    bob.put("jobs", 1)
    ann.lose()
    ann.come()
    ann.request_again(number, "get", queue="jobs", wait_s=None)
    ann.rig.run()
    assert numbers(ann.got(number) or []) == [1]


def test_a_get_that_is_asked_again_does_not_get_what_was_settled_since() -> None:
    ann = client()
    ann.put("jobs", 1, 2)
    number = ann.request("get", queue="jobs", count=1)
    ann.rig.run()
    (hand,) = ann.got(number) or []
    ann.lose()
    ann.come()
    ann.settle(DONE, hand)
    ann.request_again(number, "get", queue="jobs", count=1)
    ann.rig.run()
    assert numbers(ann.got(number) or []) == [2]


def test_a_get_of_a_client_that_is_gone_for_good_takes_nothing() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    ann.wait("jobs")
    ann.rig.run()
    ann.lose()
    bob.put("jobs", 1)
    assert numbers(bob.get("jobs")) == [1]


def test_a_cancelled_get_gives_its_messages_back_unopened() -> None:
    ann = client()
    ann.put("jobs", 1, 2)
    number = ann.request("get", queue="jobs")
    ann.rig.run()
    ann.ask("get.cancel", number=number)
    (hand,) = ann.get("jobs")
    assert (hand.n, hand.delivery) == (1, 1)


def test_a_cancelled_get_leaves_what_other_gets_have_got() -> None:
    ann = client()
    ann.put("jobs", 1, 2)
    ann.get("jobs")
    number = ann.request("get", queue="jobs")
    ann.rig.run()
    ann.ask("get.cancel", number=number)
    assert ann.describe("jobs")["in_flight"] == 1


def test_a_cancelled_get_waits_no_longer() -> None:
    ann = client()
    number = ann.wait("jobs")
    ann.ask("get.cancel", number=number)
    ann.put("jobs", 1)
    assert numbers(ann.get("jobs")) == [1]
    assert ann.got(number) is None


def test_a_get_that_is_cancelled_in_the_tick_in_which_it_is_served_gives_back() -> None:
    ann = client()
    number = ann.wait("jobs")
    ann.put("jobs", 1)
    ann.request("get.cancel", number=number)
    ann.rig.run()
    assert numbers(ann.get("jobs")) == [1]


# Purging


def test_a_purge_throws_away_what_matches_and_says_how_many() -> None:
    ann = client()
    ann.put("jobs", *range(10))
    assert ann.ask("queue.purge", queue="jobs", where="n < 4") == 4
    assert numbers(ann.get("jobs", 10)) == [4, 5, 6, 7, 8, 9]


def test_a_purge_leaves_what_is_in_readers_hands() -> None:
    ann = client()
    ann.put("jobs", 1, 2)
    (hand,) = ann.get("jobs")
    assert ann.ask("queue.purge", queue="jobs") == 1
    ann.settle(GIVE_BACK, hand)
    assert numbers(ann.get("jobs")) == [1]


def test_what_was_purged_is_not_there_after_a_crash() -> None:
    ann = client()
    ann.put("jobs", 1)
    ann.ask("queue.purge", queue="jobs")
    assert Client(ann.rig.restart(), "b").get("jobs") == []

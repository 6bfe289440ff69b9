"""Credit, and what becomes of events that a client is too slow for."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.guarded import ALL, come, guarded, may
from protocol.rig import Peer, Rig, event, persistent, reliable
from tidings.event.wire import encode_events
from tidings.protocol import consumer, session
from tidings.protocol.consumer import HOLD_S_MAX
from tidings.protocol.messages import Bye, Deliver, Put


def pair(rig: Rig, **arguments: object) -> tuple[Peer, Peer]:
    """A publisher, and a subscriber under number 1."""
    ann, bob = rig.peer("a"), rig.peer("b", name="bob")
    bob.subscribe(**arguments)  # type: ignore[arg-type]
    bob.frames.clear()
    return ann, bob


def test_no_more_events_are_sent_than_there_is_credit() -> None:
    rig = Rig()
    ann, bob = pair(rig, credit=3)
    ann.publish(*map(event, range(1, 6)))
    rig.run()
    assert bob.counters() == [1, 2, 3]
    bob.grant(1, 4)
    rig.run()
    assert bob.counters() == [1, 2, 3, 4]


def test_credit_is_a_total_and_a_repeated_or_lower_one_does_no_harm() -> None:
    rig = Rig()
    ann, bob = pair(rig, credit=2)
    ann.publish(*map(event, range(1, 10)))
    for total in (4, 4, 1, 0, -5):
        bob.grant(1, total)
    rig.run()
    assert bob.counters() == [1, 2, 3, 4]


def test_credit_for_a_subscription_that_is_not_there_is_passed_over() -> None:
    rig = Rig()
    bob = rig.peer()
    bob.grant(77, 10)
    rig.run()
    assert bob.frames == []


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("publish"), st.integers(1, 5)), st.tuples(st.just("grant"), st.integers(1, 7))
        )
    ),
    st.sampled_from(["drop-oldest", "block", "spill", "latest"]),
    st.integers(0, 5),
)
def test_within_the_limits_everything_arrives_once_in_order_whatever_the_credit(
    steps: list[tuple[str, int]], on_slow: str, total: int
) -> None:
    rig = Rig()
    ann, bob = pair(rig, on_slow=on_slow, slow_key="n" if on_slow == "latest" else None, credit=total)
    counter = 0
    for step, number in steps:
        if step == "publish":
            ann.publish(*(event(counter + more, n=counter + more) for more in range(1, number + 1)))
            counter += number
        else:
            total += number
            bob.grant(1, total)
        rig.run()
        assert bob.counters() == list(range(1, min(counter, total) + 1))
    bob.grant(1, counter)
    rig.run()
    assert bob.counters() == list(range(1, counter + 1))
    assert bob.notices == []


def test_the_oldest_are_dropped_and_their_number_is_told_before_what_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumer, "WAITING_MAX", 3)
    rig = Rig()
    ann, bob = pair(rig, credit=1)
    ann.publish(*map(event, range(1, 5)))
    ann.publish(*map(event, range(5, 8)))
    rig.run()
    assert bob.notices == []
    bob.grant(1, 100)
    rig.run()
    assert bob.counters() == [1, 5, 6, 7]
    assert bob.notices == [("gap", 1, {"dropped": 3, "reason": "slow"})]
    assert [type(message).__name__ for message, _ in bob.frames][:2] == ["Deliver", "Notice"]
    assert rig.broker.tallies["dropped", "slow"] == 3


def test_the_bytes_that_wait_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "WAITING_SIZE_MAX", 1_000)
    rig = Rig()
    ann, bob = pair(rig, credit=0)
    for first in range(1, 40, 5):
        ann.publish(*(event(counter, text="x" * 80) for counter in range(first, first + 5)))
    rig.run()
    bob.grant(1, 100)
    rig.run()
    ((_, _, gap),) = bob.notices
    assert bob.counters() == list(range(gap["dropped"] + 1, 41))
    assert 8 <= len(bob.counters()) <= 10


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 40)), max_size=12), st.integers(0, 4))
def test_dropped_and_delivered_together_are_all_there_was(parts: list[tuple[int, int]], credit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consumer, "WAITING_MAX", 7)
        patch.setattr(consumer, "WAITING_SIZE_MAX", 150)
        rig = Rig()
        ann, bob = pair(rig, credit=credit)
        counter = 0
        for count, size in parts:
            ann.publish(*(event(counter + more, text="x" * size) for more in range(1, count + 1)))
            counter += count
        bob.grant(1, 1_000)
        rig.run()
    dropped = sum(details["dropped"] for _, _, details in bob.notices)
    assert len(bob.counters()) + dropped == counter
    assert bob.counters() == [
        *range(1, min(credit, counter) + 1),
        *range(counter - len(bob.counters()) + min(credit, counter) + 1, counter + 1),
    ]


def test_latest_keeps_the_newest_for_each_value() -> None:
    rig = Rig()
    ann, bob = pair(rig, on_slow="latest", slow_key="room", credit=1)
    rooms = ["x", "x", "y", "x", "z", "y"]
    ann.publish(*(event(counter, room=room) for counter, room in enumerate(rooms, 1)))
    rig.run()
    bob.grant(1, 100)
    rig.run()
    assert bob.counters() == [4, 5, 6]
    assert bob.notices == []


def test_latest_by_a_header_field() -> None:
    rig = Rig()
    ann, bob = pair(rig, on_slow="latest", slow_key="type", credit=0)
    ann.publish(event(1, "x"), event(2, "y"), event(3, "x"))
    bob.grant(1, 100)
    rig.run()
    assert bob.counters() == [2, 3]


def test_events_without_the_attribute_are_one_value_of_it() -> None:
    rig = Rig()
    ann, bob = pair(rig, on_slow="latest", slow_key="room", credit=0)
    ann.publish(event(1), event(2), event(3, room="x"))
    bob.grant(1, 100)
    rig.run()
    assert bob.counters() == [2, 3]


@pytest.mark.parametrize(("limit", "most"), [("WAITING_MAX", 2), ("WAITING_SIZE_MAX", 50)])
def test_latest_with_too_many_values_drops_the_oldest_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(consumer, limit, most)
    rig = Rig()
    ann, bob = pair(rig, on_slow="latest", slow_key="n", credit=0)
    for counter in range(1, 7):
        ann.publish(event(counter, n=counter))
    rig.run()
    assert bob.notices == []
    bob.grant(1, 100)
    rig.run()
    assert bob.counters() == [5, 6]
    assert bob.notices == [("gap", 1, {"dropped": 4, "reason": "slow"})]


def test_latest_counts_only_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "WAITING_SIZE_MAX", 500)
    rig = Rig()
    ann, bob = pair(rig, on_slow="latest", slow_key="n", credit=0)
    free = bob.session.holdings.size
    for counter in range(1, 100):
        ann.publish(event(counter, n=counter % 2))
    rig.run()
    bob.grant(1, 100)
    rig.run()
    assert bob.counters() == [98, 99]
    assert bob.notices == []
    assert bob.session.holdings.size == free


@pytest.mark.parametrize("how", [{}, {"on_slow": "latest", "slow_key": "n"}, {"on_slow": "block"}])
def test_where_memory_is_short_the_older_half_of_what_waits_goes(how: dict[str, object]) -> None:
    rig = Rig()
    ann, bob = pair(rig, credit=0, **how)
    for counter in range(1, 9):
        ann.publish(event(counter, n=counter))
        rig.run()
    waiting = bob.session.subscriptions._consumers[1]
    assert isinstance(waiting, consumer.WaitingConsumer)
    assert waiting.lose_oldest()
    bob.grant(1, 100)
    rig.run()
    assert bob.counters() == [5, 6, 7, 8]
    assert bob.notices == [("gap", 1, {"dropped": 4, "reason": "memory"})]


@pytest.mark.parametrize("end", ["sent", "dropped", "unsubscribed"])
def test_nothing_is_counted_of_what_waits_no_longer(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setattr(consumer, "WAITING_MAX", 10)
    rig = Rig()
    ann, bob = pair(rig, credit=0)
    free = bob.session.holdings.size
    waiting = bob.session.subscriptions._consumers[1]
    assert isinstance(waiting, consumer.DroppingConsumer)
    for counter in range(1, 60, 3):
        ann.publish(*(event(counter + more) for more in range(3)))
        rig.run()
    assert waiting.count == 10
    assert bob.session.holdings.size > free
    if end == "sent":
        bob.grant(1, 100)
    elif end == "unsubscribed":
        bob.ask("unsubscribe", number=1)
    else:
        while waiting.lose_oldest():
            pass
    rig.run()
    assert bob.session.holdings.size == free
    assert end == "unsubscribed" or (waiting.count, waiting.size) == (0, 0)


def test_latest_without_a_key_is_refused() -> None:
    rig = Rig()
    reply = rig.peer().ask("subscribe", number=1, on_slow="latest")
    assert reply.error is not None
    assert reply.error.code == "protocol"
    assert rig.broker.exchange.subscriptions == 0


def test_block_holds_back_acceptance_until_nothing_waits() -> None:
    rig = Rig()
    ann, bob = pair(rig, on_slow="block", credit=1)
    eve = rig.peer("e")
    ann.publish(event(1), event(2), event(3))
    rig.run()
    eve.publish(event(1, "other"))
    assert ann.accepted == []
    bob.grant(1, 2)
    rig.run()
    assert ann.accepted == []
    bob.grant(1, 10)
    rig.run()
    assert ann.accepted == [3]
    assert eve.accepted == [1]
    assert len(bob.counters()) == 4


def test_block_holds_back_only_who_published_what_waits() -> None:
    rig = Rig()
    ann, _ = pair(rig, on_slow="block", credit=0, filter="n = 1")
    eve = rig.peer("e")
    ann.publish(event(1, n=1))
    eve.publish(event(1, n=2))
    rig.run()
    assert (ann.accepted, eve.accepted) == ([], [1])


@pytest.mark.parametrize("end", ["lose", "unsubscribe", "bye"])
def test_a_blocking_subscription_that_ends_lets_everybody_go(end: str) -> None:
    rig = Rig()
    ann, bob = pair(rig, on_slow="block", credit=0)
    ann.publish(event(1))
    rig.run()
    assert ann.accepted == []
    if end == "lose":
        bob.lose()
    elif end == "bye":
        bob.send(Bye())
    else:
        bob.ask("unsubscribe", number=1)
    rig.run()
    assert ann.accepted == [1]


def test_two_blocking_subscriptions_must_both_have_caught_up() -> None:
    rig = Rig()
    ann, bob = pair(rig, on_slow="block", credit=0)
    bob.subscribe(2, on_slow="block", credit=0)
    ann.publish(event(1))
    bob.grant(1, 1)
    rig.run()
    assert ann.accepted == []
    bob.grant(2, 1)
    rig.run()
    assert ann.accepted == [1]


def test_a_publisher_that_leaves_while_held_is_no_trouble() -> None:
    rig = Rig()
    ann, bob = pair(rig, on_slow="block", credit=0)
    ann.publish(event(1))
    ann.lose()
    rig.run()
    bob.grant(1, 1)
    rig.run()
    assert bob.counters() == [1]


def test_a_client_may_block_itself_and_go_on() -> None:
    rig = Rig()
    ann = rig.peer()
    ann.subscribe(on_slow="block", credit=0)
    ann.publish(event(1))
    rig.run()
    assert ann.accepted == []
    ann.grant(1, 1)
    rig.run()
    assert ann.accepted == [1]


# What a hold does not touch


def test_whatever_else_a_held_publisher_does_is_accepted() -> None:
    rig = Rig()
    ann, _ = pair(rig, on_slow="block", credit=0, filter="n = 1")
    assert ann.ask("queue.create", name="jobs", persistent=False, keep=False).error is None
    ann.publish(event(1, n=2), event(2, n=1), event(3, n=1))
    rig.run()
    assert ann.accepted == [1]
    ann.publish(event(4, n=1))
    rig.run()
    assert ann.accepted == [1]
    ann.send(Put("jobs"), encode_events([event(5)]))
    rig.run()
    assert ann.accepted == [1, 5]
    ann.publish(event(6, n=1), event(7, n=2), event(8, n=1))
    rig.run()
    assert ann.accepted == [1, 5, 7]


def test_in_one_turn_too_what_comes_before_held_events_is_accepted() -> None:
    rig = Rig()
    ann, bob = pair(rig, on_slow="block", credit=0, filter="n = 1")
    assert ann.ask("queue.create", name="jobs", persistent=False, keep=False).error is None
    ann.publish(event(1, n=1))
    ann.send(Put("jobs"), encode_events([event(2)]))
    ann.publish(event(3, n=1))
    ann.publish(event(4, n=1))
    rig.run()
    assert ann.accepted == [2]
    bob.grant(1, 10)
    rig.run()
    assert ann.accepted == [2, 4]


def test_what_is_refused_behind_a_held_event_does_not_wait_for_it() -> None:
    rig = guarded(ann=[may("publish", "n = 1")], bob=ALL)
    ann, bob = come(rig, "ann"), come(rig, "bob")
    bob.subscribe(on_slow="block", credit=0)
    ann.publish(event(1, n=1), event(2, n=2))
    rig.run()
    assert ann.accepted == [2]


def test_a_watch_of_a_queue_holds_nobody() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    arguments = {"name": "jobs", "persistent": False, "keep": False, "bind": ""}
    assert ann.ask("queue.create", **arguments).error is None
    bob.subscribe(queue="jobs", on_slow="block", credit=0)
    ann.publish(event(1), event(2))
    rig.run()
    assert ann.accepted == [2]


# How a hold ends


def pass_time(rig: Rig, seconds: float) -> None:
    rig.now += seconds
    rig.broker.wake(rig.now)
    rig.run()


def test_a_hold_ends_after_a_time_without_credit_and_then_the_oldest_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidings.protocol.consumer.WAITING_MAX", 2)
    rig = Rig()
    ann, bob = pair(rig, on_slow="block", credit=0)
    ann.publish(*(event(n) for n in range(1, 6)))
    rig.run()
    assert rig.broker.wake_at == rig.now + HOLD_S_MAX
    pass_time(rig, HOLD_S_MAX - 0.1)
    assert ann.accepted == []
    pass_time(rig, 0.1)
    assert ann.accepted == [5]
    assert rig.broker.tallies["dropped", "no-credit"] == 3
    assert rig.broker.tallies["holds_ended", "no-credit"] == 1
    ann.publish(event(6))
    rig.run()
    assert ann.accepted == [5, 6]
    bob.grant(1, 1)
    rig.run()
    assert bob.notices == [("gap", 1, {"dropped": 4, "reason": "slow"})]
    assert bob.counters() == [5]
    ann.publish(event(7))
    rig.run()
    assert ann.accepted == [5, 6]  # who gives credit may hold again
    pass_time(rig, HOLD_S_MAX)
    assert ann.accepted == [5, 6, 7]


def test_a_subscription_that_gives_credit_may_hold_on() -> None:
    rig = Rig()
    ann, bob = pair(rig, on_slow="block", credit=0)
    ann.publish(*(event(n) for n in range(1, 6)))
    rig.run()
    for credit in (1, 2, 3):
        pass_time(rig, HOLD_S_MAX - 0.1)
        bob.grant(1, credit)
    pass_time(rig, HOLD_S_MAX - 0.1)
    assert ann.accepted == []
    bob.grant(1, 3)  # which is no more than before
    pass_time(rig, 0.1)
    assert ann.accepted == [5]


def test_more_publishers_give_a_subscription_no_more_time() -> None:
    rig = Rig()
    ann, _ = pair(rig, on_slow="block", credit=0)
    eve = rig.peer("e")
    ann.publish(event(1))
    pass_time(rig, HOLD_S_MAX - 0.1)
    eve.publish(event(1))
    rig.run()
    assert eve.accepted == []
    pass_time(rig, 0.1)
    assert (ann.accepted, eve.accepted) == ([1], [1])
    assert rig.broker.wake_at == inf


def test_who_has_no_right_to_block_is_told_which_one_it_needs() -> None:
    rig = guarded(ann=[may("subscribe")], bob=[may("subscribe"), may("block")])
    reply = come(rig, "ann").ask("subscribe", number=1, on_slow="block")
    assert reply.error is not None
    assert reply.error.code == "not-allowed"
    assert reply.error.text == "'ann' may not block: on_slow='block' needs a rule with the action 'block'"
    come(rig, "bob").subscribe(on_slow="block")


def test_what_spills_is_stored_and_read_back_in_order() -> None:
    rig = Rig()
    ann, bob = pair(rig, on_slow="spill", credit=2)
    ann.publish(event(1), event(2))
    rig.run()
    assert rig.stored == []
    ann.publish(event(3), event(4))
    ann.publish(event(5))
    rig.run()
    assert ann.accepted[-1] == 5
    assert bob.counters() == [1, 2]
    bob.grant(1, 4)
    rig.run()
    assert bob.counters() == [1, 2, 3, 4]
    bob.grant(1, 100)
    rig.run()
    ann.publish(event(6))
    rig.run()
    assert bob.counters() == [1, 2, 3, 4, 5, 6]
    assert bob.positions()[-1] is None


def test_a_live_delivery_of_a_stored_event_waits_for_its_mark() -> None:
    rig = Rig()
    ann, bob = pair(rig)
    ann.publish(event(1), persistent(2))
    rig.tick()
    assert bob.events() == []
    rig.sync()
    assert bob.counters() == [1, 2]


def test_what_waited_for_credit_still_waits_for_its_mark() -> None:
    rig = Rig()
    ann, bob = pair(rig, credit=0)
    ann.publish(reliable(1))
    rig.tick()
    bob.grant(1, 5)
    rig.tick()
    assert bob.events() == []
    rig.sync()
    assert bob.counters() == [1]


def test_a_transient_delivery_does_not_wait_for_other_peoples_commits() -> None:
    rig = Rig()
    ann, bob = pair(rig, filter="n = 1")
    eve = rig.peer("e")
    eve.publish(persistent(1, n=2))
    rig.tick()
    ann.publish(event(1, n=1))
    rig.tick()
    assert bob.counters() == [1]


def test_a_client_that_never_reads_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "OUTBOX_SIZE_MAX", 500)
    monkeypatch.setattr(session, "WEIGHT_STALE", 100)  # what is less is not weighed
    rig = Rig()
    ann, bob = pair(rig)
    rig.peers.remove(bob)
    for counter in range(1, 30):
        ann.publish(persistent(counter, text="x" * 50))
        rig.broker.finish_tick()
    assert bob.session.is_closed
    assert rig.broker.exchange.subscriptions == 0
    size = bob.session.outbox.size
    ann.publish(persistent(30))
    assert bob.session.outbox.size == size
    assert rig.broker.tallies["closed", "limit"] == 1


def test_rows_are_cut_out_of_a_batch_for_each_subscription() -> None:
    rig = Rig()
    ann, bob = pair(rig, filter="n > 2")
    bob.subscribe(2, "n < 3")
    ann.publish(*(event(counter, n=counter) for counter in range(1, 6)))
    rig.run()
    assert (bob.counters(1), bob.counters(2)) == ([3, 4, 5], [1, 2])
    assert len(bob.got(Deliver)) == 2

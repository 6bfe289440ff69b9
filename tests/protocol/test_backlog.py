"""Filters that must be tried on every event are matched in the time of those who subscribed."""

from __future__ import annotations

from itertools import count
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.guarded import ALL, come, guarded
from protocol.rig import Peer, Rig, event, reliable
from protocol.test_memory import tight
from protocol.test_turns import settle, sliced
from tidings.event import Batch, Event
from tidings.exchange import EventSink, NodeSubscription, Positions, Rows
from tidings.filters import Filter
from tidings.protocol import backlog
from tidings.protocol.arguments import SubscribeRequest, inbox_name
from tidings.protocol.backlog import Backlog
from tidings.protocol.messages import Bye

UNINDEXED = "n < m"


class Kept(EventSink):
    """A sink that keeps the counters of what it gets."""

    def __init__(self) -> None:
        self.counters: list[int] = []

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        assert positions is None
        self.counters += [batch[row].counter for row in rows]


def rising(counter: int) -> Event:
    """An event that matches."""
    return event(counter, n=1, m=2)


def gaps(peer: Peer) -> list[tuple[int, int, str]]:
    """Subscription, how many were dropped, and why."""
    return [(number, told["dropped"], told["reason"]) for kind, number, told in peer.notices if kind == "gap"]


def test_a_publisher_is_through_before_such_a_filter_is_tried() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe(1, UNINDEXED)
    bob.subscribe(2, "n = 1")
    ann.publish(rising(1))
    rig.let_out()
    assert (bob.counters(1), bob.counters(2)) == ([], [1])
    assert rig.broker.turns._shares.keys() == {bob.session.subscriptions._backlog}
    assert bob.session.subscriptions._backlog in bob.session.share.workers
    rig.run()
    assert bob.counters(1) == [1]


@given(st.lists(st.sampled_from(["subscribe", "end", "one", "many", "tick"]), max_size=30))
def test_whatever_comes_between_each_subscription_gets_what_was_published_since_in_order(
    steps: list[str],
) -> None:
    rig = sliced()
    ann = rig.peer()
    counters, numbers = count(1), count(1)
    expected: dict[int, list[int]] = {}
    alive: list[int] = []
    for step in steps:
        if step == "subscribe":
            alive.append(number := next(numbers))
            expected[number] = []
            ann.request("subscribe", number=number, filter=UNINDEXED, credit=1_000)
        elif step == "end" and alive:
            settle(rig)  # it loses what has not been matched yet
            ann.request("unsubscribe", number=alive.pop())
        elif step in ("one", "many"):
            sent = [event(next(counters), n=n, m=2) for n in range(1 if step == "one" else 20)]
            ann.publish(*sent)
            for number in alive:
                expected[number] += [one.counter for one in sent if one["n"] < 2]
        else:
            rig.tick()
    settle(rig)
    assert {number: ann.counters(number) for number in expected} == expected


def test_what_was_published_before_somebody_subscribed_is_not_for_it() -> None:
    waiting = Backlog(Rig().peer().session)
    early, late = Kept(), Kept()
    waiting.add(NodeSubscription(Filter(UNINDEXED), early))
    waiting.put(Batch.of([rising(1)]), None)
    waiting.add(NodeSubscription(Filter(UNINDEXED), late))
    waiting.put(Batch.of([rising(2)]), None)
    assert not waiting.work(inf)
    assert (early.counters, late.counters) == ([1, 2], [2])


def test_past_its_limit_a_backlog_loses_the_oldest_and_that_is_told_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backlog, "BACKLOG_SIZE_MAX", 3_000)
    monkeypatch.setattr(backlog, "LOST_AT_ONCE", 1_000)
    rig = Rig()
    bob = rig.peer("b")
    bob.subscribe(1, UNINDEXED)
    bob.subscribe(2, UNINDEXED, credit=0)
    for _ in range(100):
        rig.broker.announce(Event("t", n=1, m=2))
    rig.run()
    got = bob.counters(1)
    lost = rig.broker.tallies["dropped", "untried"]
    assert 0 < len(got) < 20
    assert got == list(range(lost + 1, 101))
    assert gaps(bob) == [(1, lost, "slow")]
    bob.grant(2, 1_000)
    rig.run()
    assert bob.counters(2) == got
    assert gaps(bob)[1:] == [(2, lost, "slow")]


def test_who_subscribed_after_what_was_lost_is_not_told_of_it() -> None:
    rig = Rig()
    bob = rig.peer("b")
    bob.subscribe(1, UNINDEXED)
    rig.broker.announce(Event("t", n=1, m=2))
    bob.session.subscriptions.subscribe(
        SubscribeRequest(UNINDEXED, number=2, credit=1_000)
    )  # before it is matched
    waiting = bob.session.subscriptions._backlog
    assert waiting is not None
    assert waiting.lose_oldest()
    rig.broker.announce(Event("t", n=1, m=2))
    rig.run()
    assert gaps(bob) == [(1, 1, "memory")]
    assert (bob.counters(1), bob.counters(2)) == ([2], [2])


def test_what_waits_to_be_matched_counts_in_the_account_of_its_session() -> None:
    rig = tight(memory_session_max=200_000)
    bob = rig.peer("b")
    bob.subscribe(1, UNINDEXED)
    for _ in range(30):
        rig.broker.announce(Event("t", n=1, m=2, text="x" * 10_000))
    assert bob.session.holdings.size > 300_000
    bob.session.weigh()
    rig.broker.memory.enforce()
    assert bob.session.holdings.size <= 200_000
    assert rig.broker.tallies["dropped", "memory"] > 0
    rig.run()
    assert not bob.session.is_closed
    assert bob.session.holdings.size == 0
    assert [reason for _, _, reason in gaps(bob)] == ["memory"]


def test_what_depends_on_a_commit_is_delivered_after_it_and_lost_with_it() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe(1, UNINDEXED)
    ann.publish(reliable(1, n=1, m=2))
    rig.tick()
    assert bob.counters(1) == []
    rig.sync()
    assert bob.counters(1) == [1]
    ann.publish(reliable(2, n=1, m=2))
    assert bob.session.subscriptions.depends_on(rig.broker.promise)
    rig.tick()
    rig.fail()
    assert bob.counters(1) == [1]
    assert len(bob.got(Bye)) == 1


def test_with_a_session_its_backlog_ends() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe(1, UNINDEXED)
    bob.subscribe(2, "n = 1")
    assert rig.broker.exchange.subscriptions == 2
    ann.publish(rising(1))
    bob.lose()
    rig.run()
    assert not rig.broker.exchange.later
    assert (rig.broker.exchange.subscriptions, len(rig.broker.turns)) == (0, 0)
    assert bob.session.holdings.size == 0


def test_one_that_holds_publishers_is_tried_while_they_publish() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe(1, UNINDEXED, on_slow="block", credit=0)
    ann.publish(rising(1))
    rig.run()
    assert not rig.broker.exchange.later
    assert ann.accepted == []


def test_of_the_inboxes_of_others_nothing_is_told() -> None:
    rig = guarded(ann=ALL, bob=ALL)
    ann, bob = come(rig, "ann"), come(rig, "bob")
    bob.subscribe(1, UNINDEXED)
    for subject in (inbox_name("ann", "1"), inbox_name("bob", "1"), "else"):
        rig.broker.announce(Event("t", n=1, m=2, subject=subject))
    rig.run()
    assert [one.subject for one in bob.events(1)] == [inbox_name("bob", "1"), "else"]
    assert ann.events(1) == []

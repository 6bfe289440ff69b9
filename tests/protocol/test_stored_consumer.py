"""Durable subscriptions, history, and the place where the store and the live stream meet."""

from __future__ import annotations

from typing import Any

import pytest
from effort import often
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from protocol.rig import Peer, Rig, event, persistent, reliable, with_header
from tidings.protocol import cursors, stored_consumer
from tidings.protocol.messages import Bye
from tidings.store.interface import Trim


def published(rig: Rig, first: int, last: int, **attributes: Any) -> None:
    """Have reliable events published by someone else, one commit each."""
    peer = rig.peer("pub", name="pub")
    for counter in range(first, last + 1):
        peer.publish(reliable(counter, **attributes))
        rig.run()
    peer.lose()


def test_a_durable_subscription_gets_what_was_published_while_it_was_away() -> None:
    rig = Rig()
    bob = rig.peer()
    bob.subscribe(durable="d")
    bob.lose()
    published(rig, 1, 3)
    bob = rig.peer()
    bob.subscribe(durable="d")
    assert bob.counters() == [1, 2, 3]
    assert bob.positions() == [1, 2, 3]
    assert bob.marked() == []


def test_a_durable_subscription_begins_with_what_comes_after_it() -> None:
    rig = Rig()
    rig.peer("x").subscribe(durable="other")
    published(rig, 1, 3)
    bob = rig.peer()
    bob.subscribe(durable="d")
    published(rig, 4, 5)
    assert bob.counters() == [4, 5]


@pytest.mark.parametrize(("since", "expected"), [(-5, [1, 2, 3]), (0, [1, 2, 3]), (2, [2, 3]), (99, [])])
@pytest.mark.parametrize("durable", ["d", None])
def test_it_may_begin_at_a_position_in_the_past(since: int, expected: list[int], durable: str | None) -> None:
    rig = Rig()
    rig.peer("x").publish(*map(persistent, range(1, 4)))
    rig.run()
    bob = rig.peer()
    bob.subscribe(durable=durable, since=since)
    assert bob.counters() == expected
    published(rig, 4, 4)
    assert bob.counters() == [*expected, 4]
    if durable:
        bob.acknowledge(1, 4)
        rig.run()
        assert rig.state.durables[0].cursor == 4


@pytest.mark.parametrize("durable", ["d", None])
def test_it_may_begin_at_a_time_in_the_past(durable: str | None) -> None:
    rig = Rig()
    ann = rig.peer("x")
    for counter in range(1, 5):
        rig.now += 10
        ann.publish(persistent(counter))
        rig.run()
    bob = rig.peer()
    bob.subscribe(durable=durable, since_us=int((rig.now - 10) * 1e6), credit=1)
    assert bob.counters() == [3]
    bob.grant(1, 100)
    ann.publish(persistent(5))
    rig.run()
    assert bob.counters() == [3, 4, 5]


def test_a_time_in_an_empty_past_is_now_and_is_not_looked_up_again() -> None:
    rig = Rig()
    bob = rig.peer()
    bob.subscribe(since_us=0, credit=1)
    rig.peer("x").publish(*map(persistent, range(1, 4)))
    rig.run()
    bob.grant(1, 100)
    rig.run()
    assert bob.counters() == [1, 2, 3]


def looked_up_late() -> tuple[Rig, Peer, stored_consumer.StoredConsumer, int]:
    """Of four events a durable subscription wants those from a time on, and that is not looked up yet."""
    rig = Rig()
    for counter in range(1, 5):
        rig.now += 10
        rig.peer(f"x{counter}").publish(persistent(counter))
        rig.run()
    peer, since_us = rig.peer("one"), int((rig.now - 10) * 1e6)
    peer.request("subscribe", number=1, durable="d", since_us=since_us, credit=9)
    rig.tick()
    (stream,) = rig.broker.take_reads()
    return rig, peer, stream, rig.store.position_at(since_us)


def test_a_time_that_is_found_when_the_client_has_gone_is_found_for_the_next() -> None:
    rig, first, stream, position = looked_up_late()
    first.lose()
    stream.begin(position)
    stream.take(rig.store.read(stream.place, 1 << 20))
    second = rig.peer("two")
    second.subscribe(durable="d")
    assert (first.counters(), second.counters()) == ([], [3, 4])


def test_a_time_that_is_found_when_another_has_begun_there_changes_nothing() -> None:
    rig, _, stream, position = looked_up_late()
    second = rig.peer("two")
    second.subscribe(durable="d")
    assert second.counters() == [3, 4]
    second.acknowledge(1, 4)
    stream.begin(position)
    stream.take(rig.store.read(stream.place, 1 << 20))
    second.lose()
    third = rig.peer("two")
    third.subscribe(durable="d")
    assert third.counters() == []


def test_what_was_acknowledged_does_not_come_again() -> None:
    rig = Rig()
    bob = rig.peer()
    bob.subscribe(durable="d")
    published(rig, 1, 5)
    bob.acknowledge(1, 3)
    rig.run()
    bob.lose()
    bob = rig.peer()
    bob.subscribe(durable="d")
    assert bob.counters() == [4, 5]
    assert bob.marked() == [4, 5]


def test_an_acknowledgement_of_what_was_never_sent_is_passed_over() -> None:
    rig = Rig()
    bob = rig.peer()
    bob.subscribe(durable="d", credit=2)
    published(rig, 1, 4)
    for position in (3, 2**63, -1, 0):
        bob.acknowledge(1, position)
    bob.acknowledge(9, 1)
    rig.run()
    assert rig.state.durables[0].cursor == 0
    bob.acknowledge(1, 2)
    bob.acknowledge(1, 1)
    rig.run()
    assert rig.state.durables[0].cursor == 2


def test_events_leave_only_after_it_is_stored_that_they_are_handed_out() -> None:
    rig = Rig()
    bob = rig.peer()
    bob.subscribe(durable="d")
    bob.lose()
    published(rig, 1, 2)
    bob = rig.peer()
    bob.request("subscribe", number=1, durable="d", credit=9)
    rig.tick()
    rig.read()
    rig.tick()
    assert bob.events() == []
    rig.sync()
    assert bob.counters() == [1, 2]
    assert rig.state.durables[0].handed >= 2


def test_after_a_crash_what_may_have_been_delivered_is_marked_and_the_rest_comes_too() -> None:
    rig = Rig()
    bob = rig.peer()
    bob.subscribe(durable="d")
    published(rig, 1, 2)
    assert bob.counters() == [1, 2]
    rig = rig.restart()
    bob = rig.peer()
    bob.subscribe(durable="d")
    assert bob.counters() == [1, 2]
    assert bob.marked() == [1, 2]


def test_new_events_are_not_marked_though_the_stored_mark_is_ahead_of_them() -> None:
    rig = Rig()
    bob = rig.peer()
    bob.subscribe(durable="d")
    published(rig, 1, 1)
    bob.acknowledge(1, 1)
    rig.run()
    bob.lose()
    bob = rig.peer()
    bob.subscribe(durable="d")
    published(rig, 2, 3)
    assert bob.counters() == [2, 3]
    assert bob.marked() == []


def test_at_most_so_many_are_marked_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_consumer, "HANDED_AHEAD", 2)
    rig = Rig()
    bob = rig.peer()
    bob.subscribe(durable="d")
    published(rig, 1, 1)
    bob.lose()
    published(rig, 2, 6)
    bob = rig.peer()
    bob.subscribe(durable="d")
    assert bob.counters() == [1, 2, 3, 4, 5, 6]
    assert bob.marked() == [1, 2, 3]


def test_another_connection_takes_a_durable_subscription_over() -> None:
    rig = Rig()
    first = rig.peer("one")
    first.subscribe(3, durable="d")
    published(rig, 1, 2)
    second = rig.peer("two")
    second.subscribe(4, durable="d")
    assert first.notices == [("ended", 3, {"reason": "taken over"})]
    assert second.counters(4) == second.marked(4) == [1, 2]
    first.acknowledge(3, 2)
    published(rig, 3, 3)
    assert first.counters(3) == [1, 2]
    assert second.counters(4) == [1, 2, 3]
    first.lose()
    published(rig, 4, 4)
    assert second.counters(4) == [1, 2, 3, 4]


def test_a_connection_may_take_over_from_itself_under_another_number() -> None:
    rig = Rig()
    bob = rig.peer()
    bob.subscribe(1, durable="d")
    bob.subscribe(2, durable="d")
    assert bob.notices == [("ended", 1, {"reason": "taken over"})]
    assert bob.ask("unsubscribe", number=1).error is not None
    published(rig, 1, 1)
    assert (bob.counters(1), bob.counters(2)) == ([], [1])


def test_durable_names_belong_to_their_owners() -> None:
    rig = Rig()
    ann, bob = rig.peer("a", name="ann"), rig.peer("b", name="bob")
    ann.subscribe(durable="d", filter="n = 1")
    bob.subscribe(durable="d", filter="n = 2")
    assert ann.notices == []
    reply = bob.ask("unsubscribe", durable="e")
    assert reply.error is not None
    assert reply.error.code == "not-found"


def test_a_durable_name_with_another_filter_is_refused_and_stays_as_it_is() -> None:
    rig = Rig()
    bob = rig.peer()
    bob.subscribe(1, "n = 1", durable="d")
    reply = bob.ask("subscribe", number=2, filter="n = 2", durable="d", credit=5)
    assert reply.error is not None
    assert reply.error.code == "exists"
    assert bob.notices == []
    published(rig, 1, 1, n=1)
    assert bob.counters(1) == [1]


def test_unsubscribed_for_good_it_is_gone_from_the_disk_too() -> None:
    rig = Rig()
    first, second = rig.peer("one"), rig.peer("two")
    first.subscribe(1, durable="d")
    assert second.ask("unsubscribe", durable="d").error is None
    assert first.notices == [("ended", 1, {"reason": "unsubscribed"})]
    assert rig.state.durables == []
    assert rig.broker.exchange.subscriptions == 0


def test_unsubscribed_by_its_number_it_stays_and_goes_on_collecting() -> None:
    rig = Rig()
    bob = rig.peer()
    bob.subscribe(1, durable="d")
    assert bob.ask("unsubscribe", number=1).error is None
    published(rig, 1, 2)
    assert bob.counters() == []
    bob.subscribe(2, durable="d")
    assert bob.counters(2) == [1, 2]


def test_an_event_that_has_outlived_its_ttl_is_not_delivered_from_the_store() -> None:
    rig = Rig()
    bob = rig.peer()
    bob.subscribe(durable="d", credit=0)
    ann = rig.peer("x")
    ann.publish(
        with_header(event(1), delivery="reliable", ttl_s=5.0),
        with_header(event(2), delivery="reliable", ttl_s=50.0),
        reliable(3),
    )
    rig.run()
    rig.now += 10
    bob.grant(1, 10)
    rig.run()
    assert bob.counters() == [2, 3]


@pytest.mark.parametrize(("passed_s", "expected"), [(4.999, [1]), (5.0, [])])
def test_an_event_lives_up_to_its_ttl_and_no_longer(passed_s: float, expected: list[int]) -> None:
    rig = Rig()
    bob = rig.peer()
    bob.subscribe(durable="d", credit=0)
    rig.peer("x").publish(with_header(event(1), delivery="reliable", ttl_s=5.0))
    rig.run()
    rig.now += passed_s
    bob.grant(1, 10)
    rig.run()
    assert bob.counters() == expected


def test_transient_events_reach_a_durable_subscription_that_keeps_up() -> None:
    rig = Rig()
    bob = rig.peer()
    bob.subscribe(durable="d")
    ann = rig.peer("x")
    ann.publish(event(1), reliable(2), event(3))
    rig.run()
    assert bob.counters() == [1, 2, 3]
    assert bob.positions() == [None, 1, None]


def test_transient_events_that_a_stream_was_behind_for_are_told_as_a_gap() -> None:
    rig = Rig()
    bob = rig.peer()
    bob.subscribe(durable="d", credit=2)
    ann = rig.peer("x")
    ann.publish(event(1), event(2), event(3), reliable(4), event(5))
    rig.run()
    assert bob.counters() == [1, 2]
    bob.grant(1, 100)
    rig.run()
    assert bob.counters() == [1, 2, 4]
    assert bob.notices == [("gap", 1, {"dropped": 2, "reason": "slow"})]
    ann.publish(event(6))
    rig.run()
    assert bob.counters() == [1, 2, 4, 6]


def test_a_batch_larger_than_the_credit_does_not_strand_a_stream() -> None:
    rig = Rig()
    bob = rig.peer()
    bob.subscribe(since=1, credit=3)
    ann = rig.peer("x")
    ann.publish(*map(event, range(1, 6)))
    rig.run()
    bob.grant(1, 10)
    ann.publish(event(6))
    rig.run()
    assert bob.counters() == [1, 2, 3, 6]


def test_a_subscriber_far_behind_reads_in_pieces_of_its_credit() -> None:
    rig = Rig(read_size=100)
    bob = rig.peer()
    bob.subscribe(durable="d")
    bob.lose()
    published(rig, 1, 30)
    bob = rig.peer()
    bob.subscribe(durable="d", credit=7)
    assert bob.counters() == list(range(1, 8))
    bob.grant(1, 29)
    rig.run()
    assert bob.counters() == list(range(1, 30))


def test_a_reading_that_was_asked_for_another_client_is_not_mistaken() -> None:
    rig = Rig()
    first = rig.peer("one")
    first.subscribe(durable="d", credit=2)
    published(rig, 1, 4)
    first.grant(1, 9)
    rig.tick()
    (stream,) = rig.broker.take_reads()
    stale = rig.store.read(stream.next, 1 << 20)
    second = rig.peer("two")
    second.request("subscribe", number=1, durable="d", credit=9)
    rig.tick()
    stream.take(stale)
    rig.run()
    assert second.counters() == [1, 2, 3, 4]


def test_a_reading_that_comes_back_after_the_client_has_gone_is_forgotten() -> None:
    rig = Rig()
    bob = rig.peer()
    bob.subscribe(durable="d", credit=0)
    published(rig, 1, 2)
    bob.grant(1, 9)
    (stream,) = rig.broker.take_reads()
    bob.lose()
    stream.take(rig.store.read(1, 1 << 20))
    rig.run()
    bob = rig.peer()
    bob.subscribe(durable="d")
    assert bob.counters() == [1, 2]


def test_a_reading_from_before_a_commit_does_not_hide_what_was_committed_since() -> None:
    rig = Rig()
    bob = rig.peer()
    bob.subscribe(durable="d", credit=1)
    published(rig, 1, 1)
    rig.peer("x").publish(reliable(1))
    rig.tick()
    bob.grant(1, 9)
    rig.tick()
    (stream,) = rig.broker.take_reads()
    assert rig.store.read(stream.next, 1 << 20) == []
    rig.sync()
    stream.take([])
    rig.run()
    assert bob.positions() == [1, 2]


def test_a_stream_goes_over_what_was_trimmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors, "TRIM_AFTER", 1)
    rig = Rig()
    ann, bob = rig.peer("x"), rig.peer()
    bob.subscribe(9, durable="d", filter="n = 1")
    for counter in range(1, 7):
        ann.publish(persistent(counter) if counter in (2, 5) else reliable(counter, n=1))
        rig.run()
        bob.acknowledge(9, counter)
        rig.run()
    ann.publish(persistent(7))
    rig.run()
    assert len(rig.stored) < 7
    bob.subscribe(1, since=1)
    assert {2, 5, 7} <= set(bob.counters()) == {batch.first for batch in rig.stored}
    ann.publish(event(8))
    rig.run()
    assert bob.counters()[-1] == 8


def test_nothing_is_trimmed_that_is_not_on_disk() -> None:
    rig = Rig()
    ann, bob = rig.peer("x"), rig.peer()
    bob.subscribe(durable="d", filter="n = 1")
    ann.publish(persistent(1))
    rig.run()
    ann.publish(persistent(2))
    rig.tick()
    assert rig.broker.cursors.trim(after=1) == [Trim(1)]
    rig.sync()
    assert rig.broker.cursors.trim(after=1) == [Trim(2)]


def test_a_session_that_is_closed_leaves_its_durable_subscriptions_to_the_next() -> None:
    rig = Rig()
    bob = rig.peer()
    bob.subscribe(durable="d")
    bob.send(Bye())
    published(rig, 1, 1)
    bob = rig.peer()
    bob.subscribe(durable="d")
    assert bob.counters() == [1]


def test_a_passive_durable_subscription_stays_passive_through_a_restart() -> None:
    rig = Rig()
    rig.peer("s", 1, "sub").subscribe(durable="archive", passive=True)
    assert rig.peer("p").ask("advertise", number=1, filter="").result == {"filters": []}
    rig = rig.restart()
    assert rig.peer("p").ask("advertise", number=1, filter="").result == {"filters": []}


@pytest.mark.parametrize("kind", [{"durable": "d"}, {"since": 1}, {"since_us": 1}, {"on_slow": "spill"}])
def test_last_values_are_refused_where_they_make_no_sense(kind: dict[str, Any]) -> None:
    reply = Rig().peer().ask("subscribe", number=1, last=True, **kind)
    assert reply.error is not None
    assert "last can't be combined" in reply.error.text


class DurableMachine(RuleBasedStateMachine):
    """Anything that can happen to a durable subscription, in any order, with commits that lag behind."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(read_size=60)
        self.counter = 0
        self.safe: set[int] = set()  # reliable, matching and accepted
        self.acknowledged = 0  # the highest position that was
        self.position_of: dict[int, int] = {}
        self.seen: set[int] = set()  # counters ever delivered
        self.publisher = self._welcomed("p", "pub")
        self.subscriber: Peer | None = None
        self.total = 0
        self._attach(5)

    def _welcomed(self, system: str, name: str) -> Peer:
        return self.rig.peer(system, 1, name)

    def _attach(self, credit: int) -> None:
        self.subscriber = self._welcomed("s", "sub")
        self.total = credit
        self.subscriber.subscribe(1, "n < 3", durable="d", credit=credit)
        self._look()

    def _look(self) -> None:
        """Check what has arrived since the last look."""
        assert self.subscriber is not None
        last = 0
        for one, position, _ in self.subscriber.deliveries():
            assert one.values["n"] < 3
            assert one.counter > last
            last = one.counter
            if position is not None:
                known = self.position_of.setdefault(one.counter, position)
                assert known == position
        new = self.subscriber.deliveries()[getattr(self.subscriber, "looked", 0) :]
        self.subscriber.looked = len(self.subscriber.deliveries())  # type: ignore[attr-defined]
        for one, _, redelivered in new:
            assert redelivered or one.counter not in self.seen
            self.seen.add(one.counter)

    @rule(kinds=st.lists(st.tuples(st.booleans(), st.integers(1, 4)), min_size=1, max_size=4))
    def publish(self, kinds: list[tuple[bool, int]]) -> None:
        events = []
        for is_reliable, n in kinds:
            self.counter += 1
            events.append((reliable if is_reliable else event)(self.counter, n=n))
            if is_reliable and n < 3:
                self.safe.add(self.counter)
        self.publisher.publish(*events)

    @rule()
    def tick(self) -> None:
        self.rig.tick()

    @rule()
    def sync(self) -> None:
        self.rig.sync()

    @rule()
    def read(self) -> None:
        self.rig.read()

    @precondition(lambda self: self.subscriber is not None)
    @rule(more=st.integers(1, 6))
    def grant(self, more: int) -> None:
        assert self.subscriber is not None
        self.total += more
        self.subscriber.grant(1, self.total)

    @precondition(lambda self: self.subscriber is not None and self.subscriber.deliveries())
    @rule(share=st.floats(0, 1))
    def acknowledge(self, share: float) -> None:
        assert self.subscriber is not None
        positions = [position for position in self.subscriber.positions() if position is not None]
        if positions:
            self.subscriber.acknowledge(1, positions[int(share * (len(positions) - 1))])

    @precondition(lambda self: self.subscriber is not None)
    @rule()
    def lose(self) -> None:
        assert self.subscriber is not None
        self._look()
        self.subscriber.lose()
        self.subscriber = None

    @rule(credit=st.integers(0, 6))
    def attach(self, credit: int) -> None:
        if self.subscriber is not None:
            self.rig.let_out()
            self._look()
        self._attach(credit)

    @rule()
    def crash(self) -> None:
        """What was not accepted is published again, as a client would."""
        if self.subscriber is not None:
            self._look()
        accepted = max(self.publisher.accepted, default=0)
        lost = {counter for counter in self.safe if counter > accepted}
        self.rig = self.rig.restart()
        self.subscriber = None
        self.publisher = self._welcomed("p", "pub")
        known = max((one.counter for one in self.rig.state.counters), default=0)
        assert accepted <= known or not {counter for counter in self.safe if known < counter <= accepted}
        again = sorted(counter for counter in lost if counter > known)
        if again:
            self.publisher.publish(*(reliable(counter, n=1) for counter in again))

    def teardown(self) -> None:
        """Heal everything: all that is safe arrives, or has arrived and been acknowledged."""
        self.rig.run()
        if self.subscriber is not None:
            self._look()
        self._attach(10_000)
        assert self.subscriber is not None
        self.rig.run()
        self._look()
        assert self.safe <= self.seen


DurableMachine.TestCase.settings = settings(max_examples=often(60), stateful_step_count=40, deadline=None)
test_a_durable_subscription_loses_nothing_and_repeats_nothing_unmarked = DurableMachine.TestCase


@given(st.lists(st.integers(1, 5), min_size=1, max_size=20), st.integers(1, 9), st.integers(20, 200))
def test_history_and_live_meet_without_gap_or_overlap(sizes: list[int], credit: int, read_size: int) -> None:
    rig = Rig(read_size=read_size)
    ann, bob = rig.peer("x"), rig.peer()
    counter, total = 0, credit
    for number, size in enumerate(sizes):
        ann.publish(*(persistent(counter + more) for more in range(1, size + 1)))
        counter += size
        if number == len(sizes) // 2:
            bob.request("subscribe", number=1, since=1, credit=credit)
        total += credit
        bob.grant(1, total)
        for step in (rig.tick, rig.sync, rig.read)[: number % 4]:
            step()
    bob.grant(1, 1_000)
    rig.run()
    assert bob.counters() == bob.positions() == list(range(1, counter + 1))

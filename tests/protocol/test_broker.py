"""Publishing through the broker: what is stored, when it is accepted, and what is a repeat."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.rig import Rig, event, persistent, reliable, with_header
from tidings.event import Batch
from tidings.exchange import EventSink, Need, NodeSubscription, Positions, Rows
from tidings.filters import Filter
from tidings.protocol import cursors, publishing
from tidings.protocol import ledger as ledger_module
from tidings.protocol.appending import STORED_SIZE_MAX
from tidings.protocol.messages import Accepted, Bye, Deliver, Hello, Publish, Reply, Welcome
from tidings.store.interface import Append, CountProducer, Drop, PutCursor, Trim


def test_a_transient_event_is_delivered_and_accepted_without_any_commit() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe()
    ann.publish(event(1), event(2))
    assert rig.tick() == []
    assert bob.counters() == [1, 2]
    assert ann.accepted == [2]


def test_events_carry_the_origin_of_their_publisher() -> None:
    rig = Rig()
    ann, bob = rig.peer("a", 7, "ann"), rig.peer("b")
    bob.subscribe()
    ann.publish(event(1))
    rig.run()
    (deliver,) = bob.got(Deliver)
    assert (deliver.system, deliver.epoch, deliver.source) == ("a", 7, "ann")


def test_all_that_comes_in_one_tick_is_accepted_at_once() -> None:
    rig = Rig()
    ann = rig.peer()
    for counter in range(1, 6):
        ann.publish(event(counter))
    rig.tick()
    assert ann.accepted == [5]


def test_a_reliable_event_is_accepted_only_after_its_mark() -> None:
    rig = Rig()
    ann = rig.peer()
    ann.subscribe(durable="d")
    ann.frames.clear()
    ann.publish(reliable(1))
    rig.tick()
    assert ann.frames == []
    rig.sync()
    assert ann.accepted == [1]
    assert ann.counters() == [1]


def test_acceptance_of_a_later_transient_event_does_not_overtake_the_mark() -> None:
    rig = Rig()
    ann = rig.peer()
    ann.publish(persistent(1))
    rig.tick()
    ann.publish(event(2))
    rig.tick()
    assert ann.accepted == []
    rig.sync()
    assert ann.accepted == [1, 2]


def test_a_reliable_event_waits_for_the_disk_even_when_nobody_wants_it_stored() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe()
    ann.publish(reliable(1))
    (count,) = rig.tick()
    assert isinstance(count, CountProducer)
    assert ann.accepted == []
    assert bob.events() == []
    rig.sync()
    assert ann.accepted == [1]
    assert bob.counters() == [1]


def test_a_reliable_event_that_comes_again_after_a_crash_is_not_delivered_again() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe()
    ann.publish(reliable(1))
    rig.run()
    rig = rig.restart()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe()
    ann.publish(reliable(1))
    rig.run()
    assert bob.counters() == []


def test_what_the_broker_says_of_what_is_stored_is_what_was_asked_for() -> None:
    rig = Rig()
    ann = rig.peer()
    ann.subscribe(durable="d", filter="n = 1")
    ann.publish(reliable(1, n=1), reliable(2, n=2), event(3, n=1), persistent(4, n=2), persistent(5, n=1))
    rig.run()
    stored = [(b.first, b.count, b.persistent) for b in rig.stored]
    assert stored == [(1, 1, False), (2, 2, True)]
    assert rig.state.counters[0].counter == 5


@given(st.lists(st.sampled_from([event, reliable, persistent]), min_size=1, max_size=12))
def test_positions_grow_with_the_rows_whatever_is_mixed(kinds: list) -> None:  # type: ignore[type-arg]
    rig = Rig()
    ann = rig.peer()
    ann.subscribe(durable="d")
    ann.publish(*(make(counter) for counter, make in enumerate(kinds, 1)))
    rig.run()
    assert ann.counters() == list(range(1, len(kinds) + 1))
    stored = [position for position in ann.positions() if position is not None]
    assert stored == list(range(1, sum(make is not event for make in kinds) + 1))
    assert [position is None for position in ann.positions()] == [make is event for make in kinds]


def test_a_counter_that_is_not_above_the_highest_known_is_a_repeat() -> None:
    rig = Rig()
    bob = rig.peer("b")
    bob.subscribe()
    for counters in ((1, 2, 3), (2, 3, 4), (4,), (1, 5)):
        ann = rig.peer("a")
        ann.publish(*map(event, counters))
        rig.run()
        ann.lose()
    assert bob.counters() == [1, 2, 3, 4, 5]


def test_counters_are_counted_for_each_system_and_epoch() -> None:
    rig = Rig()
    bob = rig.peer("b")
    bob.subscribe()
    for system, epoch in (("a", 1), ("a", 2), ("c", 1)):
        rig.peer(system, epoch).publish(event(1))
    rig.run()
    assert bob.counters() == [1, 1, 1]


def test_a_repeat_over_a_second_connection_is_accepted_after_the_mark_of_the_first() -> None:
    rig = Rig()
    first, second = rig.peer("a"), rig.peer("a")
    first.publish(persistent(1), persistent(2))
    rig.tick()
    second.publish(persistent(1), persistent(2))
    rig.tick()
    assert second.accepted == []
    rig.sync()
    assert second.accepted == [2]


def test_a_new_event_behind_repeats_does_not_accept_them_before_their_mark() -> None:
    rig = Rig()
    first, second = rig.peer("a"), rig.peer("a")
    first.publish(persistent(1))
    rig.tick()
    second.publish(persistent(1), event(2))
    rig.tick()
    assert second.accepted == []
    rig.sync()
    assert second.accepted == [2]


def test_welcome_does_not_tell_a_counter_before_it_is_on_disk() -> None:
    rig = Rig()
    rig.peer("a").publish(persistent(1))
    rig.tick()
    again = rig.connect()
    again.send(Hello([1], "a", 1, "ann"))
    rig.tick()
    assert again.frames == []
    rig.sync()
    assert again.got(Welcome)[0].counter == 1


def test_counters_survive_a_restart_with_the_events_they_belong_to() -> None:
    rig = Rig()
    rig.peer("a").publish(persistent(3))
    rig.run()
    rig = rig.restart()
    again = rig.connect()
    again.send(Hello([1], "a", 1, "ann"))
    rig.run()
    welcome = again.got(Welcome)[0]
    assert (welcome.counter, welcome.boot) == (3, rig.broker.life)
    assert rig.broker.boot == 2


def test_the_systems_not_heard_of_for_longest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "SYSTEMS_MAX", 2)
    rig = Rig()
    peers = [rig.peer(system) for system in ("a", "b", "c")]
    for counter, peer in ((1, 0), (1, 1), (2, 0), (1, 2)):
        peers[peer].publish(event(counter))
    known = [rig.broker.ledger.counter_of(peer.session.origin) for peer in peers]
    assert known == [2, 0, 1]


@pytest.mark.parametrize("counters", [[0], [0, 1], [1, 1], [2, 1], [1, 3, 2]])
def test_events_that_are_not_counted_up_are_refused_whole(counters: list[int]) -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe()
    ann.publish(*map(event, counters))
    rig.run()
    assert ann.got(Bye)[0].code == "event"
    assert ".counter" in ann.got(Bye)[0].text
    assert bob.events() == []


def test_on_one_connection_numbers_grow_from_frame_to_frame_too() -> None:
    rig = Rig()
    ann = rig.peer()
    ann.publish(event(3))
    ann.publish(event(3))
    rig.run()
    assert ann.got(Bye)[0].code == "event"


def test_an_empty_publication_does_nothing() -> None:
    rig = Rig()
    ann = rig.peer()
    ann.publish()
    rig.run()
    assert ann.frames == []


def test_a_bad_event_spoils_its_frame_and_nothing_else() -> None:
    rig = Rig()
    ann, bob, eve = rig.peer("a"), rig.peer("b"), rig.peer("e")
    bob.subscribe()
    eve.send(Publish(), b"\xdd\x00\x00\x00\x01\x93\x01\xa1t\x00")
    ann.publish(event(1))
    rig.run()
    assert eve.got(Bye)[0].code == "event"
    assert bob.counters() == [1]


def test_a_closed_session_still_gets_what_waits_for_the_disk() -> None:
    rig = Rig()
    ann = rig.peer()
    ann.publish(persistent(1))
    rig.tick()
    ann.send_raw(b"\xff" * 8)
    rig.tick()
    assert ann.frames == []
    rig.sync()
    assert [type(message) for message, _ in ann.frames] == [Accepted, Bye]


def test_what_a_publisher_sent_before_it_left_is_not_counted_if_its_commit_failed() -> None:
    rig = Rig()
    ann = rig.peer("a")
    ann.publish(persistent(1))
    rig.tick()
    ann.lose()
    rig.fail()
    again = rig.connect()
    again.send(Hello([1], "a", 1, "ann"))
    rig.run()
    assert again.got(Welcome)[0].counter == 0


def test_a_publisher_that_is_held_back_is_not_told_of_what_a_failed_commit_took() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe(on_slow="block", credit=0)
    ann.publish(reliable(1))
    rig.tick()
    rig.fail()
    bob.grant(1, 9)
    rig.run()
    assert ann.accepted == []
    assert ann.got(Bye)[0].code == "internal"


def test_what_waits_for_credit_is_not_delivered_once_its_commit_has_failed() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe(credit=0)
    ann.publish(reliable(1))
    rig.tick()
    rig.fail()
    bob.grant(1, 9)
    rig.run()
    assert bob.events() == []
    assert bob.got(Bye)[0].code == "internal"


def test_what_comes_in_the_tick_of_a_failure_is_not_stored_without_what_was_before_it() -> None:
    rig = Rig()
    ann = rig.peer("a")
    ann.publish(persistent(1))
    rig.tick()
    ann.publish(persistent(2))
    rig.fail()
    rig.run()
    assert ann.accepted == []
    assert rig.stored == []
    assert rig.broker.ledger.counter_of(ann.session.origin) == 0


def test_after_a_failed_commit_a_stream_is_abreast_again_without_another_one() -> None:
    rig = Rig()
    ann, bob, eve = rig.peer("a"), rig.peer("b"), rig.peer("e")
    bob.subscribe(durable="d", credit=0)
    ann.publish(reliable(1))
    rig.tick()
    rig.fail()
    rig.run()
    bob.grant(1, 9)
    rig.run()
    eve.publish(event(1, "new"))
    rig.run()
    assert [one.type for one in bob.events()] == ["new"]


def test_the_stream_is_trimmed_up_to_what_all_durable_subscriptions_have_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cursors, "TRIM_AFTER", 3)
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b", name="bob")
    ann.subscribe(1, "n < 9", durable="d")
    bob.subscribe(1, "n < 9", durable="d")
    for counter in range(1, 7):
        ann.publish(persistent(counter, n=1) if counter == 2 else reliable(counter, n=1))
        rig.run()
    ann.acknowledge(1, 6)
    rig.run()
    assert [batch.first for batch in rig.stored] == [1, 2, 3, 4, 5, 6]
    bob.acknowledge(1, 4)
    rig.run()
    assert [batch.first for batch in rig.stored] == [2, 5, 6]


def test_a_subscription_that_wants_nothing_of_what_comes_does_not_keep_the_stream_from_being_trimmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cursors, "TRIM_AFTER", 3)
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b", name="bob")
    ann.subscribe(1, "n = 1", durable="d")
    bob.subscribe(1, "n = 2", durable="d")
    bob.subscribe(2, "n = 2", on_slow="spill")
    for counter in range(1, 12):
        ann.publish(reliable(counter, n=1))
        rig.run()
        ann.acknowledge(1, counter)
        rig.run()
    assert len(rig.stored) < 7


def test_what_only_one_of_two_wants_is_kept_for_it() -> None:
    rig = Rig()
    ann = rig.peer()
    ann.subscribe(1, "n = 1", durable="one")
    ann.subscribe(2, "n = 2", durable="two")
    ann.publish(*(reliable(counter, n=counter % 2 + 1) for counter in range(1, 5)))
    rig.run()
    assert ann.counters(1) == [2, 4]
    assert ann.counters(2) == [1, 3]


class Needy(EventSink):
    """A sink that takes nothing, and has stored what it needs."""

    def __init__(self, need: Need) -> None:
        self._need = need

    def need(self, count: int) -> Need:
        assert count == 3
        return self._need

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        pass


@pytest.mark.parametrize(
    ("need", "kept", "logged"),
    [
        (Need.NOTHING, [3], [3]),
        (Need.RELIABLE, [2, 3], [3]),
        (Need.EVERYTHING, [1, 2, 3], [3]),
        (Need.LOGGED, [1, 2, 3], [1, 2, 3]),
    ],
)
def test_what_a_sink_needs_of_its_events_is_stored(need: Need, kept: list[int], logged: list[int]) -> None:
    rig = Rig()
    ann = rig.peer()
    rig.broker.exchange.subscribe(NodeSubscription(Filter(), Needy(need)))
    ann.publish(event(1), reliable(2), persistent(3))
    operations = rig.tick()
    rig.sync()
    found = [one.batch for one in operations if isinstance(one, Append)]
    assert [one.counter for batch in found for one in Batch(batch.raw)] == kept
    assert [one.counter for batch in found if batch.persistent for one in Batch(batch.raw)] == logged


def test_a_durable_subscription_made_and_ended_in_one_tick_leaves_nothing() -> None:
    rig = Rig()
    ann = rig.peer()
    ann.request("subscribe", number=1, durable="d")
    ann.request("unsubscribe", durable="d")
    operations = rig.tick()
    assert not any(isinstance(one, PutCursor) for one in operations)
    rig.run()
    assert [reply.error for reply in ann.got(Reply)] == [None, None]
    assert rig.state.durables == []


def test_ended_and_made_again_in_one_tick_it_is_new() -> None:
    rig = Rig()
    ann = rig.peer()
    ann.subscribe(1, "n = 1", durable="d")
    ann.request("unsubscribe", durable="d")
    ann.request("subscribe", number=2, durable="d", filter="n = 2")
    operations = rig.tick()
    assert [type(one) for one in operations] == [Drop, PutCursor]
    rig.run()
    assert [one.filter for one in rig.state.durables] == ["n = 2"]


def test_a_node_has_a_limited_number_of_durable_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors, "DURABLES_MAX", 1)
    rig = Rig()
    ann = rig.peer()
    ann.subscribe(1, durable="one")
    reply = ann.ask("subscribe", number=2, durable="two")
    assert reply.error is not None
    assert reply.error.code == "limit"


def test_last_values_are_the_newest_of_each_source_type_and_subject() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    ann.publish(event(1, "x", v=1), event(2, "y", v=2), event(3, "x", v=3))
    ann.publish(with_header(event(4, "x", v=4), subject="s"), event(5, "z", v=0))
    rig.run()
    bob.subscribe(filter="v > 0", last=True)
    assert bob.counters() == [2, 3, 4]
    ann.publish(event(6, "x", v=5))
    rig.run()
    assert bob.counters() == [2, 3, 4, 6]


def test_a_last_value_whose_life_is_over_is_not_revived() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    ann.publish(with_header(event(1), ttl_s=rig.now), with_header(event(2, "u"), ttl_s=1.0))
    rig.run()
    bob.subscribe(last=True)
    assert bob.counters() == [1]


def test_last_values_wait_for_the_disk_like_any_delivery() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    ann.publish(persistent(1))
    bob.request("subscribe", number=1, last=True, credit=9)
    rig.tick()
    assert bob.events() == []
    rig.sync()
    assert bob.counters() == [1]


def test_only_so_many_bytes_are_kept_for_last_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "RECENT_SIZE_MAX", 150)
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    for counter in range(1, 21):
        ann.publish(event(counter, f"t{counter}"))
    rig.run()
    assert sum(len(batch.raw) for batch in rig.broker.publishing.recent) <= 150
    bob.subscribe(last=True)
    assert bob.counters()[-1] == 20
    assert 0 < len(bob.counters()) < 20


def test_status_tells_counts_and_depths() -> None:
    rig = Rig()
    ann = rig.peer("a")
    ann.subscribe(durable="d", credit=0)
    ann.publish(reliable(1), reliable(2))
    status = ann.ask("status").result
    assert status["position"] == 2
    assert status["subscriptions"] == 1
    assert ["published", "", 2] in status["counts"]
    assert status["durables"] == [{"name": "d", "owner": "ann", "cursor": 0, "depth": 2, "archive": False}]


def test_a_commit_holds_appends_before_records_and_counts() -> None:
    rig = Rig()
    ann = rig.peer()
    ann.subscribe(durable="d")
    ann.publish(reliable(1))
    assert [type(one) for one in rig.tick()] == [Append, PutCursor, CountProducer]
    assert not any(isinstance(one, Trim) for one in rig.commits[0])


def test_a_large_batch_is_stored_in_pieces_and_delivered_as_it_came() -> None:
    rig = Rig()
    reader, writer = rig.peer("r", name="reader"), rig.peer("w", name="writer")
    reader.subscribe(durable="all")
    count, text = 300, "x" * 1_000
    writer.publish(*(persistent(n, text=text, n=n) for n in range(1, count + 1)))
    stored = [one.batch for one in rig.tick() if isinstance(one, Append)]
    assert sum(batch.count for batch in stored) == count
    assert len(stored) > 3
    assert all(len(batch.raw) <= STORED_SIZE_MAX for batch in stored)
    assert [batch.first for batch in stored[1:]] == [one.first + one.count for one in stored[:-1]]
    rig.run()
    assert [one.values["n"] for one in reader.events()] == list(range(1, count + 1))
    late = rig.restart().peer("late")
    late.subscribe(since=1)
    assert [one.values["n"] for one in late.events()] == list(range(1, count + 1))

"""Sessions take turns: with a clock that each look at it moves on, a slice is a few steps of work."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from protocol.rig import Peer, Rig, event, persistent, with_header
from tidings.event import Event
from tidings.filters import Filter
from tidings.protocol import last_values, publishing, session, subscriptions, worker
from tidings.protocol.frames import FrameReader, encode
from tidings.protocol.memory import Budgets, Memory
from tidings.protocol.messages import Ping, Pong, RawRequest, Reply, Request
from tidings.steps import finish
from tidings.turns import Turns


def sliced() -> Rig:
    """A node by whose clock a step takes a millisecond."""
    rig = Rig()
    looks = iter(range(10**9))
    rig.broker.turns = rig.broker.background._turns = Turns(
        lambda: next(looks) / 1_000, lambda worker, until: worker.work(until)
    )
    return rig


def settle(rig: Rig, most: int = 10_000) -> int:
    """Let ticks pass until nobody is in line; how many that took."""
    for ticks in range(most):
        rig.run()
        if not len(rig.broker.turns):
            return ticks
    raise AssertionError("they never come to an end")


def about(subject: str, counter: int) -> Event:
    """An event that says what it is about."""
    return with_header(event(counter), subject=subject)


def pongs(peer: Peer) -> int:
    return len(peer.got(Pong))


def ticks_until_pong(rig: Rig, peer: Peer) -> int:
    """Have a client ask whether the node is there, and count the ticks until it has the answer."""
    before, ticks = pongs(peer), 0
    peer.send(Ping(1))
    while pongs(peer) == before:
        rig.tick()
        ticks += 1
    return ticks


def test_a_client_with_one_request_does_not_wait_for_one_with_thousands() -> None:
    rig = sliced()
    greedy, light = rig.peer("g"), rig.peer("l")
    settle(rig)
    greedy.send_raw(b"".join(encode(Ping(number)) for number in range(5_000)))
    light.send(Ping(1))
    for _ in range(3):
        rig.tick()
    assert pongs(light) == 1
    assert pongs(greedy) < 100
    settle(rig)
    assert [pong.number for pong in greedy.got(Pong)] == list(range(5_000))


def test_two_who_want_everything_get_the_same() -> None:
    rig = sliced()
    one, other = rig.peer("a"), rig.peer("b")
    settle(rig)
    for peer in (one, other):
        peer.send_raw(b"".join(encode(Ping(number)) for number in range(2_000)))
    for _ in range(50):
        rig.tick()
    assert 0 < pongs(one) < 2_000
    assert abs(pongs(one) - pongs(other)) <= 10


def test_requests_wait_while_their_client_does_not_read_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "UNREAD_SIZE_MAX", 100)
    rig = Rig()
    deaf = rig.peer()
    deaf.send_raw(b"".join(encode(Ping(number)) for number in range(1_000)))
    for _ in range(5):
        rig.broker.finish_tick()
    assert deaf.session.outbox.size < 200
    assert deaf.session.unread > 1_000
    assert not len(rig.broker.turns)
    settle(rig)
    assert pongs(deaf) == 1_000


def test_who_passes_its_window_waits_until_what_it_sent_is_on_its_way_to_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "TAKEN_SIZE_MAX", 1_000)
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    for counter in range(1, 101):
        ann.publish(persistent(counter, text="x" * 100))
    rig.broker.turns.run()  # without the end of a tick, as while too much waits for the disk
    assert 5 < rig.broker.position < 15
    assert ann.session.is_stalled
    assert not len(rig.broker.turns)
    bob.publish(persistent(1))
    assert 5 < rig.broker.position < 16
    for _ in range(3):
        rig.now += 1.1 * session.SILENT_S_MAX
        ann.session.wake(rig.now)
    assert not ann.session.is_closed
    while len(ann.accepted) == 0 or ann.accepted[-1] < 100:
        assert len(rig.tick()) <= 15
        rig.sync()
    assert not ann.session.is_stalled
    assert rig.broker.position == 101


def test_the_end_of_a_large_session_is_cut_into_steps() -> None:
    rig = sliced()
    large, light = rig.peer("g"), rig.peer("l")
    for number in range(300):
        large.request("subscribe", number=number, filter=f"n = {number}")
        large.request("advertise", number=number, filter=f"n = {number}")
    settle(rig)
    assert rig.broker.exchange.subscriptions == 300
    large.lose()
    light.send(Ping(1))
    for _ in range(3):
        rig.tick()
    assert pongs(light) == 1
    assert rig.broker.exchange.subscriptions > 0
    settle(rig)
    assert (rig.broker.exchange.subscriptions, rig.broker.exchange.advertisements) == (0, 0)


def test_many_who_want_a_batch_get_it_in_parts_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "DELIVERED_AT_ONCE", 20)
    rig = sliced()
    ann, bob = rig.peer("a"), rig.peer("b")
    for number in range(1, 41):
        bob.subscribe(number)
    for number in range(41, 44):
        bob.subscribe(number, on_slow="spill")
    settle(rig)
    ann.publish(event(1), event(2))
    ann.publish(event(3))
    rig.tick()
    got = [len(bob.counters(number)) for number in range(1, 44)]
    assert 0 < sum(got) < 3 * 43
    bob.request("unsubscribe", number=40)
    settle(rig)
    for number in (*range(1, 40), 41, 42, 43):
        assert bob.counters(number) == [1, 2, 3]
    assert ann.accepted[-1] == 3


@pytest.mark.parametrize("ticks", [0, 1, 3])
def test_what_a_publisher_sent_reaches_all_though_it_goes_while_it_is_delivered(
    monkeypatch: pytest.MonkeyPatch, ticks: int
) -> None:
    monkeypatch.setattr(publishing, "DELIVERED_AT_ONCE", 20)
    rig = sliced()
    ann, bob = rig.peer("a"), rig.peer("b")
    for number in range(1, 201):
        bob.subscribe(number)
    settle(rig)
    rig.broker.turns._spent_s = 1.0 if ticks else 0.0  # it waits in line, or is served at once
    ann.publish(event(1), event(2))
    for _ in range(ticks):
        rig.tick()
    before = sum(len(bob.counters(number)) for number in range(1, 201))
    assert before < 400
    assert before or not ticks
    ann.lose()
    settle(rig)
    assert [bob.counters(number) for number in range(1, 201)] == 200 * [[1, 2]]


def test_last_values_are_looked_for_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_values, "LOOKED_AT_ONCE", 1)
    rig = sliced()
    ann, bob = rig.peer("a"), rig.peer("b")
    ann.publish(*(about(f"s{counter % 50}", counter) for counter in range(1, 101)))
    settle(rig)
    bob.request("subscribe", number=1, filter="", last=True, credit=1_000)
    rig.tick()
    assert bob.got(Reply) == []
    ann.publish(about("s7", 101), about("new", 102))  # while it is looked for
    rig.tick()
    ann.publish(about("s8", 103))
    settle(rig)
    newest = {one.subject: one.counter for one in bob.events()}
    assert newest == {f"s{counter % 50}": counter for counter in range(51, 101)} | {
        "s7": 101,
        "new": 102,
        "s8": 103,
    }
    assert bob.counters() == sorted(bob.counters())
    assert len(bob.counters()) == len(set(bob.counters()))


def test_a_search_for_last_values_keeps_nothing_that_the_node_has_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    ann = rig.peer("a")
    for counter in range(1, 11):
        ann.publish(about(f"s{counter}", counter))
    looking = last_values.last_values(rig.broker, Filter())
    for _ in range(3):
        next(looking)
    monkeypatch.setattr(publishing, "RECENT_SIZE_MAX", 0)
    ann.publish(about("new", 11))
    assert len(rig.broker.publishing.recent) == 0
    assert [one.subject for _, batch in finish(looking) for one in batch] == ["s8", "s9", "s10"]


@pytest.mark.parametrize("last", [False, True])
def test_who_subscribes_with_a_long_filter_makes_the_index_ready_for_it(
    monkeypatch: pytest.MonkeyPatch, last: bool
) -> None:
    monkeypatch.setattr(subscriptions, "FILTER_AT_ONCE", 3)
    rig = Rig()
    bob = rig.peer("b")
    exchange, counts = rig.broker.exchange, []
    monkeypatch.setattr(exchange, "settle", lambda: counts.append(exchange.subscriptions))
    bob.subscribe(1, "n = 1", last=last)
    assert counts == [1]


def test_last_values_are_delivered_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_values, "LOOKED_AT_ONCE", 10)
    rig = sliced()
    ann, bob = rig.peer("a"), rig.peer("b")
    ann.publish(*(about(f"s{counter}", counter) for counter in range(1, 101)))
    settle(rig)
    bob.request("subscribe", number=1, filter="", last=True, credit=1_000)
    got = [0]
    while got[-1] < 100:
        rig.tick()
        got.append(len(bob.counters()))
    assert max(after - before for before, after in pairwise(got)) < 100
    settle(rig)
    assert bob.counters() == list(range(1, 101))


def test_what_comes_while_last_values_are_looked_for_can_be_dropped_for_want_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(last_values, "LOOKED_AT_ONCE", 1)
    rig = sliced()
    rig.broker.memory = Memory(Budgets(memory_session_max=100_000))
    ann, bob = rig.peer("a"), rig.peer("b")
    ann.publish(*(event(counter) for counter in range(1, 1_001)))
    settle(rig)
    bob.request("subscribe", number=1, filter="", last=True, credit=1_000)
    rig.tick()
    for counter in range(1_001, 1_021):
        ann.publish(event(counter, text="x" * 10_000))
        rig.tick()
    assert bob.session.holdings.size <= 100_000
    settle(rig)
    assert not bob.session.is_closed
    ((_, _, told),) = bob.notices
    assert told == {"dropped": rig.broker.tallies["dropped", "memory"], "reason": "memory"}
    assert bob.counters() == [1_000, *range(1_001 + told["dropped"], 1_021)]
    assert bob.session.holdings.size == 0


def test_of_much_that_comes_while_last_values_are_looked_for_the_oldest_is_lost_and_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(last_values, "LOOKED_AT_ONCE", 1)
    monkeypatch.setattr(last_values, "GATHERED_SIZE_MAX", 1_000)
    rig = sliced()
    ann, bob = rig.peer("a"), rig.peer("b")
    ann.publish(*(event(counter) for counter in range(1, 1_001)))
    settle(rig)
    bob.request("subscribe", number=1, filter="type = 't'", last=True, credit=1_000)
    rig.tick()
    for counter in range(1_001, 1_101):
        ann.publish(event(counter))
        rig.tick()
    settle(rig)
    lost = rig.broker.tallies["dropped", "slow"]
    assert 0 < lost < 100
    assert bob.counters() == [1_000, *range(1_001 + lost, 1_101)]
    assert bob.notices == [("gap", 1, {"dropped": lost, "reason": "slow"})]
    ann.publish(event(1_101))
    settle(rig)
    assert bob.counters()[-1] == 1_101
    assert bob.session.holdings.size == 0


def test_arguments_are_not_built_before_the_operation_is_known() -> None:
    frame = encode(Request(1, "queue.describe", {"queue": "x", "more": [[]] * 1_000}))
    ((message, _),) = FrameReader(1 << 20, is_node=True).feed(frame)
    assert isinstance(message, RawRequest)
    assert isinstance(message.arguments, msgspec.Raw)
    rig = Rig()
    peer = rig.peer()
    reply = peer.ask("subscribe", number=[[]] * 1_000)
    assert reply.error is not None
    assert reply.error.code == "protocol"


def test_a_client_that_waits_for_its_turn_is_not_taken_for_silent() -> None:
    rig = sliced()
    peer = rig.peer()
    settle(rig)
    peer.send_raw(b"".join(encode(Ping(number)) for number in range(1_000)))
    rig.tick()
    for _ in range(5):
        rig.now += session.SILENT_S_MAX + 1
        peer.session.wake(rig.now)
        rig.tick()
    assert not peer.session.is_closed

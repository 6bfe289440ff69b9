"""Budgets of memory: who is over one loses its oldest events, and who asks for more is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.rig import Peer, Rig, event
from tidings.errors import Refused
from tidings.event import Batch, Event
from tidings.protocol import consumer
from tidings.protocol import session as session_module
from tidings.protocol.frames import encode
from tidings.protocol.memory import ENTRY_SIZE, Budgets, Holdings, Memory, MemoryAccount, filter_size
from tidings.protocol.messages import Publish


def tight(**budgets: int) -> Rig:
    """A node with little memory."""
    rig = Rig()
    rig.broker.memory = Memory(Budgets(**budgets))
    return rig


def publish(rig: Rig, ann: Peer, count: int, size: int, first: int = 1) -> None:
    for counter in range(first, first + count):
        ann.publish(event(counter, text="x" * size))
        rig.run()


# Accounts


def test_what_an_account_uses_counts_in_those_it_is_within() -> None:
    memory = Memory(Budgets(memory_max=100, memory_user_max=50, memory_session_max=30))
    session = MemoryAccount("memory_session_max", 30, memory.user("ann"))
    memory.charge(session, 20)
    assert (session.used, memory.user("ann").used, memory.node.used) == (20, 20, 20)
    session.close()
    assert (memory.user("ann").used, memory.node.used) == (0, 0)
    memory.charge(session, 5)
    assert memory.node.used == 0


@pytest.mark.parametrize(
    ("used", "named"), [(25, "memory_session_max"), (45, "memory_user_max"), (99, "memory_max")]
)
def test_who_asks_for_too_much_is_told_which_limit_that_is(used: int, named: str) -> None:
    memory = Memory(Budgets(memory_max=100, memory_user_max=50, memory_session_max=30))
    user = memory.user("ann")
    account = MemoryAccount("memory_session_max", 30, user)
    memory.charge({"memory_session_max": account, "memory_user_max": user}.get(named, memory.node), used)
    account.check(1)
    with pytest.raises(Refused, match=f"above {named} = "):
        account.check(10)


# Holdings


@given(st.lists(st.integers(0, 3)))
def test_a_batch_is_weighed_once_however_often_it_waits(steps: list[int]) -> None:
    parts = [Batch.of([Event("t", n=n, text="x" * n)]) for n in range(4)]
    holdings, times = Holdings(), [0] * 4
    for number in steps:
        holdings.add(parts[number])
        times[number] += 1
    expected = sum(
        len(part.raw) + ENTRY_SIZE * count for part, count in zip(parts, times, strict=True) if count
    )
    assert holdings.size == expected
    for number in steps:
        holdings.remove(parts[number])
    assert holdings.size == 0


def test_many_subscriptions_that_want_the_same_events_share_their_bytes() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    for number in range(1, 101):
        bob.subscribe(number, filter="n > 1" if number % 2 else "", credit=0)
    ann.publish(event(1, n=1, text="x" * 10_000), event(2, n=2, text="y" * 10_000))
    rig.run()
    assert 30_000 < bob.session.holdings.size < 40_000 + 100 * ENTRY_SIZE
    assert bob.session.account.used >= bob.session.holdings.size


def test_what_waits_is_weighed_no_longer_when_it_has_left_or_its_subscription_has_ended() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe(1, credit=0)
    bob.subscribe(2, credit=0, on_slow="latest", slow_key="n")
    ann.publish(event(1, n=1), event(2, n=2), event(3, n=1))
    rig.run()
    assert bob.session.holdings.size > 0
    bob.grant(1, 10)
    bob.ask("unsubscribe", number=2)
    rig.run()
    assert bob.session.holdings.size == 0
    bob.ask("unsubscribe", number=1)
    rig.tick()
    assert bob.session.account.used < 100  # the answer, when it was weighed last
    assert rig.broker.memory.node.used < 1_000  # the last values


# Past a budget


@pytest.mark.parametrize("limit", ["memory_session_max", "memory_max"])
@pytest.mark.parametrize("on_slow", ["drop-oldest", "latest", "block"])
def test_past_a_budget_the_oldest_that_wait_are_dropped_told_and_counted(limit: str, on_slow: str) -> None:
    rig = tight(**{limit: 60_000})
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe(1, credit=0, on_slow=on_slow, slow_key="id" if on_slow == "latest" else None)
    publish(rig, ann, 100, 1_000)
    assert bob.session.account.used <= 60_000
    assert not bob.session.is_closed
    bob.grant(1, 1_000)
    rig.run()
    dropped = sum(details["dropped"] for _, _, details in bob.notices)
    assert {details["reason"] for _, _, details in bob.notices} == {"memory"}
    assert bob.counters() == list(range(dropped + 1, 101))
    assert rig.broker.tallies["dropped", "memory"] == dropped > 0


def test_the_largest_waiter_loses_and_the_others_keep_what_waits() -> None:
    rig = tight(memory_max=100_000)
    ann, large, small = rig.peer("a"), rig.peer("l"), rig.peer("s")
    large.subscribe(1, credit=0)
    small.subscribe(1, filter="n = 1", credit=0)
    ann.publish(event(1, n=1, text="x" * 5_000))
    publish(rig, ann, 100, 1_000, first=2)
    small.grant(1, 10)
    large.grant(1, 1_000)
    rig.run()
    assert small.counters() == [1]
    assert small.notices == []
    assert 1 not in large.counters()


def test_a_client_that_has_nothing_to_lose_is_parted_from_with_the_reason() -> None:
    rig = tight(memory_session_max=100_000)
    peer = rig.peer()
    part = Batch.of([Event("t", text="x" * 200_000)])
    peer.session.post(part.raw)
    rig.tick()
    assert peer.session.is_closed
    assert rig.broker.tallies["closed", "limit"] == 1


def test_what_has_left_is_weighed_no_longer_a_while_later() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe()
    ann.publish(event(1, text="x" * 10_000))
    rig.broker.sessions.weigh()  # while it waits to be sent
    assert bob.session.account.used > filter_size("") + 10_000
    rig.run()
    rig.broker.sessions.weigh()
    assert bob.session.account.used == filter_size("")
    assert not bob.session.is_swollen


def test_a_frame_that_comes_slowly_is_weighed_too() -> None:
    rig = tight(memory_session_max=100_000)
    peer = rig.peer()
    frame = encode(Publish(), Batch.of([Event("t", text="x" * 300_000)]).raw)
    for start in range(0, 200_000, 10_000):
        peer.send_raw(frame[start : start + 10_000])
    rig.tick()
    rig.broker.sessions.weigh()
    assert peer.session.is_closed


def test_nobody_is_parted_from_for_what_others_hold() -> None:
    rig = tight(memory_max=100_000)
    peer = rig.peer()
    peer.subscribe(1)
    rig.broker.memory.charge(rig.broker.memory.user("sink"), 200_000)
    rig.tick()
    assert not peer.session.is_closed


def test_last_values_leave_room_for_others() -> None:
    rig = tight(memory_max=64_000)
    ann = rig.peer()
    publish(rig, ann, 100, 1_000)
    assert rig.broker.memory.node.used <= 64_000 // 16 + 1_500


def test_filters_count_and_one_too_many_is_refused_with_the_name_of_the_limit() -> None:
    rig = tight(memory_session_max=3 * filter_size("n = 1"))
    peer = rig.peer()
    errors = [peer.ask("subscribe", number=n, filter=f"n = {n}").error for n in range(1, 6)]
    assert errors[:2] == [None, None]
    refused = errors[-1]
    assert refused is not None
    assert refused.code == "limit"
    assert "memory_session_max" in refused.text
    assert peer.ask("advertise", number=1, filter="n = 1").error is not None
    for number in (1, 2):
        peer.ask("unsubscribe", number=number)
    assert peer.ask("advertise", number=1, filter="n = 1").error is None
    assert peer.ask("unadvertise", number=1).error is None
    peer.subscribe(9, filter="n = 9")


# Room in the outbox


def test_events_wait_for_room_in_the_outbox_and_none_is_lost_within_the_credit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (session_module, consumer):
        monkeypatch.setattr(module, "ROOM", 3_000)
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe(1, credit=1_000)
    bob.subscribe(2, credit=1_000, on_slow="latest", slow_key="id")
    for counter in range(1, 51):
        ann.publish(event(counter, text="x" * 500))
    rig.broker.finish_tick()
    assert 3_000 <= bob.session.outbox.size < 5_000
    assert bob.session.holdings.size > 0
    rig.run()
    assert bob.counters(1) == bob.counters(2) == list(range(1, 51))
    assert bob.notices == []
    assert bob.session.holdings.size == 0


def test_a_frame_that_is_shared_is_the_same_as_one_that_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    for size_min in (1, 1 << 30):
        monkeypatch.setattr(consumer, "SHARED_SIZE_MIN", size_min)
        rig = Rig()
        ann, bob = rig.peer("a"), rig.peer("b")
        bob.subscribe(1, credit=10)
        bob.subscribe(2, since=1, credit=10)
        ann.publish(event(1, n=1), event(2, n=2))
        rig.run()
        sent.append(bob.frames)
    assert sent[0] == sent[1]

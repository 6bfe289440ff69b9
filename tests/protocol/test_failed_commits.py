"""A disk that is full or broken: nothing is promised, nothing is lost that was, and the node goes on."""

from __future__ import annotations

import pytest

from protocol.rig import Rig, event, persistent, reliable
from tidings.filters import Filter
from tidings.protocol import last_values
from tidings.protocol.messages import Bye, Hello, Welcome
from tidings.steps import finish


def greeted(rig: Rig, system: str) -> Welcome:
    """What a client is told that comes again."""
    peer = rig.connect()
    peer.send(Hello([1], system, 1, "ann"))
    rig.run()
    return peer.got(Welcome)[0]


def test_what_waits_for_a_failed_commit_is_never_said() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe()
    ann.publish(persistent(1))
    rig.tick()
    rig.fail()
    rig.run()
    assert ann.accepted == []
    assert bob.counters() == []
    assert [one.code for one in ann.got(Bye)] == ["internal"]
    assert [one.code for one in bob.got(Bye)] == ["internal"]
    assert rig.stored == []


def test_who_waits_for_nothing_is_not_touched() -> None:
    rig = Rig()
    ann, bob, cat = rig.peer("a"), rig.peer("b"), rig.peer("c")
    cat.subscribe(filter="n = 2")
    ann.publish(persistent(1, n=1))
    bob.publish(event(1, n=2))
    rig.tick()
    rig.fail()
    rig.run()
    assert cat.counters() == [1]
    assert bob.accepted == [1]
    assert not bob.got(Bye)
    bob.publish(event(2, n=2))
    rig.run()
    assert cat.counters() == [1, 2]


def test_what_was_lost_is_taken_when_it_is_sent_again() -> None:
    rig = Rig()
    first = rig.peer("a")
    first.publish(persistent(1))
    rig.run()
    life = greeted(rig, "a").boot
    first.publish(persistent(2))
    rig.tick()
    rig.fail()
    rig.peers.remove(first)
    welcome = greeted(rig, "a")
    assert welcome.counter == 1
    assert welcome.boot != life  # so that nothing transient is sent again
    again = rig.peer("a")
    again.publish(persistent(2))
    rig.run()
    assert again.accepted == [2]
    assert [batch.count for batch in rig.stored] == [1, 1]


def test_a_durable_subscription_that_was_made_in_a_failed_commit_is_stored_with_the_next() -> None:
    rig = Rig()
    ann = rig.peer("a")
    ann.request("subscribe", number=1, durable="d", credit=10)
    rig.tick()
    rig.fail()
    rig.peer("b").publish(reliable(1))
    rig.run()
    assert [durable.name for durable in rig.state.durables] == ["d"]
    back = rig.peer("a")
    back.subscribe(durable="d")
    assert back.counters() == [1]


def test_an_acknowledgement_in_a_failed_commit_is_not_forgotten() -> None:
    rig = Rig()
    ann = rig.peer("a")
    ann.subscribe(durable="d")
    rig.peer("b").publish(reliable(1), reliable(2))
    rig.run()
    ann.acknowledge(1, 1)
    rig.tick()
    rig.fail()
    rig.run()
    assert [durable.cursor for durable in rig.state.durables] == [1]


@pytest.mark.parametrize("steps", range(1, 7))
def test_no_last_value_is_told_that_was_lost_while_it_was_looked_for(
    monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    monkeypatch.setattr(last_values, "LOOKED_AT_ONCE", 1)
    rig = Rig()
    ann = rig.peer("a")
    ann.publish(*(persistent(counter, f"t{counter}") for counter in (1, 2, 3)))
    rig.tick()
    looking = last_values.last_values(rig.broker, Filter())
    for _ in range(steps):
        next(looking)
    rig.fail()
    assert finish(looking) == []

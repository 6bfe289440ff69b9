"""What is advertised, as consumers see it: the list, its pages, word of changes, and whose business it is."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.guarded import come, guarded, may
from protocol.rig import Peer, Rig
from protocol.test_turns import settle, sliced
from tidings.filters import Filter
from tidings.interest import interests
from tidings.protocol import advertised
from tidings.protocol.messages import Ping, Pong, Reply
from tidings.protocol.service import IncomingRequest
from tidings.steps import finish


def listed(peer: Peer, filter: str = "", **more: Any) -> list[tuple[str, str]]:
    """The filters that are advertised, and who did that."""
    reply = peer.ask("advertisements.list", filter=filter, **more)
    assert reply.error is None, reply.error
    return [(one["filter"], one["source"]) for one in reply.result["advertisements"]]


def version(peer: Peer) -> int:
    seen: int = peer.ask("advertisements.list").result["version"]
    return seen


def wait(peer: Peer, version: int) -> int:
    """Wait for another version; the number of that request."""
    peer.request("advertisements.wait", version=version)
    return peer._number


def told(peer: Peer, number: int) -> Reply | None:
    return next((one for one in peer.got(Reply) if one.number == number), None)


def test_a_list_has_what_overlaps_a_filter_in_the_order_in_which_it_came() -> None:
    rig = Rig()
    maker, consumer = rig.peer("m", name="quay"), rig.peer("c", name="bob")
    maker.ask("advertise", number=1, filter="type = 'air' AND value > 10")
    maker.ask("advertise", number=2, filter="type = 'water'")
    consumer.ask("advertise", number=1, filter="")
    everything = [("type = 'air' AND value > 10", "quay"), ("type = 'water'", "quay"), ("TRUE", "bob")]
    assert listed(consumer) == everything
    assert listed(consumer, "type = 'air' AND value < 5") == [("TRUE", "bob")]
    assert listed(consumer, "type = 'water'") == [("type = 'water'", "quay"), ("TRUE", "bob")]
    maker.ask("unadvertise", number=1)
    assert listed(consumer, "type = 'air'") == [("TRUE", "bob")]
    maker.lose()
    rig.run()
    assert listed(consumer) == [("TRUE", "bob")]


def test_a_long_list_comes_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advertised, "LISTED_MAX", 2)
    rig = Rig()
    maker = rig.peer("m")
    for n in range(5):
        maker.ask("advertise", number=n + 1, filter=f"n = {n}")
    found, after = [], 0
    while after is not None:
        page = maker.ask("advertisements.list", after=after).result
        found += [one["filter"] for one in page["advertisements"]]
        after = page["next"]
    assert found == [f"n = {n}" for n in range(5)]


def test_who_waits_is_told_once_when_anything_has_changed() -> None:
    rig = Rig()
    maker, consumer = rig.peer("m"), rig.peer("c")
    seen = version(consumer)
    waiting = wait(consumer, seen)
    rig.run()
    assert told(consumer, waiting) is None
    maker.ask("advertise", number=1, filter="type = 'air'")
    reply = told(consumer, waiting)
    assert reply is not None
    assert reply.result["version"] != seen
    assert consumer.ask("advertisements.wait", version=seen).result == reply.result  # at once
    maker.ask("unadvertise", number=1)
    assert version(consumer) != reply.result["version"]


def test_many_changes_in_a_row_are_told_with_a_pause_between() -> None:
    rig = Rig()
    maker, consumer = rig.peer("m"), rig.peer("c")
    wait(consumer, version(consumer))
    maker.ask("advertise", number=1, filter="n = 1")
    waiting = wait(consumer, version(consumer))
    rig.run()
    maker.ask("advertise", number=2, filter="n = 2")
    assert told(consumer, waiting) is None
    assert rig.broker.wake_at == rig.now + advertised.PAUSE_S
    rig.now += advertised.PAUSE_S
    rig.broker.wake(rig.now)
    rig.run()
    assert told(consumer, waiting) is not None


def test_of_very_many_that_wait_the_oldest_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advertised, "WAITING_MAX", 2)
    consumer = Rig().peer("c")
    seen = version(consumer)
    waiting = [wait(consumer, seen) for _ in range(3)]
    consumer.rig.run()
    assert [told(consumer, number) is not None for number in waiting] == [True, False, False]
    consumer.lose()
    consumer.rig.run()


def test_many_who_wait_are_told_in_their_own_time() -> None:
    rig = sliced()
    maker, light = rig.peer("m"), rig.peer("l")
    consumers = [rig.peer(f"c{number}") for number in range(100)]
    settle(rig)
    waiting = [wait(consumer, version(consumers[0])) for consumer in consumers]
    settle(rig)
    maker.request("advertise", number=1, filter="n = 1")
    light.send(Ping(1))
    for _ in range(3):
        rig.tick()
    assert light.got(Pong)
    answered = [told(one, number) is not None for one, number in zip(consumers, waiting, strict=True)]
    assert any(answered)
    assert not all(answered)
    settle(rig)
    assert all(told(one, number) is not None for one, number in zip(consumers, waiting, strict=True))


def test_a_restarted_node_has_no_version_of_before() -> None:
    rig = Rig()
    seen = version(rig.peer("c"))
    assert version(rig.restart().peer("c")) != seen


def test_a_client_sees_only_what_it_may_subscribe_to_and_only_that_part_of_it() -> None:
    air = "type = 'air'"
    rig = guarded(maker=[may("publish")], ann=[may("subscribe", air)], eve=[may("publish")])
    maker = come(rig, "maker", "m")
    for number, filter in enumerate([air, "type = 'water'", "type IN ('air', 'secret')", ""], 1):
        assert maker.ask("advertise", number=number, filter=filter).error is None
    ann = come(rig, "ann", "a")
    found = [Filter(filter) for filter, _ in listed(ann)]
    assert found[0] == Filter(air)
    assert len(found) == 3
    assert all(Filter(air).covers(one) for one in found)
    assert "secret" not in str(found)
    assert ann.ask("advertisements.list", filter="type = 'water'").error is not None
    failure = come(rig, "eve", "e").ask("advertisements.list").error
    assert failure is not None
    assert failure.code == "not-allowed"


def test_what_a_source_may_not_publish_is_not_offered_and_its_rules_are_not_told() -> None:
    rig = guarded(maker=[may("publish", "type = 'air' AND room = 'hall'")], ann=[may("subscribe")])
    come(rig, "maker", "m").ask("advertise", number=1, filter="type = 'air'")
    ann = come(rig, "ann", "a")
    assert listed(ann) == [("type = 'air'", "maker")]
    assert listed(ann, "room = 'cellar'") == []


def test_a_list_of_very_many_is_made_in_steps_while_some_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interests, "SOUGHT_MAX", 10)
    rig = Rig()
    maker = rig.peer("m")
    for n in range(50):
        maker.ask("advertise", number=n + 1, filter=f"n = {n}")
    (service,) = (one for one in rig.broker.services if isinstance(one, advertised.Advertised))
    steps = service._list(IncomingRequest(maker.session, 1), advertised.AdvertisementSearch("n > 20"))
    next(steps)
    maker.ask("unadvertise", number=40)
    result = finish(steps)
    assert [one["filter"] for one in result["advertisements"]] == [
        f"n = {n}" for n in range(21, 50) if n != 39
    ]

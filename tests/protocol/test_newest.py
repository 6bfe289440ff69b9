"""Durable subscriptions that get the newest events first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocol.rig import Peer, Rig, event, reliable


def published(rig: Rig, *counters: int, **attributes: int) -> None:
    peer = rig.peer("pub", name="pub")
    peer.publish(*(reliable(counter, **attributes) for counter in counters))
    rig.run()
    peer.lose()


def returned(rig: Rig, credit: int = 1_000) -> Peer:
    peer = rig.peer("s", 1, "sub")
    peer.subscribe(1, durable="d", order="newest", credit=credit)
    return peer


def away(rig: Rig, *counters: int) -> None:
    """A subscriber that has been there, and events that were stored after it left."""
    returned(rig).lose()
    for counter in counters:
        published(rig, counter)


def test_what_was_stored_comes_from_the_newest_to_the_oldest() -> None:
    rig = Rig(read_size=1)
    away(rig, 1, 2, 3, 4)
    assert returned(rig).counters() == [4, 3, 2, 1]


def test_what_is_published_meanwhile_goes_before_the_rest() -> None:
    rig = Rig()
    away(rig, 1, 2, 3, 4)
    peer = returned(rig, credit=2)
    published(rig, 5)
    peer.grant(1, 10)
    rig.run()
    assert peer.counters() == [4, 3, 5, 2, 1]
    published(rig, 6)
    assert peer.counters()[-1] == 6


def test_the_cursor_moves_when_the_oldest_has_been_dealt_with() -> None:
    rig = Rig()
    away(rig, 1, 2, 3)
    peer = returned(rig)
    peer.acknowledge(1, 2)
    rig.run()
    assert rig.state.durables[0].cursor == 0
    peer.acknowledge(1, 1)
    rig.run()
    assert rig.state.durables[0].cursor == 3
    peer.lose()
    published(rig, 4)
    assert returned(rig).counters() == [4]


def test_what_was_not_finished_comes_again_and_is_marked() -> None:
    rig = Rig()
    away(rig, 1, 2, 3)
    peer = returned(rig, credit=2)
    assert peer.counters() == [3, 2]
    rig = rig.restart()
    peer = returned(rig)
    assert peer.counters() == [3, 2, 1]
    assert peer.marked() == [3, 2, 1]  # the store is told in steps of HANDED_AHEAD what may have been sent


def test_only_what_matches_and_has_not_expired_comes() -> None:
    rig = Rig()
    peer = rig.peer("s", 1, "sub")
    peer.subscribe(1, "n > 1", durable="d", order="newest")
    peer.lose()
    for counter in range(1, 6):
        published(rig, counter, n=counter % 3)
    again = rig.peer("s", 1, "sub")
    again.subscribe(1, "n > 1", durable="d", order="newest")
    assert again.counters() == [5, 2]


def test_the_order_belongs_to_the_subscription() -> None:
    rig = Rig()
    returned(rig).lose()
    rig = rig.restart()
    published(rig, 1, 2)
    assert returned(rig).counters() == [2, 1]
    reply = rig.peer("s", 1, "sub").ask("subscribe", number=2, durable="d")
    assert reply.error is not None
    assert reply.error.code == "exists"
    assert rig.peer("x").ask("subscribe", number=1, order="newest").error is not None


@given(st.lists(st.sampled_from(["publish", "transient", "grant", "ack", "leave", "crash"]), max_size=40))
def test_everything_arrives_and_nothing_comes_twice_unmarked(steps: list[str]) -> None:
    rig = Rig(read_size=60)
    total, counter, seen = 2, 0, set[int]()
    peer = returned(rig, total)
    looked = 0

    def look() -> None:
        nonlocal looked
        for one, position, redelivered in peer.deliveries()[looked:]:
            if position is not None:
                assert redelivered or one.counter not in seen
                seen.add(one.counter)
        looked = len(peer.deliveries())

    stored = set()
    for step in [*steps, "leave", "grant"]:
        if step in ("publish", "transient"):
            counter += 1
            sender = rig.peer("pub", name="pub")
            sender.publish((reliable if step == "publish" else event)(counter))
            rig.run()
            sender.lose()
            if step == "publish":
                stored.add(counter)
        elif step == "grant":
            total += 1_000
            peer.grant(1, total)
        elif step == "ack":
            places = [place for place in peer.positions() if place is not None]
            if places:
                peer.acknowledge(1, places[len(places) // 2])
        rig.run()
        look()
        if step in ("leave", "crash"):
            if step == "crash":
                rig = rig.restart()
            else:
                peer.lose()
            total, looked = 2, 0
            peer = returned(rig, total)
            look()
    assert stored <= seen

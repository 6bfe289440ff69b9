"""What is kept for a neighbour that is away, within bytes and age; what goes past that is a reported gap."""

from __future__ import annotations

from typing import Any

import pytest
from overlay.network import Listening, Network

from tidings.errors import Refused
from tidings.overlay.keeping import GapRequest
from tidings.overlay.settings import OverlaySettings
from tidings.protocol.missed import MissedRange
from tidings.protocol.subscriber import MissedNumbers

SIZE = 200
"""Bytes of what is kept in most of these networks: five events."""


def line(*more: tuple[str, str], **settings: Any) -> Network:
    """a - b - c, where no other links can be made."""
    settings = {"reroute_s": 1_000.0, "away_bytes": SIZE, "suspect_s": 0.0, **settings}
    return Network(("a", "b"), ("b", "c"), *more, **settings)


def part(net: Network, *names: str, of: str = "c") -> None:
    for name in names:
        net.cut(name, of)


def join(net: Network, *names: str, of: str = "c") -> None:
    for name in names:
        net.heal(name, of)


def keep_all(net: Network, node: str) -> None:
    """Let a node keep what others give up."""
    net[node].core.overlay.keeping.settings = OverlaySettings()


def epoch(net: Network, node: str) -> int:
    return net[node].core.overlay.numbers.epoch


def link(net: Network, node: str, other: str) -> dict[str, Any]:
    return next(one for one in net[node].core.overlay.status()["links"] if one["name"] == other)


def publish(net: Network, node: str, *values: int, **more: Any) -> None:
    app = net.app(node)
    for value in values:
        app.publish(value, **more)
        net.run(0.1)


def test_within_the_limits_nothing_is_dropped_and_what_is_stored_is_shown() -> None:
    net = line(away_bytes=10_000)
    got = net.app("c").subscribe("x >= 0")
    net.run()
    part(net, "b", "a")
    publish(net, "a", *range(5))
    net.run(5)
    about = link(net, "b", "c")
    assert (about["stored_events"], about["gaps"]) == (5, 0)
    assert about["stored_bytes"] > 5 * 20
    assert net["b"].core.overlay.keeping.stored == (5, about["stored_bytes"])
    join(net, "b", "a")
    net.run(30)
    assert got.values == [0, 1, 2, 3, 4]
    assert got.gaps == []
    assert link(net, "b", "c")["stored_events"] == 0


def test_the_oldest_go_past_the_bytes_and_are_reported_behind_the_neighbour_by_their_numbers() -> None:
    net = line(("c", "d"))
    near, far, other = net.app("c").subscribe("x >= 0"), net.app("d").subscribe("x > 1"), net.app("a")
    net.run()
    publish(net, "a", 0)
    part(net, "b", "a", "d")
    join(net, "d")
    publish(net, "a", *range(1, 11))
    net.run(5)
    kept = link(net, "b", "c")["stored_events"]
    assert 0 < kept < 10
    assert net.count("b", "away_dropped") == 10 - kept
    assert net.table("b", of="c")
    join(net, "b", "a")
    net.run(30)
    missed = [MissedNumbers("a", epoch(net, "a"), 2, 11 - kept)]
    assert near.values == [0, *range(11 - kept, 11)]
    assert far.values == list(range(11 - kept, 11))
    assert near.missed == far.missed == missed
    assert near.gaps == [(0, "away")]
    assert [net.count(name, "gaps") for name in "abcd"] == [0, 0, 1, 1]
    assert link(net, "b", "c")["gaps"] == 0
    assert other.subscriptions == []


def test_the_oldest_go_past_the_age() -> None:
    net = line(away_bytes=1 << 20, away_s=20.0)
    got = net.app("c").subscribe("x >= 0")
    net.run()
    part(net, "b", "a")
    publish(net, "a", 1, 2)
    net.run(15)
    publish(net, "a", 3)
    net.run(10)
    join(net, "b", "a")
    net.run(30)
    assert got.values == [3]
    assert got.missed == [MissedNumbers("a", epoch(net, "a"), 1, 2)]


def test_what_is_given_up_is_not_kept_by_those_before_either() -> None:
    net = line(away_s=5.0)
    net.app("c").subscribe("x >= 0", durable="all")
    net.run()
    part(net, "b", "a")
    publish(net, "a", 1, 2, 3)
    net.run(20)
    for near, far in ("ab", "bc"):
        cursor = net.neighbour(near, far).cursor
        assert cursor is not None
        assert cursor.released == net[near].broker.position


def test_only_subscriptions_that_may_have_matched_are_notified() -> None:
    net = line()
    got = net.app("c").subscribe("type = 'x' AND x > 5")
    other = net.app("c").subscribe("type = 'y'")
    net.run()
    part(net, "b", "a")
    publish(net, "a", *range(6, 16))
    net.run(5)
    join(net, "b", "a")
    net.run(30)
    assert len(got.missed) == 1
    assert other.gaps == []


def test_a_durable_subscription_that_is_away_too_is_notified_when_it_is_back() -> None:
    net = line()
    got = net.app("c", "keeper").subscribe("x >= 0", durable="all")
    net.run()
    part(net, "b", "a", "keeper")
    publish(net, "a", *range(10))
    net.run(5)
    join(net, "b", "a")
    net.run(30)
    assert got.missed == []
    net["c"].crash()
    net.run(1)
    net["c"].start()
    net.run(10)
    join(net, "keeper")
    net.run(10)
    assert got.values == [5, 6, 7, 8, 9]
    assert got.missed == [MissedNumbers("a", epoch(net, "a"), 1, 5)]
    late = net.app("c").subscribe("x >= 0", durable="new")
    net.run()
    assert late.missed == []


def test_gaps_survive_a_restart_of_the_node_that_has_them_to_report() -> None:
    net = line(away_s=5.0)
    got = net.app("c").subscribe("x >= 0")
    net.run()
    part(net, "b", "a")
    publish(net, "a", 1, 2)
    net.run(20)
    net["b"].crash()
    net.run(1)
    net["b"].start()
    net.run(5)
    assert link(net, "b", "c")["gaps"] == 1
    join(net, "b", "a")
    net.run(30)
    publish(net, "a", 3)
    net.run(2)
    assert got.missed == [MissedNumbers("a", epoch(net, "a"), 1, 2)]
    assert got.values == [3]


def test_a_publisher_that_waits_until_its_event_is_held_hears_that_it_was_given_up() -> None:
    net = Network(("a", "b"), reroute_s=1_000.0, away_s=5.0)
    net.app("b").subscribe("x >= 0")
    net.run()
    app = net.app("a")
    net.cut("a", "b")
    app.publish(1)
    answers = app.ask("held")
    net.run(3)
    assert answers == []
    net.run(10)
    (error,) = answers
    assert isinstance(error, Refused)
    assert error.code == "gap"


def give_up_and_come_back(net: Network) -> Listening:
    """Let b give up what a still keeps for c, since a can't hear that c was notified."""
    got = net.app("c").subscribe("x >= 0", durable="all")
    net.run()
    part(net, "b", "a")
    publish(net, "a", 1, 2)
    net.run(0.5)
    part(net, "a", of="b")
    net.run(20)
    net.heal("b", "c")
    net.run(30)
    return got


def test_what_comes_after_its_gap_was_reported_is_late_and_comes_once() -> None:
    net = line(away_bytes=1 << 20, away_s=8.0, reroute_s=60.0)
    keep_all(net, "a")
    got = give_up_and_come_back(net)
    assert got.missed == [MissedNumbers("a", epoch(net, "a"), 1, 2)]
    assert got.values == []
    net["b"].crash()
    net.heal("a", "c")
    net.run(200)
    assert net.neighbour("a", "c").is_up
    publish(net, "a", 3)
    net.run(5)
    assert got.values == [1, 2, 3]
    assert [event["x"] for event in got.late] == [1, 2]
    assert net.count("c", "late") == 2
    assert not net["c"].broker.missed


def test_what_is_stored_is_late_for_a_durable_subscription_that_comes_later() -> None:
    net = line(away_bytes=1 << 20, away_s=8.0, reroute_s=60.0)
    keep_all(net, "a")
    give_up_and_come_back(net)
    keeper = net.app("c", "keeper").subscribe("x >= 0", durable="other")
    net.run()
    part(net, "keeper")
    net["b"].crash()
    net.heal("a", "c")
    net.run(200)
    publish(net, "a", 3)
    join(net, "keeper")
    net.run(20)
    assert keeper.values == [1, 2, 3]
    assert [event["x"] for event in keeper.late] == [1, 2]


@pytest.mark.parametrize(
    "missed",
    [
        MissedRange("c", 1, 1, 5, 5),
        MissedRange("b", 1, 5, 1, 5),
        MissedRange("a", 1, 1, 5, 5),
    ],
)
def test_a_gap_that_a_neighbour_can_not_know_of_is_refused(missed: MissedRange) -> None:
    net = line()
    got = net.app("b").subscribe("")
    net.run()
    ids = {name: net[name].broker.node for name in "abc"}
    forged = MissedRange(ids[missed.node], missed.epoch, missed.first, missed.last, missed.count)
    net["b"].core.overlay.keeping.hear(net.neighbour("b", "c"), GapRequest([forged]))
    net.run()
    is_of_c = missed.node == "c"
    assert bool(got.missed) is is_of_c
    assert net.count("b", "relays_refused", "gap") == (0 if is_of_c else 1)


def trim(net: Network, node: str) -> None:
    """Have removed what is kept for nobody; otherwise that is done for many positions at once."""
    for operation in net[node].broker.cursors.trim(1):
        net[node].broker.store(operation)
    net.app(node)


@pytest.mark.parametrize("is_trimmed", [True, False])
def test_those_behind_a_dead_neighbour_hear_of_its_gap_over_the_way_round_it(is_trimmed: bool) -> None:
    net = line(away_s=20.0, away_bytes=1 << 20, reroute_s=200.0)
    net.cut("a", "c")  # so that no way leads round b yet
    got = net.app("c").subscribe("x >= 0", durable="all")
    net.run()
    publish(net, "a", 1)
    net["b"].crash()
    publish(net, "a", 2, 3)
    net.run(100)
    assert link(net, "a", "b")["gaps"] == 1
    if is_trimmed:
        trim(net, "a")
    net.heal("a", "c")
    net.run(500)
    assert net.neighbour("a", "c").is_up
    publish(net, "a", 4)
    net.run(5)
    assert got.values == ([1, 4] if is_trimmed else [1, 2, 3, 4])
    assert got.missed == [MissedNumbers("a", epoch(net, "a"), 2, 3)]
    assert [event["x"] for event in got.late] == ([] if is_trimmed else [2, 3])


def test_what_a_neighbour_has_itself_is_no_gap_for_it_nor_for_those_behind_it() -> None:
    net = line(away_s=5.0, away_bytes=1 << 20)
    keep_all(net, "b")
    got = net.app("c").subscribe("x >= 0", durable="all")
    net.run()
    part(net, "b", "a")
    publish(net, "a", 1, 2)
    net.run(0.5)
    part(net, "a", of="b")
    net.run(20)
    assert net.count("a", "away_dropped") == 2
    join(net, "b", "a")
    join(net, "a", of="b")
    net.run(30)
    assert got.values == [1, 2]
    assert [net.count(name, "gaps") for name in "abc"] == [0, 0, 0]
    assert link(net, "a", "b")["gaps"] == 0

"""Patterns where any node may publish what it likes: each goes to where most of its events come from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from overlay.network import App, Listening, Network
from placing.line import AB, LATER, at, line, publish, spans, where

from tidings.event import Event
from tidings.patterns import traffic
from tidings.patterns.traffic import EVENTS_MIN, WINDOW_S, Traffic


def busy(net: Network, app: App, events: Iterable[Event]) -> None:
    """Publish events over more than the time for which they are counted."""
    each = (WINDOW_S + 1) / EVENTS_MIN
    for event in events:
        publish(app, event)
        net.run(each)
    net.run(5)


def alike(start: float, count: int = 2 * EVENTS_MIN, **more: Any) -> list[Event]:
    """Events of which none completes a match; each is a step."""
    return [at("A", start + number, k="alike", **more) for number in range(count)]


@pytest.fixture
def net() -> Network:
    return line(offers_all=True)


def placed(net: Network, text: str = LATER, **more: Any) -> tuple[App, Listening]:
    """A source at the last node, and a pattern of the first that has come there."""
    far = net.app("n3")
    matches = net.app("n1", "client").subscribe(pattern=text, **more)
    net.run(2)
    assert where(net) == "n1"
    busy(net, far, alike(0))
    busy(net, far, alike(1_000))
    assert where(net) == "n3"
    return far, matches


# Counting


def counted(now: float = 0.0, found: int = 0, **sides: int) -> Traffic:
    one = Traffic()
    for side, events in sides.items():
        one.note(side.replace("here", ""), events, now)
    one.find(found)
    return one


def test_the_side_from_which_most_comes_outweighs_the_others() -> None:
    assert counted(n2=250, n3=50, here=50).heaviest("", 0, WINDOW_S) == "n2"


def test_a_side_without_twice_as_much_as_all_others_does_not() -> None:
    assert counted(n2=300, n3=100, here=60).heaviest("", 0, WINDOW_S) is None


def test_matches_that_would_travel_count_against_a_move() -> None:
    assert counted(n2=300, found=200).heaviest("", 0, WINDOW_S) is None
    assert counted(n2=300, found=100).heaviest("", 0, WINDOW_S) == "n2"


def test_matches_count_for_the_way_back() -> None:
    assert counted(n2=200, n3=90, found=100).heaviest("n2", 0, WINDOW_S) == "n2"
    assert counted(n2=200, n3=120, found=10).heaviest("n2", 0, WINDOW_S) is None


def test_partial_matches_that_would_travel_count_against_a_move_until_more_has_come() -> None:
    one = counted(n2=300)
    assert one.heaviest("", 250, WINDOW_S) is None
    one.note("n2", 100, WINDOW_S)
    assert one.is_due
    assert one.heaviest("", 250, WINDOW_S) == "n2"


def test_a_moment_is_too_short_to_compare() -> None:
    one = counted(n2=300)
    assert one.heaviest("", 0, WINDOW_S / 2) is None
    assert one.heaviest("", 0, WINDOW_S) == "n2"


def test_it_is_not_compared_at_each_event() -> None:
    one = counted(n2=EVENTS_MIN)
    one.heaviest("", 10_000, WINDOW_S)
    assert not one.is_due


# On a line of nodes


def test_a_pattern_goes_to_the_node_from_which_its_events_come_though_all_may_publish(net: Network) -> None:
    far, matches = placed(net)
    relayed = net.count("n3", "relayed")
    publish(far, *alike(2_000), at("A", 3_000), at("B", 3_100), at("A", 4_000, k="push"))
    net.run(5)
    assert spans(matches) == [("x", 3_000, 3_100)]
    assert net.count("n3", "relayed") == relayed, "only the match has travelled"


@pytest.mark.parametrize(("follows", "crossings"), [(True, 150), (False, 3_000)])
def test_less_travels_where_a_pattern_follows_its_events(follows: bool, crossings: int) -> None:
    net = Network(("n1", "n2"), ("n2", "n3"), ("n3", "n4"))
    if not follows:
        for name in net.names:
            del net[name].broker.operations["link.compute.all"]
    far, near = net.app("n4"), net.app("n1")
    near.subscribe(pattern=AB)
    net.run(2)
    for turn in range(3):
        busy(net, far, alike(1_000 * turn))
    assert where(net) == ("n4" if follows else "n1")

    def relayed() -> int:
        return sum(net.count(name, "relayed") for name in net.names)

    before = relayed()
    for start in range(5_000, 6_000, 100):
        publish(far, *alike(start, 100))
        publish(near, *alike(start + 50, 5))
        net.run(1)
    assert relayed() - before == crossings


def test_what_is_published_at_the_node_of_the_client_completes_a_match_elsewhere(net: Network) -> None:
    far, matches = placed(net)
    near, middle = net.app("n1"), net.app("n2")
    publish(far, at("A", 3_000), at("A", 3_000, k="y"))
    publish(near, at("B", 3_100))
    publish(middle, at("B", 3_100, k="y"))
    publish(near, at("A", 4_000, k="push"))
    net.run(5)
    assert sorted(spans(matches)) == [("x", 3_000, 3_100), ("y", 3_000, 3_100)]
    assert where(net) == "n3"


def test_a_partial_match_goes_along_and_back_again(net: Network) -> None:
    far = net.app("n3")
    matches = net.app("n1").subscribe(pattern="a[type = 'A'] THEN b[type = 'B'] WITHIN 1 h BY k LATE 60 s")
    net.run(2)
    publish(far, at("A", 0), at("A", 0, k="y"))
    busy(net, far, alike(1))
    busy(net, far, alike(400))
    assert where(net) == "n3"
    publish(far, at("B", 700))
    near = net.app("n1")
    busy(net, near, alike(800))
    busy(net, near, alike(1_200))
    assert where(net) == "n1"
    publish(near, at("B", 1_500, k="y"), at("A", 9_000, k="push"))
    net.run(5)
    assert sorted(spans(matches)) == [("x", 0, 700), ("y", 0, 1_500)]


def test_a_pattern_whose_every_event_matches_stays_with_its_client(net: Network) -> None:
    far = net.app("n3")
    matches = net.app("n1").subscribe(pattern="a[type = 'A'] LATE 0 s BY k")
    busy(net, far, alike(0))
    busy(net, far, alike(1_000))
    assert where(net) == "n1"
    publish(far, at("A", 9_000, k="push"))
    net.run(5)
    assert len(matches.got) >= 4 * EVENTS_MIN


def test_a_standing_pattern_outlives_restarts_of_all_nodes_that_it_concerns(net: Network) -> None:
    _, matches = placed(net, durable="d")
    publish(net.app("n3"), at("A", 3_000))
    publish(net.app("n1"), at("A", 3_001, k="y"))
    net.run(2)
    for name in net.names:
        net[name].crash()
        net.run(2)
        net[name].start()
        net.run(10)
    assert where(net) == "n3"
    publish(net.app("n1"), at("B", 3_100))
    publish(net.app("n3"), at("B", 3_100, k="y"))
    net.run(1)
    publish(net.app("n1"), at("A", 3_400, k="push"))
    net.run(5)
    assert sorted(spans(matches)) == [("x", 3_000, 3_100), ("y", 3_001, 3_100)]


def test_what_is_under_way_to_another_node_is_used_there_before_the_pattern_comes_back(net: Network) -> None:
    _, matches = placed(net, durable="d")
    near = net.app("n1")
    busy(net, near, alike(2_000, 50))
    net.cut("n1", "n2")
    publish(near, at("A", 3_000), at("A", 3_000, k="y"))
    net.run(1)
    (there,) = net["n1"].core.placing.placements
    net["n1"].core.placing._gather(there)
    publish(near, at("B", 3_001))
    net.run(1)
    net["n1"].read_s = 0.5  # what was stored meanwhile goes later than what is asked
    net.heal("n1", "n2")
    net.run(30)
    assert where(net) == "n1"
    publish(near, at("B", 3_002, k="y"), at("A", 4_000, k="push"))
    net.run(5)
    assert sorted(spans(matches)) == [("x", 3_000, 3_001), ("y", 3_000, 3_002)]
    assert matches.gaps == []


def test_a_node_of_an_earlier_release_is_given_no_pattern_that_it_would_misunderstand(net: Network) -> None:
    del net["n2"].broker.operations["link.compute.all"]
    far, matches = net.app("n3"), net.app("n1").subscribe(pattern=AB)
    busy(net, far, alike(0))
    busy(net, far, alike(1_000))
    assert where(net) == "n1"
    publish(far, at("A", 2_000), at("B", 2_001), at("A", 3_000, k="push"))
    net.run(5)
    assert spans(matches) == [("x", 2_000, 2_001)]


def test_a_pattern_is_not_moved_for_few_events(net: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    far, _ = net.app("n3"), net.app("n1").subscribe(pattern=AB)
    busy(net, far, alike(0, EVENTS_MIN - 1))
    assert where(net) == "n1"
    monkeypatch.setattr(traffic, "EVENTS_MIN", 10)
    busy(net, far, alike(1_000, 10))
    assert where(net) != "n1"

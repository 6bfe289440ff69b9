"""Routes in a large overlay: what tables cost and which links events pass, beside an oracle."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings import Event, Filter
from tidings.overlay.pruning import Pruning
from tidings.simulator import overlay_routes as routes
from tidings.simulator.overlay_routes import Oracle, RoutedNetwork, overlay_routes, random_tree


def path(edges: list[tuple[str, str]], start: str, end: str) -> list[str]:
    """The nodes between two, by trying all ways."""
    ways = [[start]]
    for way in ways:
        if way[-1] == end:
            return way
        for one, other in [*edges, *(edge[::-1] for edge in edges)]:
            if one == way[-1] and other not in way:
                ways.append([*way, other])
    raise AssertionError("a tree has a way between any two nodes")


@given(st.integers(0), st.integers(2, 15), st.sets(st.integers(0, 14), min_size=1))
def test_the_oracle_needs_the_links_on_the_ways_between_all_ends(
    seed: int, count: int, ends: set[int]
) -> None:
    edges = random_tree(Random(seed), count)
    assert len(edges) == count - 1
    names = sorted({name for edge in edges for name in edge})
    chosen = [names[end] for end in ends if end < count]
    needed = {
        frozenset(step) for one in chosen for other in chosen for step in pairwise(path(edges, one, other))
    }
    assert Oracle(edges).links_needed(chosen) == len(needed)


def test_forty_nodes_have_short_tables_and_pass_no_event_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "EVENTS", 100)
    verdict = overlay_routes(3, 40)
    assert verdict.subscriptions == 400
    assert verdict.passed == verdict.needed > 0
    assert verdict.deliveries > 0
    assert verdict.saved > 0.85
    assert verdict.entries <= verdict.unmerged
    assert "0.00% above" in str(verdict)


def test_the_same_seed_is_the_same_network_and_another_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "EVENTS", 20)
    first, second, other = (overlay_routes(seed, 10) for seed in (1, 1, 2))
    assert first == second
    assert first.entries != other.entries


def test_events_that_do_not_arrive_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pruning, "_is_offered", lambda _self, filter: "value" in str(filter))
    with pytest.raises(AssertionError, match="is wanted at"):
        overlay_routes(3, 20)


def test_events_that_pass_links_in_vain_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "EVENTS", 50)
    monkeypatch.setattr(routes._Table, "wants", lambda _self, _event: True)
    verdict = overlay_routes(3, 20)
    assert verdict.passed == 50 * 19
    assert verdict.excess > 0


def test_what_nobody_wants_any_more_leaves_nothing_in_any_table() -> None:
    network = RoutedNetwork(random_tree(Random(5), 12))
    network.touch("n00003").advertise("type = 'a'")
    network.touch("n00007").advertise("")
    for number in range(30):
        where = network.touch(f"n{number % 12:05}")
        where.subscribe(number, Filter(f"type = '{'ab'[number % 2]}' AND room = {number % 7}"))
    network.settle()
    assert network.entries
    assert network.publish(Event("b", {"room": 1}), "n00007")[0]
    for number in range(30):
        network.touch(f"n{number % 12:05}").unsubscribe(number)
    network.settle()
    assert network.entries == network.unmerged == 0

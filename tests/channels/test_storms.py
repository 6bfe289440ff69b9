"""Channels in networks that lose links, fall apart and lose nodes: every member gets every event, once."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from channels.test_trees import create, join, lists, send
from effort import SEED, often
from overlay.network import Network

NODES = "123456"
MEMBERS = "135"
STEPS = 12
REROUTE_S = 2.0
CUTS_MAX = 2
END_S = 60.0
"""After which nothing is under way any more."""


@pytest.mark.parametrize("seed", range(SEED, SEED + often(15)))
def test_members_get_each_reliable_event_once_and_in_order_in_any_weather(seed: int) -> None:
    chance = random.Random(seed)
    edges = graph(chance)
    network = Network(*edges, seed=seed, reroute_s=REROUTE_S)
    apps = {name: network.app(name) for name in MEMBERS}
    channel = create(network, apps["1"], delivery="reliable")
    members = {name: join(network, apps[name], channel, durable=f"member-{name}") for name in MEMBERS}
    sent: dict[str, list[int]] = {name: [] for name in MEMBERS}
    cuts: list[tuple[str, str]] = []
    for number in range(STEPS):
        match chance.choice(("cut", "heal", "crash", "", "")):
            case "cut" if len(cuts) < CUTS_MAX:
                cuts.append(chance.choice(edges))
                network.cut(*cuts[-1])
            case "heal" if cuts:
                network.heal(*cuts.pop(chance.randrange(len(cuts))))
            case "crash":
                crashed = network[chance.choice(NODES)]
                crashed.crash()
                network.run(chance.choice((0.5, 5.0)))
                crashed.start()
            case _:
                pass
        name = chance.choice(MEMBERS)
        send(apps[name], channel, number)
        sent[name].append(number)
        network.run(chance.choice((0.1, 1.0, 3.0, 6.0)))
    for edge in cuts:
        network.heal(*edge)
    network.run(END_S)
    got = {name: member.values for name, member in members.items()}
    for name, values in got.items():
        for sender, numbers in sent.items():
            assert [one for one in values if one in numbers] == numbers, (edges, name, sender)
    for name, neighbours in (found := lists(network, channel)).items():
        assert name in MEMBERS or len(neighbours) > 1, (name, found)
        assert all(name in found[one] for one in neighbours), (name, found)


def graph(chance: random.Random) -> list[tuple[str, str]]:
    """A connected graph with some links more than a tree has."""
    edges = {(chance.choice(NODES[:place]), name) for place, name in enumerate(NODES) if place}
    others = [edge for edge in combinations(NODES, 2) if edge not in edges]
    return sorted(edges | set(chance.sample(others, 3)))


@pytest.mark.parametrize("seed", [6, 10])
def test_events_sent_while_the_tree_goes_round_a_cut_link_reach_all_members(seed: int) -> None:
    ring = Network(("1", "2"), ("2", "3"), ("3", "4"), ("4", "1"), seed=seed, reroute_s=REROUTE_S)
    apps = {name: ring.app(name) for name in "13"}
    channel = create(ring, apps["1"], delivery="reliable")
    members = [join(ring, apps[name], channel, durable=f"member-{name}") for name in "13"]
    ring.cut("3", next(name for name in "24" if name in lists(ring, channel)))
    for number in range(30):
        send(apps["13"[number % 2]], channel, number)
        ring.run(0.1)
    ring.run(20.0)
    assert [sorted(member.values) for member in members] == [list(range(30))] * 2


def test_nothing_goes_to_other_neighbours_while_a_node_does_not_know_the_ways_of_a_channel() -> None:
    ring = Network(("1", "2"), ("2", "3"), ("3", "1"), reroute_s=REROUTE_S)
    edges = [(one, other) for one, other in ("12", "23", "31")]
    near, far = next(edge for edge in edges if not ring.neighbour(*edge).is_in_tree)
    (middle,) = set("123") - {near, far}
    wholeness = ring[near].core.overlay.routing.wholeness
    wholeness.is_waiting = lambda: True
    ring.cut(near, middle)
    ring.run(10.0)
    assert ring.neighbour(near, far).is_heir
    wholeness.is_waiting = lambda: False
    ring.run(1.0)
    assert not ring.neighbour(near, far).is_heir

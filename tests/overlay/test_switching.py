"""The switch in five steps: its cost, and that no event is lost, doubled or out of order."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.overlay.switching import KEPT_MAX, Carry, Resume, Stop, Switch, SwitchMessage, TreeSwitch
from tidings.simulator.message_network import MessageNetwork

Edges = list[tuple[str, str]]


def beside(edges: Edges, node: str) -> set[str]:
    return {other for edge in edges if node in edge for other in edge if other != node}


def network(old: Edges, new: Edges, names: list[str], seed: int = 0) -> MessageNetwork[SwitchMessage]:
    cores = {name: TreeSwitch(name, beside(old, name)) for name in names}
    for name, core in cores.items():
        core.plan(beside(new, name))
    return MessageNetwork(cores, seed)


def control(net: MessageNetwork[SwitchMessage]) -> int:
    return net.sent.total() - net.sent["Carry"]


def random_tree(random: Random, names: list[str]) -> Edges:
    order = random.sample(names, len(names))
    return [(one, random.choice(order[:place])) for place, one in enumerate(order) if place]


def test_from_a_line_to_a_star_costs_12_messages_and_keeps_both_events_in_order() -> None:
    net = network([("1", "2"), ("2", "3")], [("1", "2"), ("1", "3")], ["1", "2", "3"])
    net.do("3", net.cores["3"].publish("e1"))
    net.do("1", net.cores["1"].begin())
    while not net.sent["Stop"] or not any(
        one[2] == "3" and isinstance(one[4], Stop) for one in net._under_way
    ):
        assert net.step()
    net.do("3", net.cores["3"].publish("e2"))
    net.run()
    assert [core.delivered for core in net.cores.values()] == [["e1", "e2"]] * 3
    assert [sorted(core.tree) for core in net.cores.values()] == [["2", "3"], ["1"], ["1"]]
    assert control(net) == 12
    assert dict(net.sent) | {"Carry": 0} == {
        "Carry": 0, "Switch": 2, "Stop": 3, "Last": 2, "TearDown": 3, "Resume": 2,
    }  # fmt: skip


@pytest.mark.parametrize(("names", "old"), [(["1"], []), (["1", "2"], [("1", "2")])])
def test_trees_of_one_and_two_nodes_are_switched_too(names: list[str], old: Edges) -> None:
    net = network(old, old, names)
    net.do(names[-1], net.cores[names[-1]].begin())
    net.do("1", net.cores["1"].publish("e"))
    net.run()
    assert all(
        core.run == 1 and not core.is_switching and core.delivered == ["e"] for core in net.cores.values()
    )
    assert control(net) == (5 * len(names) - 3 if old else 0)


@given(st.integers(0, 2**32), st.integers(1, 9))
def test_events_of_all_nodes_come_once_and_in_the_order_of_each(seed: int, count: int) -> None:
    random = Random(seed)
    names = [f"n{number}" for number in range(count)]
    net = network(random_tree(random, names), random_tree(random, names), names, seed)
    sent: dict[str, list[tuple[str, int]]] = {name: [] for name in names}
    initiators = random.sample(names, min(count, random.randint(1, 2)))
    for round in range(60):
        name = random.choice(names)
        sent[name].append((name, round))
        net.do(name, net.cores[name].publish((name, round)))
        if round == 20:
            for one in initiators:
                net.do(one, net.cores[one].begin())
        for _ in range(random.randrange(8)):
            net.step()
    net.run()
    for core in net.cores.values():
        assert core.run == 1
        assert not core.is_switching
        for name in names:
            assert [event for event in core.delivered if event[0] == name] == sent[name]
    if len(initiators) == 1:
        assert control(net) == (5 * count - 3 if count > 1 else 0)


@given(st.integers(0, 2**32), st.integers(2, 9))
def test_the_centre_finds_the_minimum_spanning_tree_for_at_most_2n_messages(seed: int, count: int) -> None:
    random = Random(seed)
    names = [f"n{number}" for number in range(count)]
    graph = nx.Graph()
    old = random_tree(random, names)
    more = [
        pair for pair in ((one, two) for one in names for two in names if one < two) if random.random() < 0.5
    ]
    for rank, (one, two) in enumerate(random.sample([*old, *more], len([*old, *more]))):
        graph.add_edge(one, two, weight=rank)
    cores = {
        name: TreeSwitch(name, beside(old, name), {two: data["weight"] for two, data in graph[name].items()})
        for name in names
    }
    net: MessageNetwork[SwitchMessage] = MessageNetwork(cores, seed)
    net.do(names[0], cores[names[0]].begin())
    net.run()
    expected = nx.Graph(nx.minimum_spanning_edges(graph, data=False))
    assert all(set(core.tree) == set(expected[name]) for name, core in cores.items())
    assert net.sent["Stop"] + net.sent["Last"] == 2 * count - 1
    assert control(net) == 5 * count - 3


def test_messages_of_another_run_change_nothing() -> None:
    core = TreeSwitch("a", ["b", "c"])
    for message in (Switch(5), Stop(1), Resume(1), Carry(3, "x")):
        assert core.hear("b", message) == []
    assert core.delivered == []
    assert not core.is_switching


def test_what_waits_during_a_switch_has_a_limit() -> None:
    core = TreeSwitch("a", ["b"])
    core.begin()
    assert all(core.publish(number) == [] for number in range(KEPT_MAX))
    assert core.publish("one more") is None


def test_one_switch_follows_another() -> None:
    names = ["1", "2", "3", "4"]
    line = list(pairwise(names))
    net = network(line, line[::-1], names)
    for run in range(1, 4):
        for name, core in net.cores.items():
            core.plan(beside(line, name))
        net.do(names[run], net.cores[names[run]].begin())
        net.run()
        assert {core.run for core in net.cores.values()} == {run}

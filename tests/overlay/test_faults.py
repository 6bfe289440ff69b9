"""Faults that are built into the cores on purpose: random runs find each of them, and none without."""

from __future__ import annotations

from itertools import combinations
from random import Random
from typing import Any

import networkx as nx
import pytest

from tidings.overlay.bypass import Bypass
from tidings.overlay.gallager import Send, TreeBuilder, TreeMessage
from tidings.overlay.switching import SwitchMessage, TreeSwitch
from tidings.simulator.message_network import MessageNetwork
from tidings.simulator.repair_costs import repair

RUNS = 40
"""Random runs, in which each fault must show."""


def random_weights(random: Random) -> nx.Graph:
    """A connected graph whose links have different weights."""
    names = [f"n{number}" for number in range(random.randint(3, 8))]
    pairs = [pair for pair in combinations(names, 2) if random.random() < 0.4]
    pairs += [(one, random.choice(names[:place])) for place, one in enumerate(names) if place]
    graph = nx.Graph()
    for weight, (one, other) in enumerate(random.sample(pairs, len(pairs))):
        graph.add_edge(one, other, weight=weight + 1)
    return graph


# The tree that is built by messages


def build(seed: int) -> None:
    """Build a tree, and again while messages of the first run come late; AssertionError if it errs."""
    random = Random(seed)
    graph = random_weights(random)
    cores = {
        node: TreeBuilder(node, {other: graph[node][other]["weight"] for other in graph[node]})
        for node in sorted(graph)
    }
    net: MessageNetwork[TreeMessage] = MessageNetwork(cores, seed, lambda *_: random.choice((0.01, 0.1, 1.0)))
    for node, core in cores.items():
        net.do(node, core.start(0.0))
    expected = set(map(frozenset, nx.minimum_spanning_edges(graph, data=False)))
    heard: list[tuple[str, str, TreeMessage]] = []
    while net._under_way:
        _, _, near, far, message = net._under_way[0]
        heard.append((near, far, message))
        net.step()
        if any(core.is_ready for core in cores.values()):
            assert branches(cores) == expected, f"seed {seed}: a node is ready before the tree is"
    for near, core in cores.items():  # another run begins, and what was said in the first comes late
        net.do(near, core.start(net.now, 2))
    for near, far, message in random.sample(heard, len(heard)):
        net.do(far, cores[far].hear(near, message, net.now))
        net.step()
    net.run(net.now + 1_000.0)
    assert all(core.is_ready for core in cores.values()), f"seed {seed}: a node is not ready"
    assert branches(cores) == expected, f"seed {seed}: not the minimum spanning tree"


def branches(cores: dict[str, TreeBuilder]) -> set[frozenset[str]]:
    return {frozenset((node, other)) for node, core in cores.items() for other in core.branches}


def ready_too_early(self: TreeBuilder, neighbour: str, best: Any) -> bool:
    """Take the first fragment for the whole tree."""
    is_core = neighbour == self._inward and not self._is_finding
    done = REPORTED(self, neighbour, best)
    if is_core:
        self._be_ready(neighbour)
    return done


def hear_any_run(self: TreeBuilder, neighbour: str, message: TreeMessage, now: float) -> list[Send]:
    """Take messages of older runs for those of this one."""
    fields = {name: getattr(message, name) for name in message.__struct_fields__}
    return HEAR(self, neighbour, type(message)(**{**fields, "run": max(self.run, message.run)}), now)


REPORTED, HEAR = TreeBuilder._reported, TreeBuilder.hear


# Switches


def switch(seed: int) -> None:
    """Switch between random trees under load, with messages of a former run that come again."""
    random = Random(seed)
    names = [f"n{number}" for number in range(random.randint(3, 7))]
    trees = [_random_tree(random, names) for _ in range(3)]
    cores = {name: TreeSwitch(name, trees[0][name]) for name in names}
    net: MessageNetwork[SwitchMessage] = MessageNetwork(cores, seed)
    sent: dict[str, list[tuple[str, int]]] = {name: [] for name in names}
    late: list[tuple[str, str, SwitchMessage]] = []
    for run in (1, 2):
        for name, core in cores.items():
            core.plan(trees[run][name])
        begun = random.randrange(20)
        for round in range(40):
            name = random.choice(names)
            sent[name].append((name, 100 * run + round))
            net.do(name, cores[name].publish(sent[name][-1]) or [])
            if round == begun:
                first = random.choice(names)
                net.do(first, cores[first].begin())
            for _ in range(random.randrange(8)):
                late += [one[2:] for one in net._under_way[:1] if random.random() < 0.1]
                net.step()
        net.run()
        for near, far, message in late:  # those of former runs, whose trees were others
            if message.run < run:
                net.do(far, cores[far].hear(near, message))
        net.run()
    for name, core in cores.items():
        assert core.run == 2, f"seed {seed}: {name} still waits"
        for other in names:
            got = [event for event in core.delivered if event[0] == other]
            assert got == sent[other], f"seed {seed}: {name} lacks events of {other}, or has some twice"


def _random_tree(random: Random, names: list[str]) -> dict[str, set[str]]:
    order = random.sample(names, len(names))
    found: dict[str, set[str]] = {name: set() for name in names}
    for place, one in enumerate(order[1:], start=1):
        other = random.choice(order[:place])
        found[one].add(other)
        found[other].add(one)
    return found


def carry_any_run(self: TreeSwitch, neighbour: str, run: int, event: Any) -> list[Any]:
    """Take events of a former tree."""
    return CARRY(self, neighbour, self.run, event)


def resume_early(self: TreeSwitch, neighbour: str, tree: Any) -> list[Any]:
    """Use the new tree as soon as nothing new comes on the old one, while its events are under way."""
    posts = LAST(self, neighbour, tree)
    return [*posts, *self._resume(neighbour)] if self.is_switching and neighbour == "" else posts


CARRY, LAST = TreeSwitch._carry, TreeSwitch._last


# Repair


def bypass_a_node(seed: int) -> None:
    """Let the centre of a star die: all links that replace it lead to the smallest of its neighbours."""
    random = Random(seed)
    names = random.sample([f"n{number:02}" for number in range(20)], random.randint(3, 7))
    centre, *others = names
    graph = {centre: {other: place for place, other in enumerate(others, start=1)}}
    graph |= {other: {centre: graph[centre][other]} for other in others}
    found = repair(graph, seed)
    made = sorted(edge[1:] for edge in found.new_links)
    smallest, *rest = sorted(others)
    assert made == [(smallest, other) for other in rest], f"seed {seed}: other links are made round a node"


def approach_the_largest(self: Bypass, *arguments: Any) -> list[Any]:
    return MISSED(self, *arguments)[::-1]


MISSED = Bypass._missed

Change = tuple[Any, str, Any]
FAULTS: dict[str, tuple[Any, Change]] = {
    "is ready too early": (build, (TreeBuilder, "_reported", ready_too_early)),
    "has no run number": (build, (TreeBuilder, "hear", hear_any_run)),
    "switches without run numbers": (switch, (TreeSwitch, "_carry", carry_any_run)),
    "resumes too early": (switch, (TreeSwitch, "_last", resume_early)),
    "bypasses by the wrong neighbour": (bypass_a_node, (Bypass, "_missed", approach_the_largest)),
}


@pytest.mark.parametrize("run", [build, switch, bypass_a_node])
def test_random_runs_without_a_fault_find_none(run: Any) -> None:
    for seed in range(RUNS):
        run(seed)


def runs(run: Any) -> None:
    for seed in range(RUNS):
        run(seed)


@pytest.mark.parametrize("fault", FAULTS)
def test_random_runs_find_a_fault_that_is_built_in(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, (owner, name, wrong) = FAULTS[fault]
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises((AssertionError, KeyError)):  # KeyError: a message to nobody
        runs(run)

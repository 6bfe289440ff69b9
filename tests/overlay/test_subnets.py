"""Subnets of real nodes: labels that settings give or that multicast DNS finds, and their coordinators."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest
from node.peers import run
from overlay.real import Line

from tidings.errors import ConfigError
from tidings.node.discovery import FoundNode
from tidings.node.finding import Finding
from tidings.node.server import Node
from tidings.node.settings import load

NAMES = ("a", "b", "c", "d")


def by_id(line: Line, *names: str) -> list[str]:
    return sorted(names, key=lambda name: line[name].driver.broker.node)


def beside(node: Node) -> set[str]:
    """The names of a node's neighbours in the tree."""
    topology = node.driver.core.overlay.topology
    return {topology.name_of(one) or "" for one in topology.tree.neighbours}


async def wait_star(line: Line, first: str, *others: str) -> None:
    """Wait until all others have one neighbour, the same."""
    while any(beside(line[name]) != {first} for name in others):
        await asyncio.sleep(0.01)


def test_real_nodes_of_a_subnet_have_one_coordinator_and_the_next_takes_over() -> None:
    async def work() -> None:
        settings = {name: {"subnet": "hall", "reroute_s": 600.0} for name in NAMES}
        async with Line(*NAMES, settings=settings) as line:
            first, *others = by_id(line, *NAMES)
            await wait_star(line, first, *others)
            there = await (await line.bus(others[0])).topology()
            ids = {name: line[name].driver.broker.node for name in NAMES}
            assert there["coordinators"] == {ids[name]: ids[first] for name in NAMES}

            last = others[-1]
            events = await (await line.bus(last, "eve")).subscribe("n > 0").__aenter__()
            await events.in_force()
            ann = await line.bus(others[0], "ann")
            await ann.publish("t", n=1, delivery="reliable")
            assert (await anext(events))["n"] == 1
            await line[first].close()
            await ann.publish("t", n=2, delivery="reliable")
            assert (await anext(events))["n"] == 2
            second = others[0]
            while any(second not in beside(line[name]) for name in others[1:]):
                await asyncio.sleep(0.01)
            topology = line[last].driver.core.overlay.topology
            while topology.subnets.coordinators[ids[last]] != ids[second]:
                await asyncio.sleep(0.01)
            await events.leave()

    run(work())


def announce(one: Node, other: Node) -> None:
    """Let two nodes find each other as multicast DNS would; the first knows the other's address already."""
    assert one.finding is not None and other.finding is not None  # noqa: PT018  # both look for others
    one.finding._taken_near(FoundNode(other.name, other.driver.broker.node, other.addresses[0]))
    other.finding._found_near(FoundNode(one.name, one.driver.broker.node, one.addresses[0]))


def test_nodes_that_are_found_on_the_network_and_are_linked_are_one_subnet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_multicast(_finding: Finding) -> None: ...

    monkeypatch.setattr(Finding, "_discover", no_multicast)

    async def work() -> None:
        settings = {name: {"mdns": True, "subnet": "auto"} for name in "abc"} | {"d": {"mdns": True}}
        async with Line(*NAMES, home=tmp_path, settings=settings) as line:
            records = {name: line[name].driver.core.overlay.topology for name in NAMES}
            ids = {name: line[name].driver.broker.node for name in NAMES}
            for one, other in pairwise(NAMES):
                announce(line[one], line[other])
            label = f"@{min(ids[name] for name in 'abc')}"
            while {records[name].own.subnet for name in "abc"} != {label}:
                await asyncio.sleep(0.01)
            assert records["d"].own.subnet == ""

    run(work())


def test_a_subnet_that_is_to_be_found_needs_multicast() -> None:
    with pytest.raises(ConfigError, match=r"--subnet: .*--mdns"):
        load(flags={"subnet": "auto"})
    assert load(flags={"subnet": "hall"}).subnet_label == "hall"

"""Bypass: a node that has lost its neighbours looks for others, ring by ring."""

from __future__ import annotations

from overlay.network import Network

from tidings.overlay.bypass import Bypass
from tidings.overlay.known_records import KnownRecords
from tidings.overlay.records import LinkRecord, NodeRecord


def known(*edges: str, leaf: str = "", without_address: str = "") -> KnownRecords:
    """The records of nodes with these edges; the links of `a` are lost."""
    records = KnownRecords()
    for node in sorted(set("".join(edges))):
        others = sorted(edge.replace(node, "") for edge in edges if node in edge)
        links = tuple(LinkRecord(other, 1, lost=2 if node == "a" else 0) for other in others)
        address = "" if node in without_address else f"tidings://{node}:1"
        records.put(NodeRecord(node, node, 1, 1, links, leaf=node in leaf, address=address))
    return records


def tried(records: KnownRecords, reached: str, times: int) -> list[str]:
    """The nodes that `a` approaches; the first time it waits, as it has the smallest id."""
    bypass = Bypass("a")
    return [one.node for _ in range(times) for one in bypass.choose(records, reached)]


def test_the_rings_round_a_lost_neighbour_are_tried_one_after_the_other() -> None:
    records = known("ab", "bd", "bc", "ce", "df", "eg")
    assert tried(records, "a", 8) == ["c", "d", "e", "f", "g", "c", "d"]


def test_nodes_that_are_reached_end_the_search_and_leaves_are_not_approached() -> None:
    assert tried(known("ab", "bc", "cd", "de"), "acd", 3) == []
    assert tried(known("ab", "bc", "cd", "de", leaf="c", without_address="d"), "a", 3) == ["e", "e"]


def test_two_nodes_side_by_side_that_die_are_gone_round() -> None:
    net = Network(("a", "b"), ("b", "c"), ("c", "d"), reroute_s=2.0)
    got = net.app("d").subscribe("x >= 0", durable="all")
    app = net.app("a")
    net.run()
    app.publish(1)
    net.run()
    for name in "bc":
        net[name].crash()
    net.run(60)
    app.publish(2)
    net.run(10)
    assert net.neighbour("a", "d").is_up
    assert got.values == [1, 2]

"""Costs of trees: the formulas hold, and each strategy brings events to all members."""

from __future__ import annotations

from random import Random
from xml.etree import ElementTree as ET

import networkx as nx
import pytest
from effort import SEED

from tidings.overlay.liveness import ASKED_MAX, HOPS_MAX
from tidings.simulator.overlay_costs import MemberGroup, nearest, overlay_costs, random_graph
from tidings.simulator.overlay_pictures import overlay_picture
from tidings.simulator.repair_costs import repair
from tidings.simulator.whole_repair import whole_repair


@pytest.mark.parametrize("strategy", ["tree", "sender", "insertion"])
@pytest.mark.parametrize("nodes", [1, 2, 30])
def test_costs_are_those_of_the_formulas(nodes: int, strategy: str) -> None:
    found = overlay_costs(SEED, nodes=nodes, strategy=strategy, churn=1.0)
    assert found["build_messages"] <= found["build_bound"]
    assert found["switch_messages"] == (5 * nodes - 3 if nodes > 1 else 0)
    assert found["rebuild_messages"] <= 2 * nodes
    assert found == overlay_costs(SEED, nodes=nodes, strategy=strategy, churn=1.0)


def test_flooding_a_record_costs_each_link_twice_less_the_ways_back() -> None:
    found = overlay_costs(SEED, nodes=30, records=True)
    flood = 2 * found["links"] - 30 + 1
    assert (found["records_weigh"], found["records_rebuild"]) == (2 * flood, flood)
    assert found["records_build"] > found["build_messages"]


def test_a_way_to_the_nearest_is_the_shortest() -> None:
    random = Random(SEED)
    graph = random_graph(random, 60, 4)
    known = nx.Graph([(one, two, {"weight": w}) for one, links in graph.items() for two, w in links.items()])
    goals = random.sample(sorted(graph), 5)
    for start in graph:
        way = nearest(graph, start, goals)
        lengths = nx.single_source_dijkstra_path_length(known, start)
        assert nx.path_weight(known, way, "weight") == min(lengths[goal] for goal in goals)


def test_an_event_of_one_sender_takes_the_shortest_ways() -> None:
    random = Random(SEED)
    graph = random_graph(random, 60, 4)
    known = nx.Graph([(one, two, {"weight": w}) for one, links in graph.items() for two, w in links.items()])
    members = random.sample(sorted(graph), 12)
    group = MemberGroup(graph, "sender", members)
    for sender in group.senders():
        lengths = nx.single_source_dijkstra_path_length(known, sender)
        assert group.event(sender)[1] == max(lengths[member] for member in members)


def test_nothing_is_left_when_all_have_left() -> None:
    graph = random_graph(Random(SEED), 40, 4)
    for strategy in ("tree", "sender", "insertion"):
        group = MemberGroup(graph, strategy, sorted(graph)[:10])
        assert group.state > 0
        for member in sorted(graph)[:10]:
            group.leave(member)
        assert group.state == 0


def test_a_picture_shows_all_trees_and_the_messages_by_kind() -> None:
    picture = ET.fromstring(overlay_picture(SEED, 20))
    space = "{http://www.w3.org/2000/svg}"
    styles = [line.get("class") for line in picture.iter(f"{space}line")]
    assert styles.count("tree") + styles.count("new") == 2 * 19 + 18
    texts = {text.text for text in picture.iter(f"{space}text")}
    assert {"tree before", "Connect", "Ready", "TearDown", "97", "messages of the repair", "Heard"} <= texts


@pytest.mark.parametrize("nodes", [2, 10, 60])
def test_a_repair_costs_a_record_of_each_neighbour_and_changes_the_tree_only_round_the_dead(
    nodes: int,
) -> None:
    found = overlay_costs(SEED, nodes=nodes, repair=True)
    if nodes == 2:
        assert found["repair_messages"] is None
        return
    assert found["repair_messages"] <= found["repair_bound"]
    assert found["repair_delays"] <= 3
    graph = random_graph(Random(SEED), nodes, 4)
    repaired = repair(graph, SEED)
    flood = 2 * repaired.links - (nodes - 1) + 1
    assert 0 <= repaired.sent["Records"] - repaired.neighbours * flood <= 0.2 * repaired.sent["Records"]
    assert set(repaired.sent) == {"Heard", "Records"}


def test_only_neighbours_of_the_dead_and_those_between_them_are_asked_about_it() -> None:
    graph = random_graph(Random(SEED), 200, 4)
    repaired = repair(graph, SEED)
    assert set(graph[repaired.dead]) & repaired.asked
    assert len(repaired.asked) <= repaired.neighbours * ASKED_MAX * HOPS_MAX < 200


def test_where_nothing_stands_by_the_neighbours_of_the_dead_link_to_the_smallest() -> None:
    graph: dict[str, dict[str, int]] = {"n1": {"n3": 1, "n5": 2, "n7": 3}}
    for name, weight in list(graph["n1"].items()):
        graph[name] = {"n1": weight}
    repaired = repair(graph, SEED)
    assert repaired.dead == "n1"
    assert sorted(edge[1:] for edge in repaired.new_links) == [("n3", "n5"), ("n3", "n7")]
    assert repaired.sent["Hello"] == 2 * (repaired.tree_neighbours - 1)


def test_events_flow_again_when_one_of_many_whole_nodes_dies() -> None:
    found = overlay_costs(SEED, nodes=12, whole=True)
    assert 1.5 <= found["whole_verdict_s"] <= 5
    assert 0 < found["whole_flow_s"] <= 5  # delays of a small tree are short beside the pauses of nodes
    assert 0 < found["whole_heard_nodes"] < 12
    assert found["whole_whole"] > 0
    assert found == overlay_costs(SEED, nodes=12, whole=True)


def test_questions_whether_nodes_are_whole_cross_each_link_few_times() -> None:
    found = whole_repair(random_graph(Random(SEED), 30, 4), SEED)
    assert found["whole_whole"] <= 10 * 30  # some 1,000 while each question went on by itself

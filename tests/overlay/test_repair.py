"""How soon events flow again round a node that has died, and who speaks of it."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from overlay.network import Network

from tidings.overlay.flooding import Flooding
from tidings.simulator.world import Conditions

NAMES = [f"n{number}" for number in range(8)]
DEAD = "n3"
DELAY_S = 0.1
"""Of each link: far more than disks take."""
STEP_S = 0.05
CAUSES = ("link", "node", "alone")


def ring(*more: tuple[str, str], **settings: Any) -> Network:
    """A ring whose last link stands by, and more links."""
    net = Network(*pairwise(NAMES), (NAMES[-1], NAMES[0]), *more, settle_s=0.0, **settings)
    for one, other in [*pairwise(NAMES), (NAMES[-1], NAMES[0])]:
        net.world.network.link(one, other).conditions = Conditions(delay_s=DELAY_S)
    net.run(20.0)
    return net


def test_events_flow_again_within_three_delays_of_the_tree_after_its_neighbours_have_judged() -> None:
    net = ring()
    got = net.app("n5").subscribe("x >= 0", durable="all")
    app = net.app("n1")
    net.run(10.0)
    for name in ("n2", "n4"):
        net.part(DEAD, name)
    app.publish(1)
    died = net.world.clock.now
    while sum(net.count(name, "neighbours_dead", cause) for name in ("n2", "n4") for cause in CAUSES) < 2:
        net.run(STEP_S)
        assert net.world.clock.now < died + 10.0
    judged = net.world.clock.now
    while got.values != [1]:
        net.run(STEP_S)
        assert net.world.clock.now < judged + 30.0
    hops = len(NAMES) - 2  # the longest way of the tree without it
    assert net.world.clock.now - judged <= 3 * hops * DELAY_S
    asking = [name for name in NAMES if net.count(name, "neighbours_suspected")]
    assert asking == ["n2", DEAD, "n4"]  # nobody else, and the dead one of its own neighbours


def test_no_event_goes_round_a_dead_node_if_only_its_neighbours_and_theirs_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The link that stands by is on the other side of the ring: its ends must know, and all between."""
    net = ring()
    got = net.app("n5").subscribe("x >= 0", durable="all")
    app = net.app("n1")
    net.run(10.0)
    monkeypatch.setattr(Flooding, "others", lambda *_: [])  # a node sends its own record, and no other
    for name in ("n2", "n4"):
        net.part(DEAD, name)
    app.publish(1)
    net.run(30.0)
    dead = net[DEAD].broker.node
    knowing = [name for name in NAMES if name != DEAD and knows(net, name, dead)]
    assert knowing == ["n1", "n2", "n4", "n5"]
    assert got.values == []


def knows(net: Network, node: str, dead: str) -> bool:
    """Whether a node knows that a link to a dead one is lost."""
    records = net[node].core.overlay.topology.records
    return any(record.loses(dead) for record in records)


def test_only_nodes_whose_ways_have_changed_are_asked_whether_they_are_whole() -> None:
    """A ring with a tail, which stays where it is when another link of the ring stands by."""
    net = ring((NAMES[5], "t"), ("t", "u"), reroute_s=1.0)
    got = net.app("u").subscribe("x >= 0", durable="all")
    app = net.app("n1")
    net.run(10.0)
    asked: Counter[str] = Counter()
    for name in net.names:
        count_questions(net, name, asked)
    net.cut("n3", "n4")
    app.publish(1)
    net.run(20.0)
    assert got.values == [1]
    assert asked.keys() <= set(NAMES)
    assert {"n0", "n7"} <= asked.keys()  # the link between them is in the tree now


def count_questions(net: Network, node: str, asked: Counter[str]) -> None:
    operations = net[node].broker.operations
    shape, answer = operations["link.whole"]

    def answer_and_count(asking: Any, request: Any) -> Any:
        asked[node] += 1
        return answer(asking, request)

    operations["link.whole"] = shape, answer_and_count

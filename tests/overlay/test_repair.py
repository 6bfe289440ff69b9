"""How soon events flow again round a node that has died, and who speaks of it."""

from __future__ import annotations

from itertools import pairwise

from overlay.network import Network

from tidings.simulator.world import Conditions

NAMES = [f"n{number}" for number in range(8)]
DEAD = "n3"
DELAY_S = 0.1
"""Of each link: far more than disks take."""
STEP_S = 0.05
CAUSES = ("link", "node", "alone")


def ring() -> Network:
    """A ring whose last link stands by."""
    net = Network(*pairwise(NAMES), (NAMES[-1], NAMES[0]), settle_s=0.0)
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

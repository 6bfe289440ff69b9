"""Two networks that are joined while both change to better trees: no event is lost, doubled or reordered."""

from __future__ import annotations

import pytest
from effort import often
from overlay.network import Network

from tidings.simulator.world import Conditions

PARTS = ("abc", "xyz")


def weather(net: Network, slow: int) -> None:
    """Let one link of each part be slow, and the others quick."""
    for part in PARTS:
        for number in range(3):
            one, other = part[number], part[(number + 1) % 3]
            delay_s = 0.2 if number == slow else 0.02
            net.world.network.link(one, other).conditions = Conditions(delay_s)


@pytest.mark.parametrize("wait_s", [2.0, 2.6, 3.2][: often(1)])
def test_networks_that_meet_while_both_switch_have_one_tree_and_lose_nothing(wait_s: float) -> None:
    rings = [(part[number], part[(number + 1) % 3]) for part in PARTS for number in range(3)]
    net = Network(*rings, ("a", "x"), settle_s=0.0, weigh_s=0.5)
    net.cut("a", "x")
    weather(net, slow=2)
    net.run(15.0)
    got = {name: net.app(name).subscribe(durable=name) for name in "abcxyz"}
    apps = {name: net.app(name) for name in "abcxyz"}
    net.run(5.0)
    runs = {part: net[part[0]].core.overlay.topology._known.run for part in PARTS}
    weather(net, slow=0)  # both parts will begin a run
    sent, begun = 0, net.world.clock.now
    while net.world.clock.now < begun + 20.0:
        if net.world.clock.now - begun >= wait_s:
            net.heal("a", "x")
        sent += 1
        for number, app in enumerate(apps.values()):
            app.publish(10 * sent + number)
        net.run(0.4)
    net.run(30.0)
    assert all(net[part[0]].core.overlay.topology._known.run > runs[part] for part in PARTS)
    trees = {frozenset(net[name].core.overlay.topology.tree.edges) for name in "abcxyz"}
    assert len(trees) == 1
    for name, listening in got.items():
        mine = PARTS[0] if name in PARTS[0] else PARTS[1]
        for number, of in enumerate("abcxyz"):
            values = [value for value in listening.values if value % 10 == number]
            expected = [10 * one + number for one in range(1, sent + 1)]
            if of in mine:
                assert values == expected, f"{name} of {of}"
            else:  # what was published before they met may be for the other part, too
                assert values == expected[len(expected) - len(values) :], f"{name} of {of}"
                assert len(values) > sent - 20

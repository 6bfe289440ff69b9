"""What `tidings topology --watch` shows of a network that changes."""

from __future__ import annotations

from overlay.network import App, Network
from overlay.test_moving import network

from tidings.overlay.changes import NetworkSight


class Watching:
    """One who looks at a network again and again, at one node."""

    def __init__(self, net: Network, node: str) -> None:
        self._net = net
        self._app: App = net.app(node, "watching")
        self._last = self._look()

    def _look(self) -> NetworkSight:
        told = self._app.ask("topology")
        self._net.run(0.05)
        return NetworkSight(told[0])

    def run(self, seconds: float) -> list[str]:
        """What has changed meanwhile, line by line."""
        lines: list[str] = []
        until = self._net.world.clock.now + seconds
        while self._net.world.clock.now < until:
            self._net.run(0.15)
            before, self._last = self._last, self._look()
            lines += map(str, self._last.since(before))
        return lines


def test_a_network_that_does_not_change_shows_nothing() -> None:
    assert Watching(Network(("a", "b"), ("b", "c")), "a").run(10.0) == []


def test_a_link_that_is_cut_lost_and_back_is_shown_each_time() -> None:
    # With this seed more time than between two looks lies between the link's cut and its loss.
    net = network(("b", "a"), ("c", "b"), spare=[("c", "a")], suspect_s=1.5, seed=2)
    watching = Watching(net, "a")
    net.cut("b", "c")
    first, *others = watching.run(15.0)
    assert first == "link b – c: up → cut"
    assert sorted(others) == ["link a – c: stands by → up", "link b – c: cut → lost"]
    net.heal("b", "c")
    assert watching.run(15.0) == ["link b – c: lost → stands by"]


def test_a_silent_neighbour_is_shown_as_suspected_and_what_goes_round_it_as_new() -> None:
    net = Network(("b", "a"), ("c", "b"))
    watching = Watching(net, "a")
    net.part("a", "b")
    net.part("b", "c")
    shown = watching.run(10.0)
    assert shown[0] == "link a – b: up → suspected"
    assert "link a – c: gone → up" in shown
    assert shown[-1].startswith("link ")


def test_a_new_node_is_shown_with_its_link() -> None:
    net = Network(("a", "b"), ("c", "a"), settle_s=0.0)
    net.cut("a", "c")
    net.run(5.0)
    watching = Watching(net, "b")
    net.heal("a", "c")
    assert sorted(watching.run(20.0)) == ["link a – c: gone → up", "node c: gone → there"]

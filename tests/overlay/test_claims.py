"""A node that claims to be others: what it gets by that, and what becomes of it when the real ones return."""

from __future__ import annotations

from itertools import pairwise

from msgspec.structs import replace
from overlay.cores import Network
from overlay.network import Network as WholeNetwork

from tidings.overlay.records import LinkRecord, NodeRecord


def forged(network: Network, dead: str, by: str) -> NodeRecord:
    """A newer record of a dead node, which says that its one link leads to the forger."""
    known = next(one for one in network.cores[by].records if one.node == dead)
    return replace(known, version=known.version + 5, links=(LinkRecord(by, 1),))


def line(*names: str) -> Network:
    network = Network(1)
    for name in names:
        network.start(name)
    for one, other in pairwise(names):
        network.connect(one, other)
    network.settle()
    return network


def test_a_node_takes_itself_back_from_one_that_claimed_to_be_it_while_it_was_dead() -> None:
    network = line("a", "b", "c", "d", "e")
    network.stop("d")
    network.settle()
    evil = network.cores["e"]
    network.connect("e", "c")
    network.settle()
    claim = forged(network, "d", "e")
    network.do("c", network.cores["c"].hear("e", [claim], network.now))
    evil_own = replace(evil.own, version=evil.own.version + 1, links=(LinkRecord("c", 1), LinkRecord("d", 1)))
    network.do("c", network.cores["c"].hear("e", [evil_own], network.now))
    network.settle()
    assert network.cores["a"].way("d") == "b"
    assert network.cores["c"].way("d") == "e"  # it is believed as long as no other says more

    network.start("d", epoch=network.wall_us)
    network.connect("d", "c")
    network.settle(60.0)
    for name in "abc":
        (found,) = [one for one in network.cores[name].records if one.node == "d"]
        assert found == network.cores["d"].own
    assert network.cores["c"].way("d") == "d"


def test_what_a_neighbour_relays_in_the_name_of_a_node_behind_another_link_is_refused_and_counted() -> None:
    net = WholeNetwork(("a", "b"), ("b", "c"))
    got = net.app("b").subscribe("x >= 0")
    net.run()
    ids = {name: net[name].broker.node for name in "abc"}
    numbers = net["c"].core.overlay.numbers
    numbers._broker = _Named(net["c"].broker, ids["a"])  # type: ignore[assignment]
    net.app("c").publish(1)
    net.run()
    assert got.values == []
    assert net.count("b", "relays_refused", "way") + net.count("b", "relays_refused", "source") > 0


class _Named:
    """Broker that gives another node's id as its own."""

    def __init__(self, broker: object, node: str) -> None:
        self._broker, self.node = broker, node

    def __getattr__(self, name: str) -> object:
        return getattr(self._broker, name)

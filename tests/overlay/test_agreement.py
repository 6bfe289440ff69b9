"""Whatever is cut, lost, doubled and restarted: nodes that are connected agree on one tree."""

from __future__ import annotations

from effort import IS_SOAK, SEED, often
from hypothesis import given, settings
from hypothesis import strategies as st
from overlay.cores import Network, oracle

from tidings.overlay.tree import Edge, edges_of, spanning_tree

MANY = 1_000 if IS_SOAK else 150


def true_edges(network: Network) -> list[Edge]:
    """The edges by what all nodes say of themselves now."""
    return edges_of(core.own for core in network.cores.values())


def check(network: Network) -> None:
    """Compare the trees of all nodes with the minimum spanning tree of what they say of themselves."""
    leaves = {node for node, core in network.cores.items() if core.own.leaf}
    expected = oracle(true_edges(network), leaves)
    for core in network.cores.values():
        own = {edge for edge in expected if edge[1] in core.tree}
        assert core.tree.edges == own, core.node
        assert sum(core.node in edge[1:] for edge in expected) == len(core.tree.neighbours), core.node


def disturb(network: Network, nodes: list[str]) -> None:
    """Do something at random."""
    random = network.random
    one, other = random.sample(nodes, 2)
    what = random.random()
    if what < 0.4 and not network.is_connected(one, other):
        network.connect(one, other, skew_us=random.choice((0, 0, -(10**13), 10**13)))
    elif what < 0.55 and network.is_connected(one, other):
        network.cut(one, other, is_noticed=random.random() < 0.7)
    elif what < 0.6:
        network.remove(one, other)
    elif what < 0.65:
        leaf = network.cores[one].own.leaf
        network.stop(one)
        network.start(one, leaf=leaf, epoch=network.wall_us - random.choice((0, 10**12)))
    elif what < 0.8:
        network.now += random.random() * 0.2
        for node, core in network.cores.items():
            if core.wake_at <= network.now:
                network.do(node, core.wake(network.now))
    for _ in range(random.randrange(20)):
        network.step()


def heal(network: Network) -> None:
    """Connect all ends again whose records name each other."""
    for _, one, other in true_edges(network):
        network.connect(one, other)
    network.settle()


@settings(max_examples=often(60))
@given(st.integers(0, 2**32), st.integers(2, 9), st.integers(0, 3))
def test_all_nodes_have_the_minimum_spanning_tree_after_any_disturbances(
    seed: int, count: int, leaf_count: int
) -> None:
    network = Network(seed)
    nodes = [f"n{number}" for number in range(count)]
    for number, node in enumerate(nodes):
        network.start(node, leaf=number < leaf_count)
    for _ in range(40):
        disturb(network, nodes)
    heal(network)
    check(network)


def test_nodes_that_start_at_once_agree() -> None:
    network = Network(SEED, as_bytes=False)
    nodes = [f"node-{number:03}" for number in range(200 if IS_SOAK else 60)]
    for node in nodes:
        network.start(node)
    for number, node in enumerate(nodes[1:], 1):
        network.connect(node, nodes[network.random.randrange(number)])
    for _ in range(100):
        one, other = network.random.sample(nodes, 2)
        if not network.is_connected(one, other):
            network.connect(one, other)
    network.settle(2.0)
    check(network)


def established(network: Network) -> list[str]:
    """Start many nodes with half as many links again, that know each other already."""
    nodes = [f"node-{number:04}" for number in range(MANY)]
    random = network.random
    for number, node in enumerate(nodes):
        network.start(node)
        for other in random.sample(nodes[:number], min(number, 1 + number % 2)):
            network.attach(node, other)
    records = [core.own for core in network.cores.values()]
    for core in network.cores.values():
        core.hear(core.connected[0], records, network.now)
    network.settle()
    return nodes


def test_many_nodes_agree_after_cuts_removals_and_new_links() -> None:
    network = Network(SEED, as_bytes=False)
    nodes, random, cuts = established(network), network.random, []
    before = network.cores[nodes[0]].tree.edges
    for _ in range(5):
        network.remove(*random.choice(sorted(before))[1:])
        _, one, other = random.choice(true_edges(network))
        network.cut(one, other)
        cuts.append((one, other))
        one, other = random.sample(nodes, 2)
        network.connect(one, other)
    for ends in cuts:
        network.connect(*ends)
    network.settle(1.0)
    expected = spanning_tree(true_edges(network))
    trees = {core.tree.edges for core in network.cores.values()}
    assert trees != {before}
    assert set().union(*trees) == set(expected), f"seed {SEED}"
    assert sum(map(len, trees)) == len(expected), f"seed {SEED}"  # no two of them share an edge

"""Protocols of channels: whom a join asks, and which nodes take part without members."""

from __future__ import annotations

from itertools import pairwise

import pytest
from channels.test_trees import LINE, create, join, lists, send
from node.peers import run
from overlay.network import App, Network
from overlay.real import Line

from tidings.channels.description import ChannelProtocol, ExpectedGroup, protocol_of
from tidings.channels.protocols import REPLICAS, choose, homes_of
from tidings.errors import Refused, UserError

NAMES = "123456789"
LONG = tuple(pairwise(NAMES))


def nodes_of(network: Network, channel: str) -> set[str]:
    """The names of the nodes to which a channel is hashed."""
    names = {network[name].broker.node: name for name in network.names}
    return {names[node] for node in homes_of(channel, list(names))}


def asked(network: Network, app: App, channel: str) -> set[str]:
    """The nodes that a join asks for a channel."""
    found: set[str] = set()
    for name in network.names:
        calls = network[name].core.channels.calls

        def look(query, hops, before=calls._look, name=name):  # type: ignore[no-untyped-def]
            found.add(name)
            return before(query, hops)

        calls._look = look
    join(network, app, channel)
    return found


@pytest.mark.parametrize("protocol", ["insertion", "rendezvous"])
def test_members_find_each_other_and_get_each_event_once(protocol: ChannelProtocol) -> None:
    line = Network(*LINE)
    apps = [line.app(name) for name in "135"]
    channel = create(line, apps[0], delivery="reliable", protocol=protocol)
    assert protocol_of(channel) == protocol
    members = [join(line, app, channel) for app in apps]
    for number, app in enumerate(apps):
        send(app, channel, number)
    line.run()
    assert [sorted(member.values) for member in members] == [[0, 1, 2]] * 3
    for member in members:
        member.end()
        line.run()
    assert len(lists(line, channel)) == 1 or protocol == "rendezvous"


def test_a_join_by_insertion_asks_rings_that_grow_up_to_the_nearest_that_takes_part() -> None:
    line = Network(*LONG)
    first = line.app("1")
    channel = create(line, first, protocol="insertion")
    join(line, first, channel)
    assert asked(line, line.app("3"), channel) == {"1", "2", "3", "4", "5"}
    assert asked(line, line.app("5"), channel) == {"3", "4", "5", "6", "7"}
    assert lists(line, channel).keys() == set("12345")


def test_a_join_by_rendezvous_asks_the_nodes_on_the_way_up_to_the_first_that_knows_the_channel() -> None:
    line = Network(*LONG)
    first = line.app("1")
    channel = create(line, first, protocol="rendezvous")
    homes = nodes_of(line, channel)
    line.run()
    knowing = lists(line, channel).keys()
    assert homes <= knowing
    for name in NAMES:
        ways = {one for home in homes for one in _between(name, home)}
        reached = asked(line, line.app(name), channel)
        assert reached <= ways
        assert len(reached & knowing) == 1 or name in knowing
        knowing = lists(line, channel).keys()


def _between(one: str, other: str) -> set[str]:
    low, high = sorted((NAMES.index(one), NAMES.index(other)))
    return set(NAMES[low : high + 1])


def test_a_rendezvous_channel_without_members_outlives_a_node() -> None:
    star = Network(("1", "6"), ("2", "6"), ("3", "6"), ("4", "6"), ("5", "6"), reroute_s=2.0)
    names = {star[name].broker.node: name for name in star.names}
    app = star.app("6")
    for number in range(100):
        channel = create(star, app, f"trip-{number}", protocol="rendezvous")
        first, second, third = (names[node] for node in homes_of(channel, list(names), 3))
        if "6" not in (first, second, third):
            break
    star.run()
    assert lists(star, channel).keys() == {first, second, "6"}
    star[first].crash()
    star.run(20.0)
    assert lists(star, channel)["6"] == {first, second, third}  # the first may have members
    star[first].start()
    star.run(20.0)
    assert lists(star, channel) == {first: {"6"}, second: {"6"}, "6": {first, second}}


def test_a_deleted_rendezvous_channel_is_gone_at_all_its_nodes() -> None:
    line = Network(*LINE)
    app = line.app("3")
    channel = create(line, app, protocol="rendezvous")
    line.run()
    app.ask("channel.delete", channel=channel)
    line.run()
    assert not lists(line, channel)


def test_a_node_that_goes_moves_its_own_channels_alone_and_one_that_comes_takes_its_share() -> None:
    nodes = [f"node-{number}" for number in range(20)]
    channels = [f"rendezvous-{number}" for number in range(500)]
    before = {one: homes_of(one, nodes) for one in channels}
    fewer = {one: homes_of(one, nodes[1:]) for one in channels}
    for channel in channels:
        stayed = [one for one in before[channel] if one != nodes[0]]
        assert [one for one in fewer[channel] if one in stayed] == stayed
    moved = sum(before[one] != fewer[one] for one in channels)
    assert moved == sum(nodes[0] in homes for homes in before.values())
    shares = [sum(node in homes for homes in before.values()) for node in nodes]
    assert sum(shares) == REPLICAS * len(channels)
    assert max(shares) < 2 * sum(shares) / len(nodes)


@pytest.mark.parametrize(
    ("nodes", "size", "fluctuation", "protocol"),
    [
        (1, 1, 0.0, "broadcast"),
        (100, 2, 0.01, "broadcast"),
        (100, 50, 0.1, "insertion"),
        (100, 2, 1.0, "rendezvous"),
        (1_000, 10, 0.1, "rendezvous"),
    ],
)
def test_what_is_expected_of_a_channel_chooses_its_protocol(
    nodes: int, size: int, fluctuation: float, protocol: ChannelProtocol
) -> None:
    assert choose(ExpectedGroup(size, fluctuation), nodes) == protocol


def test_a_group_that_can_not_be_is_refused() -> None:
    for size, fluctuation in ((0, 1.0), (2, -1.0), (2, float("nan")), (2, float("inf"))):
        with pytest.raises(Refused):
            choose(ExpectedGroup(size, fluctuation), 10)


def test_what_is_no_protocol_and_no_expectation_is_refused_before_anything_is_sent() -> None:
    async def main() -> None:
        async with Line("a") as line:
            bus = await line.bus("a")
            for wrong in (
                {"protocol": "gossip"},
                {"expect": {"extent": 1}},
                {"expect": {"size": "many"}},
                {"expect": {"size": 2}, "protocol": "rendezvous"},
            ):
                with pytest.raises(UserError):
                    await bus.create_channel("trip", **wrong)  # type: ignore[arg-type]
            with pytest.raises(Refused, match="no channel has 0 nodes"):
                await bus.create_channel("trip", expect={"size": 0})
            assert not await bus.channels()

    run(main())

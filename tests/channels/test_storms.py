"""Channels in networks that lose links, fall apart and lose nodes: every member gets every event, once."""

from __future__ import annotations

import pytest
from channels.test_trees import create, join, lists, send
from effort import SEED, often
from overlay.network import Network

from tidings.channels.description import ChannelOrder, ChannelProtocol
from tidings.simulator.channel_storm import ChannelPlan, Weather, channel_storm

REROUTE_S = 2.0
STORM_S = 30.0
STILL: tuple[Weather, ...] = ("cut", "meet", "crash", "", "")
"""Weather in which no member moves."""
LONELY: tuple[Weather, ...] = (*STILL, "isolate", "isolate", "meet")


def seeds(first: int, count: int) -> range:
    return range(SEED + first, SEED + first + often(count))


def weather(seed: int, plan: ChannelPlan) -> None:
    verdict = channel_storm(seed, STORM_S, plan)
    assert verdict.delivered == 3 * verdict.sent > 0


@pytest.mark.parametrize("seed", seeds(0, 15))
def test_members_get_each_reliable_event_once_and_in_order_in_any_weather(seed: int) -> None:
    weather(seed, ChannelPlan(weather=STILL))


@pytest.mark.parametrize("seed", seeds(1000, 10))
def test_no_member_of_a_causal_channel_gets_an_event_before_one_that_its_sender_knew(seed: int) -> None:
    weather(seed, ChannelPlan("causal", weather=STILL))


@pytest.mark.parametrize("seed", seeds(2000, 10))
def test_all_members_of_a_total_channel_get_all_events_in_one_order_in_any_weather(seed: int) -> None:
    weather(seed, ChannelPlan("total", weather=LONELY))


@pytest.mark.parametrize("order", ["fifo", "causal", "total"])
@pytest.mark.parametrize("seed", seeds(3000, 3))
def test_the_logs_of_a_persistent_channel_have_each_event_once_in_its_order(
    seed: int, order: ChannelOrder
) -> None:
    weather(seed, ChannelPlan(order, "persistent", weather=STILL))


@pytest.mark.parametrize("order", ["fifo", "causal", "total"])
@pytest.mark.parametrize("seed", seeds(4000, 8))
def test_members_that_move_in_any_weather_get_each_event_once_and_in_order(
    seed: int, order: ChannelOrder
) -> None:
    weather(seed, ChannelPlan(order))


@pytest.mark.parametrize("protocol", ["insertion", "rendezvous"])
@pytest.mark.parametrize("order", ["fifo", "causal", "total"])
@pytest.mark.parametrize("seed", seeds(6000, 3))
def test_channels_keep_their_promises_whatever_their_protocol_and_though_a_node_dies(
    seed: int, order: ChannelOrder, protocol: ChannelProtocol
) -> None:
    weather(seed, ChannelPlan(order, protocol=protocol, deaths=1))


@pytest.mark.parametrize("seed", [6, 10])
def test_events_sent_while_the_tree_goes_round_a_cut_link_reach_all_members(seed: int) -> None:
    ring = Network(("1", "2"), ("2", "3"), ("3", "4"), ("4", "1"), seed=seed, reroute_s=REROUTE_S)
    apps = {name: ring.app(name) for name in "13"}
    channel = create(ring, apps["1"], delivery="reliable")
    members = [join(ring, apps[name], channel, durable=f"member-{name}") for name in "13"]
    ring.cut("3", next(name for name in "24" if name in lists(ring, channel)))
    for number in range(30):
        send(apps["13"[number % 2]], channel, number)
        ring.run(0.1)
    ring.run(20.0)
    assert [sorted(member.values) for member in members] == [list(range(30))] * 2


@pytest.mark.parametrize("seed", [1, 6])
def test_events_reach_the_members_of_a_node_that_comes_back_at_another_place_of_the_tree(seed: int) -> None:
    edges = ("1", "3"), ("3", "4"), ("3", "5"), ("4", "6"), ("5", "6")
    network = Network(*edges, seed=seed, reroute_s=REROUTE_S)
    apps = {name: network.app(name) for name in "15"}
    channel = create(network, apps["1"], delivery="reliable")
    _, member = [join(network, apps[name], channel, durable=f"member-{name}") for name in "15"]
    network["5"].crash()
    network.run(5.0)
    network["5"].start()
    for number in range(50):
        send(apps["1"], channel, number)
        network.run(0.01)
    network.run(20.0)
    assert member.values == list(range(50))


def test_a_node_that_starts_again_takes_part_over_all_links_until_it_has_asked_who_does() -> None:
    line = Network(("1", "2"), ("2", "3"))
    apps = [line.app(name) for name in "12"]
    channel = create(line, apps[0], delivery="reliable")
    for app in apps:
        join(line, app, channel, durable="member")
    line["2"].crash()
    line["2"].start()
    assert lists(line, channel)["2"] == {"1", "3"}
    line.run(20.0)
    assert lists(line, channel) == {"1": {"2"}, "2": {"1"}}


def test_a_tree_that_grows_does_not_end_the_waiting_for_the_ways_of_a_channel() -> None:
    pair = Network(("1", "2"))
    channel = create(pair, pair.app("1"))
    trees = pair["1"].core.channels.trees
    part = trees.get(channel)
    assert part is not None
    part.is_torn, part.attempts = True, 3
    trees.follow_tree(has_grown=True)
    assert trees.is_awaited


def test_a_node_that_reaches_others_over_another_link_waits_until_the_channel_is_joined_there() -> None:
    ring = Network(("1", "2"), ("2", "3"), ("3", "4"), ("4", "1"), reroute_s=REROUTE_S)
    ring.cut("4", "1")
    ring.run(10.0)
    ring.heal("4", "1")
    ring.run(10.0)
    apps = [ring.app(name) for name in "13"]
    channel = create(ring, apps[0])
    for app in apps:
        join(ring, app, channel)
    assert lists(ring, channel) == {"1": {"2"}, "2": {"1", "3"}, "3": {"2"}}
    node = ring["1"].core
    ring.cut("2", "3")
    while node.overlay.topology.way(ring["3"].broker.node) == ring["2"].broker.node:
        ring.run(0.001)
    assert node.channels.trees.is_awaited
    ring.run(10.0)
    assert not node.channels.trees.is_awaited
    assert lists(ring, channel) == {"1": {"4"}, "4": {"1", "3"}, "3": {"4"}}


def test_nothing_is_taken_back_while_a_node_does_not_know_the_ways_of_a_channel() -> None:
    pair = Network(("1", "2"))
    listening = pair.app("1").subscribe("x > 1")
    pair.run()
    wholeness = pair["1"].core.overlay.routing.wholeness
    wholeness.is_waiting = lambda: True
    listening.end()
    pair.run()
    assert pair.table("2", "1") == ["x > 1"]
    wholeness.is_waiting = lambda: False
    pair.run()
    assert pair.table("2", "1") == []


def test_nothing_goes_to_other_neighbours_while_a_node_does_not_know_the_ways_of_a_channel() -> None:
    ring = Network(("1", "2"), ("2", "3"), ("3", "1"), reroute_s=REROUTE_S)
    edges = [(one, other) for one, other in ("12", "23", "31")]
    near, far = next(edge for edge in edges if not ring.neighbour(*edge).is_in_tree)
    (middle,) = set("123") - {near, far}
    wholeness = ring[near].core.overlay.routing.wholeness
    wholeness.is_waiting = lambda: True
    ring.cut(near, middle)
    ring.run(10.0)
    assert ring.neighbour(near, far).is_heir
    wholeness.is_waiting = lambda: False
    ring.run(1.0)
    assert not ring.neighbour(near, far).is_heir

"""Which nodes take part in a channel, and what reaches its members, in a simulated network."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace
from overlay.network import App, Listening, Network

from tidings.channels.causal import HOLD_S, mark_of
from tidings.errors import ChannelNotFound, TidingsError
from tidings.protocol.channels import EXPEDITED, MARK

LINE = (("1", "2"), ("2", "3"), ("3", "4"), ("4", "5"))


@pytest.fixture
def line() -> Network:
    return Network(*LINE)


def reply(network: Network, told: list[Any]) -> Any:
    network.run(2.0)
    (one,) = told
    return one


def create(network: Network, app: App, name: str = "trip", **more: Any) -> str:
    told = reply(network, app.ask("channel.create", name=name, **more))
    assert isinstance(told, dict), told
    return str(told["id"])


def join(network: Network, app: App, channel: str, **more: Any) -> Listening:
    member = app.subscribe(channel=channel, **more)
    network.run(2.0)
    assert member.subscription.begun.is_over
    return member


def send(app: App, channel: str, *values: int, **more: Any) -> None:
    app.publish(*values, channel=MARK + channel, **more)


def lists(network: Network, channel: str) -> dict[str, set[str]]:
    """The neighbours that each node has in the channel's tree, by their names."""
    names = {network[name].broker.node: name for name in network.names}
    return {
        name: {names[node] for node in part.neighbours}
        for name in network.names
        if (part := network[name].core.channels.trees.get(channel)) is not None
    }


def test_a_join_makes_the_nodes_on_the_way_to_a_member_take_part(line: Network) -> None:
    first, last = line.app("1"), line.app("5")
    channel = create(line, first)
    join(line, first, channel)
    assert lists(line, channel) == {"1": set()}
    join(line, last, channel)
    assert lists(line, channel) == {"1": {"2"}, "2": {"1", "3"}, "3": {"2", "4"}, "4": {"3", "5"}, "5": {"4"}}


def test_members_get_each_event_once_and_in_order_and_their_own_too(line: Network) -> None:
    first, last = line.app("1"), line.app("5")
    channel = create(line, first, delivery="reliable")
    here, there = join(line, first, channel), join(line, last, channel)
    send(first, channel, 1, 2)
    send(last, channel, 3)
    line.run()
    assert sorted(here.values) == sorted(there.values) == [1, 2, 3]
    assert [value for value in there.values if value < 3] == [1, 2]


def test_a_channel_lives_without_members_and_two_that_join_at_once_find_each_other(line: Network) -> None:
    creator, first, last = line.app("3"), line.app("1"), line.app("5")
    channel = create(line, creator)
    join(line, creator, channel).end()
    line.run()
    assert lists(line, channel) == {"3": set()}
    here, there = first.subscribe(channel=channel), last.subscribe(channel=channel)
    line.run(3.0)
    send(first, channel, 1, delivery="transient")
    send(last, channel, 2, delivery="transient")
    line.run()
    assert sorted(here.values) == sorted(there.values) == [1, 2]
    there.end()
    line.run()
    assert lists(line, channel) == {"1": set()}


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.05, 0.1])
def test_a_member_joins_though_the_link_is_cut_over_which_it_was_to_join(delay_s: float) -> None:
    ring = Network(("1", "2"), ("2", "3"), ("3", "1"), reroute_s=2.0)
    far = next(name for name in "23" if ring.neighbour(name, "1").is_in_tree)
    first, second = ring.app("1"), ring.app(far)
    channel = create(ring, first)
    here = join(ring, first, channel)
    link = ring.world.network.link("1", far)
    link.conditions = replace(link.conditions, delay_s=0.03)
    there = second.subscribe(channel=channel)
    ring.run(delay_s)
    ring.cut("1", far)
    ring.run(20.0)
    send(second, channel, 1, delivery="transient")
    ring.run()
    assert here.values == there.values == [1]


@pytest.mark.parametrize("leaves_at_s", [0.4, 0.8, 1.2, 1.6])
def test_a_member_joins_though_the_node_has_left_that_it_found(leaves_at_s: float) -> None:
    line = Network(*LINE[:3], suspect_s=30.0, reroute_s=60.0)
    first, between, last = line.app("1"), line.app("3"), line.app("4")
    channel = create(line, first)
    here, leaving = join(line, first, channel), join(line, between, channel)
    link = line.world.network.link("3", "4")
    link.conditions = replace(link.conditions, delay_s=0.5)
    there = last.subscribe(channel=channel)
    line.run(leaves_at_s)
    leaving.end()
    line.run(20.0)
    assert lists(line, channel) == {"1": {"2"}, "2": {"1", "3"}, "3": {"2", "4"}, "4": {"3"}}
    send(last, channel, 1, delivery="transient")
    line.run()
    assert here.values == there.values == [1]


def test_an_event_of_a_channel_is_for_its_members_alone(line: Network) -> None:
    first, last, other = line.app("1"), line.app("5"), line.app("3")
    channel = create(line, first, delivery="reliable")
    join(line, first, channel)
    there = join(line, last, channel)
    everything = [
        other.subscribe(),
        other.subscribe(durable="all"),
        other.subscribe(f"channel = '{MARK}{channel}'"),
    ]
    line.run()
    send(first, channel, 7)
    line.run()
    assert there.values == [7]
    assert not any(one.got for one in everything)
    late = [other.subscribe(since=1), other.subscribe(last=True)]
    line.run()
    assert not any(one.got for one in late)


def test_who_is_no_member_can_not_send(line: Network) -> None:
    first, other = line.app("1"), line.app("2")
    channel = create(line, first)
    here = join(line, first, channel)
    send(other, channel, 1, delivery="transient")
    send(other, "unknown", 1, delivery="transient")
    line.run()
    assert not here.got
    assert line.count("2", "refused", "not-allowed") == 2


def test_nodes_off_the_way_know_nothing_of_a_channel(line: Network) -> None:
    first, second = line.app("1"), line.app("2")
    channel = create(line, first)
    join(line, first, channel)
    join(line, second, channel)
    assert lists(line, channel) == {"1": {"2"}, "2": {"1"}}
    tables = [neighbour.table for name in "345" for neighbour in line[name].core.overlay]
    assert not any(channel in text for table in tables if table is not None for text in table.entries)


def test_of_two_nodes_that_leave_at_once_one_keeps_the_channel(line: Network) -> None:
    first, second = line.app("1"), line.app("2")
    channel = create(line, first)
    members = join(line, first, channel), join(line, second, channel)
    for member in members:
        member.end()
    line.run(5.0)
    smaller = min("12", key=lambda name: line[name].broker.node)
    assert lists(line, channel) == {smaller: set()}


def test_what_is_published_while_a_link_is_cut_comes_when_it_is_back(line: Network) -> None:
    first, last = line.app("1"), line.app("5")
    channel = create(line, first, delivery="reliable")
    join(line, first, channel)
    there = join(line, last, channel, durable="last")
    line.cut("3", "4")
    send(first, channel, 1, 2)
    line.run(1.0)
    assert not there.got
    line.heal("3", "4")
    line.run(5.0)
    assert there.values == [1, 2]


def test_a_channel_goes_round_a_link_that_is_lost() -> None:
    ring = Network(("1", "2"), ("2", "3"), ("3", "4"), ("4", "1"), reroute_s=2.0)
    first, third = ring.app("1"), ring.app("3")
    channel = create(ring, first, delivery="reliable")
    join(ring, first, channel)
    there = join(ring, third, channel, durable="third")
    way = next(name for name in "24" if name in lists(ring, channel))
    ring.cut("1", way)
    send(first, channel, 1)
    ring.run(15.0)
    send(first, channel, 2)
    ring.run(5.0)
    assert there.values == [1, 2]


def test_a_node_that_starts_again_takes_part_as_before(line: Network) -> None:
    first, last = line.app("1"), line.app("5")
    channel = create(line, first, delivery="reliable")
    join(line, first, channel)
    there = join(line, last, channel, durable="last")
    line["3"].crash()
    send(first, channel, 1)
    line.run(1.0)
    line["3"].start()
    line.run(10.0)
    send(first, channel, 2)
    line.run(5.0)
    assert there.values == [1, 2]


def test_a_name_is_taken_once_and_found_everywhere(line: Network) -> None:
    first, last = line.app("1"), line.app("5")
    channel = create(line, first)
    assert reply(line, last.ask("channel.find", name="trip"))["id"] == channel
    assert reply(line, last.ask("channel.find", name="trip@1"))["id"] == channel
    assert "exists" in str(reply(line, last.ask("channel.create", name="trip")))
    assert isinstance(reply(line, last.ask("channel.find", name="tour")), TidingsError)
    assert [one["name"] for one in reply(line, last.ask("channel.list"))] == ["trip"]


def test_channels_of_one_name_made_apart_are_told_apart_by_their_nodes(line: Network) -> None:
    first, last = line.app("1"), line.app("5")
    apart = [(one, other) for one in "12" for other in "345"]
    for edge in apart:
        line.cut(*edge)
    line.run(3.0)
    channels = {create(line, first), create(line, last)}
    for edge in apart:
        line.heal(*edge)
    line.run(10.0)
    assert len(channels) == 2
    assert "trip@1, trip@5" in str(reply(line, first.ask("channel.find", name="trip")))
    assert reply(line, first.ask("channel.find", name="trip@5"))["id"] in channels


def test_a_private_channel_is_found_by_its_reference_alone(line: Network) -> None:
    first, last = line.app("1"), line.app("5")
    made = reply(line, first.ask("channel.create", name="trip", private=True))
    assert isinstance(reply(line, last.ask("channel.find", name="trip")), TidingsError)
    assert reply(line, last.ask("channel.list")) == []
    assert isinstance(reply(line, last.ask("channel.find", reference="guessed")), TidingsError)
    assert reply(line, last.ask("channel.find", reference=made["reference"]))["id"] == made["id"]


@pytest.mark.parametrize("protocol", ["broadcast", "insertion", "rendezvous"])
def test_a_copied_reference_is_of_no_use_when_its_channel_is_deleted(line: Network, protocol: str) -> None:
    first, last = line.app("1"), line.app("5")
    made = reply(line, first.ask("channel.create", name="trip", private=True, protocol=protocol))
    open_channel = create(line, first, "open")
    assert reply(line, last.ask("channel.find", reference=made["reference"]))["id"] == made["id"]
    reply(line, first.ask("channel.delete", channel=made["id"], reference=made["reference"]))
    assert isinstance(reply(line, last.ask("channel.find", reference=made["reference"])), ChannelNotFound)
    for wrong in (made["id"], "guessed", f"{protocol}-guessed", MARK + open_channel, ""):
        joined = last.ask("subscribe", number=9, filter="", credit=1, channel=wrong)
        line.run(12.0)
        assert isinstance(joined[0], TidingsError)
        assert lists(line, wrong) == {}
    here = join(line, first, open_channel)
    send(first, open_channel, 1, delivery="transient")
    line.run()
    assert here.values == [1]


def test_a_channel_takes_only_events_of_its_types_and_delivery(line: Network) -> None:
    first = line.app("1")
    channel = create(line, first, types=["x"])
    here = join(line, first, channel)
    send(first, channel, 1, type="y", delivery="transient")
    send(first, channel, 2, delivery="reliable")
    send(first, channel, 3, delivery="transient")
    line.run()
    assert here.values == [3]


def test_a_channel_is_deleted_from_a_node_far_from_those_that_take_part(line: Network) -> None:
    channel = create(line, line.app("1"))
    reply(line, line.app("5").ask("channel.delete", channel=channel))
    assert lists(line, channel) == {}


def test_a_deleted_channel_is_gone_at_all_nodes(line: Network) -> None:
    first, last = line.app("1"), line.app("5")
    channel = create(line, first)
    ended: list[str] = []
    for app in (first, last):
        join(line, app, channel).ended = ended.append  # type: ignore[method-assign]
    assert reply(line, last.ask("channel.delete", channel=channel)) is None
    line.run()
    assert lists(line, channel) == {}
    assert ended == ["the channel was deleted"] * 2


@pytest.mark.parametrize("delivery", ["transient", "reliable"])
def test_an_event_of_a_causal_channel_comes_after_what_its_sender_knew(line: Network, delivery: str) -> None:
    apps = [line.app(name) for name in "135"]
    channel = create(line, apps[0], delivery=delivery, order="causal")
    members = [join(line, app, channel) for app in apps]
    for number, app in enumerate(apps * 3):
        send(app, channel, number, delivery=delivery)
        line.run(0.5)
    assert [member.values for member in members] == [list(range(9))] * 3
    assert not any(line.count(name, "channel_gaps") for name in line.names)
    assert reply(line, apps[0].ask("channel.list"))[0]["order"] == "causal"


def test_a_node_that_names_events_which_do_not_exist_holds_its_own_events_alone(line: Network) -> None:
    first, last = line.app("1"), line.app("5")
    channel = create(line, first, delivery="reliable", order="causal")
    here = join(line, first, channel)
    join(line, last, channel)
    forging = line["5"].core.channels.ordering
    order = forging._order(channel)
    order._tips = {mark_of("nobody", 1, is_volatile=False): 1 << 40}
    send(last, channel, 1)
    line.run()
    send(first, channel, 2)
    line.run()
    assert here.values == [2]
    line.run(HOLD_S + 5.0)
    assert here.values == [2, 1]
    assert here.gaps == [(1, "slow")]
    assert line.count("1", "channel_gaps") == 1


def test_what_is_held_for_a_durable_member_survives_a_crash_of_its_node(line: Network) -> None:
    first, last = line.app("1"), line.app("5")
    channel = create(line, first, delivery="reliable", order="causal")
    here = join(line, first, channel, durable="here")
    join(line, last, channel)
    line["5"].core.channels.ordering._order(channel)._tips = {mark_of("nobody", 1, is_volatile=False): 9}
    send(last, channel, 1)
    line.run()
    line["1"].crash()
    line.run(1.0)
    line["1"].start()
    line.run(20.0)
    assert here.values == []
    line.run(HOLD_S + 30.0)
    assert here.values == [1]


@pytest.mark.parametrize("delivery", ["transient", "reliable"])
def test_all_members_of_a_total_channel_get_all_events_in_one_order(line: Network, delivery: str) -> None:
    apps = [line.app(name) for name in "135"]
    channel = create(line, apps[0], delivery=delivery, order="total")
    members = [join(line, app, channel) for app in apps]
    line.run(5.0)
    for number in range(0, 30, 3):
        for place, app in enumerate(apps):
            send(app, channel, number + place, delivery=delivery)
        line.run(0.05)
    line.run(10.0)
    assert sorted(members[0].values) == list(range(30))
    assert members[1].values == members[2].values == members[0].values


@pytest.mark.parametrize("order", ["fifo", "causal", "total"])
def test_an_expedited_event_skips_the_order_and_is_not_overtaken(line: Network, order: str) -> None:
    apps = {name: line.app(name) for name in "135"}
    channel = create(line, apps["1"], delivery="reliable", order=order)
    members = {name: join(line, apps[name], channel, durable=f"of-{name}") for name in "135"}
    line.run(5.0)
    send(apps["5"], channel + EXPEDITED, 1)
    send(apps["5"], channel, 2)
    line.run(5.0)
    assert [member.values for member in members.values()] == [[1, 2]] * 3
    for name in "1234":
        line.cut(name, "5")
    line.run(2.0)
    send(apps["5"], channel, 3)
    send(apps["5"], channel + EXPEDITED, 4)
    line.run(5.0)
    assert members["5"].values[2:] == ([4] if order == "total" else [3, 4])
    for name in "1234":
        line.heal(name, "5")
    line.run(30.0)
    assert all(sorted(member.values) == [1, 2, 3, 4] for member in members.values())


def test_an_expedited_event_passes_one_that_is_held(line: Network) -> None:
    first, last = line.app("1"), line.app("5")
    channel = create(line, first, delivery="reliable", order="causal")
    here = join(line, first, channel)
    join(line, last, channel)
    line["5"].core.channels.ordering._order(channel)._tips = {mark_of("nobody", 1, is_volatile=False): 9}
    send(last, channel, 1)
    send(last, channel + EXPEDITED, 2)
    line.run()
    assert here.values == [2]
    line.run(HOLD_S + 5.0)
    assert here.values == [2, 1]


def test_nobody_but_a_member_can_send_an_expedited_event_or_gets_it(line: Network) -> None:
    first, other = line.app("1"), line.app("1", "other")
    channel = create(line, first)
    here = join(line, first, channel)
    everything = other.subscribe()
    send(other, channel + EXPEDITED, 1, delivery="transient")
    send(first, channel + EXPEDITED, 2, delivery="transient")
    line.run()
    assert here.values == [2]
    assert not everything.got
    assert line.count("1", "refused", "not-allowed") == 1


@pytest.mark.parametrize("order", ["fifo", "causal", "total"])
def test_parts_of_a_channel_that_meet_again_have_each_event_once_though_members_joined(
    order: str,
) -> None:
    ring = Network(*pairwise("123456"), ("6", "1"), reroute_s=1.0)
    apps = {name: ring.app(name) for name in "123456"}
    channel = create(ring, apps["1"], delivery="reliable", order=order)
    members = {name: join(ring, apps[name], channel, durable=name) for name in "14"}
    ring.run(20.0)
    for pair in (("3", "4"), ("6", "1")):
        ring.cut(*pair)
    ring.run(20.0)
    members |= {
        name: apps[name].subscribe(channel=channel, durable=name) for name in "36"
    }  # one in each part
    ring.run(20.0)
    for number, name in enumerate("14" * 5):
        send(apps[name], channel, number)
        ring.run(0.5)
    for pair in (("3", "4"), ("6", "1")):
        ring.heal(*pair)
    members |= {name: apps[name].subscribe(channel=channel, durable=name) for name in "25"}
    ring.run(60.0)
    for number, name in enumerate("123456", 10):
        send(apps[name], channel, number)
    ring.run(30.0)
    for name in "14":
        assert sorted(members[name].values) == list(range(16))
        for of in (range(0, 10, 2), range(1, 10, 2)):
            assert [value for value in members[name].values if value in of] == list(of)
    for member in members.values():
        assert sorted(value for value in member.values if value >= 10) == list(range(10, 16))
        assert len(set(member.values)) == len(member.values)


def test_an_event_of_a_causal_channel_is_kept_until_all_have_it_and_not_longer(line: Network) -> None:
    first, last = line.app("1"), line.app("5")
    channel = create(line, first, delivery="reliable", order="causal")
    members = [join(line, first, channel, durable="first"), join(line, last, channel, durable="last")]
    line.cut("4", "5")
    for number in range(3):
        send(first, channel, number)
    line.run(5.0)

    def kept(name: str) -> int:
        broker = line[name].broker
        return broker.position - min(cursor.released for cursor in line[name].core.overlay.neighbours.cursors)

    assert [kept(name) for name in "1234"] == [3] * 4
    line.heal("4", "5")
    line.run(20.0)
    assert [kept(name) for name in "12345"] == [0] * 5
    assert [member.values for member in members] == [[0, 1, 2]] * 2

"""What is measured of a channel: in a simulated network, and over time."""

from __future__ import annotations

import pytest
from channels.test_trees import LINE, create, join, reply, send
from node.peers import run
from overlay.network import Network
from overlay.real import Line

from tidings.channels.changes import ChannelChanges
from tidings.channels.description import ChannelCounts, ChannelDescription, ChannelPlace, ChannelStatus
from tidings.channels.measured import WINDOW_S, ChannelMeter, status_of
from tidings.overlay.tree import WEIGHTED

TRIP = ChannelDescription("c", "trip", "1", reference="secret")


def test_a_channel_tells_its_members_links_changes_and_events() -> None:
    line = Network(*LINE)
    first, third = line.app("1"), line.app("3")
    channel = create(line, first, delivery="reliable")
    join(line, first, channel)
    there = join(line, third, channel)
    join(line, third, channel)
    send(first, channel, 1, 2, 3)
    send(third, channel, 4, delivery="transient")
    line.run()
    there.end()
    line.run()
    found = reply(line, line.app("5").ask("channel.show", channel=channel))
    assert found["members"] == {"1": 1, "2": 0, "3": 1}
    assert found["links"] == [["1", "2"], ["2", "3"]]
    assert found["extent"] == 0.5
    assert (found["joins"], found["leaves"], found["sent"]) == (3, 1, {"1": 3, "3": 1})
    assert found["fluctuation"] == 1.0
    assert 0 < found["rate"] <= 4
    assert found["missing"] == []
    assert "reference" not in found


def test_nodes_that_can_not_be_asked_are_named_and_an_unknown_channel_is_told() -> None:
    line = Network(*LINE)
    first = line.app("1")
    channel = create(line, first)
    line.cut("3", "4")
    told = first.ask("channel.show", channel=channel)
    line.run(12.0)  # the cut is not known yet: it is asked in vain
    (found,) = told
    assert (found["members"], found["fluctuation"], found["missing"]) == ({"1": 0}, None, ["4", "5"])
    assert "no such channel" in str(reply(line, first.ask("channel.show", channel="other")))


def test_the_extent_is_the_share_of_the_weight_of_the_networks_tree() -> None:
    tree = [(2 * weight - WEIGHTED, one, other) for weight, one, other in ((1, "a", "b"), (3, "b", "c"))]
    places = [ChannelPlace(TRIP, "b", 0, 1, ("c",), ChannelCounts()), ChannelPlace(TRIP, "c", 1, 1, ("b",))]
    assert status_of(places, tree, [], str).extent == 0.75
    assert status_of(places, [*tree, (5, "c", "d")], [], str).extent == pytest.approx(1 / 3)
    assert status_of(places[:1], [], [], str).extent == 1.0


def test_a_steady_rate_is_told_from_the_first_seconds_on_and_fades_when_nothing_is_sent() -> None:
    meter = ChannelMeter()
    assert meter.counts(5.0).rate == 0.0
    now = 100.0
    for _ in range(20):
        meter.note_sent(50, now)
        now += 0.5
    assert meter.counts(now).rate == pytest.approx(100, rel=0.05)
    for _ in range(2_000):
        meter.note_sent(50, now)
        now += 0.5
    assert meter.counts(now).rate == pytest.approx(100, rel=0.05)
    assert meter.counts(now + WINDOW_S).rate == pytest.approx(100 / 2.718, rel=0.05)
    assert meter.counts(now).sent == 101_000


def test_one_event_alone_is_no_high_rate() -> None:
    meter = ChannelMeter()
    meter.note_sent(1, 0.0)
    assert meter.counts(0.0).rate <= 1.01


def status(members: dict[str, int], reached: tuple[str, ...] = ("a", "b")) -> ChannelStatus:
    places = [ChannelPlace(TRIP, node, 0, count) for node, count in members.items()]
    return status_of(places or [ChannelPlace(TRIP, "x")], [], [], str, reached)


def test_members_that_join_leave_and_are_lost_are_system_events_of_their_channel() -> None:
    changes = ChannelChanges()

    def seen(one: ChannelStatus) -> list[tuple[str, str, int, int]]:
        found = changes.seen(one)
        assert {event.channel for event in found} <= {"trip"}
        return [(event.type, event["node"], event["count"], event["members"]) for event in found]

    assert seen(status({"a": 2, "b": 0})) == [("channel.joined", "a", 2, 2)]
    assert seen(status({"a": 2, "b": 0})) == []
    assert seen(status({"a": 1, "b": 3})) == [("channel.left", "a", 1, 1), ("channel.joined", "b", 3, 3)]
    assert seen(status({"a": 1}, reached=("a",))) == [("channel.lost", "b", 3, 0)]
    assert seen(status({"a": 1, "b": 3})) == [("channel.joined", "b", 3, 3)]
    assert seen(status({"b": 3})) == [("channel.left", "a", 1, 0)]


def test_real_members_that_come_and_go_and_whose_node_ends_are_seen() -> None:
    async def scenario() -> None:
        async with Line("a", "b") as line:
            alice, bob = await line.bus("a"), await line.bus("b")
            trip = await alice.create_channel("trip", delivery="reliable")
            seen = trip.changes()
            async with trip, await bob.channel("trip"):
                first, second = await anext(seen), await anext(seen)
                assert [(one.type, one["node"]) for one in (first, second)] == [
                    ("channel.joined", "a"),
                    ("channel.joined", "b"),
                ]
            gone = {(one.type, one["node"]) for one in (await anext(seen), await anext(seen))}
            assert gone == {("channel.left", "a"), ("channel.left", "b")}

    run(scenario())

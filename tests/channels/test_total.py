"""Total order at one node, and between nodes that can't always reach each other."""

from __future__ import annotations

import pytest
from channels.test_trees import LINE, create, join, lists, send
from overlay.network import Network

from tidings.channels.causal import HOLD_S, ChannelArrival, OrderVerdict
from tidings.channels.sequencer import PATIENCE_S, AppendEntries, SequenceEntry, Sequencer
from tidings.channels.total import LOST_S, TotalOrder


def follower() -> TotalOrder[list[int]]:
    """The order at a voter whose sequencer is `s`."""
    sequencer = Sequencer("me", lambda _node, _message: None, lambda: 0.5)
    sequencer.hear("s", AppendEntries(1, 0, 0, (SequenceEntry(1, voters=("me", "s")),), 1, 0), 0.0)

    def cut(item: list[int], last: int) -> tuple[list[int] | None, list[int] | None]:
        return [one for one in item if one <= last] or None, [one for one in item if one > last] or None

    return TotalOrder(sequencer, cut, lambda _item, _entry: None)


def arrive(order: TotalOrder[list[int]], node: str, *numbers: int, volatile: bool = False) -> OrderVerdict:
    return order.arrive(ChannelArrival(node, 1, volatile, numbers[-1]), list(numbers), 1)


def listed(order: TotalOrder[list[int]], node: str, *lasts: int, volatile: bool = False) -> None:
    mark, last = ChannelArrival(node, 1, volatile, 0).mark, order.sequencer.last
    entries = tuple(SequenceEntry(1, mark, one) for one in lasts)
    order.sequencer.hear("s", AppendEntries(1, last, 1, entries, last + len(entries), 0), 0.0)


def test_events_wait_until_they_are_listed_and_then_come_in_that_order() -> None:
    order = follower()
    assert arrive(order, "a", 1) is OrderVerdict.HOLD
    assert arrive(order, "b", 1) is OrderVerdict.HOLD
    assert order.release(0.0) == []
    listed(order, "b", 1)
    listed(order, "a", 1)
    assert order.release(0.0) == [[1], [1]]
    assert not order.held


def test_a_batch_is_divided_where_an_entry_ends() -> None:
    order = follower()
    arrive(order, "a", 1, 2, 3)
    listed(order, "a", 2)
    assert order.release(0.0) == [[1, 2]]
    listed(order, "a", 3)
    assert order.release(0.0) == [[3]]


def test_what_was_listed_before_it_came_is_waited_for() -> None:
    order = follower()
    listed(order, "a", 1)
    listed(order, "b", 1)
    arrive(order, "b", 1)
    assert order.release(0.0) == []
    arrive(order, "a", 1)
    assert order.release(0.0) == [[1], [1]]


@pytest.mark.parametrize(("volatile", "after_s"), [(False, HOLD_S), (True, LOST_S)])
def test_an_entry_whose_events_do_not_exist_is_a_gap_after_a_time(volatile: bool, after_s: float) -> None:
    order = follower()
    listed(order, "nobody", 9, volatile=volatile)
    listed(order, "b", 1)
    arrive(order, "b", 1)
    assert order.release(0.0, is_whole=True) == []
    assert order.release(after_s - 0.1, is_whole=True) == []
    assert order.release(after_s, is_whole=True) == [[1]]
    assert order.gaps == 1


def test_an_event_that_comes_again_is_held_once() -> None:
    order = follower()
    assert arrive(order, "a", 1) is OrderVerdict.HOLD
    assert arrive(order, "a", 1) is OrderVerdict.DROP


def test_a_node_without_members_holds_nothing() -> None:
    order: TotalOrder[list[int]] = TotalOrder(
        Sequencer("relay", lambda _node, _message: None, lambda: 0.5),
        lambda item, _last: (item, None),
        lambda _item, _entry: None,
    )
    assert arrive(order, "a", 1) is OrderVerdict.DROP
    assert not order.held
    assert order.seen


def test_a_sender_that_is_cut_off_from_most_voters_waits_and_the_others_go_on() -> None:
    line = Network(*LINE, reroute_s=2.0)
    apps = {name: line.app(name) for name in "135"}
    channel = create(line, apps["5"], delivery="reliable", order="total")
    members = {name: join(line, apps[name], channel) for name in "531"}
    line.run(5.0)
    for name in "1234":
        line.cut(name, "5")
    send(apps["5"], channel, 1)
    send(apps["1"], channel, 2)
    line.run(PATIENCE_S * 6)
    assert not members["5"].got
    assert not apps["5"].connection.publications.is_empty
    assert members["1"].values == members["3"].values == [2]
    assert apps["1"].connection.publications.is_empty
    for name in "1234":
        line.heal(name, "5")
    line.run(30.0)
    assert members["1"].values == members["3"].values == members["5"].values == [2, 1]
    assert apps["5"].connection.publications.is_empty


def test_a_sequencer_without_members_leaves_and_another_goes_on() -> None:
    line = Network(*LINE)
    apps = {name: line.app(name) for name in "135"}
    channel = create(line, apps["5"], delivery="reliable", order="total")
    members = {name: join(line, apps[name], channel) for name in "531"}
    members["5"].end()
    line.run(20.0)
    assert "5" not in lists(line, channel)
    send(apps["1"], channel, 1)
    send(apps["3"], channel, 2)
    line.run(PATIENCE_S * 6)
    assert members["1"].values == members["3"].values
    assert sorted(members["1"].values) == [1, 2]


def test_a_total_channel_whose_nodes_have_all_crashed_goes_on() -> None:
    line = Network(*LINE)
    apps = {name: line.app(name) for name in "15"}
    channel = create(line, apps["1"], delivery="reliable", order="total")
    members = [join(line, apps[name], channel, durable=f"of-{name}") for name in "15"]
    send(apps["1"], channel, 1)
    line.run(3.0)
    for name in "12345":
        line[name].crash()
    line.run(1.0)
    for name in "12345":
        line[name].start()
    line.run(20.0)
    send(apps["5"], channel, 2)
    line.run(PATIENCE_S * 8)
    assert [member.values for member in members] == [[1, 2], [1, 2]]


def test_a_voter_that_did_not_hear_that_it_is_none_any_more_finds_the_sequencer_after_the_next() -> None:
    net = Network(("1", "2"), ("2", "3"))
    apps = [net.app(name) for name in "123"]
    channel = create(net, apps[0], order="total", delivery="reliable")
    first, _, last = (join(net, app, channel) for app in apps)
    orders, third = net["1"].core.channels.ordering._channels, net["3"].broker.node
    tell = orders.tell
    orders.tell = lambda name, node, body: None if node == third else tell(name, node, body)  # type: ignore[method-assign]
    last.end()
    net.run(5.0)
    first.end()
    net.run(20.0)
    assert lists(net, channel) == {"2": set()}

"""Persistent channels between simulated nodes: what is stored, who reads it, and in which order."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from channels.test_trees import create, join, reply, send
from overlay.network import App, Network

from tidings.channels.description import ChannelOrder
from tidings.errors import NotAllowed
from tidings.log.chunks import LivePart
from tidings.protocol.channels import MARK
from tidings.simulator.channel_history import read_history

TRIANGLE = (("1", "2"), ("2", "3"), ("3", "1"))
LINE = (("1", "2"), ("2", "3"))


def history(network: Network, app: App, channel: str, order: ChannelOrder = "fifo") -> list[int]:
    """What a member reads of a channel, as the client does it."""

    def ask(operation: str, **arguments: Any) -> Any:
        return reply(network, app.ask(operation, **arguments))

    return [int(event["x"]) for event in read_history(ask, channel, order)]


def persistent(network: Network, app: App, **about: Any) -> str:
    return create(network, app, delivery="persistent", **about)


def publish(app: App, channel: str, *values: int) -> None:
    send(app, channel, *values, delivery="persistent")


def test_a_member_reads_what_was_sent_at_any_node_before_it_came() -> None:
    network = Network(*LINE)
    first, last, late = network.app("1"), network.app("3"), network.app("2")
    channel = persistent(network, first)
    here, there = join(network, first, channel), join(network, last, channel)
    for value in range(6):
        publish(first if value % 2 else last, channel, value)
        network.run(1.0)
    here.end()
    there.end()
    network.run(5.0)
    join(network, late, channel)
    assert history(network, late, channel) == list(range(6))


def test_what_a_channel_keeps_in_the_log_only_its_members_read() -> None:
    network = Network(*LINE)
    first, other = network.app("1"), network.app("1", "other")
    channel = persistent(network, first, private=True)
    reference = network["1"].core.channels.trees.get(channel).channel.reference  # type: ignore[union-attr]
    join(network, first, channel, reference=reference)
    publish(first, channel, 7)
    other.publish(8, delivery="persistent")
    network.run()

    def read(app: App, **more: Any) -> list[int] | NotAllowed:
        told = reply(network, app.ask("log.read", start=1, **more))
        if not isinstance(told, dict):
            return told
        parts = msgspec.convert(told["parts"], list[LivePart])
        return [event["x"] for part in parts for event in part.events()]

    assert read(other) == read(first) == read(other, where=f"channel = '{MARK}{channel}' OR x > 7") == [8]
    assert read(first, channel=channel) == read(other, channel=reference) == [7]
    assert isinstance(read(other, channel=channel), NotAllowed)
    found = reply(network, other.ask("channel.places", channel=channel))
    assert isinstance(found, NotAllowed)


def test_copies_of_a_node_that_archives_a_channel_replace_a_first_node_that_is_dead() -> None:
    network = Network(*LINE)
    first, keeper = network.app("1"), network.app("2")
    channel = persistent(network, first)
    join(network, first, channel)
    join(network, keeper, channel)
    publish(first, channel, 1)
    network.run()
    assert reply(network, keeper.ask("channel.archive", channel=channel)) is None
    publish(first, channel, 2)
    publish(keeper, channel, 3)
    network.run()
    assert history(network, keeper, channel) == [1, 2, 3]
    network["1"].crash()
    network.run(10.0)
    assert sorted(history(network, keeper, channel)) == [2, 3]
    network["2"].crash()
    network["2"].start()
    network.run(10.0)
    keeper = network.app("2", "again")
    join(network, keeper, channel)
    assert sorted(history(network, keeper, channel)) == [2, 3]


def test_deleting_a_channel_gives_up_what_it_has_stored_and_the_log_stays() -> None:
    network = Network(*LINE)
    first, keeper = network.app("1"), network.app("2")
    channel = persistent(network, first)
    for member in (join(network, first, channel), join(network, keeper, channel)):
        member.ended = lambda _reason: None  # type: ignore[method-assign]
    reply(network, keeper.ask("channel.archive", channel=channel))
    publish(keeper, channel, 1)
    network.run()
    end = network["2"].broker.end_logged
    network["2"].core.channels._end(channel, None)
    network.run()
    for name in "12":
        logged = network[name].core.channels.logged
        assert not logged.places(channel)
        assert logged.archived(channel) is None
    assert network["2"].core.channels.are_logged
    assert network["2"].broker.end_logged == end


@pytest.mark.parametrize("order", ["fifo", "causal", "total"])
def test_history_has_the_order_of_the_channel(order: ChannelOrder) -> None:
    network = Network(*TRIANGLE, seed=3)
    apps = {name: network.app(name) for name in "123"}
    channel = persistent(network, apps["1"], order=order)
    members = {name: join(network, app, channel) for name, app in apps.items()}
    for value in range(40):
        name = "123"[network.world.random.randrange(3)]
        publish(apps[name], channel, value)
        network.run(network.world.random.choice((0.0, 0.01, 0.1)))
    network.run(5.0)
    found = history(network, apps["2"], channel, order)
    assert sorted(found) == list(range(40))
    if order == "total":
        assert found == members["1"].values == members["3"].values
    for member in members.values():
        assert sorted(member.values) == list(range(40))

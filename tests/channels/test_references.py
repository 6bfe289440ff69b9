"""References of private channels: what they are needed for, and what becomes of former ones."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from channels.test_trees import LINE, create, join, reply, send
from node.peers import run
from overlay.network import App, Network
from overlay.real import Line

from tidings.channels.description import ChannelDescription, ChannelPlace, StoredChannel, newest
from tidings.errors import ChannelNotFound, NotAllowed, Refused, TidingsError


@pytest.fixture
def line() -> Network:
    return Network(*LINE[:3])


def private(network: Network, app: App, **more: Any) -> tuple[str, str]:
    """Create a private channel; its id and its reference."""
    made = reply(network, app.ask("channel.create", name="trip", private=True, **more))
    return made["id"], made["reference"]


def joined(network: Network, app: App, channel: str, **more: Any) -> Any:
    """The answer to a client that asks to join."""
    told = app.ask("subscribe", number=900 + len(app.subscriptions), filter="", channel=channel, **more)
    network.run(1.0)
    return told[0]


def renew(network: Network, app: App, channel: str) -> str:
    return str(reply(network, app.ask("channel.renew", channel=channel)))


@pytest.mark.parametrize("node", ["1", "4"], ids=["where it is", "elsewhere"])
def test_the_id_of_a_private_channel_is_of_no_use_without_its_reference(line: Network, node: str) -> None:
    first, stranger = line.app("1"), line.app(node, "stranger")
    channel, reference = private(line, first)
    about = {"channel": channel}
    for wrong in ("", channel, reference[:-1], "guessed"):
        assert isinstance(joined(line, stranger, channel, reference=wrong), ChannelNotFound)
        for operation in ("channel.show", "channel.delete"):
            told = reply(line, stranger.ask(operation, **about, reference=wrong))
            assert isinstance(told, ChannelNotFound), operation
    assert isinstance(reply(line, stranger.ask("channel.find", id=channel)), ChannelNotFound)
    assert reply(line, stranger.ask("channel.list", id=channel)) == []
    assert reply(line, stranger.ask("channel.show", **about, reference=reference))["id"] == channel
    assert isinstance(joined(line, stranger, channel, reference=reference), dict)
    assert reply(line, stranger.ask("channel.find", id=channel))["reference"] == reference
    assert reply(line, stranger.ask("channel.delete", **about)) is None


def test_a_reference_that_was_renewed_admits_nobody_at_any_node_and_members_stay(line: Network) -> None:
    first, last, late = line.app("1"), line.app("4"), line.app("3", "late")
    channel, former = private(line, first)
    here, there = (join(line, app, channel, reference=former) for app in (first, last))
    assert isinstance(reply(line, late.ask("channel.find", reference=former)), dict)
    reference = renew(line, first, channel)
    assert reference not in (former, channel)
    assert isinstance(reply(line, late.ask("channel.find", reference=former)), ChannelNotFound)
    for name in line.names:
        assert isinstance(joined(line, line.app(name), channel, reference=former), ChannelNotFound)
    assert reply(line, late.ask("channel.find", reference=reference))["id"] == channel
    new = join(line, late, channel, reference=reference)
    send(last, channel, 1, delivery="transient")
    line.run()
    assert here.values == there.values == new.values == [1]


@pytest.mark.parametrize("reroute_s", [5.0, 120.0], ids=["parted", "cut for a moment"])
def test_a_node_that_is_cut_off_learns_of_a_new_reference_when_it_is_back(reroute_s: float) -> None:
    line = Network(*LINE[:3], suspect_s=reroute_s, reroute_s=reroute_s)
    first, last = line.app("1"), line.app("4")
    channel, former = private(line, first)
    for app in (first, last):
        join(line, app, channel, reference=former)
    line.cut("2", "3")
    reference = renew(line, first, channel)
    assert isinstance(joined(line, line.app("4", "early"), channel, reference=former), dict)
    line.run(30.0)
    line.heal("2", "3")
    line.run(15.0)
    for name in line.names:
        assert isinstance(joined(line, line.app(name), channel, reference=former), ChannelNotFound)
        assert isinstance(joined(line, line.app(name), channel, reference=reference), dict)


def test_a_reference_that_is_known_at_a_node_behind_a_cut_link_alone_is_not_believed(line: Network) -> None:
    first, last, other = line.app("1"), line.app("4"), line.app("2")
    channel, former = private(line, first)
    for app in (first, last):
        join(line, app, channel, reference=former)
    part = line["4"].core.channels.trees.get(channel)
    assert part is not None
    stale = part.channel
    reference = renew(line, first, channel)
    part.channel = stale  # as if it had not been told
    assert isinstance(reply(line, other.ask("channel.find", reference=former)), ChannelNotFound)
    assert isinstance(reply(line, other.ask("channel.places", channel=former)), ChannelNotFound)
    assert reply(line, other.ask("channel.find", reference=reference))["id"] == channel


def test_a_node_that_starts_again_knows_the_new_reference(line: Network) -> None:
    first = line.app("1")
    channel, former = private(line, first)
    join(line, first, channel, reference=former, durable="d")
    reference = renew(line, first, channel)
    line["1"].crash()
    line["1"].start()
    line.run(5.0)
    stranger = line.app("1", "stranger")
    assert isinstance(joined(line, stranger, channel, reference=former), ChannelNotFound)
    assert isinstance(joined(line, stranger, channel, reference=reference), dict)


def test_of_two_references_that_are_given_at_once_one_counts_at_all_nodes(line: Network) -> None:
    first, last = line.app("1"), line.app("4")
    channel, former = private(line, first)
    for app in (first, last):
        join(line, app, channel, reference=former)
    line.cut("2", "3")
    given = [renew(line, app, channel) for app in (first, last)]
    line.heal("2", "3")
    line.run(15.0)
    told = [joined(line, line.app("2"), channel, reference=one) for one in given]
    assert sorted(isinstance(one, dict) for one in told) == [False, True]
    parts = [line[name].core.channels.trees.get(channel) for name in line.names]
    assert len({part.channel.reference for part in parts if part is not None}) == 1


def test_a_durable_member_comes_back_by_its_former_reference_and_others_do_not(line: Network) -> None:
    first, last = line.app("1"), line.app("4")
    channel, former = private(line, first, delivery="reliable")
    join(line, first, channel, reference=former)
    member = join(line, last, channel, reference=former, durable="d")
    renew(line, first, channel)
    line["4"].crash()
    line["4"].start()
    line.run(5.0)
    send(first, channel, 1)
    line.run(5.0)
    assert member.values == [1]
    other = line.app("4", "other")
    assert isinstance(joined(line, other, channel, reference=former, durable="d"), ChannelNotFound)


def test_a_member_moves_though_the_reference_was_renewed_and_nobody_joins_by_a_move(line: Network) -> None:
    first, mover, stranger = line.app("1"), line.app("1", "mover"), line.app("1", "stranger")
    channel, former = private(line, first, delivery="reliable")
    member = join(line, mover, channel, reference=former)
    join(line, first, channel, reference=former)
    renew(line, first, channel)
    wanted = {"number": 1, "filter": "", "credit": 10, "channel": channel, "reference": former}
    told = reply(line, stranger.ask("move", to="4", subscriptions=[wanted]))
    assert isinstance(told, TidingsError)
    mover.follows = True
    moved: list[Any] = []
    mover.connection.move("4").then(moved.append, moved.append)
    mover.pump()
    line.run(20.0)
    send(first, channel, 1)
    line.run(2.0)
    assert moved == [None]
    assert member.values == [1]


def test_what_is_stored_is_read_by_the_reference_of_now(line: Network) -> None:
    first, reader = line.app("1"), line.app("1", "reader")
    channel, former = private(line, first, delivery="persistent")
    join(line, first, channel, reference=former)
    send(first, channel, 1, delivery="persistent")
    line.run()
    assert reply(line, reader.ask("channel.places", channel=former))["logs"]
    reference = renew(line, first, channel)
    assert isinstance(reply(line, reader.ask("channel.places", channel=former)), ChannelNotFound)
    assert reply(line, reader.ask("channel.places", channel=reference))["logs"]
    assert isinstance(reply(line, reader.ask("channel.places", channel=channel)), NotAllowed)


def test_only_members_renew_and_only_what_a_private_channel_has(line: Network) -> None:
    first = line.app("1")
    channel, reference = private(line, first)
    assert isinstance(reply(line, first.ask("channel.renew", channel=channel)), NotAllowed)
    plain = create(line, first, "open")
    join(line, first, plain)
    assert isinstance(reply(line, first.ask("channel.renew", channel=plain)), Refused)
    assert reply(line, first.ask("channel.find", reference=reference))["id"] == channel


def test_a_neighbour_alone_may_say_that_a_reference_was_renewed(line: Network) -> None:
    first = line.app("1")
    channel, reference = private(line, first)
    forged = {"id": channel, "name": "trip", "node": "1", "reference": "mine", "renewals": 9}
    assert isinstance(reply(line, first.ask("link.channel.renew", channel=forged)), TidingsError)
    assert reply(line, first.ask("channel.find", reference=reference))["id"] == channel


def test_records_of_an_earlier_release_are_read() -> None:
    about = {"id": "c", "name": "trip", "node": "1", "delivery": "reliable", "types": []}
    former = {"channel": {**about, "reference": "secret", "order": "fifo"}, "neighbours": ["2"]}
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(former), type=StoredChannel)
    assert (stored.channel.token, stored.channel.renewals) == ("secret", 0)
    renewed = ChannelDescription("c", "trip", "1", reference="a", renewals=1)
    places = [ChannelPlace(one, "1") for one in (renewed, stored.channel)]
    assert newest(places) is renewed
    assert newest([]) is None


def test_a_real_member_renews_the_reference_of_its_channel() -> None:
    async def scenario() -> None:
        async with Line("a") as line:
            bus = await line.bus("a")
            channel = await bus.create_channel("trip", private=True)
            former = channel.reference
            async with channel:
                assert await channel.renew() == channel.reference != former
                with pytest.raises(ChannelNotFound):
                    await bus.channel(reference=former)
                found = await bus.channel(reference=channel.reference)
                assert (await found.status()).members == {"a": 1}
            await found.delete()

    run(scenario())

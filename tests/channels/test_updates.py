"""Updates: of those of one key that a member has not got it gets the newest, and all else in order."""

from __future__ import annotations

import pytest
from channels.test_trees import create, join
from node.peers import run
from overlay.network import App, Listening, Network
from overlay.real import Line

from tidings.errors import UserError
from tidings.event import Event
from tidings.protocol import updates
from tidings.protocol.channels import MARK, UPDATE
from tidings.protocol.subscriber import Wanted

LINE = (("1", "2"), ("2", "3"))


def update(app: App, channel: str, key: str, value: int, delivery: str = "reliable") -> None:
    about = {"channel": MARK + channel + UPDATE, "subject": key, "delivery": delivery}
    app.connection.publish(Event("x", {"x": value}, **about))  # type: ignore[arg-type]
    app.pump()


def test_a_member_that_was_away_gets_the_newest_of_each_key_and_all_else_in_order() -> None:
    network = Network(*LINE)
    here, away = network.app("1"), network.app("3", "away")
    channel = create(network, here, delivery="reliable")
    near = join(network, here, channel)
    join(network, away, channel, durable="away")
    away.crash()
    network.run()
    for value in range(6):
        update(here, channel, "odd" if value % 2 else "even", value)
    here.publish(10, channel=MARK + channel)
    update(here, channel, "odd", 11)
    network.run()
    assert near.values == [0, 1, 2, 3, 4, 5, 10, 11]
    away.start()
    network.run()
    assert join(network, away, channel, durable="away").values == [4, 10, 11]
    assert network.count("3", "channel_superseded") == 5


def test_what_was_stored_before_a_restart_is_superseded_too() -> None:
    network = Network(*LINE)
    here, away = network.app("1"), network.app("3", "away")
    channel = create(network, here, delivery="reliable")
    join(network, here, channel)
    join(network, away, channel, durable="away")
    away.crash()
    network.run()
    for value in range(4):
        update(here, channel, "key", value)
    network.run()
    network["3"].crash()
    network["3"].start()
    network.run(10.0)
    update(here, channel, "other", 4)
    network.run()
    away.start()
    network.run()
    assert join(network, away, channel, durable="away").values == [3, 4]


def test_a_slow_member_gets_the_newest_of_what_waits_for_it() -> None:
    network = Network(*LINE)
    here, slow = network.app("1"), network.app("1", "slow")
    channel = create(network, here)
    join(network, here, channel)
    member = Listening.__new__(Listening)
    member.app, member.got, member.gaps, member.missed, member.late = slow, [], [], [], []
    member._is_durable = False
    member.subscription = slow.connection.subscribe(Wanted(channel=channel), member, 2)
    consume = slow.connection.consume
    slow.connection.consume = lambda _subscription, _count: None  # type: ignore[method-assign]
    slow.pump()
    network.run()
    for value in range(10):
        update(here, channel, f"key {value % 3}", value, "transient")
    network.run()
    assert member.values == [0, 1]
    consume(member.subscription, 2)
    slow.connection.consume = consume  # type: ignore[method-assign]
    slow.pump()
    network.run()
    assert member.values == [0, 1, 7, 8, 9]
    update(here, channel, "key 0", 10, "transient")
    network.run()
    assert member.values[-1] == 10


def test_a_key_too_many_is_superseded_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates, "KEYS_MAX", 2)
    network = Network(*LINE)
    here, away = network.app("1"), network.app("2", "away")
    channel = create(network, here, delivery="reliable")
    join(network, here, channel)
    join(network, away, channel, durable="away")
    away.crash()
    network.run()
    for value in range(6):
        update(here, channel, f"key {value % 3}", value)
    network.run()
    away.start()
    network.run()
    assert join(network, away, channel, durable="away").values == [0, 3, 4, 5]


def test_clients_send_updates_whose_key_is_the_subject() -> None:
    async def scenario() -> None:
        async with Line("a") as line:
            bus, other = await line.bus("a"), await line.bus("a", "other")
            trip = await bus.create_channel("trip", delivery="reliable")
            async with trip:
                async with await other.channel("trip", durable="other"):
                    pass
                for value in range(3):
                    await trip.send("gate", update="G7", value=value)
                await trip.send("gate", value=9)
                event = await anext(trip)
                assert (event.channel, event.subject, event["value"]) == ("trip", "G7", 0)
                async with await other.channel("trip", durable="other") as back:
                    assert [(await anext(back))["value"] for _ in range(2)] == [2, 9]
                with pytest.raises(UserError, match="subject"):
                    await trip.send("gate", subject="G8", update="G7")
                with pytest.raises(UserError, match="expedited"):
                    await trip.send("gate", update="G7", expedited=True)

    run(scenario())

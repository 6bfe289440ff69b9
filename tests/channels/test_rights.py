"""Channels between real nodes with security: who may create, join and send."""

from __future__ import annotations

from pathlib import Path

import pytest
from node.peers import run
from overlay.real import Line, allow

from tidings.errors import ChannelExists, ChannelNotFound, NotAllowed, Refused

AIR = "type = 'air'"


def test_a_member_sends_and_gets_what_its_rules_allow(tmp_path: Path) -> None:
    rules = {"b": allow("a") + allow("bob", ["publish", "subscribe"], AIR)}
    users = {"a": ["alice"], "b": ["bob"]}

    async def scenario() -> None:
        async with Line("a", "b", home=tmp_path, users=users, rules=rules) as line:
            alice, bob = await line.bus("a", "alice"), await line.bus("b", "bob")
            with pytest.raises(NotAllowed, match="manage"):
                await bob.create_channel("trip")
            channel = await alice.create_channel("trip", delivery="reliable")
            with pytest.raises(ChannelExists):
                await alice.create_channel("trip")
            member = await bob.channel("trip")
            async with channel, member:
                with pytest.raises(NotAllowed):
                    await member.send("water", value=1)
                await channel.send("water", value=2)
                await channel.send("air", value=3)
                await member.send("air", value=4)
                assert {(await anext(member))["value"] for _ in range(2)} == {3, 4}
                with pytest.raises(NotAllowed, match="manage"):
                    await member.delete()
                with pytest.raises(Refused, match="persistent"):
                    await alice.publish("air", channel=f"~channel.{channel.id}", delivery="persistent")
            with pytest.raises(NotAllowed, match="member"):
                await member.send("air", value=5)
            await channel.delete()
            with pytest.raises(ChannelNotFound):
                await bob.channel("trip")

    run(scenario())


def test_a_private_channel_is_joined_by_its_reference_and_a_member_has_a_filter() -> None:
    async def scenario() -> None:
        async with Line("a") as line:
            bus = await line.bus("a")
            channel = await bus.create_channel("trip", private=True)
            assert channel.reference
            assert not await bus.channels()
            async with await bus.channel(reference=channel.reference, where="x > 1") as member:
                for x in (1, 2):
                    await member.send("step", x=x)
                event = await anext(member)
                assert (event["x"], event.channel) == (2, "trip")

    run(scenario())

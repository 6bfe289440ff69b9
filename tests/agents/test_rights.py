"""Who may open, join, fund, see and end groups, at a node with users."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec import json
from node.peers import run
from overlay.real import Line, allow

from tidings import Event
from tidings.agents import any_of
from tidings.agents.events import Opened
from tidings.client.agent import Agent
from tidings.errors import LifeEnded, NotAllowed

TRIP = "type IN ('agent.opened', 'agent.entered', 'agent.funded', 'agent.granted') AND group_name = 'trip'"
UNFUNDED = "type IN ('agent.opened', 'agent.entered')"
ENDS = "type = 'agent.stop'"
WATCHES = "type = 'agent.opened'"


async def forever(agent: Agent) -> None:
    await asyncio.Event().wait()


def test_who_has_no_rule_for_it_neither_opens_joins_funds_sees_nor_ends_a_group(tmp_path: Path) -> None:
    rules = {
        "a": allow("ann", ["publish"], TRIP)
        + allow("poor", ["publish"], UNFUNDED)
        + allow("stopper", ["publish"], ENDS)
        + allow("watcher", ["subscribe"], WATCHES)
        + allow("eve", ["publish", "subscribe"], "type = 'air'")
    }
    users = {"a": ["ann", "poor", "stopper", "watcher", "eve"]}

    async def scenario() -> None:
        async with Line("a", home=tmp_path, users=users, rules=rules) as line:
            ann, poor, eve = (
                await line.bus("a", "ann"),
                await line.bus("a", "poor"),
                await line.bus("a", "eve"),
            )
            opened = Opened(group="g", name="trip", user="eve", condition=any_of(), grace_s=5)
            for bus in (ann, eve):
                with pytest.raises(NotAllowed, match=r"'agent\.moved' of group 'trip'"):
                    await bus.take_over([Event("agent.opened", source="b", body=json.encode(opened))])
            for bus in (ann, eve):
                with pytest.raises(NotAllowed, match=r"'agent\.moved' of group 'trip'"):
                    await bus.take_over("trip")
            kept = {"tree": "g", "home": "x", "voters": {"x": "x"}, "generation": 1, "before": 0}
            wish = {"tree": "g", "node": "x", "generation": 9, "of_generation": 9, "index": 9}
            for operation, arguments in (("keep", kept), ("vote", wish), ("home", {"group": "g"})):
                with pytest.raises(NotAllowed, match="'ann' is no node"):
                    await ann._link.call(f"agent.{operation}", arguments, None)
            stopper, watcher = await line.bus("a", "stopper"), await line.bus("a", "watcher")
            for bus, name, budget in ((eve, "trip", None), (ann, "other", None), (poor, "trip", {"usd": 1})):
                with pytest.raises(NotAllowed):
                    await bus.group(name, any_of(), budget=budget).__aenter__()
            async with ann.group("trip", any_of(), budget={"usd": 1}) as group:
                member = await group.spawn(forever)
                for bus in (eve, watcher):
                    with pytest.raises(NotAllowed):
                        await bus._link.call("agent.enter", {"group": "trip", "cookie": "c" * 32}, None)
                    with pytest.raises(NotAllowed):
                        await bus.stop_agents(group.id)
                    with pytest.raises(NotAllowed):
                        await bus.release_agent(member.id)
                    with pytest.raises(NotAllowed):
                        await bus.renew_agents(member.id)
                with pytest.raises(NotAllowed):
                    await eve.group_info(group.id)
                assert await eve.groups() == []
                assert [one.name for one in await watcher.groups()] == ["trip"]
                cookie = group._members and member._agent._life.cookie
                copied = {"agent": member.id, "life": 1, "cookie": cookie}
                with pytest.raises(LifeEnded, match="own cookie"):
                    await eve._link.call("agent.renew", copied, None)
                await stopper.stop_agents(group.id)
            assert group.reason == "user"

    run(scenario())

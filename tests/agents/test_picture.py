"""Pictures of runs: who was where and when, below whom, and why each has ended."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from agents.test_groups import answer, forever, run
from cli.commands import run_command
from client.nodes import node

import tidings
from tidings.agents import any_of
from tidings.agents.amounts import amounts_of
from tidings.agents.conditions import at_least
from tidings.agents.events import AnyHappening, Entered, Opened
from tidings.agents.ledger import GroupLedger
from tidings.agents.picture import LEFT, WIDTH, group_svg, happening_of
from tidings.client.agent import Agent
from tidings.errors import AgentError, GroupNotFound
from tidings.event import Event

SVG = "{http://www.w3.org/2000/svg}"


def parts(svg: str) -> tuple[list[str], dict[str, tuple[float, float]]]:
    """The texts of a picture, and its bars by what they say: from where, to where."""
    root = ET.fromstring(svg)
    bars = {}
    for bar in root.iter(f"{SVG}rect"):
        title = bar.find(f"{SVG}title")
        if title is not None:
            x = float(bar.attrib["x"])
            bars[str(title.text)] = x, x + float(bar.attrib["width"])
    return [str(one.text) for one in root.iter(f"{SVG}text")], bars


def travel() -> list[AnyHappening]:
    """10 seconds: one goes from a over a rest to b, one that it has started is lost at a."""
    opened = Opened(
        group="g", name="<trip>", user="", condition=at_least(2), grace_s=5, budget=amounts_of({"usd": 9})
    )
    ledger, happened = GroupLedger.opened(opened), list[AnyHappening]([opened])
    started: dict[str, Any] = {"cookie": "c" * 16, "lease_s": 30.0}
    first = ledger.enter("hotel", **started, share=amounts_of({"usd": 5}), where="a", now_us=0)
    entered = first[0]
    assert isinstance(entered, Entered)
    happened += first
    hotel = ledger.members[entered.agent]
    happened += ledger.enter("train", **started, parent=hotel.agent, where="a", now_us=2_000_000)
    train = list(ledger.members.values())[1]
    happened += ledger.spend(hotel, amounts_of({"usd": 2}), "", 3_000_000)
    happened += ledger.rest(hotel, "b", "look", 6_000_000, 4_000_000)
    happened += ledger.place(hotel, "c", 6_000_000)
    happened += ledger.leave(hotel, "done", 10_000_000)
    happened += ledger.leave(train, "orphan", 5_000_000, lost=True)
    return happened


def test_bars_are_where_a_member_was_and_when_and_texts_why_it_has_ended() -> None:
    texts, bars = parts(group_svg(travel()))
    second = WIDTH / 10
    assert bars == {
        "hotel is at a": (LEFT, pytest.approx(LEFT + 4 * second)),
        "hotel rests at b": (pytest.approx(LEFT + 4 * second), pytest.approx(LEFT + 6 * second)),
        "hotel is at c": (pytest.approx(LEFT + 6 * second), pytest.approx(LEFT + 10 * second)),
        "train is at a": (pytest.approx(LEFT + 2 * second), pytest.approx(LEFT + 5 * second)),
    }
    assert texts[0] == "<trip>: at_least(2)"
    assert texts[1] == "given 9 usd; spent 2 usd; refunded 0; written off 0"
    assert [one for one in texts if one in ("done (2 usd)", "orphan, lost")] == [
        "done (2 usd)",
        "orphan, lost",
    ]


def test_a_child_is_drawn_below_the_one_that_has_started_it() -> None:
    root = ET.fromstring(group_svg(travel()))
    places = {one.text: float(one.attrib["x"]) for one in root.iter(f"{SVG}text")}
    assert places["train"] > places["hotel"]


def test_a_run_whose_beginning_is_gone_and_events_of_others_are_refused() -> None:
    with pytest.raises(AgentError, match="the beginning"):
        group_svg(travel()[1:])
    with pytest.raises(AgentError, match="the beginning"):
        group_svg([])
    with pytest.raises(AgentError, match="no event of a group"):
        happening_of(Event("agent.spent", body=b'{"is": "spent"}'))


def test_a_run_is_drawn_from_the_log_and_what_clients_publish_under_these_types_is_not() -> None:
    async def parent(agent: Agent) -> None:
        await agent.spawn(forever, name="child")
        await asyncio.Event().wait()

    async def work() -> str:
        async with tidings.open() as bus:
            async with bus.group("trip", any_of()) as group:
                await group.spawn(parent)
                forged = {"group": group.id}
                await bus.publish("agent.ended", forged, delivery="persistent", body=b'{"is": "ended"}')
                await group.spawn(answer, 42)
            with pytest.raises(GroupNotFound):
                await bus.draw_group("nowhere")
            return await bus.draw_group("trip")

    texts, bars = parts(run(work()))
    assert {one.partition(" ")[0] for one in bars} == {"parent", "child", "answer"}
    assert [one for one in texts if one in ("condition", "done")].count("condition") == 2


def test_the_command_writes_the_picture_of_a_run(tmp_path: Path) -> None:
    async def work() -> tuple[int, str, str]:
        async with node(tmp_path) as address:
            async with tidings.connect(address) as bus, bus.group("trip", any_of()) as group:
                await group.spawn(answer, 42)
            command = "agent", "tree", "trip", "--node", address, "--svg", str(tmp_path / "trip.svg")
            return await asyncio.to_thread(run_command, *command)

    assert run(work()) == (0, "", "")
    assert "answer is at " in "".join(parts((tmp_path / "trip.svg").read_text())[1])

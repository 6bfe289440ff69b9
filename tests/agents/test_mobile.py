"""Agents that rest in queues and move between nodes: nodes as processes, locations in this one."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from agents.travellers import Broken, Glutton, Resident, Sleeper, Stubborn, Tour, Traveller
from effort import patience

import tidings
from tidings import Event
from tidings.agents import any_of, at_least
from tidings.agents.arguments import GroupInfo
from tidings.client import Bus
from tidings.client.mobile import MobileAgent, about_class
from tidings.errors import AgentError, Disconnected, LifeEnded, QueueNotFound, UserError
from tidings.testing.node_process import NodeProcess

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    async def limited() -> T:
        async with asyncio.timeout(patience(60)):
            return await work

    return asyncio.run(limited())


async def ended(bus: Bus, group: str, agent: str) -> None:
    """Wait until an agent has ended."""
    while not next(one for one in (await bus.group_info(group)).agents if one.agent == agent).ended_us:
        await asyncio.sleep(0.02)


def test_an_agent_rests_as_a_message_and_goes_on_with_its_next_step() -> None:
    async def work() -> GroupInfo:
        async with tidings.open() as bus, bus.location(Sleeper, Traveller) as location:
            async with bus.group("trip", budget={"usd": 3}, step_rates={"usd": 0.25}) as group:
                await group.start(Sleeper, Tour(cost=0.05), name="sleeper", budget={"usd": 1})
                await group.start(Traveller, Tour(cost=0.5), name="traveller", budget={"usd": 1})
            assert group.results == {
                "sleeper": "rested",
                "traveller": {"seen": [location.node], "problems": []},
            }
            return group.info

    info = run(work())
    assert {one.name: (one.reason, one.spent["usd"]) for one in info.agents} == {
        "sleeper": ("done", 0.5),
        "traveller": ("done", 0.75),
    }
    assert info.refunded == {"usd": 1.75}


def free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago, as nodes have to know each other's before they start."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def nodes_of(home: Path, *names: str, **settings: Any) -> dict[str, NodeProcess]:
    """Nodes as processes, each of which knows the others."""
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    made = {}
    for name, port in ports.items():
        peers = ",".join(f"{one}=tidings://127.0.0.1:{at}" for one, at in ports.items() if one != name)
        (home / name).mkdir()
        made[name] = NodeProcess(home / name, name=name, port=port, peers=peers, **settings)
    return made


@asynccontextmanager
async def started(nodes: dict[str, NodeProcess]) -> AsyncIterator[dict[str, Bus]]:
    """Nodes that run, with a bus to each, once each of them reaches all others."""
    async with AsyncExitStack() as held:
        await asyncio.gather(*(asyncio.to_thread(node.start) for node in nodes.values()))
        for node in nodes.values():
            held.callback(node.stop)
        buses = {
            name: await held.enter_async_context(tidings.connect(node.address))
            for name, node in nodes.items()
        }
        for name, bus in buses.items():
            for other in nodes.keys() - {name}:
                while not await reaches(bus, other):
                    await asyncio.sleep(0.02)
        yield buses


@asynccontextmanager
async def travelling(
    home: Path, *names: str, **classes: tuple[type[MobileAgent], ...]
) -> AsyncIterator[dict[str, Bus]]:
    """Nodes that know each other, with a bus to each, and locations of these classes."""
    async with AsyncExitStack() as held:
        buses = await held.enter_async_context(started(nodes_of(home, *names)))
        for name, trusted in classes.items():
            await held.enter_async_context(buses[name].location(*trusted))
        yield buses


async def reaches(bus: Bus, node: str) -> bool:
    status = await bus.status()
    return any(one["name"] == node and one["state"] == "there" for one in status["peers"])


def test_an_agent_moves_from_node_to_node_with_its_state_its_lease_and_its_money(tmp_path: Path) -> None:
    async def work() -> tuple[GroupInfo, dict[str, Any]]:
        both = (Traveller,)
        async with travelling(tmp_path, "a", "b", "c", a=both, b=both, c=both) as buses:
            async with buses["a"].group("trip", budget={"usd": 10}) as group:
                tour = Tour(["b", "c", "a", "b"], cost=1)
                await group.start(Traveller, tour, name="t", budget={"usd": 6})
                await group.start(Traveller, Tour(), at="c", name="there")
            moves = {name: (await bus.queue("agents")).description.messages for name, bus in buses.items()}
            assert moves == {"a": 0, "b": 0, "c": 0}
            return group.info, group.results

    info, results = run(work())
    assert results == {
        "t": {"seen": ["a", "b", "c", "a", "b"], "problems": []},
        "there": {"seen": ["c"], "problems": []},
    }
    assert [(one.name, one.reason, one.life) for one in info.agents] == [
        ("t", "done", 6),
        ("there", "done", 2),
    ]
    assert (info.given, info.spent, info.refunded) == ({"usd": 10}, {"usd": 5}, {"usd": 5})


def test_an_agent_stays_where_it_was_if_its_class_or_version_is_missing_there(tmp_path: Path) -> None:
    async def work() -> dict[str, Any]:
        async with travelling(tmp_path, "a", "b", a=(Traveller, Resident), b=(Sleeper,)) as buses:
            async with buses["a"].group("trip") as group:
                await group.start(Traveller, Tour(["b"]), name="class")
                await group.start(Traveller, Tour(["nowhere"]), name="node")
                with pytest.raises(AgentError, match="no location of node b trusts this class"):
                    await group.start(Traveller, Tour(), at="b")
            async with buses["a"].group("system", any_of()) as system:
                await system.start(Resident, Tour(), name="resident")
            assert "does not move" in system.info.agents[0].problem
            return group.results

    results = run(work())
    assert {name: one["seen"] for name, one in results.items()} == {"class": ["a"] * 2, "node": ["a"] * 2}
    assert results["class"]["problems"] == ["b has no class agents.travellers:Traveller"]
    assert "no such node" in results["node"]["problems"][0]


def test_an_agent_at_rest_ends_at_once_with_its_group_and_what_is_left_of_it_is_thrown_away() -> None:
    async def work() -> GroupInfo:
        async with tidings.open() as bus, bus.location(Sleeper, Stubborn) as location:
            async with bus.group("trip", timeout_s=0.3, budget={"usd": 4}) as group:
                await group.start(Sleeper, Tour(cost=0.6), name="resting", budget={"usd": 1})
                await group.start(Stubborn, Tour(cost=2), name="working", budget={"usd": 3})
            assert group.results == {"working": "half of it"}
            while location.counts["refused"] < 1:  # its message comes later
                await asyncio.sleep(0.02)
            return group.info

    info = run(work())
    assert {one.name: one.reason for one in info.agents} == {"resting": "time", "working": "time"}
    assert (info.spent, info.refunded, info.written_off) == ({"usd": 2}, {"usd": 2}, {})


def test_the_error_of_a_step_is_the_end_of_the_agent() -> None:
    async def work() -> GroupInfo:
        async with tidings.open() as bus, bus.location(Broken):
            async with bus.group("trip") as group:
                await group.start(Broken, Tour())
            return group.info

    info = run(work())
    assert (info.agents[0].reason, info.agents[0].problem) == ("error", "ValueError: nothing goes")


async def dead_letters(bus: Bus) -> int:
    try:
        return (await (await bus.queue("tidings.dead")).describe()).messages
    except QueueNotFound:
        return 0


def test_a_copy_of_an_agent_from_before_is_refused_and_what_is_no_agent_is_a_dead_letter() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            queue = await bus.create_queue("agents")
            about = [msgspec.to_builtins(about_class(Traveller))]
            async with bus.group("trip", at_least(2), timeout_s=60) as group:
                await bus._link.call("agent.locate", {"classes": about}, None)
                agent = await group.start(Traveller, Tour(), name="once")
                (copy,) = await queue.read_all()
                async with bus.location(Traveller) as location:
                    await ended(bus, "trip", agent)
                    await queue.put(Event(copy.type, dict(copy.attributes), body=copy.body))
                    await queue.put("agent.image", body=b"no agent")
                    while location.counts["refused"] < 2 or not await dead_letters(bus):
                        await asyncio.sleep(0.01)
                await group.stop()
            assert await dead_letters(bus) == 1
            info = await bus.group_info("trip")
            assert [one.life for one in info.agents] == [2]

    run(work())


@pytest.mark.parametrize(
    ("what", "problem"), [("memory", "memory|MemoryError"), ("processes", "more than 5 processes")]
)
def test_an_agent_past_its_limits_is_ended_with_all_its_processes(
    tmp_path: Path, what: str, problem: str
) -> None:
    async def work() -> GroupInfo:
        with NodeProcess(tmp_path) as node:
            async with tidings.connect(node.address) as bus:
                with pytest.raises(UserError, match="address"):
                    bus.location(Glutton)
                async with bus.location(Glutton, address=node.address):
                    async with bus.group("trip", budget={"usd": 4}, grace_s=1) as group:
                        modest = await group.start(Glutton, Tour(["bread"]), name="m", budget={"usd": 2})
                        await ended(bus, "trip", modest)
                        await group.start(Glutton, Tour([what]), name="glutton", budget={"usd": 2})
                    return group.info

    info = run(work())
    frugal, glutton = info.agents
    assert (frugal.problem, frugal.reason, frugal.result) == ("", "done", "ate bread")
    assert glutton.reason == "error"
    assert re.search(problem, glutton.problem)
    assert (info.spent, info.refunded) == ({"usd": 2}, {"usd": 2})


def test_a_step_whose_location_is_killed_begins_again_in_a_new_life(tmp_path: Path) -> None:
    """The location that was killed is a process; the one that goes on is in this one."""

    async def work() -> GroupInfo:
        with NodeProcess(tmp_path) as node:
            async with tidings.connect(node.address) as bus:
                command = sys.executable, "-c", LOCATION, node.address
                environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
                first = await asyncio.create_subprocess_exec(*command, stdout=-1, env=environment)
                assert first.stdout is not None
                await first.stdout.readline()
                async with bus.group("trip", any_of(), budget={"usd": 2}, grace_s=0.2) as group:
                    agent = await group.start(Stubborn, Tour(cost=1), name="s", budget={"usd": 2})
                    while not (await bus.group_info("trip")).agents[0].result:
                        await asyncio.sleep(0.02)
                    first.kill()
                    await first.wait()
                    async with bus.location(Stubborn) as location:
                        while not location.counts["steps"]:
                            await asyncio.sleep(0.02)
                        info = await bus.group_info("trip")
                        assert info.agents[0].life == 3
                        with pytest.raises(LifeEnded):
                            await bus._link.call(
                                "agent.spend",
                                {"agent": agent, "life": 2, "cookie": "0" * 32, "amounts": {"usd": 1}},
                                None,
                            )
                        await group.stop()
                        await ended(bus, "trip", agent)
                return group.info

    info = run(work())
    assert (info.agents[0].reason, info.spent, info.refunded) == ("user", {"usd": 1}, {"usd": 1})


LOCATION = """
import asyncio, sys, tidings
from agents.travellers import Stubborn
async def main():
    async with tidings.connect(sys.argv[1]) as bus, bus.location(Stubborn) as location:
        print("there", flush=True)
        await location.wait()
asyncio.run(main())
"""


def test_a_node_runs_the_agents_that_it_was_told_to_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    classes = "agents.travellers:Traveller, agents.travellers:Glutton"
    (tmp_path / "wrong").mkdir()

    async def work() -> None:
        with pytest.raises(Disconnected, match="no class 'agents"):
            NodeProcess(tmp_path / "wrong", agents="agents.travellers:Nobody").start()
        with NodeProcess(tmp_path, agents=classes, name="a") as node:
            bus = tidings.connect(node.address)
            async with bus, bus.group("trip", budget={"usd": 3}) as group:
                await group.start("agents.travellers:Traveller", {"stops": ["a"]}, name="t")
                await group.start("agents.travellers:Glutton", Tour(["bread"]), budget={"usd": 2})
                with pytest.raises(AgentError, match="trusts this class"):
                    await group.start("os:system", {})
            assert group.results["t"] == {"seen": ["a", "a"], "problems": []}
            assert group.results["Glutton"] == "ate bread"

    run(work())


def test_a_step_that_has_ended_too_many_locations_is_the_end_of_its_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidings.client.location.TRIES_MAX", 0)

    async def work() -> GroupInfo:
        async with tidings.open() as bus, bus.location(Traveller):
            async with bus.group("trip") as group:
                await group.start(Traveller, Tour())
            return group.info

    (one,) = run(work()).agents
    assert (one.reason, one.problem) == ("error", "its step has ended 0 locations")

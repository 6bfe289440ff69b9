"""Three real nodes with their locations: agents move, one node is killed, and nothing is left of it."""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path

import pytest
from agents.test_mobile import ended, nodes_of, reaches, run, started
from agents.test_takeover import sums
from agents.travellers import Tour
from cli.commands import run_command
from effort import patience

import tidings
from tidings.agents import any_of, at_least
from tidings.agents.arguments import GroupInfo
from tidings.client import Bus
from tidings.errors import TidingsError
from tidings.processes.keeper import descendants

CARRIER = "agents.travellers:Carrier"
_seconds = itertools.count(700_000 + os.getpid() % 100_000)


def sleepers(seconds: int) -> int:
    """How many processes sleep for so long, which only those of this test do."""
    wanted, found = f"sleep\0{seconds}\0".encode(), 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += path.read_bytes() == wanted
        except OSError:
            continue
    return found


def living(pids: list[int]) -> list[int]:
    """Those of these processes that have not ended; a dead one that nobody has waited for has."""
    found = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            continue
        found += [pid] if state not in b"ZX" else []
    return found


async def money(bus: Bus, group: str = "trip") -> dict[str, float]:
    return sums(await bus.group_info(group))


def test_a_killed_node_takes_its_agents_with_it_and_the_money_of_the_others_adds_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 are given, 30 and 20 passed on; the first spends 12 and ends, the second dies after 5."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    at_b, at_c = next(_seconds), next(_seconds)

    async def work() -> GroupInfo:
        nodes = nodes_of(tmp_path, "a", "b", "c", agents=CARRIER)
        async with started(nodes) as buses:
            bus = buses["a"]
            lease_s = patience(1.5)
            async with bus.group(
                "trip", at_least(2), budget={"usd": 100}, grace_s=1, lease_s=lease_s
            ) as group:
                first = await group.start(
                    CARRIER, Tour(["b", "c", "end"], cost=12), name="first", budget={"usd": 30}
                )
                second = await group.start(
                    CARRIER, Tour(["b", str(at_b)], cost=5), name="second", budget={"usd": 20}
                )
                await group.start(CARRIER, Tour(["b", "c", str(at_c)]), name="third")
                await ended(bus, "trip", first)
                while sleepers(at_b) < 3 or sleepers(at_c) < 3:
                    await asyncio.sleep(0.02)
                assert await money(bus) == {
                    "given": 100,
                    "spent": 17,
                    "refunded": 0,
                    "held": 83,
                    "written_off": 0,
                }
                all_of_b = [nodes["b"].pid, *descendants(nodes["b"].pid)]
                nodes["b"].kill()
                await ended(bus, "trip", second)
                assert await money(bus) == {
                    "given": 100,
                    "spent": 17,
                    "refunded": 0,
                    "held": 68,
                    "written_off": 15,
                }
                while living(all_of_b) or sleepers(at_b):
                    await asyncio.sleep(0.02)
                assert sleepers(at_c) == 3
                async with (
                    tidings.connect(nodes["c"].address) as there,
                    there.join_group("trip@a") as joined,
                    await joined.group("fourth", any_of(), budget={"usd": 8}) as inner,
                ):
                    await inner.start(CARRIER, Tour(["a", "end"], cost=1), name="last", budget={"usd": 8})
            while sleepers(at_c):
                await asyncio.sleep(0.02)
            final = await money(bus)
            assert final == {"given": 100, "spent": 18, "refunded": 67, "held": 0, "written_off": 15}
            await asyncio.to_thread(
                nodes["b"].start
            )  # the message of the second is there still, and is refused
            while not await reaches(bus, "b"):
                await asyncio.sleep(0.02)
            async with tidings.connect(nodes["b"].address) as there:
                while (await (await there.queue("agents")).describe()).messages:
                    await asyncio.sleep(0.02)
            assert await money(bus) == final
            left = [pid for node in nodes.values() for pid in descendants(node.pid)]
            for node in nodes.values():
                await asyncio.to_thread(node.stop)
            while living(left):
                await asyncio.sleep(0.02)
            return group.info

    info = run(work())
    assert (info.phase, info.reason, info.problem) == ("ended", "condition", "")
    programs = {"second's program": "orphan", "third's program": "condition"}
    assert {one.name: one.reason for one in info.agents} == {
        "first": "done",
        "second": "orphan",
        "third": "condition",
        "fourth": "done",
        **programs,
    }
    results = {one.name: one.result for one in info.agents if one.result}
    assert results == {"first": "a b c", "fourth": {"last": "c a"}}


async def follow_home(bus: Bus, by_hand: bool) -> None:
    """Wait until a node that keeps the group is asked without its first home; by hand it takes that place."""
    while True:
        try:
            await (bus.take_over("trip") if by_hand else bus.group_info("trip"))
        except TidingsError:
            await asyncio.sleep(0.05)
        else:
            return


@pytest.mark.parametrize("by_hand", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_group_whose_home_is_killed_goes_on_at_a_deputy_and_ends_with_all_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_hand: bool
) -> None:
    """It is opened without deputies, and gets two by command; of its agents, one may be at the lost node."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    at_a, at_b, at_c = (next(_seconds) for _ in range(3))

    async def work() -> None:
        nodes = nodes_of(tmp_path, "a", "b", "c", agents=CARRIER)
        async with started(nodes) as buses:
            options = {"budget": {"usd": 100}, "grace_s": 1, "lease_s": patience(60)}
            group = buses["a"].group("trip", at_least(2), **options)
            await group.listen()
            command = "agent", "deputies", "trip", "b", "c", "--node", nodes["a"].address
            assert await asyncio.to_thread(run_command, *command) == (0, "kept by a, b, c\n", "")
            first = await group.start(CARRIER, Tour(["b", "end"], cost=12), name="first", budget={"usd": 30})
            if not by_hand:  # it takes a while until this one is taken for lost
                await group.start(CARRIER, Tour([str(at_a)], cost=7), name="here", budget={"usd": 10})
            await group.start(CARRIER, Tour(["b", str(at_b)], cost=5), name="second", budget={"usd": 20})
            await group.start(CARRIER, Tour(["c", str(at_c)]), name="third")
            await ended(buses["a"], "trip", first)
            while min(map(sleepers, (at_b, at_c) if by_hand else (at_a, at_b, at_c))) < 3:
                await asyncio.sleep(0.02)
            all_of_a = [nodes["a"].pid, *descendants(nodes["a"].pid)]
            nodes["a"].kill()
            await follow_home(buses["b"], by_hand)
            spent, lost = (17, 0) if by_hand else (24, 3)
            now = {"given": 100, "spent": spent, "refunded": 0, "held": 100 - spent, "written_off": 0}
            assert await money(buses["c"], group.id) == now
            while living(all_of_a) or sleepers(at_a):
                await asyncio.sleep(0.02)
            joined = buses["c"].join_group("trip")
            await joined.listen()
            await joined.start(CARRIER, Tour(["b", "end"], cost=1), name="last", budget={"usd": 8})
            # by its id: the name of one that has ended is known at its home only
            while (await buses["b"].group_info(group.id)).phase != "ended":
                await asyncio.sleep(0.02)
            await joined.hang_up()
            while sleepers(at_b) or sleepers(at_c):
                await asyncio.sleep(0.02)
            back = 100 - spent - 1 - lost
            final = {"given": 100, "spent": spent + 1, "refunded": back, "held": 0, "written_off": lost}
            assert await money(buses["b"], group.id) == final
            left = [pid for node in nodes.values() for pid in descendants(node.pid)]
            for name in "bc":
                await asyncio.to_thread(nodes[name].stop)
            while living(left):
                await asyncio.sleep(0.02)

    run(work())

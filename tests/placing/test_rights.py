"""Rights of patterns that are evaluated at another node: those of the client, and of each node on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from node.peers import run
from overlay.real import Line, allow

from tidings import Pattern
from tidings.client import Bus
from tidings.patterns import traffic

AB = Pattern("a[type = 'air'] THEN b[type = 'alarm'] WITHIN 5 min BY k RETURN a.n, b.n")
TYPES = "type IN ('air', 'alarm')"
EITHER = "type = 'air' OR type = 'alarm'"


def secured(home: Path, rules: dict[str, str], offers: str = "declared") -> Line:
    settings: dict[str, dict[str, Any]] = {name: {"offers": offers} for name in "abc"}
    return Line("a", "b", "c", home=home, users={"a": ["ann"], "c": ["cleo"]}, rules=rules, settings=settings)


async def placed_at(line: Line, node: str) -> None:
    """Wait until a node evaluates the pattern."""
    while not any(one.phase == "here" for one in line[node].driver.core.placing.placements):
        await asyncio.sleep(0)
    await line.wait_wanted(at="c", of="b")


async def publish(bus: Bus, *given: tuple[str, int]) -> None:
    for kind, n in given:
        await bus.publish(kind, k="x", n=n, delivery="reliable")


async def first_match(line: Line, given: Sequence[tuple[str, int]]) -> tuple[int, int]:
    """The events of the first match of a pattern that ann has, of what is published at the last node."""
    cleo, ann = await line.bus("c", "cleo"), await line.bus("a", "ann")
    async with cleo.advertise(TYPES), ann.subscribe(AB) as matches:
        await placed_at(line, "c")
        await publish(cleo, *given)
        match = await anext(matches)
        assert line.count("c", "relayed") == line.count("b", "relayed") == 0
        return match["a.n"], match["b.n"]


GIVEN = [("air", 9), ("alarm", 9), ("air", 1), ("alarm", 8), ("alarm", 2)]


def test_the_rights_of_the_client_hold_at_the_node_where_its_pattern_is(tmp_path: Path) -> None:
    async def work() -> None:
        rules = {"a": allow("b") + allow("ann", ["subscribe"], "n < 5")}
        async with secured(tmp_path, rules) as line:
            assert await first_match(line, GIVEN) == (1, 2)

    run(work())


def test_what_a_node_may_not_subscribe_to_is_no_step_of_its_patterns(tmp_path: Path) -> None:
    async def work() -> None:
        few = allow("b", ["subscribe"], "n < 5") + allow("b", ["publish", "manage"])
        async with secured(tmp_path, {"c": few + allow("cleo")}) as line:
            assert await first_match(line, GIVEN) == (1, 2)

    run(work())


def test_what_a_node_may_not_publish_is_no_step_of_patterns_that_it_evaluates_for_others(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        few = allow("c", ["publish"], "n < 5") + allow("c", ["subscribe", "manage"])
        async with secured(tmp_path, {"b": few + allow("a")}) as line:
            assert await first_match(line, GIVEN) == (1, 2)

    run(work())


def test_a_node_that_may_not_have_all_events_is_given_no_pattern_that_needs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "EVENTS_MIN", 4)
    monkeypatch.setattr(traffic, "WINDOW_S", 0.0)
    few = allow("b", ["subscribe"], "n < 5") + allow("b", ["publish", "manage"]) + allow("ann")

    async def work() -> None:
        async with secured(tmp_path, {"a": few}, "all") as line:
            cleo, ann = await line.bus("c", "cleo"), await line.bus("a", "ann")
            async with ann.subscribe(AB) as matches:
                await line.wait_wanted(EITHER, at="c", of="b")
                (there,) = line["a"].driver.core.placing.placements
                await publish(cleo, *[("air", n) for n in range(20)], ("alarm", 1))
                assert (await anext(matches))["b.n"] == 1
                assert not there.at
                line.places["a"].write_access(allow("b") + allow("ann"))
                line["a"].reload()
                while not there.at:
                    await publish(cleo, ("air", 1))
                line.places["a"].write_access(few)
                line["a"].reload()
                while there.at:
                    await asyncio.sleep(0)
                await publish(cleo, ("alarm", 2))
                assert (await anext(matches))["b.n"] == 2

    run(work())


def test_rules_that_change_hold_for_a_pattern_that_is_elsewhere(tmp_path: Path) -> None:
    async def work() -> None:
        async with secured(tmp_path, {}) as line:
            cleo, ann = await line.bus("c", "cleo"), await line.bus("a", "ann")
            async with cleo.advertise(TYPES), ann.subscribe(AB, durable="d") as matches:
                await placed_at(line, "c")
                await publish(cleo, ("air", 9), ("alarm", 9))
                assert (await anext(matches))["b.n"] == 9
                few = allow("ann", ["subscribe"], "n < 5 OR type = 'match'") + allow("ann", ["publish"])
                line.places["a"].write_access(allow("b") + few)
                line["a"].reload()
                (watch,) = [one.watch for one in line["c"].driver.core.placing.placements]
                while not all("n < 5" in str(step) for step in watch.granted):
                    await asyncio.sleep(0)
                await publish(cleo, *GIVEN)
                match = await anext(matches)
                assert (match["a.n"], match["b.n"]) == (1, 2)

    run(work())

"""Last values of a node with a directory: after a stop, after a crash, past the budget, in metrics."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest
from node.peers import run, running

import tidings
from tidings.node.pages import NodePages
from tidings.store.interface import DropRecord
from tidings.store.sqlite import SqliteStore


async def lamps(bus: tidings.Bus, count: int) -> dict[str | None, bool]:
    async with bus.subscribe("type = 'lamp'", last=True) as events:
        found = [await anext(events) for _ in range(count)]
        assert events.pending == 0
    return {one.subject: one["on"] for one in found}


def test_last_values_are_there_after_a_stop_and_after_a_crash(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with tidings.open(tmp_path / "node", name="house") as bus:
            for room, is_on in (("hall", True), ("attic", True), ("hall", False)):
                await bus.publish("lamp", on=is_on, subject=room, delivery="persistent")
            shutil.copytree(tmp_path / "node", tmp_path / "crashed")
            await bus.publish("lamp", on=False, subject="attic", delivery="reliable")
        async with tidings.open(tmp_path / "crashed") as bus:
            assert await lamps(bus, 2) == {"attic": True, "hall": False}
        async with tidings.open(tmp_path / "node") as bus:
            assert await lamps(bus, 2) == {"attic": False, "hall": False}

    run(scenario())


def test_a_directory_of_an_earlier_node_is_opened_and_keeps_last_values_from_then_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with tidings.open(tmp_path / "node") as bus:
            await bus.publish("lamp", on=True, subject="hall", delivery="persistent")
        store = SqliteStore(tmp_path / "node")
        store.commit([DropRecord("last", key) for key in store.state.kinds["last"]])
        store.close()
        async with tidings.open(tmp_path / "node") as bus:
            await bus.publish("lamp", on=False, subject="attic", delivery="persistent")
        async with tidings.open(tmp_path / "node") as bus:
            assert await lamps(bus, 1) == {"attic": False}

    run(scenario())


def test_a_node_counts_and_logs_that_last_values_are_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        settings = {"unix": str(tmp_path / "socket"), "port": None, "last_values_max": 2_000}
        async with running(**settings) as node, tidings.connect(f"tidings+unix://{tmp_path}/socket") as bus:
            for number in range(20):
                await bus.publish("lamp", on=True, subject=f"s{number}", delivery="reliable")
            node.driver._look_for_full()
            node.driver._look_for_full()
            values = {metric.name: metric.values for metric in NodePages(node).collect({})}
            kept, dropped = (
                values[f"tidings_{name}"][0][1] for name in ("last_values", "last_values_dropped_total")
            )
            assert 0 < kept < 20
            assert kept + dropped == 20
            assert 0 < values["tidings_last_values_bytes"][0][1] <= 2_000

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert [one.getMessage() for one in caplog.records].count("last values are dropped") == 1

"""Recorded readings, played by the command into a gateway, reach every subscriber as a plain scan says."""

from __future__ import annotations

import asyncio
import csv
import gzip
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest
from effort import IS_SOAK, patience
from node.peers import ANSWER_S_MAX, SOURCE, running

import tidings
from tidings.sensors.recording import make_recording

DATA = Path(os.environ.get("TIDINGS_DATA", Path(__file__).parents[4] / "shared" / "data"))
REAL = DATA / "luftdaten-aberdeen-2019-05.csv.gz"
LINES = None if IS_SOAK else 15_000
"""Lines of the real file that are played: all of them take minutes."""
HANGS_S = patience(600.0 if IS_SOAK else 60.0)
REPLAY = "from tidings.cli import main; main()"
END = "end-of-the-recording"
AREA = "POLYGON ((-2.25 57.0, -2.05 57.0, -2.05 57.3, -2.25 57.3, -2.25 57.0))"


class Reading(NamedTuple):
    """One value of a line, as the file has it."""

    name: str
    type: str
    time: datetime
    value: float
    x: float
    y: float


Key = tuple[str, str, datetime, float]
Wanted = dict[str, Callable[[Reading], bool]]

WANTED: Wanted = {
    "type LIKE 'pm%'": lambda one: True,
    "type = 'pm10'": lambda one: one.type == "pm10",
    "type = 'pm25' AND value > 12.5": lambda one: one.type == "pm25" and one.value > 12.5,
    "value BETWEEN 5 AND 8 OR value > 200": lambda one: 5 <= one.value <= 8 or one.value > 200,
    "posx >= -2.2 AND posy < 57.2": lambda one: one.x >= -2.2 and one.y < 57.2,
    f"WITHIN(posx, posy, '{AREA}') AND type = 'pm10'": (
        lambda one: -2.25 <= one.x <= -2.05 and 57.0 <= one.y <= 57.3 and one.type == "pm10"
    ),
    "name LIKE '%7.pm25'": lambda one: one.name.endswith("7.pm25"),
    "time < TIMESTAMP '2026-05-01 02:00:00' AND value < 8": (
        lambda one: one.time < datetime(2026, 5, 1, 2, tzinfo=UTC) and one.value < 8
    ),
    "type = 'noise'": lambda one: False,
}
"""Filters, and what they mean to someone who reads the file."""


def scan(path: Path) -> Iterator[Reading]:
    """All readings of a file, line by line."""
    with gzip.open(path, "rt", newline="") as text:
        for row in csv.DictReader(text):
            time = datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC)
            for type in ("pm10", "pm25"):
                if row[type]:
                    value, x, y = float(row[type]), float(row["lon"]), float(row["lat"])
                    yield Reading(f"{row['sensor']}.{type}", type, time, value, x, y)


def expected(path: Path) -> dict[str, Counter[Key]]:
    """What each subscriber is to get."""
    found: dict[str, Counter[Key]] = {text: Counter() for text in WANTED}
    for one in scan(path):
        for text, is_wanted in WANTED.items():
            if is_wanted(one):
                found[text][one[:4]] += 1
    return found


async def replay(path: Path, gateway: str) -> None:
    """The command, which ends when the gateway has everything."""
    command = ["sensor", "replay", str(path), "--speed", "0", "--gateway", gateway]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", REPLAY, *command, env={**os.environ, "PYTHONPATH": str(SOURCE)}
    )
    assert await process.wait() == 0


async def received(node: str, text: str, is_there: Callable[[], object]) -> Counter[Key]:
    """All that a subscriber gets until the end is told."""
    found: Counter[Key] = Counter()
    filter = f"({text}) OR type = '{END}'"
    async with (
        tidings.connect(node) as bus,
        bus.subscribe(filter, on_slow="block", prefetch=100_000) as events,
    ):
        is_there()
        while True:
            for event in await events.take():
                if event.type == END:
                    return found
                found[event["name"], event.type, event.time, event["value"]] += 1


async def play_to_subscribers(path: Path) -> dict[str, Counter[Key]]:
    """What each subscriber got of the recording."""
    async with running(sensor_port=0) as node, tidings.connect(node.addresses[0]) as bus:
        here = asyncio.Semaphore(0)
        async with asyncio.TaskGroup() as group:
            tasks = {
                text: group.create_task(received(node.addresses[0], text, here.release)) for text in WANTED
            }
            for _ in tasks:
                await here.acquire()
            await replay(path, node.sensor_addresses[0].split()[-1])
            await bus.publish(END)
        return {text: task.result() for text, task in tasks.items()}


def check(path: Path, within_s: float) -> None:
    found = asyncio.run(asyncio.wait_for(play_to_subscribers(path), within_s))
    wanted = expected(path)
    for text, readings in wanted.items():
        assert found[text] == readings, text
    assert [text for text, readings in wanted.items() if not readings] == ["type = 'noise'"]


def test_every_subscriber_gets_what_a_scan_of_the_file_finds(tmp_path: Path) -> None:
    path = tmp_path / "made.csv.gz"
    assert make_recording(path, seed=5, sensors=12, days=0.2).readings > 2_000
    check(path, ANSWER_S_MAX)


@pytest.mark.slow
def test_readings_of_may_2019_reach_every_subscriber_as_a_scan_finds_them(tmp_path: Path) -> None:
    if not REAL.exists():
        pytest.skip("the readings lie beside the project, in TIDINGS_DATA")
    path = tmp_path / "may.csv.gz"
    with gzip.open(REAL, "rt") as lines, gzip.open(path, "wt", compresslevel=1) as part:
        part.writelines(islice(lines, LINES))
    check(path, HANGS_S)

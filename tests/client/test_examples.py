"""Every example, run as its first lines say: with a node of its own, and with the address of one."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from client.nodes import node, run
from tidings.node.config import NodeConfig
from tidings.node.server import Node

ROOT = Path(__file__).parents[2]

SAID = {
    "publish_subscribe": "north: 41.2 (priority 4)\nnorth: 55.0 (priority 4)\nsouth: 61.0 (priority 7)\n",
    "durable": "job 1\njob 2\njob 3\n",
    "interest": """\
wanted: False
measuring for type = 'air.pm10' AND value >= 2
reading 2
reading 3
nobody listens: silent again
""",
    "request_reply": """\
84 / 2 = 42.0
the handler of the request has failed: ZeroDivisionError: division by zero
no answer to mul within 0.1 s
""",
    "exactly_once": "5 cuts, 5 bookings: 10 20 30 40 50\norders left: 0\n",
    "thread_pool": "0 1 4 9 16 25 36 49\nin three threads: True\n",
    "server_sent_events": ': listening\ndata: {"value": 41.2, "station": "north"}\n',
    "work_queue": """\
painted: 1 2 4 5 6
red was begun before: True
dead letter: ValueError: there is no such paint
exit codes: -9 0
""",
    "anonymous_request": "at 50.1: 41.2 from north\nat 43.7: 12.5 from south\n",
    "print_service": """\
12 pages of A4 from printer.hall
2 pages of A3 from printer.attic
no printer has A2
""",
    "workers": """\
ann paints door 1
ann is out of paint
ben paints door 2, begun 1 time before
ben paints door 3
ben has nothing left to do
""",
    "trip": """\
ann hears: where are you?
ben hears: where are you?, at the border, at the hotel, room 7
ben hears: and ben?
cleo has heard: in room 8
ann has heard: in room 8
members: {'hotel': 2}
""",
    "space": """\
5 squared is 25
4 squared is 16
3 squared is 9
2 squared is 4
1 squared is 1
0 squared is 0
left on the board: 0
""",
    "object_location": """\
ledger: north | stock: south
ledger: east
all: ledger at east mail at west
""",
    "service_discovery": """\
printing: none
printing: type = 'printed.page' AND dpi <= 600
printing: type = 'printed.page' AND dpi <= 600, type = 'printed.photo' AND dpi <= 2400
at 1200 dpi: type = 'printed.photo' AND dpi <= 2400
printing: type = 'printed.page' AND dpi <= 600
""",
    "rfid": """\
alarm: front coat-2
alarm: back hat-2
hat-1 has not crossed the link: none of 1 filters matches
""",
    "media_stream": """\
every frame: 50 in order: True
bytes: 204800
the slow viewer: at most 2 frames: True and the last is 49
""",
    "queue_type": "kept: 7 8 9\n",
    "agent_loop": """\
found: {'place': 'north', 'price': 95}
why: condition
south: condition
east: condition
north: done
adds up: True
""",
    "agents_travel": """\
why: condition
all ended: {'ended'}
adds up: True
drawn at the harbour: True
""",
    "agents_research": """\
offline, and ferns is done
cacti: sand, sun, rest
ferns: shade, moss
orchids: light, water, bark
why: condition
tokens: 800.0 of 2000.0
drawn: ['orchids', 'ferns', 'cacti']
""",
    "agents_observers": """\
observer 0: orphan
the others: condition
why: condition
drawn: 41 agents
""",
    "agents_literature": """\
1000 tokens: condition, six were read: True, adds up: True
started by others: True
45 tokens: user, six were read: False, adds up: True
started by others: True
drawn: True
""",
    "agents_market": """\
desk: {'seller': 'north', 'price': 120.0}
lamp: {'seller': 'south', 'price': 25.0}
piano: {'problem': 'piano: has 60 usd left, which is less than 900'}
spent: 145.0 refunded: 155.0 why: condition
drawn: ['lamp', 'desk', 'piano']
""",
    "agent_programs": """\
slow: condition
broken: error, exit code 3
fast: done
""",
    "callback": "air.pm10 41\nair.pm10 55\nair.pm10 61\n",
    "road_occupancy": "north: blocked since 08:00, 90% occupied\n",
    "air_quality": """\
Hafen: 60 µg/m³, reported as 0.06 mg/m³
gare: 71.5 µg/m³, reported as 71.5 ug/m3
""",
}


async def said_by(name: str, *arguments: str) -> str:
    """What an example prints; it must end well and complain of nothing."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-X", "dev", "-W", "error", str(ROOT / "examples" / f"{name}.py"), *arguments),
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, complaints = await process.communicate()
    assert (process.returncode, without_slow_steps(complaints.decode())) == (0, "")
    return output.decode()


def without_slow_steps(complaints: str) -> str:
    """The complaints without those that a busy machine is the reason for: with -X dev, asyncio has such."""
    return "".join(
        line for line in complaints.splitlines(keepends=True) if not line.startswith("Executing <")
    )


def test_every_example_is_run() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(SAID)


@pytest.mark.parametrize("name", SAID)
def test_an_example_with_a_node_of_its_own(name: str) -> None:
    assert run(said_by(name)) == SAID[name]


@pytest.mark.parametrize("name", [name for name in SAID if name != "queue_type"])
def test_an_example_with_the_address_of_a_node(name: str, tmp_path: Path) -> None:
    async def work() -> str:
        async with node(tmp_path) as address:
            return await said_by(name, address)

    assert run(work()) == SAID[name]


def test_a_type_of_queue_is_named_to_a_node_as_the_example_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    settings = NodeConfig(unix=str(tmp_path / "socket"), compiled=False, queue_types="queue_type:Ring")

    async def work() -> str:
        node = Node(settings)
        await node.start()
        try:
            return await said_by("queue_type", f"tidings+unix://{tmp_path / 'socket'}")
        finally:
            await node.close()

    assert run(work()) == SAID["queue_type"]

"""`tidings sensor` and `tidings simulate sensors`, against a gateway that runs beside the test."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cli.commands import run_command
from effort import ANSWER_S
from sensors.gateways import TestGateway

import tidings
from tidings.cli.sensor import LIST, bridged_text
from tidings.client.runner import Runner
from tidings.node.config import NodeConfig
from tidings.node.server import Node
from tidings.sensors.mqtt import Bridged
from tidings.sensors.recording import make_recording

NETWORKS = [
    {
        "sensing-id": "street-1",
        "state": "here",
        "owner": "ann",
        "transport": "tcp",
        "peer": "10.0.0.7:5000",
        "area": [1.0, 2.0, 1.0, 2.0],
        "sensors": [
            {
                "name": "pm10-0",
                "type": "air.pm10",
                "range": [0.0, 1000.0],
                "on": True,
                "asked": [40.0, None],
                "filters": ["type = 'air.pm10' AND value > 40"],
            },
            {"name": "door", "type": "door", "range": None, "on": False, "asked": None, "filters": []},
        ],
    },
    {"sensing-id": "bus", "state": "unregistered", "owner": "", "area": None, "sensors": [{"type": "noise"}]},
]


class Beside:
    """Something that runs in a loop of its own, in a thread."""

    def __init__(self) -> None:
        self.gateway = TestGateway()
        self._is_up = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._is_over = asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))

    async def _serve(self) -> None:
        async with self.gateway.listening():
            self._is_up.set()
            await self._is_over.wait()

    def start(self) -> None:
        self._thread.start()
        assert self._is_up.wait(ANSWER_S)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._is_over.set)
        self._thread.join(ANSWER_S)
        self._loop.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.gateway.port}"


@pytest.fixture
def beside() -> Iterator[Beside]:
    running = Beside()
    running.start()
    yield running
    running.stop()


# -- what a gateway knows


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    runner = Runner()
    node = Node(NodeConfig(port=0, compiled=False))
    runner.run(node.start())
    monkeypatch.setenv("TIDINGS_NODE", node.addresses[0])
    yield node
    runner.run(node.close())
    runner.stop()


def listed(node: Node, body: bytes, *arguments: str) -> tuple[int, str, str]:
    """What the command says where a gateway answers this."""
    with tidings.blocking.connect(node.addresses[0]) as bus:

        def answer(request: Any) -> None:
            bus.reply(request, "list", body=body, content_type="application/json")

        with bus.subscribe(f"type = '{LIST}'") as requests:
            thread = threading.Thread(target=lambda: answer(next(iter(requests))))
            thread.start()
            result = run_command("sensor", "list", *arguments)
            thread.join(ANSWER_S)
            return result


def test_networks_and_sensors_are_listed_with_who_is_on_and_why(node: Node) -> None:
    code, out, _ = listed(node, json.dumps(NETWORKS).encode())
    assert code == 0
    head, *rows = (line.split() for line in out.splitlines())
    assert head == ["network", "user", "from", "sensor", "type", "range", "on", "asked", "why"]
    why = ["type", "=", "'air.pm10'", "AND", "value", ">", "40"]
    assert rows == [
        ["street-1", "ann", "tcp", "10.0.0.7:5000", "pm10-0", "air.pm10", "0…1000", "on", "40…", *why],
        ["door", "door", "all", "off", "–", "–"],
        ["bus", "–", "unregistered", "–", "noise", "all", "–", "–", "–"],
    ]


def test_the_list_is_json_too_and_of_one_network_if_so_wanted(node: Node) -> None:
    body = json.dumps(NETWORKS).encode()
    _, out, _ = listed(node, body, "--json")
    assert [json.loads(line) for line in out.splitlines()] == NETWORKS
    _, out, _ = listed(node, body, "--json", "--network", "bus")
    assert [json.loads(line) for line in out.splitlines()] == NETWORKS[1:]
    assert listed(node, b"[]") == (0, "no sensor networks\n", "")


def test_each_subscription_is_listed_with_how_far_sensors_serve_it(node: Node) -> None:
    narrow = "type = 'air.pm10' AND value > 10 AND value < 20 AND posx = 1 AND posy = 2"
    filters = (narrow, narrow, "type = 'air.pm10'", "type = 'air.pm10' AND value > 2000", "type = 'noise'")
    with tidings.blocking.connect(node.addresses[0]) as bus, ExitStack() as stack:
        for text in filters:
            stack.enter_context(bus.subscribe(text))
        stack.enter_context(bus.subscribe("type = 'door'", passive=True))
        body = json.dumps(NETWORKS).encode()
        _, out, _ = listed(node, body, "--subscriptions", "--json")
        told = {one["filter"]: one for one in map(json.loads, out.splitlines()) if LIST not in one["filter"]}
        assert [(one["subscriptions"], one["served"], one["networks"]) for one in told.values()] == [
            (2, "full", {"street-1": "full"}),
            (1, "part", {"street-1": "part"}),
            (1, "none", {}),
            (1, "part", {"bus": "part"}),
        ]
        _, out, _ = listed(node, body, "--subscriptions")
        rows = [line for line in out.splitlines() if LIST not in line]
        assert rows[0].split() == ["served", "subscriptions", "filter", "by"]
        assert [row.split()[0] for row in rows[1:]] == ["fully", "in", "not", "in"]
        assert "value > 10" in rows[1]
        assert rows[1].endswith("street-1")


def test_a_report_with_a_sensor_that_can_t_be_read_is_no_base_for_what_is_served(node: Node) -> None:
    code, _, errors = listed(node, b'[{"sensing-id": "n", "sensors": [{}]}]', "--subscriptions")
    assert code == 2
    assert "can't be read" in errors


@pytest.mark.parametrize("body", [b"", b"{}", b'[{"sensors":[]}]'])
def test_an_answer_that_is_no_list_is_told(node: Node, body: bytes) -> None:
    code, _, errors = listed(node, body)
    assert code == 2
    assert "is no" in errors


def test_where_no_gateway_answers_that_is_told(node: Node) -> None:
    code, _, errors = run_command("sensor", "list", "--timeout", "0.1")
    assert (code, errors) == (2, "tidings: no gateway answers; start the node with --sensor-port\n")


# -- recordings


def test_a_recording_is_played_and_summed_up(beside: Beside, tmp_path: Path) -> None:
    made = make_recording(tmp_path / "r.csv.gz", 1, sensors=3, days=0.1)
    arguments = ("sensor", "replay", str(tmp_path / "r.csv.gz"), "--speed", "0", "--gateway", beside.address)
    code, out, errors = run_command(*arguments)
    assert code == 0
    assert out.startswith(f"{made.readings:,} readings of 3 networks arrived, from {made.lines:,} lines in ")
    assert "100%" in errors
    assert len(beside.gateway.readings) == made.readings


def test_lines_that_cannot_be_read_are_named(beside: Beside, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("when,who,dust\n2019-05-01,a,5\nnever,a,6\n2019-05-01,b,\n")
    arguments = ("sensor", "replay", str(tmp_path / "r.csv"), "--speed", "0", "--gateway", beside.address)
    arguments += ("--columns", "timestamp=when,name=who,value:air.dust=dust")
    _, out, _ = run_command(*arguments)
    assert out.splitlines()[1:] == [
        "1 empty values, 1 lines that can't be read",
        "  line 3: 'never' is no time",
    ]
    _, out, _ = run_command(*arguments, "--json")
    told = json.loads(out)
    assert (told["arrived"], told["lines"], told["empty"], told["bad"]) == (1, 3, 1, 1)
    assert told["bad_lines"] == [{"line": 3, "problem": "'never' is no time"}]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--columns", "name"), "--columns, entry 1: name: must be WHAT=COLUMN"),
        ((), "say with --columns which column is what; there are when, who, dust"),
        (("--gateway", "nowhere:x"), "'nowhere:x' is no HOST:PORT"),
        (("--token-file", "t"), "a token is sent over TLS only"),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path: Path, options: tuple[str, ...], problem: str) -> None:
    (tmp_path / "r.csv").write_text("when,who,dust\n")
    code, _, errors = run_command("sensor", "replay", str(tmp_path / "r.csv"), *options)
    assert code == 2
    assert problem in errors
    assert len(errors.splitlines()) == 1


# -- a simulated city


def test_a_city_is_simulated_and_summed_up(beside: Beside) -> None:
    arguments = ("simulate", "sensors", "--gateway", beside.address, "--networks", "3", "--rate", "50")
    arguments += ("--duration", "0.3", "--always", "--type", "x", "--readings", "2", "--mobility", "5")
    code, out, errors = run_command(*arguments)
    assert code == 0
    assert "3 networks, 3 connections" in errors
    assert [line.split()[1] for line in out.splitlines()] == ["messages", "messages", "readings"]
    _, out, errors = run_command(*arguments, "--json")
    tally = json.loads(out)
    assert errors == ""
    assert tally["readings"] == tally["unwanted"] == 2 * tally["messages"] > 0


# -- MQTT


def test_a_map_that_is_wrong_is_told_before_anything_is_done(tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text('[[reading]]\ntopic = "a/b+"\nnetwork = "n"\nname = "n"\ntype = "t"\n')
    code, _, errors = run_command(
        "sensor", "mqtt", "--broker", "127.0.0.1:1", "--map", str(tmp_path / "map.toml")
    )
    assert code == 2
    assert "map.toml: reading[1].topic: level 2, 'b+': + or # stands first" in errors


def test_what_a_bridge_has_done_is_one_line() -> None:
    tally = Bridged(messages=1_200, networks=3, arrived=1_198, acknowledged=1_100, repeated=2, bad=1)
    assert bridged_text(tally) == (
        "1,200 messages of 3 networks, 1,198 readings arrived, 1,100 messages acknowledged, 2 repeats, 1 bad"
    )

"""A node with a taxonomy, which clients and commands use in filters."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from cli.commands import run_command
from client.nodes import run

import tidings
from tidings import Event, Filter
from tidings.errors import ConfigError
from tidings.node import concepts
from tidings.node.config import NodeConfig
from tidings.node.server import Node
from tidings.protocol import taxonomy

TERMS = """
["air.pm10"]
synonyms = ["Feinstaub", "particules"]

[units]
"mcg/m3" = "µg/m³"
"""


def config(home: Path, text: str = TERMS, name: str = "terms.toml") -> NodeConfig:
    (home / name).write_text(text)
    return NodeConfig(unix=str(home / "socket"), compiled=False, concepts=str(home / name))


def test_clients_and_commands_use_the_taxonomy_of_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taxonomy, "TAXONOMY_PIECE_SIZE", 10)
    address = f"tidings+unix://{tmp_path / 'socket'}"
    wanted = "IS_A(type, 'air.pm10') AND value > 50 'µg/m³'"

    async def work() -> str:
        node = Node(config(tmp_path))
        await node.start()
        try:
            async with tidings.connect(address) as bus:
                made = Filter(wanted, taxonomy=await bus.taxonomy())
                assert made.matches(Event("Feinstaub", value=51, unit="mcg/m3"))
                given = [("Feinstaub", 50, "mcg/m3"), ("particules", 0.06, "mg/m³"), ("Ozon", 0.06, "mg/m³")]
                for kind, value, unit in given:
                    await bus.publish(kind, value=value, unit=unit, subject="quay", delivery="reliable")
                command = (
                    "subscribe",
                    wanted,
                    "--convert",
                    "value=µg/m³",
                    "--last",
                    "--count",
                    "1",
                    "--json",
                )
                here = {"TIDINGS_NODE": address}
                code, out, err = await asyncio.to_thread(run_command, *command, environment=here)
                assert code == 0, err
                return out
        finally:
            await node.close()

    (event,) = map(json.loads, run(work()).splitlines())
    assert event["type"] == "particules"
    original = {"original.value": 0.06, "original.unit": "mg/m³"}
    assert event["attributes"] == {"value": 60.0, "unit": "µg/m³", **original}


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.toml", "[a]\nnarrower = ['b']\n[b]\nnarrower = ['a']", "can't be narrower than itself"),
        ("a.toml", "[units]\nx = 'bogus'", r"\$.units\['x'\]: there is no unit 'bogus'"),
        ("a.ttl", "<a", "at line 1"),
        ("a.csv", "", "a taxonomy is a .toml or .json file"),
    ],
)
def test_a_node_refuses_a_wrong_taxonomy_when_it_starts(
    tmp_path: Path, name: str, text: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=f"concepts: .*{problem}"):
        run(Node(config(tmp_path, text, name)).start())


def test_a_node_refuses_a_taxonomy_that_is_missing_or_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concepts, "NODE_TAXONOMY_MAX", 10)
    with pytest.raises(ConfigError, match="concepts: has more than 10 bytes as JSON"):
        run(Node(config(tmp_path)).start())
    (tmp_path / "terms.toml").unlink()
    with pytest.raises(ConfigError, match="concepts: No such file or directory"):
        concepts.load_taxonomy(str(tmp_path / "terms.toml"))


def test_a_filter_is_checked_with_a_file_of_terms(tmp_path: Path) -> None:
    config(tmp_path)
    terms = str(tmp_path / "terms.toml")
    code, out, _ = run_command("filter", "check", "IS_A(type, 'Feinstaub')", "--concepts", terms)
    assert (code, out) == (0, "IS_A(type, 'Feinstaub', 'air.pm10', 'particules')\n")
    lines = '{"type": "a", "value": 0.06, "unit": "mg/m³"}\n{"type": "a", "value": 0.05, "unit": "mg/m³"}\n'
    code, out, _ = run_command("filter", "test", "value > 50 'mcg/m3'", "--concepts", terms, lines=lines)
    assert (code, out) == (0, lines.splitlines()[0] + "\n")


@pytest.mark.parametrize("given", ["value", "=m", "value="])
def test_a_conversion_without_a_name_or_a_unit_is_refused(given: str) -> None:
    code, _, err = run_command("subscribe", "", "--convert", given)
    assert code == 2
    assert "is not NAME=UNIT" in err

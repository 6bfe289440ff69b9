"""`tidings channel`, with a real node beside it."""

from __future__ import annotations

import json

import pytest
from cli.commands import Commands
from node.peers import Start

from tidings.client import blocking


@pytest.fixture(scope="module")
def address(start_shared: Start, tmp_path_factory: pytest.TempPathFactory) -> str:
    return start_shared("--port", "0", "--dir", str(tmp_path_factory.mktemp("nodes") / "node")).address()


@pytest.fixture
def channel(address: str) -> Commands:
    return Commands("channel", address)


def test_a_channel_is_created_used_shown_and_deleted(channel: Commands) -> None:
    (made,) = channel.told("create", "trip", "--delivery", "persistent", "--order", "causal")
    assert (made["name"], made["reference"]) == ("trip", "")
    lines = "".join(f'{{"type": "step", "attributes": {{"n": {n}}}}}\n' for n in range(3))
    assert channel.told("send", "trip", lines=lines) == [{"sent": 3}]
    assert channel.numbers("history", "trip") == [0, 1, 2]
    assert [one["name"] for one in channel.told("list")] == ["trip"]
    (found,) = channel.told("show", "trip")
    assert (found["id"], found["order"], list(found["sent"].values())) == (made["id"], "causal", [3])
    assert (found["joins"], found["leaves"], sum(found["members"].values())) == (1, 1, 0)
    code, output, _ = channel("show", "trip")
    assert code == 0
    assert "3, " in output
    assert "1 joins, 1 leaves: 0.667 an event" in output
    assert channel.told("delete", "trip") == [{"deleted": made["id"]}]
    code, _, errors = channel("show", "trip")
    assert code == 2
    assert "there is no such channel" in errors


def test_a_private_channel_is_shown_by_its_reference_alone(channel: Commands) -> None:
    (made,) = channel.told("create", "secret", "--private")
    assert channel.told("list", "secret") == []
    assert channel("show", "secret")[0] == 2
    (found,) = channel.told("show", "--reference", made["reference"])
    assert found["id"] == made["id"]
    assert made["reference"] not in json.dumps(found)
    (renewed,) = channel.told("renew", made["reference"])
    assert channel("show", "--reference", made["reference"])[0] == 2
    assert channel.told("show", "--reference", renewed["reference"])[0]["id"] == made["id"]


def test_a_durable_member_leaves(channel: Commands, address: str) -> None:
    channel.told("create", "tour", "--delivery", "reliable")
    with blocking.connect(address, name="ann") as bus, bus.channel("tour", durable="mine"):
        pass
    members = [sum(one["members"].values()) for one in channel.told("list", "tour")]
    assert members == [1]
    assert channel.told("leave", "mine", "--client", "ann") == [{"left": "mine"}]
    assert [sum(one["members"].values()) for one in channel.told("list", "tour")] == [0]
    code, _, errors = channel("leave", "mine", "--client", "ann")
    assert code == 2
    assert "mine" in errors


def test_who_is_in_a_channel_is_printed(channel: Commands, address: str) -> None:
    channel.told("create", "crowd")
    with blocking.connect(address) as bus, bus.channel("crowd"):
        (found,) = channel.told("watch", "crowd", "--changes", "--count", "1")
    assert found["type"] == "channel.joined"
    assert (found["attributes"]["count"], found["attributes"]["members"]) == (1, 1)


def test_a_protocol_is_chosen_by_its_name_or_by_what_is_expected(channel: Commands) -> None:
    (made,) = channel.told("create", "hashed", "--protocol", "rendezvous")
    assert made["protocol"] == "rendezvous"
    assert made["id"].startswith("rendezvous-")
    assert [one["protocol"] for one in channel.told("list", "hashed")] == ["rendezvous"]
    (made,) = channel.told("create", "expected", "--size", "3", "--fluctuation", "0.5")
    assert made["protocol"] == "broadcast"  # at one node
    code, _, errors = channel("create", "both", "--protocol", "insertion", "--size", "3")
    assert code == 2
    assert "give one of both" in errors

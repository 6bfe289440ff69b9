"""`tidings peer`, and queues of other nodes in `tidings queue`, with real nodes beside them."""

from __future__ import annotations

import json

import pytest
from node.peers import Start
from typer.testing import CliRunner

from tidings.cli.app import app


@pytest.fixture(scope="module")
def kitchen(start_shared: Start) -> str:
    return start_shared("--port", "0", "--name", "kitchen").address()


@pytest.fixture(scope="module")
def home(start_shared: Start, kitchen: str) -> str:
    peers = f"kitchen={kitchen}, attic=tidings://127.0.0.1:1"
    address = start_shared("--port", "0", "--name", "home", "--peers", peers).address()
    while '"there"' not in tidings(address, "peer", "list", "--json"):
        pass
    return address


def tidings(address: str, *arguments: str) -> str:
    """What a command prints that must succeed."""
    result = CliRunner(env={"TIDINGS_NODE": address, "COLUMNS": "150"}).invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_peers_are_listed_with_how_they_stand(home: str) -> None:
    head, attic, kitchen = tidings(home, "peer", "list").splitlines()
    assert head.split() == ["peer", "state", "for", "waiting", "address", "about"]
    assert attic.split()[:2] == ["attic", "away"]
    assert "Connect" in attic
    assert kitchen.split()[:2] == ["kitchen", "there"]
    told = [json.loads(line) for line in tidings(home, "peer", "list", "--json").splitlines()]
    assert [(one["name"], one["state"], one["waiting"]) for one in told] == [
        ("attic", "away", 0),
        ("kitchen", "there", 0),
    ]


def test_a_node_without_peers_says_how_it_gets_some(start: Start) -> None:
    assert "--peers" in tidings(start("--port", "0", "--name", "shed").address(), "peer", "list")


def test_a_node_that_is_dialled_lists_who_has_dialled_it(home: str, kitchen: str) -> None:
    (told,) = [json.loads(line) for line in tidings(kitchen, "peer", "list", "--json").splitlines()]
    assert home
    assert (told["name"], told["state"]) == ("home", "there")


def test_queues_of_other_nodes_are_listed_and_used(home: str, kitchen: str) -> None:
    tidings(kitchen, "queue", "create", "jobs")
    tidings(home, "queue", "create", "letters")
    shown = tidings(home, "queue", "list", "--scope", "both")
    assert [line.split()[0] for line in shown.splitlines()[1:]] == ["jobs@kitchen", "letters@home"]
    assert "jobs" not in tidings(home, "queue", "list")
    assert "letters" not in tidings(home, "queue", "list", "--scope", "remote")
    tidings(home, "queue", "put", "jobs", "job", "n=1")
    assert "n=1" in tidings(home, "queue", "get", "jobs@kitchen")
    assert "kitchen" in tidings(home, "queue", "describe", "jobs")


def test_what_is_no_scope_is_refused(home: str) -> None:
    result = CliRunner(env={"TIDINGS_NODE": home}).invoke(app, ["queue", "list", "--scope", "moon"])
    assert result.exit_code == 2

"""`tidings session` and `tidings durable`, with a real node beside them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli.commands import run_command
from node.peers import Start

import tidings
from tidings import blocking
from tidings.errors import Refused


@pytest.fixture(scope="module")
def address(start_shared: Start) -> str:
    return start_shared("--port", "0").address()


def run(address: str, *arguments: str) -> tuple[int, str, str]:
    return run_command(*arguments, environment={"TIDINGS_NODE": address})


def told(address: str, *arguments: str) -> list[dict[str, Any]]:
    code, output, errors = run(address, *arguments, "--json")
    assert code == 0, errors
    return [json.loads(line) for line in output.splitlines()]


def test_sessions_are_listed_and_ended(address: str) -> None:
    with blocking.connect(address, name="quay", reconnect=False) as bus, bus.subscribe("a = 1"):
        (listed,) = told(address, "session", "list", "--client", "quay")
        assert (listed["client"], listed["subscriptions"]) == ("quay", 1)
        code, output, _ = run(address, "session", "list")
        assert code == 0
        assert output.splitlines()[0].split()[:4] == ["session", "client", "user", "address"]
        assert listed["session"] in output
        assert run(address, "session", "end", listed["session"]) == (0, "ended 1 session\n", "")
        with pytest.raises(tidings.errors.Disconnected, match="ended by an administrator"):
            bus.lookup()


def test_all_sessions_of_a_client_are_ended_at_once(address: str) -> None:
    with blocking.connect(address, name="two", reconnect=False):
        with blocking.connect(address, name="two", reconnect=False):
            (ended,) = told(address, "session", "end", "--client", "two")
            assert len(ended["ended"]) == 2
        assert run(address, "session", "end", "--client", "two")[:2] == (1, "ended 0 sessions\n")


def test_a_session_that_is_not_there_gives_the_exit_code_1(address: str) -> None:
    code, output, errors = run(address, "session", "end", "9-9")
    assert (code, output) == (1, "ended 0 sessions\n")
    assert errors == "tidings: there is no session '9-9' [not-found]\n"


def test_a_command_without_a_session_to_end_says_what_to_give(address: str) -> None:
    assert run(address, "session", "end")[0] == 2
    assert "either" in run(address, "session", "end", "1-1", "--client", "a")[2]


def test_durable_subscriptions_are_listed_and_deleted(address: str) -> None:
    assert run(address, "durable", "list") == (0, "", "no durable subscriptions\n")
    with blocking.connect(address, name="ann") as bus:
        bus.log.keep("all", "")
        with bus.subscribe("", durable="mine"):
            pass
        bus.publish("a", delivery="reliable")
        (listed,) = told(address, "durable", "list")
        assert (listed["name"], listed["owner"], listed["depth"]) == ("mine", "ann", 1)
        code, _, errors = run(address, "durable", "delete", "mine")
        assert (code, "no durable subscription 'mine'; other clients have one: --owner ann" in errors) == (
            2,
            True,
        )
        assert run(address, "durable", "delete", "mine", "--owner", "ann") == (0, "deleted mine\n", "")
        with pytest.raises(Refused):
            bus.unsubscribe("mine")
    assert run(address, "durable", "list")[1] == ""


def test_a_client_deletes_its_own_durable_subscription_by_its_name(address: str) -> None:
    with blocking.connect(address, name="bob") as bus, bus.subscribe("", durable="own"):
        pass
    assert told(address, "durable", "delete", "own", "--name", "bob") == [{"deleted": "own"}]

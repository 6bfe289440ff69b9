"""A peer that answers what no node answers: its clients are told so, and nothing else happens."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peers.nodes import Client, Home
from queues.rig import numbers

GOOD = [1, 1, False, None, 0, None, 0, b"x"]


def answering(operation: str, result: Any) -> tuple[Home, Client]:
    """A node whose peer answers a request with this, and a client of the node."""
    home = Home("kitchen")
    owner = home.owner_of("kitchen")
    owner.create("jobs")
    owner.put("jobs", 1)
    home.run()
    operations = home.far("kitchen").broker.operations
    kind, _ = operations[operation]
    operations[operation] = kind, lambda _asked, _wanted: result
    return home, home.client()


def row(**changes: Any) -> dict[str, Any]:
    names = ("number", "delivery", "redelivered", "system", "epoch", "source", "parts", "raw")
    return {"messages": [list({**dict(zip(names, GOOD, strict=True)), **changes}.values())]}


@pytest.mark.parametrize(
    "result",
    [
        None,
        5,
        {},
        {"messages": 5},
        {"messages": [[1]]},
        row(number=-1),
        row(number=2**63),
        row(delivery=-1),
        row(delivery=2**32),
        row(raw="text"),
        {"messages": [], "held_s": -1.0},
        {"messages": [], "held_s": float("nan")},
        {"messages": [], "held_s": float("inf")},
    ],
)
def test_an_answer_that_no_node_gives_is_an_error(result: Any) -> None:
    home, ann = answering("get", result)
    assert ann.fails("get", queue="jobs@kitchen").code == "protocol"
    assert home.rig.queues.in_flight.elsewhere == 0
    ann.create("here")
    ann.put("here", 1)
    home.run()
    assert numbers(ann.get("here")) == [1]


@pytest.mark.parametrize("result", [None, 5, [], {"name": 5}, {"messages": "many"}])
def test_a_description_that_is_none_is_an_error(result: Any) -> None:
    _, ann = answering("queue.describe", result)
    assert ann.fails("queue.describe", queue="jobs@kitchen").code == "protocol"


@pytest.mark.parametrize("result", [None, 5, {}, [5], [{"name": 5}]])
def test_a_peer_that_tells_nonsense_is_left_out_of_a_search(result: Any) -> None:
    home, ann = answering("queue.find", result)
    ann.create("here")
    assert [one["name"] for one in ann.ask("queue.find", scope="both")] == ["here"]
    home.run()


def test_a_peer_can_not_pass_its_queues_off_as_those_of_another_node() -> None:
    _, ann = answering("queue.find", [{"name": "jobs", "node": "home"}, {"name": "jobs", "node": "garage"}])
    assert {one["node"] for one in ann.ask("queue.find", scope="remote")} == {"kitchen"}


plain = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
anything = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
)


@given(st.sampled_from(["get", "queue.describe", "queue.find", "part", "queue.renew"]), anything)
def test_whatever_a_peer_answers_the_node_goes_on(operation: str, result: Any) -> None:
    home, ann = answering(operation, result)
    asked: dict[str, Any] = {
        "get": {"queue": "jobs@kitchen"},
        "queue.describe": {"queue": "jobs@kitchen"},
        "queue.find": {"scope": "remote"},
        "part": {"queue": "jobs@kitchen", "number": 1, "delivery": 0, "index": 0},
        "queue.renew": {"queue": "jobs@kitchen", "id": "x", "lease_s": 1.0},
    }
    number = ann.request(operation, **asked[operation])
    home.run()
    assert ann.reply(number) is not None
    assert ann.create("here")["name"] == "here"

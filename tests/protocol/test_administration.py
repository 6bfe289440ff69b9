"""Sessions that are listed and ended, durable subscriptions of others that are ended, and who may do that."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.guarded import come, ending, guarded, may
from protocol.rig import Peer, Rig
from tidings.protocol import administration
from tidings.protocol.messages import Notice


def listed(peer: Peer, after: int = 0) -> list[dict[str, Any]]:
    """All sessions, page after page."""
    found: list[dict[str, Any]] = []
    while True:
        reply = peer.ask("session.list", after=after)
        assert reply.error is None, reply.error
        found += reply.result["sessions"]
        if reply.result["next"] is None:
            return found
        after = reply.result["next"]


def code_of(peer: Peer, operation: str, **arguments: Any) -> str:
    error = peer.ask(operation, **arguments).error
    return "" if error is None else error.code


def test_sessions_are_listed_in_the_order_in_which_they_came() -> None:
    rig = Rig()
    bob = rig.peer("b", name="bob")
    rig.now += 5
    ann = rig.peer("a", name="ann")
    bob.ask("subscribe", number=1)
    rig.connect()  # and has not said who it is
    told = listed(ann)
    assert [(one["client"], one["subscriptions"], one["for_s"]) for one in told] == [
        ("bob", 1, 5.0),
        ("ann", 0, 0.0),
    ]
    bob.lose()
    assert [one["client"] for one in listed(ann)] == ["ann"]


@pytest.mark.parametrize(("page", "step"), [(1, 1), (2, 3), (3, 2), (100, 2)])
def test_a_long_list_comes_in_pages(page: int, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(administration, "LISTED_MAX", page)
    monkeypatch.setattr(administration, "LOOKED_AT_ONCE", step)
    rig = Rig()
    peers = [rig.peer(f"s{number}", name=f"c{number}") for number in range(7)]
    assert [one["client"] for one in listed(peers[3])] == [f"c{number}" for number in range(7)]


def demanded(peer: Peer) -> list[tuple[str, int]]:
    """All filters by which clients demand events, page after page."""
    found: list[tuple[str, int]] = []
    after: int | None = 0
    while after is not None:
        reply = peer.ask("subscription.list", after=after)
        assert reply.error is None, reply.error
        found += [(text, count) for text, count in reply.result["filters"]]
        after = reply.result["next"]
    return found


def test_filters_are_listed_that_demand_events_with_the_number_of_subscriptions() -> None:
    rig = Rig()
    ann, bob = rig.peer("a", name="ann"), rig.peer("b", name="bob")
    for number, text in enumerate(("x > 1", "x > 2", "x > 1"), start=1):
        ann.ask("subscribe", number=number, filter=text)
    bob.ask("subscribe", number=1, filter="x > 1", durable="d")
    bob.ask("subscribe", number=2, filter="x > 3", passive=True)
    assert demanded(bob) == [("x > 1", 3), ("x > 2", 1)]
    ann.ask("unsubscribe", number=2)
    assert demanded(bob) == [("x > 1", 3)]


@pytest.mark.parametrize(
    ("limit", "most"), [("LISTED_MAX", 2), ("FILTERS_SIZE_MAX", 7), ("LOOKED_AT_ONCE", 2)]
)
def test_a_long_list_of_filters_comes_in_pages(
    limit: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(administration, limit, most)
    ann = Rig().peer("a", name="ann")
    for number in range(1, 8):
        ann.ask("subscribe", number=number, filter=f"x > {number}")
    assert demanded(ann) == [(f"x > {number}", 1) for number in range(1, 8)]


def test_who_may_not_manage_everything_sees_its_own_filters() -> None:
    rig = guarded(ann=[may("manage"), may("subscribe")], bob=[may("subscribe"), may("manage", queue="jobs")])
    ann, bob = come(rig, "ann"), come(rig, "bob", name="bob")
    ann.ask("subscribe", number=1, filter="x > 1")
    bob.ask("subscribe", number=1, filter="x > 2")
    bob.ask("subscribe", number=2, filter="x > 3", durable="d")
    assert demanded(bob) == [("x > 2", 1), ("x > 3", 1)]
    assert demanded(ann) == [("x > 1", 1), ("x > 2", 1), ("x > 3", 1)]


def test_a_session_that_is_ended_is_told_so_and_the_others_stay() -> None:
    rig = Rig()
    ann, bob, cat = (rig.peer(name, name=name) for name in ("ann", "bob", "cat"))
    session = listed(ann)[1]["session"]
    assert code_of(ann, "session.end", session=session) == ""
    assert ending(bob) == ("ended", "the session was ended by an administrator")
    assert [one["client"] for one in listed(cat)] == ["ann", "cat"]
    bob.lose()
    assert code_of(ann, "session.end", session=session) == "not-found"


def test_nobody_ends_the_session_it_asks_on() -> None:
    rig = Rig()
    ann = rig.peer("a")
    assert code_of(ann, "session.end", session=listed(ann)[0]["session"]) == "protocol"
    assert not ann.session.is_closed


def test_a_durable_subscription_of_another_client_is_ended_while_it_is_open() -> None:
    rig = Rig()
    ann, bob = rig.peer("a", name="ann"), rig.peer("b", name="bob")
    bob.ask("subscribe", number=1, durable="d")
    assert code_of(ann, "durable.end", name="d", owner="ann") == "not-found"
    assert code_of(ann, "durable.end", name="d", owner="bob") == ""
    assert [(one.kind, one.details) for one in bob.got(Notice)] == [("ended", {"reason": "unsubscribed"})]
    assert rig.broker.status()["durables"] == []
    assert code_of(ann, "durable.end", name="d", owner="bob") == "not-found"


def test_a_reader_of_the_log_is_no_durable_subscription() -> None:
    rig = Rig()
    ann = rig.peer("a", name="ann")
    ann.ask("log.keep", name="all", where="")
    assert [one["archive"] for one in rig.broker.status()["durables"]] == [True]
    assert code_of(ann, "durable.end", name="all", owner="ann") == "not-found"


def test_only_those_who_may_manage_everything_see_and_end_what_others_have() -> None:
    rig = guarded(ann=[may("manage")], bob=[may("subscribe"), may("manage", queue="jobs")])
    ann, bob = come(rig, "ann"), come(rig, "bob", name="bob")
    bob.ask("subscribe", number=1, durable="d")
    session = ann.session.name
    assert code_of(bob, "session.list") == "not-allowed"
    assert code_of(bob, "session.end", session=session) == "not-allowed"
    assert code_of(bob, "durable.end", name="d", owner="ann") == "not-allowed"
    assert code_of(bob, "durable.end", name="d", owner="bob") == ""
    assert [one["user"] for one in listed(ann)] == ["ann", "bob"]
    assert code_of(ann, "session.end", session=bob.session.name) == ""

"""Active detection at a node: alive notices, declared partners, quick restarts; times exact."""

from __future__ import annotations

from typing import Any

import pytest
from agents.test_many import ask, show
from protocol.rig import Peer, Rig

from tidings.agents.arguments import AgentInfo

TIMES = {"notice_s": 10, "check_s": 25, "delay_s": 2, "losses": 1}
GRACE_S = 5.0


class Trip:
    """A group with times for notices, and its members, whose notices are sent by hand."""

    def __init__(self, **times: float) -> None:
        self.rig = Rig()
        self.owner = self.rig.peer("o")
        self.lives: dict[str, dict[str, Any]] = {}
        condition = {"is": "at_least", "count": 1, "parts": []}
        opening = {"group": "trip", "name": "trip", "condition": condition, "grace_s": GRACE_S}
        self.opened = self.owner.ask("agent.open", **opening, alive={**TIMES, **times})

    def enter(self, name: str, cookie: str = "", parent: str = "", where: str = "node-a") -> str:
        cookie = cookie or f"cookie of {name} in the trip"
        entering = {"group": "trip", "cookie": cookie, "name": name, "lease_s": 3_600.0, "where": where}
        terms = ask(self.owner, "agent.enter", **entering, parent=parent)
        self.lives[name] = {"agent": terms["agent"], "life": 1, "cookie": cookie, "where": where}
        assert terms["notice_s"] == TIMES["notice_s"]
        return str(terms["agent"])

    def notice(self, *names: str, **changes: Any) -> None:
        for name in names:
            ask(self.owner, "agent.renew", **{**self.lives[name], **changes})

    def partners(self, name: str, *partners: str) -> None:
        ask(self.owner, "agent.partners", **self.lives[name], partners=partners)

    def pass_time(self, seconds: float, *alive: str) -> None:
        """Let time pass in which these give notice each second."""
        whole = int(seconds)
        for _ in range(whole):
            self.rig.pass_time(1.0)
            self.notice(*alive)
        self.rig.pass_time(seconds - whole)

    def member(self, name: str) -> AgentInfo:
        return next(one for one in reversed(show(self.owner).agents) if one.name == name)

    def states(self) -> dict[str, str]:
        return {one.name: one.state for one in show(self.owner).agents}


@pytest.fixture
def trip() -> Trip:
    return Trip()


def test_one_lost_notice_ends_nobody_and_two_end_it_at_25_with_its_grace(trip: Trip) -> None:
    """Notice 10, check 25, delay 2, one loss tolerated; the last notice is heard at 0."""
    trip.enter("hotel")
    trip.pass_time(22)  # that of 10 was lost, that of 20 is 2 late
    trip.notice("hotel")
    assert trip.member("hotel").state == "running"
    trip.pass_time(24.5)  # those of 32 and 42 are lost
    assert trip.member("hotel").state == "running"
    trip.pass_time(1)
    orphan = trip.member("hotel")
    assert (orphan.state, orphan.reason) == ("ending", "orphan")
    ask(trip.owner, "agent.result", **trip.lives["hotel"], result=b'"half of it"', partial=True)  # its grace
    ask(trip.owner, "agent.leave", **trip.lives["hotel"], reason="user")
    ended = trip.member("hotel")
    assert (ended.state, ended.reason, ended.lost, ended.result) == ("ended", "orphan", False, "half of it")


def test_one_that_stays_silent_is_lost_after_its_grace(trip: Trip) -> None:
    trip.enter("hotel")
    trip.pass_time(25.5)
    assert trip.member("hotel").state == "ending"
    trip.pass_time(11)
    assert trip.member("hotel").lost


def test_times_that_do_not_tolerate_a_loss_are_refused_and_the_least_are_not() -> None:
    refused = Trip(check_s=21).opened
    assert "check 21 s is too short" in str(refused.error)
    assert Trip(check_s=22).opened.error is None


def test_whatever_an_agent_does_is_a_sign_of_life(trip: Trip) -> None:
    trip.enter("hotel")
    for number in range(3):
        trip.pass_time(24)
        ask(trip.owner, "agent.spend", **trip.lives["hotel"], amounts={}, step=number + 1)
    assert trip.member("hotel").state == "running"


def test_a_notice_tells_all_who_listen_where_an_agent_is(trip: Trip) -> None:
    trip.enter("hotel")
    listener = trip.rig.peer("l")
    listener.subscribe(1, "type = 'agent.alive' AND group_name = 'trip'")
    trip.rig.run()
    trip.notice("hotel", where="node-b")
    trip.rig.run()
    (told,) = listener.events(1)
    assert (told["agent_name"], told["where"], told["life"]) == ("hotel", "node-b", 1)
    assert trip.member("hotel").where == "node-b"


def test_an_agent_whose_partner_is_gone_is_an_orphan_and_others_are_not(trip: Trip) -> None:
    for name in ("planner", "hotel", "train"):
        trip.enter(name)
    trip.partners("hotel", "planner")
    assert trip.member("hotel").partners == ["planner"]
    trip.pass_time(24, "hotel", "train")
    assert set(trip.states().values()) == {"running"}
    trip.pass_time(2, "hotel", "train")
    assert trip.states() == {"planner": "ending", "hotel": "ending", "train": "running"}
    assert trip.member("hotel").reason == "orphan"


def test_a_partner_that_restarts_quickly_is_no_loss_in_a_new_life_or_as_a_new_member(trip: Trip) -> None:
    for name in ("planner", "hotel"):
        trip.enter(name)
    trip.partners("hotel", "planner")
    ask(trip.owner, "agent.leave", **trip.lives["planner"], reason="error", problem="it fell over")
    trip.pass_time(20, "hotel")
    trip.enter("planner", cookie="cookie of its successor")
    trip.pass_time(20, "hotel")
    again = ask(trip.owner, "agent.restart", **trip.lives["planner"])
    trip.lives["planner"]["life"] = again["life"]
    trip.pass_time(24, "hotel")
    assert trip.member("hotel").state == "running"
    trip.pass_time(2, "hotel")
    assert trip.member("hotel").state == "ending"


def test_a_partner_that_is_done_or_released_is_no_loss(trip: Trip) -> None:
    for name in ("planner", "guide", "hotel"):
        trip.enter(name)
    trip.partners("hotel", "planner", "guide")
    ask(trip.owner, "agent.leave", **trip.lives["planner"])
    ask(trip.owner, "agent.release", **trip.lives["guide"])
    trip.pass_time(60, "hotel")
    assert trip.states() == {"planner": "ended", "guide": "running", "hotel": "running"}


def test_a_parent_that_is_gone_makes_no_orphan(trip: Trip) -> None:
    parent = trip.enter("planner")
    trip.enter("hotel", parent=parent)
    trip.pass_time(60, "hotel")
    assert trip.states() == {"planner": "ended", "hotel": "running"}


def test_a_node_that_stood_still_judges_nobody_by_its_own_silence(trip: Trip) -> None:
    for name in ("planner", "hotel"):
        trip.enter(name)
    trip.partners("hotel", "planner")
    trip.rig.now += 60
    trip.rig.broker.wake(trip.rig.now)
    trip.rig.run()
    assert set(trip.states().values()) == {"running"}
    trip.pass_time(26)
    assert set(trip.states().values()) == {"ending"}


def test_a_node_that_has_started_again_goes_on_to_watch(trip: Trip) -> None:
    for name in ("planner", "hotel"):
        trip.enter(name)
    trip.partners("hotel", "planner")
    trip.pass_time(20)
    trip.rig = trip.rig.restart()
    trip.owner = trip.rig.peer("o", 2)
    trip.pass_time(24, "hotel")
    assert trip.member("hotel").state == "running"
    trip.pass_time(2, "hotel")
    assert trip.states() == {"planner": "ending", "hotel": "ending"}


def test_partners_need_times_and_are_not_oneself(trip: Trip) -> None:
    def refused(trip: Trip, owner: Peer, partners: list[str]) -> str:
        reply = owner.ask("agent.partners", **trip.lives["hotel"], partners=partners)
        return str(reply.error)

    trip.enter("hotel")
    assert "it can't be its own partner" in refused(trip, trip.owner, ["hotel"])
    assert "partners" in refused(trip, trip.owner, ["x"] * 101)
    plain = {"group": "plain", "name": "plain", "condition": {"is": "at_least", "count": None, "parts": []}}
    ask(trip.owner, "agent.open", **plain)
    cookie = "cookie of another hotel"
    terms = ask(trip.owner, "agent.enter", group="plain", cookie=cookie, name="hotel")
    trip.lives["hotel"] = {"agent": terms["agent"], "life": 1, "cookie": cookie}
    assert "partners need a group with times for notices" in refused(trip, trip.owner, ["planner"])

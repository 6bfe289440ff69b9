"""Groups of very many members, and groups within groups: short steps, and nothing lost by a stop."""

from __future__ import annotations

from typing import Any

import msgspec
from protocol.rig import Peer, Rig
from protocol.test_turns import settle, sliced, ticks_until_pong

from tidings.agents.arguments import GroupInfo
from tidings.agents.homes import AT_ONCE, CONFIRM_S
from tidings.event import Batch
from tidings.timers import CALLED_AT_ONCE

MANY = 300
GRACE_S = 2.0


def ask(peer: Peer, operation: str, **arguments: Any) -> Any:
    reply = peer.ask(operation, **arguments)
    assert reply.error is None, reply.error
    return reply.result


def open_group(peer: Peer, name: str = "trip", **more: Any) -> None:
    condition: dict[str, Any] = {"is": "at_least", "count": None, "parts": []}
    ask(peer, "agent.open", group=name, name=name, condition=condition, grace_s=GRACE_S, **more)


def enter(peer: Peer, name: str, group: str = "trip", lease_s: float = 3_600.0, **more: Any) -> str:
    made = {"group": group, "cookie": f"cookie of {group} {name}", "name": name, "lease_s": lease_s}
    return str(ask(peer, "agent.enter", **made, **more)["agent"])


def show(peer: Peer, group: str = "trip") -> GroupInfo:
    return msgspec.convert(ask(peer, "agent.show", group=group), GroupInfo)


def logged(rig: Rig, kind: str) -> list[str]:
    """The agents of the events of this type in the log."""
    events = [event for one in rig.stored for event in Batch(one.raw)]
    return [str(one.attributes["agent"]) for one in events if one.type == f"agent.{kind}"]


def crowd(rig: Rig, **more: Any) -> tuple[Peer, list[str]]:
    owner = rig.peer("o")
    open_group(owner)
    return owner, [enter(owner, str(number), **more) for number in range(MANY)]


def test_others_do_not_wait_while_a_crowd_is_renewed_shown_released_and_ended() -> None:
    rig = sliced()
    owner, agents = crowd(rig)
    light = rig.peer("l")
    settle(rig)
    named = {"which": "trip"}
    for operation, arguments in (
        ("agent.extend", named),
        ("agent.show", {"group": "trip"}),
        ("agent.exempt", named),
        ("agent.stop", named),
    ):
        owner.request(operation, **arguments)
        assert ticks_until_pong(rig, light) <= 3, operation
        assert len(rig.broker.turns), f"{operation} was done in one turn"
        settle(rig)
    assert sorted(logged(rig, "stop")) == sorted(agents)
    assert sorted(logged(rig, "released")) == sorted(agents)


def test_a_stop_is_answered_when_all_its_orders_are_kept() -> None:
    rig = sliced()
    owner = rig.peer("o")
    open_group(owner)
    parent = enter(owner, "parent")
    children = [enter(owner, str(number), parent=parent) for number in range(MANY)]
    other = enter(owner, "other")
    settle(rig)
    ask(owner, "agent.stop", which=parent)
    rig = rig.restart()
    states = {one.agent: one.state for one in show(rig.peer("o", 2)).agents}
    assert states == {**dict.fromkeys([parent, *children], "ending"), other: "running"}


def test_the_end_of_a_group_goes_on_after_a_restart_in_the_middle_of_it() -> None:
    rig = sliced()
    owner, agents = crowd(rig)
    settle(rig)
    owner.request("agent.stop", which="trip")
    while not logged(rig, "stop"):
        rig.tick()
        rig.sync()
    told = logged(rig, "stop")
    assert len(told) < MANY / 2
    rig = rig.restart()
    rig.run()
    assert sorted(logged(rig, "stop")) == sorted(agents)  # each once
    watcher = rig.peer("o", 2)
    assert {one.reason for one in show(watcher).agents} == {"user"}
    rig.pass_time(GRACE_S + CONFIRM_S + 1)
    assert show(watcher).phase == "ended"


def test_leases_that_end_at_the_same_moment_end_agents_in_steps() -> None:
    rig = Rig()
    owner, agents = crowd(rig, lease_s=60.0)
    rig.now += 60.5
    rig.broker.wake(rig.now)
    assert len(rig.broker.turns)
    rig.tick()
    rig.sync()
    rig.run()
    assert sorted(logged(rig, "ended")) == sorted(agents)
    ends = [(one.state, one.lost) for one in show(owner).agents]
    assert ends == [("ended", True)] * MANY
    assert MANY > CALLED_AT_ONCE > AT_ONCE


def test_groups_within_groups_end_from_the_top_to_the_bottom_and_back_however_deep() -> None:
    rig = Rig()
    owner = rig.peer("o")
    open_group(owner, "0")
    for number in range(1, MANY):
        above = str(number - 1)
        member = enter(owner, "below", above, kind="group")
        open_group(owner, str(number), parent=member, parent_cookie=f"cookie of {above} below")
    ask(owner, "agent.stop", which="0")
    rig.run()
    groups = ask(owner, "agent.list")
    assert len(groups) == MANY
    assert {(one["phase"], one["reason"]) for one in groups} == {("ended", "user")}


def test_a_group_that_has_ended_ends_its_member_after_a_restart_in_between() -> None:
    rig = Rig()
    owner = rig.peer("o")
    open_group(owner, "top")
    member = enter(owner, "below", "top", kind="group")
    open_group(owner, "below", parent=member, parent_cookie="cookie of top below", timeout_s=10)
    rig.core.agents._homes._is_working = True  # nothing follows any more, as if the node stopped
    rig.pass_time(11)
    assert show(owner, "below").phase == "ended"
    assert show(owner, "top").running == 1
    rig = rig.restart()
    rig.run()
    assert show(rig.peer("o", 2), "top").running == 0


def test_a_member_stands_for_one_group_at_a_time() -> None:
    rig = Rig()
    owner = rig.peer("o")
    open_group(owner, "top", budget={"usd": 5})
    member = enter(owner, "below", "top", kind="group", share={"usd": 2})
    speaks = {"parent": member, "parent_cookie": "cookie of top below"}
    open_group(owner, "first", **speaks)
    condition = {"is": "at_least", "count": 1, "parts": []}
    reply = owner.ask("agent.open", group="second", name="second", condition=condition, **speaks)
    assert reply.error is not None
    assert "it stands for another group already" in str(reply.error)

"""What a node makes of forged events, and of a wall clock that jumps: nobody ends, no money moves."""

from __future__ import annotations

import msgspec
import pytest
from agents.test_many import GRACE_S, ask, enter, open_group, show
from protocol.rig import Rig, event, with_header

from tidings.agents.events import AnyHappening, Closed, Ended, Granted, Ordered, Resulted, Spent
from tidings.agents.homes import CONFIRM_S
from tidings.agents.picture import happening_of
from tidings.event import Batch

FORGED: list[AnyHappening] = [
    Resulted(agent="trip.1", result=msgspec.Raw(b"1")),
    Granted(agent="trip.1", amounts={"usd": 1_000_000}),
    Spent(agent="trip.1", amounts={"usd": 1_000_000}),
    Ordered(agent="trip.1", reason="user", grace_s=0),
    Ended(agent="trip.1", reason="done", lost=True),
    Closed(reason="user"),
]


@pytest.mark.parametrize("forged", FORGED, ids=lambda one: type(one).__name__.lower())
def test_an_event_that_a_client_publishes_as_one_of_a_group_changes_nothing(forged: AnyHappening) -> None:
    rig = Rig()
    owner, forger = rig.peer("o"), rig.peer("f")
    open_group(owner, budget={"usd": 5})
    enter(owner, "hotel", share={"usd": 2})
    before = show(owner)
    kind = f"agent.{type(forged).__struct_config__.tag}"
    made = event(1, kind, group="trip", group_name="trip", agent="trip.1", agent_name="hotel", life=1)
    made = msgspec.structs.replace(made, body=msgspec.json.encode(forged))
    forger.publish(with_header(made, delivery="persistent"))
    rig.run()
    assert forger.accepted == [1]
    after = show(owner)
    (one,), (other,) = before.agents, after.agents
    assert msgspec.structs.replace(after, agents=[]) == msgspec.structs.replace(before, agents=[])
    assert msgspec.structs.replace(other, lease_left_s=one.lease_left_s) == one


@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0, 1e9])
def test_a_wall_clock_that_jumps_neither_ends_nor_prolongs_anything(jump_s: float) -> None:
    rig = Rig()
    owner = rig.peer("o")
    times = {"notice_s": 10, "check_s": 25, "delay_s": 2, "losses": 1}
    opening = {"group": "trip", "name": "trip", "condition": {"is": "at_least", "count": 1, "parts": []}}
    limits = {"budget": {"usd": 100}, "timeout_s": 50, "grace_s": 2.0, "rates": {"usd": 1}}
    ask(owner, "agent.open", **opening, **limits, alive=times)
    agent = enter(owner, "hotel", lease_s=60.0, share={"usd": 50})
    life = {"agent": agent, "life": 1, "cookie": "cookie of trip hotel"}
    rig.pass_time(10)
    rig.broker.shift += jump_s
    rig.pass_time(10)
    terms = ask(owner, "agent.renew", **life)
    assert terms["goes_on"]
    assert terms["budget"] == {"usd": 30}  # 20 s of existence
    rig.pass_time(20)
    assert show(owner).agents[0].state == "running"
    rig.pass_time(6)  # not heard of for 26 s
    assert (show(owner).agents[0].state, show(owner).agents[0].reason) == ("ending", "orphan")
    assert show(owner).phase == "open"
    rig.pass_time(60)
    assert (show(owner).phase, show(owner).reason) == ("ended", "time")


def test_an_agent_that_ends_before_the_clock_was_put_back_has_lived_for_no_time_and_not_for_less() -> None:
    rig = Rig()
    owner = rig.peer("o")
    open_group(owner)
    agent = enter(owner, "hotel")
    rig.broker.shift -= 3_600
    ask(owner, "agent.leave", agent=agent, life=1, cookie="cookie of trip hotel")
    told = [happening_of(event) for one in rig.stored for event in Batch(one.raw)]
    (ended,) = (one for one in told if isinstance(one, Ended))
    assert ended.lived_us == 0


def test_what_is_refused_is_counted_by_its_reason_and_changes_nothing() -> None:
    rig = Rig()
    owner = rig.peer("o")
    open_group(owner, budget={"usd": 10})
    agent = enter(owner, "one", share={"usd": 4})
    life = {"agent": agent, "life": 1, "cookie": "cookie of trip one"}
    before = show(owner)
    spend, share = {**life, "step": 1}, {"group": "trip", "cookie": "another cookie here"}
    for operation, arguments, problem in (
        ("agent.spend", {**spend, "amounts": {"usd": 5}}, "has 4 usd left, which is less than 5"),
        ("agent.spend", {**spend, "amounts": {"usd": -1}}, "is from 0 to"),
        ("agent.spend", {**spend, "amounts": {"usd": "much"}}, "is a number, not 'much'"),
        ("agent.spend", {**spend, "amounts": {"usd": 1}, "life": 2}, "life 2 is over"),
        ("agent.spend", {**spend, "amounts": {"usd": 1}, "cookie": "a forged one, or copied"}, "own cookie"),
        ("agent.enter", {**share, "parent": agent, "share": {"usd": 5}}, "has 4 usd left"),
        ("agent.enter", {**share, "group": "other"}, "there is no such group"),
        ("agent.result", {**life, "result": b"forged"}, "its result is no JSON"),
    ):
        reply = owner.ask(operation, **arguments)
        assert problem in str(reply.error), (operation, arguments)
    assert show(owner) == before
    counted = {
        why: rig.broker.tallies["agent_refusals", why] for why in ("budget", "life", "unknown", "other")
    }
    assert counted == {"budget": 2, "life": 2, "unknown": 1, "other": 3}


def test_an_agent_that_never_yields_is_lost_after_its_grace_and_its_group_ends() -> None:
    """It does not end when it is ordered to, while its location renews its lease."""
    rig = Rig()
    owner = rig.peer("o")
    open_group(owner, budget={"usd": 10})
    agent = enter(owner, "busy", share={"usd": 4})
    life = {"agent": agent, "life": 1, "cookie": "cookie of trip busy"}
    ask(owner, "agent.stop", which="trip")
    rig.pass_time(GRACE_S)
    assert ask(owner, "agent.renew", **life)["goes_on"] is False
    assert show(owner).phase == "ending"
    rig.pass_time(CONFIRM_S)
    found = show(owner)
    assert (found.phase, found.agents[0].lost, found.agents[0].problem) == (
        "ended",
        True,
        "it did not say that it had ended",
    )
    assert (found.written_off, found.refunded) == ({"usd": 4}, {"usd": 6})

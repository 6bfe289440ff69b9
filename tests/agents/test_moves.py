"""Agents on their way: their home need not hear that they have left, and loses nothing by that."""

from __future__ import annotations

from typing import Any

from agents.test_many import ask, enter, open_group, show
from protocol.rig import Peer, Rig

from tidings.agents.arguments import AgentInfo

COOKIE = "cookie of trip hotel"


class Traveller:
    """A mobile agent with 4 usd, which its first location has."""

    def __init__(self, **options: Any) -> None:
        self.rig = Rig()
        self.owner: Peer = self.rig.peer("o")
        open_group(self.owner, budget={"usd": 10}, **options)
        self.agent = enter(self.owner, "hotel", kind="mobile", share={"usd": 4})
        self.arrive(1, "begin")

    def life(self, life: int, where: str = "node a") -> dict[str, Any]:
        return {"agent": self.agent, "life": life, "cookie": COOKIE, "where": where}

    def arrive(self, packed: int, step: str, where: str = "node a") -> Any:
        return ask(self.owner, "agent.arrive", **self.life(packed, where), what=step)

    def report(self, life: int) -> None:
        """Say that it has left, as its location does with several at once."""
        left = {**self.life(life, "on its way to b"), "rests_s": 0.0, "what": "look"}
        unknown = {**left, "agent": "trip.9"}
        ask(self.owner, "agent.rest-all", group="trip", lives=[unknown, left])

    @property
    def info(self) -> AgentInfo:
        return show(self.owner).agents[0]


def test_an_agent_that_arrives_before_its_home_has_heard_that_it_left_is_there_and_not_on_its_way() -> None:
    one = Traveller()
    assert one.arrive(2, "look", "node b")["life"] == 3
    assert (one.info.where, one.info.step, one.info.rests_until_us) == ("node b", "look", 0)
    one.report(2)
    assert (one.info.where, one.info.step, one.info.rests_until_us) == ("node b", "look", 0)


def test_an_agent_that_has_left_and_not_arrived_is_on_its_way_and_ends_at_once_with_its_group() -> None:
    one = Traveller()
    one.report(2)
    assert (one.info.where, one.info.step, one.info.rests_until_us > 0) == ("on its way to b", "look", True)
    ask(one.owner, "agent.stop", which="trip")
    assert (one.info.state, one.info.lost, show(one.owner).refunded) == ("ended", False, {"usd": 10})


def test_an_agent_that_is_ordered_to_end_on_its_way_ends_when_it_arrives_and_pays_back() -> None:
    one = Traveller()
    ask(one.owner, "agent.stop", which="trip")
    assert one.info.state == "ending"
    reply = one.owner.ask("agent.arrive", **one.life(2, "node b"), what="look")
    assert "it has been ended: user" in str(reply.error)
    group = show(one.owner)
    assert (group.phase, group.refunded, group.written_off) == ("ended", {"usd": 10}, {})


def test_an_agent_that_is_ordered_to_end_on_its_way_ends_when_its_home_hears_that_it_left() -> None:
    one = Traveller()
    ask(one.owner, "agent.stop", which="trip")
    one.report(2)
    assert (one.info.state, one.info.lost, show(one.owner).refunded) == ("ended", False, {"usd": 10})


def test_a_copy_of_an_agent_does_not_end_it() -> None:
    one = Traveller()
    one.arrive(2, "look", "node b")
    ask(one.owner, "agent.stop", which="trip")
    reply = one.owner.ask("agent.arrive", **one.life(1, "node c"), what="look")
    assert "it is a copy" in str(reply.error)
    assert one.info.state == "ending"


def test_an_agent_pays_for_the_time_of_its_steps_and_not_for_its_rests() -> None:
    one = Traveller(rates={"usd": 0.25}, step_rates={"usd": 0.5})
    paid = one.info.spent["usd"]
    one.rig.pass_time(2)
    one.arrive(2, "look", "node b")
    assert one.info.spent["usd"] == paid + 2 * 0.25 + 0.5
    ask(one.owner, "agent.rest", **one.life(3), rests_s=4.0, what="look")
    one.rig.pass_time(4)
    one.arrive(3, "look")
    assert one.info.spent["usd"] == paid + 2 * 0.25 + 2 * 0.5

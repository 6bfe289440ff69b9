"""The ledger of a group: money, lives and ends, exact cases and properties."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tidings.agents.amounts import MICRO, Amounts, amounts_of, shown
from tidings.agents.conditions import AnyCondition, all_of, any_of, at_least
from tidings.agents.events import AnyHappening, Closed, Ended, Ending, Entered, Opened, Ordered
from tidings.agents.kept_tree import changed_by
from tidings.agents.ledger import GroupLedger
from tidings.agents.records import AgentRecord
from tidings.agents.views import published
from tidings.errors import AgentError, BudgetExceeded, GroupEnded, LifeEnded, TidingsError, UserError


class Desk:
    """A ledger with all that has happened in it."""

    def __init__(
        self, condition: AnyCondition, budget: dict[str, float] | None = None, soft: float = 0.2
    ) -> None:
        first = Opened(
            group="g",
            name="trip",
            user="ann",
            condition=condition,
            grace_s=5.0,
            budget=amounts_of(budget),
            soft=soft,
        )
        self.ledger = GroupLedger.opened(first)
        self.events: list[AnyHappening] = [first]
        self.now_us = 0

    def note(self, happened: list[AnyHappening]) -> list[AnyHappening]:
        self.events += happened
        return happened

    def enter(self, name: str, share: dict[str, float] | None = None, parent: str = "") -> AgentRecord:
        happened = self.ledger.enter(
            name, parent=parent, cookie=name, lease_s=30.0, share=amounts_of(share), now_us=self.now_us
        )
        self.note(happened)
        entered = happened[0]
        assert isinstance(entered, Entered)
        return self.ledger.members[entered.agent]

    def spend(self, agent: AgentRecord, **amounts: float) -> list[AnyHappening]:
        return self.note(self.ledger.spend(agent, amounts_of(amounts), "", self.now_us))

    def done(self, agent: AgentRecord) -> list[AnyHappening]:
        return self.note(self.ledger.result(agent, b"1", False, self.now_us))

    def leave(self, agent: AgentRecord, lost: bool = False) -> list[AnyHappening]:
        return self.note(self.ledger.leave(agent, "orphan" if lost else "done", self.now_us, lost=lost))

    def usd(self) -> dict[str, float]:
        totals = self.ledger.totals
        return {
            name: shown(getattr(totals, name)).get("usd", 0)
            for name in ("given", "spent", "refunded", "held", "written_off")
        }


def test_money_that_was_passed_on_spent_returned_and_lost() -> None:
    """100 given, 30 and 20 passed on; the first spends 12 and ends, the second is lost after 5."""
    desk = Desk(at_least(3), {"usd": 100})
    first, second = desk.enter("first", {"usd": 30}), desk.enter("second", {"usd": 20})
    desk.spend(first, usd=12)
    desk.leave(first)
    desk.spend(second, usd=5)
    desk.leave(second, lost=True)
    assert desk.usd() == {"given": 100, "spent": 17, "refunded": 0, "held": 68, "written_off": 15}
    assert shown(desk.ledger.group.account.held) == {"usd": 68}
    desk.note(desk.ledger.end("user", 1))
    assert desk.usd() == {"given": 100, "spent": 17, "refunded": 68, "held": 0, "written_off": 15}


def test_the_end_of_an_agent_tells_what_it_has_spent_what_it_held_and_how_long_it_lived() -> None:
    desk = Desk(at_least(3), {"usd": 100})
    first, second = desk.enter("first", {"usd": 30}), desk.enter("second", {"usd": 20})
    desk.spend(first, usd=12)
    desk.spend(first, usd=1)
    desk.now_us = 7_000_000
    ((one, *_), (other, *_)) = desk.leave(first), desk.leave(second, lost=True)
    assert isinstance(one, Ended)
    assert isinstance(other, Ended)
    assert (shown(one.spent), shown(one.held), one.lived_us) == ({"usd": 13}, {"usd": 17}, 7_000_000)
    assert (shown(other.spent), shown(other.held), other.lost) == ({}, {"usd": 20}, True)
    event = published(desk.ledger, one)
    assert (event["spent.usd"], event["lived_s"]) == (13.0, 7.0)


def test_of_three_one_has_a_result_and_the_others_end_with_the_grandchild_that_is_being_started() -> None:
    desk = Desk(any_of())
    first, second, third = (desk.enter(name) for name in ("first", "second", "third"))
    grandchild = desk.enter("grandchild", parent=second.agent)  # entered, and not started yet
    happened = desk.done(first)
    orders = [one for one in happened if isinstance(one, Ordered)]
    assert {one.agent for one in orders} == {one.agent for one in (first, second, third, grandchild)}
    assert {one.reason for one in orders} == {"condition"}
    with pytest.raises(GroupEnded):
        desk.enter("another", parent=third.agent)
    for one in (first, second, third, grandchild):
        happened = desk.leave(one)
    assert isinstance(happened[-1], Closed)
    assert desk.ledger.group.phase == "ended"
    assert [one.reason for one in desk.ledger.members.values()] == ["done", *["condition"] * 3]


def test_a_child_of_one_that_is_being_stopped_is_refused_and_those_before_it_end_too() -> None:
    desk = Desk(all_of())
    parent = desk.enter("parent")
    child = desk.enter("child", parent=parent.agent)
    grandchild = desk.enter("grandchild", parent=child.agent)
    other = desk.enter("other")
    desk.note(desk.ledger.stop(parent, "user", 0))
    assert [one.state for one in (parent, child, grandchild, other)] == ["ending"] * 3 + ["running"]
    with pytest.raises(LifeEnded):
        desk.enter("late", parent=child.agent)


def test_an_agent_whose_parent_has_ended_lives_on_and_its_money_goes_to_the_group() -> None:
    desk = Desk(at_least(9), {"usd": 10})
    parent = desk.enter("parent", {"usd": 6})
    child = desk.enter("child", {"usd": 4}, parent=parent.agent)
    desk.leave(parent)
    assert child.state == "running"
    desk.spend(child, usd=1)
    desk.leave(child)
    assert shown(desk.ledger.group.account.held) == {"usd": 9}


def test_a_life_that_has_ended_or_was_replaced_is_refused() -> None:
    desk = Desk(at_least(9))
    agent = desk.enter("a")
    ledger = desk.ledger
    assert ledger.living(agent.agent, 1, "a") is agent
    with pytest.raises(LifeEnded, match="own cookie"):
        ledger.living(agent.agent, 1, "stolen")
    with pytest.raises(LifeEnded, match="own cookie"):
        ledger.living(agent.agent, 1, "a", user="eve")
    desk.note(ledger.restart(agent.agent, "a", "node-b", 0))
    with pytest.raises(LifeEnded, match="life 1 is over; the agent has life 2"):
        ledger.living(agent.agent, 1, "a")
    desk.leave(agent)
    with pytest.raises(LifeEnded, match="it has ended: done"):
        ledger.living(agent.agent, 2, "a")
    with pytest.raises(LifeEnded):
        ledger.restart(agent.agent, "a", "node-b", 0)


def test_a_restart_does_not_reset_a_budget() -> None:
    desk = Desk(at_least(9), {"usd": 10})
    agent = desk.enter("a", {"usd": 5})
    desk.spend(agent, usd=4)
    desk.note(desk.ledger.restart(agent.agent, "a", "", 0))
    with pytest.raises(BudgetExceeded, match="has 1 usd left, which is less than 2"):
        desk.spend(agent, usd=2)


def test_a_hundred_children_that_spend_at_once_never_overspend() -> None:
    desk = Desk(at_least(999), {"usd": 100})
    children = [desk.enter(str(number), {"usd": 1}) for number in range(100)]
    with pytest.raises(BudgetExceeded):
        desk.enter("one more", {"usd": 0.000001})
    for _ in range(4):
        for child in children:
            try:
                desk.spend(child, usd=0.3)
            except BudgetExceeded:
                continue
    assert desk.usd() == {"given": 100, "spent": 90, "refunded": 0, "held": 10, "written_off": 0}


def test_at_the_soft_limit_there_is_one_warning_and_at_the_hard_one_the_end() -> None:
    desk = Desk(at_least(9), {"usd": 10})
    agent = desk.enter("a", {"usd": 10})
    kinds = [[type(one).__name__ for one in desk.spend(agent, usd=amount)] for amount in (7, 2, 0.5, 0.5)]
    assert kinds == [["Spent"], ["Spent", "Low"], ["Spent"], ["Spent", "Ordered"]]
    assert (agent.state, agent.reason) == ("ending", "budget")
    with pytest.raises(LifeEnded):
        desk.enter("child", parent=agent.agent)


def test_one_that_runs_low_gets_more_from_its_parent_or_nothing_at_all() -> None:
    desk = Desk(at_least(9), {"usd": 10, "tokens": 5})
    parent = desk.enter("parent", {"usd": 6})
    child = desk.enter("child", {"usd": 1}, parent=parent.agent)
    desk.note(desk.ledger.grant(child, amounts_of({"usd": 2}), 0))
    assert (shown(parent.account.held), shown(child.account.held)) == ({"usd": 3}, {"usd": 3})
    with pytest.raises(BudgetExceeded):
        desk.ledger.grant(child, amounts_of({"usd": 1, "tokens": 1}), 0)
    assert shown(parent.account.held) == {"usd": 3}


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "5", None, True, 10**13])
def test_an_amount_that_is_negative_or_no_number_is_refused(value: object) -> None:
    with pytest.raises(UserError, match=r"budget\['usd'\]"):
        amounts_of({"usd": value})


def test_a_result_that_can_never_come_ends_the_group() -> None:
    desk = Desk(any_of())
    agent = desk.enter("a")
    desk.note(desk.ledger.seal(0))
    happened = desk.leave(agent)
    assert [type(one) for one in happened] == [Ended, Ending, Closed]
    assert desk.ledger.group.reason == "error"
    assert desk.ledger.group.problem == "the condition can't be met any more"


class AnyGroup(RuleBasedStateMachine):
    """Whatever members do: money is conserved, nobody slips through, and the events are the state."""

    @initialize(condition=st.sampled_from([any_of(), all_of(), at_least(3)]))
    def begin(self, condition: AnyCondition) -> None:
        self.desk = Desk(condition, {"usd": 100, "tokens": 50})
        self.kept: dict[str, bytes] = {}
        self.kept_events = 0

    def _pick(self, number: int) -> AgentRecord | None:
        members = list(self.desk.ledger.members.values())
        return members[number % len(members)] if members else None

    def _try(self, act: object, *arguments: object) -> bool:
        try:
            self.desk.note(act(*arguments))  # type: ignore[operator]
        except AgentError:
            return False
        return True

    @rule(share=st.integers(0, 60), parent=st.none() | st.integers(0, 20))
    def enter(self, share: int, parent: int | None) -> None:
        above = None if parent is None else self._pick(parent)
        was_open = self.desk.ledger.group.phase == "open"
        try:
            self.desk.enter("x", {"usd": share / 4}, above.agent if above else "")
        except TidingsError:
            return
        assert was_open

    @rule(number=st.integers(0, 20), usd=st.integers(0, 40), tokens=st.integers(0, 3))
    def spend(self, number: int, usd: int, tokens: int) -> None:
        agent = self._pick(number)
        if agent is not None and agent.state != "ended":
            amounts: Amounts = {"usd": usd * MICRO // 4, "tokens": tokens * MICRO}
            self._try(self.desk.ledger.spend, agent, amounts, "", 0)

    @rule(number=st.integers(0, 20), usd=st.integers(0, 40))
    def grant(self, number: int, usd: int) -> None:
        agent = self._pick(number)
        if agent is not None and agent.state != "ended":
            self._try(self.desk.ledger.grant, agent, {"usd": usd * MICRO}, 0)

    @rule(number=st.integers(0, 20), partial=st.booleans())
    def result(self, number: int, partial: bool) -> None:
        agent = self._pick(number)
        if agent is not None and agent.state != "ended":
            self._try(self.desk.ledger.result, agent, b"1", partial, 0)

    @rule(number=st.integers(0, 20), lost=st.booleans())
    def leave(self, number: int, lost: bool) -> None:
        agent = self._pick(number)
        if agent is not None:
            self.desk.leave(agent, lost)

    @rule(number=st.integers(0, 20))
    def stop(self, number: int) -> None:
        agent = self._pick(number)
        if agent is not None:
            self._try(self.desk.ledger.stop, agent, "user", 0)

    @rule()
    def seal(self) -> None:
        self._try(self.desk.ledger.seal, 0)

    @rule()
    def end(self) -> None:
        self._try(self.desk.ledger.end, "time", 0)

    @invariant()
    def money_is_conserved(self) -> None:
        ledger = self.desk.ledger
        assert ledger.totals.is_conserved, ledger.totals
        assert ledger.totals == ledger.summed()

    @invariant()
    def conditions_see_what_is_there(self) -> None:
        ledger = self.desk.ledger
        restored = GroupLedger(ledger.group, ledger.members.values())
        assert restored.facts.outcomes == ledger.facts.outcomes
        assert restored.facts.named == ledger.facts.named
        assert all(one.account.is_sound for one in ledger.members.values())
        assert ledger.group.account.is_sound

    @invariant()
    def nobody_slips_through(self) -> None:
        ledger = self.desk.ledger
        if ledger.group.phase != "open":
            assert all(one.state != "running" for one in ledger.members.values())
        if ledger.group.phase == "ended":
            assert not ledger.running
            assert not any(ledger.totals.held.values())

    @invariant()
    def every_end_has_a_reason(self) -> None:
        for one in self.desk.ledger.members.values():
            assert (one.reason is None) is (one.state == "running")

    @invariant()
    def records_that_no_event_has_changed_are_those_that_were_stored(self) -> None:
        ledger = self.desk.ledger
        records = {"": ledger.group, **ledger.members}
        for event in self.desk.events[self.kept_events :]:
            self.kept |= {one: msgspec.json.encode(records[one]) for one in changed_by(ledger, event)}
        self.kept_events = len(self.desk.events)
        assert self.kept == {one: msgspec.json.encode(record) for one, record in records.items()}

    @invariant()
    def the_events_are_the_state(self) -> None:
        again = GroupLedger.replay(self.desk.events)
        assert msgspec.json.encode(again.group) == msgspec.json.encode(self.desk.ledger.group)
        assert msgspec.json.encode(list(again.members.values())) == msgspec.json.encode(
            list(self.desk.ledger.members.values())
        )


TestAnyGroup = AnyGroup.TestCase

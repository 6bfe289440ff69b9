"""Groups of agents with a node: in this process, and as processes that are killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from effort import patience

import tidings
from tidings.agents import all_of, any_of, at_least, seen
from tidings.agents.arguments import GroupInfo
from tidings.agents.orphans import AliveTimes
from tidings.client import Bus
from tidings.client.agent import Agent
from tidings.client.agents import location, new_cookie
from tidings.errors import (
    AgentError,
    BudgetExceeded,
    GroupEnded,
    GroupNotFound,
    LifeEnded,
    Refused,
    UserError,
)
from tidings.testing.node_process import NodeProcess
from tidings.transport.link import Link

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    async def limited() -> T:
        async with asyncio.timeout(patience(15)):
            return await work

    return asyncio.run(limited())


async def forever(agent: Agent) -> None:
    await asyncio.Event().wait()


async def answer(agent: Agent, value: object, usd: float = 0) -> object:
    if usd:
        await agent.spend(usd=usd)
    return value


def reasons(info: GroupInfo) -> dict[str, str | None]:
    return {one.name: one.reason for one in info.agents}


def test_one_result_ends_the_others_and_a_grandchild_that_is_being_started() -> None:
    async def parent(agent: Agent) -> None:
        await agent.spawn(forever, name="grandchild")
        await asyncio.Event().wait()

    async def work() -> GroupInfo:
        async with tidings.open() as bus, bus.group("trip", any_of()) as group:
            await group.spawn(forever, name="first")
            await group.spawn(parent, name="second")
            while group.info.members < 3:
                await asyncio.sleep(0.01)
            await group.spawn(answer, 42, name="third")
        assert group.results == {"third": 42}
        return group.info

    info = run(work())
    assert (info.phase, info.reason) == ("ended", "condition")
    assert reasons(info) == {
        "first": "condition",
        "second": "condition",
        "grandchild": "condition",
        "third": "done",
    }


@pytest.mark.parametrize("turns", range(8))
def test_an_agent_whose_start_is_given_up_has_left_and_its_money_is_back(turns: int) -> None:
    async def work() -> GroupInfo:
        async with tidings.open() as bus, bus.group("trip", budget={"usd": 10}) as group:
            starting = asyncio.ensure_future(group.spawn(forever, name="child", budget={"usd": 4}))
            for _ in range(turns):  # of the loop: until it is asked for, entered, begun
                await asyncio.sleep(0)
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                (await starting).stop()
        return group.info

    info = run(work())
    assert (info.refunded, info.written_off) == ({"usd": 10}, {})
    assert not any(one.lost for one in info.agents)


def test_an_agent_that_is_ordered_to_end_before_it_begins_leaves_and_does_nothing() -> None:
    begun = []

    async def noted(agent: Agent) -> None:
        begun.append(agent.name)

    async def work() -> GroupInfo:
        async with tidings.open() as bus, bus.group("trip", budget={"usd": 10}) as group:
            (await group.spawn(noted, budget={"usd": 4})).stop()
        return group.info

    info = run(work())
    assert begun == []
    assert reasons(info) == {"noted": "user"}
    assert (info.refunded, info.written_off) == ({"usd": 10}, {})


def test_a_group_in_which_nobody_was_started_ends_with_its_block() -> None:
    async def work() -> GroupInfo:
        async with tidings.open() as bus, bus.group("trip", budget={"usd": 10}) as group:
            pass
        return group.info

    info = run(work())
    assert (info.phase, info.reason, info.refunded) == ("ended", "condition", {"usd": 10})


def test_a_time_out_ends_the_members_and_not_only_the_waiting() -> None:
    ended = []

    async def stubborn(agent: Agent) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await agent.result("half of it", partial=True)
            ended.append(agent.stop_reason)

    async def work() -> Any:
        async with tidings.open() as bus, bus.group("trip", timeout_s=0.05) as group:
            await group.spawn(stubborn)
        return group

    group = run(work())
    assert ended == ["time"]
    assert group.results == {"stubborn": "half of it"}
    assert group.reason == "time"


def test_all_members_conditions_by_name_and_functions() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            async with bus.group("all", all_of()) as group:
                for number in range(3):
                    await group.spawn(answer, number, name=str(number))
            assert group.results == {"0": 0, "1": 1, "2": 2}
            async with bus.group("named", any_of("a", all_of("b", "c"))) as group:
                for name in "bcd":
                    await group.spawn(
                        answer if name != "d" else forever, *([] if name == "d" else [1]), name=name
                    )
            assert group.reason == "condition"
            async with bus.group("own", lambda info: sum(one.done for one in info.agents) == 2) as group:
                await group.spawn(answer, 1, name="a")
                await group.spawn(answer, 2, name="b")
                await group.spawn(forever)
            assert group.reason == "condition"

    run(work())


def test_events_of_the_group_meet_a_condition() -> None:
    async def find(agent: Agent, bus: Bus, group: str) -> None:
        for price in (300, 80, 90):
            await bus.publish("found", price=price, group=group)
        await asyncio.Event().wait()

    async def work() -> None:
        async with tidings.open() as bus:
            async with bus.group("market", seen("type = 'found' AND price < 100", 2)) as group:
                await group.spawn(find, bus, group.id)
            assert group.reason == "condition"

    run(work())


def test_an_error_is_the_reason_and_a_condition_that_cannot_be_met_any_more_ends_the_group() -> None:
    async def fail(agent: Agent) -> None:
        raise ValueError("no such hotel")

    async def work() -> GroupInfo:
        async with tidings.open() as bus, bus.group("trip", at_least(2)) as group:
            await group.spawn(fail)
            await group.spawn(forever)
        return group.info

    info = run(work())
    assert (info.reason, info.problem) == ("error", "the condition can't be met any more")
    assert (info.agents[0].reason, info.agents[0].problem) == ("error", "ValueError: no such hotel")
    assert reasons(info)["forever"] == "error"


def test_money_moves_down_and_back_and_the_hard_limit_ends_an_agent() -> None:
    refused = []

    async def parent(agent: Agent) -> str:
        try:
            await agent.spawn(answer, 1, 0, budget={"usd": 3.5})
        except BudgetExceeded as error:
            refused.append(str(error))
        child = await agent.spawn(answer, 1, 0.5, budget={"usd": 1})
        await child.wait()
        assert agent.budget == {"usd": 3}
        await agent.spend(usd=1)
        await agent.ask_for(usd=2)
        return "done"

    async def spender(agent: Agent) -> None:
        await agent.spend(usd=2)
        await asyncio.Event().wait()

    async def work() -> GroupInfo:
        async with tidings.open() as bus, bus.group("trip", any_of("parent"), budget={"usd": 10}) as group:
            await (await group.spawn(spender, budget={"usd": 2})).wait()
            await group.spawn(parent, budget={"usd": 3})
        return group.info

    info = run(work())
    assert refused == ["parent: has 3 usd left, which is less than 3.5"]
    assert reasons(info)["spender"] == "budget"
    money = info.given, info.spent, info.refunded, info.held, info.written_off
    assert [one.get("usd", 0) for one in money] == [10, 3.5, 6.5, 0, 0]


def test_existence_costs_what_the_group_says() -> None:
    async def work() -> GroupInfo:
        async with tidings.open() as bus:
            wanted = bus.group(
                "trip", budget={"seconds": 0.2}, rates={"seconds": 1}, lease_s=0.15, timeout_s=30
            )
            async with wanted as group:
                await group.spawn(forever, budget={"seconds": 0.2})
        return group.info

    info = run(work())
    assert reasons(info) == {"forever": "budget"}
    assert info.spent == {"seconds": 0.2}


def test_a_program_is_a_member_and_its_exit_code_is_its_result() -> None:
    async def work() -> GroupInfo:
        async with tidings.open() as bus:
            async with bus.group("programs", any_of()) as group:
                bad = await group.run("sh", "-c", "exit 3", name="bad")
                await group.run("sleep", "1000", name="long")
                missing = await group.run("no-such-program-here", name="missing")
                await asyncio.gather(bad.wait(), missing.wait())
                await group.run("sh", "-c", 'test -n "$TIDINGS_AGENT"', name="good")
            assert group.results == {"good": {"exit": 0}}
        return group.info

    info = run(work())
    problems = {one.name: one.problem for one in info.agents}
    assert problems["bad"] == "exit code 3"
    assert problems["missing"] == "no-such-program-here: there is no such program"
    assert reasons(info)["long"] == "condition"


def test_a_block_that_raises_ends_its_group() -> None:
    async def work() -> GroupInfo:
        async with tidings.open() as bus:

            async def fail() -> None:
                async with bus.group("trip") as group:
                    await group.spawn(forever)
                    raise KeyError

            with pytest.raises(KeyError):
                await fail()
            return await bus.group_info("trip")

    info = run(work())
    assert (info.phase, info.reason) == ("ended", "error")
    assert reasons(info) == {"forever": "error"}


def test_what_an_ended_life_a_forger_or_a_late_comer_does_is_refused() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            async with bus.group("trip", any_of()) as group:
                await group.spawn(answer, 1)
            agent = group.info.agents[0].agent
            life = {"agent": agent, "life": 1, "cookie": new_cookie()}
            for operation, more in (
                ("agent.renew", {}),
                ("agent.spend", {"amounts": {"usd": 1}}),
                ("agent.result", {"result": b"1"}),
                ("agent.leave", {}),
            ):
                with pytest.raises(LifeEnded, match="own cookie"):
                    await bus._link.call(operation, {**life, **more}, None)
            with pytest.raises(GroupEnded):
                await group.spawn(forever)
            async with bus.group("quick", any_of()) as quick:
                await (await quick.spawn(answer, 1)).wait()
                await quick.spawn(forever)  # the group has what it wants: the block ends here
                pytest.fail("nothing begins any more")
            assert quick.results == {"answer": 1}
            with pytest.raises(GroupNotFound):
                await bus.group_info("nothing")
            with pytest.raises(AgentError, match="no such agent"):
                await bus.stop_agents(f"{group.id}.99")

    run(work())


@pytest.mark.parametrize(
    "wrong",
    [
        {"budget": {"usd": -1}},
        {"budget": {"usd": float("nan")}},
        {"budget": {"u s d": 1}},
        {"grace_s": -1},
        {"soft": 2},
        {"timeout_s": 0},
    ],
)
def test_a_group_with_impossible_settings_is_refused(wrong: dict[str, Any]) -> None:
    async def work() -> None:
        async with tidings.open() as bus, bus.group("trip", **wrong):
            pass

    with pytest.raises((UserError, Refused)):
        run(work())


def test_each_step_is_an_event_in_the_log_with_its_reason() -> None:
    async def work() -> list[tuple[str, Any]]:
        async with tidings.open() as bus, bus.subscribe("STARTS_WITH(type, 'agent.')") as events:
            async with bus.group("trip", any_of(), budget={"usd": 1}) as group:
                await (await group.spawn(answer, 1, 0.5, name="a", budget={"usd": 1})).wait()
            found: list[tuple[str, Any]] = []
            async for event in events:
                found.append((event.type, event.attributes.get("reason")))
                if event.type == "agent.closed":
                    break
            assert "cookie" not in str(event.attributes)
            return found

    assert run(work()) == [
        ("agent.opened", None),
        ("agent.entered", None),
        ("agent.spent", None),
        ("agent.resulted", None),
        ("agent.ending", "condition"),
        ("agent.stop", "condition"),
        ("agent.ended", "done"),
        ("agent.closed", "condition"),
    ]


def test_a_group_survives_a_restart_of_its_node(tmp_path: Path) -> None:
    async def work() -> None:
        with NodeProcess(tmp_path) as node:
            async with tidings.connect(node.address) as bus:
                async with bus.group("trip", at_least(2), budget={"usd": 4}, lease_s=60) as group:
                    await group.spawn(answer, 1, 1, name="before", budget={"usd": 2})
                    while not (await group.refresh()).agents[0].ended_us:
                        await asyncio.sleep(0.01)
                    node.kill()
                    node.start()
                    await group.spawn(answer, 2, 1, name="after", budget={"usd": 2})
                info = group.info
                assert group.results == {"before": 1, "after": 2}
                assert (info.given, info.spent, info.refunded) == ({"usd": 4}, {"usd": 2}, {"usd": 2})

    run(work())


def test_a_loop_that_stands_still_for_ten_leases_loses_nobody(tmp_path: Path) -> None:
    """Renewals have a thread and a connection of their own."""
    lease_s = patience(0.6)

    async def blocking(agent: Agent) -> str:
        time.sleep(10 * lease_s)
        return "still here"

    async def work() -> GroupInfo:
        with NodeProcess(tmp_path) as node:
            async with tidings.connect(node.address) as bus:
                async with bus.group("trip", lease_s=lease_s) as group:
                    await group.spawn(blocking)
                return group.info

    info = run(work())
    assert reasons(info) == {"blocking": "done"}


def test_a_location_that_cannot_ask_ends_its_agents_when_the_lease_is_used_up(tmp_path: Path) -> None:
    stopped: list[str | None] = []

    async def lonely(agent: Agent) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(agent.stop_reason)

    async def work() -> None:
        with NodeProcess(tmp_path) as node:
            bus = tidings.connect(node.address, call_timeout_s=1)
            async with bus, bus.group("trip", lease_s=1.0, grace_s=0.1) as group:
                member = await group.spawn(lonely)
                node.kill()
                await member.wait()
                assert stopped == ["orphan"]
                node.start()
                while not bus.is_connected:
                    await asyncio.sleep(0.01)

    run(work())


def test_a_location_that_is_killed_loses_its_agents_and_their_money_is_written_off(tmp_path: Path) -> None:
    code = """
import asyncio, sys, tidings
async def forever(agent):
    await agent.spend(usd=5)
    print("there", flush=True)
    await asyncio.Event().wait()
async def main():
    async with tidings.connect(sys.argv[1]) as bus:
        async with bus.group("trip", budget={"usd": 100}, lease_s=0.5) as group:
            await group.spawn(forever, budget={"usd": 20})
asyncio.run(main())
"""

    async def work() -> GroupInfo:
        import sys

        with NodeProcess(tmp_path) as node:
            path = os.pathsep.join(sys.path)
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", code, node.address, stdout=-1, env={**os.environ, "PYTHONPATH": path}
            )
            assert process.stdout is not None
            await process.stdout.readline()
            process.kill()
            await process.wait()
            async with tidings.connect(node.address) as bus:
                while not (await bus.group_info("trip")).agents[0].ended_us:
                    await asyncio.sleep(0.02)
                await bus.stop_agents("trip")
                return await bus.group_info("trip")

    info = run(work())
    assert [(one.reason, one.lost) for one in info.agents] == [("orphan", True)]
    money = info.given, info.spent, info.refunded, info.held, info.written_off
    assert [one.get("usd", 0) for one in money] == [100, 5, 80, 0, 15]


def test_a_group_is_a_member_of_another_and_its_money_too() -> None:
    async def work() -> tuple[GroupInfo, GroupInfo]:
        async with tidings.open() as bus, bus.group("trip", all_of(), budget={"usd": 10}) as group:
            await group.spawn(answer, "hotel", 1, name="hotel", budget={"usd": 2})
            async with group.group("travel", any_of(), budget={"usd": 5}) as inner:
                await inner.spawn(forever, name="bus")
                await inner.spawn(answer, "train", 2, name="train", budget={"usd": 3})
        assert group.results == {"hotel": "hotel", "travel": {"train": "train"}}
        return group.info, inner.info

    outer, inner = run(work())
    assert (outer.reason, inner.reason) == ("condition", "condition")
    assert reasons(inner) == {"bus": "condition", "train": "done"}
    money = outer.given, outer.spent, outer.refunded, outer.held, outer.written_off
    assert [one.get("usd", 0) for one in money] == [10, 3, 7, 0, 0]


def test_a_group_ends_with_the_one_it_is_a_member_of() -> None:
    async def work() -> GroupInfo:
        trip = contextlib.AsyncExitStack()
        async with tidings.open() as bus, trip:
            group = await trip.enter_async_context(bus.group("trip", any_of()))
            inner = await trip.enter_async_context(group.group("travel", all_of()))
            await inner.spawn(forever)
            await group.spawn(answer, 1)
        return inner.info

    info = run(work())
    assert (info.phase, info.reason, reasons(info)) == ("ended", "condition", {"forever": "condition"})


def test_a_group_of_which_nobody_wants_to_know_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.agents.lease_watch.IDLE_S", 0.05)

    async def work() -> GroupInfo:
        async with tidings.open() as bus:
            group = bus.group("trip", any_of(), budget={"usd": 1})
            await bus._link.call("agent.open", group._wanted, None)
            while (info := await bus.group_info("trip")).phase != "ended":
                await asyncio.sleep(0.01)
            return info

    info = run(work())
    assert (info.reason, info.refunded) == ("orphan", {"usd": 1})


def test_a_condition_or_result_that_is_too_large_is_refused_and_nothing_else_suffers() -> None:
    async def large(agent: Agent) -> str:
        return "x" * 100_000

    async def odd(agent: Agent) -> object:
        return object()

    async def half(agent: Agent) -> str:
        return "x" * 30_000

    async def work() -> None:
        async with tidings.open() as bus:
            with pytest.raises(Refused, match="a condition has at most 16384 bytes"):
                await bus.group("wide", any_of(*(f"{number}" * 60 for number in range(900)))).__aenter__()
            async with bus.group("trip", any_of("half")) as group:
                await (await group.spawn(large)).wait()
                await (await group.spawn(odd)).wait()
                await group.spawn(half)
            problems = [one.problem for one in group.info.agents]
            assert "a result has at most 32768 bytes" in problems[0]
            assert "a result is something that JSON can be made of" in problems[1]
            assert group.results == {"half": "x" * 30_000}
            async with (
                bus.group("outer", all_of()) as outer,
                outer.group("inner", at_least(2)) as inner,
            ):
                await inner.spawn(half, name="a")
                await inner.spawn(half, name="b")
            assert outer.results == {"inner": {"results": 2}}

    run(work())


def test_a_restarted_node_ends_what_it_was_ending_and_its_time_out_counts_on(tmp_path: Path) -> None:
    async def stubborn(agent: Agent) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.2)

    async def work() -> GroupInfo:
        with NodeProcess(tmp_path) as node:
            async with tidings.connect(node.address) as bus:
                async with bus.group("trip", any_of(), timeout_s=1.5, lease_s=60) as group:
                    inner = await group.group("inner", all_of(), budget=None)
                    async with inner:
                        await inner.spawn(stubborn)
                        node.kill()
                        node.start()
                return group.info

    info = run(work())
    assert (info.phase, info.reason, reasons(info)) == ("ended", "time", {"inner": "time"})


def test_a_group_with_more_results_than_one_answer_holds_is_shown_whole_and_ends() -> None:
    async def half(agent: Agent) -> None:
        await agent.result("x" * 30_000, partial=True)
        await asyncio.Event().wait()

    async def work() -> GroupInfo:
        async with tidings.open() as bus, bus.group("large", any_of("nobody"), lease_s=60) as group:
            members = [await group.spawn(half, name=str(number)) for number in range(160)]
            while sum(one.result is not None for one in (await group.refresh()).agents) < len(members):
                await asyncio.sleep(0.05)
            await group.stop()
        assert len(group.results) == 160
        return group.info

    info = run(work())
    assert {(one.reason, one.lost) for one in info.agents} == {("user", False)}


def test_a_location_gives_notice_of_an_agent_that_says_nothing() -> None:
    """The lease would be renewed after 20 s at the earliest."""

    async def work() -> None:
        times = AliveTimes(notice_s=0.05, check_s=60, delay_s=1)
        async with (
            tidings.open() as bus,
            bus.subscribe("type = 'agent.alive' AND agent_name = 'still'") as notices,
            bus.group("trip", any_of(), alive=times, lease_s=60) as group,
        ):
            still = await group.spawn(forever, name="still")
            for _ in range(3):
                notice = await anext(notices)
                assert (notice["agent"], notice["where"]) == (still.id, location())
            await group.spawn(answer, 1)

    run(work())


def test_an_agent_whose_partner_never_shows_up_ends_as_an_orphan_with_a_last_step() -> None:
    async def hotel(agent: Agent) -> None:
        await agent.declare_partners("planner")
        try:
            await asyncio.Event().wait()
        finally:
            await agent.result(agent.stop_reason, partial=True)

    async def work() -> GroupInfo:
        times = AliveTimes(notice_s=0.05, check_s=0.2, delay_s=0.1)
        async with tidings.open() as bus, bus.group("trip", alive=times) as group:
            await group.spawn(hotel)
        assert group.results == {"hotel": "orphan"}
        return group.info

    assert reasons(run(work())) == {"hotel": "orphan"}


def test_times_that_tolerate_no_loss_are_refused_before_the_group_is_opened() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            with pytest.raises(UserError, match="check 21 s is too short"):
                bus.group("trip", alive=AliveTimes(10, 21, 2, 1))
            assert await bus.groups() == []

    run(work())


def test_a_location_asks_once_for_the_leases_of_all_its_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them has ended meanwhile, as the node knows: it alone ends here."""
    asked: list[tuple[str, int]] = []
    call = Link.call

    async def counting(self: Link, operation: str, arguments: dict[str, Any], *more: Any) -> Any:
        if operation.startswith("agent.renew"):
            asked.append((operation, len(arguments.get("lives", ()))))
        return await call(self, operation, arguments, *more)

    monkeypatch.setattr(Link, "call", counting)

    async def work() -> GroupInfo:
        async with tidings.open() as bus:
            async with bus.group("trip", any_of("last"), lease_s=patience(0.9), together=True) as group:
                members = [await group.spawn(forever, name=str(number)) for number in range(20)]
                while len(asked) < 2:
                    await asyncio.sleep(0.01)
                members[
                    7
                ]._agent._life.cookie = "another cookie than before"  # so it is refused, and no other
                while group.info.running == 20:
                    await asyncio.sleep(0.01)
                ended = [one.name for one in (await group.refresh()).agents if one.state == "ended"]
                assert ended == ["7"]
                await group.spawn(answer, 1, name="last")
            return group.info

    info = run(work())
    assert info.reason == "condition"
    assert {operation for operation, _ in asked} == {"agent.renew-all"}
    assert asked[0] == asked[1] == ("agent.renew-all", 20)

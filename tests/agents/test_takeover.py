"""A group whose home is gone for good: another node goes on with it, and it never has two homes."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agents.test_groups import forever
from agents.test_ledger import Desk
from agents.test_many import ask, enter, open_group, show
from agents.test_mobile import nodes_of, reaches, started
from cli.commands import run_command
from client.nodes import run
from protocol.rig import Rig

import tidings
from tidings import Event
from tidings.agents.arguments import GroupInfo, LeaseTerms
from tidings.agents.conditions import any_of
from tidings.agents.views import published
from tidings.client import Bus
from tidings.client.agent import Agent
from tidings.client.renewals import HeldLife
from tidings.errors import AgentError, TidingsError
from tidings.event.json import to_json
from tidings.node.assembly import CoreSettings
from tidings.peers.registry import Neighbours
from tidings.transport.credentials import Credentials


async def keep(bus: Bus, events: list[Event], ready: asyncio.Event) -> None:
    """Keep the events of a group at a node: a durable subscription has all from before it was opened."""
    kept = "type LIKE 'agent.%' AND group_name = 'trip'"
    async with bus.subscribe(kept, durable="keeper", acknowledge="client") as found:
        await found.in_force()
        ready.set()
        while True:
            events.append(await anext(found))


def sums(info: GroupInfo) -> dict[str, float]:
    kinds = "given", "spent", "refunded", "held", "written_off"
    return {kind: getattr(info, kind).get("usd", 0) for kind in kinds}


@pytest.mark.slow
def test_another_node_goes_on_with_a_group_whose_home_is_killed_and_its_money_adds_up(tmp_path: Path) -> None:
    async def work() -> None:
        async with AsyncExitStack() as held:
            nodes = nodes_of(tmp_path, "a", "b", "c")
            await asyncio.gather(*(asyncio.to_thread(node.start) for node in nodes.values()))
            for node in nodes.values():
                held.callback(node.stop)
            at_a = await held.enter_async_context(tidings.connect(nodes["a"].address, reconnect=False))
            at_b, at_c = [
                await held.enter_async_context(tidings.connect(nodes[one].address)) for one in ("b", "c")
            ]
            for bus, others in ((at_b, "ac"), (at_c, "ab")):
                for other in others:
                    while not await reaches(bus, other):
                        await asyncio.sleep(0.02)
            events: list[Event] = []
            node_b, node_c = (("--node", nodes[one].address) for one in "bc")
            ready, goes_on = asyncio.Event(), asyncio.Event()
            keeper = asyncio.ensure_future(keep(at_b, events, ready))
            held.callback(keeper.cancel)
            await ready.wait()

            async def worker(agent: Agent) -> str:
                await agent.spend(usd=12)
                await goes_on.wait()
                await agent.spend(usd=5)
                return "done at the second home"

            group = at_a.group("trip", any_of(), budget={"usd": 100})
            await group.listen()
            at_home = f"{group.id}@a"
            members = await held.enter_async_context(at_b.join_group(at_home, lease_s=60))
            await members.spawn(worker, name="worker", budget={"usd": 30})
            await members.spawn(forever, name="idle", budget={"usd": 20})
            while not any(event.type == "agent.spent" for event in events):
                await asyncio.sleep(0.02)
            with pytest.raises(AgentError, match="its home lives: a"):
                await at_b.take_over(events)

            await asyncio.to_thread(nodes["a"].kill)
            before = tmp_path / "before.jsonl"
            earlier = Event("agent.opened", {"group": "f", "group_name": "trip"})
            before.write_bytes(b"\n".join(map(to_json, [earlier, *events])))
            taking = "agent", "takeover", "trip", "--events", str(before)
            code, output, errors = await asyncio.to_thread(run_command, *taking, "--json", *node_b)
            assert code == 0, errors
            taken = msgspec.json.decode(output, type=GroupInfo)
            assert (taken.phase, taken.running) == ("open", 2)
            assert sums(taken) == {"given": 100, "spent": 12, "refunded": 0, "held": 88, "written_off": 0}
            code, _, errors = await asyncio.to_thread(run_command, *taking, *node_c)
            assert (code, "another node is its home already: b" in errors) == (2, True), errors
            await asyncio.to_thread(nodes["a"].start)
            goes_on.set()
            while (info := await at_b.group_info(group.id)).phase != "ended":
                await asyncio.sleep(0.02)
            assert {one.name: one.reason for one in info.agents} == {"worker": "done", "idle": "condition"}
            assert info.agents[0].result == "done at the second home"
            assert sums(info) == {"given": 100, "spent": 17, "refunded": 83, "held": 0, "written_off": 0}
            again = await held.enter_async_context(tidings.connect(nodes["a"].address))
            while (await again.group_info(group.id)).phase == "open":
                await asyncio.sleep(0.05)

    run(work())


@pytest.mark.slow
def test_a_node_that_keeps_a_group_takes_it_over_by_a_command_when_its_home_is_killed(tmp_path: Path) -> None:
    async def worker(agent: Agent, goes_on: asyncio.Event) -> str:
        await agent.spend(usd=12)
        await goes_on.wait()
        await agent.spend(usd=5)
        return "done at the second home"

    async def work() -> None:
        async with AsyncExitStack() as held:
            nodes = nodes_of(tmp_path, "a", "b", "c", group_deputies="b,c")
            buses = await held.enter_async_context(started(nodes))
            group = buses["a"].group("trip", any_of(), budget={"usd": 100})
            await group.listen()
            goes_on = asyncio.Event()
            for name in "bc":
                members = await held.enter_async_context(buses[name].join_group("trip@a", lease_s=60))
                await members.spawn(worker, goes_on, name=name, budget={"usd": 30})
            while (await buses["a"].group_info("trip")).spent != {"usd": 24}:
                await asyncio.sleep(0.02)
            at_b = "--node", nodes["b"].address
            code, _, errors = await asyncio.to_thread(run_command, "agent", "takeover", "trip", *at_b)
            assert (code, "its home lives: a" in errors) == (2, True), errors
            await asyncio.to_thread(nodes["a"].kill)
            code, output, errors = 2, "", ""
            while code:  # it takes a moment until both see that it is gone
                code, output, errors = await asyncio.to_thread(
                    run_command, "agent", "takeover", "trip", *at_b
                )
            assert "this node is the home of trip" in output
            goes_on.set()
            while (info := await buses["b"].group_info("trip")).phase != "ended":
                await asyncio.sleep(0.02)
            assert "done at the second home" in [one.result for one in info.agents]
            await asyncio.to_thread(nodes["a"].start)
            again = await held.enter_async_context(tidings.connect(nodes["a"].address))
            while True:
                with suppress(TidingsError):
                    info = await again.group_info(group.id)
                    break
                await asyncio.sleep(0.05)
            assert sums(info) == {**sums(info), "given": 100, "held": 0, "written_off": 0}
            assert sums(info)["spent"] in (29, 34)  # the second may have spent before it was ended

    run(work())


# -- what is refused, with a node that knows no other


def bodies(desk: Desk) -> list[bytes]:
    return [published(desk.ledger, event).body or b"" for event in desk.events]


def refusal(events: list[bytes], rig: Rig | None = None, home: str = "a") -> str:
    reply = (rig or Rig()).peer("o").ask("agent.take", home=home, events=events)
    assert reply.error is not None
    return str(reply.error)


def some_group() -> Desk:
    desk = Desk(any_of(), {"usd": 10})
    hotel = desk.enter("hotel".ljust(16), {"usd": 5})
    desk.spend(hotel, usd=2)
    return desk


def test_events_that_are_not_those_of_a_whole_group_are_refused() -> None:
    opened, entered, spent = bodies(some_group())
    assert "there are no events" in refusal([])
    assert "do not begin with that of its opening" in refusal([entered, spent])
    assert "event 2 does not follow" in refusal([opened, spent])
    assert "event 2 does not follow" in refusal([opened, opened])
    assert "event 2 does not follow" in refusal([opened, b'{"is":"spent"}'])
    assert "event 1 does not follow" in refusal([b"what?"])


def test_a_group_that_has_ended_or_whose_home_is_not_known_is_refused() -> None:
    desk = some_group()
    assert "its home 'a' is not known here" in refusal(bodies(desk))
    desk.note(desk.ledger.end("user", 1))
    for one in desk.ledger.running:
        desk.leave(one)
    assert "it has ended" in refusal(bodies(desk))


def test_a_node_does_not_take_over_what_it_has() -> None:
    rig = Rig()
    owner = rig.peer("o")
    open_group(owner, "g")
    events: list[Any] = bodies(some_group())
    assert "this node is its home already" in refusal(events, rig)
    assert ask(owner, "agent.show", group="g")["agents"] == []


# -- with peers that are away


def named(name: str, *peers: str) -> Rig:
    """A node that knows others, which are away."""
    known = Neighbours({one: f"tidings://{one}.example:7300" for one in peers}, Credentials())
    return Rig(settings=CoreSettings(name=name, peers=known))


def test_a_node_that_can_not_be_asked_may_have_the_group_so_it_is_not_taken_over() -> None:
    assert "node c can't be asked, and may have taken it over" in refusal(
        bodies(some_group()), named("b", "a", "c")
    )


def test_what_was_taken_over_is_there_after_a_restart_under_both_names_with_its_leases_and_money() -> None:
    rig = named("b", "a")
    owner = rig.peer("o")
    taken = ask(owner, "agent.take", home="a", events=bodies(some_group()))
    assert (taken["group"], taken["running"], taken["spent"]) == ("g", 1, {"usd": 2})
    life = {"agent": "g.1@a", "life": 1, "cookie": "hotel".ljust(16)}
    rig = rig.restart()
    owner = rig.peer("o", 2)
    shown = ask(owner, "agent.show", group="g@a")
    assert (shown["group"], shown["agents"][0]["agent"]) == ("g@a", "g.1@a")
    assert ask(owner, "agent.take", home="a", events=bodies(some_group()))["group"] == "g"  # asked for twice
    terms = ask(owner, "agent.spend", **life, amounts={"usd": 1}, step=9)
    assert (terms["agent"], terms["budget"], terms["generation"]) == ("g.1@a", {"usd": 2}, 1)
    rig.pass_time(31)  # it is not heard of for its lease
    ended = ask(owner, "agent.show", group="g")
    assert (ended["agents"][0]["lost"], ended["written_off"]) == (True, {"usd": 2})


def test_events_that_leave_out_where_money_came_from_are_refused() -> None:
    opened, entered, *_ = bodies(some_group())
    unfunded = opened.replace(b'"budget":{"usd":10000000}', b'"budget":{"usd":1000000}')
    assert "its money does not add up" in refusal([unfunded, entered])


def test_a_home_does_nothing_for_an_agent_that_a_later_one_has_answered() -> None:
    rig = Rig()
    owner = rig.peer("o")
    open_group(owner, budget={"usd": 10})
    agent = enter(owner, "one", share={"usd": 4})
    life = {"agent": agent, "life": 1, "cookie": "cookie of trip one"}
    reply = owner.ask("agent.spend", **life, amounts={"usd": 1}, step=1, generation=1)
    assert "group trip has another home" in str(reply.error)
    assert show(owner).spent == {}
    held = HeldLife(msgspec.convert(ask(owner, "agent.renew", **life), LeaseTerms), "c", "", _order)
    assert held.takes(msgspec.structs.replace(held.terms, generation=1, lease_s=7.0))
    assert not held.takes(msgspec.structs.replace(held.terms, generation=0, lease_s=9.0))
    assert (held.terms.lease_s, held.arguments["generation"]) == (7.0, 1)


def _order(_reason: str, _grace_s: float) -> None:
    raise AssertionError("nobody is ended")

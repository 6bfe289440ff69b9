"""The agents pipeline: costs, ends, orphans' lives and alarms, of ledgers and of a node."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
from pipeline.flow_oracle import BEGIN, Row, frame, moment
from pipeline.nodes import Running, running

import tidings
from tidings import blocking
from tidings.agents import at_least
from tidings.agents.amounts import amounts_of
from tidings.agents.events import AnyHappening, Entered, Opened
from tidings.agents.ledger import GroupLedger
from tidings.agents.views import published
from tidings.client.agent import Agent
from tidings.errors import ConfigError
from tidings.pipeline.agents.graph import READ, agents_graph
from tidings.pipeline.agents.limits import AgentSettings
from tidings.pipeline.agents.pipeline import AGENTS
from tidings.pipeline.continuous import ContinuousRun, start
from tidings.pipeline.flow.publishing import events_of
from tidings.pipeline.running import BatchProgress, watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = "the-node"


class Record:
    """A ledger whose events become rows, as the source gives them."""

    def __init__(self, group: str) -> None:
        opened = Opened(
            group=group,
            name="trip",
            user="",
            condition=at_least(100),
            grace_s=5.0,
            budget=amounts_of({"usd": 100, "tokens": 100}),
            at_us=_us(0),
        )
        self.ledger = GroupLedger.opened(opened)
        self.rows: list[Row] = []

    def note(self, at_s: float, happened: list[AnyHappening], source: str = HERE) -> None:
        for one in happened:
            event = published(self.ledger, one)
            header = {"type": event.type, "source": source, "body": event.body}
            found: dict[str, Any] = {**dict.fromkeys(READ), **event.attributes, **header}
            place = {"time": moment(at_s), "node": HERE}
            self.rows.append({**{name: found[name] for name in READ}, **place})

    def enter(self, at_s: float, name: str, **share: float) -> str:
        cookie, budget = f"cookie of {name}", amounts_of(share)
        happened = self.ledger.enter(name, cookie=cookie, lease_s=30, share=budget, now_us=_us(at_s))
        self.note(at_s, happened)
        assert isinstance(happened[0], Entered)
        return happened[0].agent

    def spend(self, at_s: float, agent: str, source: str = HERE, **amounts: float) -> None:
        member = self.ledger.members[agent]
        self.note(at_s, self.ledger.spend(member, amounts_of(amounts), "", _us(at_s)), source)

    def end(self, at_s: float, agent: str, reason: Any = "done", lost: bool = False) -> None:
        self.note(at_s, self.ledger.leave(self.ledger.members[agent], reason, _us(at_s), lost=lost))


def _us(at_s: float) -> int:
    return round((BEGIN.timestamp() + at_s) * 1e6)


def placed(*records: Record) -> list[Row]:
    """The rows of several groups, in the order of their times."""
    rows = sorted((row for record in records for row in record.rows), key=lambda row: row["time"])
    return [{**row, "position": position} for position, row in enumerate(rows, 1)]


def test_costs_and_lives_are_summed_by_group_reason_and_hour_and_what_runs_away_is_alarmed_once(
    spark: SparkSession,
) -> None:
    first, second = Record("one"), Record("two")
    hotel, train = first.enter(0, "hotel", usd=30, tokens=50), first.enter(10, "train", usd=30)
    first.spend(15, hotel, usd=16, source="a client")  # nobody but the node itself is believed
    first.spend(20, hotel, usd=12, tokens=40)
    first.spend(30, train, usd=5)
    first.end(40, hotel)
    first.end(100, train, "orphan", lost=True)
    again = first.enter(3_700, "again", usd=30)
    for number in range(3):
        first.spend(3_710 + number, again, usd=8)
    first.end(3_760, again, "orphan")
    other = second.enter(50, "other", usd=3)
    second.spend(60, other, usd=3)
    second.end(70, other, "budget")
    made = agents_graph(AgentSettings(limits="starts=1, cost.usd=15"))
    frames = made.frames({"events": frame(spark, placed(first, second), made, "events")})

    def by(table: str, *columns: str) -> dict[str, Any]:
        rows = events_of(made[table], frames[table]).select("subject", *columns).collect()
        return {subject: tuple(values) for subject, *values in rows}

    begin, hour = "2026-05-01T00:00:00Z", "2026-05-01T01:00:00Z"
    assert by("costs", "type", "cost") == {
        f"one/trip/done/usd/{begin}": ("agents.costs", 28.0),
        f"one/trip/done/tokens/{begin}": ("agents.costs", 40.0),
        f"one/trip/orphan/usd/{begin}": ("agents.costs", 5.0),
        f"one/trip/orphan/usd/{hour}": ("agents.costs", 24.0),
        f"two/trip/budget/usd/{begin}": ("agents.costs", 3.0),
    }
    assert by("ends", "agents", "lost", "lived_s_mean", "lived_s_max") == {
        f"one/trip/done/{begin}": (1, 0, 40.0, 40.0),
        f"one/trip/orphan/{begin}": (1, 1, 90.0, 90.0),
        f"one/trip/orphan/{hour}": (1, 0, 60.0, 60.0),
        f"two/trip/budget/{begin}": (1, 0, 20.0, 20.0),
    }
    assert by("alarms", "type", "amount", "limit") == {
        f"one/trip/starts/{begin}": ("alarm.agent", 2.0, 1.0),
        f"one/trip/cost.usd/{begin}": ("alarm.agent", 17.0, 15.0),
        f"one/trip/cost.usd/{hour}": ("alarm.agent", 16.0, 15.0),
    }


@pytest.mark.parametrize(
    "limits", ["speed=1", "starts=many", "losses=-1", "cost.usd=nan", "cost.=1", "starts"]
)
def test_limits_that_are_none_are_refused(limits: str) -> None:
    with pytest.raises(ConfigError, match="limits"):
        AgentSettings(limits=limits).all_limits()


# -- on a node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "node") as one:
        yield one


def test_groups_that_start_too_many_at_two_nodes_are_alarmed_at_the_first_and_their_costs_are_published(
    spark: SparkSession, node: Running, tmp_path: Path
) -> None:
    async def spender(agent: Agent) -> int:
        await agent.spend(usd=2)
        return 1

    async def group(address: str, name: str) -> None:
        async with (
            tidings.connect(f"tidings://{address}") as bus,
            bus.group(name, budget={"usd": 9}) as swarm,
        ):
            for _ in range(3):
                await swarm.spawn(spender, budget={"usd": 3})

    with running(tmp_path / "other") as other:
        asyncio.run(group(node.address, "swarm"))
        asyncio.run(group(other.address, "flock"))
        both = f"{node.address}, {other.address}"
        settings = AgentSettings(node=both, starting="earliest", limits="starts=2")
        stop, seen = threading.Event(), []

        def tell(progress: BatchProgress) -> None:
            seen.append(progress)
            if sum(one.published.get("alarms", 0) for one in seen) == 2:
                stop.set()

        run = ContinuousRun(pipeline=AGENTS, settings=settings, trigger_s=0)
        query, counts = start(spark, run, str(tmp_path / "notes"))
        total = watch(query, tell, stop, AGENTS.plan(settings, "query"), counts)
    assert total.rows == 18
    with blocking.connect(f"tidings://{node.address}") as bus:
        told = [event for _, event in bus.log.read(where="type IN ('alarm.agent', 'agents.costs')")]
    alarms = [one for one in told if one.type == "alarm.agent"]
    about = "group_name", "what", "amount", "limit"
    assert sorted(tuple(one[name] for name in about) for one in alarms) == [
        ("flock", "starts", 3.0, 2.0),
        ("swarm", "starts", 3.0, 2.0),
    ]
    costs = [one for one in told if one.type == "agents.costs"]
    assert sorted((one["group_name"], one["reason"], one["unit"], one["cost"]) for one in costs) == [
        ("flock", "done", "usd", 6.0),
        ("swarm", "done", "usd", 6.0),
    ]

"""Agents pipeline as a flow graph: from the events `agent.…` of a node's groups to costs, ends and alarms.

Counted are only events that the node of the log has published itself: others can publish what they like under
these types. Amounts are in the body, as millionths by unit, and are exploded: one row for each unit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own examples call it

from tidings.agents.amounts import MICRO
from tidings.pipeline.agents.limits import COST, LOSSES, RESTARTS, STARTS, AgentSettings
from tidings.pipeline.flow.building import (
    count,
    first,
    graph,
    highest,
    history,
    join,
    mean,
    total,
)
from tidings.pipeline.flow.graph import Graph

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

EVENTS = "events"
WHERE = "type IN ('agent.entered', 'agent.spent', 'agent.ended')"
READ = {
    "type": "string",
    "source": "string",
    "group": "string",
    "group_name": "string",
    "life": "bigint",
    "reason": "string",
    "lost": "boolean",
    "lived_s": "double",
    "body": "binary",
}
PLACE = {"time": "timestamp", "node": "string", "position": "bigint"}
GROUP = {"group": "string", "group_name": "string"}
ENDS = {**PLACE, **GROUP, "reason": "string", "lost": "bigint", "lived_s": "double"}
BILLS = {**PLACE, **GROUP, "reason": "string", "unit": "string", "amount": "double"}
MEASURES = {**PLACE, **GROUP, "what": "string", "amount": "double", "limit": "double"}
ALARM = "alarm.agent"
"""Type of the alarm for a group that runs away."""


class AgentFunction(Struct, frozen=True):
    """Function of the events in the graph, and in a few words what it makes of them."""

    about: str
    make: Callable[[DataFrame], DataFrame]

    def __call__(self, events: DataFrame) -> DataFrame:
        """Return its rows."""
        return self.make(events)


def agents_graph(settings: AgentSettings | None = None) -> Graph:
    """Return the graph; ConfigError for settings that are invalid."""
    settings = settings or AgentSettings()
    window_s, late_s = settings.window_s, settings.late_s
    events = history(EVENTS, WHERE, READ)
    by_reason = join(AgentFunction("ends of members", ends), ENDS, events).named("ended")
    bills = join(AgentFunction("what each had spent", bills_of), BILLS, events).named("bills")
    limited = partial(measures, settings.all_limits())
    measured = join(AgentFunction("starts, losses, costs", limited), MEASURES, events).named("measured")
    ended = by_reason.collapse(
        by=("group", "group_name", "reason"),
        window_s=window_s,
        late_s=late_s,
        agents=count(),
        lost=total("lost"),
        lived_s_mean=mean("lived_s"),
        lived_s_max=highest("lived_s"),
    )
    costs = bills.collapse(
        by=("group", "group_name", "reason", "unit"), window_s=window_s, late_s=late_s, cost=total("amount")
    )
    by_what = ("group", "group_name", "what")
    # Of each node by itself: what it expands must be in the order of its log.
    sums = measured.collapse(
        by=(*by_what, "node"), window_s=window_s, late_s=late_s, amount=total("amount"), limit=first("limit")
    )
    past = sums.named("sums").expand().named("growing").select("amount > limit").named("past")
    # The first of them alone: a state is published when it has changed, and this one does so once.
    alarms = past.collapse(
        by=by_what, window_s=window_s, late_s=late_s, amount=first("amount"), limit=first("limit")
    )
    return graph(
        "agents",
        ended.named("ends").published("agents.ends"),
        costs.named("costs").published("agents.costs"),
        alarms.named("alarms").published(ALARM),
    )


# From events to rows


def ends(events: DataFrame) -> DataFrame:
    """Return a row for each end of a member."""
    lost = F.col("lost").cast("bigint").alias("lost")
    return _own(events, "agent.ended").select(*PLACE, *GROUP, "reason", lost, "lived_s")


def bills_of(events: DataFrame) -> DataFrame:
    """Return a row for each unit that a member had spent when it ended."""
    ended = _own(events, "agent.ended")
    return _by_unit(ended, "spent").select(*PLACE, *GROUP, "reason", "unit", "amount")


def measures(limits: dict[str, float], events: DataFrame) -> DataFrame:
    """Return what has a limit, with that: a row for each start, restart, loss and amount that was spent."""
    entered = F.when(F.col("life") == 1, STARTS).otherwise(RESTARTS)
    what = F.when(F.col("type") == "agent.entered", entered).when(F.col("lost"), LOSSES)
    counted = events.where(_is_own()).withColumn("what", what).withColumn("amount", F.lit(1.0))
    spent = _by_unit(_own(events, "agent.spent"), "amounts")
    costs = spent.withColumn("what", F.concat(F.lit(f"{COST}."), F.col("unit")))
    columns = [*PLACE, *GROUP, "what", "amount"]
    found = counted.select(*columns).unionByName(costs.select(*columns))
    limit = F.create_map(*(F.lit(one) for pair in limits.items() for one in pair))[F.col("what")]
    return found.where(F.col("what").isNotNull()).withColumn("limit", limit).where("limit IS NOT NULL")


def _own(events: DataFrame, type: str) -> DataFrame:
    return events.where(_is_own() & (F.col("type") == type))


def _is_own() -> Column:
    return F.col("source") == F.col("node")


def _by_unit(events: DataFrame, amounts: str) -> DataFrame:
    """Return a row for each unit of the amounts in the body, in that unit."""
    body = F.from_json(F.col("body").cast("string"), f"{amounts} map<string, bigint>")
    exploded = events.withColumn("amounts", body[amounts]).select("*", F.explode("amounts"))
    return exploded.withColumnRenamed("key", "unit").withColumn("amount", F.col("value") / MICRO)

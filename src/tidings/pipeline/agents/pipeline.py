"""Agents pipeline, as the commands know it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.pipeline.agents.limits import AgentSettings
from tidings.pipeline.known import Pipeline, RunReport

if TYPE_CHECKING:
    from tidings.pipeline.flow.graph import Graph


def _graph(settings: AgentSettings) -> Graph:
    from tidings.pipeline.agents.graph import agents_graph

    return agents_graph(settings)


AGENTS = Pipeline(
    name="agents",
    origin="agents",
    about="events of groups of agents: costs, ends and orphans by the hour, alarms for what runs away",
    settings=AgentSettings(),
    graph=_graph,
    report=RunReport("events"),
)

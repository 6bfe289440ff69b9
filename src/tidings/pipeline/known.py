"""Pipelines that the commands know: those that are built in, and those of files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from tidings.errors import UserError
from tidings.pipeline.flow.graph import Graph
from tidings.pipeline.flow.reading import load
from tidings.pipeline.graph_plan import plan_of
from tidings.pipeline.plan import Plan, Use
from tidings.pipeline.report import Report
from tidings.pipeline.settings import RunSettings

BUILT_IN = ("city",)


class Pipeline(Struct, frozen=True, kw_only=True):
    """A pipeline by its name or file, before it is known how and where it runs."""

    name: str
    origin: str
    """Its name, or the path of its file: what finds it again, in another process."""
    about: str
    settings: RunSettings
    """Settings of this pipeline, none of which is given yet."""
    graph: Callable[[Any], Graph]
    """Called with the settings; ConfigError if one is invalid."""
    report: Report
    main: str | None = None
    """The only published table of a query of Spark's own; None: the query keeps the states of the graph."""

    def plan(self, settings: RunSettings, use: Use) -> Plan:
        """Return the plan for a use; ConfigError if a setting is invalid."""
        return plan_of(self.graph(settings), use, self.main)


def find(origin: str) -> Pipeline:
    """Return the built-in pipeline of that name, or the one of a file; FlowError names a place in it."""
    if origin == "city":
        from tidings.pipeline.city.pipeline import CITY

        return CITY
    if not origin.endswith((".toml", ".py")):
        known = f"there is {', '.join(BUILT_IN)}, or name a file in TOML or Python"
        raise UserError(f"there is no pipeline {origin!r}; {known}")
    graph = load(origin)
    return Pipeline(
        name=graph.name,
        origin=str(Path(origin).resolve()),
        about=f"of {origin}",
        settings=RunSettings(pipeline=graph.name),
        graph=lambda _: graph,
        report=Report(graph.sources[0].name if len(graph.sources) == 1 else "events"),
    )

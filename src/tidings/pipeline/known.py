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
    plan: Callable[[Any, Use], Plan]
    """Called with the settings; ConfigError if one is invalid."""
    report: Report
    graph: Graph | None = None
    """Graph of the file."""


def find(origin: str) -> Pipeline:
    """Return the built-in pipeline of that name, or the one of a file; FlowError names a place in it."""
    if origin == "city":
        from tidings.pipeline.city.pipeline import CITY

        return CITY
    if not origin.endswith((".toml", ".py")):
        names = ", ".join(BUILT_IN)
        raise UserError(
            f"there is no pipeline {origin!r}; there is {names}, or name a file in TOML or Python"
        )
    graph = load(origin)
    return Pipeline(
        name=graph.name,
        origin=str(Path(origin).resolve()),
        about=f"of {origin}",
        settings=RunSettings(pipeline=graph.name),
        plan=lambda _, use: plan_of(graph, use),
        report=Report(graph.sources[0].name if len(graph.sources) == 1 else "events"),
        graph=graph,
    )

"""Pipelines that the commands know: those that are built in, and those of files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from tidings.errors import UserError
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


def find(origin: str) -> Pipeline:
    """Return the pipeline of that name, or of that file; UserError if there is none."""
    if origin == "city":
        from tidings.pipeline.city.pipeline import CITY

        return CITY
    raise UserError(f"there is no pipeline {origin!r}; there is {', '.join(BUILT_IN)}")

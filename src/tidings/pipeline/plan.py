"""Plan of a pipeline: the events that it reads, and the tables that Spark makes of them.

A step makes one table from others: a history (rows, each an event) or a state (one row for each key). The
steps run as a batch, as one continuous query, and as a declarative project. No step may look at its
DataFrames (their columns, whether they are streams), since a declarative project has none to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Kind = Literal["history", "state"]
Use = Literal["history", "query", "tables"]
"""Use of a plan: history, a continuous query, or the tables of a declarative project."""


class Source(Struct, frozen=True):
    """Events that a pipeline reads."""

    name: str
    where: str
    schema: str
    """Columns, as Spark writes them."""


class Lateness(NamedTuple):
    """Watermark of a stream: by which column, and how far a row may be behind the newest."""

    column: str
    late_s: float


class Step(Struct, frozen=True, kw_only=True):
    """One table, and how it is made."""

    name: str
    after: tuple[str, ...]
    """Names of the sources and steps from which it is made."""
    drawn_after: tuple[str, ...] | None = None
    """Names to which a picture draws its arrows, if they are others."""
    make: Callable[..., DataFrame]
    """Called with their DataFrames."""
    kind: Kind = "history"
    by: tuple[str, ...] = ()
    """Key columns of a state."""
    about: str = ""
    """How it is made, in a few words."""
    is_published: bool = False
    type: str | None = None
    """Type of the published events; None: that in the column `type` of each row."""
    types: str = ""
    """Filter of the published events, if rows have types of their own."""
    to_events: Callable[[DataFrame], DataFrame] | None = None
    """Makes of its rows those that are published, if they are others."""
    is_stored: bool = True
    """Whether a declarative project keeps it as a table; else it is a view."""
    needs_all: bool = False
    """Whether it is made from all rows of its tables in each run, as a state is, not from new ones alone."""
    late: Mapping[str, Lateness] = {}
    """Watermarks of the streams from which it is made, by their names."""

    @property
    def arrows(self) -> tuple[str, ...]:
        """Names to which a picture draws its arrows."""
        return self.after if self.drawn_after is None else self.drawn_after

    @property
    def is_recomputed(self) -> bool:
        """Whether a declarative project makes it anew in each run."""
        return self.needs_all or self.kind == "state"

    def events(self, df: DataFrame) -> DataFrame:
        """Return the rows to publish."""
        return df if self.to_events is None else self.to_events(df)


class Plan(Struct, frozen=True, kw_only=True):
    """All of a pipeline that Spark needs: the steps in an order in which they can be made."""

    name: str
    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    main: str | None = None
    """Step that is published under the name of the sink itself, without its own name behind it."""

    @property
    def published(self) -> list[Step]:
        """Return the steps whose rows are published as events."""
        return [step for step in self.steps if step.is_published]

    def target(self, step: Step, options: Mapping[str, str]) -> dict[str, str]:
        """Return the options for publishing a step, from those for the pipeline; each has its own sink."""
        sink = options["sink"] if step.name == self.main else f"{options['sink']}-{step.name}"
        return {**options, "sink": sink, **({"type": step.type} if step.type else {})}


def timed(df: DataFrame, late: Lateness | None) -> DataFrame:
    """Return a stream with a watermark, if it is to have one."""
    return df if late is None else df.withWatermark(late.column, interval(late.late_s))


def interval(seconds: float) -> str:
    """Return a time span as Spark takes it."""
    return f"{round(seconds * 1_000_000)} microseconds"

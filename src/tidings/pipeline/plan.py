"""Plan of a pipeline: the events that it reads, and the tables that Spark makes of them.

A step makes one table from others: a history (rows, each an event) or a state (one row for each key). The
steps run as a batch, as one continuous query, and as a declarative project. No step may look at its
DataFrames (their columns, whether they are streams), since a declarative project has none to look at.

A pipeline has the rights of its user and no more: it reads what the user may subscribe to, and publishes what
the user may publish. A right of which the rules grant a part only is a gap like one that is missing: events
would be left out of what it reads, or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
from msgspec import Struct

from tidings.filters import Filter
from tidings.filters.text import write_name
from tidings.filters.tree import names_in

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


# Rights


class NeededRight(Struct, frozen=True):
    """A right that a pipeline needs: for a source, to subscribe; for what it publishes, to publish."""

    action: Literal["subscribe", "publish"]
    name: str
    """Name of the source or step."""
    where: str
    """Filter of the events."""

    def rule(self, user: str) -> str:
        """Return the entry of `access.toml` that grants it."""
        texts = {"users": [user], "actions": [self.action], "where": self.where}
        lines = [f"{key} = {msgspec.json.encode(value).decode()}" for key, value in texts.items()]
        return "\n".join(["[[allow]]", *lines])


class MissingRight(Struct, frozen=True):
    """A right that is not granted, or not wholly."""

    need: NeededRight
    part: str
    """Filter of the events that no rule covers, as far as a filter can say it."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing of the right is granted."""
        return self.part == self.need.where


def gap_of(need: NeededRight, granted: Filter) -> MissingRight | None:
    """Return what the grants of a user lack for a right; None if they cover it."""
    wanted = Filter(need.where)
    if granted.covers(wanted):
        return None
    return MissingRight(need, str(_uncovered(wanted, granted)) if granted.overlaps(wanted) else need.where)


def _uncovered(wanted: Filter, granted: Filter) -> Filter:
    """Return the events for which the grants are not true: false, or unknown as they lack a value."""
    rest = ~granted
    for name in sorted(names_in(granted.condition)):
        lacking = Filter(f"{write_name(name)} IS NULL")
        rest = rest | lacking if wanted.overlaps(lacking) else rest
    return (wanted & rest).simplify()


def needs(plan: Plan) -> Iterator[NeededRight]:
    """Yield the rights that a pipeline needs."""
    for source in plan.sources:
        yield NeededRight("subscribe", source.name, str(Filter(source.where)))
    for step in plan.published:
        yield NeededRight("publish", step.name, published_filter(step))


def published_filter(step: Step) -> str:
    """Return the filter of the events as which a step is published."""
    if step.type is None:
        return str(Filter(step.types))
    return str(Filter("type = :type", type=step.type))

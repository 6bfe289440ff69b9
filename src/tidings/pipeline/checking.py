"""Rights that a pipeline needs at its node, and the rules of the access list that grant them.

A pipeline has the rights of its user and no more: it reads what the user may subscribe to, and publishes what
the user may publish. A right of which the rules grant a part only is a gap like one that is missing: events
would be left out of what it reads, or refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import Struct

from tidings.filters import Filter
from tidings.filters.text import write_name
from tidings.filters.tree import names_in
from tidings.pipeline.plan import Plan, Step


class Need(Struct, frozen=True):
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


class Gap(Struct, frozen=True):
    """A right that is not granted, or not wholly."""

    need: Need
    part: str
    """Filter of the events that no rule covers, as far as a filter can say it."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing of the right is granted."""
        return self.part == self.need.where


def gap_of(need: Need, granted: Filter) -> Gap | None:
    """Return what the grants of a user lack for a right; None if they cover it."""
    wanted = Filter(need.where)
    if granted.covers(wanted):
        return None
    return Gap(need, str(_uncovered(wanted, granted)) if granted.overlaps(wanted) else need.where)


def _uncovered(wanted: Filter, granted: Filter) -> Filter:
    """Return the events for which the grants are not true: false, or unknown as they lack a value."""
    rest = ~granted
    for name in sorted(names_in(granted.condition)):
        lacking = Filter(f"{write_name(name)} IS NULL")
        rest = rest | lacking if wanted.overlaps(lacking) else rest
    return (wanted & rest).simplify()


def needs(plan: Plan) -> Iterator[Need]:
    """Yield the rights that a pipeline needs."""
    for source in plan.sources:
        yield Need("subscribe", source.name, str(Filter(source.where)))
    for step in plan.published:
        yield Need("publish", step.name, published_filter(step))


def published_filter(step: Step) -> str:
    """Return the filter of the events as which a step is published."""
    if step.type is None:
        return str(Filter(step.types))
    return str(Filter("type = :type", type=step.type))

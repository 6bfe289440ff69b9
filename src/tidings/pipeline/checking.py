"""Rights that a pipeline needs at its node, and the rules of the access list that grant them.

A pipeline has the rights of its user and no more: it reads what the user may subscribe to, and publishes what
the user may publish.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import Struct

from tidings.filters import Filter
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

"""Events as callers give them: made already, or a type with attributes and header fields."""

from __future__ import annotations

from collections.abc import Mapping

from tidings.errors import UserError
from tidings.event import Event


def event_of(kind: Event | str, attributes: Mapping[str, object] | None, fields: dict[str, object]) -> Event:
    """The event itself, or one made of a type, attributes and header fields."""
    if not isinstance(kind, Event):
        return Event(kind, attributes, **fields)
    if attributes is not None or fields:
        raise UserError("an event is published as it is; attributes go with a type")
    return kind

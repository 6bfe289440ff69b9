"""Subscriptions to a class of events, whose instances they return.

The class says which attributes there are, so a filter on others is refused here, before the node would take
it for a filter that just never matches.
"""

from __future__ import annotations

from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, Generic, Self, Union, get_args, get_origin, get_type_hints

from tidings.client.subscription import Subscription, log_notes
from tidings.errors import FilterError, UserError
from tidings.event import RESERVED, Event
from tidings.event.typed import Typed, TypedModel
from tidings.filters import Filter
from tidings.filters.kinds import KINDS
from tidings.filters.notes import HEADER_VALUES, KnownValues, any_of_kind
from tidings.filters.tokens import cut, place
from tidings.filters.tree import names_in


class TypedSubscription(Generic[TypedModel]):
    """The events of a class as its instances, an async iterator inside `async with`; made by `Bus.subscribe`.

    An event that does not fit the class raises CodecError, with the place and the type expected; the iterator
    may be asked for the next one.
    """

    def __init__(self, subscription: Subscription, model: type[TypedModel]) -> None:
        self.subscription: Subscription = subscription
        """The subscription that delivers the events, acknowledges them and counts gaps."""
        self._model = model
        self._event: Event | None = None

    async def __aenter__(self) -> Self:
        await self.subscription.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        await self.subscription.__aexit__(kind, *rest)

    def __aiter__(self) -> TypedSubscription[TypedModel]:
        return self

    async def __anext__(self) -> TypedModel:
        self._event = await self.subscription.__anext__()
        return self._model.from_event(self._event)

    @property
    def event(self) -> Event:
        """The event of the last instance, with its whole header."""
        if self._event is None:
            raise UserError("no event has been returned yet")
        return self._event

    async def acknowledge(self) -> None:
        """Acknowledge the last instance and all before it; for `acknowledge="client"`."""
        await self.subscription.acknowledge(self.event)


def filter_for(model: type[Typed], where: Filter | str) -> Filter:
    """Return the filter for the events of a class that match; FilterError names an attribute it has not.

    Notes on the filter, which also regard the types of the fields, are logged.
    """
    if not model.event_type:
        raise UserError(f"{model.__name__} has no type; write class {model.__name__}(Typed, type='…')")
    wanted = where if isinstance(where, Filter) else Filter(where)
    fields = model.__struct_encode_fields__
    for name in sorted(names_in(wanted.condition) - RESERVED - {*fields}):
        if not any(name.startswith(f"{field}.") for field in fields):
            raise _unknown(model, name, where)
    log_notes(wanted, {**HEADER_VALUES, **_known_values(model)})
    return Filter("type = :type", type=model.event_type) & wanted


def _unknown(model: type[Typed], name: str, where: Filter | str) -> FilterError:
    """Return the error, with the place of the name if the filter was given as text."""
    fields = model.__struct_encode_fields__
    close = get_close_matches(name, fields, 1)
    hint = f"did you mean {close[0]}" if close else "it has " + (", ".join(fields) or "none")
    problem = f"{model.__name__} has no attribute {name}"
    spelt = [token.strip('"') for token in cut(where)] if isinstance(where, str) else []
    if name not in spelt:
        return FilterError(problem, hint=hint)
    return FilterError(problem, *place(str(where), spelt.index(name)), hint)


def _known_values(model: type[Typed]) -> dict[str, KnownValues]:
    """The values that the attributes of a class have, as far as filters know their types."""
    hints = get_type_hints(model)
    names = zip(model.__struct_fields__, model.__struct_encode_fields__, strict=True)
    found = {shown: _values_of(hints[field]) for field, shown in names if shown not in RESERVED}
    return {name: values for name, values in found.items() if values is not None}


def _values_of(hint: Any) -> KnownValues | None:
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    plain = [one for one in kinds if one is not NoneType]
    if len(plain) != 1 or plain[0] not in KINDS:
        return None
    values = any_of_kind(KINDS[plain[0]])
    return values.optional() if len(plain) < len(kinds) else values

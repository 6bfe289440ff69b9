"""Classes of events: the fields are the attributes.

    class Reading(tidings.Typed, type="air.pm10"):
        value: float
        unit: str = "µg/m³"

Such a class is a msgspec struct, with the type of its events in `event_type`. A field with the name of a
header field (`time`, `priority`, `subject`) is that field of the header; every other one is an attribute, and
a nested struct becomes attributes with dotted names. Attributes that the class does not have are ignored when
an event is read, so a publisher may add some.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, dataclass_transform

import msgspec
from msgspec import Struct, StructMeta

from tidings.errors import CodecError, EventError, UserError
from tidings.event.data import place_and_problem
from tidings.event.model import HEADER_READERS, Event
from tidings.event.values import HEADER_NAMES, check_name, check_type

TypedModel = TypeVar("TypedModel", bound="Typed")


class TypedMeta(StructMeta):
    """Metaclass of `Typed`, which takes the type of the events beside the options of a struct."""

    def __new__(  # noqa: PYI034 - a metaclass has no Self
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        type: str | None = None,
        **options: Any,
    ) -> TypedMeta:
        made = super().__new__(mcls, name, bases, namespace, **options)
        for field in made.__struct_encode_fields__:
            _check_field(name, field)
        if type is not None:
            made.event_type = check_type(type)  # type: ignore[attr-defined]  # of the classes it makes
        return made


def _check_field(owner: str, field: str) -> None:
    if field == "type":
        raise UserError(f"{owner}.type: the type belongs to the class; write class {owner}(Typed, type=…)")
    if field not in HEADER_NAMES:
        check_name(field)


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Typed(Struct, frozen=True, metaclass=TypedMeta):
    """Base of classes of events, `class Reading(Typed, type="air.pm10")`: its fields are the attributes.

    `Bus.publish` and `Queue.put` take instances; `Bus.subscribe` takes the class and returns instances.
    """

    event_type: ClassVar[str] = ""

    if TYPE_CHECKING:

        def __init_subclass__(cls, *, type: str | None = None, **options: Any) -> None: ...

    def to_event(self) -> Event:
        """Return the event: its type is that of the class, its attributes and header are the fields."""
        if not self.event_type:
            name = type(self).__name__
            raise UserError(f"{name} has no type; write class {name}(Typed, type='…')")
        fields: dict[str, object] = msgspec.to_builtins(self, builtin_types=(datetime, bytes))
        attributes = {name: value for name, value in fields.items() if name not in HEADER_NAMES}
        header = {name: value for name, value in fields.items() if name in HEADER_NAMES}
        return Event(self.event_type, attributes, **header)

    @classmethod
    def from_event(cls, event: Event) -> Self:
        """Return an instance with the values of an event.

        An event of another type raises EventError; one that does not fit raises CodecError with the place and
        the type expected.
        """
        if event.type != cls.event_type:
            raise EventError("$.type", f"{event.type!r} is not {cls.__name__}'s, {cls.event_type!r}")
        try:
            return msgspec.convert(_members(event, cls.__struct_encode_fields__), cls)
        except msgspec.ValidationError as error:
            place, problem = place_and_problem(error, "$")
            raise CodecError(place, f"{problem}; the event is read as {cls.__name__}") from None


def _members(event: Event, names: tuple[str, ...]) -> Mapping[str, object]:
    """Return the values of an event by field, nested if a field stands for several attributes."""
    members: dict[str, object] = {}
    for name in names:
        value = HEADER_READERS[name](event) if name in HEADER_NAMES else event.values.get(name)
        if value is None:
            value = _nested(event.values, name + ".")
        if value is not None:
            members[name] = value
    return members


def _nested(values: Mapping[str, object], prefix: str) -> dict[str, object] | None:
    """Return the attributes whose names begin with the prefix, as nested members; None without any."""
    members: dict[str, object] = {}
    for name, value in values.items():
        if name.startswith(prefix):
            *path, last = name[len(prefix) :].split(".")
            inner: Any = members
            for step in path:
                inner = inner.setdefault(step, {})
                if not isinstance(inner, dict):
                    return None
            inner[last] = value
    return members or None

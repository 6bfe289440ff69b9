"""The event: a type, a time, attributes and a header.

Its fields are exactly the array on the wire, so that a whole batch is decoded in one call, plus the origin
that all events of a section share. An event is immutable; `evolve` makes a changed copy. Construction is on
the hot path: a flat dict of plain scalars is checked once and copied.

The names of header fields are reserved: no attribute is called `priority`, so that `event["priority"]`, a
filter and a column always mean the same thing. Their JMS names are aliases everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from time import time_ns
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, overload

from msgspec import Meta, Struct, StructMeta, structs

from tidings.errors import EventError
from tidings.event.data import Model, ModelType, data_fields, is_data, read_data
from tidings.event.header import (
    EMPTY_HEADER,
    FIELD_CHECKS,
    Delivery,
    Header,
    Route,
    TimeUs,
    header_of,
    keyword_meant,
    read_field,
)
from tidings.event.values import (
    INT_MAX,
    JMS_ALIASES,
    RESERVED,
    Value,
    add_value,
    are_plain,
    check_type,
    flatten,
    json_body,
    place_of,
    remember,
    time_from_us,
)
from tidings.ids import Origin, make_id

REPR_ATTRIBUTES_MAX = 8
# The default of `origin`, which only decoding uses: the decoder refuses another value, as it came by wire.
UNREAD = Origin()

T = TypeVar("T")
_make = StructMeta.__call__
_attribute_keywords: set[str] = set()  # keywords that are neither header fields nor near misses of them


class EventType(StructMeta):
    """Metaclass that gives `Event(type, attributes, **fields)` its signature; decoding does not use it."""

    def __call__(
        cls,  # noqa: N805 - the instances of a metaclass are classes
        kind: str,
        attributes: Mapping[str, object] | None = None,
        /,
        **fields: object,
    ) -> Event:
        given: Mapping[str, object] = {} if attributes is None else attributes
        header: dict[str, object] = {}
        if fields:
            if not _attribute_keywords.issuperset(fields):
                header = _taken_header(fields)
            given = fields if attributes is None else _united(given, fields)
        if given.__class__ is not dict or not are_plain(given):
            return _build(kind, given, header)
        if header:
            return _finish(kind, given.copy(), _read({}, header.items()))
        event: Event = _make(cls, 0, check_type(kind), time_ns() // 1000, given.copy(), None, None, None)
        return event


class _HeaderField(Generic[T]):
    """Descriptor of one header field, with its default where the event has no header."""

    def __init__(self, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, event: None, owner: object) -> _HeaderField[T]: ...
    @overload
    def __get__(self, event: Event, owner: object) -> T: ...
    def __get__(self, event: Event | None, owner: object) -> T | _HeaderField[T]:
        if event is None:
            return self
        value: T = getattr(event.header or EMPTY_HEADER, self._name)
        return value


class Event(Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True, metaclass=EventType):
    """One event: `Event("air.pm10", {"value": 41.2}, priority=7)`.

    A keyword that is a header field sets the header, any other is an attribute. A keyword that is nearly a
    header field or an option, such as `prority` or `ttl`, is refused; as an attribute it goes into the
    mapping. `data=` writes a model (a msgspec struct, a dataclass, a pydantic model) or a list into the body,
    as JSON or, with `content_type="application/msgpack"`, as msgpack. `values` is the dict of attributes
    itself, for fast reading; it must not be changed.
    """

    counter: Annotated[int, Meta(ge=0, le=INT_MAX)]  # 0: not numbered yet
    type: str
    time_us: TimeUs
    values: dict[str, Value]
    header: Header | None
    body: bytes | None
    origin: Origin | None = UNREAD  # never on the wire

    channel = _HeaderField["str | None"]("channel")
    subject = _HeaderField["str | None"]("subject")
    priority = _HeaderField[int]("priority")
    ttl_s = _HeaderField["float | None"]("ttl_s")
    keep_s = _HeaderField["float | None"]("keep_s")
    delivery = _HeaderField[Delivery]("delivery")
    route = _HeaderField[Route]("route")
    reliability = _HeaderField["float | None"]("reliability")
    reply_to = _HeaderField["str | None"]("reply_to")
    correlation_id = _HeaderField["str | None"]("correlation_id")
    object_class = _HeaderField["str | None"]("object_class")
    content_type = _HeaderField["str | None"]("content_type")
    group = _HeaderField["str | None"]("queue_group")

    if TYPE_CHECKING:

        def __init__(
            self, kind: str, attributes: Mapping[str, object] | None = None, /, **fields: object
        ) -> None: ...

    @staticmethod
    def unchecked(
        counter: int,
        kind: str,
        time_us: int,
        values: dict[str, Value],
        header: Header | None = None,
        body: bytes | None = None,
        origin: Origin | None = None,
    ) -> Event:
        """Make an event from fields that were checked before; the dict is not copied."""
        event: Event = _make(Event, counter, kind, time_us, values, header, body, origin)
        return event

    @staticmethod
    def from_dict(
        members: Mapping[str, object],
        rename: Mapping[str, str] | None = None,
        lists: Literal["refuse", "body"] = "refuse",
    ) -> Event:
        """Make an event from `type`, header fields and attributes in one mapping, as devices send them.

        `rename` maps top-level names to others, before header fields are separated from attributes. With
        `lists="body"` members that are lists become a JSON body; beside a body they raise EventError.
        """
        fields: dict[str, object] = {}
        attributes: dict[str, object] = {}
        for name, value in members.items():
            new = name if rename is None else rename.get(name, name)
            target = fields if new in RESERVED else attributes
            if new in target:
                raise EventError(place_of(new), "is given twice")
            target[new] = value
        kind = fields.pop("type", None)
        if kind is None and fields.get("JMSType") is None:
            raise EventError("$.type", "is missing")
        return _build(kind, attributes, fields, lists=lists)

    @property
    def id(self) -> str | None:
        """The id set by the application, else the one made from origin and counter, else None."""
        if self.header is not None and self.header.id is not None:
            return self.header.id
        if self.counter and self.origin is not None and self.origin.system is not None:
            return make_id(self.origin.system, self.origin.epoch, self.counter)
        return None

    @property
    def source(self) -> str | None:
        """The sender, as the node authenticated it."""
        return None if self.origin is None else self.origin.source

    @property
    def time(self) -> datetime:
        """The time of the event, in UTC."""
        return time_from_us(self.time_us)

    @property
    def received(self) -> datetime | None:
        """The time at which the first node or the queue accepted it, in UTC."""
        if self.header is None or self.header.received_us is None:
            return None
        return time_from_us(self.header.received_us)

    @property
    def attributes(self) -> Mapping[str, Value]:
        """The attributes, read only."""
        return MappingProxyType(self.values)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the attribute or header field of that name, also by its JMS name."""
        value = self.values.get(name)
        if value is None and name in HEADER_READERS:
            value = HEADER_READERS[name](self)
        return default if value is None else value

    def __getitem__(self, name: str) -> Any:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    __iter__ = None  # an event is read by name, it is no sequence

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def data(self, model: ModelType[Model]) -> Model:
        """Return the body as an instance of `model`.

        That is a msgspec struct, a dataclass, a pydantic model, or a list of one: `list[Order]`. The content
        type says whether the body is JSON or msgpack. A body that does not fit the model raises CodecError,
        with the place and the type expected.
        """
        return read_data(self, model)

    def evolve(self, **changes: object) -> Event:
        """Return a changed copy; keywords are those of the constructor and `type`, and None removes.

        Counter and origin stay, except a changed source.
        """
        header = {name: changes.pop(name) for name in list(changes) if name in RESERVED}
        if "data" in changes:
            _put_data(changes, header)
        _check_keywords(changes.keys() - self.values.keys())
        replaced = {JMS_ALIASES.get(name, name) for name in header}
        kept = {name: self.get(name) for name in FIELD_CHECKS if name not in replaced and name != "id"}
        if "id" not in replaced and self.header is not None:
            kept["id"] = self.header.id
        gone = changes.keys() | {name for name, _ in flatten(changes)}
        attributes = {name: value for name, value in self.values.items() if name not in gone}
        changed = _build(header.pop("type", self.type), {**attributes, **changes}, {**kept, **header})
        origin = self.origin
        if origin is not None and origin.source != changed.source:
            origin = structs.replace(origin, source=changed.source)
        return structs.replace(changed, counter=self.counter, origin=origin or changed.origin)

    def __hash__(self) -> int:
        return hash((self.counter, self.type, self.time_us))

    def __reduce__(self) -> tuple[Callable[..., Event], tuple[object, ...]]:
        return Event.unchecked, structs.astuple(self)

    def __repr__(self) -> str:
        shown = repr(dict(list(self.values.items())[:REPR_ATTRIBUTES_MAX]))
        if len(self.values) > REPR_ATTRIBUTES_MAX:
            shown = shown[:-1] + ", …}"
        said = [repr(self.type), shown, f"time={self.time.isoformat()!r}"]
        for name in _SAID:
            value = getattr(self, name)
            if value is not None and value != getattr(EMPTY_HEADER, name, None):
                said.append(f"{name}={str(value) if name == 'received' else value!r}")
        if self.body is not None:
            said.append(f"body=<{len(self.body)} bytes>")
        return f"Event({', '.join(said)})"


def _taken_header(fields: dict[str, object]) -> dict[str, object]:
    """Remove the header fields among keywords and return them; the others are checked for near misses."""
    header = {name: fields.pop(name) for name in list(fields) if name in RESERVED}
    if "type" in header:
        raise EventError("$.type", "is given twice")
    if "data" in fields:
        _put_data(fields, header)
    if not _attribute_keywords.issuperset(fields):
        _check_keywords(fields)
    return header


def _put_data(fields: dict[str, object], header: dict[str, object]) -> None:
    """Write data among the keywords into the body; any other value of that name is an attribute."""
    if is_data(fields["data"]):
        header.update(data_fields(fields.pop("data"), header))


def _check_keywords(names: Iterable[str]) -> None:
    """Refuse keywords that are probably meant as header fields or options; remember the others."""
    for name in names:
        if name not in _attribute_keywords:
            if (meant := keyword_meant(name)) is not None:
                problem = f"did you mean {meant}? An attribute of this name goes into the mapping"
                raise EventError(place_of(name), f"{problem}: {{{name!r}: …}}")
            if name != "data":  # whose value decides
                remember(_attribute_keywords, name)


def _united(attributes: Mapping[str, object], keywords: Mapping[str, object]) -> Mapping[str, object]:
    if not isinstance(attributes, Mapping):
        raise EventError("$", f"{type(attributes).__name__} is not a mapping of attributes")
    for name in keywords:
        if name in attributes:
            raise EventError(place_of(name), "is given twice")
    return {**attributes, **keywords}


def _build(
    kind: object,
    attributes: Mapping[str, object],
    header: Mapping[str, object],
    lists: Literal["refuse", "body"] = "refuse",
) -> Event:
    """Make an event of any valid input: nested attributes, with JMS names of header fields among them."""
    if not isinstance(attributes, Mapping):
        raise EventError("$", f"{type(attributes).__name__} is not a mapping of attributes")
    fields: dict[str, object] = {}
    values: dict[str, Value] = {}
    in_body: dict[str, object] = {}
    for name, value in flatten(attributes):
        if name in JMS_ALIASES:
            _read(fields, ((name, value),))
        elif lists == "body" and isinstance(value, (list, tuple)) and header.get("body") is None:
            in_body[name] = value
        else:
            add_value(values, name, value)
    _read(fields, header.items())
    if in_body:
        fields["body"] = json_body(in_body)
        fields.setdefault("content_type", "application/json")
    return _finish(kind, values, fields)


def _read(fields: dict[str, object], given: Iterable[tuple[str, object]]) -> dict[str, object]:
    """Put header fields, given by any of their names, into `fields` as they are stored; None is left out."""
    for name, value in given:
        if value is None:
            continue
        field, stored = read_field(name, value)
        if field in fields:
            raise EventError(f"$.{name}", "is given twice")
        fields[field] = stored
    return fields


def _finish(kind: object, values: dict[str, Value], fields: dict[str, Any]) -> Event:
    """Make an event of checked values and header fields; a JMSType among them replaces the type."""
    kind = check_type(fields.pop("type", kind))
    time_us = fields.pop("time", None)
    source = fields.pop("source", None)
    return Event.unchecked(
        0,
        kind,
        time_ns() // 1000 if time_us is None else time_us,
        values,
        body=fields.pop("body", None),
        header=header_of(fields) if fields else None,
        origin=None if source is None else Origin(source=source),
    )


def _reader(name: str) -> Callable[[Event], Any]:
    def read(event: Event) -> Any:
        return getattr(event, name)

    return read


# Readers of every header field by each of its names, for filters and `event[name]`.
HEADER_READERS: dict[str, Callable[[Event], Any]] = {
    **{name: _reader(name) for name in ("type", *FIELD_CHECKS)},
    **{alias: _reader(name) for alias, name in JMS_ALIASES.items()},
    "JMSTimestamp": lambda event: event.time_us // 1000,
    "JMSDeliveryMode": lambda event: "NON_PERSISTENT" if event.delivery == "transient" else "PERSISTENT",
}
_SAID = tuple(name for name in FIELD_CHECKS if name not in ("time", "body"))

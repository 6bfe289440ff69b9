"""The description of a queue, as an application requests it, a node stores it and a search finds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from tidings.errors import CodecError, QueueError, QueueNotFound, in_words
from tidings.event.header import PRIORITY_MAX
from tidings.filters import Filter

NAME_LENGTH_MAX = 255
TEXT_LENGTH_MAX = 4_096
PROPERTIES_MAX = 100
REASON_LENGTH_MAX = 500
"""Characters of the reason of a rejection, which is kept with the message."""
REDELIVERY_S = 60.0
"""How long a message may be in flight, unless the description says otherwise."""
DELIVERIES_MAX = 10
"""How often a message is handed out before it is a dead letter, unless the description says otherwise."""
SECONDS_MAX = 1e10
DELAY_S_MAX = 5 * 366 * 86_400.0
"""Seconds that a message may be delayed: five years."""
GROUP_LENGTH_MAX = 255
"""Characters of the name of a group."""
RATE_MAX = 1e6
"""Messages a second that a queue with a limit may hand out."""
RETRIES_MAX = 100
"""Pauses between the deliveries of a message that a description may list."""
TRANSMISSION = "to:"
"""How the names begin of queues whose messages go on to another node, before the address there."""

DEAD = "tidings.dead"
"""The queue of the dead letters."""
CARRIED = "tidings.carried"
"""The queue of what a node carries for hosts that meet by chance."""

Count = Annotated[int, Meta(ge=1, le=2**53)]
Seconds = Annotated[float, Meta(gt=0, le=SECONDS_MAX)]
Patience = Annotated[float, Meta(ge=0.001, le=SECONDS_MAX)]  # less could pass while a message is handed out
Rate = Annotated[float, Meta(ge=0.001, le=RATE_MAX)]
Pause = Annotated[float, Meta(ge=0, le=DELAY_S_MAX)]
Property = str | int | float | bool


class Description(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Description of a queue; the last group is its state, which the node sets."""

    name: Annotated[str, Meta(max_length=NAME_LENGTH_MAX)] = ""  # the id, if nothing else is said
    text: Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)] = ""
    properties: Annotated[dict[str, Property], Meta(max_length=PROPERTIES_MAX)] = {}
    type: str = ""  # how messages are kept; by `persistent`, if nothing else is said
    persistent: bool | None = None  # messages survive a restart; None: if the node keeps anything at all
    keep: bool | None = None  # the queue itself does; None: as its messages
    priorities: bool = False
    priority: Annotated[int, Meta(ge=0, le=PRIORITY_MAX)] | None = None  # of messages that name none
    ageing_s: Seconds | None = None  # a level of priority is worth so much waiting
    expiry: bool = False
    ttl_s: Seconds | None = None  # of messages that name none
    lease_s_max: Seconds | None = None  # a longer ttl is shortened
    max_messages: Count | None = None
    max_bytes: Count | None = None  # that its messages hold, about 400 each beside the event
    bind: str | None = None  # publications that match this filter are put into the queue
    passive: bool = False  # the binding takes what flows and asks for nothing
    redelivery_s: Patience | None = REDELIVERY_S
    deliveries_max: Count | None = DELIVERIES_MAX
    retry_s: Annotated[tuple[Pause, ...], Meta(max_length=RETRIES_MAX)] = ()  # pauses between deliveries
    rate: Rate | None = None  # messages a second that all readers together get
    compress: bool = False  # with zstd, where messages are written to disk

    maker: str = ""  # the user whose rights the binding has, and no more than these; the owner has all
    id: str = ""
    alias_of: str | None = None
    messages: int = 0
    in_flight: int = 0
    delayed: int = 0  # those that are not yet due
    groups: int = 0  # of the messages that have one
    waiting: int = 0
    bytes: int = 0  # that its messages hold, where max_bytes is set
    full: bool = False  # set where the counts don't show it, as they count only what a client may get
    node: str = ""  # the name of the node that has it; empty if it is in no node, or that has no name
    is_away: bool = False  # that node is not there: this is what was known of the queue, if anything
    promise: str = ""  # `carried`: what is put is carried by hosts that meet, see `docs/adhoc.md`

    @property
    def is_full(self) -> bool:
        """Whether a further message would be refused."""
        held = self.messages + self.in_flight + self.delayed
        if self.max_bytes is not None and self.bytes >= self.max_bytes:
            return True
        return self.full or (self.max_messages is not None and held >= self.max_messages)

    @property
    def wish(self) -> dict[str, Any]:
        """The requested description, without what the node adds."""
        return {name: value for name, value in asdict(self).items() if name not in REPORTED}

    def difference(self, other: Description) -> str:
        """Return the difference of two descriptions in words; empty if there is none."""
        mine, theirs = self.wish, other.wish
        return ", ".join(
            f"{name} is {mine[name]!r}, not {theirs[name]!r}" for name in mine if mine[name] != theirs[name]
        )

    def agrees(self, sought: QueueSearch) -> bool:
        """Whether it has all that a search asks for; what is left open agrees with anything."""
        if sought.name is not None and sought.name not in (self.name, self.id):
            return False
        if sought.text is not None and sought.text not in self.text:
            return False
        if any(getattr(self, field) != value for field, value in (sought.fields or {}).items()):
            return False
        return all(
            key in self.properties and _same(self.properties[key], value)
            for key, value in (sought.properties or {}).items()
        )


class QueueSearch(Struct, frozen=True):
    """Terms of a search for queues: a name or id, a part of the text, properties, and other fields."""

    name: str | None = None
    text: str | None = None
    properties: dict[str, Property] | None = None
    fields: Mapping[str, Any] | None = None
    """As `read_fields` returns them."""


COUNTED = ("messages", "in_flight", "delayed", "groups", "waiting", "bytes")
"""The fields that say how a queue stands."""
REPORTED = frozenset(("maker", "id", "alias_of", *COUNTED, "full", "node", "is_away", "promise"))
"""The fields that a node reports, and nobody asks for."""
SOUGHT = (frozenset(Description.__struct_fields__) - REPORTED - {"name", "text", "properties"}) | {"id"}
"""The fields by whose values a search finds queues; it has ways of its own for the name and the others."""


def _same(one: Property, other: Property) -> bool:
    return one == other and isinstance(one, bool) is isinstance(other, bool)


def read_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a search with their values; QueueError for what no description has."""
    if wrong := sorted(fields.keys() - SOUGHT):
        raise QueueError("", f"lookup knows no field {wrong[0]!r}, only {', '.join(sorted(SOUGHT))}")
    try:
        sought = msgspec.convert(dict(fields), Description)
    except msgspec.ValidationError as error:
        raise QueueError("", in_words(error)) from None
    return {name: getattr(sought, name) for name in fields}


def checked(wanted: Description, lasts: bool, types: dict[str, bool]) -> Description:
    """The description with all that was left open filled in; QueueError for one that can't be.

    `lasts` says whether the node keeps anything; `types` which types of queue there are, and whether their
    messages survive a restart.
    """
    check_name(wanted.name)
    if wanted.type and wanted.type not in types:
        raise QueueError(wanted.name, f"there is no type {wanted.type!r}, only {', '.join(sorted(types))}")
    persistent = wanted.persistent
    if persistent is None:
        persistent = types[wanted.type] if wanted.type else lasts
    kind = wanted.type or ("sqlite" if persistent else "volatile")
    if types[kind] is not persistent:
        does = "survive" if types[kind] else "do not survive"
        raise QueueError(
            wanted.name, f"messages of the type {kind!r} {does} a restart: persistent={persistent}"
        )
    keep = persistent if wanted.keep is None else wanted.keep
    if (persistent or keep) and not lasts:
        raise QueueError(wanted.name, "this node has no directory: only volatile queues that are not kept")
    most = wanted.deliveries_max
    if wanted.retry_s and most == DELIVERIES_MAX:
        most = len(wanted.retry_s) + 1
    filled = replace(wanted, type=kind, persistent=persistent, keep=keep, deliveries_max=most)
    _check_sense(filled)
    return filled


def check_name(name: str) -> None:
    """Refuse a name that could be taken for another address; `to:name@node` is no other's."""
    is_address = "@" in name and not name.startswith(TRANSMISSION)
    if is_address or not name.isprintable() or name != name.strip():
        raise QueueError(name, "a name has no @, no control characters and no blanks around it")


def _check_sense(wanted: Description) -> None:
    """Refuse what says nothing, rather than pass over it."""
    if wanted.bind is not None and not Filter(wanted.bind).normal:
        raise QueueError(wanted.name, f"no publication can match its binding: {wanted.bind}")
    for name, needed in (("ageing_s", "priorities"), ("priority", "priorities")):
        if getattr(wanted, name) is not None and not getattr(wanted, needed):
            raise QueueError(wanted.name, f"{name} is for queues with {needed}=True")
    for name in ("ttl_s", "lease_s_max"):
        if getattr(wanted, name) is not None and not wanted.expiry:
            raise QueueError(wanted.name, f"{name} is for queues with expiry=True")
    if wanted.deliveries_max is not None and len(wanted.retry_s) >= wanted.deliveries_max:
        problem = f"retry_s has {len(wanted.retry_s)} pauses, which deliveries_max={wanted.deliveries_max}"
        raise QueueError(wanted.name, f"{problem} leaves no use for; give fewer, or no deliveries_max")
    if wanted.passive and wanted.bind is None:
        raise QueueError(wanted.name, "passive is for queues that are bound to a filter")
    if wanted.compress and not wanted.persistent:
        raise QueueError(wanted.name, "compress is for queues whose messages are written to disk")


def split_address(address: str) -> tuple[str, str | None]:
    """(name, node) of an address `name@node`, or (name, None); QueueNotFound for what is none."""
    name, at, node = address.rpartition("@")
    if not at:
        return address, None
    if not name or not node:
        raise QueueNotFound(address, "an address is a name, or name@node")
    return name, node


def unknown_node(address: str, own: str, node: str) -> QueueNotFound:
    """Return why there is no such queue: its address names a node that this one, `own`, does not know."""
    problem = f"node {own} knows no node {node!r}; 'tidings peer list' shows those that it knows"
    return QueueNotFound(address, problem)


def encode(description: Description) -> bytes:
    """The description as it is stored."""
    kept = replace(description, **dict.fromkeys(COUNTED, 0), full=False, node="", is_away=False, promise="")
    return msgspec.msgpack.encode(kept)


def decode(stored: bytes) -> Description:
    """The description that was stored."""
    return msgspec.msgpack.decode(stored, type=Description)


def read_description(reply: Any) -> Description:
    """Read a description; fields that a newer node adds are ignored. CodecError if it is none."""
    if not isinstance(reply, dict):
        raise CodecError("$.description", f"is {type(reply).__name__}, not a description")
    try:
        known = {name: reply[name] for name in Description.__struct_fields__ if name in reply}
        return msgspec.convert(known, Description)
    except msgspec.ValidationError as error:
        raise CodecError("$.description", str(error)) from None

"""The arguments of requests about queues, as a client may send them; msgspec refuses what does not fit."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from tidings.protocol.arguments import Number
from tidings.queues.description import NAME_LENGTH_MAX, SECONDS_MAX, Property, QueueSearch, read_fields

GET_MAX = 10_000
"""Messages in one answer."""
ADDRESS_LENGTH_MAX = 600

QueueAddress = Annotated[str, Meta(min_length=1, max_length=ADDRESS_LENGTH_MAX)]
Wait = Annotated[float, Meta(ge=0, le=SECONDS_MAX)]
Scope = Literal["local", "remote", "both"]
"""Nodes at which queues are looked for: the one that is asked, others, or both."""


class Named(Struct, frozen=True):
    """A queue by its name, id, alias or `name@node`."""

    queue: QueueAddress


class FindRequest(Struct, frozen=True):
    """A description with fields left open."""

    name: str | None = None
    text: str | None = None
    properties: dict[str, Property] | None = None
    scope: Scope = "local"
    fields: dict[str, Any] | None = None  # any others of the description, with their values

    @property
    def terms(self) -> QueueSearch:
        """The terms of the search; QueueError for a field that no description has."""
        return QueueSearch(self.name, self.text, self.properties, read_fields(self.fields or {}))


class Alias(Struct, frozen=True):
    """A further name for a queue."""

    name: Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH_MAX)]
    target: QueueAddress


class Purge(Struct, frozen=True):
    """Messages to be thrown away."""

    queue: QueueAddress
    where: str = ""


class Replay(Struct, frozen=True):
    """Dead letters to be put back where they came from, or into a queue."""

    where: str = ""
    queue: QueueAddress | None = None


class Renew(Struct, frozen=True):
    """A message, by the id of its event, and how long it is to live from now on."""

    queue: QueueAddress
    id: str
    lease_s: Wait


class GetRequest(Struct, frozen=True):
    """Messages that are wanted, and for how long they may be waited for."""

    queue: QueueAddress
    where: str = ""
    count: Annotated[int, Meta(ge=1, le=GET_MAX)] = 1
    wait_s: Wait | None = 0.0
    action: Literal["take", "read"] = "take"
    if_exists: bool = False
    transaction: Number = 0
    up_to: int | None = None
    after: int | None = None
    bodies: bool = True
    together: bool = False  # several messages of a group may be taken

    @property
    def is_final(self) -> bool:
        """Whether it is answered with what there is now: nothing that comes later is meant."""
        return self.wait_s == 0 or self.up_to is not None or self.after is not None


class Cancel(Struct, frozen=True):
    """A get that is not wanted any more, by the number of its request."""

    number: int


class PartRequest(Struct, frozen=True):
    """A further part of the body of a message that the client holds, or that it has read: delivery 0."""

    queue: QueueAddress
    number: int
    delivery: int
    index: int


class Begin(Struct, frozen=True):
    """A transaction, by a number that the client gives it."""

    transaction: Annotated[int, Meta(ge=1, lt=2**32)]
    timeout_s: Annotated[float, Meta(gt=0, le=SECONDS_MAX)] | None = None


class Rollback(Struct, frozen=True):
    """A transaction that is not to be."""

    transaction: Number

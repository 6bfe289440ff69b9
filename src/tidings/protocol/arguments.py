"""The arguments of requests, as a client may send them: what does not fit is refused by msgspec."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from tidings.errors import Refused
from tidings.ids import NUMBER_MAX

NAME_LENGTH_MAX = 255
"""Characters in the name of a client, and of a durable subscription."""

INBOX = "inbox."
"""How the names of clients' inboxes begin; any other place for answers is a queue."""

Number = Annotated[int, Meta(ge=0, lt=2**32)]
Name = Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH_MAX)]
Arguments = TypeVar("Arguments")
OnSlow = Literal["drop-oldest", "latest", "block", "spill"]


def decode_arguments(raw: msgspec.Raw, kind: type[Arguments]) -> Arguments:
    """The arguments of an operation; DecodeError for what it does not take."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    try:
        return decoder.decode(raw)  # type: ignore[no-any-return]  # decoders of all kinds are in one table
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None


_decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


def check_readable(name: str, what: str) -> None:
    """Refuse a name that could not be read where it is shown, or would change how a terminal shows the rest.

    It is for names that are new: one that was stored before goes on.
    """
    if not name.isprintable():
        raise Refused("protocol", f"{what} has no control characters: {name!a}")


def inbox_name(user: str, system: str) -> str:
    """The name of a client's inbox; that of a user, who has no slash in its name, is nobody else's."""
    return f"{INBOX}{user}/{system}" if user else f"{INBOX}{system}"


class Wanted(Struct, frozen=True, omit_defaults=True):
    """The wish of a subscription: the arguments of the subscribe request that do not change."""

    filter: str = ""
    durable: Name | None = None
    since: int | None = None  # a position
    since_us: int | None = None  # or a time
    last: bool = False
    passive: bool = False
    on_slow: OnSlow = "drop-oldest"
    slow_key: str | None = None
    order: Literal["oldest", "newest"] = "oldest"
    queue: str | None = None  # copies of what is put into it, instead of what is published
    link: bool = False  # what a neighbour node has announced that it wants
    pattern: str | None = None  # matches of it, instead of events that match a filter
    channel: str | None = None  # the events of a channel, as a member
    reference: str = ""  # by which a private channel is joined
    sides: tuple[int, int] | None = None  # if only as long as these are the two sides of the link, for both
    again: bool = False  # from behind what all nodes beyond the link have, though it was acknowledged

    @property
    def is_stored(self) -> bool:
        """Whether it has a place in the stored stream from the beginning."""
        return self.durable is not None or self.since is not None or self.since_us is not None

    @property
    def is_stream(self) -> bool:
        """Whether it has a place in the stored stream but nothing at the node that would remember it."""
        return self.durable is None and (self.is_stored or self.on_slow == "spill")


class SubscribeRequest(Wanted, frozen=True, kw_only=True):
    """The arguments of a subscribe request."""

    number: Number
    credit: Annotated[int, Meta(ge=0, le=NUMBER_MAX)] = 0

    def check(self) -> None:
        """Refuse options that exclude each other, rather than ignore some of them."""
        if (self.sides is not None or self.again) and not self.link:
            raise Refused("protocol", "only a link has sides, and events that come again")
        if self.link and (self.filter or self.queue or self.last or self.is_stored):
            raise Refused("protocol", "a link excludes all other options")
        if self.channel is not None and (
            self.link or self.queue or self.pattern or self.last or self.since_us is not None
        ):
            raise Refused("protocol", "channel can't be combined with queue, pattern, last or since_us")
        if self.queue is not None and (self.last or self.is_stored or self.on_slow == "spill"):
            raise Refused("protocol", "queue can't be combined with last, durable, since or spill")
        if self.pattern is not None:
            self._check_pattern()
        if self.last and (self.is_stored or self.on_slow == "spill"):
            raise Refused("protocol", "last can't be combined with durable, since or spill")
        if self.durable is not None and self.on_slow != "drop-oldest":
            raise Refused("protocol", "durable can't be combined with on_slow: its events are stored")
        if self.order == "newest" and self.durable is None:
            raise Refused("protocol", "order='newest' needs a durable subscription")
        if (self.on_slow == "latest") is not bool(self.slow_key):
            raise Refused("protocol", "on_slow='latest' and slow_key, its attribute, need each other")

    def _check_pattern(self) -> None:
        if self.filter or self.queue is not None or self.link or self.last or self.on_slow == "spill":
            raise Refused("protocol", "a pattern can't be combined with filter, queue, last or spill")
        if self.since is not None or self.since_us is not None:
            raise Refused("protocol", "a pattern begins now; leave out since")


class InForce(Struct, frozen=True):
    """From which number on subscriptions are in force: an epoch and a position, by the name of each node.

    `missing` names the nodes that could not be asked.
    """

    nodes: dict[str, tuple[int, int]] = {}
    missing: list[str] = []


class UnsubscribeRequest(Struct, frozen=True):
    """The arguments of an unsubscribe request: a subscription of this session, or a durable one for good."""

    number: Number | None = None
    durable: Name | None = None


class AdvertiseRequest(Struct, frozen=True):
    """The arguments of an advertise request."""

    number: Number
    filter: str = ""


class UnadvertiseRequest(Struct, frozen=True):
    """The arguments of an unadvertise request."""

    number: Number

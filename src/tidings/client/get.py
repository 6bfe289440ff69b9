"""The request `get`, which all ways of getting messages use.

The node answers it when there is a message, or when its time is up. The rule kept: a caller that does not
take the answer, because it was cancelled or timed out, reports that, and then the node gives back at once the
messages that it has delivered for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from math import inf
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import force_setattr, replace

from tidings.client.encryption import QueueKeys
from tidings.errors import CodecError, FilterError, NoAnswer, UserError
from tidings.event import Event
from tidings.event.header import EMPTY_HEADER
from tidings.event.values import TIME_US_MAX
from tidings.event.wire import decode_event
from tidings.filters import Filter
from tidings.ids import Origin
from tidings.queues.description import DELAY_S_MAX, SECONDS_MAX
from tidings.transport.link import Link

ANSWER_S = 10.0
"""Seconds that a connected node may take to answer, beyond the time it was given."""
LATE = 0.9
"""The part of the time that a message may be held after which it is not begun with, but given back."""
PREFETCH = 10
"""Messages that a worker's loop fetches ahead by default."""
PREFETCH_MAX = 10_000

Where = Filter | str | Event | Mapping[str, Any] | None
"""Selects messages: a filter, or an example of which every field must be equal; None: any."""


class ReceivedMessage(Struct, array_like=True, frozen=True):
    """A message as delivered: `raw` is its event, `parts` is the number of further parts of its body."""

    number: int
    delivery: int
    redelivered: bool
    system: str | None
    epoch: int
    source: str | None
    parts: int
    raw: bytes
    received: int | None = None  # its number in a queue elsewhere, which is not that at the node

    @property
    def event(self) -> Event:
        """The event, with the first part of its body; its number is the time when the queue accepted it.

        Its delay is over: an application that puts it again without a delay asks for none.
        """
        event = decode_event(self.raw, Origin(self.system, self.epoch, self.source))
        received_us = min(self.number if self.received is None else self.received, TIME_US_MAX)
        header = replace(event.header or EMPTY_HEADER, received_us=received_us)
        if header.queue_delay_s is not None or header.queue_due_us is not None:
            header = replace(header, queue_delay_s=None, queue_due_us=None)
        force_setattr(event, "header", header)
        return event


class GetAnswer(Struct, frozen=True):
    """An answer: messages, the number of the queue's last message, and where reading goes on.

    The messages may be held for `held_s` seconds (None: as long as the client is there); `request` is the
    number of the request, by which they can be given back.
    """

    messages: list[ReceivedMessage]
    last: int = 0
    next: Any = None
    held_s: Annotated[float, Meta(ge=0, le=SECONDS_MAX)] | None = None
    request: int = 0


async def fetch(
    link: Link, arguments: dict[str, Any], timeout_s: float | None, limit_s: float = inf
) -> GetAnswer:
    """Fetch messages, now or when there are some; none if none comes in time, Disconnected without a node.

    It waits for `limit_s` at most, the time that its transaction has left.
    """
    session = link.core.session
    link.flush_soon()
    call = link.core.request("get", {**arguments, "wait_s": timeout_s}, "again")
    wait, number = link.outcome(call), call.number
    try:
        if timeout_s is None:
            return read_answer(await link.within(wait, limit_s, "get", "answered"), number)
        await asyncio.wait([wait], timeout=min(timeout_s, limit_s))
        if not wait.done() and not link.core.is_up:
            raise link.late("get", "answered", timeout_s)
        answer = await link.within(wait, min(ANSWER_S, link.limit_s), "get", "answered")
        return read_answer(answer, number)
    except UserError:
        raise
    except BaseException as error:
        give_up(link, number)
        # After a cut the node waits for a message as long as was requested, from then on.
        if isinstance(error, NoAnswer) and session != link.core.session:
            return GetAnswer([])
        raise


def give_up(link: Link, request: int) -> None:
    """Give back the messages that a `get` is answered with, as if they had not been taken."""
    link.core.cancel_get(request)
    link.flush_soon()


def read_answer(result: Any, request: int) -> GetAnswer:
    """Decode the answer to the `get` of this number; CodecError if it is none."""
    try:
        return replace(msgspec.convert(result, GetAnswer), request=request)
    except msgspec.ValidationError as error:
        raise CodecError("$.get", str(error)) from None


async def whole(link: Link, queue: str, received: ReceivedMessage, keys: QueueKeys | None) -> Event:
    """Return the event of a message, with all parts of its body, decrypted if there are keys."""
    event = received.event
    if received.parts:
        event = await _joined(link, queue, received, event)
    return event if keys is None else keys.decrypt(event)


async def _joined(link: Link, queue: str, received: ReceivedMessage, event: Event) -> Event:
    parts = [event.body or b""]
    for index in range(received.parts):
        which = {"queue": queue, "number": received.number, "delivery": received.delivery, "index": index}
        part = await link.call("part", which, None, "again")
        if not isinstance(part, bytes):
            raise CodecError("$.part", f"is {type(part).__name__}, not bytes")
        parts.append(part)
    return replace(event, body=b"".join(parts))


def condition(where: Where) -> str:
    """Return the condition as the text of a filter."""
    if where is None:
        return ""
    if isinstance(where, str | Filter):
        return str(where)
    if isinstance(where, Event | Mapping):
        return str(Filter.template(where))
    raise FilterError(f"where is a filter, an event or a mapping, not {type(where).__name__}")


def check_delay(delay_s: object) -> float:
    """Return a delay in seconds; raises UserError if it can't be one."""
    if type(delay_s) not in (int, float) or not 0 <= delay_s <= DELAY_S_MAX:  # type: ignore[operator]
        raise UserError(f"delay_s={delay_s!r}: 0 to {DELAY_S_MAX:.0f} seconds")
    return float(delay_s)  # type: ignore[arg-type]


def check_time(timeout_s: float | None, name: str = "timeout_s") -> float | None:
    """Return the timeout; raises UserError if it can't be one."""
    if timeout_s is None:
        return None
    if type(timeout_s) not in (int, float) or not 0 <= timeout_s <= SECONDS_MAX:
        raise UserError(
            f"{name}={timeout_s!r}: 0 to {SECONDS_MAX:g} seconds, or None to wait without a limit"
        )
    return timeout_s


def check_count(name: str, count: int, least: int, most: int) -> None:
    """Raise UserError if a number is not within its limits."""
    if type(count) is not int or not least <= count <= most:
        raise UserError(f"{name} must be a whole number within {least}..{most}, not {count!r}")

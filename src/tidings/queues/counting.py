"""What a client is told of how a queue stands: it counts the messages that the client may get.

A manager of the queue, and a client that may get all of it, gets the number of all messages. A client that
may get some gets the number of these, found by a search that goes in steps; one that may get none gets 0.
Whether the queue is full is returned to every client that sees it, because a client that puts has to know.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from tidings.errors import NotAllowed
from tidings.filters import Filter
from tidings.protocol.session import Session
from tidings.queues.description import Description
from tidings.queues.message import Message, sight
from tidings.queues.queue import Queue
from tidings.queues.serving import AT_ONCE
from tidings.steps import Steps

NOTHING = ~Filter()
"""What one may get who has no right to get."""


def reach(session: Session, address: str) -> Filter | None:
    """Which messages of a queue are counted for a client; None: all."""
    try:
        session.allow("manage", address)
    except NotAllowed:
        try:
            return session.allow("get", address)
        except NotAllowed:
            return NOTHING
    return None


def described(session: Session, queue: Queue, told: Description | None = None) -> Steps[Description]:
    """A description of a queue of this node, as it is told to a client."""
    told = queue.describe() if told is None else told
    granted = reach(session, queue.name)
    if granted is None:
        return told
    messages = 0
    for number in queue.shelf.search(granted, is_bounded=True):
        if number is None:
            yield
        else:
            messages += not queue.is_expired(number)
    in_flight = yield from _matching((held.message for held in list(queue.held.values())), granted)
    return replace(told, messages=messages, in_flight=in_flight, full=told.is_full)


def _matching(messages: Iterable[Message], filter: Filter) -> Steps[int]:
    found = 0
    for count, message in enumerate(messages, 1):
        found += filter.matches(sight(message))
        if not count % AT_ONCE:
            yield
    return found


def described_elsewhere(session: Session, address: str, told: Description) -> Description:
    """The same of a queue elsewhere: what of it a client may get can't be counted here, so it is told 0."""
    if reach(session, address) is None:
        return told
    return replace(told, messages=0, in_flight=0, full=told.is_full)

"""Acknowledging messages as they arrive: `get` and `get_all` return when the node has that, on disk if due.

Many gets of one client share the cost: their acknowledgements leave in one frame, and one commit of the node
is for all of them. The rule kept: what is acknowledged reaches the caller. A caller that is cancelled while
the node is being told has the messages first, and is cancelled where it waits next; so `asyncio.timeout`
around a `get` loses nothing.
"""

from __future__ import annotations

import asyncio

from tidings.client.message import Holder, Message
from tidings.errors import Disconnected, MessageNotHeld, NoAnswer
from tidings.protocol.messages import DONE, error_of
from tidings.transport.link import Link

CANCELLED_S = 1.0
"""How long a caller that was cancelled is kept while the node is told; then its messages may be lost."""


async def acknowledge(holder: Holder, messages: list[Message]) -> list[Message]:
    """Acknowledge messages and wait until the node has that; those that were held until then.

    The others have gone back to the queue meanwhile, and come again. Disconnected if the node is gone for
    good, and it is not known whether it has heard.
    """
    link = holder.link
    link.core.check()
    said = dict(zip(holder.say_all(messages, DONE), messages, strict=True))
    if not said:
        return []
    counter = next(reversed(said))
    try:
        await link.wait_accepted(counter, None)
    except asyncio.CancelledError:
        if not await _wait_on(link, counter) or not _settled(link, said):
            raise
        _cancel_soon(link)
    return _settled(link, said)


def _settled(link: Link, said: dict[int, Message]) -> list[Message]:
    """The messages whose acknowledgement was not refused; the others are dropped from what was said."""
    for counter, failure in link.core.publications.refusals(said).items():
        error = error_of(failure)
        if not isinstance(error, MessageNotHeld):
            raise error
        del said[counter]
    return list(said.values())


async def _wait_on(link: Link, counter: int) -> bool:
    """Wait a while longer, unless there is nobody to wait for; whether the node has heard."""
    if link.core.failure is not None or not link.core.is_up:
        return False
    try:
        await link.wait_accepted(counter, CANCELLED_S)
    except (Disconnected, NoAnswer):
        return False
    return True


def _cancel_soon(link: Link) -> None:
    """Cancel the task that runs now when it waits next, unless whoever cancelled it has taken that back."""
    task = asyncio.current_task()
    assert task is not None
    requests = task.cancelling()  # with those of before, which it may have dealt with

    def cancel() -> None:
        if 0 < requests <= task.cancelling() and not task.done():
            task.uncancel()  # it is counted once
            task.cancel()

    link.call_soon(cancel)

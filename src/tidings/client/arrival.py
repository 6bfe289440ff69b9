"""Acknowledgement on arrival: `get` and `get_all` return when the node has it, on disk if the queue persists.

Many gets of one client share the cost: their acknowledgements leave in one frame, and one commit of the node
covers all of them. The rule kept: an acknowledged message reaches the caller. A caller that is cancelled
while the acknowledgement is under way gets the messages first, and is cancelled where it waits next; so
`asyncio.timeout` around a `get` loses nothing.

`get_all` returns all messages of a queue when the last page has arrived, or none; they are held until then.
Messages that the node takes back meanwhile do not count: after a cut they are requested again, and if there
are more than can be fetched in the time for which one may be held, the call raises an error.
"""

from __future__ import annotations

import asyncio
from math import inf

from tidings.client.get import LATE, GetAnswer, give_up
from tidings.client.message import Holder, Message
from tidings.client.transaction_core import TransactionCore
from tidings.errors import Disconnected, MessageNotHeld, NoAnswer, TidingsError
from tidings.protocol.messages import DONE, UNOPENED, error_of
from tidings.transport.link import Link, unanswered

CANCELLED_S = 1.0
"""Seconds that a cancelled caller waits for its acknowledgements; after that its messages may be lost."""


async def acknowledge(holder: Holder, messages: list[Message]) -> list[Message]:
    """Acknowledge messages, wait until the node has that, and return those that were held until then.

    The others have gone back to the queue, and are redelivered. Raises NoAnswer or Disconnected if the node
    does not answer in time, or is gone for good; `messages` of the error has those of which it is not known
    whether the node has the acknowledgements.
    """
    link = holder.link
    link.core.check()
    said = dict(zip(holder.say_all(messages, DONE), messages, strict=True))
    if not said:
        return []
    counter = next(reversed(said))
    try:
        await link.wait_accepted(counter, None, "acknowledge")
    except asyncio.CancelledError:
        if not await _wait_on(link, counter) or not _settled(link, said):
            raise
        _cancel_soon(link)
    except (Disconnected, NoAnswer) as error:
        raise _unsettled(holder, said, error) from None
    return _settled(link, said)


def _unsettled(holder: Holder, said: dict[int, Message], error: TidingsError) -> BaseException:
    """Return the error for messages whose acknowledgement was not answered in time.

    Those whose acknowledgement was not sent go back to the queue; `messages` of the error has the others.
    """
    withdrawn = holder.link.withdraw(said)
    for counter in withdrawn:
        said[counter].outcome = None
    holder.say_all([said[counter] for counter in sorted(withdrawn)], UNOPENED)
    kept = [message for counter, message in said.items() if counter not in withdrawn]
    given_up = unanswered(error, bool(kept))
    vars(given_up)["messages"] = kept
    return given_up


def _settled(link: Link, said: dict[int, Message]) -> list[Message]:
    """Return the messages whose acknowledgement was not refused; the others are dropped."""
    for counter, failure in link.core.publications.refusals(said).items():
        error = error_of(failure)
        if not isinstance(error, MessageNotHeld):
            raise error
        del said[counter]
    return list(said.values())


async def _wait_on(link: Link, counter: int) -> bool:
    """Wait a while longer, unless the connection has failed; return whether the node has it."""
    if link.core.failure is not None or not link.core.is_up:
        return False
    try:
        await link.wait_accepted(counter, CANCELLED_S, "acknowledge")
    except (Disconnected, NoAnswer):
        return False
    return True


def _cancel_soon(link: Link) -> None:
    """Cancel the task that runs now when it waits next, unless the cancellation was taken back."""
    task = asyncio.current_task()
    assert task is not None
    requests = task.cancelling()  # with those of before, which it may have dealt with

    def cancel() -> None:
        if 0 < requests <= task.cancelling() and not task.done():
            task.uncancel()  # it is counted once
            task.cancel()

    link.call_soon(cancel)


class PageCollector:
    """Collector of matching messages, page by page, held by the holder or a transaction."""

    def __init__(self, holder: Holder, transaction: TransactionCore | None) -> None:
        self._holder = holder
        self._link = holder.link
        self._transaction = transaction
        self._messages: list[Message] = []
        self._requests: list[int] = []
        self._hands = holder.link.core.hands
        self._late_at = inf

    def expects(self, handed: GetAnswer) -> bool:
        """Whether an arrived page has messages; MessageNotHeld if those before are held for too long."""
        if self._hands != self._link.core.hands:  # those before are in the queue again, and may come again
            self._hands, self._messages, self._late_at = self._link.core.hands, [], inf
        if self._link.now >= self._late_at:
            give_up(self._link, handed.request)
            problem = f"there are too many to be got within redelivery_s={handed.held_s}; none was taken"
            raise MessageNotHeld(self._holder.queue, problem)
        return bool(handed.messages)

    def add(self, handed: GetAnswer, messages: list[Message]) -> None:
        """Add a page; what a transaction has taken it may hold until it ends."""
        if not self._messages and self._transaction is None and handed.held_s is not None:
            self._late_at = self._link.now + LATE * handed.held_s
        self._messages += messages
        self._requests.append(handed.request)

    def give_back(self) -> None:
        """Give all back, as if none had been taken."""
        if self._transaction is None:
            self._holder.say_all(self._messages, UNOPENED)
            return
        for request in self._requests:
            give_up(self._link, request)

    async def finish(self) -> list[Message]:
        """Acknowledge all, unless a transaction holds them, and return those that were held until then."""
        if self._transaction is not None or not self._messages:
            return self._messages
        had = await acknowledge(self._holder, self._messages)
        if not had:
            raise MessageNotHeld(self._holder.queue, "all went back before they were acknowledged")
        return had

"""A message: an event from a queue, and its settlement by its consumer or on arrival.

`get` and `get_all` acknowledge on arrival, and return when the node has that, on disk if the queue persists.
Many gets of one client share the cost: their acknowledgements leave in one frame, and one commit of the node
covers all of them. The rule kept: an acknowledged message reaches the caller. A caller that is cancelled
while the acknowledgement is under way gets the messages first, and is cancelled where it waits next; so
`asyncio.timeout` around a `get` loses nothing.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Any

from tidings.client.encryption import QueueKeys
from tidings.client.get import LATE, GetAnswer, ReceivedMessage, check_delay, fetch, give_up, whole
from tidings.errors import (
    DecryptionError,
    Disconnected,
    EventError,
    MessageNotHeld,
    NoAnswer,
    QueueEmpty,
    TidingsError,
    UserError,
)
from tidings.event import Event
from tidings.event.data import Model
from tidings.event.values import plain_text
from tidings.protocol.messages import DONE, GIVE_BACK, REJECT, UNOPENED, error_of
from tidings.queues.description import REASON_LENGTH_MAX
from tidings.transport.link import Link, unanswered

if TYPE_CHECKING:
    from tidings.client.transaction_core import TransactionCore

_WORDS = {
    DONE: "acknowledged already",
    GIVE_BACK: "given back already",
    REJECT: "rejected already",
    UNOPENED: "given back already",
}
CANCELLED_S = 1.0
"""Seconds that a cancelled caller waits for its acknowledgements; after that its messages may be lost."""


class Message:
    """An event from a queue, with the event's fields: `message["color"]`, `message.priority`.

    Its consumer acknowledges, releases or rejects it, once. The second time, or after it has gone back to the
    queue because its time was up, that raises MessageNotHeld. `get` returns messages already acknowledged.
    """

    __slots__ = ("_holder", "deliveries", "event", "number", "outcome", "redelivered")

    def __init__(self, received: ReceivedMessage, event: Event, holder: Holder | TransactionCore) -> None:
        self.event = event
        """The event itself."""
        self.number: int = received.number
        """Its number at the node."""
        self.deliveries: int = received.delivery
        """How often it was delivered, this time included."""
        self.redelivered: bool = received.redelivered or received.delivery > 1
        """Whether it may have been processed before."""
        self.outcome: int | None = None
        """The protocol's number of its settlement; None while it is held."""
        self._holder = holder

    def __getattr__(self, name: str) -> Any:
        if name == "event":  # not made yet
            raise AttributeError(name)
        return getattr(self.event, name)

    def __getitem__(self, name: str) -> Any:
        return self.event[name]

    def __contains__(self, name: object) -> bool:
        return name in self.event

    def data(self, model: type[Model]) -> Model:
        """Return the body as an instance of `model`, as `Event.data` does."""
        return self.event.data(model)

    async def acknowledge(self) -> None:
        """Acknowledge it as processed; on return it is removed for good."""
        await self._holder.settle(self, DONE)

    async def reject(self, reason: str = "") -> None:
        """Reject it as not processable: it goes to the dead letters, with the reason."""
        text = plain_text(reason, "$.reason")
        if len(text) > REASON_LENGTH_MAX:
            raise EventError(
                "$.reason", f"has {len(text)} characters, at most {REASON_LENGTH_MAX} are allowed"
            )
        await self._holder.settle(self, REJECT, text)

    async def release(self, *, delay_s: float | None = None) -> None:
        """Give it back unprocessed: it returns to its place in the queue for the next consumer.

        No consumer gets it before `delay_s` seconds have passed; by default, before the pause that the
        queue's `retry_s` has for so many deliveries.
        """
        if delay_s is not None:
            delay_s = check_delay(delay_s)
        await self._holder.settle(self, GIVE_BACK, "", delay_s)

    def __repr__(self) -> str:
        return f"<Message {self.number}, delivery {self.deliveries}: {self.event!r}>"


class Holder:
    """Holds the messages that a consumer has taken from one queue."""

    def __init__(self, link: Link, queue: str, keys: QueueKeys | None) -> None:
        self.link = link
        self.queue = queue
        self._keys = keys
        self._unsure: dict[int, int] | None = None  # counters of settlements that were not answered

    def say(self, message: Message, outcome: int, text: str = "", delay_s: float | None = None) -> int:
        """Send the settlement of a message, once, and return its counter."""
        if message.outcome is not None:
            problem = f"message {message.number} was {_WORDS[message.outcome]}"
            raise MessageNotHeld(self.queue, problem)
        self.link.flush_soon()
        counter = self.link.core.settle(message.number, message.deliveries, outcome, text, delay_s)
        message.outcome = outcome
        return counter

    def say_all(self, messages: list[Message], outcome: int) -> list[int]:
        """Send the same settlement for all that are not settled yet, while the connection has not failed."""
        if self.link.core.failure is not None:
            return []
        return [self.say(message, outcome) for message in messages if message.outcome is None]

    async def settle(
        self, message: Message, outcome: int, text: str = "", delay_s: float | None = None
    ) -> None:
        """Send the settlement, and wait until the node has it.

        One that is not answered in time can be repeated: it is withdrawn, or waited for again.
        """
        counter = 0
        if self._unsure is not None and message.outcome == outcome:
            counter = self._unsure.pop(message.number, 0)
        counter = counter or self.say(message, outcome, text, delay_s)
        try:
            await self.wait(counter)
        except (Disconnected, NoAnswer, asyncio.CancelledError) as error:
            if error.may_be_accepted:  # type: ignore[union-attr]  # every error of wait_done has it
                self._unsure = {**(self._unsure or {}), message.number: counter}
            else:
                message.outcome = None
            raise

    async def wait(self, counter: int) -> None:
        """Wait until the node has a settlement; MessageNotHeld, with the queue's name, if it was too late."""
        try:
            await self.link.wait_done(counter, None, "settle")
        except MessageNotHeld as error:
            raise MessageNotHeld(self.queue, error.problem) from None

    def give_back(self, received: list[ReceivedMessage], outcome: int = UNOPENED) -> None:
        """Give back messages that no consumer has seen."""
        if self.link.core.failure is None:
            for one in received:
                self.link.core.settle(one.number, one.delivery, outcome)
            self.link.flush_soon()

    async def open(self, received: list[ReceivedMessage]) -> list[Message]:
        """Open the delivered messages; if that fails, all of them are given back.

        That counts as a delivery of a message that can't be decrypted, but not of those that came with it.
        """
        messages: list[Message] = []
        try:
            for one in received:
                event = await whole(self.link, self.queue, one, self._keys)
                messages.append(Message(one, event, self))
            return messages
        except DecryptionError:
            at = len(messages)
            self.give_back(received[at : at + 1], GIVE_BACK)
            self.give_back(received[:at] + received[at + 1 :], UNOPENED)
            raise
        except BaseException:
            self.give_back(received, GIVE_BACK)
            raise


async def wait_handed(
    link: Link, queue: str, arguments: dict[str, Any], timeout_s: float | None, limit_s: float = inf
) -> GetAnswer:
    """Wait for at least one message; QueueEmpty if none comes in time."""
    handed = await fetch(link, {"queue": queue, **arguments}, timeout_s, limit_s)
    if not handed.messages:
        within = f" came within {timeout_s:g} s" if timeout_s else ""
        raise QueueEmpty(queue, f"no matching message{within}")
    return handed


class Take:
    """One message for the length of an `async with` block; made by `Queue.take`.

    It is acknowledged when the block ends, unless it was settled before, and released if the block raises.
    """

    def __init__(self, holder: Holder, arguments: dict[str, Any], timeout_s: float | None) -> None:
        self._holder = holder
        self._arguments = arguments
        self._timeout_s = timeout_s
        self._message: Message | None = None

    async def __aenter__(self) -> Message:
        if self._message is not None:
            raise UserError("a message can be taken once; call take again")
        holder = self._holder
        handed = await wait_handed(holder.link, holder.queue, self._arguments, self._timeout_s)
        (self._message,) = await holder.open(handed.messages[:1])
        return self._message

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        message, holder = self._message, self._holder
        assert message is not None
        if message.outcome is not None:
            return
        if kind is None:
            await holder.settle(message, DONE)
        elif holder.link.core.failure is None:
            holder.say(message, GIVE_BACK)


# Acknowledgement on arrival


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
    """Collector of matching messages, page by page, held by the holder or a transaction until all are there.

    Messages that the node takes back meanwhile do not count: after a cut they are requested again, and if
    there are more than can be fetched in the time for which one may be held, the call raises an error.
    """

    def __init__(self, holder: Holder, transaction: TransactionCore | None) -> None:
        self._holder = holder
        self._link = holder.link
        self._transaction = transaction
        self._messages: list[Message] = []
        self._requests: list[int] = []
        self._held_epoch = holder.link.core.held_epoch
        self._late_at = inf

    def expects(self, handed: GetAnswer) -> bool:
        """Whether an arrived page has messages; MessageNotHeld if those before are held for too long."""
        epoch = self._link.core.held_epoch
        if self._held_epoch != epoch:  # those before are in the queue again, and may come again
            self._held_epoch, self._messages, self._late_at = epoch, [], inf
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

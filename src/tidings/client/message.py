"""A message: an event that was taken out of a queue, and what becomes of it."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol

from tidings.client.encryption import QueueKeys
from tidings.client.get import GetAnswer, ReceivedMessage, fetch, whole
from tidings.errors import DecryptionError, EventError, MessageNotHeld, QueueEmpty, UserError
from tidings.event import Event
from tidings.event.values import plain_text
from tidings.protocol.messages import DONE, GIVE_BACK, REJECT, UNOPENED
from tidings.queues.description import REASON_LENGTH_MAX
from tidings.transport.link import Link

_WORDS = {
    DONE: "acknowledged already",
    GIVE_BACK: "given back already",
    REJECT: "rejected already",
    UNOPENED: "given back already",
}


class Message:
    """An event from a queue; its fields are read here as there: `message["color"]`, `message.priority`.

    Whoever holds it acknowledges it, gives it back or rejects it, once: MessageNotHeld the second time, or
    when it has gone back because its time was up. What was got with `get` is acknowledged already.
    """

    __slots__ = ("_hands", "deliveries", "event", "number", "outcome", "redelivered")

    def __init__(self, hand: ReceivedMessage, event: Event, hands: Hands) -> None:
        self.event = event
        """The event itself."""
        self.number: int = hand.number
        """Its number at the node."""
        self.deliveries: int = hand.delivery
        """How often it was handed out, this time included."""
        self.redelivered: bool = hand.redelivered or hand.delivery > 1
        """Whether it may have been dealt with before."""
        self.outcome: int | None = None
        """What has become of it, as the protocol numbers that; None while it is held."""
        self._hands = hands

    def __getattr__(self, name: str) -> Any:
        if name == "event":  # not made yet
            raise AttributeError(name)
        return getattr(self.event, name)

    def __getitem__(self, name: str) -> Any:
        return self.event[name]

    def __contains__(self, name: object) -> bool:
        return name in self.event

    async def acknowledge(self) -> None:
        """It was dealt with, and is gone for good when this returns."""
        await self._hands.settle(self, DONE)

    async def reject(self, reason: str = "") -> None:
        """It can't be dealt with: it goes to the dead letters, with the reason."""
        text = plain_text(reason, "$.reason")
        if len(text) > REASON_LENGTH_MAX:
            raise EventError(
                "$.reason", f"has {len(text)} characters, at most {REASON_LENGTH_MAX} are allowed"
            )
        await self._hands.settle(self, REJECT, text)

    async def release(self) -> None:
        """It was not dealt with: it goes back to its old place, for whoever comes next."""
        await self._hands.settle(self, GIVE_BACK)

    def __repr__(self) -> str:
        return f"<Message {self.number}, delivery {self.deliveries}: {self.event!r}>"


class Hands(Protocol):
    """Whoever holds messages and says what becomes of them."""

    async def settle(self, message: Message, outcome: int, text: str = "") -> None:
        """Say it to the node, and wait until it has heard."""


class Holder:
    """Holds the messages of one queue for whoever has taken them."""

    def __init__(self, link: Link, queue: str, keys: QueueKeys | None) -> None:
        self.link = link
        self.queue = queue
        self._keys = keys

    def say(self, message: Message, outcome: int, text: str = "") -> int:
        """Say what becomes of a message, once; the counter of that."""
        if message.outcome is not None:
            problem = f"message {message.number} was {_WORDS[message.outcome]}"
            raise MessageNotHeld(self.queue, problem)
        counter = self.link.core.settle(message.number, message.deliveries, outcome, text)
        message.outcome = outcome
        self.link.flush_soon()
        return counter

    def say_all(self, messages: list[Message], outcome: int) -> list[int]:
        """Say the same of all of these that nothing was said of yet, while there is someone to say it to."""
        if self.link.core.failure is not None:
            return []
        return [self.say(message, outcome) for message in messages if message.outcome is None]

    async def settle(self, message: Message, outcome: int, text: str = "") -> None:
        """Say it, and wait until the node has heard."""
        await self.wait(self.say(message, outcome, text))

    async def wait(self, counter: int) -> None:
        """Wait until the node has heard; MessageNotHeld, with the name of the queue, if it was too late."""
        try:
            await self.link.wait_done(counter, None)
        except MessageNotHeld as error:
            raise MessageNotHeld(self.queue, error.problem) from None

    def give_back(self, hands: list[ReceivedMessage], outcome: int = UNOPENED) -> None:
        """Give back messages that nobody has had."""
        if self.link.core.failure is None:
            for hand in hands:
                self.link.core.settle(hand.number, hand.delivery, outcome)
            self.link.flush_soon()

    async def open(self, hands: list[ReceivedMessage]) -> list[Message]:
        """The messages that were handed out; if that fails on the way, all of them are given back.

        For one that can't be decrypted that counts as a delivery, for those that came with it not.
        """
        messages: list[Message] = []
        try:
            for hand in hands:
                event = await whole(self.link, self.queue, hand, self._keys)
                messages.append(Message(hand, event, self))
            return messages
        except DecryptionError:
            at = len(messages)
            self.give_back(hands[at : at + 1], GIVE_BACK)
            self.give_back(hands[:at] + hands[at + 1 :], UNOPENED)
            raise
        except BaseException:
            self.give_back(hands, GIVE_BACK)
            raise


async def wait_handed(
    link: Link, queue: str, arguments: dict[str, Any], timeout_s: float | None
) -> GetAnswer:
    """At least one message; QueueEmpty if none came in time."""
    handed = await fetch(link, {"queue": queue, **arguments}, timeout_s)
    if not handed.messages:
        within = "" if not timeout_s else f" came within {timeout_s:g} s"
        raise QueueEmpty(queue, f"nothing that matches{within or ' is in it'}")
    return handed


class Take:
    """One message for the length of an `async with` block; made by `Queue.take`.

    It is acknowledged when the block ends, unless that was said by hand, and given back if the block raises.
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

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        message, holder = self._message, self._holder
        assert message is not None
        if message.outcome is not None:
            return
        if kind is None:
            await holder.settle(message, DONE)
        elif holder.link.core.failure is None:
            holder.say(message, GIVE_BACK)

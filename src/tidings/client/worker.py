"""The loop of a worker: messages one after the other, some of them fetched before they are asked for.

One request is under way at a time and asks for as many as there is room for; the next goes out when half of
them are used up, so a worker waits for the node only when the queue is empty. The rule kept: at the end all
that was fetched and not looked at goes back at once, unopened, and so does what was not acknowledged.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Any, Literal, Self

from tidings.client.encryption import QueueKeys
from tidings.client.fetching import Hand, read_answer
from tidings.client.link import Link, Wait
from tidings.client.message import Holder, Message
from tidings.errors import MessageNotHeld, TidingsError, UserError
from tidings.protocol.failures import error_of
from tidings.protocol.messages import DONE, GIVE_BACK, UNOPENED

LUMP = 100
"""Messages that are acknowledged together with `dups-ok`, at most."""
HANDED_MAX = 65_536
"""Messages that may wait to be acknowledged by hand."""

Acknowledge = Literal["auto", "client", "dups-ok"]


class Worker(Holder):
    """What a loop holds; `Messages` is how it is used.

    It is kept apart from that, so that a loop which was left is found out by its `Messages` being gone.
    """

    def __init__(
        self, link: Link, queue: str, keys: QueueKeys | None, where: str, prefetch: int, by: Acknowledge
    ) -> None:
        super().__init__(link, queue, keys)
        self._where = where
        self._prefetch = prefetch
        self._by = by
        self._request: int | None = None  # the one that is under way
        self._has_asked = False  # since the last message
        self._fetched: deque[tuple[Hand, int]] = deque()  # not looked at, and of which hands they are
        self._current: Message | None = None
        self._handed: list[Message] = []  # before that, and not acknowledged yet
        self._error: TidingsError | None = None
        self._waiting: Wait | None = None
        self.is_over = False

    # Fetching

    def ask(self) -> None:
        """Ask for as many messages as there is room for, once that is worth a request."""
        room = max(1, self._prefetch) - len(self._fetched)
        if self._request is None and not self.is_over and 2 * room >= max(1, self._prefetch):
            arguments = {"queue": self.queue, "where": self._where, "count": room, "wait_s": None}
            self._request = self.link.core.request("get", arguments, self._answered, "again")
            self._has_asked = True
            self.link.flush_soon()

    def _answered(self, result: Any, error: TidingsError | None) -> None:
        self._request = None
        try:
            if error is not None:
                raise error
            hands = self.link.core.hands
            self._fetched.extend((hand, hands) for hand in read_answer(result).messages)
        except TidingsError as trouble:
            self._error = trouble
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def next(self) -> Message:
        """The next message, which is waited for; the one before it counts as dealt with unless by hand."""
        self._leave_current()
        if self._has_asked:
            self._has_asked = False
            await asyncio.sleep(0)  # so that it leaves before all that was fetched is used up
        hand = await self._next_hand()
        (self._current,) = await self.open([hand])
        if self._prefetch:
            self.ask()
        return self._current

    async def _next_hand(self) -> Hand:
        while True:
            while self._fetched:
                hand, hands = self._fetched.popleft()
                if hands == self.link.core.hands:
                    return hand  # otherwise the node has taken it back, and will hand it out again
            await self._wait_fetched()

    async def _wait_fetched(self) -> None:
        if self.is_over:
            raise StopAsyncIteration
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._waiting is not None:
            raise UserError("two tasks can't iterate over the same messages")
        self._acknowledge_handed()
        self.ask()
        self._waiting = self.link.future()
        try:
            await self._waiting
        finally:
            self._waiting = None

    # Acknowledging

    def _leave_current(self) -> None:
        """The message that was handed out last is behind us."""
        message, self._current = self._current, None
        if message is None or message.outcome is not None:
            return
        if self._by == "auto":
            self.say(message, DONE)
            return
        self._handed.append(message)
        if self._by == "dups-ok" and len(self._handed) >= LUMP:
            self._acknowledge_handed()
        if len(self._handed) > HANDED_MAX:
            raise UserError(f"{HANDED_MAX} messages wait to be acknowledged; acknowledge one of them first")

    def _acknowledge_handed(self) -> None:
        if self._by == "dups-ok":
            self.say_all(self._handed, DONE)
            self._handed.clear()

    async def settle(self, message: Message, outcome: int, text: str = "") -> None:
        """Settle a message by hand; with `client` an acknowledgement is for all that were handed out."""
        if self._by != "client" or outcome != DONE:
            await super().settle(message, outcome, text)
            return
        counters = [self.say(message, DONE)]  # first, as it may be settled already
        last = [] if self._current is None else [self._current]
        counters += self.say_all(self._handed + last, DONE)
        self._handed.clear()
        await self.link.wait_accepted(counters[-1], None)
        for failure in self.link.core.publications.refusals(counters).values():
            error = error_of(failure)
            raise MessageNotHeld(self.queue, error.problem) if isinstance(error, MessageNotHeld) else error

    # The end

    def end(self, is_clean: bool = False) -> int:
        """Give back what was not dealt with; at a clean end the last message was, unless it is by hand.

        The counter of the last thing said, 0 if there is nothing to say.
        """
        if self.is_over or self.link.core.failure is not None:
            self.is_over = True
            return 0
        self.is_over = True
        if self._request is not None:
            self.link.core.cancel_get(self._request)
        if is_clean and self._by != "client":
            self._leave_current()
        self._acknowledge_handed()
        last = [] if self._current is None else [self._current]
        self.say_all(self._handed + last, GIVE_BACK)
        self.give_back([hand for hand, _ in self._fetched], UNOPENED)
        self._fetched.clear()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
        return self.link.core.publications.last


class Messages:
    """The messages of a queue as an async iterator, inside `async with` or as it is; from `Queue.messages`.

    Left by `break` or an error, what was fetched ahead goes back, and so does the last message unless it was
    settled. A block that ends without an error acknowledges it.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def __aenter__(self) -> Self:
        self._worker.ask()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        counter = self._worker.end(is_clean=kind is None)
        if kind is None and counter:
            await self._worker.link.wait_accepted(counter, None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        return await self._worker.next()

    async def aclose(self) -> None:
        """End it; what was not acknowledged goes back."""
        self._worker.end()

    def __del__(self) -> None:
        # A `for` that was left has nothing to say so with but this.
        if not self._worker.is_over:
            self._worker.link.call_soon(self._worker.end)

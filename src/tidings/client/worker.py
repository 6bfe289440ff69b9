"""The loop of a worker: messages one after the other, some of them fetched ahead.

One request is under way at a time and asks for as many as there is room for; the next is sent when half of
them are used up, so a worker waits for the node only when the queue is empty. The rules kept: the loop gives
back unopened messages at its end, and before the node takes them back because their time is up; at its end
it gives back unacknowledged messages, too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from itertools import islice
from math import inf
from typing import Any, Literal, NamedTuple, Self

from tidings.client.encryption import QueueKeys
from tidings.client.get import LATE, GetAnswer, ReceivedMessage, read_answer
from tidings.client.message import Holder, Message
from tidings.errors import Disconnected, MessageNotHeld, NoAnswer, TidingsError, UserError
from tidings.protocol.calls import Call
from tidings.protocol.messages import DONE, GIVE_BACK, UNOPENED, error_of
from tidings.transport.link import Link, Wait, unanswered

LUMP = 100
"""Messages that are acknowledged together with `dups-ok`, at most."""
HANDED_MAX = 65_536
"""Messages that may wait to be acknowledged by hand."""

Acknowledge = Literal["auto", "client", "dups-ok"]


class Fetched(NamedTuple):
    """A message that was fetched ahead, its holder, and its times on the clock of the loop."""

    received: ReceivedMessage
    held_epoch: int
    late_at: float
    gone_at: float  # the node has taken it back


class MessageLoop(Holder):
    """State of a worker's loop, which applications use by `Messages`.

    It is a separate object, so that an abandoned loop is found by its `Messages` being gone.
    """

    def __init__(
        self, link: Link, queue: str, keys: QueueKeys | None, where: str, prefetch: int, by: Acknowledge
    ) -> None:
        super().__init__(link, queue, keys)
        self._where = where
        self._prefetch = prefetch
        self._by = by
        self._request: Call | None = None  # the one that is under way
        self._has_asked = False  # since the last message
        self._fetched: deque[Fetched] = deque()
        self._current: Message | None = None
        self._current_late_at = 0.0
        self.gone_at = inf
        """When the node takes the last message back."""
        self._handed: list[Message] = []  # before that, and not acknowledged yet
        self._error: TidingsError | None = None
        self._waiting: Wait | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.is_over = False
        link.loops.add(self.leave)

    # Fetching

    def ask(self) -> None:
        """Ask for as many messages as there is room for, once that is worth a request."""
        room = max(1, self._prefetch) - len(self._fetched)
        if self._request is None and not self.is_over and 2 * room >= max(1, self._prefetch):
            arguments = {"queue": self.queue, "where": self._where, "count": room, "wait_s": None}
            self.link.flush_soon()
            self._request = self.link.core.request("get", arguments, "again")
            self._request.then(partial(self._answered, self._request.number), self._failed)
            self._has_asked = True

    def _answered(self, number: int, result: Any) -> None:
        self._request = None
        try:
            self._arrived(read_answer(result, number))
        except TidingsError as error:
            self._error = error
        self._go_on()

    def _failed(self, error: TidingsError) -> None:
        self._request, self._error = None, error
        self._go_on()

    def _arrived(self, handed: GetAnswer) -> None:
        now, epoch = self.link.now, self.link.core.held_epoch
        held_s = inf if handed.held_s is None else handed.held_s
        late_at, gone_at = now + LATE * held_s, now + held_s
        self._fetched.extend(Fetched(received, epoch, late_at, gone_at) for received in handed.messages)
        self._set_timer()

    def _go_on(self) -> None:
        """Wake the task that waits for a message."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def next(self) -> Message:
        """Wait for the next message; the one before counts as processed unless acknowledged by calls."""
        self._leave_current()
        if self._has_asked:
            self._has_asked = False
            await asyncio.sleep(0)  # so that it leaves before all that was fetched is used up
        received = await self._next_received()
        (self._current,) = await self.open([received])
        if self._prefetch:
            self.ask()
        return self._current

    async def _next_received(self) -> ReceivedMessage:
        while True:
            self._let_go()
            if self._fetched:
                fetched = self._fetched.popleft()
                self._current_late_at = fetched.late_at
                self.gone_at = fetched.gone_at
                return fetched.received
            await self._wait_fetched()

    async def _wait_fetched(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self.is_over:
            raise StopAsyncIteration
        if self._waiting is not None:
            raise UserError("two tasks can't iterate over the same messages")
        self._acknowledge_handed()
        self.ask()
        self._waiting = self.link.future()
        try:
            await self._waiting
        finally:
            self._waiting = None

    # Time

    def _set_timer(self) -> None:
        """Have `_age` called when something has been held for long."""
        if self._timer is None:
            now, first = self.link.now, islice(self._fetched, 1)
            times = (self._current_late_at, *(fetched.late_at for fetched in first))
            at = min((one for one in times if one > now), default=inf)
            if at < inf:
                self._timer = self.link.call_at(at, self._age)

    def _age(self) -> None:
        """Acknowledge processed messages, and give back unopened ones, before their time is up."""
        self._timer = None
        self._acknowledge_handed()
        self._let_go()
        self._set_timer()

    def _let_go(self) -> None:
        """Give back late messages, and forget those that the node has taken back and will redeliver."""
        now, epoch = self.link.now, self.link.core.held_epoch
        late: list[ReceivedMessage] = []
        while self._fetched and (self._fetched[0].held_epoch != epoch or self._fetched[0].late_at <= now):
            fetched = self._fetched.popleft()
            if fetched.held_epoch == epoch and fetched.gone_at > now:
                late.append(fetched.received)
        if late:
            self.give_back(late, UNOPENED)

    # Acknowledging

    def _leave_current(self) -> None:
        """Note that the last message was processed."""
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

    async def settle(
        self, message: Message, outcome: int, text: str = "", delay_s: float | None = None
    ) -> None:
        """Settle a message by a call; with `client` an acknowledgement covers all messages delivered."""
        if self._by != "client" or outcome != DONE:
            await super().settle(message, outcome, text, delay_s)
            return
        counters = [self.say(message, DONE)]  # first, as it may be settled already
        last = [] if self._current is None else [self._current]
        counters += self.say_all(self._handed + last, DONE)
        self._handed.clear()
        await self.wait_all(counters[-1])
        for failure in self.link.core.publications.refusals(counters).values():
            error = error_of(failure)
            raise MessageNotHeld(self.queue, error.problem) if isinstance(error, MessageNotHeld) else error

    async def wait_all(self, counter: int) -> None:
        """Wait until the node has all settlements up to this one; they are sent though the wait may fail."""
        try:
            await self.link.wait_accepted(counter, None, "acknowledge")
        except (Disconnected, NoAnswer) as error:
            raise unanswered(error, True) from None

    # The end

    def end(self, is_clean: bool = False) -> int:
        """Give back unprocessed messages; a clean end acknowledges the last one, except with `client`.

        Returns the counter of the last settlement, 0 if there was none.
        """
        was_over, self.is_over, self._error = self.is_over, True, None
        self.link.loops.discard(self.leave)
        if self._timer is not None:
            self._timer.cancel()
        if was_over or self.link.core.failure is not None:
            return 0
        if self._request is not None:
            self.link.core.cancel_get(self._request.number)
        if is_clean and self._by != "client":
            self._leave_current()
        self._acknowledge_handed()
        last = [] if self._current is None else [self._current]
        self.say_all(self._handed + last, GIVE_BACK)
        self._let_go()
        self.give_back([fetched.received for fetched in self._fetched], UNOPENED)
        self._fetched.clear()
        self._go_on()
        return self.link.core.publications.last

    def leave(self) -> None:
        """End it because the bus is closed; a caller that goes on with the loop gets an error."""
        self.end()
        self._error = Disconnected("the bus was closed")


class Messages:
    """The messages of a queue as an async iterator, with or without `async with`; made by `Queue.messages`.

    After `break` or an error, messages that were fetched ahead go back, and so does the last message unless
    it was settled: at the end of the block, or else when nothing refers to this object any more. A block that
    ends without an error acknowledges the last message.
    """

    def __init__(self, worker: MessageLoop) -> None:
        self._worker = worker

    async def __aenter__(self) -> Self:
        self._worker.ask()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        counter = self._worker.end(is_clean=kind is None)
        if kind is None and counter:
            await self._worker.wait_all(counter)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        return await self._worker.next()

    async def aclose(self) -> None:
        """End it; unacknowledged messages go back."""
        self._worker.end()

    def __del__(self) -> None:
        # A `for` that was left has nothing to say so with but this.
        if not self._worker.is_over:
            self._worker.link.call_soon(self._worker.end)

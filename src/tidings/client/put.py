"""Putting events into a queue: one, many, and those too long for one frame.

Callers give an event, or a type with attributes and header fields.
A body longer than SEGMENT_SIZE travels in parts, in a transaction: so no consumer sees half of it, and no
frame holds up the others. The node stores the parts, and a consumer gets the whole body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice, takewhile

from msgspec.structs import replace

from tidings.client.encryption import QueueKeys
from tidings.client.get import check_delay
from tidings.client.transaction_core import TransactionCore
from tidings.errors import Disconnected, NoAnswer, TidingsError, TransactionLost, UserError
from tidings.event import Event
from tidings.event.header import EMPTY_HEADER
from tidings.event.typed import Typed
from tidings.event.values import plain_text, us_from_time
from tidings.protocol.connection import Connection
from tidings.protocol.messages import error_of
from tidings.queues.description import GROUP_LENGTH_MAX
from tidings.transport.link import TURN_EVENTS, Link, unanswered

SEGMENT_SIZE = 1 << 20
"""Bytes of a body, and of each part of one that is longer."""
LONG_S_MAX = 300.0
"""Seconds that sending a long event may take, as far as the node allows it."""
GIVEN_UP = Disconnected, NoAnswer, asyncio.CancelledError
"""Ends of a wait after which the node may accept what was sent."""
LONG_TRIES_MAX = 10
"""How often a long event is begun anew after its transaction was lost with the connection."""

PutPlan = tuple[float | None, datetime | None, str | None]
"""A delay, a moment and a group, as `planned` takes them."""


def event_of(
    kind: Event | Typed | str, attributes: Mapping[str, object] | None, fields: dict[str, object]
) -> Event:
    """Return the event itself, that of a typed instance, or one made of a type, attributes and fields."""
    if not isinstance(kind, Event | Typed):
        return Event(kind, attributes, **fields)
    if attributes is not None or fields:
        raise UserError("an event is published as it is; attributes go with a type")
    return kind.to_event() if isinstance(kind, Typed) else kind


def plan_of(delay_s: float | None, not_before: datetime | None, group: str | None) -> PutPlan | None:
    """Return what was given of a plan, None if nothing was."""
    return None if delay_s is None and not_before is None and group is None else (delay_s, not_before, group)


def planned(
    event: Event, delay_s: float | None, not_before: datetime | None, group: str | None = None
) -> Event:
    """Return the event with the group it is in, and when a queue may hand it out; raises UserError."""
    header = event.header or EMPTY_HEADER
    if group is not None:
        if type(group) is not str or not 1 <= len(group) <= GROUP_LENGTH_MAX:
            raise UserError(f"group={group!r}: a text of 1 to {GROUP_LENGTH_MAX} characters")
        header = replace(header, queue_group=plain_text(group, "$.group"))
    if delay_s is None and not_before is None:
        return replace(event, header=header)
    if not_before is not None:
        if delay_s is not None:
            raise UserError("delay_s and not_before say the same; give one of them")
        due_us = us_from_time(_with_zone(not_before))
        return replace(event, header=replace(header, queue_delay_s=None, queue_due_us=due_us))
    delay_s = check_delay(delay_s)
    return replace(event, header=replace(header, queue_delay_s=delay_s, queue_due_us=None))


def _with_zone(moment: object) -> datetime:
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise UserError(f"not_before={moment!r}: a datetime with its zone, as datetime.now(UTC) has one")
    return moment


class Putter:
    """Puts events into one queue, encrypted if there are keys; what has no queue is published."""

    def __init__(self, link: Link, queue: str, keys: QueueKeys | None = None) -> None:
        self.link = link
        self.queue = queue
        self._keys = keys

    async def put(
        self,
        event: Event,
        transaction: TransactionCore | None,
        timeout_s: float | None,
        plan: PutPlan | None = None,
    ) -> None:
        """Put an event, and wait until it is accepted."""
        number = 0
        if transaction is not None:
            number, timeout_s = transaction.number, transaction.limit_s(timeout_s)
        if self.link.core.unsure.known and await self._is_put(event, number, timeout_s):
            return
        counter = await self.send(event, transaction, timeout_s, plan)
        if counter:
            await self.link.wait_done(counter, timeout_s, "put", event, self.queue, number)

    async def _is_put(self, event: Event, transaction: int, timeout_s: float | None) -> bool:
        """Whether an event that is put again was put before, as far as the node answers now.

        An event in parts is put again if the transaction that it had for itself is lost.
        """
        counter = self.link.core.unsure.take(event, self.queue, transaction)
        if not counter:
            return False
        try:
            await self.link.wait_done(counter, timeout_s, "put", event, self.queue, transaction)
        except TransactionLost:
            return False
        return True

    async def send(
        self, event: Event, transaction: TransactionCore | None, timeout_s: float | None, plan: PutPlan | None
    ) -> int:
        """Send an event when there is room for it; return its counter, 0 if it was put in parts."""
        leaving = event if plan is None else planned(event, *plan)
        leaving = leaving if self._keys is None else self._keys.encrypt(leaving)
        if leaving.body is not None and len(leaving.body) > SEGMENT_SIZE:
            await self._put_long(leaving, transaction, timeout_s, event)
            return 0
        if transaction is None:
            return await self._number(leaving, 0, timeout_s)
        async with transaction.putting:
            return await self._number(leaving, transaction.number, timeout_s)

    async def _number(
        self, event: Event, transaction: int, timeout_s: float | None, is_part: bool = False
    ) -> int:
        link = self.link
        if link.unflushed >= TURN_EVENTS or link.core.publications.is_full:
            await link.wait_room(timeout_s, "put")
        link.flush_soon()
        return link.core.put(self.queue, event, transaction, is_part)

    async def _put_long(
        self, event: Event, transaction: TransactionCore | None, timeout_s: float | None, given: Event
    ) -> None:
        """Put an event in parts, in a transaction of its own unless it is in one; it was given as `given`."""
        if transaction is not None:
            await self._put_parts(event, transaction, timeout_s)
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._put_alone(event, given)
        except TimeoutError as error:
            if isinstance(error, NoAnswer) or timeout_s is None:
                raise
            may_be_accepted = getattr(error.__cause__, "may_be_accepted", False)
            raise unanswered(self.link.late("put", "accepted", timeout_s), may_be_accepted) from None

    async def _put_alone(self, event: Event, given: Event) -> None:
        """Put an event in parts, in a transaction of its own; repeat it if the connection loses that."""
        for tries in range(1, LONG_TRIES_MAX + 1):
            own = TransactionCore(self.link, LONG_S_MAX)
            try:
                async with own:
                    await self._put_parts(event, own, None)
                return
            except TransactionLost:
                if tries == LONG_TRIES_MAX:
                    raise
            except BaseException as error:
                if own.committing and getattr(error, "may_be_accepted", False):
                    self.link.core.unsure.add(given, self.queue, 0, own.committing)
                raise

    async def _put_parts(self, event: Event, transaction: TransactionCore, timeout_s: float | None) -> None:
        """The parts behind the first one, then the event with that as its body."""
        body, number = event.body or b"", transaction.number
        counters: list[int] = []
        try:
            async with transaction.putting:
                for at in range(SEGMENT_SIZE, len(body), SEGMENT_SIZE):
                    part = Event.unchecked(0, "part", event.time_us, {}, None, body[at : at + SEGMENT_SIZE])
                    counters.append(await self._number(part, number, timeout_s, is_part=True))
                head = replace(event, body=body[:SEGMENT_SIZE])
                counters.append(await self._number(head, number, timeout_s))
            await self.link.wait_accepted(counters[-1], timeout_s, "put")
            for failure in self.link.core.publications.refusals(counters).values():
                raise error_of(failure)
        except BaseException:
            transaction.spoil("a long event was put in part")  # the next one would get its parts
            self.link.withdraw(counters)
            raise

    async def put_all(
        self,
        events: Iterable[Event],
        transaction: TransactionCore | None,
        timeout_s: float | None,
        plan: PutPlan | None,
    ) -> None:
        """Put many events, and wait once.

        After a refusal nothing further is put; `put` of the error counts the events that are in the queue,
        `left` lists those that are not, in their order. If the node does not answer in time, `left` lists
        those that may not be there: they can be put again.
        """
        if transaction is not None:
            timeout_s = transaction.limit_s(timeout_s)
        batch = _Many(self, transaction, plan)
        remaining = iter(events)
        try:
            while turn := list(islice(remaining, TURN_EVENTS)):
                await batch.add(turn, timeout_s)
                if batch.failure is not None:
                    break
            await batch.wait(timeout_s)
        except GIVEN_UP as error:
            raise batch.give_up(error, remaining) from None
        batch.finish(remaining)


class _Many:
    """Events that are put together, and their refusals."""

    def __init__(self, putter: Putter, transaction: TransactionCore | None, plan: PutPlan | None) -> None:
        self.failure: TidingsError | None = None  # the first one
        self._putter = putter
        self._link = putter.link
        self._transaction = transaction
        self._number = 0 if transaction is None else transaction.number
        self._plan = plan
        self._handed: dict[int, Event] = {}  # as they were given, not encrypted
        self._refused: dict[int, Event] = {}
        self._left: list[Event] = []  # those behind them
        self._put = 0

    async def add(self, turn: list[Event], timeout_s: float | None) -> None:
        """Send some more, unless one was refused."""
        for at, event in enumerate(turn):
            if self.failure is not None:
                self._left.append(event)
                continue
            try:
                await self._add(event, timeout_s)
            except UserError as error:
                self.failure = error
                self._left.append(event)
            except GIVEN_UP:
                self._left += turn[at:]
                raise
        self._look()

    async def _add(self, event: Event, timeout_s: float | None) -> None:
        if not isinstance(event, Event):
            raise UserError(f"put_all takes events, not {type(event).__name__}")
        unsure = self._link.core.unsure
        counter = unsure.take(event, self._putter.queue, self._number) if unsure.known else 0
        counter = counter or await self._putter.send(event, self._transaction, timeout_s, self._plan)
        if counter:
            self._handed[counter] = event
        else:
            self._put += 1

    def _look(self) -> None:
        """Collect the refusals so far."""
        for counter, failure in self._link.core.publications.refusals(self._handed).items():
            self.failure = self.failure or error_of(failure)
            self._refused[counter] = self._handed.pop(counter)

    async def wait(self, timeout_s: float | None) -> None:
        """Wait until all are accepted."""
        if self._handed:
            await self._link.wait_accepted(max(self._handed), timeout_s, "put")
            self._look()

    def give_up(self, error: BaseException, remaining: Iterator[Event]) -> BaseException:
        """Return the error of a call that does not wait any longer, with the events that may be missing."""
        self._look()
        given_up = give_up(self._link, self._putter.queue, self._number, self._handed, error)
        waiting: list[Event] = vars(given_up)["left"]
        put = self._put + len(self._handed) - len(waiting)
        left = [*self._refused.values(), *waiting, *self._left]
        if not isinstance(error, asyncio.CancelledError):  # there may be no end of them
            left += remaining
        vars(given_up).update(put=put, left=left)
        return given_up

    def finish(self, remaining: Iterator[Event]) -> None:
        """Raise the first refusal, if there is one."""
        if self.failure is not None:
            left = [*self._refused.values(), *self._left, *remaining]
            vars(self.failure).update(put=self._put + len(self._handed), left=left)
            raise self.failure


# Publications that wait for the node


def give_up(
    link: Link, queue: str, transaction: int, sent: Mapping[int, Event], error: BaseException
) -> BaseException:
    """Withdraw the events that were not sent, and remember the numbers of the others; return the error.

    Its `left` lists the events that the node may not have.
    """
    accepted = link.core.publications.accepted
    left = {counter: event for counter, event in sent.items() if counter > accepted}
    withdrawn = link.withdraw(left)
    for counter, event in left.items():
        if counter not in withdrawn:
            link.core.unsure.add(event, queue, transaction, counter)
    given_up = unanswered(error, len(withdrawn) < len(left))
    vars(given_up)["left"] = list(left.values())
    return given_up


class SentEvents:
    """Events that are published together; those that the node must accept wait until it has."""

    def __init__(self, core: Connection) -> None:
        self.waiting: dict[int, Event] = {}
        self.failure: TidingsError | None = None  # the first refusal
        self._core = core

    def publish(self, event: Event) -> None:
        """Publish one that the node must accept; sent again, it keeps its number."""
        counter = self._core.unsure.take(event, "", 0)
        self.waiting[counter or self._core.publish(event)] = event

    def look(self) -> None:
        """Forget those that the node has answered for, and keep the first refusal."""
        publications = self._core.publications
        for failure in publications.refusals(self.waiting).values():
            self.failure = self.failure or error_of(failure)
        for counter in list(takewhile(publications.accepted.__ge__, self.waiting)):
            del self.waiting[counter]

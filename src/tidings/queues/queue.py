"""One queue: messages on a shelf, those in flight, and readers that wait for more.

A message is in one place at a time: on the shelf, or held by one reader until it is settled. So two readers
never hold the same one, and a message that is given back is where it was, since its place never changes. A
new message goes to the reader that has waited longest for it, and only on the shelf if none waits.

`put` and `take` are on the hot path: they work on plain calls, and hand the manager what must be stored.
Work that grows with the number of messages is in `serving.py`, and done in steps; what a queue does by itself
when a moment has come is in `deadlines.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from math import inf
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tidings.event import Origin
from tidings.exchange import NodeSubscription
from tidings.filters import Filter
from tidings.matching import Shelf
from tidings.queues import serving
from tidings.queues.deadlines import Deadlines
from tidings.queues.description import Description, encode
from tidings.queues.inflight import InFlight, ReaderKey
from tidings.queues.message import (
    BYTES_EACH,
    BodyParts,
    MessagePart,
    QueuedMessage,
    completed,
    sight,
)
from tidings.queues.offering import notify_watchers, offer
from tidings.queues.recovery import Recovery
from tidings.queues.schedule import DeliveryPlan, Schedule, TokenBucket, pause_s
from tidings.queues.transactions import Locks, OpenTransaction
from tidings.queues.types import Volatile
from tidings.queues.waiting import QueueReader, WaitingReaders
from tidings.steps import Steps
from tidings.store.interface import Operation, PutQueue, QueueRecord

if TYPE_CHECKING:
    from tidings.queues.local import LocalQueue
    from tidings.queues.manager import QueueManager

HANDED_AHEAD_US = 1_000_000
"""By how much `handed` is moved at once: a write a second, and so many messages marked needlessly."""

Undo = Callable[[], None]
"""Takes back a change whose commit has failed."""


class MessageQueue:
    """Queue of a node: its messages on the shelf and in flight, and its waiting readers."""

    def __init__(
        self, key: int, description: Description, kind: Volatile, manager: QueueManager, handed: int = 0
    ) -> None:
        self.key = key
        self.name = description.name
        self.description = description
        self.kind = kind
        self.waiting = WaitingReaders()
        self.binding: NodeSubscription | None = None
        self.handed_out = 0  # how often a reader got a message, since the node has started
        self.handed_mark = 0  # the commit that says that messages may have been handed out
        self.held: dict[int, InFlight] = {}
        self.in_transactions: dict[int, InFlight] = {}  # those of them that transactions hold
        self.shelf: Shelf[int, QueuedMessage] = Shelf(sight, distinct=True)
        self.locks = Locks()
        self.bytes = 0
        """About how many bytes its messages hold, with those in flight."""
        self.is_closed = False
        self.target: LocalQueue | None = None  # what the service uses of it
        self._manager = manager
        self._broker = manager.broker
        self.schedule = Schedule(self, manager.broker)
        self._doubted: set[int] = set()  # handed out before, though that does not count
        self.returned: dict[int, int] = {}  # how often those were handed out that have come back
        self._tokens = None if description.rate is None else TokenBucket(description.rate, self._broker.now)
        self.parts = BodyParts()
        self.deadlines = Deadlines(self, manager)
        self._handed = handed
        self.recovery = Recovery(self, manager, handed)

    @property
    def size(self) -> int:
        """Number of messages, with those in flight."""
        return len(self.shelf) + len(self.held) + len(self.schedule)

    def has(self, number: int) -> bool:
        """Whether a message is here, in flight or not."""
        return number in self.shelf or number in self.held or self.is_loose(number)

    def shows(self, number: int, granted: Filter | None) -> bool:
        """Whether a message can be read under this grant, None being all of them."""
        groups = self.schedule.groups
        for shelf in (self.shelf,) if groups is None else (self.shelf, groups.behind):
            if number in shelf:
                return granted is None or granted.matches(sight(shelf[number]))
        return False

    def describe(self) -> Description:
        """The description, and how the queue stands."""
        self.deadlines.sweep()
        return replace(
            self.description,
            maker="",
            messages=len(self.shelf) + self.schedule.behind,
            in_flight=len(self.held),
            delayed=len(self.schedule.delayed),
            groups=len(self.schedule.groups or ()),
            waiting=len(self.waiting),
            bytes=0 if self.description.max_bytes is None else self.bytes,
        )

    def status(self) -> dict[str, str | int | float]:
        """Return its state in short; the age is that of the message that would be delivered next."""
        following = self.shelf.first()
        return {
            "name": self.name,
            "messages": len(self.shelf) + self.schedule.behind,
            "in_flight": len(self.held),
            "delayed": len(self.schedule.delayed),
            "waiting": len(self.waiting),
            "age_s": 0.0 if following is None else max(0.0, self._broker.wall - following / 1e6),
        }

    def pass_over(self, number: int) -> None:
        """Have no message come under a number up to this one, after a restart too, once that is stored."""
        self._handed = max(self._handed, number)

    def record(self) -> PutQueue:
        """The stored record of the queue."""
        return PutQueue(QueueRecord(self.key, self.name, self._handed, encode(self.description)))

    # Putting

    def check_room(self, count: int = 1, size: int = 0) -> None:
        """Raise QueueFull if there is no room for so many messages and bytes more, with nothing displaced."""
        if self.description.expiry:
            self.deadlines.sweep()
        self.kind.check_room(self, count)
        self.kind.check_bytes(self, size)

    def check_room_for(self, raw: bytes, parts: Sequence[bytes] = ()) -> None:
        """Raise QueueFull if there is no room for an event; `parts` are more of its body."""
        if self.description.expiry:
            self.deadlines.sweep()
        self.kind.check_room_for(self, raw, BYTES_EACH + len(raw) + sum(map(len, parts)))

    def size_of(self, message: QueuedMessage) -> int:
        """About how many bytes a message holds, with the further parts of its body."""
        return message.size + self.parts.size(message.number)

    def grow(self, size: int) -> None:
        """Count bytes that its messages hold more, or less."""
        self.bytes += size
        self._manager.grow(size)

    def put(
        self,
        raw: bytes,
        origin: Origin | None,
        parts: Sequence[bytes] = (),
        undo: bool = True,
        plan: DeliveryPlan | None = None,
    ) -> QueuedMessage:
        """Take an event in, for which there is room; `parts` are more of its body, and `plan` its plan."""
        manager = self._manager
        self.kind.make_room_for(self, raw, BYTES_EACH + len(raw) + sum(map(len, parts)))
        raw = completed(self.description, raw)
        message = QueuedMessage(manager.numbers.next(self._broker.wall), raw, origin)
        operations = self.kind.put(message)
        if parts:
            operations = [*operations, *self._put_parts(message, parts)]
        mark = manager.keep(operations, partial(self._unput, message) if undo else None)
        if undo:
            manager.fresh[message.number] = mark  # a volatile one too: nobody has it before that is certain
        self.grow(message.size)
        self._add(message, plan)
        return message

    def _put_parts(self, message: QueuedMessage, parts: Sequence[bytes]) -> list[Operation]:
        numbered = [(self._manager.numbers.next(self._broker.wall), part) for part in parts]
        self.grow(self.parts.add(message.number, numbered))
        return [one for number, part in numbered for one in self.kind.put_part(message, number, part)]

    def _add(self, message: QueuedMessage, plan: DeliveryPlan | None) -> None:
        """A message is new here: notify those who watch, and let it find its reader or its place."""
        if self.waiting.watching:
            notify_watchers(self, message)
        if self.description.expiry:
            self.deadlines.expire_at(message.number, self._broker.now + self.deadlines.expiry.ttl_s(message))
        if plan is None:
            self.place(message)
        else:
            self.schedule.enter(message, plan)

    def place(self, message: QueuedMessage) -> None:
        """Hand it to the reader that has waited longest for it, or put it on the shelf."""
        if len(self.waiting) and self.has_token() and offer(self, message):
            return
        self.shelf.add(message.number, message, self.kind.place(message))

    def has_token(self) -> bool:
        """Whether the rate allows a message now; if not, it is offered when it does."""
        if self._tokens is None or self._tokens.available(self._broker.now):
            return True
        self.deadlines.offer_at(self._tokens.wake_at)
        return False

    def answer(self, reader: QueueReader) -> None:
        """Have a reader that has got something answered when the tick ends."""
        self._manager.ready_readers[reader] = None

    # Taking

    def serve(self, reader: QueueReader, is_bounded: bool = True) -> Steps[None] | None:
        """Give a reader what it wants of what is there; what is left of that, if it takes more than a step.

        With `is_bounded` what comes behind all others after it was begun is left out.
        """
        self.deadlines.sweep()
        if self._tokens is not None and not reader.is_copier:
            if not self.has_token():
                return None
            reader.count = min(reader.count, self._tokens.available(self._broker.now))
        if reader.takes_any and self.is_plain and not (self.schedule.groups and reader.is_together):
            self.serve_first(reader)
            if reader.is_content or not len(self.shelf):
                return None
            reader.search = serving.AtHead()
            return serving.serve_any(self, reader, is_bounded)
        steps = serving.serve(self, reader, is_bounded)
        return steps if next(steps, _DONE) is not _DONE else None

    @property
    def is_plain(self) -> bool:
        """Whether everything on the shelf can be taken by anyone."""
        return not self.locks and self.deadlines.expiry.wake_at > self._broker.now

    def serve_first(self, reader: QueueReader) -> None:
        """Give a reader that takes whatever comes first some of it."""
        shelf = self.shelf
        for _ in range(min(reader.count - len(reader.taken), len(shelf), serving.AT_ONCE)):
            number = shelf.first()
            assert number is not None
            message = shelf[number]
            if not reader.fits(message):
                return
            shelf.remove(number)
            self.hand(message, reader)

    def hand(self, message: QueuedMessage, reader: QueueReader) -> None:
        """Put a message, which is not on the shelf, in flight to a reader."""
        if self._tokens is not None:
            self._tokens.take()
        wait_s = self.description.redelivery_s
        holder = reader.transaction or reader.holder
        due = self._broker.now + wait_s if wait_s is not None and reader.transaction is None else inf
        held = self._give(message, holder, reader.asked.number, due)
        if message.number <= self.recovery.doubtful and not reader.taken:
            self.recovery.note(held)
        if self.schedule.groups is not None and reader.group_owner is not None:
            self.schedule.groups.own(message.number, reader.group_owner)
        reader.take(message, held)

    def take(self, number: int, holder: ReaderKey) -> InFlight:
        """Put a message on the shelf in flight, until its reader settles it."""
        return self._give(self.shelf.remove(number), holder, 0, inf)

    def _give(
        self, message: QueuedMessage, holder: ReaderKey | OpenTransaction, request: int, due: float
    ) -> InFlight:
        delivery = self.returned.get(message.number, 0) + 1
        self.handed_out += 1
        held = InFlight(self, message, delivery, holder, request, due)
        self.take_up(held)
        if self.kind.persistent and message.number > self._handed:
            self._handed = message.number + HANDED_AHEAD_US
            if self.description.keep:
                self.handed_mark = self._manager.keep([self.record()])
        return held

    def take_up(self, held: InFlight) -> None:
        """Put a message, which is in no other place, in flight."""
        self.held[held.message.number] = held
        self.recovery.lost.discard(held.message.number)
        if not isinstance(held.holder, tuple):
            self.in_transactions[held.message.number] = held
        self._manager.in_flight.hold(held.message.number, held)
        if held.due < inf:
            self.deadlines.settle_by(held)

    def copy(self, message: QueuedMessage, reader: QueueReader) -> None:
        """Let a reader see a message; its transaction keeps others from taking it."""
        reader.take(message, None)
        if reader.transaction is not None:
            self.locks.add(message.number, reader.transaction)
            reader.transaction.locked[self, message.number] = None

    def is_still_with(self, reader: QueueReader, message: QueuedMessage, held: InFlight | None) -> bool:
        """Whether messages of a reader that is not answered yet are still held by it, or there to be read."""
        if held is not None:
            return self.held.get(message.number) is held
        transaction = reader.transaction
        return self.has(message.number) or (transaction is not None and transaction.knows(message.number))

    # Settling

    def delivery_of(self, held: InFlight) -> tuple[int, bool]:
        """The how many-eth delivery it is, and whether it may have been handed out before."""
        number = held.message.number
        return held.delivery, held.delivery > 1 or number <= self.recovery.doubtful or number in self._doubted

    def finish(self, held: InFlight) -> None:
        """Remove an acknowledged message; only a transaction can undo that, as no reader is asked twice."""
        self._let_go(held)
        undo = None
        if not isinstance(held.holder, tuple):
            number = held.message.number
            parts = self.parts.get(number, [])
            undo = partial(self._unfinish, held, parts, self.deadlines.expiry.moment(number))
        self._forget(held.message, undo)
        self._manager.dead_letters.report(self, held.message, "delivered")

    def hand_on(self, held: InFlight) -> None:
        """Remove a message that is in another queue now, where its fate is reported."""
        self._let_go(held)
        self._forget(held.message)

    def take_back(self, held: InFlight, counts: bool, reason: str) -> None:
        """Give back a message whose reader is gone or late; `counts`: as a delivery."""
        self._doubted.add(held.message.number)
        if isinstance(held.holder, tuple):
            self._manager.in_flight.returned.note(held.message.number, held.delivery, held.holder, self.name)
        self.give_back(held, counts, reason)

    def give_back(
        self, held: InFlight, counts: bool = True, reason: str = "", delay_s: float | None = None
    ) -> None:
        """Return a message to its place, or after too many deliveries to the dead letters.

        It waits for `delay_s` before; None: for the pause that follows so many deliveries.
        """
        self._let_go(held)
        self._return(held, counts, reason, delay_s)

    def _return(self, held: InFlight, counts: bool, reason: str, delay_s: float | None = None) -> None:
        message, most = held.message, self.description.deliveries_max
        if self.is_closed:
            self._forget(message)
        elif self.deadlines.expiry.moment(message.number) <= self._broker.now:
            self.expire(message)
        elif counts and most is not None and held.delivery >= most:
            self.bury(message, reason or f"was handed out {held.delivery} times", held.delivery)
        else:
            if counts:
                self.returned[message.number] = held.delivery
            if delay_s is None and counts and self.description.retry_s:
                delay_s = pause_s(self.description.retry_s, message.number, held.delivery)
            if delay_s:
                later = self.schedule.pause(message, delay_s)
                self.grow(later.size - message.size)
                message = later
            if counts or held.is_noted or delay_s:
                self._manager.keep(self.kind.revise(message, self.returned.get(message.number, 0)))
            if not delay_s:
                self.schedule.back(message)

    def reject(self, held: InFlight, reason: str) -> None:
        """Move a message to the dead letters."""
        self._let_go(held)
        self.bury(held.message, reason or "rejected", held.delivery)

    def bury(self, message: QueuedMessage, reason: str, deliveries: int) -> None:
        """Give up a message that is neither held nor on the shelf."""
        self._manager.dead_letters.bury(self, message, reason, deliveries)
        self._forget(message)

    def _let_go(self, held: InFlight) -> None:
        number = held.message.number
        del self.held[number]
        if self.in_transactions:
            self.in_transactions.pop(number, None)
        self.deadlines.settled(number)
        self._manager.in_flight.let_go(number, held)

    def _forget(self, message: QueuedMessage, undo: Undo | None = None) -> None:
        """A message is here no longer, and nowhere."""
        self.returned.pop(message.number, None)
        if self._doubted or self.recovery.lost:
            self._doubted.discard(message.number)
            self.recovery.lost.discard(message.number)
        if self.description.expiry:
            self.deadlines.expiry.cancel(message.number)
        self._manager.keep(self._gone(message), undo)
        if self.schedule.groups is not None:
            self.schedule.leave(message.number)

    def _gone(self, message: QueuedMessage) -> Sequence[Operation]:
        if self.kind.persistent:
            self._manager.gone(message)
        return self.kind.gone(self._numbers_of(message))

    def _numbers_of(self, message: QueuedMessage) -> list[int]:
        """The numbers of a message that goes, and of its further parts, which go with it."""
        parts = self.parts.pop(message.number, [])
        self.grow(-message.size - sum(len(part) for _, part in parts))
        return [message.number, *(number for number, _ in parts)]

    def is_loose(self, number: int) -> bool:
        """Whether a message is here, and not in flight."""
        return number in self.shelf or number in self.schedule

    def pick(self, number: int) -> QueuedMessage:
        """Take out a message that is not in flight, wherever it waits."""
        return self.shelf.remove(number) if number in self.shelf else self.schedule.pick(number)

    def drop(self, number: int) -> None:
        """Throw away a message that is not in flight."""
        self._forget(self.pick(number))

    # When a commit can't be made

    def _unput(self, message: QueuedMessage) -> None:
        """Undo a put: its sender will come again with it."""
        held = self.held.get(message.number)
        if held is not None:
            self._let_go(held)
        elif self.is_loose(message.number):
            self.pick(message.number)
        else:
            return  # it was thrown away since
        self.deadlines.expiry.cancel(message.number)
        self.kind.gone(self._numbers_of(message))
        if self.schedule.groups is not None:
            self.schedule.leave(message.number)

    def _unfinish(self, held: InFlight, parts: list[MessagePart], expires_at: float) -> None:
        """Undo a removal: the transaction that held the message is undone, and it is in its place."""
        message = held.message
        self.grow(message.size + self.parts.add(message.number, parts))
        self.kind.restored(message)
        self.deadlines.expire_at(message.number, expires_at)
        self.schedule.rejoin(message)
        self._return(held, True, "was taken in a transaction that could not be stored")

    # Transactions

    def unlock(self, number: int, transaction: OpenTransaction) -> None:
        """A transaction that has read a message has ended."""
        if not self.locks.remove(number, transaction):
            return
        if number not in self.shelf or not len(self.waiting):
            return
        message = self.shelf.remove(number)
        if self.deadlines.is_expired(number):
            self.expire(message)
        else:
            self.place(message)

    # Time

    def expire(self, message: QueuedMessage) -> None:
        """Let go of a message whose time is over, which is neither in flight nor on the shelf."""
        self._manager.dead_letters.report(self, message, "expired")
        self._forget(message)

    def close(self) -> Steps[None]:
        """Close the queue, deleted with what is in flight; return the steps that are left of that."""
        self.is_closed = True
        self.deadlines.clear()
        held, self.held = self.held, {}
        self.in_transactions = {}
        messages = chain(self._let_go_all(held), self.shelf.clear(), self.schedule.clear())
        return self._give_up(messages)

    def _let_go_all(self, held: dict[int, InFlight]) -> Iterator[QueuedMessage]:
        while held:
            number, one = held.popitem()
            self._manager.in_flight.let_go(number, one)
            yield one.message

    def _give_up(self, messages: Iterable[QueuedMessage]) -> Steps[None]:
        """Forget all messages of a queue that is closed."""
        for count, message in enumerate(messages, 1):
            self._manager.keep(self._gone(message))
            if not count % serving.AT_ONCE:
                yield


_DONE = object()

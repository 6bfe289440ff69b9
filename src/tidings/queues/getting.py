"""Getting messages: readers served at once or when something comes, and what they are told.

There is one way to get messages, the request `get`. A reader that has to wait is told when its tick ends,
with all that has come until then; one whose connection is replaced asks again under the same number, and is
told what it was told before.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from tidings.errors import Refused
from tidings.filters import Filter
from tidings.protocol.ledger import identity_of
from tidings.protocol.service import LATER, Asked
from tidings.protocol.session import Session
from tidings.queues.arguments import Cancel, Get
from tidings.queues.held import Held, Identity
from tidings.queues.manager import QueueManager
from tidings.queues.message import Message, event_bytes
from tidings.queues.queue import Queue
from tidings.queues.transaction import Transaction
from tidings.queues.waiting import Reader

READERS_MAX = 10_000
"""Requests of one session that may wait for messages."""
FILTERS_KEPT = 1_000
"""Filters that are remembered as they were understood: most are asked for again and again."""
FILTER_LENGTH_KEPT = 1_000
"""Characters of a filter that is remembered."""


class Readers:
    """All readers of all clients."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager
        self._waiting: dict[Session, dict[int, Reader]] = {}  # by the numbers of their requests
        self._told: dict[Session, dict[int, list[Held]]] = {}  # what an earlier connection was told

    # Clients

    def greeted(self, session: Session) -> None:
        """A client is there, maybe again: it may ask for what it was told before."""
        held = self._manager.holders.get(identity(session))
        if held:
            told = self._told[session] = {}
            for one in held.values():
                told.setdefault(one.request, []).append(one)

    def parted(self, session: Session) -> None:
        """A client has gone: its readers wait no longer."""
        self._told.pop(session, None)
        for reader in list(self._waiting.get(session, {}).values()):
            self._dismiss(reader)

    # Requests

    def get(
        self,
        asked: Asked,
        wanted: Get,
        queue: Queue,
        granted: Filter | None,
        transaction: Transaction | None,
    ) -> Any:
        """Answer with messages, now or later; `granted` says which of them may be got, None for all."""
        waiting = self._waiting.get(asked.session, {})
        if len(waiting) >= READERS_MAX:
            raise Refused("limit", f"{READERS_MAX} requests of this client wait for messages already")
        if asked.number in waiting:
            raise Refused("exists", f"get {asked.number} is waiting already")
        reader = Reader(
            queue,
            asked,
            identity(asked.session),
            both(filter_of(wanted.where) if wanted.where else None, granted),
            wanted.count,
            is_copier=wanted.action == "read",
            is_if_exists=wanted.if_exists,
            transaction=transaction,
            up_to=wanted.up_to,
            after=wanted.after,
            has_bodies=wanted.bodies,
        )
        if not self._serve_again(reader):
            queue.serve(reader)
        is_over = wanted.wait_s == 0 or wanted.up_to is not None or wanted.after is not None
        if reader.taken or is_over or (wanted.if_exists and not queue.is_contested(reader)):
            self._tell(reader)
        else:
            self._wait(reader, wanted.wait_s)
        return LATER

    def _serve_again(self, reader: Reader) -> bool:
        """Give a reader what it was told on an earlier connection, as far as it still holds that."""
        told = self._told.get(reader.asked.session)
        for held in () if told is None else told.pop(reader.asked.number, ()):
            if self._manager.held.get(held.message.number) is held:
                reader.take(held.message, held)
        return bool(reader.taken)

    def _wait(self, reader: Reader, wait_s: float | None) -> None:
        reader.queue.wait(reader)
        self._waiting.setdefault(reader.asked.session, {})[reader.asked.number] = reader
        if wait_s is not None:
            at = self._manager.now + wait_s
            reader.timer = self._manager.timers.at(at, lambda _now: self.give_up(reader))

    def cancel(self, asked: Asked, unwanted: Cancel) -> None:
        """A get is not wanted any more: what was handed out for it goes back as if it had not been."""
        session, number = asked.session, unwanted.number
        reader = self._waiting.get(session, {}).get(number)
        if reader is not None:
            self._dismiss(reader)
        hands = self._manager.holders.get(identity(session), {})
        for held in [one for one in hands.values() if one.request == number]:
            held.queue.give_back(held, counts=False)

    # The end of waiting

    def finish_tick(self) -> None:
        """Tell those who have got something."""
        while self._manager.ready_readers:
            for reader in list(self._manager.ready_readers):
                self.give_up(reader)

    def give_up(self, reader: Reader) -> None:
        """A reader waits no longer, and is told what it has got."""
        self._dismiss(reader)
        self._tell(reader)

    def _dismiss(self, reader: Reader) -> None:
        reader.queue.waiting.remove(reader)
        self._manager.timers.cancel(reader.timer)
        self._manager.ready_readers.pop(reader, None)
        waiting = self._waiting.get(reader.asked.session, {})
        waiting.pop(reader.asked.number, None)
        if not waiting:
            self._waiting.pop(reader.asked.session, None)

    def review(self, queue: Queue) -> None:
        """Transactions have ended: those who wait only for what may come back may wait in vain now."""
        for reader in queue.waiting.everyone():
            if reader.is_if_exists and not queue.is_contested(reader):
                self.give_up(reader)

    def look_again(self, queue: Queue, transaction: Transaction) -> None:
        """A transaction has put something into a queue: who waits there in it may have that at once."""
        waiting = self._waiting.get(transaction.session, {})
        for reader in [one for one in waiting.values() if one.transaction is transaction]:
            if reader.queue is queue and not reader.is_content:
                queue.serve(reader)
                if reader.taken:
                    self.give_up(reader)

    def end(self, transaction: Transaction) -> None:
        """A transaction ends: nothing is waited for in it any more."""
        waiting = self._waiting.get(transaction.session, {})
        for reader in [one for one in waiting.values() if one.transaction is transaction]:
            self.give_up(reader)

    def close(self, queue: Queue, error: Exception) -> None:
        """A queue is there no longer."""
        for reader in queue.waiting.everyone():
            self._dismiss(reader)
            reader.asked.fail(error)  # type: ignore[arg-type]

    # What they are told

    def _tell(self, reader: Reader) -> None:
        queue, mark = reader.queue, reader.queue.handed_mark
        messages = []
        for message, held in reader.taken:
            mark = max(mark, self._manager.fresh.get(message.number, 0))
            parts = len(queue.parts_of(message.number))
            if held is None and reader.transaction is not None:
                parts = parts or len(reader.transaction.parts(message.number))
            messages.append(_hand(queue, message, held, parts, reader.has_bodies))
        place = queue.kind.place(reader.taken[-1][0]) if reader.is_copier and reader.is_content else None
        answer = {
            "messages": messages,
            "last": self._manager.numbers.last,
            "next": place,
            "held_s": queue.description.redelivery_s,
        }
        self._note_requests(reader)
        reader.asked.answer(answer, mark)
        self._manager.broker.count("handed_out", len(messages))

    def _note_requests(self, reader: Reader) -> None:
        """Who gets a request from a queue may answer it."""
        broker, user = self._manager.broker, reader.asked.session.bound
        if user is None:
            return
        for message, _ in reader.taken:
            broker.answers.hand_out(user, message.raw, message.origin, broker.now)


def _hand(queue: Queue, message: Message, held: Held | None, parts: int, has_body: bool) -> tuple[Any, ...]:
    """A message as it is handed out."""
    delivery, redelivered = (0, False) if held is None else queue.delivery_of(held)
    origin = message.origin
    sender = (None, 0, None) if origin is None else (origin.system, origin.epoch, origin.source)
    raw = message.raw if has_body else event_bytes(replace(message.event, body=None))
    return message.number, delivery, redelivered, *sender, parts if has_body else 0, raw


def identity(session: Session) -> Identity:
    """Whose session it is."""
    assert session.origin is not None
    return identity_of(session.origin)


def both(one: Filter | None, other: Filter | None) -> Filter | None:
    """What matches both, None being everything."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def filter_of(text: str) -> Filter:
    """The filter of a text; FilterError if it can't be understood."""
    return _filter_kept(text) if len(text) <= FILTER_LENGTH_KEPT else Filter(text)


_filter_kept = lru_cache(FILTERS_KEPT)(Filter)

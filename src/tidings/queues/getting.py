"""Getting messages: readers are answered at once or when messages come.

There is one way to get messages, the request `get`. A reader that has to wait is answered when its tick ends,
with all messages that have come until then; one whose connection is replaced asks again under the same
number, and gets the same answer (`inflight.py`).

A search that takes more than a step goes on while others have their turn, see `serving.py`. It always goes on
to its end: the time that a reader may wait counts from its request on, but what is there it gets even if that
is over meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from tidings.errors import FilterError, QueueNotFound, Refused, TidingsError, TransactionLost
from tidings.filters import Filter
from tidings.ids import Origin
from tidings.protocol.service import LATER, IncomingRequest
from tidings.protocol.session import Session
from tidings.queues import serving
from tidings.queues.arguments import Cancel, GetRequest
from tidings.queues.backend import GetReply
from tidings.queues.inflight import InFlight, give_back, identity
from tidings.queues.manager import QueueManager
from tidings.queues.message import QueuedMessage, event_bytes, sight
from tidings.queues.queue import MessageQueue
from tidings.queues.transactions import OpenTransaction
from tidings.queues.waiting import WAITING_MAX, QueueReader
from tidings.replies import Deferred
from tidings.steps import Steps

READERS_MAX = 10_000
"""Requests of one session that may wait for messages."""
FILTERS_KEPT = 1_000
"""Filters that are remembered as they were understood: most are asked for again and again."""
FILTER_LENGTH_KEPT = 1_000
"""Characters of a filter that is remembered."""


class QueueReaders:
    """All readers of all clients."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager
        # By the numbers of their requests; those at backends too, by what they wait for.
        self._waiting: dict[Session, dict[int, QueueReader | Deferred[GetReply]]] = {}
        self._searches: dict[QueueReader, None] = {}  # those for whom a search is made
        self._reviewed: dict[MessageQueue, None] = {}  # those whose readers may wait for nothing
        self.dispatch: Callable[[IncomingRequest, GetRequest], object] = lambda _asked, _wanted: None
        """Serves a request whose queue can be reached another way now; set by the service."""

    # Clients

    def parted(self, session: Session) -> None:
        """A client has gone: its readers wait no longer."""
        for waiting in list(self._waiting.get(session, {}).values()):
            if isinstance(waiting, QueueReader):
                self._abandon(waiting)
            else:
                waiting.cancel()
        self._waiting.pop(session, None)

    # Requests

    def get(
        self,
        asked: IncomingRequest,
        wanted: GetRequest,
        queue: MessageQueue,
        granted: Filter | None,
        transaction: OpenTransaction | None,
    ) -> Any:
        """Answer with messages, now or later; `granted` says which of them may be got, None for all."""
        self.check(asked)
        reader = QueueReader(
            queue,
            asked,
            identity(asked.session),
            both(wanted_filter(wanted.where), granted),
            wanted.count,
            is_copier=wanted.action == "read",
            is_if_exists=wanted.if_exists,
            transaction=transaction,
            up_to=wanted.up_to,
            after=wanted.after,
            has_bodies=wanted.bodies,
            is_together=wanted.together,
        )
        if self._serve_again(reader):
            self._answer(reader)
            return LATER
        is_final = wanted.is_final
        steps = queue.serve(reader, is_final)
        if steps is not None or (reader.is_if_exists and not (reader.taken or is_final)):
            search = self._search(reader, wanted.wait_s, is_final, steps)
            return LATER if next(search, LATER) is LATER else search
        if reader.taken or is_final:
            self._answer(reader)
        else:
            queue.waiting.check_room(queue.name)
            self._enter(reader)
            self._wait(reader, wanted.wait_s, self._manager.broker.now)
        return LATER

    def check(self, asked: IncomingRequest) -> None:
        """Raise Refused if a request can't wait."""
        waiting = self._waiting.get(asked.session, {})
        if len(waiting) >= READERS_MAX:
            raise Refused("limit", f"{READERS_MAX} requests of this client wait for messages already")
        if asked.number in waiting:
            raise Refused("exists", f"get {asked.number} is waiting already")

    def await_reply(self, asked: IncomingRequest, reply: Deferred[GetReply]) -> None:
        """Let a request wait for the reply of a backend, until that is there, or it is cancelled."""
        if not reply.is_over:
            self._waiting.setdefault(asked.session, {})[asked.number] = reply
            reply.then(lambda _handed: self._forget(asked), lambda _error: self._forget(asked))

    def _serve_again(self, reader: QueueReader) -> bool:
        """Repeat the answer that a reader got on an earlier connection, as far as it still holds that."""
        in_flight, asked = self._manager.in_flight, reader.asked
        if asked.session in in_flight.resumable:
            for held in in_flight.take_again(asked.session, asked.number, reader.queue.name):
                if isinstance(held, InFlight) and not self._is_unanswered(held):
                    reader.take(held.message, held)
        return bool(reader.taken)

    def _is_unanswered(self, held: InFlight) -> bool:
        """Whether a message was got by a search that goes on, on a connection that is given up."""
        return any(
            reader.asked.number == held.request and reader.holder == held.holder for reader in self._searches
        )

    def _search(
        self, reader: QueueReader, wait_s: float | None, is_final: bool, steps: Steps[None] | None
    ) -> Steps[Any]:
        """Serve a reader in steps; meanwhile it waits for what comes where the search has been."""
        queue, begun_at = reader.queue, self._manager.broker.now
        self._enter(reader)
        self._searches[reader] = None
        reader.is_searching = True
        is_done = False
        try:
            while steps is not None:
                yield
                yield from steps
                steps = queue.serve(reader, is_final) if self._has_lost(reader) else None
            if reader.is_if_exists and not (reader.is_over or reader.taken or is_final):
                is_final = not (yield from serving.is_contested(queue, reader))
            is_done = True
        finally:
            reader.is_searching = False
            del self._searches[reader]
            if not is_done:
                self._abandon(reader)
        if not reader.is_over:
            self._conclude(reader, wait_s, is_final, begun_at)
        return LATER

    def _has_lost(self, reader: QueueReader) -> bool:
        """Take from a reader what it has got and was undone meanwhile; whether it wants more for that."""
        had = len(reader.taken)
        reader.keep(reader.queue.is_still_with)
        if len(reader.taken) == had or reader.is_over or reader.is_content:
            return False
        if not reader.turn:
            reader.queue.waiting.add(reader)
        return True

    def _conclude(self, reader: QueueReader, wait_s: float | None, is_final: bool, begun_at: float) -> None:
        """End a search: its reader gets its messages, or goes on waiting."""
        queue = reader.queue
        if queue.is_closed:
            self._dismiss(reader)
            raise QueueNotFound(queue.name, "it was deleted")
        if reader.taken or is_final:
            reader.taken.sort(key=lambda one: queue.kind.place(one[0]))
            self.give_up(reader)
        elif len(queue.waiting) > WAITING_MAX:
            self._dismiss(reader)
            queue.waiting.check_room(queue.name)
        else:
            self._wait(reader, wait_s, begun_at)

    def _enter(self, reader: QueueReader) -> None:
        """Let a reader wait that has got nothing yet, or not all."""
        reader.queue.waiting.add(reader)
        self._waiting.setdefault(reader.asked.session, {})[reader.asked.number] = reader
        if reader.transaction is not None:
            reader.transaction.waiting[reader.asked.number] = reader

    def _wait(self, reader: QueueReader, wait_s: float | None, begun_at: float) -> None:
        if wait_s is not None:
            reader.timer = self._manager.timers.at(begun_at + wait_s, lambda _now: self.give_up(reader))

    def _abandon(self, reader: QueueReader) -> None:
        """Drop a reader's answer: its messages go back as if they had not been delivered."""
        self._dismiss(reader)
        reader.is_over = True
        for message, held in reader.taken:
            if held is not None and reader.queue.held.get(message.number) is held:
                reader.queue.give_back(held, counts=False)
        if reader.transaction is not None:
            reader.transaction.put_back(reader.asked.number)
        reader.taken.clear()

    def cancel(self, asked: IncomingRequest, unwanted: Cancel) -> Steps[None]:
        """A get is not wanted any more: what was handed out for it goes back as if it had not been."""
        session, number = asked.session, unwanted.number
        waiting = self._waiting.get(session, {}).get(number)
        if isinstance(waiting, QueueReader):
            self._dismiss(waiting)
        elif waiting is not None:
            waiting.cancel()
            self._forget(IncomingRequest(session, number))
        yield from give_back(self._manager.in_flight.of(session), number)

    # The end of waiting

    def finish_tick(self) -> None:
        """Answer those who have got something."""
        while self._manager.ready_readers:
            for reader in list(self._manager.ready_readers):
                self.give_up(reader)

    def give_up(self, reader: QueueReader) -> None:
        """End a reader's wait, and answer with its messages."""
        self._dismiss(reader)
        self._answer(reader)

    def _dismiss(self, reader: QueueReader) -> None:
        reader.queue.waiting.remove(reader)
        if reader.transaction is not None:
            reader.transaction.waiting.pop(reader.asked.number, None)
        self._manager.timers.cancel(reader.timer)
        reader.timer = None
        self._manager.ready_readers.pop(reader, None)
        self._forget(reader.asked)

    def _forget(self, asked: IncomingRequest) -> None:
        """A request waits no longer."""
        waiting = self._waiting.get(asked.session, {})
        waiting.pop(asked.number, None)
        if not waiting:
            self._waiting.pop(asked.session, None)

    def review(self, queue: MessageQueue) -> None:
        """Transactions have ended: readers that wait only for messages that may come back are reviewed."""
        if queue.waiting.if_exists and queue not in self._reviewed:
            self._reviewed[queue] = None
            self._manager.begin(self._review(queue))

    def _review(self, queue: MessageQueue) -> Steps[None]:
        yield  # more may end in this turn
        del self._reviewed[queue]
        for reader in list(queue.waiting.if_exists):
            is_contested = yield from serving.is_contested(queue, reader)
            if not is_contested and reader in queue.waiting.if_exists and not reader.is_searching:
                self.give_up(reader)

    def look_again(
        self, queue: MessageQueue, transaction: OpenTransaction, put: Sequence[QueuedMessage]
    ) -> None:
        """A transaction has put something into a queue: who waits there in it may have that at once."""
        for reader in [one for one in transaction.waiting.values() if one.queue is queue]:
            if not reader.is_content:
                self._offer_own(reader, transaction, put)
                if reader.taken:
                    self.give_up(reader)

    def _offer_own(
        self, reader: QueueReader, transaction: OpenTransaction, put: Sequence[QueuedMessage]
    ) -> None:
        for message in put:
            is_there = transaction.has_put(message.number) and not reader.queue.schedule.is_early(message)
            if is_there and (reader.filter is None or reader.filter.matches(sight(message))):
                if not reader.fits(message):
                    return
                if reader.is_copier:
                    reader.queue.copy(message, reader)
                else:
                    transaction.withdraw(reader.queue, message, reader.asked.number)
                    reader.take(message, None)

    def end(self, transaction: OpenTransaction) -> None:
        """A transaction ends: nothing is waited for in it any more."""
        for reader in list(transaction.waiting.values()):
            if reader.is_searching:
                self._abandon(reader)
                reader.asked.fail(TransactionLost(f"transaction {transaction.number} has ended"))
            else:
                self.give_up(reader)

    def close(self, queue: MessageQueue, error: TidingsError) -> Steps[None]:
        """A queue is there no longer."""
        for count, reader in enumerate(queue.waiting.everyone(), 1):
            if reader.turn and not reader.is_searching:
                self._dismiss(reader)
                reader.asked.fail(error)
            if not count % serving.AT_ONCE:
                yield

    # Answers

    def _answer(self, reader: QueueReader) -> None:
        queue, mark = reader.queue, reader.queue.handed_mark
        messages = []
        for message, held in reader.taken:
            mark = max(mark, self._manager.fresh.get(message.number, 0))
            parts = len(queue.parts.of(message.number))
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
        if reader.asked.session.bound is not None:
            note_requests(reader.asked.session, ((one.raw, one.origin) for one, _ in reader.taken))
        reader.asked.answer(answer, mark)
        self._manager.broker.count("handed_out", len(messages))


def _hand(
    queue: MessageQueue, message: QueuedMessage, held: InFlight | None, parts: int, has_body: bool
) -> tuple[Any, ...]:
    """A message as it is handed out."""
    delivery, redelivered = (0, False) if held is None else queue.delivery_of(held)
    origin = message.origin
    sender = (None, 0, None) if origin is None else (origin.system, origin.epoch, origin.source)
    raw = message.raw if has_body else event_bytes(replace(message.event, body=None))
    return message.number, delivery, redelivered, *sender, parts if has_body else 0, raw


def note_requests(session: Session, handed: Iterable[tuple[bytes, Origin | None]]) -> None:
    """Let the client that gets a request from a queue answer it."""
    broker, user = session.broker, session.bound
    if user is not None:
        for raw, origin in handed:
            broker.answers.hand_out(user, raw, origin, broker.now)


def both(one: Filter | None, other: Filter | None) -> Filter | None:
    """Return the conjunction of two filters, None being everything."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def filter_of(text: str) -> Filter:
    """The filter of a text; FilterError if it can't be understood."""
    return _filter_kept(text) if len(text) <= FILTER_LENGTH_KEPT else Filter(text)


def wanted_filter(text: str) -> Filter | None:
    """The filter of messages that someone wants, None for all of them.

    Raises FilterError if no message can ever match: a reader would wait without end.
    """
    if not text:
        return None
    filter = filter_of(text)
    check_possible(filter)
    return filter


def check_possible(filter: Filter) -> None:
    """Raise FilterError for a filter that contradicts itself.

    The error does not show its text: another node may have added to it what the client may get.
    """
    if not filter.normal:
        raise FilterError("no message can match this condition")


_filter_kept = lru_cache(FILTERS_KEPT)(Filter)

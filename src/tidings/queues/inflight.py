"""Which messages are in flight: who holds them, wherever their queues are, and who may come back for them.

A message in flight stays with its client while the connection is replaced by another, for RESUME_S; the
client may then request it again. After that, or when the client says goodbye, it goes back.

A message of a backend gets a number of this node, as the numbers of two places may be the same. It is
forgotten when the client says what becomes of it, and when the backend has taken it back because its time was
up. All of these are forgotten when the node is killed: what becomes of a message that was held then can't be
said any more, nor whether it had been said.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tidings.protocol.ledger import identity_of
from tidings.protocol.messages import DONE, GIVE_BACK, REJECT, UNOPENED
from tidings.queues.serving import AT_ONCE
from tidings.steps import Steps

if TYPE_CHECKING:
    from tidings.protocol.session import Session
    from tidings.queues.backend import Delivered, GetReply, QueueRef
    from tidings.queues.manager import QueueManager
    from tidings.queues.message import QueuedMessage
    from tidings.queues.queue import MessageQueue
    from tidings.queues.transactions import OpenTransaction
    from tidings.replies import Deferred
    from tidings.timers import Alarm

RESUME_S = 1.0
"""How long a client whose connection was lost may take to come back before others get what it held."""
LOOKED_AT_ONCE = 1_024
"""Messages in flight that are looked through in one step for those of one request."""
ELSEWHERE = 1 << 62
"""Added to the numbers of messages of backends: no message of a queue here has such a number."""
UNCONFIRMED_MAX = 10_000
"""Settlements of which it is known that no backend has confirmed them, the last ones."""
RETURNED_MAX = 10_000
"""Messages of which it is known from whom they were taken back, the last ones."""

ReaderKey = tuple[str, int]
"""A client in one of its lives: system and epoch."""


class InFlight(Struct, eq=False):
    """A message of a queue of this node, and until when it may stay in flight."""

    queue: MessageQueue
    message: QueuedMessage
    delivery: int  # the how many-eth time it was handed out
    holder: ReaderKey | OpenTransaction
    request: int  # the request that it was handed out for
    due: float
    is_noted: bool = False  # whether it is stored that this delivery was begun

    @property
    def address(self) -> str:
        """The name of its queue."""
        return self.queue.name

    @property
    def is_over(self) -> bool:
        """Whether it is in flight no longer; a queue that is closed lets go of all at once."""
        return self.queue.held.get(self.message.number) is not self

    @property
    def is_stored(self) -> bool:
        """Whether its queue is stored."""
        return self.queue.kind.persistent

    def settle(self, outcome: int, text: str, delay_s: float | None = None) -> None:
        """Do what the client says."""
        if outcome == DONE:
            self.queue.finish(self)
        elif outcome == REJECT:
            self.queue.reject(self, text)
        else:
            self.queue.give_back(self, outcome == GIVE_BACK, text, delay_s)

    def take_back(self, counts: bool, reason: str) -> None:
        """Give the message back: its reader is gone."""
        self.queue.take_back(self, counts, reason)


class Lot(Struct, eq=False):
    """Messages that came in one reply of a backend, and what forgets them when their time is up."""

    in_flight: InFlightTable
    left: int
    held_s: float | None
    timer: Alarm | None = None


class RemoteInFlight(Struct, eq=False):
    """A message of a backend's queue, which holds it for this node."""

    ref: QueueRef
    holder: ReaderKey
    request: int
    number: int  # here
    row: Delivered  # as the client gets it
    lot: Lot
    theirs: int  # its number there
    is_over: bool = False

    @property
    def delivery(self) -> int:
        """The how many-eth time it was handed out."""
        return self.row.delivery

    @property
    def address(self) -> str:
        """The address of its queue."""
        return self.ref.address

    @property
    def is_stored(self) -> bool:
        """Nothing of it is stored here."""
        return False

    def settle(self, outcome: int, text: str, delay_s: float | None = None) -> Deferred[None]:
        """Say there what becomes of it, and let go of it."""
        self.lot.in_flight.forget(self)
        if delay_s is not None and outcome == GIVE_BACK:
            return self.ref.release(self.theirs, self.delivery, delay_s)
        return self.ref.settle(self.theirs, self.delivery, outcome, text)

    def take_back(self, counts: bool, reason: str) -> None:  # noqa: ARG002
        """Give the message back: its reader is gone."""
        self.note_returned()
        self.settle(GIVE_BACK if counts else UNOPENED, "")

    def note_returned(self) -> None:
        """Take the message from its reader, whose later settlements do not count."""
        self.lot.in_flight.returned.note(self.number, self.delivery, self.holder, self.address)


Holding = InFlight | RemoteInFlight
"""A message in flight, wherever its queue is. Both are settled in the same way."""


class Returned(dict[tuple[int, ReaderKey], tuple[int, str]]):
    """By the numbers of messages and who has held them: the last delivery to them, and where.

    After commits have failed, a client that only learns that it does not hold a message takes that
    for having settled it before: then the message is gone. So of what was taken back the queue is named.
    A client of whom that is known, and who gets the message again and settles it, has settled it.
    """

    def note(self, number: int, delivery: int, holder: ReaderKey, address: str) -> None:
        """A message was taken back from a client who was gone, or late."""
        self.pop((number, holder), None)
        self[number, holder] = delivery, address
        if len(self) > RETURNED_MAX:
            del self[next(iter(self))]

    def find(self, number: int, delivery: int, client: ReaderKey) -> str:
        """Return the queue of a message that was taken back from a client in this delivery or a later one."""
        last, address = self.get((number, client), (0, ""))
        return address if delivery <= last else ""

    def settled(self, number: int, client: ReaderKey) -> None:
        """A client has settled a message that it holds."""
        self.pop((number, client), None)


class InFlightTable:
    """All messages in flight, and who holds them; see the module."""

    def __init__(self, manager: QueueManager) -> None:
        self.held: dict[int, Holding] = {}
        self.holders: dict[ReaderKey, dict[int, Holding]] = {}
        self.resumable: dict[Session, dict[int, list[Holding]]] = {}  # of earlier connections
        self.elsewhere = 0  # how many of them are a backend's
        self.returned = Returned()
        self._manager = manager
        self._broker = manager.broker
        self._first = 2 * ELSEWHERE  # the first number that was given out since the node was started
        self._unconfirmed: dict[int, None] = {}  # what was settled, and maybe not done at its backend
        # More than one session, if a HELLO comes late on a connection that the client has given up.
        self._present: dict[ReaderKey, set[Session]] = {}
        self._missed: dict[ReaderKey, Alarm] = {}  # who was lost, until it comes back or is given up

    # Messages

    def hold(self, number: int, held: Holding) -> None:
        """Note that a message is in flight."""
        self.held[number] = held
        holder = held.holder
        if isinstance(holder, tuple):
            self.holders.setdefault(holder, {})[number] = held
        else:
            assert isinstance(held, InFlight)
            holder.held[number] = held

    def let_go(self, number: int, holding: Holding) -> None:
        """Remove a message that is in flight no more."""
        holder = holding.holder
        del self.held[number]
        if isinstance(holder, tuple):
            holdings = self.holders.get(holder)
            if holdings is not None and holdings.pop(number, None) is not None and not holdings:
                del self.holders[holder]
        else:
            holder.held.pop(number, None)

    def of(self, session: Session) -> dict[int, Holding]:
        """Return the messages that a client holds, by their numbers."""
        return self.holders.get(identity(session), {})

    def take(self, ref: QueueRef, session: Session, request: int, handed: GetReply) -> list[RemoteInFlight]:
        """Hold what a backend has handed out for a request of a client."""
        client, lot = identity(session), Lot(self, len(handed.messages), handed.held_s)
        taken: list[RemoteInFlight] = []
        for row in handed.messages:
            number = ELSEWHERE + self._manager.numbers.next(self._broker.wall)
            self._first = min(self._first, number)
            ours = replace(row, number=number, received=row.number)
            taken.append(RemoteInFlight(ref, client, request, number, ours, lot, row.number))
            self.hold(number, taken[-1])
        self.elsewhere += len(taken)
        if taken and handed.held_s is not None:
            at = self._broker.now + handed.held_s
            lot.timer = self._manager.timers.at(at, partial(self._expire, taken))
        return taken

    def is_forgotten(self, number: int) -> bool:
        """Whether it is a backend's, and not known whether that has heard what became of it."""
        return ELSEWHERE <= number < self._first or number in self._unconfirmed

    def await_settled(self, number: int, reply: Deferred[None]) -> None:
        """A client has settled a message of a backend, which has not confirmed that yet."""
        self._unconfirmed[number] = None
        if len(self._unconfirmed) > UNCONFIRMED_MAX:
            del self._unconfirmed[next(iter(self._unconfirmed))]
        reply.then(lambda _none: self._unconfirmed.pop(number, None))  # one that failed stays unconfirmed

    def _expire(self, taken: list[RemoteInFlight], _now: float) -> None:
        """The backend has taken them back."""
        for held in taken:
            if not held.is_over:
                self.forget(held)
                held.note_returned()

    def forget(self, held: RemoteInFlight) -> None:
        """Note that a message of a backend is in flight no more."""
        self.let_go(held.number, held)
        held.is_over = True
        self.elsewhere -= 1
        held.lot.left -= 1
        if not held.lot.left:
            self._manager.timers.cancel(held.lot.timer)

    def take_again(self, session: Session, request: int, address: str) -> list[Holding]:
        """Return the answer to this request on an earlier connection, as far as the client still holds it."""
        earlier = self.resumable.get(session)
        again = () if earlier is None else earlier.pop(request, ())
        return [held for held in again if not held.is_over and held.address == address]

    # Clients

    def greeted(self, session: Session) -> bool:
        """A client is there, maybe again; whether what it holds it goes on holding, having come in time."""
        client = identity(session)
        is_in_time = client in self._present or client in self._missed
        self._present.setdefault(client, set()).add(session)
        self._manager.timers.cancel(self._missed.pop(client, None))
        held = self.holders.get(client)
        if held:
            earlier = self.resumable[session] = {}
            for one in held.values():
                earlier.setdefault(one.request, []).append(one)
        return is_in_time

    def parted(self, session: Session, is_clean: bool) -> None:
        """A session has ended."""
        self.resumable.pop(session, None)
        client = identity(session)
        sessions = self._present.get(client, set())
        sessions.discard(session)
        if not sessions:
            self._present.pop(client, None)
        if is_clean:
            self._take_back(client, "its reader has left", self._broker.now)
        elif not sessions and client in self.holders:
            at = self._broker.now + RESUME_S
            act = partial(self._take_back, client, "its reader was lost")
            self._missed[client] = self._manager.timers.at(at, act)

    def _take_back(self, client: ReaderKey, reason: str, _now: float) -> None:
        """Take back all that a client holds that has gone; from now on it holds nothing of that."""
        self._missed.pop(client, None)
        holdings = self.holders.pop(client, None)
        if holdings is not None:
            self._manager.begin(self._taken_back(list(holdings.values()), reason))

    def _taken_back(self, holdings: list[Holding], reason: str) -> Steps[None]:
        """Take back messages, one after the other.

        What came with one request is dealt with one by one, so of that only the first was delivered for sure.
        """
        counted: set[int] = set()
        for count, held in enumerate(holdings, 1):
            if not held.is_over:
                held.take_back(held.request not in counted, reason)
            counted.add(held.request)
            if not count % AT_ONCE:
                yield


def give_back(holdings: Mapping[int, Holding], request: int) -> Steps[None]:
    """Take back what was handed out for a request, as if it had not been."""
    for count, held in enumerate(list(holdings.values()), 1):
        if held.request == request and not held.is_over:
            held.settle(UNOPENED, "")
        if not count % LOOKED_AT_ONCE:
            yield


def identity(session: Session) -> ReaderKey:
    """The identity of the session's client."""
    assert session.origin is not None
    return identity_of(session.origin)

"""A message in flight: taken out of its queue by a client, and not settled yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from tidings.protocol.messages import DONE, GIVE_BACK, REJECT, UNOPENED

if TYPE_CHECKING:
    from tidings.queues.backend import Delivered, QueueRef
    from tidings.queues.inflight import InFlight
    from tidings.queues.message import Message
    from tidings.queues.queue import Queue
    from tidings.queues.transaction import Transaction
    from tidings.replies import Deferred
    from tidings.timers import Alarm

Identity = tuple[str, int]
"""A client in one of its lives: system and epoch."""


class Held:
    """A message of a queue of this node, and until when it may stay in someone's hands."""

    __slots__ = ("delivery", "due", "holder", "is_noted", "message", "queue", "request")

    def __init__(
        self,
        queue: Queue,
        message: Message,
        delivery: int,
        holder: Identity | Transaction,
        request: int,
        due: float,
    ) -> None:
        self.queue = queue
        self.message = message
        self.delivery = delivery  # the how many-eth time it was handed out
        self.holder = holder
        self.request = request  # the request that it was handed out for
        self.due = due
        self.is_noted = False  # whether it is stored that this delivery was begun

    @property
    def address(self) -> str:
        """The name of its queue."""
        return self.queue.name

    @property
    def is_over(self) -> bool:
        """Whether it is in these hands no longer; a queue that is closed lets go of all at once."""
        return self.queue.held.get(self.message.number) is not self

    @property
    def is_stored(self) -> bool:
        """Whether its queue is stored."""
        return self.queue.kind.persistent

    def settle(self, outcome: int, text: str) -> None:
        """Do what the client says."""
        if outcome == DONE:
            self.queue.finish(self)
        elif outcome == REJECT:
            self.queue.reject(self, text)
        else:
            self.queue.give_back(self, counts=outcome == GIVE_BACK, reason=text)

    def take_back(self, counts: bool, reason: str) -> None:
        """Its reader is gone."""
        self.queue.take_back(self, counts, reason)

    def give_back(self) -> None:
        """It goes back as if it had not been handed out."""
        self.queue.give_back(self, counts=False)


class Lot:
    """Messages that came in one reply of a backend, and what forgets them when their time is up."""

    __slots__ = ("held_s", "in_flight", "left", "timer")

    def __init__(self, in_flight: InFlight, left: int, held_s: float | None) -> None:
        self.in_flight = in_flight
        self.left = left
        self.held_s = held_s
        self.timer: Alarm | None = None


class RemoteHeld:
    """A message of a backend's queue, which holds it for this node."""

    __slots__ = ("delivery", "holder", "is_over", "lot", "number", "ref", "request", "row", "theirs")

    def __init__(
        self, ref: QueueRef, holder: Identity, request: int, number: int, row: Delivered, lot: Lot
    ) -> None:
        self.ref = ref
        self.holder = holder
        self.request = request
        self.lot = lot
        self.number = number  # here
        self.theirs = row.number  # there
        self.delivery = row.delivery
        self.row = replace(row, number=number, received=row.number)  # as the client is told
        self.is_over: bool = False

    @property
    def address(self) -> str:
        """The address of its queue."""
        return self.ref.address

    @property
    def is_stored(self) -> bool:
        """Nothing of it is stored here."""
        return False

    def settle(self, outcome: int, text: str) -> Deferred[None]:
        """Say there what becomes of it, and let go of it."""
        self.lot.in_flight.forget(self)
        return self.ref.settle(self.theirs, self.delivery, outcome, text)

    def take_back(self, counts: bool, reason: str) -> None:  # noqa: ARG002
        """Its reader is gone."""
        self.note_returned()
        self.settle(GIVE_BACK if counts else UNOPENED, "")

    def note_returned(self) -> None:
        """It is not its reader's any more, whatever that says of it from now on."""
        self.lot.in_flight.returned.note(self.number, self.delivery, self.holder, self.address)

    def give_back(self) -> None:
        """It goes back as if it had not been handed out."""
        self.settle(UNOPENED, "")


Holding = Held | RemoteHeld
"""A message in flight, wherever its queue is. What becomes of both is said in the same way."""

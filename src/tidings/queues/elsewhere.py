"""Queues whose messages are not in this node: those of a peer, and those in a database that nodes share.

What leads to one is a *way*. All that it is asked is answered later, by a call from the loop of the node;
whoever answers has the driver finish a tick. Errors are those that a queue of this node would raise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tidings.errors import TidingsError
from tidings.event import Batch
from tidings.exchange import Subscription
from tidings.filters import Filter
from tidings.protocol.calls import Answer
from tidings.protocol.session import Session
from tidings.queues.arguments import Find, Get
from tidings.queues.description import Description

if TYPE_CHECKING:
    from tidings.queues.message import Message
    from tidings.queues.queue import Queue

Done = Callable[[TidingsError | None], None]
"""Called once, when something is done or can't be."""


class Way(Protocol):
    """The way to one queue."""

    @property
    def address(self) -> str:
        """What the queue is called in errors and rules: its name, or `name@node`."""

    def describe(self, answer: Answer) -> None:
        """Answer with the Description."""

    def put(self, session: Session, batch: Batch, done: Callable[[int, TidingsError | None], None]) -> None:
        """Put events, in their order; `done` is called with each row, when it is as safe as it can be.

        Events that come again, with the same origin and counter, are put once.
        """

    def get(self, wanted: Get, answer: Answer) -> Callable[[], None]:
        """Answer with messages as the request `get` does; what cancels it, and gives back what it got."""

    def settle(self, number: int, delivery: int, outcome: int, text: str, done: Done) -> None:
        """What becomes of a message that was got."""

    def part(self, number: int, delivery: int, index: int, answer: Answer) -> None:
        """Answer with a further part of the body of a message."""

    def renew(self, identity: str, lease_s: float, answer: Answer) -> None:
        """Let a message live so long from now on; answer with what was granted."""

    def watch(self, subscription: Subscription) -> Callable[[], None]:
        """Give copies of what is put from now on, and matches, to a subscription; what ends that."""


@runtime_checkable
class Forwarding(Protocol):
    """A way on which messages may wait in a queue of this node: what a transaction puts does so."""

    def stand_in(self) -> Queue:
        """That queue."""

    def follow(self, session: Session, message: Message, done: Done) -> bool:
        """Have it told what becomes of a message that was just put there; False if it is safe as it is."""


class Elsewhere(Protocol):
    """A place, or many, where there are further queues."""

    @property
    def types(self) -> Collection[str]:
        """The types of queues that can be made there by clients of this node; none at a peer."""

    def find(self, address: str) -> Way | None:
        """The way to the queue of this address, as far as that can be told at once."""

    def create(self, wanted: Description, answer: Answer) -> None:
        """Make a queue of one of the types; answer with its Description."""

    def delete(self, way: Way, answer: Answer) -> None:
        """Delete a queue with all that is in it; NotAllowed at a peer, whose queues are managed there."""

    def purge(self, way: Way, where: str, answer: Answer) -> None:
        """Throw away messages; answer with how many they were. NotAllowed at a peer."""

    def search(self, sought: Find, answer: Callable[[list[Description], Any], None]) -> None:
        """Answer with the descriptions that agree, of all that can be reached in time, and no error."""


class Others(Protocol):
    """What the service of this node's queues asks about those elsewhere."""

    def stand_in(self, session: Session, address: str) -> tuple[Queue, Filter | None] | None:
        """The queue of this node that a transaction puts into instead, and what a client may put there.

        None for a queue of this node; QueueError where no transaction can put.
        """

    def committed(self, session: Session, counter: int, queue: Queue, message: Message) -> None:
        """A transaction that was committed with this counter has put a message, and done nothing else.

        If that is to go elsewhere, it is pending until it is there.
        """

    def conclude(
        self, session: Session, counter: int, number: int, delivery: int, outcome: int, text: str
    ) -> bool:
        """What becomes of a message that a client holds; whether it holds it elsewhere.

        Then what has this counter is pending until that is done.
        """

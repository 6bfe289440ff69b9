"""Queues whose messages are not in this node: those of a peer, and those in a database that nodes share.

What leads to one is a *way*. All that it is asked is answered later, by a call from the loop of the node;
whoever answers has the driver finish a tick. Errors are those that a queue of this node would raise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol

from tidings.errors import TidingsError
from tidings.event import Batch
from tidings.exchange import Subscription
from tidings.protocol.calls import Answer
from tidings.protocol.session import Session
from tidings.queues.arguments import Find, Get
from tidings.queues.description import Description

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

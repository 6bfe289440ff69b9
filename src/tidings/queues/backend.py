"""Queues wherever they are: what a kind of queues must do to be used through a node as the node's own are.

A *backend* has queues whose messages are not in this node: those of another node, or those in a database. It
resolves an address to a *reference*, which puts, gets and settles in one queue. To attach a new kind, write
the two classes below, as subclasses or not, and add the backend to the node's queues:

    open_queues(broker, store, lasts=True).backends.append(Lists())

The service does the rest. It asks its own queues first, then the backends in order. It checks the rights of
the client by `QueueRef.address`, adds what the client may get to the filter of a `get`, numbers what is put
or settled and keeps it *pending* until the reply is there, and keeps who holds which message: a client that
comes back within RESUME_S goes on holding, and gets the same reply again; what others held is
given back by `settle`.

All calls come from the loop of the node. Nothing may block: whatever takes time replies later, in a call on
the same loop, after which the driver of the node finishes a tick. Errors are those that a queue of this node
would raise, with the queue named by its address; a backend that can't be reached fails with Disconnected.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from msgspec import Meta, Struct

from tidings.errors import QueueError, TidingsError
from tidings.event import Batch
from tidings.exchange import NodeSubscription
from tidings.filters import Filter
from tidings.ids import NUMBER_MAX
from tidings.protocol.messages import GIVE_BACK
from tidings.protocol.session import Session
from tidings.queues.arguments import FindRequest, GetRequest
from tidings.queues.description import SECONDS_MAX, Description
from tidings.replies import Deferred, failed

if TYPE_CHECKING:
    from tidings.queues.message import QueuedMessage
    from tidings.queues.queue import MessageQueue


class Delivered(Struct, array_like=True, frozen=True):
    """A message as it is handed out; what a backend says is checked as what a client says.

    `number` and `delivery` name it in `settle` and `part`; a message that was read has the delivery 0.
    """

    number: Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
    delivery: Annotated[int, Meta(ge=0, lt=2**32)]
    redelivered: bool
    system: str | None  # the origin of the event
    epoch: int
    source: str | None
    parts: int  # further parts of its body
    raw: bytes  # the event
    received: int | None = None  # set by the service, which gives it a number of its own: this one


class GetReply(Struct, frozen=True):
    """The reply to a `get`."""

    messages: list[Delivered]
    last: int = 0  # the last number that the queue has given
    next: Any = None  # the place behind which a reader goes on, if there may be more
    held_s: Annotated[float, Meta(ge=0, le=SECONDS_MAX)] | None = None  # then the backend takes them back


NOTHING = GetReply([])


class DispatchAgain(TidingsError):
    """The queue can be reached another way now: the service dispatches the get again, for `wait_s`."""

    def __init__(self, wait_s: float | None) -> None:
        super().__init__("the queue can be reached another way now; get from it again")
        self.wait_s = wait_s


class QueueRef(Protocol):
    """One queue of a backend; made by each `resolve`, so it keeps no state of its own."""

    @property
    @abstractmethod
    def address(self) -> str:
        """By what name rules and errors speak of it: its name, or `name@node`."""

    @abstractmethod
    def describe(self) -> Deferred[Description]:
        """Return the description, with how many messages there are."""

    @abstractmethod
    def put(self, session: Session, batch: Batch) -> Sequence[Deferred[None]]:
        """Put events in their order; one reply for each, when it is as safe as it can be.

        An event that comes again, with the same origin and counter, is put once. Once an event is refused,
        those behind it in the batch are too.
        """

    @abstractmethod
    def get(self, wanted: GetRequest) -> Deferred[GetReply]:
        """Take or read messages, as the request `get` says; none if nothing matches in time.

        A reply that fails with DispatchAgain has the service find the queue anew.
        If the reply is cancelled, what was taken for it goes back as if it had not been handed out.
        """

    def get_together(self, wanted: GetRequest, owner: str) -> Deferred[GetReply]:  # noqa: ARG002
        """Take messages as `get` does, also those behind others of their group that the same owner holds.

        The owner is a client. Unless it is overridden, one message of each group is taken.
        """
        return self.get(wanted)

    @abstractmethod
    def settle(self, number: int, delivery: int, outcome: int, text: str) -> Deferred[None]:
        """Do with a message that was taken what the outcome says: DONE, REJECT, GIVE_BACK or UNOPENED.

        What is given back UNOPENED does not count as delivered. MessageNotHeld if it was taken back since.
        """

    def release(self, number: int, delivery: int, delay_s: float) -> Deferred[None]:  # noqa: ARG002
        """Give back a message that was taken, for nobody to have before so many seconds have passed.

        Unless it is overridden, others may have it at once.
        """
        return self.settle(number, delivery, GIVE_BACK, "")

    @abstractmethod
    def renew(self, identity: str, lease_s: float) -> Deferred[float]:
        """Let the message with this event live for so long from now on; how long that is, 0 if it is gone."""

    @abstractmethod
    def watch(self, subscription: NodeSubscription) -> Callable[[], None]:
        """Deliver copies of what is put from now on, and matches, to the sink; what ends that.

        Disconnected if the backend is away.
        """

    @abstractmethod
    def purge(self, filter: Filter | None) -> Deferred[int]:
        """Throw away the messages that match and that nobody holds; how many they were."""

    def part(self, number: int, delivery: int, index: int) -> Deferred[bytes]:  # noqa: ARG002
        """Return a further part of the body of a message; unless it is overridden, there are none."""
        problem = f"message {number} has 0 further parts, and no part {index}"
        return failed(QueueError(self.address, problem))

    @property
    def stores_puts(self) -> bool:
        """Whether this node stores what is put, so that it is put even after a crash of the node."""
        return False

    def stand_in(self) -> MessageQueue | None:
        """The queue of this node in which what a transaction puts waits for this one; None: it can't put."""
        return None

    def follow(self, session: Session, message: QueuedMessage) -> Deferred[None] | None:  # noqa: ARG002
        """Return the reply on a message just put into `stand_in`; None if it is safe where it is."""
        return None


class QueueBackend(Protocol):
    """All queues of one kind, in one place or in many."""

    @property
    @abstractmethod
    def types(self) -> Collection[str]:
        """The types of queues that clients of this node can create there, by `type` of the description."""

    @property
    def absent(self) -> Collection[str]:
        """Return the names of what can't be reached now, for the error that a queue was not found."""
        return ()

    @abstractmethod
    def resolve(self, address: str) -> QueueRef | None:
        """The queue of this address, as far as that is known at once; None if it can't be one of these.

        QueueNotFound if it would be one of these, and is known not to be there.
        """

    @abstractmethod
    def create(self, wanted: Description) -> Deferred[Description]:
        """Create a queue of one of the types; QueueExists if there is another of this name."""

    @abstractmethod
    def delete(self, queue: QueueRef) -> Deferred[None]:
        """Delete a queue with all that is in it."""

    @abstractmethod
    def search(self, sought: FindRequest) -> Deferred[list[Description]]:
        """Return the descriptions that agree with `sought.terms`, of all that can be reached in time.

        `node` of a description is set where the address is `name@node`. What fails is left out.
        """

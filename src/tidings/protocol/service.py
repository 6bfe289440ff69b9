"""Services of the broker: their operations, frames and notifications.

A service adds operations, which clients call by requests, and frames of the numbered stream: those that a
client sends again after a cut, and that the broker lets through once. The broker notifies it when clients
come and go, when a tick ends, and of the outcome of its commit. It sets timers in `Broker.timers`.

A service does no I/O itself. It has work run in a thread, and gets a reply:

    broker.offload(lambda: folder.read(…)).then(answer, asked.fail)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import DecodeError

from tidings.errors import InternalError, Refused, TidingsError
from tidings.exchange import NodeSubscription
from tidings.protocol.frames import REPLY_MAX, encode
from tidings.protocol.messages import ProtocolMessage, Reply, failure_of
from tidings.replies import Deferred
from tidings.steps import Steps
from tidings.store.interface import Operation

if TYPE_CHECKING:
    from tidings.filters import Filter
    from tidings.protocol.arguments import SubscribeRequest
    from tidings.protocol.consumer import Consumer
    from tidings.protocol.session import Session
    from tidings.protocol.stored_consumer import StoredConsumer

FrameHandler = Callable[["Session", Any, bytes], Steps[None] | None]
"""Who hears a frame of the numbered stream; steps are left to be run where it takes long."""

WatchEnding = tuple[Callable[[], None], Deferred[Any] | None]
"""What ends a watch, and the reply that says whether it has begun; None if it has."""
QueueWatch = Callable[["Session", str, NodeSubscription], WatchEnding]
"""Notifies a subscription of what is put into the queue of that name, as far as it was granted."""
LinkOpening = Callable[["Session", "SubscribeRequest"], "StoredConsumer"]
"""Makes the consumer by which a neighbour node gets events, for its session and request."""


class SessionPattern(Protocol):
    """A pattern of a session, for which events wait."""

    size: int
    """How many."""

    def lose_oldest(self) -> bool:
        """Drop the oldest of what waits, as memory is short; whether anything was dropped."""


class PatternHost(Protocol):
    """Service that finds the matches of patterns for subscriptions."""

    def open(self, session: Session, text: str, consumer: Consumer, passive: bool) -> SessionPattern:
        """Let a session have the matches of a pattern, as far as its steps were granted."""

    def close(self, pattern: Any) -> None:
        """End the pattern of a session."""

    def stand(self, session: Session, name: str, text: str, passive: bool) -> Filter:
        """Have a pattern stand under a name, unless it does; the filter of its matches."""

    def end(self, owner: str, name: str) -> None:
        """End a standing pattern for good, if there is one."""


LATER: Any = object()
"""Returned by an operation that answers the request itself, at its own mark; others return a Deferred."""

Pool = Literal["io", "compute", "password"]
"""Which threads run a call: those that wait for disks, that compute, or that check passwords.

One that computes keeps the interpreter from the loop half of the time: of these one runs at a time.
"""


class IncomingRequest:
    """A request that is to be answered once, now or later."""

    __slots__ = ("number", "session")

    def __init__(self, session: Session, number: int) -> None:
        self.session = session
        self.number = number

    def answer(self, result: Any, mark: int) -> None:
        """Answer with this result when the mark is durable; one that no frame can hold is an error."""
        frame = encode(Reply(self.number, result))
        if len(frame) > REPLY_MAX:
            self.fail(Refused("limit", f"the answer has {len(frame)} bytes: ask for less"))
        else:
            self.session.post(frame, mark)

    def fail(self, error: TidingsError | DecodeError) -> None:
        """Answer with an error, which may depend on earlier commits too."""
        failure = failure_of(error)
        broker = self.session.broker
        broker.count("refused", reason=failure.code)
        self.session.post(encode(Reply(self.number, None, failure)), broker.promise)


class Service:
    """A part of the node that is built on the broker; what it does not override does nothing."""

    operations: Mapping[str, tuple[Any, Callable[[IncomingRequest, Any], Any]]] = {}
    """What clients may ask for: by name, the arguments and who does it."""
    frames: Mapping[type[ProtocolMessage], FrameHandler] = {}
    """What clients may say in the numbered stream, and who hears it."""

    def greeted(self, session: Session) -> bool:  # noqa: ARG002
        """A client is there; whether it still holds what it held when it was there before."""
        return False

    def parted(self, session: Session, is_clean: bool) -> None:
        """A session has ended; whether its client has said so."""

    def review(self) -> None:
        """The rules may have changed."""

    def status(self) -> dict[str, Any]:
        """Return the service's part of the node's status."""
        return {}

    def finish_tick(self) -> None:
        """The tick ends: say what is left to say."""

    def durable(self, mark: int) -> None:
        """Everything up to this mark is on disk."""

    def failed(self, lost: list[Operation]) -> list[Operation]:
        """These could not be stored, nor what waits; what of them is to be stored nonetheless."""
        return lost


class BlockingCall(Deferred[Any]):
    """A call whose outcome is that of `run`, which the driver calls once, in a thread."""

    __slots__ = ("pool", "run")

    def __init__(self, run: Callable[[], Any], pool: Pool) -> None:
        super().__init__()
        self.run = run
        self.pool = pool

    def conclude(self, error: BaseException | None, result: Any = None) -> None:
        """Reply with what `run` has returned or raised; called where the broker is."""
        if error is None or isinstance(error, TidingsError):
            self.take(result, error)
        else:
            self.fail(InternalError(f"a call in a thread failed: {type(error).__name__}: {error}"))

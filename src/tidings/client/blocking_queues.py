"""Queues without await: every call does what its namesake elsewhere does, and waits for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from tidings.client.blocking_subscription import Subscription
from tidings.client.fetching import Where
from tidings.client.message import EventView
from tidings.client.message import Message as AsyncMessage
from tidings.client.message import Take as AsyncTake
from tidings.client.queue import Queue as AsyncQueue
from tidings.client.runner import Block, Runner
from tidings.client.transaction import Transaction as AsyncTransaction
from tidings.client.worker import Messages as AsyncMessages
from tidings.event import Event
from tidings.queues.description import Description


class Message(EventView):
    """An event from a queue, whose fields are read here as there."""

    __slots__ = ("_inner", "_runner", "deliveries", "number", "redelivered")

    def __init__(self, runner: Runner, inner: AsyncMessage) -> None:
        self._runner = runner
        self._inner = inner
        self.event = inner.event
        self.number = inner.number
        self.deliveries = inner.deliveries
        self.redelivered = inner.redelivered

    def acknowledge(self) -> None:
        """It was dealt with, and is gone for good when this returns."""
        self._runner.run(self._inner.acknowledge())

    def reject(self, reason: str = "") -> None:
        """It can't be dealt with: it goes to the dead letters, with the reason."""
        self._runner.run(self._inner.reject(reason))

    def release(self) -> None:
        """It was not dealt with: it goes back to its old place."""
        self._runner.run(self._inner.release())

    def __repr__(self) -> str:
        return repr(self._inner)


class Take(Block):
    """One message for the length of a `with` block."""

    def __init__(self, runner: Runner, inner: AsyncTake) -> None:
        super().__init__(runner, inner)
        self._inner = inner

    def __enter__(self) -> Message:
        return Message(self._runner, self._runner.run(self._inner.__aenter__()))


class Messages(Block):
    """Messages as an iterator; without a `with` of its own it ends with the `for`."""

    def __init__(self, runner: Runner, inner: AsyncMessages) -> None:
        super().__init__(runner, inner)
        self._inner = inner
        self._is_entered = False

    def __enter__(self) -> Self:
        self._enter()
        self._is_entered = True
        return self

    def __iter__(self) -> Iterator[Message]:
        try:
            while (message := self._runner.run(self._next())) is not None:
                yield Message(self._runner, message)
        finally:
            if not self._is_entered and self._runner.is_running:
                self._runner.run(self._inner.aclose())

    async def _next(self) -> AsyncMessage | None:
        try:
            return await anext(self._inner)
        except StopAsyncIteration:
            return None


class Queue:
    """A queue, wherever it is."""

    def __init__(self, runner: Runner, inner: AsyncQueue) -> None:
        self._runner = runner
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def name(self) -> str:
        """The name by which it was asked for."""
        return self._inner.name

    @property
    def description(self) -> Description:
        """Everything there is to say about it, as it was last told."""
        return self._inner.description

    def describe(self) -> Description:
        """Ask the node for the description."""
        return self._runner.run(self._inner.describe())

    def is_empty(self) -> bool:
        """Whether there is no message to be had."""
        return self._runner.run(self._inner.is_empty())

    def is_full(self) -> bool:
        """Whether a further message would be refused."""
        return self._runner.run(self._inner.is_full())

    def put(
        self,
        event: Event | str,
        attributes: Mapping[str, object] | None = None,
        /,
        *,
        transaction: Transaction | None = None,
        **fields: Any,
    ) -> None:
        """Put an event, or one made of a type, attributes and header fields."""
        unit = None if transaction is None else transaction.inner
        self._runner.run(self._inner.put(event, attributes, transaction=unit, **fields))

    def put_all(
        self,
        events: Iterable[Event],
        *,
        transaction: Transaction | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Put many events, and wait once."""
        unit = None if transaction is None else transaction.inner
        self._runner.run(self._inner.put_all(list(events), transaction=unit, timeout_s=timeout_s))

    def request(
        self, event: Event | str, attributes: Mapping[str, object] | None = None, /, **fields: Any
    ) -> Event:
        """Put a request and wait for the answer of whoever gets it."""
        return self._runner.run(self._inner.request(event, attributes, **fields))

    def get(
        self,
        where: Where = None,
        *,
        timeout_s: float | None = None,
        if_exists: bool = False,
        transaction: Transaction | None = None,
    ) -> Message:
        """The first message that matches, acknowledged on arrival; QueueEmpty when none came in time."""
        unit = None if transaction is None else transaction.inner
        getting = self._inner.get(where, timeout_s=timeout_s, if_exists=if_exists, transaction=unit)
        return Message(self._runner, self._runner.run(getting))

    def get_all(self, where: Where = None, *, transaction: Transaction | None = None) -> list[Message]:
        """All messages that match and are in the queue now."""
        unit = None if transaction is None else transaction.inner
        messages = self._runner.run(self._inner.get_all(where, transaction=unit))
        return [Message(self._runner, message) for message in messages]

    def take(self, where: Where = None, **options: Any) -> Take:
        """One message for a `with` block, acknowledged at its end and given back if it raises."""
        return Take(self._runner, self._inner.take(where, **options))

    def messages(self, where: Where = None, **options: Any) -> Messages:
        """The messages that match, as an iterator that waits for more."""
        return Messages(self._runner, self._inner.messages(where, **options))

    def read(
        self,
        where: Where = None,
        *,
        timeout_s: float | None = 0,
        if_exists: bool = False,
        transaction: Transaction | None = None,
    ) -> Event:
        """The first message that matches, which stays in the queue."""
        unit = None if transaction is None else transaction.inner
        reading = self._inner.read(where, timeout_s=timeout_s, if_exists=if_exists, transaction=unit)
        return self._runner.run(reading)

    def read_all(self, where: Where = None) -> list[Event]:
        """All messages that match and are in the queue now; they stay there."""
        return self._runner.run(self._inner.read_all(where))

    def headers(self, where: Where = None) -> list[Event]:
        """The same without their bodies."""
        return self._runner.run(self._inner.headers(where))

    def purge(self, where: Where = None) -> int:
        """Throw away all messages that match; how many they were."""
        return self._runner.run(self._inner.purge(where))

    def renew(self, message: Event | Message | str, lease_s: float) -> float:
        """Let a message live so long from now; what was granted, 0 if it ended."""
        renewed = message.event if isinstance(message, Message) else message
        return self._runner.run(self._inner.renew(renewed, lease_s))

    def watch(self, where: Where = None, **options: Any) -> Subscription:
        """Copies of what is put into the queue from now on and matches: in a `for`, or inside `with`."""
        return Subscription(self._runner, self._inner.watch(where, **options))

    def decrypt(self, copy: Event) -> Event:
        """A copy that a watch has brought, as it was put."""
        return self._inner.decrypt(copy)


class Transaction(Block):
    """What is put, got and published in a `with` block, done together or not at all."""

    def __init__(self, runner: Runner, inner: AsyncTransaction) -> None:
        super().__init__(runner, inner)
        self.inner = inner

    def __enter__(self) -> Self:
        self._enter()
        return self

    def put(self, queue: Queue | str, event: Event | str, *attributes: Any, **fields: Any) -> None:
        """Put an event into a queue."""
        self._runner.run(self.inner.put(_inner(queue), event, *attributes, **fields))

    def put_all(self, queue: Queue | str, events: Iterable[Event]) -> None:
        """Put many events into a queue."""
        self._runner.run(self.inner.put_all(_inner(queue), list(events)))

    def publish(self, event: Event | str, *attributes: Any, **fields: Any) -> None:
        """Publish an event when the transaction commits."""
        self._runner.run(self.inner.publish(event, *attributes, **fields))

    def get(self, queue: Queue | str, where: Where = None, **options: Any) -> Message:
        """Get a message out of a queue."""
        return Message(self._runner, self._runner.run(self.inner.get(_inner(queue), where, **options)))

    def get_all(self, queue: Queue | str, where: Where = None) -> list[Message]:
        """Get all messages that match out of a queue."""
        messages = self._runner.run(self.inner.get_all(_inner(queue), where))
        return [Message(self._runner, message) for message in messages]

    def read(self, queue: Queue | str, where: Where = None, **options: Any) -> Event:
        """Read a message, which others may read but not take until the end."""
        return self._runner.run(self.inner.read(_inner(queue), where, **options))

    def read_all(self, queue: Queue | str, where: Where = None) -> list[Event]:
        """Read all messages that match."""
        return self._runner.run(self.inner.read_all(_inner(queue), where))

    def commit(self) -> None:
        """Have all of it done, now."""
        self._runner.run(self.inner.commit())

    def rollback(self) -> None:
        """Have nothing of it done."""
        self._runner.run(self.inner.rollback())


def _inner(queue: Queue | str) -> AsyncQueue | str:
    return queue if isinstance(queue, str) else queue._inner

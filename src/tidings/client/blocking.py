"""The bus without await, for programs that have no event loop: a thread of its own runs one.

    with tidings.blocking.connect("tidings://127.0.0.1:7300") as bus:
        bus.publish("air.pm10", value=41.2)
        for event in bus.subscribe("value > 40"): ...
        for message in bus.queue("jobs").messages(): ...

Every call does what its namesake in `tidings.client.bus` does, and waits for it. A bus may be used by several
threads; a subscription by one at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from tidings.client import bus as asynchronous
from tidings.client import opening
from tidings.client.blocking_log import Log
from tidings.client.blocking_queues import Message, Queue, Transaction
from tidings.client.blocking_sink import Sink
from tidings.client.blocking_spaces import Space
from tidings.client.blocking_subscription import Subscription
from tidings.client.encryption import Keyring
from tidings.client.fetching import Where
from tidings.client.interest import Interest as AsyncInterest
from tidings.client.listener import Listener as AsyncListener
from tidings.client.offers import Offered
from tidings.client.queues import Scope, Wish
from tidings.client.runner import Block, Runner
from tidings.client.transaction import TRANSACTION_S
from tidings.errors import UserError
from tidings.event import Event
from tidings.filters import Filter
from tidings.queues.description import Description, Property


def connect(address: str | None = None, **options: Any) -> Bus:
    """A bus to the node at an address, or to the node of this machine; see `tidings.connect`."""
    return Bus(opening.connect(address, **options))


def open(path: str | Path | None = None, **options: Any) -> Bus:
    """A bus to a node in this process; see `tidings.open`."""
    return Bus(opening.open(path, **options))


class Bus:
    """See the module."""

    def __init__(self, bus: asynchronous.Bus) -> None:
        self._bus = bus
        self._runner: Runner | None = None

    def __enter__(self) -> Self:
        if self._runner is not None:
            raise UserError("a bus can be entered once; connect again")
        self._runner = Runner()
        try:
            self._runner.run(self._bus.__aenter__())
        except BaseException:
            self._runner.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._entered.run(self._bus.__aexit__(kind, error, trace))
        finally:
            self._entered.stop()

    @property
    def _entered(self) -> Runner:
        if self._runner is None:
            raise UserError("the bus is used inside `with`")
        return self._runner

    @property
    def refused(self) -> int:
        """How many transient events the node would not publish, of those it has answered for."""
        return self._bus.refused

    @property
    def is_connected(self) -> bool:
        """Whether the node is there just now."""
        return self._bus.is_connected

    def publish(
        self, event: Event | str, attributes: Mapping[str, object] | None = None, /, **fields: Any
    ) -> None:
        """Publish an event, or one made of a type, attributes and header fields."""
        self._entered.run(self._bus.publish(event, attributes, **fields))

    def publish_all(self, events: Iterable[Event], *, timeout_s: float | None = None) -> None:
        """Publish many events, and wait once for those that are not transient."""
        self._entered.run(self._bus.publish_all(list(events), timeout_s=timeout_s))

    def subscribe(self, filter: Filter | str = "", **options: Any) -> Subscription:
        """The events that match: to be iterated over as it is, or inside `with`."""
        return Subscription(self._entered, self._bus.subscribe(filter, **options))

    def listen(self, filter: Filter | str, callback: Callable[[Event], None], **options: Any) -> Listener:
        """Call a function with each event that matches, in another thread, inside `with`."""

        async def call(event: Event) -> None:
            await asyncio.to_thread(callback, event)

        return Listener(self._entered, self._bus.listen(filter, call, **options))

    def unsubscribe(self, durable: str, *, timeout_s: float | None = None) -> None:
        """End a durable subscription for good."""
        self._entered.run(self._bus.unsubscribe(durable, timeout_s=timeout_s))

    def advertisements(self, where: Filter | str = "", *, timeout_s: float | None = None) -> list[Offered]:
        """What others advertise and this client may subscribe to."""
        return self._entered.run(self._bus.advertisements(where, timeout_s=timeout_s))

    def watch_advertisements(self, where: Filter | str = "") -> Iterator[list[Offered]]:
        """The list as it is, and again after each change."""
        inner = self._bus.watch_advertisements(where)
        while True:
            yield self._entered.run(inner.__anext__())

    def advertise(self, filter: Filter | str = "", *, timeout_s: float | None = None) -> Interest:
        """Say which events may be published; inside `with` it tells whether anyone wants them."""
        return Interest(self._entered, self._bus.advertise(filter, timeout_s=timeout_s))

    def request(
        self, event: Event | str, attributes: Mapping[str, object] | None = None, /, **fields: Any
    ) -> Event:
        """Publish a request and wait for the first answer; NoAnswer if none comes in `timeout_s`."""
        return self._entered.run(self._bus.request(event, attributes, **fields))

    def reply(
        self,
        request: Event | Message,
        answer: Event | str,
        attributes: Mapping[str, object] | None = None,
        /,
        **fields: Any,
    ) -> None:
        """Answer a request that came as an event or in a queue."""
        asked = request.event if isinstance(request, Message) else request
        self._entered.run(self._bus.reply(asked, answer, attributes, **fields))

    def create_queue(
        self, name: str | None = None, *, keys: Keyring | None = None, **wish: Unpack[Wish]
    ) -> Queue:
        """Make a queue, or find the one that has the same description."""
        return Queue(self._entered, self._entered.run(self._bus.create_queue(name, keys=keys, **wish)))

    def queue(self, name: str, *, keys: Keyring | None = None, timeout_s: float | None = None) -> Queue:
        """The queue of this name, alias, id or `name@node`; QueueNotFound if there is none."""
        return Queue(self._entered, self._entered.run(self._bus.queue(name, keys=keys, timeout_s=timeout_s)))

    def delete_queue(self, name: str) -> None:
        """Delete a queue with all that is in it, or an alias alone."""
        self._entered.run(self._bus.delete_queue(name))

    def create_alias(self, name: str, target: str) -> Queue:
        """Give a queue a further name."""
        return Queue(self._entered, self._entered.run(self._bus.create_alias(name, target)))

    def lookup(
        self,
        name: str | None = None,
        properties: Mapping[str, Property] | None = None,
        text: str | None = None,
        scope: Scope = "local",
        **fields: Any,
    ) -> list[Description]:
        """The descriptions of all queues that agree, also in further fields of the description."""
        return self._entered.run(self._bus.lookup(name, properties, text, scope, **fields))

    def replay_dead(self, where: Where = None, queue: str | None = None) -> int:
        """Put dead letters back where they came from, or into another queue."""
        return self._entered.run(self._bus.replay_dead(where, queue))

    def space(self, name: str, *, timeout_s: float | None = None, **wish: Unpack[Wish]) -> Space:
        """The space of this name, a queue that is asked by content; made if it is not there."""
        return Space(self._entered, self._entered.run(self._bus.space(name, timeout_s=timeout_s, **wish)))

    def transaction(self, timeout_s: float | None = TRANSACTION_S) -> Transaction:
        """A transaction over queues and publications, inside `with`."""
        return Transaction(self._entered, self._bus.transaction(timeout_s))

    @property
    def log(self) -> Log:
        """The log of the node: events that were kept, and who reads them there."""
        return Log(self._entered, self._bus.log)

    def sink(self, name: str) -> Sink:
        """Where a job of many tasks publishes all its rows at once, or none."""
        return Sink(self._entered, self._bus.sink(name))

    def status(self, *, timeout_s: float | None = None) -> dict[str, Any]:
        """What the node says of itself."""
        return self._entered.run(self._bus.status(timeout_s=timeout_s))


class Listener(Block):
    """A callback that is called in another thread while the block lasts."""

    def __init__(self, runner: Runner, inner: AsyncListener) -> None:
        super().__init__(runner, inner)
        self._inner = inner

    def __enter__(self) -> Self:
        self._enter()
        return self

    def wait(self) -> None:
        """Wait until the listening ends by itself."""
        self._runner.run(self._inner.wait())


class Interest(Block):
    """Whether anyone wants what is advertised."""

    def __init__(self, runner: Runner, inner: AsyncInterest) -> None:
        super().__init__(runner, inner)
        self._inner = inner

    def __enter__(self) -> Self:
        self._enter()
        return self

    @property
    def wanted(self) -> bool:
        """Whether anyone wants it now."""
        return self._inner.wanted

    @property
    def filters(self) -> tuple[Filter, ...]:
        """The filters of the subscriptions that want it now."""
        return self._inner.filters

    def wait_wanted(self) -> None:
        """Wait until someone wants it."""
        self._runner.run(self._inner.wait_wanted())

    def wait_unwanted(self) -> None:
        """Wait until nobody wants it."""
        self._runner.run(self._inner.wait_unwanted())

    def __iter__(self) -> Iterator[tuple[Filter, ...]]:
        while True:
            yield self._runner.run(self._inner.__anext__())

"""The ways to the queues of peers: `jobs@kitchen`, or the id of a queue, which tells its node.

Gets and all that follows from them go over the relay of the peer. A put goes into a transmission queue of
this node, which hands it on: so it is safe whether or not the peer is there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from tidings.errors import CodecError, NotAllowed, QueueNotFound, TidingsError
from tidings.event import Batch
from tidings.exchange import Subscription
from tidings.ids import parse_id
from tidings.peers.registry import Peer, Registry
from tidings.peers.relay import AWAY_S, DESCRIBE_S, Relay
from tidings.protocol.calls import Answer
from tidings.protocol.frames import encode
from tidings.protocol.intake import Intake, Wanted
from tidings.protocol.messages import Notice
from tidings.protocol.outlets import Outlet
from tidings.protocol.session import Session
from tidings.queues.arguments import Find, Get
from tidings.queues.description import TRANSMISSION, Description, split_address
from tidings.queues.elsewhere import Done, Way
from tidings.queues.message import Message
from tidings.queues.queue import Queue

PREFETCH_WATCH = 1_000
"""Copies that may be on their way from a peer for one watcher; they are handed on as they come."""
FOUND_MAX = 10_000
"""Descriptions that are taken from one peer in a search."""


class Transmissions(Protocol):
    """What keeps puts for queues of peers until these have them: see `peers.transmission`."""

    def put(
        self,
        session: Session,
        peer: str,
        queue: str,
        batch: Batch,
        done: Callable[[int, TidingsError | None], None],
    ) -> None:
        """Put events; `done` is called once with each row, when the peer has it, or it is safe here."""

    def queue(self, peer: str, queue: str) -> Queue:
        """The queue of this node in which these wait, made if there is none."""

    def follow(self, session: Session, peer: str, queue: str, number: int, done: Done) -> bool:
        """Have it told what the peer says of a message that was just put; False if it is safe as it is."""


class PeerWay:
    """The way to one queue of one peer."""

    def __init__(self, relay: Relay, queue: str, transmissions: Transmissions) -> None:
        self._relay = relay
        self._queue = queue
        self._transmissions = transmissions

    @property
    def address(self) -> str:
        """`name@node`."""
        return f"{self._queue}@{self._relay.peer.name}"

    def stand_in(self) -> Queue:
        """The queue of this node that a transaction puts into instead."""
        return self._transmissions.queue(self._relay.peer.name, self._queue)

    def follow(self, session: Session, message: Message, done: Done) -> bool:
        """Have it told what becomes of a message that was just put there."""

        def told(error: TidingsError | None) -> None:
            done(None if error is None else self._relay.named(self._queue, error))

        name = self._relay.peer.name
        return self._transmissions.follow(session, name, self._queue, message.number, told)

    def describe(self, answer: Answer) -> None:
        """Answer with the Description."""
        self._relay.describe(self._queue, answer)

    def put(self, session: Session, batch: Batch, done: Callable[[int, TidingsError | None], None]) -> None:
        """Put events."""

        def told(row: int, error: TidingsError | None) -> None:
            done(row, None if error is None else self._relay.named(self._queue, error))

        self._transmissions.put(session, self._relay.peer.name, self._queue, batch, told)

    def get(self, wanted: Get, answer: Answer) -> Callable[[], None]:
        """Get messages; what cancels that."""
        return self._relay.get(self._queue, wanted, answer)

    def settle(self, number: int, delivery: int, outcome: int, text: str, done: Done) -> None:
        """What becomes of a message that was got."""
        self._relay.settle(self._queue, number, delivery, outcome, text, done)

    def part(self, number: int, delivery: int, index: int, answer: Answer) -> None:
        """Answer with a further part of the body of a message."""
        asked = {"queue": self._queue, "number": number, "delivery": delivery, "index": index}
        self._relay.ask("part", asked, self._named(answer), AWAY_S)

    def renew(self, identity: str, lease_s: float, answer: Answer) -> None:
        """Let a message live so long from now on."""
        asked = {"queue": self._queue, "id": identity, "lease_s": lease_s}
        self._relay.ask("queue.renew", asked, self._named(answer), AWAY_S)

    def _named(self, answer: Answer) -> Answer:
        def told(result: Any, error: TidingsError | None) -> None:
            answer(result, None if error is None else self._relay.named(self._queue, error))

        return told

    def watch(self, subscription: Subscription) -> Callable[[], None]:
        """Give copies to a subscription, over this connection and those after it; what ends that."""
        connection = self._relay.connection
        if connection is None or connection.failure is not None:
            raise self._relay.away()
        wanted = Wanted(str(subscription.filter), queue=self._queue)
        watcher = Watcher(self._relay, subscription)
        watcher.intake = connection.subscribe(wanted, watcher, PREFETCH_WATCH, watcher.opened)
        self._relay.flush()
        return watcher.end


class Watcher:
    """Hands copies from a peer on to a subscription of this node."""

    intake: Intake

    def __init__(self, relay: Relay, subscription: Subscription) -> None:
        self._relay = relay
        self._connection = relay.connection
        self._subscription = subscription
        self._is_over = False

    def opened(self, _result: Any, error: TidingsError | None) -> None:
        """The peer has begun, or will not: then describing the queue fails too, unless that is late."""
        if error is not None:
            at = self._relay.clock() + 2 * DESCRIBE_S
            self._relay.timers.at(at, lambda _now: self.ended(str(error)))

    def deliver(self, batch: Batch, _positions: Sequence[int] | None, _redelivered: bool) -> None:
        """Copies have come."""
        self._subscription.sink.deliver(batch, range(len(batch)), None)
        assert self._connection is not None
        self._connection.consume(self.intake, len(batch))

    def gap(self, dropped: int, reason: str) -> None:
        """Copies were lost; the peer may have been away."""
        sink = self._subscription.sink
        if isinstance(sink, Outlet):
            sink.session.post(encode(Notice("gap", sink.number, {"dropped": dropped, "reason": reason})))

    def ended(self, reason: str) -> None:
        """Nothing more will come."""
        sink = self._subscription.sink
        if isinstance(sink, Outlet) and not (self._is_over or sink.session.is_closed):
            sink.session.end(sink.number, f"node {self._relay.peer.name}: {reason}")

    def end(self) -> None:
        """It is wanted no longer."""
        self._is_over = True
        if self._connection is not None and self._connection.failure is None:
            self._connection.unsubscribe(self.intake, _pass_over)
            self._relay.flush()


class Peers:
    """All queues of all peers; an `Elsewhere`."""

    def __init__(self, registry: Registry, transmissions: Transmissions) -> None:
        self.registry = registry
        self.relays: dict[Peer, Relay] = {}
        self._transmissions = transmissions

    @property
    def types(self) -> Collection[str]:
        """None: a peer's queues are made there."""
        return ()

    def find(self, address: str) -> Way | None:
        """The way to `name@node`, or to a queue by its id; QueueNotFound if no such node is known."""
        queue, node = split_address(address)
        if node is None:
            identity = parse_id(queue)
            peer = None if identity is None else self.registry.find(identity[0])
        else:
            peer = self.registry.find(node)
            if peer is None and node not in (self.registry.name, self.registry.node):
                raise QueueNotFound(address, f"this is {self._own_name}, which knows no node {node}")
        relay = None if peer is None else self.relays.get(peer)
        return None if relay is None else PeerWay(relay, queue, self._transmissions)

    @property
    def _own_name(self) -> str:
        return self.registry.name or self.registry.node

    @property
    def absent(self) -> list[str]:
        """The names of the peers that can't be asked now."""
        return [peer.name for peer, relay in self.relays.items() if not relay.is_up]

    def create(self, wanted: Description, _answer: Answer) -> None:
        """There are no types that could be made there."""
        raise NotAllowed(f"queue {wanted.name!r}: a queue of another node is made at that node")

    def delete(self, way: Way, answer: Answer) -> None:
        """It is managed where it is."""
        answer(None, _not_here(way))

    def purge(self, way: Way, _where: str, answer: Answer) -> None:
        """It is managed where it is."""
        answer(None, _not_here(way))

    def search(self, sought: Find, answer: Callable[[list[Description], Any], None]) -> None:
        """Ask all peers that are there at the same time; answer when all have, or their time is up."""
        asked = [relay for relay in self.relays.values() if relay.is_up]
        Search(asked, replace(sought, scope="local"), answer).begin()


class Search:
    """A search that several peers are asked for."""

    def __init__(
        self, relays: list[Relay], sought: Find, answer: Callable[[list[Description], Any], None]
    ) -> None:
        self._relays = relays
        self._sought = sought
        self._answer: Callable[[list[Description], Any], None] | None = answer
        self._found: list[Description] = []
        self._left = len(relays)

    def begin(self) -> None:
        """Ask."""
        if not self._relays:
            self._finish()
        arguments = msgspec.to_builtins(self._sought)
        for relay in self._relays:
            relay.ask("queue.find", arguments, partial(self._told, relay), DESCRIBE_S)

    def _told(self, relay: Relay, result: Any, error: TidingsError | None) -> None:
        """One peer has answered, or will not; what it says beyond all measure is passed over."""
        if error is None and isinstance(result, list):
            try:
                told = [relay.learn(one) for one in result[:FOUND_MAX]]
                self._found += [one for one in told if not one.name.startswith(TRANSMISSION)]
            except CodecError as wrong:
                relay.peer.error = str(wrong)
        self._left -= 1
        if not self._left:
            self._finish()

    def _finish(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer(self._found, None)


def _not_here(way: Way) -> NotAllowed:
    name, _, node = way.address.rpartition("@")
    return NotAllowed(f"queue {name!r} is managed by node {node}: ask there")


def _pass_over(_result: Any, _error: TidingsError | None) -> None:
    """For what nobody waits for."""

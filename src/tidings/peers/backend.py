"""The queues of peers: `jobs@kitchen`, or the id of a queue, which names its node.

Gets and all that follows from them go over the relay of the peer. A put goes into a transmission queue of
this node, which hands it on: so it is safe whether or not the peer is there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from tidings.errors import CodecError, NotAllowed, QueueError, TidingsError
from tidings.event import Batch
from tidings.exchange import NodeSubscription
from tidings.filters import Filter
from tidings.ids import parse_id
from tidings.peers.peer_client import AWAY_S, DESCRIBE_S, PeerClient
from tidings.peers.registry import Peer, PeerRegistry
from tidings.peers.transmission import Transmission
from tidings.protocol.consumer import Consumer
from tidings.protocol.frames import encode
from tidings.protocol.messages import GIVE_BACK, Notice
from tidings.protocol.session import Session
from tidings.protocol.subscriber import ClientSubscription, MissedNumbers, Wanted
from tidings.queues.arguments import FindRequest, GetRequest
from tidings.queues.backend import GetReply, QueueBackend, QueueRef
from tidings.queues.description import TRANSMISSION, Description, split_address, unknown_node
from tidings.queues.message import QueuedMessage
from tidings.queues.queue import MessageQueue
from tidings.replies import Deferred, failed, gathered, ignore

PREFETCH_WATCH = 1_000
"""Copies that may be on their way from a peer for one watcher; they are handed on as they come."""
FOUND_MAX = 10_000
"""Descriptions that are taken from one peer in a search."""


class PeerQueue(QueueRef):
    """One queue of one peer; `QueueRef` says what its methods do."""

    def __init__(self, relay: PeerClient, queue: str, transmission: Transmission) -> None:
        self._relay = relay
        self._queue = queue
        self._transmission = transmission

    @property
    def address(self) -> str:
        return f"{self._queue}@{self._relay.peer.name}"

    @property
    def stores_puts(self) -> bool:
        return True

    def stand_in(self) -> MessageQueue:
        return self._transmission.outgoing(self._relay.peer.name, self._queue).queue

    def follow(self, session: Session, message: QueuedMessage) -> Deferred[None] | None:
        reply = self._transmission.follow(session, self._relay.peer.name, self._queue, message.number)
        return None if reply is None else self._named(reply)

    def describe(self) -> Deferred[Description]:
        return self._named(self._relay.describe(self._queue))

    def put(self, session: Session, batch: Batch) -> Sequence[Deferred[None]]:
        replies = self._transmission.put(session, self._relay.peer.name, self._queue, batch)
        return [self._named(reply) for reply in replies]

    def get(self, wanted: GetRequest) -> Deferred[GetReply]:
        return self._named(self._relay.get(self._queue, wanted))

    def settle(self, number: int, delivery: int, outcome: int, text: str) -> Deferred[None]:
        return self._named(self._relay.settle(number, delivery, outcome, text))

    def release(self, number: int, delivery: int, delay_s: float) -> Deferred[None]:
        return self._named(self._relay.settle(number, delivery, GIVE_BACK, "", delay_s))

    def part(self, number: int, delivery: int, index: int) -> Deferred[bytes]:
        asked = {"queue": self._queue, "number": number, "delivery": delivery, "index": index}
        return self._named(self._relay.ask("part", asked, AWAY_S))

    def renew(self, identity: str, lease_s: float) -> Deferred[float]:
        asked = {"queue": self._queue, "id": identity, "lease_s": lease_s}
        return self._named(self._relay.ask("queue.renew", asked, AWAY_S))

    def _named(self, reply: Deferred[Any]) -> Deferred[Any]:
        """A reply of the peer's whose error has the names used here."""

        def named(error: TidingsError) -> TidingsError:
            if isinstance(error, QueueError):
                return type(error)(self.address, error.problem)
            if isinstance(error, NotAllowed):
                return NotAllowed(f"node {self._relay.peer.name}: {error}")
            return error

        return reply.map(lambda value: value, named)

    def purge(self, _filter: Filter | None) -> Deferred[int]:
        """Refuse: the queue is managed at its node."""
        return failed(_not_here(self))

    def watch(self, subscription: NodeSubscription) -> Callable[[], None]:
        """Give copies to a subscription, over this connection and those after it; what ends that."""
        connection = self._relay.connection
        if connection.failure is not None:
            raise self._relay.away()
        wanted = Wanted(str(subscription.filter), queue=self._queue)
        watcher = CopyRelay(self._relay, subscription)
        watcher.of_peer = connection.subscribe(wanted, watcher, PREFETCH_WATCH)
        watcher.of_peer.begun.then(ignore, watcher.refused)
        self._relay.flush()
        return watcher.end


class CopyRelay:
    """Hands copies from a peer on to a subscription of this node."""

    of_peer: ClientSubscription

    def __init__(self, relay: PeerClient, subscription: NodeSubscription) -> None:
        self._relay = relay
        self._connection = relay.connection
        self._subscription = subscription
        self._is_over = False

    def refused(self, error: TidingsError) -> None:
        """The peer will not begin: then describing the queue fails too, unless that is late."""
        at = self._relay.clock() + 2 * DESCRIBE_S
        self._relay.timers.at(at, lambda _now: self.ended(str(error)))

    def deliver(self, batch: Batch, _positions: Sequence[int] | None, _redelivered: bool) -> None:
        """Copies have come."""
        self._subscription.sink.deliver(batch, range(len(batch)), None)
        self._connection.consume(self.of_peer, len(batch))

    def gap(self, dropped: int, reason: str, missed: MissedNumbers | None = None) -> None:  # noqa: ARG002
        """Copies were lost; the peer may have been away."""
        sink = self._subscription.sink
        if isinstance(sink, Consumer):
            sink.session.post(encode(Notice("gap", sink.number, {"dropped": dropped, "reason": reason})))

    def ended(self, reason: str) -> None:
        """End the watch."""
        sink = self._subscription.sink
        if isinstance(sink, Consumer) and not (self._is_over or sink.session.is_closed):
            sink.session.subscriptions.end(sink.number, f"node {self._relay.peer.name}: {reason}")

    def end(self) -> None:
        """End a watch that is not wanted any more."""
        self._is_over = True
        if self._connection.failure is None:
            self._connection.unsubscribe(self.of_peer)
            self._relay.flush()


class Peers(QueueBackend):
    """All queues of all peers."""

    types = ()  # a peer's queues are made there

    def __init__(self, registry: PeerRegistry, transmission: Transmission) -> None:
        self.registry = registry
        self.relays: dict[Peer, PeerClient] = {}
        self.transmission = transmission

    def resolve(self, address: str) -> PeerQueue | None:
        """The queue `name@node`, or one by its id; QueueNotFound if no such node is known."""
        queue, node = split_address(address)
        if node is None:
            identity = parse_id(queue)
            peer = None if identity is None else self.registry.find(identity[0])
        else:
            peer = self.registry.find(node)
            if peer is None and node not in (self.registry.name, self.registry.node):
                own = self.registry.name or self.registry.node
                raise unknown_node(address, own, node)
        relay = None if peer is None else self.relays.get(peer)
        return None if relay is None else PeerQueue(relay, queue, self.transmission)

    @property
    def absent(self) -> Collection[str]:
        """The names of the peers that can't be asked now."""
        return [peer.name for peer, relay in self.relays.items() if not relay.is_up]

    def create(self, wanted: Description) -> Deferred[Description]:
        """Refuse: a queue of another node is created at that node."""
        return failed(NotAllowed(f"queue {wanted.name!r}: a queue of another node is made at that node"))

    def delete(self, queue: QueueRef) -> Deferred[None]:
        """Refuse: the queue is managed at its node."""
        return failed(_not_here(queue))

    def search(self, sought: FindRequest) -> Deferred[list[Description]]:
        """Ask all peers that are there at the same time; reply when all have, or their time is up."""
        asked = [relay for relay in self.relays.values() if relay.is_up]
        arguments = msgspec.to_builtins(replace(sought, scope="local"))
        replies = [
            relay.ask("queue.find", arguments, DESCRIBE_S).map(partial(_found, relay)) for relay in asked
        ]
        return gathered(replies).map(lambda lists: [one for found in lists for one in found])


def _found(relay: PeerClient, result: Any) -> list[Description]:
    """Return the queues that one peer has found; an answer past the limits is cut."""
    if not isinstance(result, list):
        return []
    try:
        found = [relay.learn(one) for one in result[:FOUND_MAX]]
    except CodecError as wrong:
        relay.peer.error = str(wrong)
        return []
    return [one for one in found if not one.name.startswith(TRANSMISSION)]


def _not_here(queue: QueueRef) -> NotAllowed:
    name, _, node = queue.address.rpartition("@")
    return NotAllowed(f"queue {name!r} is managed by node {node}: ask there")

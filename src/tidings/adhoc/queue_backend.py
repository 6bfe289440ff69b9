"""Queues of hosts that may be out of reach: `jobs@far`, or a name that a host has announced.

The `route` of an event decides how it gets there: `direct` over a path or not at all, `epidemic` carried by
hosts that meet, `auto` over a path if there is one and carried otherwise. To get messages takes a path, for
which a get waits (`waiting_gets.py`). The description of a queue to which there is none says which promise
holds (`promise="carried"`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tidings.errors import Disconnected, NotAllowed, QueueNotFound, TidingsError
from tidings.event import Batch
from tidings.exchange import NodeSubscription
from tidings.filters import Filter
from tidings.peers.backend import PeerQueue, Peers
from tidings.protocol.session import Session
from tidings.queues.arguments import FindRequest, GetRequest
from tidings.queues.backend import GetReply, QueueBackend, QueueRef
from tidings.queues.description import TRANSMISSION, Description, split_address
from tidings.queues.message import QueuedMessage
from tidings.queues.queue import MessageQueue
from tidings.replies import Deferred, failed, resolved

if TYPE_CHECKING:
    from tidings.adhoc.service import AdhocService

CARRIED = "carried"
"""Promise of a queue to which there is no path: at most once, if hosts meet in time."""

HOST_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class AdhocQueue(QueueRef):
    """A queue of another host; `peer` is the same queue as the routing layer has it, if that knows it."""

    def __init__(
        self, service: AdhocService, queue: str, host: str, peer: PeerQueue | None, is_named: bool
    ) -> None:
        """`is_named`: the queue was called by its name alone, and has this host by the registry."""
        self._service = service
        self._queue = queue
        self._host = host
        self._peer = peer
        self._is_named = is_named

    @property
    def address(self) -> str:
        return f"{self._queue}@{self._host}"

    @property
    def stores_puts(self) -> bool:
        return True

    @property
    def _path(self) -> PeerQueue | None:
        return self._peer if self._service.paths.has_path(self._host) else None

    @property
    def is_reachable(self) -> bool:
        """Whether there is a path to its host now, or another host has it, as far as this one knows."""
        holder = self._service.holder_of(self._queue)
        is_elsewhere = self._is_named and holder is not None and holder != self._host
        return is_elsewhere or self._service.paths.has_path(self._host)

    def wish(self) -> None:
        """Have its host know that a client here wants to read it."""
        if self._service.holder_of(self._queue) == self._host:
            self._service.places.wish(self._queue)

    def no_path(self) -> Disconnected:
        """Return the error of what takes a path."""
        return Disconnected(f"there is no path to host {self._host}; a put with route=auto is carried")

    def describe(self) -> Deferred[Description]:
        if self._path is not None:
            return self._path.describe()
        return resolved(Description(name=self._queue, node=self._host, is_away=True, promise=CARRIED))

    def put(self, session: Session, batch: Batch) -> Sequence[Deferred[None]]:
        return [self._put_one(session, batch, row) for row in range(len(batch))]

    def _put_one(self, session: Session, batch: Batch, row: int) -> Deferred[None]:
        event = batch[row]
        path = self._peer if event.route == "direct" else self._path if event.route == "auto" else None
        if path is not None:
            (reply,) = path.put(session, batch.take([row]))
            return reply
        if event.route == "direct":
            return failed(QueueNotFound(self.address, f"there is no path to {self._host}, and route=direct"))
        try:
            self._service.carry(session, self._queue, self._host, event)
        except TidingsError as error:
            return failed(error)
        return resolved(None)

    def stand_in(self) -> MessageQueue | None:
        return None if self._peer is None else self._peer.stand_in()

    def follow(self, session: Session, message: QueuedMessage) -> Deferred[None] | None:
        return None if self._peer is None else self._peer.follow(session, message)

    def get(self, wanted: GetRequest) -> Deferred[GetReply]:
        if self._path is not None:
            return self._path.get(wanted)
        if not (wanted.is_final or wanted.if_exists):
            return self._service.waiting_gets.begin(self, wanted.wait_s)
        self.wish()
        return failed(self.no_path())

    def settle(self, number: int, delivery: int, outcome: int, text: str) -> Deferred[None]:
        peer = self._peer
        return failed(self.no_path()) if peer is None else peer.settle(number, delivery, outcome, text)

    def release(self, number: int, delivery: int, delay_s: float) -> Deferred[None]:
        peer = self._peer
        return failed(self.no_path()) if peer is None else peer.release(number, delivery, delay_s)

    def part(self, number: int, delivery: int, index: int) -> Deferred[bytes]:
        return failed(self.no_path()) if self._path is None else self._path.part(number, delivery, index)

    def renew(self, identity: str, lease_s: float) -> Deferred[float]:
        return failed(self.no_path()) if self._path is None else self._path.renew(identity, lease_s)

    def watch(self, subscription: NodeSubscription) -> Callable[[], None]:
        if self._path is None:
            raise self.no_path()
        return self._path.watch(subscription)

    def purge(self, _filter: Filter | None) -> Deferred[int]:
        return failed(NotAllowed(f"queue {self._queue!r} is managed by host {self._host}: ask there"))


class AdhocQueues(QueueBackend):
    """All queues of other hosts, asked before those of peers."""

    types = ()

    def __init__(self, service: AdhocService, peers: Peers) -> None:
        self._service = service
        self._peers = peers

    def resolve(self, address: str) -> AdhocQueue | None:
        """The queue `name@host`, or one that a host has announced by its name."""
        queue, host = split_address(address)
        is_named = host is None
        if host is None:
            host = self._service.holder_of(queue)
        peer = self._peer_queue(address if host is None else f"{queue}@{host}")
        if host is None or host == self._service.host.name or queue.startswith(TRANSMISSION):
            return None
        if peer is None and HOST_NAME.fullmatch(host) is None:
            return None
        name = host if peer is None else peer.address.rpartition("@")[2]
        return AdhocQueue(self._service, queue, name, peer, is_named)

    def _peer_queue(self, address: str) -> PeerQueue | None:
        """The queue of a peer; none of a host that is met only, for which nothing is to wait."""
        try:
            found = self._peers.resolve(address)
        except QueueNotFound:
            return None
        peer = None if found is None else self._peers.registry.find(found.address.rpartition("@")[2])
        return None if peer is None or peer.is_met else found

    def create(self, wanted: Description) -> Deferred[Description]:
        """Refuse: a queue of another host is created there."""
        return failed(NotAllowed(f"queue {wanted.name!r}: a queue of another host is made at that host"))

    def delete(self, queue: QueueRef) -> Deferred[None]:
        """Refuse: the queue is managed at its host."""
        return failed(NotAllowed(f"queue {queue.address!r} is managed by its host: ask there"))

    def search(self, sought: FindRequest) -> Deferred[list[Description]]:
        """Return the announced queues that agree; those of peers are found by these."""
        found = [
            Description(name=place.name, node=place.holder, is_away=True, promise=CARRIED)
            for place in self._service.announced_queues()
        ]
        return resolved([one for one in found if replace(one, node="").agrees(sought.terms)])

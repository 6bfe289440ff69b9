"""Clients without I/O, connected to the node of a rig: the bytes between the two are carried by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocol.rig import Rig
from tidings.errors import TidingsError
from tidings.event import Batch, Event
from tidings.ids import StoredIds
from tidings.protocol.connection import Connection
from tidings.protocol.frames import FrameReader
from tidings.protocol.messages import ProtocolMessage
from tidings.protocol.subscriber import Wanted
from tidings.replies import Deferred


class Client:
    """A connection core and what has come of it; a peer of the rig while it is connected."""

    def __init__(self, rig: Rig, system: str = "one", name: str = "ann") -> None:
        self.core = Connection(StoredIds(system, 1), name)
        self.answers: list[tuple[Any, TidingsError | None]] = []
        self.to_client = b""  # under way
        self.connect(rig)

    def connect(self, rig: Rig) -> None:
        self.rig = rig
        self.session = rig.broker.connect(rig.now)
        rig.peers.append(self)  # type: ignore[arg-type]
        self.core.connect(rig.now)

    def take(self, output: Sequence[bytes]) -> None:
        """Called by the rig with what the node sends."""
        self.to_client += b"".join(output)

    def cut(self) -> None:
        """The connection breaks; what is under way is lost."""
        self.session.lost(self.rig.now)
        self.rig.peers.remove(self)  # type: ignore[arg-type]
        self.to_client = b""
        self.core.lost(self.rig.now)

    def send(self) -> bool:
        """Carry what the client has to say to the node."""
        data = b"".join(self.core.output())
        self.session.receive(data, self.rig.now)
        return bool(data)

    def hear(self) -> bool:
        """Carry what the node has said to the client."""
        data, self.to_client = self.to_client, b""
        self.core.receive(data, self.rig.now)
        return bool(data)

    def hear_of(self, reply: Deferred[Any]) -> None:
        """Note how it was answered."""
        reply.then(lambda result: self.answers.append((result, None)), self._failed)

    def _failed(self, error: TidingsError) -> None:
        self.answers.append((None, error))

    def subscribe(self, filter: str = "", prefetch: int = 100, **options: Any) -> Recorder:
        recorder = Recorder(self)
        wanted = Wanted(filter, **options)
        recorder.subscription = self.core.subscribe(wanted, recorder, prefetch)
        self.hear_of(recorder.subscription.begun)
        return recorder


class Recorder:
    """A subscriber that notes what comes, and takes and acknowledges it when it is told to."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.arrived: list[tuple[Event, int | None]] = []
        self.taken: list[Event] = []
        self.redelivered: list[int] = []
        self.gaps: list[tuple[int, str]] = []
        self.reason = ""

    def deliver(self, batch: Batch, positions: Sequence[int] | None, redelivered: bool) -> None:
        places = [None] * len(batch) if positions is None else positions
        self.arrived += zip(batch.events, places, strict=True)
        if redelivered:
            self.redelivered += [event.counter for event in batch]

    def gap(self, dropped: int, reason: str, missed: object = None) -> None:
        self.gaps.append((dropped, reason))

    def ended(self, reason: str) -> None:
        self.reason = reason

    def changed(self, filters: list[str]) -> None:
        """As an advertisement's it notes nothing."""

    def work(self, count: int = 1_000_000) -> list[int]:
        """Take events as an application does; all counters so far."""
        for event, position in self.arrived[:count]:
            self.taken.append(event)
            self.client.core.consume(self.subscription, 1)
            if position is not None:
                self.client.core.acknowledge(self.subscription, position)
        del self.arrived[:count]
        return self.counters

    @property
    def counters(self) -> list[int]:
        return [event.counter for event in self.taken]


def run(*clients: Client) -> None:
    """Carry everything until nothing moves any more."""
    is_moving = True
    while is_moving:
        sent = [client.send() for client in clients]
        for rig in {client.rig for client in clients}:
            rig.run()
        heard = [client.hear() for client in clients]
        is_moving = any(sent + heard)


def event(n: int = 0, delivery: str = "transient") -> Event:
    return Event("t", {"n": n}, delivery=delivery)


def spoken(client: Client) -> list[ProtocolMessage]:
    """The messages the client would send now."""
    return [message for message, _ in FrameReader(1 << 24).feed(b"".join(client.core.output()))]

"""A broker with its store and its peers, moved by hand: no sockets, no clock, no sleeping.

`run` does what a driver does until nothing is left to do. To look into what happens between a tick and the
moment its commit is on disk, tests call `tick` and `sync` themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from tidings.event import Batch, Event, Header
from tidings.event.wire import encode_events
from tidings.node.assembly import CoreSettings, NodeCore
from tidings.protocol.frames import FRAME_MAX, FrameReader, encode
from tidings.protocol.messages import (
    Accepted,
    Acknowledge,
    Credit,
    Deliver,
    Hello,
    Notice,
    ProtocolMessage,
    Publish,
    Reply,
    Request,
)
from tidings.protocol.service import BlockingCall
from tidings.protocol.session import Session
from tidings.store.interface import Operation, StoredBatch, StoreState
from tidings.store.memory import SimulatedDisk, SimulatedStore

M = TypeVar("M", bound=ProtocolMessage)

READ_SIZE = 1 << 20


class Rig:
    """A node without I/O."""

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        read_size: int = READ_SIZE,
        settings: CoreSettings | None = None,
        now: float = 1_000.0,
    ) -> None:
        self.store = SimulatedStore(disk or SimulatedDisk(), bytes)
        self.now = now
        self.read_size = read_size
        self.settings = settings or CoreSettings()
        self.core = NodeCore(self.store, self.settings, self.now, bytes)
        self.broker, self.queues = self.core.broker, self.core.queues
        self.peers: list[Peer] = []
        self.commits: list[list[Operation]] = []  # not on disk yet
        self._mark = 0

    def connect(self) -> Peer:
        """Someone who has not said HELLO."""
        peer = Peer(self)
        self.peers.append(peer)
        return peer

    def peer(self, system: str = "sys", epoch: int = 1, name: str = "ann") -> Peer:
        """Someone who was welcomed."""
        peer = self.connect()
        peer.send(Hello([1], system, epoch, name))
        self.run()
        peer.frames.clear()
        return peer

    def tick(self) -> list[Operation]:
        """End a tick, and let out what may leave; what it commits is not on disk yet."""
        operations = self.broker.finish_tick()
        if operations:
            self.commits.append(operations)
        self.let_out()
        return operations

    def sync(self) -> None:
        """Put the commits of all ticks on disk."""
        for operations in self.commits:
            self.store.commit(operations)
            self._mark += 1
        self.store.sync()
        self.commits.clear()
        self.broker.durable(self._mark)
        self.let_out()

    def fail(self) -> None:
        """The commits of all ticks that are not on disk can't be made."""
        first, self._mark = self._mark + 1, self._mark + len(self.commits)
        self.commits.clear()
        self.broker.failed(first, self._mark, "no space left")
        self.let_out()

    def read(self) -> None:
        """Serve the readings that are asked for."""
        for stream in self.broker.take_reads():
            if stream.since_us is not None:
                stream.begin(self.store.position_at(stream.since_us))
            read = self.store.read_before if stream.is_backward else self.store.read
            stream.take(read(stream.place, self.read_size))
        for call in self.broker.take_offloaded():
            run_blocking(call)
        self.let_out()

    def run(self) -> None:
        """Tick, sync and read until nothing happens any more."""
        broker = self.broker
        while self.tick() or self.commits or broker.reads or broker.offloaded or broker.has_changes:
            self.sync()
            self.read()

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and what comes of it happen."""
        self.now += seconds
        self.broker.wake(self.now)
        self.run()

    def let_out(self) -> None:
        while outputs := {session: output(session) for session in self.broker.take_dirty()}:
            for peer in self.peers:
                peer.take(outputs.get(peer.session, []))

    def restart(self, *now: float) -> Self:
        """The node crashes, and starts again with what was on disk, at another time if one is given."""
        return type(self)(self.store.disk, self.read_size, self.settings, *now)

    @property
    def stored(self) -> list[StoredBatch]:
        """The batches on disk."""
        return self.store.read(0, 1 << 30)

    @property
    def state(self) -> StoreState:
        """What the node would know if it started now."""
        disk = SimulatedDisk()
        disk.append(self.store.disk.content)
        return SimulatedStore(disk, bytes).state


def output(session: Session) -> list[bytes]:
    """All frames of a session that may leave."""
    frames: list[bytes] = []
    while more := session.output():
        frames += more
    return frames


def run_blocking(call: BlockingCall) -> None:
    """Do what a driver does in a thread, at once."""
    try:
        result = call.run()
    except Exception as error:
        call.conclude(error)
    else:
        call.conclude(None, result)


class Peer:
    """A client, frame by frame."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.session = rig.broker.connect(rig.now)
        self.frames: list[tuple[ProtocolMessage, bytes]] = []
        self._reader = FrameReader(FRAME_MAX)
        self._number = 0

    def take(self, output: Sequence[bytes]) -> None:
        self.frames += self._reader.feed(b"".join(output))

    def send(self, message: ProtocolMessage, events: bytes = b"") -> None:
        self.session.receive(encode(message, events), self.rig.now)

    def send_raw(self, data: bytes) -> None:
        self.session.receive(data, self.rig.now)

    def publish(self, *events: Event) -> None:
        self.send(Publish(), encode_events(events))

    def acknowledge(self, number: int, position: int) -> None:
        self.send(Acknowledge(number, position))

    def grant(self, number: int, total: int) -> None:
        self.send(Credit(number, total))

    def request(self, operation: str, **arguments: Any) -> None:
        self._number += 1
        self.send(Request(self._number, operation, arguments))

    def ask(self, operation: str, **arguments: Any) -> Reply:
        """The reply to a request, everything having run."""
        self.request(operation, **arguments)
        self.rig.run()
        (reply,) = (one for one in self.got(Reply) if one.number == self._number)
        return reply

    def subscribe(self, number: int = 1, filter: str = "", credit: int = 1_000, **arguments: Any) -> None:
        reply = self.ask("subscribe", number=number, filter=filter, credit=credit, **arguments)
        assert reply.error is None, reply.error

    def lose(self) -> None:
        """The connection breaks."""
        self.session.lost(self.rig.now)
        self.rig.peers.remove(self)

    def got(self, kind: type[M]) -> list[M]:
        """The messages of a kind that came."""
        return [message for message, _ in self.frames if isinstance(message, kind)]

    @property
    def accepted(self) -> list[int]:
        return [message.counter for message in self.got(Accepted)]

    @property
    def notices(self) -> list[tuple[str, int, dict[str, Any]]]:
        return [(notice.kind, notice.number, notice.details) for notice in self.got(Notice)]

    def events(self, number: int = 1) -> list[Event]:
        """The events that came for a subscription."""
        return [event for event, _, _ in self.deliveries(number)]

    def counters(self, number: int = 1) -> list[int]:
        return [event.counter for event in self.events(number)]

    def positions(self, number: int = 1) -> list[int | None]:
        return [position for _, position, _ in self.deliveries(number)]

    def marked(self, number: int = 1) -> list[int]:
        """The counters of those that were marked as redelivered."""
        return [event.counter for event, _, redelivered in self.deliveries(number) if redelivered]

    def deliveries(self, number: int = 1) -> list[tuple[Event, int | None, bool]]:
        found: list[tuple[Event, int | None, bool]] = []
        for message, raw in self.frames:
            if isinstance(message, Deliver) and message.subscription == number:
                batch = Batch(raw)
                places = _positions(message.positions, len(batch))
                found += [(e, p, message.redelivered) for e, p in zip(batch, places, strict=True)]
        return found


def _positions(raw: bytes | None, count: int) -> list[int | None]:
    if raw is None:
        return [None] * count
    return [int.from_bytes(raw[at : at + 8], "big") for at in range(0, len(raw), 8)]


def event(counter: int, kind: str = "t", **attributes: Any) -> Event:
    """A transient event with its number."""
    return Event.unchecked(counter, kind, 1_000_000, attributes)


def reliable(counter: int, kind: str = "t", **attributes: Any) -> Event:
    """One that asks to be stored until everybody has it."""
    return with_header(event(counter, kind, **attributes), delivery="reliable")


def persistent(counter: int, kind: str = "t", **attributes: Any) -> Event:
    """One that asks to be kept."""
    return with_header(event(counter, kind, **attributes), delivery="persistent")


def with_header(event: Event, **fields: Any) -> Event:
    return replace(event, header=Header(**fields))

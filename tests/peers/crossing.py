"""Two nodes without I/O, and the connection over which one hands messages on to the other, moved by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocol.rig import Rig
from queues.rig import Client

from tidings.ids import StoredIds
from tidings.peers.forwarded import Forwarded
from tidings.peers.forwarder import Forwarder
from tidings.peers.forwarding import ForwarderRun
from tidings.peers.outbound_stream import SharedConnection
from tidings.peers.registry import ForwardOrder
from tidings.peers.transmission import OutgoingMessage, Transmission
from tidings.protocol.connection import Connection
from tidings.store.memory import SimulatedDisk, SimulatedStore

JOBS = "to:jobs@far"


class Site(Rig):
    """A node that hands on, by forwarders that a test begins, and is handed on to."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.transmission.begin = lambda _outgoing: None

    @property
    def forwarded(self) -> Forwarded:
        return self.core.forwarded

    @property
    def transmission(self) -> Transmission:
        return self.core.transmission


def site(letter: bytes) -> Site:
    """A new node, with an id of its own."""
    disk = SimulatedDisk()
    SimulatedStore(disk, lambda size: letter * size).sync()
    return Site(disk)


class Wire:
    """One transport of the connection to the other node, which has welcomed it."""

    def __init__(self, connection: Connection, far: Site) -> None:
        self.connection = connection
        self.far = far
        self.session = far.broker.connect(far.now)
        self.to_near = b""
        far.peers.append(self)  # type: ignore[arg-type]
        connection.connect(far.now)
        self.send()
        connection.receive(b"".join(self.session.output()), far.now)

    def take(self, output: Sequence[bytes]) -> None:
        """Called by the other node with what it sends."""
        self.to_near += b"".join(output)

    def output(self) -> bytes:
        """All that the near node has to say."""
        data = b"".join(self.connection.output())
        while self.connection.has_bulk:
            data += b"".join(self.connection.output())
        return data

    def send(self) -> bool:
        """Carry what the near node has to say to the other one."""
        data = self.output()
        self.session.receive(data, self.far.now)
        return bool(data)

    def hear(self) -> bool:
        """Carry what the other node has said to the near one."""
        data, self.to_near = self.to_near, b""
        self.connection.receive(data, self.far.now)
        return bool(data)

    def cut(self) -> None:
        """The transport breaks; what is under way is lost."""
        if self in self.far.peers:
            self.far.peers.remove(self)  # type: ignore[arg-type]
            self.session.lost(self.far.now)
        self.to_near = b""
        self.connection.lost(self.far.now)


class Crossing:
    """A near node whose transmission queue is emptied into a far one."""

    def __init__(self, order: ForwardOrder = "oldest", name: str = JOBS) -> None:
        self.near, self.far = site(b"n"), site(b"f")
        self.order: ForwardOrder = order
        self.name = name
        self.is_cut = False
        self.wire: Wire | None = None
        self.lives = 0
        self.ann = Client(self.near, "ann")
        self.bob = Client(self.far, "bob")
        target, _, peer = name.removeprefix("to:").rpartition("@")
        self.near.transmission.outgoing(peer, target)
        self.near.run()
        self.begin()

    @property
    def outgoing(self) -> OutgoingMessage:
        (outgoing,) = self.near.transmission
        return outgoing

    @property
    def forwarder(self) -> Forwarder:
        return self.forwarding.forwarder

    def begin(self) -> None:
        """Let a forwarder begin, over a connection of this life."""
        self.lives += 1
        self.connection = Connection(StoredIds(f"near-{self.lives}", 1), "near")
        self.shared = SharedConnection(self.connection, lambda: None)
        self.forwarding = ForwarderRun(self.near.core.dialling, self.outgoing, self.shared, self.order)

    # One step of each

    def connect(self) -> None:
        """Have the nodes connected, unless the way is cut."""
        wire = self.wire
        if wire is not None and (self.connection.is_given_up or wire.session.is_closed):
            self.cut()
        if self.wire is None and not self.is_cut:
            self.wire = Wire(self.connection, self.far)

    def carry(self) -> bool:
        """Carry all that is under way, both ways; whether there was anything."""
        self.connect()
        return any([self.send(), self.hear()])

    def send(self) -> bool:
        return self.wire is not None and self.wire.send()

    def hear(self) -> bool:
        return self.wire is not None and self.wire.hear()

    def cut(self) -> None:
        """Break the connection."""
        wire, self.wire = self.wire, None
        if wire is not None:
            wire.cut()

    def run(self) -> None:
        """Let everything happen until nothing does any more."""
        is_moving = True
        while is_moving:
            self.near.run()
            self.far.run()
            before = self.wire
            is_moving = self.carry() or before is not self.wire

    # Crashes

    def crash_near(self) -> None:
        """The near node is killed and started anew; nobody tells the far one yet."""
        self.abandon()
        self.near = self.near.restart()
        self.begin()

    def crash_far(self) -> None:
        """The far node is killed and started anew."""
        wire, self.wire = self.wire, None
        self.far.peers = [one for one in self.far.peers if one is not wire]
        self.far = self.far.restart()
        if wire is not None:
            wire.connection.lost(self.far.now)
        self.bob.come(self.far)

    def abandon(self) -> None:
        """The near end of the connection is gone; the far end has not noticed, and may yet hear of more."""
        self.wire = None

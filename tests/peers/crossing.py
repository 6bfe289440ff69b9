"""Two nodes without I/O, and the streams by which one hands messages on to the other, moved by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocol.rig import Rig
from queues.rig import Client

from tidings.peers.forwarded import Forwarded
from tidings.peers.forwarder import Forwarder
from tidings.peers.outbound_stream import OutboundStream
from tidings.peers.registry import ForwardOrder
from tidings.peers.transmission import OutgoingMessage, Transmission
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
    """One connection between a stream and the other node."""

    def __init__(self, sender: OutboundStream, far: Site) -> None:
        self.sender = sender
        self.far = far
        self.session = far.broker.connect(far.now)
        self.to_near = b""
        far.peers.append(self)  # type: ignore[arg-type]
        sender.connect(far.now)

    def take(self, output: Sequence[bytes]) -> None:
        """Called by the other node with what it sends."""
        self.to_near += b"".join(output)

    def send(self) -> bool:
        """Carry what the stream has to say to the other node."""
        data = b"".join(self.sender.output())
        self.session.receive(data, self.far.now)
        return bool(data)

    def hear(self) -> bool:
        """Carry what the other node has said to the stream."""
        data, self.to_near = self.to_near, b""
        self.sender.receive(data, self.far.now)
        return bool(data)

    def cut(self) -> None:
        """The connection breaks; what is under way is lost."""
        if self in self.far.peers:
            self.far.peers.remove(self)  # type: ignore[arg-type]
            self.session.lost(self.far.now)
        self.to_near = b""
        self.sender.lost()


class Crossing:
    """A near node whose transmission queue is emptied into a far one."""

    def __init__(self, order: ForwardOrder = "oldest", name: str = JOBS) -> None:
        self.near, self.far = site(b"n"), site(b"f")
        self.order: ForwardOrder = order
        self.name = name
        self.is_cut = False
        self.wires: dict[OutboundStream, Wire] = {}
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

    def begin(self) -> None:
        """Let a forwarder begin."""
        self.forwarder = Forwarder(self.outgoing, self.order)

    # One step of each

    def connect(self) -> None:
        """Have the streams connected that are to be, and no others."""
        wanted = self.forwarder.senders
        for sender, wire in list(self.wires.items()):
            if sender not in wanted or sender.is_given_up or wire.session.is_closed:
                self.wires.pop(sender).cut()
        for sender in self.forwarder.senders:
            if sender not in self.wires and not self.is_cut:
                self.wires[sender] = Wire(sender, self.far)

    def carry(self) -> bool:
        """Carry all that is under way, both ways; whether there was anything."""
        self.connect()
        return any([self.send(), self.hear()])

    def send(self) -> bool:
        return sum(wire.send() for wire in list(self.wires.values())) > 0

    def hear(self) -> bool:
        return sum(wire.hear() for wire in list(self.wires.values())) > 0

    def cut(self) -> None:
        """Break all connections."""
        wires, self.wires = self.wires, {}
        for wire in wires.values():
            wire.cut()

    def run(self) -> None:
        """Let everything happen until nothing does any more."""
        is_moving = True
        while is_moving:
            self.near.run()
            self.far.run()
            before = set(self.wires)
            is_moving = self.carry() or before != set(self.wires)

    # Crashes

    def crash_near(self) -> None:
        """The near node is killed and started anew; nobody tells the far one yet."""
        self.abandon()
        self.near = self.near.restart()
        self.begin()

    def crash_far(self) -> None:
        """The far node is killed and started anew."""
        wires, self.wires = self.wires, {}
        self.far.peers = [one for one in self.far.peers if one not in wires.values()]
        self.far = self.far.restart()
        for wire in wires.values():
            wire.sender.lost()
        self.bob.come(self.far)

    def abandon(self) -> None:
        """The near end of all connections is gone; the far end has not noticed, and may yet hear of more."""
        self.wires = {}

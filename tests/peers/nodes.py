"""Nodes that know each other, moved by hand: brokers and a dictionary are the network.

`Home` is a node with peers; each link is a `Connection` to the broker of another node, whose bytes are
carried when the world is run, and which can be cut and mended.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from protocol.guarded import Book
from protocol.rig import Peer as Wire
from protocol.rig import Rig
from queues.rig import Client

from tidings.errors import NotAllowed, TidingsError
from tidings.event import Batch
from tidings.ids import StoredIds
from tidings.node.assembly import CoreSettings
from tidings.peers.peer_client import PeerClient
from tidings.peers.registry import Neighbours, Peer
from tidings.peers.transmission import Transmission
from tidings.protocol.access import Rule
from tidings.protocol.connection import Connection
from tidings.protocol.session import Session
from tidings.queues.description import TRANSMISSION, Description
from tidings.replies import Deferred
from tidings.store.memory import SimulatedDisk, SimulatedStore
from tidings.transport.credentials import Credentials

__all__ = ["Client", "Home", "Link", "away_node"]


def away_node(name: str, **peers: str) -> Rig:
    """A node with this name, and an id of its own, which knows these others."""
    disk = SimulatedDisk()
    SimulatedStore(disk, lambda count: name.encode().ljust(count, b"-")[:count]).sync()
    return Rig(disk, settings=CoreSettings(name=name, peers=Neighbours(peers, Credentials())))


class Kept:
    """What is put for peers; a test says what becomes of it."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.puts: list[tuple[str, str, list[Any]]] = []
        self.is_there = False
        self.undone: list[Callable[[TidingsError | None], None]] = []

    def put(self, session: Session, peer: str, queue: str, batch: Batch) -> list[Deferred[None]]:
        self.puts.append((peer, queue, [event.values.get("n") for event in batch]))
        return [self._later() for _ in range(len(batch))]

    def _later(self) -> Deferred[None]:
        reply: Deferred[None] = Deferred()
        self.undone.append(partial(reply.take, None))
        return reply

    def follow(self, session: Session, peer: str, queue: str, number: int) -> Deferred[None] | None:
        reply = self._later()
        return reply if self.is_there else None

    def outgoing(self, peer: str, queue: str) -> SimpleNamespace:
        name = f"{TRANSMISSION}{queue}@{peer}"
        found = self._rig.queues.get(name) or self._rig.queues.create(Description(name=name))
        return SimpleNamespace(queue=found)


class Link:
    """The link to one peer."""

    def __init__(self, home: Home, name: str, far: Rig) -> None:
        self.home = home
        self.far = far
        found = home.registry.find(name)
        assert found is not None
        self.peer: Peer = found
        self.certificate: str | None = None
        self.hears_nothing = False
        self.core = Connection(StoredIds(f"home-{name}", 1), "home")
        self.relay = PeerClient(found, home.rig.queues.timers, lambda: home.rig.now, self.core)
        self._wire: Wire | None = None
        self._outgoing: list[bytes] = []
        home.peers.relays[found] = self.relay

    def mend(self, far: Rig | None = None) -> None:
        """Connect, or connect again, maybe to the same node after a crash."""
        self.far = far or self.far
        self._wire = self.far.connect()
        self._take = self._wire.take
        self._wire.take = self._outgoing.extend  # type: ignore[method-assign]
        self.core.connect(self.home.rig.now)
        self.home.run()

    def cut(self) -> None:
        """The connection breaks, and both ends find that out."""
        if self._wire is not None:
            self._wire.lose()
            self._wire = None
        self._outgoing.clear()
        self.core.lost(self.home.rig.now)
        self.home.registry.lose(self.peer, "cut", self.home.rig.now)
        self.relay.changed()
        self.home.run()

    def carry(self) -> bool:
        """Carry what waits in both directions; whether there was anything."""
        if self._wire is None:
            return False
        frames = self.core.output()
        for frame in frames:
            self._wire.send_raw(frame)
        self.far.run()
        if self.hears_nothing:
            return bool(frames)
        came, self._outgoing[:] = list(self._outgoing), []
        for data in came:
            self.core.receive(data, self.home.rig.now)
        if self.core.is_up and not self.peer.is_there:
            self._welcome()
        self.relay.changed()
        return bool(frames or came)

    def _welcome(self) -> None:
        core = self.core
        try:
            self.home.registry.welcome(
                self.peer, core.node, core.node_name, self.certificate, self.home.rig.now
            )
        except NotAllowed as error:
            core.close(error)


class Home:
    """A node with peers: `kitchen` and `garage`, unless others are named."""

    def __init__(self, *names: str, connect: bool = True) -> None:
        self.book = Book()
        given = names or ("kitchen", "garage")
        addresses = {name: f"tidings://127.0.0.1:{7301 + n}" for n, name in enumerate(given)}
        self.rig = away_node("home", **addresses)
        self.registry, self.peers = self.rig.core.registry, self.rig.core.peers
        self.kept = Kept(self.rig)
        self.rig.core.transmission.begin = lambda _outgoing: None  # what is put stays where it is
        self.peers.transmission = cast(Transmission, self.kept)
        self.links = {name: Link(self, name, away_node(name)) for name in given}
        if connect:
            for link in self.links.values():
                link.mend()

    def far(self, name: str) -> Rig:
        return self.links[name].far

    def run(self) -> None:
        """Let everything happen that is to happen now."""
        self.rig.run()
        while sum(link.carry() for link in self.links.values()):  # all of them, each time
            self.rig.run()
        self.rig.run()

    def pass_time(self, seconds: float) -> None:
        """Let time pass everywhere."""
        for rig in (self.rig, *(link.far for link in self.links.values())):
            rig.now += seconds
            rig.broker.wake(rig.now)
        self.run()

    def client(self, system: str = "sys", name: str = "ann") -> Guest:
        return Guest(self, system, name)

    def user(self, name: str, *rules: Rule) -> Guest:
        """A client that may do so much, at a node that others must be let in by."""
        self.book.users[name] = tuple(rules)
        self.rig.broker.authenticator = self.book
        return Guest(self, f"sys-{name}", "", name)

    def owner_of(self, name: str) -> Client:
        """A client of a peer itself."""
        return Client(self.far(name), f"own-{name}", "owner")


class Guest(Client):
    """A client of the node with peers; what it does runs all nodes."""

    def __init__(self, home: Home, system: str, name: str, user: str = "") -> None:
        self.home = home
        super().__init__(home.rig, system, name, user)

    def _answer(self, operation: str, arguments: dict[str, Any]) -> Any:
        number = self.request(operation, **arguments)
        self.home.run()
        reply = self.reply(number)
        assert reply is not None, f"{operation} is not answered yet"
        return reply

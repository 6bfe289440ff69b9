"""The hub: the common part of all ports for sensor networks, between their bytes and the node.

A port reports its connections to the hub and passes it their bytes; the hub carries out the effects of the
gateway. The readings of one turn of the loop go to the node together.

    hub.opened(key, caller, send, close)     there is a connection; `key` is any hashable that is no Address
    hub.feed(key, data)                      bytes have come over it
    hub.closed(key)                          it is gone
    hub.datagram(address, data)              a datagram has come

`send` and `close` are called by the hub, for as long as the connection exists. While the node does not accept
the pending events, `is_full` is true: a connection that can be paused gives `pause`, others must check.

Input is processed in steps, in the turn of its sender (`work`). A port that has more to do than pass bytes
does that in the same turn: `hub.do(key, steps)`, with `yield from hub.reading(…)` in the steps.

This is on the hot path: a message without a number, of a sender without limits, costs one turn of the loop
in `_take`, and is made an event in `tick`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from tidings.errors import NotAllowed
from tidings.event import Batch
from tidings.gateway.decoding import decode_plain_run
from tidings.gateway.effects import (
    AdvertiseFilter,
    Close,
    GatewayEffect,
    PublishEvent,
    SendMessage,
    Widen,
    Withdraw,
)
from tidings.gateway.gateway import Gateway
from tidings.gateway.intake import RUN_SIZE, read_datagram
from tidings.gateway.message_reader import Said
from tidings.gateway.messages import Deregister, Error, Register, Sensing, encode
from tidings.gateway.networks import DatagramAddress, Key
from tidings.gateway.networks import NetworkCaller as Owner
from tidings.gateway.pausing import PausedConnections
from tidings.gateway.peer import (
    ANYONE,
    Act,
    DatagramSenders,
    Entrance,
    GatewayWork,
    LoginLine,
    NetworkConnection,
    NetworkRights,
    PauseReading,
    Send,
    WorkClient,
)
from tidings.gateway.uplink import Log, ReadingPublisher, Uplink
from tidings.protocol.access import PeerInfo
from tidings.steps import Steps

HALF_S_MAX = 60.0
"""How long half an object may be held open."""
TURN_SIZE = 256 << 10
"""Bytes of messages after which their readings go to the node, however much else has come.

The results of so many are still in the processor's cache when they are written and freed.
"""
ADDRESSES_MAX = 100_000
"""Addresses whose user is known; the oldest is forgotten."""
CLOSE_S_MAX = 1.0
"""How long a gateway that stops processes its input."""
WHO = "this gateway requires a login; give a token"


class Clocks(NamedTuple):
    """Clocks of a gateway: for due times, for timestamps, and for the duration of work."""

    due: Callable[[], float]
    wall: Callable[[], float]
    work: Callable[[], float]


class Hub:
    """Hub between the ports of a gateway and its node. `soon` calls a function in the loop's next turn."""

    def __init__(
        self,
        gateway: Gateway,
        uplink: Uplink,
        soon: Callable[[Act], object],
        clocks: Clocks,
        log: Log,
        entrance: Entrance | None = None,
    ) -> None:
        self.gateway = gateway
        self.work = GatewayWork(clocks.work, soon, log)
        self.send_datagram: Callable[[bytes, DatagramAddress], None] = lambda _data, _address: None
        self.dropped = 0
        """Datagrams that came while the node accepted nothing."""
        self._uplink = uplink
        self._outgoing = ReadingPublisher(uplink, clocks.wall)
        self._soon = soon
        self._entrance = entrance
        self._clock = clocks.due
        self._log = log
        self._peers: dict[Key, NetworkConnection] = {}
        # Senders of datagrams, with security.
        self._known: OrderedDict[DatagramAddress, NetworkRights] = OrderedDict()
        self._half: dict[Key, float] = {}  # since when half an object is there
        self._paused = PausedConnections(uplink, soon)
        self._senders = DatagramSenders(self.work)
        self._own = WorkClient()  # the gateway's own work
        self._asking = WorkClient()  # requests on the bus
        self._has_replicas = gateway.replica_filter is not None
        self._is_due = False
        self._turn_size = 0
        uplink.on_progress = self._progressed
        uplink.on_demand = self._demanded

    def __len__(self) -> int:
        return len(self._peers)

    @property
    def is_full(self) -> bool:
        """Whether the node must accept something first before more is read."""
        return self._uplink.is_full

    # Called by ports

    def opened(
        self, key: Key, caller: PeerInfo, send: Send, close: Act, pause: PauseReading | None = None
    ) -> None:
        """Add a connection; with security, its certificate names the user, if it shows one."""
        peer = self._peers[key] = NetworkConnection(caller, send, close, pause, self._paused.release)
        if self._entrance is not None:
            peer.standing = self._entrance.by_certificate(caller)
            peer.login = LoginLine()
        self._introduce(key, caller.host or "", peer.standing)

    def login(self, key: Key, token: str) -> bool:
        """Log in with a token; return whether it is accepted. A refused one ends the connection."""
        peer = self._peers[key]
        if self._entrance is None:
            return True
        try:
            peer.standing = self._entrance.by_token(peer.caller, token)
        except NotAllowed as denied:
            self._do(self.gateway.failed(key, Error(str(denied), "$.login.token")))
            self._part(key, "a token that is not taken")
            return False
        self._introduce(key, peer.caller.host or "", peer.standing)
        return True

    def feed(self, key: Key, data: bytes) -> None:
        """Process bytes of a connection."""
        peer = self._peers.get(key)
        if peer is None:
            return
        run = None
        if len(data) <= RUN_SIZE and peer.login is None and peer.is_idle and not self.work.is_busy:
            run = peer.intake.read_run(data)
        if run is None:
            self.do(key, self.reading(key, data))
            return
        if self._is_any_elsewhere(run):
            self.do(key, self._take(key, peer.standing, list(run), len(data)))
            return
        self._sense(key, peer.standing, run)
        self._finish(len(data))
        if key in self._peers:
            self._paused.hold_up(peer)

    def do(self, key: Key, steps: Steps[None]) -> None:
        """Run steps in the turn of a connection."""
        peer = self._peers.get(key)
        if peer is not None:
            self.work.do(peer, steps)
            if key in self._peers:
                self._paused.hold_up(peer)

    def reading(self, key: Key, data: bytes) -> Steps[None]:
        """Read bytes of a connection; a step of its work."""
        peer = self._peers.get(key)
        if peer is None:
            return
        if peer.login is not None:
            data = self._log_in(key, peer, data)
        intake = peer.intake
        said: list[Said] = []
        size, is_going_on = len(data), False
        for _ in intake.read(data, said):
            if said:
                part, is_going_on = min(size, RUN_SIZE), True
                yield from self._take(key, peer.standing, said, part)
                size -= part
                said.clear()
            yield
            if key not in self._peers:
                return
        if said:
            yield from self._take(key, peer.standing, said, size)
        if intake.is_given_up:
            self._part(key, "nothing but mistakes")
        elif (intake.is_open or self._half) and key in self._peers:
            if not intake.is_open:
                self._half.pop(key, None)
            elif is_going_on or said or key not in self._half:
                self._half[key] = self._clock()

    def closed(self, key: Key) -> None:
        """Close a connection, which is forgotten when all its input is processed."""
        peer = self._peers.get(key)
        if peer is not None and not peer.is_idle:
            self.work.queue(peer, self._forgetting(key))
        elif peer is not None:
            self._forget(key)

    def datagram(self, address: DatagramAddress, data: bytes) -> None:
        """Process a datagram."""
        if self._uplink.is_full:
            self.dropped += 1
            return
        is_late = address in self._senders or self.work.is_busy
        run = decode_plain_run(data) if not is_late and len(data) <= RUN_SIZE else None
        if run is not None and not self._is_any_elsewhere(run):
            self._do(self.gateway.heard(address, len(data)))
            self._sense(address, self._standing_at(address), run)
            self._finish(len(data))
            return
        steps = self._reading_datagram(address, data)
        if (is_late or next(steps, self) is not self) and not self._senders.hold(address, steps, len(data)):
            self.dropped += 1

    def _reading_datagram(self, address: DatagramAddress, data: bytes) -> Steps[None]:
        self._do(self.gateway.heard(address, len(data)))
        said: list[Said] = []
        yield from read_datagram(data, said)
        yield from self._take(address, self._standing_at(address), said, len(data))

    def _standing_at(self, address: DatagramAddress) -> NetworkRights | None:
        return ANYONE if self._entrance is None else self._known.get(address)

    def answer(self, steps: Steps[None]) -> None:
        """Answer a request on the bus."""
        self.work.queue(self._asking, steps)

    def hear_replicas(self, events: Batch) -> Steps[None]:
        """Take events of other gateways of the grid."""
        for event in events.events:
            yield from self._doing(self.gateway.hear_replica(event, self._clock()))

    # Time

    def tick(self) -> None:
        """Send all readings that have come since the last call; called once in each busy turn."""
        self._is_due, self._turn_size = False, 0
        self.work.end_turn()
        for key, error in self._outgoing.send():
            self._do(self.gateway.failed(key, error))
        self._uplink.flush()

    def wake(self) -> None:
        """Do the work that is due; to be called about once a second."""
        now = self._clock()
        if self.gateway.wake_at <= now and self._own.is_idle:
            self.work.do(self._own, self._catching_up())
        for key in [key for key, since in self._half.items() if since + HALF_S_MAX <= now]:
            self._do(self.gateway.failed(key, Error(f"half an object was held open for {HALF_S_MAX:g} s")))
            self._part(key, "half an object")
        self._progressed()

    def review(self) -> None:
        """Apply new rules: connections that are not allowed any more get an error and are closed."""
        assert self._entrance is not None
        for key, peer in list(self._peers.items()):
            standing, peer.standing = peer.standing, self._entrance.renewed(peer.standing)
            if standing is not None and peer.standing is None:
                self._part(key, "not let in any more")
        for address, known in list(self._known.items()):
            renewed = self._entrance.renewed(known)
            if renewed is None:
                del self._known[address]
            else:
                self._known[address] = renewed

    def close(self) -> None:
        """Send everything pending, and close all connections."""
        self.work.finish(CLOSE_S_MAX)
        self.tick()
        for key in list(self._peers):
            self._part(key, "the gateway stops")

    # Messages of networks

    def _take(self, key: Key, standing: NetworkRights | None, said: list[Said], size: int) -> Steps[None]:
        """Process messages of any kind, which were so many bytes."""
        run: list[Sensing] = []
        has_heard = False
        for one in said:
            if isinstance(one, Sensing):
                if self.gateway.is_elsewhere(one.sensing_id):
                    yield from self._doing(self.gateway.adopting(key, one.sensing_id, self._clock()))
                run.append(one)
                continue
            self._sense(key, standing, run)
            run = []
            if has_heard:
                yield
            has_heard = True
            if self._is_here(key):
                standing = yield from self._hear(key, standing, one, self._clock())
            if not self._is_here(key):
                break
        self._sense(key, standing, run)
        self._finish(size)

    def _sense(self, key: Key, standing: NetworkRights | None, messages: list[Sensing]) -> None:
        """Process readings."""
        now, sensing = self._clock(), self.gateway.sensing
        is_free = standing is not None and standing.grant is None
        user = None if self._entrance is None else "" if standing is None else standing.user
        taken: list[Sensing] = []
        for one in messages:
            if not is_free and not self._may_sense(key, standing, one):
                if not self._is_here(key):
                    break
                continue
            readings = sensing(key, one, now)
            if readings and is_free and one.seq is None:
                taken.append(one)
            elif readings is one.sensors:
                self._outgoing.add_special(key, None if standing is None else standing.grant, one, user)
        if taken:
            self._outgoing.add(key, taken, user)
        self._do(self.gateway.said())

    def _finish(self, size: int) -> None:
        """Count bytes, and send their readings, at once if there are enough of them."""
        self._turn_size += size
        if self._turn_size >= TURN_SIZE:
            self.tick()
            self._paused.end_turn()
        elif not self._is_due:
            self._is_due = True
            self._soon(self.tick)

    def _is_any_elsewhere(self, messages: list[Sensing]) -> bool:
        """Whether one of these comes from a network that has to be taken over from another gateway first."""
        is_elsewhere = self.gateway.is_elsewhere
        return self._has_replicas and any(is_elsewhere(one.sensing_id) for one in messages)

    def _hear(
        self, key: Key, standing: NetworkRights | None, one: Register | Deregister | Error, now: float
    ) -> Steps[NetworkRights | None]:
        """Process a message without readings; return its sender, as known after that."""
        gateway = self.gateway
        if isinstance(one, Error):
            self._do(gateway.failed(key, one))
        elif isinstance(one, Deregister):
            yield from self._doing(gateway.deregistering(key, one, now))
        else:
            try:
                standing = self._admitted(key, standing, one.token)
            except NotAllowed as denied:
                self._do(gateway.failed(key, Error(str(denied), "$.register.token", one.sensing_id)))
            else:
                yield from self._doing(gateway.registering(key, one, now))
        return standing

    def _doing(self, steps: Steps[None]) -> Steps[None]:
        """Run steps of the gateway, and carry out the effects of each."""
        for _ in steps:
            self._do(self.gateway.said())
            yield
        self._do(self.gateway.said())
        self._look_behind()

    def _admitted(self, key: Key, standing: NetworkRights | None, token: str | None) -> NetworkRights:
        """Return the rights of a registering client; NotAllowed if it is unknown, or may not publish."""
        if self._entrance is None:
            return ANYONE
        if token is not None:
            host = key.host if isinstance(key, DatagramAddress) else self._peers[key].caller.host
            standing = self._entrance.by_token(PeerInfo(host or "", host), token)
            self._introduce(key, host or "", standing)
            if not isinstance(key, DatagramAddress):
                self._peers[key].standing = standing
        if standing is None:
            raise NotAllowed(WHO)
        if isinstance(key, DatagramAddress):
            self._known[key] = standing
            if len(self._known) > ADDRESSES_MAX:
                self._do(self.gateway.lost(self._known.popitem(last=False)[0], self._clock()))
        return standing

    def _may_sense(self, key: Key, standing: NetworkRights | None, one: Sensing) -> bool:
        """Whether to process readings of a sender who may not publish everything."""
        if standing is not None or (self._entrance is not None and self._entrance.strangers):
            return True
        self.gateway.figures.refused += len(one.sensors)
        self._do(self.gateway.failed(key, Error(WHO, "$.sensing", one.sensing_id)))
        return False

    def _log_in(self, key: Key, peer: NetworkConnection, data: bytes) -> bytes:
        """Read the first line, if it is a login; return the rest, to be read as messages."""
        assert peer.login is not None
        token, rest = peer.login.feed(data)
        if rest is None:
            return b""
        peer.login = None
        if token is not None and not self.login(key, token):
            return b""
        return rest

    def _is_here(self, key: Key) -> bool:
        """Whether a connection was not closed meanwhile."""
        return isinstance(key, DatagramAddress) or key in self._peers

    def _introduce(self, key: Key, host: str, standing: NetworkRights | None) -> None:
        self.gateway.connected(key, Owner(host, "" if standing is None else standing.user))

    # Effects

    def _do(self, effects: list[GatewayEffect]) -> None:
        if not effects:
            return
        for effect in effects:
            match effect:
                case SendMessage(key, message):
                    self._say(key, encode(message))
                case Close(key, reason):
                    self._part(key, reason)
                case AdvertiseFilter(number, filter):
                    self._uplink.advertise(number, filter)
                case Widen(number, filter):
                    self._uplink.widen(number, filter)
                case Withdraw(number):
                    self._uplink.withdraw(number)
                case PublishEvent(event):
                    self._uplink.publish(event)
        self._look_behind()

    def _look_behind(self) -> None:
        """Let the gateway go on, if it has more work than it did at once."""
        if self.gateway.is_behind and self._own.is_idle:
            self.work.queue(self._own, self._catching_up())

    def _catching_up(self) -> Steps[None]:
        """Do the gateway's due work, in a turn of its own."""
        while self.gateway.wake_at <= self._clock():
            self._do(self.gateway.wake(self._clock()))
            yield

    def _say(self, key: Key, line: bytes) -> None:
        if isinstance(key, DatagramAddress):
            self.send_datagram(line, key)
        elif (peer := self._peers.get(key)) is not None:
            peer.send(line)

    def _part(self, key: Key, reason: str) -> None:
        peer = self._peers.get(key)
        if peer is not None:
            self._log("debug", "a sensor connection was closed", peer=peer.caller.peer, reason=reason)
            self.work.drop(peer)
            self._forget(key)
            peer.close()

    def _forget(self, key: Key) -> None:
        self._half.pop(key, None)
        self._paused.forget(self._peers.pop(key))
        self._do(self.gateway.lost(key, self._clock()))
        self._look_behind()

    def _forgetting(self, key: Key) -> Steps[None]:
        """Forget a connection, as the last of its work."""
        yield
        if key in self._peers:
            self._forget(key)

    def _demanded(self, number: int, filters: list[str]) -> None:
        self._do(self.gateway.demanded(number, filters))
        self._look_behind()

    def _progressed(self) -> None:
        """Acknowledge messages that the node has accepted, and read on if there is room."""
        for one, is_stored in self._outgoing.settled():
            if is_stored:
                self._do(self.gateway.accepted(one.sensing_id, one.seq, one.key))
            else:
                self.gateway.rejected(one.sensing_id, one.seq)
        self._paused.progressed()

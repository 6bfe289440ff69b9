"""Core of a gateway between sensor networks and the node, each of which it hides from the other.

Sensors that networks register are advertised at the node; demands of the node become requests to sensors;
readings pass through. Every input carries its time, and effects come out as a list.

`sensing` is on the hot path and therefore a plain call: it returns the readings to be published, and its
effects are fetched with `said`.

No call takes long. Registering is done in steps; a demand may concern every sensor there is, and is noted and
passed on a part at a time: `is_behind` says that there is more, and `wake` does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tidings.event import Event
from tidings.gateway.advertisement import NetworkAdvertisements
from tidings.gateway.amplification_guard import AmplificationGuard
from tidings.gateway.areas import AreaBox, box_of
from tidings.gateway.commands import Asker, DemandIntake
from tidings.gateway.demand import wants_of
from tidings.gateway.effects import Close, GatewayEffect, PublishEvent, Withdraw
from tidings.gateway.interest import SensorInterest, read
from tidings.gateway.messages import Ack, Deregister, Error, Reading, Redirect, Register, Sensing
from tidings.gateway.network_registry import (
    MessageRefusal,
    NetworkRegistry,
    Served,
    UnregisteredNetworks,
    check_register,
    describe,
    describe_stranger,
    serves,
)
from tidings.gateway.networks import (
    SEQUENCES_MAX,
    DatagramAddress,
    Key,
    Network,
    NetworkCaller,
    Networks,
    NumberState,
    Sequence,
    bounded_lease,
)
from tidings.gateway.policy import GatewayFigures, Policy
from tidings.gateway.replicas import Replicas
from tidings.seen import Producers
from tidings.steps import Steps, finish

ERRORS_MAX = 100
"""Errors in a row after which a connection is closed."""
PORT_MAX = 65_535


class Gateway:
    """Core of one gateway; `secret` makes the cookies for senders of datagrams."""

    def __init__(self, secret: bytes, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.figures = GatewayFigures()
        self._networks = Networks()
        self._table = self._networks.table
        self._interest = SensorInterest()
        self._offers = NetworkAdvertisements()
        self._strangers = UnregisteredNetworks(self._offers)
        self._sequences: Producers[str, Sequence] = Producers(SEQUENCES_MAX)
        self._speaker = AmplificationGuard(secret)
        self._registry = NetworkRegistry(self._networks, self._interest, self._offers)
        self._asker = Asker(self._networks, self._interest, self._speaker, self.policy)
        self._callers: dict[Key, NetworkCaller] = {}
        self._demands = DemandIntake(self._interest)
        self._errors: dict[Key, int] = {}  # in a row
        self._replicas: Replicas | None = None
        if (grid := self.policy.grid) is not None and grid.replicas > 1:
            self._replicas = Replicas(grid, self.policy.member)
        self._effects: list[GatewayEffect] = []

    # Connections

    def connected(self, key: Key, caller: NetworkCaller) -> None:
        """Note a new connection, its user, or the user who sends datagrams from an address."""
        self._callers[key] = caller

    def heard(self, address: DatagramAddress, size: int) -> list[GatewayEffect]:
        """Note a datagram of that many bytes; called before its contents are passed in."""
        self._speaker.heard(address, size)
        return self._settled() if self._asker.heard(address) else []

    def lost(self, key: Key, now: float) -> list[GatewayEffect]:
        """Note a lost connection: its networks have some time to come back, unless they are there already."""
        self._callers.pop(key, None)
        self._errors.pop(key, None)
        for network in self._networks.lost(key, now):
            if network.key is not None:
                self._begin_anew(network)
        return self._settled()

    def failed(self, key: Key, error: Error) -> list[GatewayEffect]:
        """Note an invalid message; a connection that sends nothing else for long is closed."""
        self._fail(key, error)
        return self.said()

    # Messages of networks

    def registering(self, key: Key, message: Register, now: float) -> Steps[None]:
        """Register sensors of a network; `said` returns the effects."""
        self._confirm(key, message.cookie)
        try:
            yield from self._register(key, message, now)
        except MessageRefusal as refusal:
            self._fail(key, refusal.message("register", message.sensing_id))
        else:
            self._errors.pop(key, None)
        self._settle()

    def deregistering(self, key: Key, message: Deregister, now: float) -> Steps[None]:
        """Deregister sensors of a network, or all of them; `said` returns the effects."""
        self._confirm(key, message.cookie)
        try:
            network = self._registry.find(message.sensing_id, self._caller(key), key)
            if network is None:
                raise MessageRefusal("sensing-id", "is not registered")
        except MessageRefusal as refusal:
            self._fail(key, refusal.message("deregister", message.sensing_id))
            return
        self._errors.pop(key, None)
        sensors = message.sensors
        names = network.instruments if sensors is None else [sensor.name for sensor in sensors]
        yield from self._registry.retire(network, names, now)
        self._share(network)
        self._settle()

    def sensing(self, key: Key, message: Sensing, now: float) -> list[Reading]:
        """Return those of the readings that are to be published. `said` returns the effects."""
        network = self._table.get(message.sensing_id)
        if network is None or network.key != key or message.seq is not None or message.cookie is not None:
            return self._sense(key, message, now)
        network.heard_at = now
        readings = message.sensors
        self.figures.readings += len(readings)
        if self._errors:
            self._errors.pop(key, None)
        known = network.known
        for reading in readings:
            if known.get(reading.name) != reading.type:
                self._effects += self._registry.meet(network, readings)
                break
        return readings

    def said(self) -> list[GatewayEffect]:
        """Return the effects of the readings that came since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def accepted(self, sensing_id: str, seq: int, key: Key) -> list[GatewayEffect]:
        """Acknowledge the readings of that number, which the node has accepted, to their connection.

        If that connection is gone by now, to the one over which the network has come again.
        """
        self._sequences.heard(sensing_id, Sequence).finish(seq)
        self._speaker.say(self._now_at(sensing_id, key), Ack(sensing_id, seq), self._effects)
        return self.said()

    def recall(self, sensing_id: str, seq: int) -> None:
        """Note that the node has had the readings of that number, as was found at the start."""
        self._sequences.heard(sensing_id, Sequence).finish(seq)

    def rejected(self, sensing_id: str, seq: int) -> None:
        """Note that the node has not accepted the readings of that number: they may be sent again."""
        self._sequences.heard(sensing_id, Sequence).pending.discard(seq)

    # Input of the node, and time

    def demanded(self, number: int, filters: Iterable[str]) -> list[GatewayEffect]:
        """Set the filters that demand the advertisement of a number; an unknown one is ignored."""
        if number in self._offers:
            self._demands.change(number, tuple(dict.fromkeys(filters)))
        return self._settled()

    @property
    def is_behind(self) -> bool:
        """Whether requests to sensors lag behind the demands."""
        return self._demands.is_behind or self._interest.is_touched

    def wake(self, now: float) -> list[GatewayEffect]:
        """Do the work that is due."""
        asked, given_up = self._networks.due(now)
        for network in asked:
            self._asker.ask(network, self._effects)
        for network in given_up:
            finish(self._registry.retire(network, network.instruments, now))
            self._share(network)
        self._strangers.wake(now)
        for effect in self._offers.wake(now):
            self._effects.append(effect)
            if isinstance(effect, Withdraw):
                self._demands.change(effect.number, ())
        if self._replicas is not None:
            self._publish(self._replicas.wake(now))
        return self._settled()

    @property
    def wake_at(self) -> float:
        """Return the time of the next call of `wake`."""
        first = min(self._networks.wake_at, self._strangers.wake_at, self._offers.wake_at)
        if self._replicas is not None:
            first = min(first, self._replicas.wake_at)
        return 0.0 if self.is_behind else first

    # Other gateways of the same cells

    @property
    def replica_filter(self) -> str | None:
        """Events of other gateways that concern this one; None if it has no cells in common with others."""
        return None if self._replicas is None else self._replicas.filter

    def hear_replica(self, event: Event, now: float) -> Steps[None]:
        """Take an event of another gateway; `said` returns the effects."""
        assert self._replicas is not None, "only who has asked for these events gets them"
        for reply in self._replicas.hear(event, list(self._networks), now):
            self._effects.append(PublishEvent(reply))
            yield

    def is_elsewhere(self, sensing_id: str) -> bool:
        """Whether a network that is not registered here has a record of another gateway."""
        replicas = self._replicas
        return replicas is not None and sensing_id in replicas and sensing_id not in self._table

    def adopting(self, key: Key, sensing_id: str, now: float) -> Steps[None]:
        """Register a network by the record of another gateway, if the sender may speak for it."""
        assert self._replicas is not None, "only then is a network elsewhere"
        record = self._replicas.record_for(sensing_id, self._caller(key))
        if record is not None:
            yield from self.registering(key, record.registration(), now)

    # Facts

    @property
    def networks(self) -> int:
        """Number of registered networks."""
        return len(self._networks)

    def serves(self, filter: str, sensing_id: str) -> Served:
        """Return how far a network serves a filter."""
        network = self._table.get(sensing_id)
        sensors = () if network is None else network.instruments.values()
        return serves(wants_of(read(filter), filter), sensors)

    def overview(self) -> list[dict[str, Any]]:
        """Return all networks and sensors, with the state, request and demanding filters of each sensor."""
        return [one for one in self.overview_steps() if one is not None]

    def overview_steps(self) -> Iterator[dict[str, Any] | None]:
        """Yield the same, one network after the other; None where others may have their turn."""
        for network in list(self._networks):
            yield (yield from describe(network, self._interest))
        for sensing_id, one in list(self._strangers):
            yield describe_stranger(sensing_id, one)

    # Inside

    def _register(self, key: Key, message: Register, now: float) -> Steps[None]:
        yield from check_register(message)
        caller = self._caller(key)
        box = box_of(message.area)
        reach = self._reach(key, caller, message.address)
        network = self._registry.find_or_make(message.sensing_id, caller, (key, reach), box, now)
        if (elsewhere := self._elsewhere(message.sensing_id, box)) is not None:
            self._speaker.say(key, Redirect(message.sensing_id, elsewhere), self._effects)
            return
        is_attached = False
        for _ in self._registry.add(network, message.sensors, self._effects):
            if not is_attached:  # it goes with its connection, if that ends now
                self._attach(network, reach, message, now)
            is_attached = True
            yield
        self._strangers.forget(message.sensing_id, now)
        if message.area is not None and box != network.box:
            yield from self._registry.move(network, box, self._effects)
        if not is_attached:
            self._attach(network, reach, message, now)
        self._share(network)

    def _attach(self, network: Network, reach: Key, message: Register, now: float) -> None:
        """Reach the network there from now on; a sensor that may lack its command gets it again."""
        is_datagram = isinstance(reach, DatagramAddress)
        lease_s = bounded_lease(message.lease_s) if is_datagram else float("inf")
        if self._networks.attach(network, reach, lease_s, now):
            self._begin_anew(network)
        elif is_datagram:
            self._asker.repeat(network, self._effects)

    def _begin_anew(self, network: Network) -> None:
        """Forget the requests to a network that is reached in another way now: it may not know them."""
        for instrument in network.instruments.values():
            instrument.doubt()
        self._interest.touch(network.instruments.values())

    def _elsewhere(self, sensing_id: str, box: AreaBox | None) -> str | None:
        """Return the address of the gateway that is to serve a network, if it is not this one."""
        grid = self.policy.grid
        if grid is None or self.policy.elsewhere == "serve":
            return None
        members = grid.members_for(sensing_id, box)
        return None if self.policy.member in members else grid.members[members[0]]

    def _share(self, network: Network) -> None:
        """Let the other gateways of its cell know a network that has registered here, changed or gone."""
        if self._replicas is None:
            return
        if self._table.get(network.sensing_id) is network:
            self._publish(self._replicas.serve(network))
        else:
            self._publish(self._replicas.leave(network.sensing_id))

    def _publish(self, events: Iterable[Event]) -> None:
        self._effects += [PublishEvent(event) for event in events]

    def _caller(self, key: Key) -> NetworkCaller:
        caller = self._callers.get(key)
        if caller is not None:
            return caller
        return NetworkCaller(key.host) if isinstance(key, DatagramAddress) else NetworkCaller()

    def _now_at(self, sensing_id: str, key: Key) -> Key:
        """Return where to reply to a network that has sent from there: there, or its new place."""
        if key in self._callers or isinstance(key, DatagramAddress):
            return key
        network = self._table.get(sensing_id)
        return key if network is None or network.key is None else network.key

    def _reach(self, key: Key, caller: NetworkCaller, address: str | None) -> Key:
        """Return how to reach a network: where it sent from, or the address it named if it may."""
        if not isinstance(key, DatagramAddress) or address is None:
            return key
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        is_port = port.isascii() and port.isdigit() and 0 < int(port[:6]) <= PORT_MAX
        if not is_port or (host != caller.host and host not in self.policy.hosts):
            return key
        named = DatagramAddress(host, int(port))
        if host in self.policy.hosts:
            self._speaker.trust(named)
        return named

    def _confirm(self, key: Key, cookie: str | None) -> None:
        """Check a cookie; if it is right, anything may be sent now."""
        if cookie is not None and self._speaker.confirm(key, cookie) and self._asker.heard(key):
            self._asker.settle(self._effects)

    def _sense(self, key: Key, message: Sensing, now: float) -> list[Reading]:
        """Take readings that need a closer look: at their sender, and for repeats."""
        self._confirm(key, message.cookie)
        count = len(message.sensors)
        try:
            network = self._registry.find(message.sensing_id, self._caller(key), key)
        except MessageRefusal as refusal:
            self.figures.refused += count
            self._fail(key, refusal.message("sensing", message.sensing_id))
            return []
        if network is None:
            self.figures.strange += count
            if not self.policy.strangers:
                self.figures.refused += count
                return []
        if message.seq is not None and not self._is_new(key, message.sensing_id, message.seq):
            return []
        self.figures.readings += count
        self._errors.pop(key, None)
        self._note(network, message, now)
        return message.sensors

    def _is_new(self, key: Key, sensing_id: str, seq: int) -> bool:
        standing = self._sequences.heard(sensing_id, Sequence).take(seq)
        if standing is NumberState.NEW:
            return True
        self.figures.repeated += 1
        if standing is NumberState.DONE:
            self._speaker.say(key, Ack(sensing_id, seq), self._effects)
        return False

    def _note(self, network: Network | None, message: Sensing, now: float) -> None:
        """Note the sender of readings, and advertise what was not known of it."""
        if network is None:
            types = {reading.type for reading in message.sensors}
            self._effects += self._strangers.heard(message.sensing_id, types, now)
        else:
            network.heard_at = now
            self._effects += self._registry.meet(network, message.sensors)

    def _fail(self, key: Key, error: Error) -> None:
        """Send an error, and close a connection that sends nothing but errors."""
        self.figures.errors += 1
        self._speaker.say(key, error, self._effects)
        if isinstance(key, DatagramAddress):
            return
        self._errors[key] = self._errors.get(key, 0) + 1
        if self._errors[key] == ERRORS_MAX:
            self._effects.append(Close(key, f"{ERRORS_MAX} errors in a row"))

    def _settled(self) -> list[GatewayEffect]:
        """Return all effects, with the requests that the networks must get now."""
        self._settle()
        return self.said()

    def _settle(self) -> None:
        """Note some of the demands; when all are noted, send the changed requests to networks."""
        self._demands.go_on()
        if not self._demands.is_behind:
            self._asker.settle(self._effects)

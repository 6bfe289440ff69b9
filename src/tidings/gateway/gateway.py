"""The gateway: between sensor networks and the node, each of which it hides from the other.

What networks register is advertised at the node; what the node says is demanded becomes what each sensor is
asked for; readings pass through. Every input has its time with it, and what must be done comes out as a list.

`sensing` is on the hot path and therefore a plain call: it gives the readings that are to be published, and
what it has to say besides is fetched with `said`.

No call takes long. Registering is done in steps; what is demanded may concern every sensor there is, and is
noted and passed on a part at a time: `is_behind` says that there is more, and `wake` does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tidings.gateway.advertisement import NetworkAdvertisements
from tidings.gateway.amplification_guard import AmplificationGuard
from tidings.gateway.areas import AreaBox, box_of
from tidings.gateway.commands import Asker, DemandIntake
from tidings.gateway.demand import wants_of
from tidings.gateway.effects import Close, GatewayEffect, Withdraw
from tidings.gateway.interest import SensorInterest, read
from tidings.gateway.messages import Ack, Deregister, Error, Reading, Redirect, Register, Sensing
from tidings.gateway.network_registry import (
    MessageRefusal,
    NetworkRegistry,
    UnregisteredNetworks,
    check_register,
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
from tidings.gateway.report import Served, describe, describe_stranger, serves
from tidings.seen import Producers
from tidings.steps import Steps, finish

ERRORS_MAX = 100
"""Errors in a row after which a connection is closed."""
PORT_MAX = 65_535


class Gateway:
    """The core of one gateway; `secret` makes the cookies of those who send datagrams."""

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
        self._effects: list[GatewayEffect] = []

    # Who is there

    def connected(self, key: Key, caller: NetworkCaller) -> None:
        """Note a new connection, its user, or the user who sends datagrams from an address."""
        self._callers[key] = caller

    def heard(self, address: DatagramAddress, size: int) -> list[GatewayEffect]:
        """Note a datagram of that many bytes; called before its contents are handed in."""
        self._speaker.heard(address, size)
        return self._settled() if self._asker.heard(address) else []

    def lost(self, key: Key, now: float) -> list[GatewayEffect]:
        """A connection broke: its networks have some time to come back, unless they are there already."""
        self._callers.pop(key, None)
        self._errors.pop(key, None)
        for network in self._networks.lost(key, now):
            if network.key is not None:
                self._begin_anew(network)
        return self._settled()

    def failed(self, key: Key, error: Error) -> list[GatewayEffect]:
        """A message could not be understood; who sends nothing else for long is cut off."""
        self._fail(key, error)
        return self.said()

    # What networks say

    def registering(self, key: Key, message: Register, now: float) -> Steps[None]:
        """A network offers sensors; `said` has what is to be done."""
        self._confirm(key, message.cookie)
        try:
            yield from self._register(key, message, now)
        except MessageRefusal as refusal:
            self._fail(key, refusal.message("register", message.sensing_id))
        else:
            self._errors.pop(key, None)
        self._settle()

    def deregistering(self, key: Key, message: Deregister, now: float) -> Steps[None]:
        """A network takes sensors back, or all of them; `said` has what is to be done."""
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
        self._settle()

    def sensing(self, key: Key, message: Sensing, now: float) -> list[Reading]:
        """Readings came: those that are to be published. `said` has what else is to be done."""
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
        """The node has taken the readings of that number, which came from there: they are acknowledged.

        Where that connection is gone by now, to where the network has come again.
        """
        self._sequences.heard(sensing_id, Sequence).finish(seq)
        self._speaker.say(self._now_at(sensing_id, key), Ack(sensing_id, seq), self._effects)
        return self.said()

    def recall(self, sensing_id: str, seq: int) -> None:
        """The node has had the readings of that number, as was found out at the start."""
        self._sequences.heard(sensing_id, Sequence).finish(seq)

    def rejected(self, sensing_id: str, seq: int) -> None:
        """The node has not taken the readings of that number: they may be sent again."""
        self._sequences.heard(sensing_id, Sequence).pending.discard(seq)

    # What the node says, and time

    def demanded(self, number: int, filters: Iterable[str]) -> list[GatewayEffect]:
        """These filters and no others demand what is advertised under a number; an unknown one is ignored."""
        if number in self._offers:
            self._demands.change(number, tuple(dict.fromkeys(filters)))
        return self._settled()

    @property
    def is_behind(self) -> bool:
        """Whether the sensors have not been asked yet for all that they are to be asked for."""
        return self._demands.is_behind or self._interest.is_touched

    def wake(self, now: float) -> list[GatewayEffect]:
        """Do what is due."""
        asked, given_up = self._networks.due(now)
        for network in asked:
            self._asker.ask(network, self._effects)
        for network in given_up:
            finish(self._registry.retire(network, network.instruments, now))
        self._strangers.wake(now)
        for effect in self._offers.wake(now):
            self._effects.append(effect)
            if isinstance(effect, Withdraw):
                self._demands.change(effect.number, ())
        return self._settled()

    @property
    def wake_at(self) -> float:
        """When `wake` is to be called next."""
        first = min(self._networks.wake_at, self._strangers.wake_at, self._offers.wake_at)
        return 0.0 if self.is_behind else first

    # What is known

    @property
    def networks(self) -> int:
        """How many networks are registered."""
        return len(self._networks)

    def is_known(self, sensing_id: str, name: str) -> bool:
        """Whether a sensor is registered."""
        network = self._table.get(sensing_id)
        return network is not None and name in network.instruments

    def serves(self, filter: str, sensing_id: str) -> Served:
        """How far a network serves a filter."""
        network = self._table.get(sensing_id)
        return "none" if network is None else serves(wants_of(read(filter), filter), network)

    def overview(self) -> list[dict[str, Any]]:
        """All networks and sensors, which of these are on, what they were asked for and by which filters."""
        return [one for one in self.overview_steps() if one is not None]

    def overview_steps(self) -> Iterator[dict[str, Any] | None]:
        """The same, one network after the other; None is where others may have their turn."""
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

    def _attach(self, network: Network, reach: Key, message: Register, now: float) -> None:
        """Reach the network there from now on; a sensor that may not have its command gets it again."""
        is_datagram = isinstance(reach, DatagramAddress)
        lease_s = bounded_lease(message.lease_s) if is_datagram else float("inf")
        if self._networks.attach(network, reach, lease_s, now):
            self._begin_anew(network)
        elif is_datagram:
            self._asker.repeat(network, self._effects)

    def _begin_anew(self, network: Network) -> None:
        """A network is reached in another way now: what it was asked for before it may not know."""
        for instrument in network.instruments.values():
            instrument.doubt()
        self._interest.touch(network.instruments.values())

    def _elsewhere(self, sensing_id: str, box: AreaBox | None) -> str | None:
        """The address of the gateway that is to serve a network, if it is not this one."""
        grid = self.policy.grid
        if grid is None or self.policy.elsewhere == "serve":
            return None
        member = grid.member_for(sensing_id, box)
        return None if member == self.policy.member else grid.members[member]

    def _caller(self, key: Key) -> NetworkCaller:
        caller = self._callers.get(key)
        if caller is not None:
            return caller
        return NetworkCaller(key.host) if isinstance(key, DatagramAddress) else NetworkCaller()

    def _now_at(self, sensing_id: str, key: Key) -> Key:
        """Return where to answer a network that has sent from there: there, or its new place."""
        if key in self._callers or isinstance(key, DatagramAddress):
            return key
        network = self._table.get(sensing_id)
        return key if network is None or network.key is None else network.key

    def _reach(self, key: Key, caller: NetworkCaller, address: str | None) -> Key:
        """How to reach a network: where it spoke from, or at the address it named if it may name that one."""
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
        """Look at a cookie; where it is the right one all may be said now."""
        if cookie is not None and self._speaker.confirm(key, cookie) and self._asker.heard(key):
            self._asker.settle(self._effects)

    def _sense(self, key: Key, message: Sensing, now: float) -> list[Reading]:
        """Readings that need a closer look: by whom they are, and whether they came before."""
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
        """Note who has sent something, and advertise what was not known of it."""
        if network is None:
            types = {reading.type for reading in message.sensors}
            self._effects += self._strangers.heard(message.sensing_id, types, now)
        else:
            network.heard_at = now
            self._effects += self._registry.meet(network, message.sensors)

    def _fail(self, key: Key, error: Error) -> None:
        """Say what is wrong, and close a connection that has nothing else to say."""
        self.figures.errors += 1
        self._speaker.say(key, error, self._effects)
        if isinstance(key, DatagramAddress):
            return
        self._errors[key] = self._errors.get(key, 0) + 1
        if self._errors[key] == ERRORS_MAX:
            self._effects.append(Close(key, f"{ERRORS_MAX} errors in a row"))

    def _settled(self) -> list[GatewayEffect]:
        """All that is to be done, with what the networks must be asked for now."""
        self._settle()
        return self.said()

    def _settle(self) -> None:
        """Note some of what is demanded; when all of it is, ask networks for what has changed by it."""
        self._demands.go_on()
        if not self._demands.is_behind:
            self._asker.settle(self._effects)

"""Sensor networks: owner, connection, lease, and the numbers received from each.

A network belongs to the first that registered its sensing-id, as long as it is there: to a user if there are
users, else to the connection, or to the host it sent from. One whose connection broke keeps its place for
GRACE_S. One that sends datagrams has a lease: when that is over it is asked whether it is there, and after
another lease of silence it is gone.

Numbered readings are repeated over a link that breaks, counted once, and acknowledged when they are safe. A
number is *pending* from when its readings are passed on until the node has accepted them; only then is it
acknowledged, and remembered among the last WINDOW of its network: those, as a network may begin anew with its
numbers. A number that the node refuses is forgotten, so that the network may send it again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from enum import Enum
from math import inf
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct

from tidings.event.values import INT_MIN
from tidings.gateway.areas import AreaBox
from tidings.gateway.demand import Want
from tidings.gateway.messages import Sensor
from tidings.gateway.ranges import RangeSpan, span_of
from tidings.seen import SeenNumbers
from tidings.timers import Leases

NETWORKS_MAX = 100_000
"""Networks of a gateway."""
PER_CONNECTION_MAX = 1_000
"""Networks of one connection."""
OTHERS_MAX = 3
"""Connections of one network that are remembered beside the one it is reached by."""
GRACE_S = 30.0
"""How long a network whose connection broke may take to register again."""
DUE_SENSORS = 1_000
"""Sensors of the networks that are processed together when they are due."""
LEASE_S = 3_600.0
"""Default lease of a network that sends datagrams."""
LEASE_S_MIN, LEASE_S_MAX = 1.0, 86_400.0
WINDOW = 1_024
"""Acknowledged numbers of one network that are remembered, at least: up to twice as many."""
PENDING_MAX = 10_000
"""Numbers of one network that may wait for the node."""
SEQUENCES_MAX = 100_000
"""Networks whose numbers are remembered; the one unused for longest is forgotten."""

_BELOW = INT_MIN - 1

Key = Hashable
"""Way to reach a network: the driver's name for a connection, or the Address that sends its datagrams."""


class DatagramAddress(NamedTuple):
    """Address of datagrams."""

    host: str
    port: int


class NetworkCaller(Struct, frozen=True):
    """Other end: its host, and its user if it has logged in."""

    host: str = ""
    user: str = ""


class Instrument:
    """Sensor of a network, as the gateway knows it: its type, range and area, and the request to it."""

    __slots__ = ("asked", "box", "is_doubtful", "name", "sensing_id", "span", "special", "type", "was_on")

    def __init__(self, sensing_id: str, sensor: Sensor, box: AreaBox | None) -> None:
        self.sensing_id = sensing_id
        self.name = sensor.name
        self.type = sensor.type
        self.box = box  # None: everywhere
        has_range = sensor.min_value is not None or sensor.max_value is not None
        self.span = span_of(sensor.min_value, sensor.max_value) if has_range else None
        self.special: dict[Want, RangeSpan] = {}  # what is wanted of it and not of all sensors of its type
        self.asked: RangeSpan | None = None  # None: it is off
        self.was_on = False  # at any time: the command to stop may never have arrived
        self.is_doubtful = False  # it was on before its connection was lost, and may go on sending

    @property
    def is_on(self) -> bool:
        """Whether it is requested to send."""
        return self.asked is not None

    def as_sensor(self) -> Sensor:
        """Return the sensor as it has registered."""
        low, high = (None, None) if self.span is None else self.span.ends
        return Sensor(self.name, self.type, low, high)

    def doubt(self) -> None:
        """Note a lost connection: the sensor may not know its last request, or may still follow it."""
        self.asked, self.is_doubtful = None, self.was_on

    def ask(self, span: RangeSpan | None) -> None:
        """Note the request to the sensor, or that it is to be silent."""
        self.asked, self.is_doubtful = span, False
        self.was_on = self.was_on or self.is_on


class Network(Struct, eq=False):
    """Set of sensors behind one connection or address."""

    sensing_id: str
    caller: NetworkCaller  # the first that registered it
    box: AreaBox | None
    heard_at: float
    lost_at: float  # when its connection broke
    key: Key | None = None  # None: its connection is broken
    others: list[Key] = []  # further open connections on which it has registered
    instruments: dict[str, Instrument] = {}
    known: dict[str, str] = {}  # the type of each sensor that it registered or sent readings of
    strays: set[tuple[str, str]] = set()  # names and types of readings it never registered
    lease_s: float = inf
    is_owed: bool = False  # some of its commands were withheld
    asked_at: float = -inf  # when its lease was over and it was asked

    def belongs_to(self, key: Key, caller: NetworkCaller) -> bool:
        """Whether a caller may speak for this network."""
        if self.caller.user:
            return caller.user == self.caller.user
        return key == self.key or (bool(caller.host) and caller.host == self.caller.host)

    @property
    def is_asked(self) -> bool:
        """Whether it was asked if it is there, and has not answered."""
        return self.heard_at < self.asked_at

    @property
    def ends_at(self) -> float:
        """Return when it is asked if it is there, or given up."""
        if self.key is None:
            return self.lost_at + GRACE_S
        return max(self.heard_at, self.asked_at) + self.lease_s


class Networks:
    """All registered networks, and when each is due."""

    def __init__(self) -> None:
        self.table: dict[str, Network] = {}  # by sensing-id; readings are looked up here
        self._by_key: dict[Key, dict[str, Network]] = {}
        self._former: dict[Key, dict[str, Network]] = {}  # those that have moved to another connection
        self._leases: Leases[Network] = Leases(attrgetter("ends_at"))

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[Network]:
        return iter(self.table.values())

    def of(self, key: Key) -> list[Network]:
        """Return the networks reached over a connection or at an address."""
        return list(self._by_key.get(key, {}).values())

    def has_room(self, network: Network | None, key: Key) -> bool:
        """Whether a network, or a new one, may be reached there."""
        if network is not None and network.key == key:
            return True
        is_full = network is None and len(self.table) >= NETWORKS_MAX
        return not is_full and len(self._by_key.get(key, {})) < PER_CONNECTION_MAX

    def add(self, network: Network) -> None:
        """Add a network; it is reached once `attach` says how."""
        self.table[network.sensing_id] = network

    def attach(self, network: Network, key: Key, lease_s: float, now: float) -> bool:
        """Set how a network is reached from now on, and its lease; return whether that is new."""
        is_new = network.key != key
        if is_new:
            self._leave(network, key)
            self._reach(network, key)
        network.lease_s, network.heard_at = lease_s, now
        self._leases.watch(network)
        return is_new

    def lost(self, key: Key, now: float) -> list[Network]:
        """Note a lost connection: its networks have some time to come back, if they have no other.

        They may have: messages of an earlier connection are sometimes read after those of a later one.
        """
        for network in self._former.pop(key, {}).values():
            network.others.remove(key)
        networks = self.of(key)
        for network in networks:
            self._detach(network)
            if network.others:
                other = network.others[-1]
                self._forget(network, other)
                self._reach(network, other)
                continue
            for instrument in network.instruments.values():
                instrument.doubt()
            network.lost_at = now
            self._leases.watch(network)
        return networks

    def _leave(self, network: Network, key: Key) -> None:
        """Reach a network in another way from now on; its connection may still be of use."""
        self._forget(network, key)
        before = network.key
        self._detach(network)
        if before is not None and not isinstance(before, DatagramAddress):
            if len(network.others) >= OTHERS_MAX:
                self._forget(network, network.others[0])
            network.others.append(before)
            self._former.setdefault(before, {})[network.sensing_id] = network

    def _reach(self, network: Network, key: Key) -> None:
        network.key = key
        self._by_key.setdefault(key, {})[network.sensing_id] = network

    def _forget(self, network: Network, key: Key) -> None:
        """Remove a connection from its others."""
        if key in network.others:
            network.others.remove(key)
            del self._former[key][network.sensing_id]

    def drop(self, network: Network) -> None:
        """Remove a network."""
        self._detach(network)
        for key in list(network.others):
            self._forget(network, key)
        del self.table[network.sensing_id]
        self._leases.cancel(network)

    def due(self, now: float) -> tuple[list[Network], list[Network]]:
        """Return the networks whose lease is over, which are to be asked, and those that are given up.

        As many of them as have DUE_SENSORS together: others may be due after these.
        """
        asked, given_up = [], []
        sensors = 0
        for network in self._leases.ended(now, DUE_SENSORS):
            sensors += 1 + len(network.instruments)
            if network.key is None or network.is_asked:
                given_up.append(network)
            else:
                network.asked_at = now
                self._leases.watch(network)
                asked.append(network)
            if sensors >= DUE_SENSORS:
                break
        return asked, given_up

    @property
    def wake_at(self) -> float:
        """Return when `due` has something."""
        return self._leases.wake_at

    def _detach(self, network: Network) -> None:
        if network.key is None:
            return
        there = self._by_key[network.key]
        del there[network.sensing_id]
        if not there:
            del self._by_key[network.key]
        network.key = None


def bounded_lease(lease_s: float | None) -> float:
    """Return the lease of a network that sends datagrams, within the limits."""
    return LEASE_S if lease_s is None else float(min(max(lease_s, LEASE_S_MIN), LEASE_S_MAX))


class NumberState(Enum):
    """State of a number."""

    NEW = "new"
    PENDING = "pending"
    DONE = "done"


class Sequence:
    """Numbers of one network: those done last, and the WINDOW before them."""

    __slots__ = ("before", "count", "done", "pending")

    def __init__(self) -> None:
        self.pending: set[int] = set()
        self.done, self.before = SeenNumbers(_BELOW), SeenNumbers(_BELOW)
        self.count = 0  # of those done last

    def take(self, seq: int) -> NumberState:
        """Note readings of this number; a new number is pending from now on, if there is room for it."""
        if seq in self.done or seq in self.before:
            return NumberState.DONE
        if seq in self.pending or len(self.pending) >= PENDING_MAX:
            return NumberState.PENDING  # without room: it is repeated, as it is not acknowledged
        self.pending.add(seq)
        return NumberState.NEW

    def finish(self, seq: int) -> None:
        """Note that the node has accepted the readings."""
        self.pending.discard(seq)
        if self.count == WINDOW:
            self.done, self.before = SeenNumbers(_BELOW), self.done
            self.count = 0
        self.count += self.done.add(seq)

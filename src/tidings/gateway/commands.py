"""Commands to networks, derived from the node's demands; only changes are sent.

A filter is demanded while at least one advertisement has it. Noting a demand may concern every sensor there
is and take long, so demands of the node wait in line until there is time for them.

A request to an instrument is noted when the message is sent. A message that may not be sent yet, because the
address is not confirmed, is sent when something has come from there again.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import islice

from tidings.gateway.amplification_guard import AmplificationGuard
from tidings.gateway.effects import GatewayEffect
from tidings.gateway.interest import SensorInterest
from tidings.gateway.messages import Sensor, SubscribeSensors, UnsubscribeSensors, encode
from tidings.gateway.networks import NETWORKS_MAX, DatagramAddress, Instrument, Key, Network, Networks
from tidings.gateway.policy import Policy
from tidings.gateway.ranges import WHOLE, RangeSpan
from tidings.steps import Steps

STEPS_MAX = 20
"""Steps, such as parsing one filter, that are done at once."""
DATAGRAM_SENSORS_MAX = 20
"""Sensors in one message that is a datagram."""

SETTLED_MAX = 500
"""Sensors that are checked at once for a changed request."""
OWED_MAX = 2 * NETWORKS_MAX
"""Addresses with withheld messages, before those that belong to no network any more are removed."""
OWED_AT_ONCE = 8
"""Further addresses of a host that get withheld messages, when something has come from there."""

Ask = tuple[Instrument, RangeSpan | None]


class DemandIntake:
    """Notes demands in the interest."""

    def __init__(self, interest: SensorInterest) -> None:
        self._interest = interest
        self._demands: dict[int, tuple[str, ...]] = {}  # by advertisement
        self._counts: Counter[str] = Counter()  # number of advertisements for which each filter is demanded
        self._waiting: deque[tuple[int, tuple[str, ...]]] = deque()
        self._noting: Steps[None] | None = None

    @property
    def is_behind(self) -> bool:
        """Whether some demands are not noted yet."""
        return self._noting is not None or bool(self._waiting)

    def change(self, number: int, filters: tuple[str, ...]) -> None:
        """Queue these filters, and no others, as the demands on an advertisement."""
        self._waiting.append((number, filters))

    def go_on(self) -> None:
        """Note some of the waiting demands."""
        for _ in range(STEPS_MAX):
            if self._noting is None:
                if not self._waiting:
                    break
                self._noting = self._note(*self._waiting.popleft())
            if next(self._noting, self) is self:
                self._noting = None

    def _note(self, number: int, filters: tuple[str, ...]) -> Steps[None]:
        """Note the demands on an advertisement: new ones first, so that nothing ends in between."""
        before = self._demands.pop(number, ())
        if filters:
            self._demands[number] = filters
        for text in filters:
            self._counts[text] += 1
            if self._counts[text] == 1:
                yield from self._interest.want(text)
                yield
        for text in before:
            self._counts[text] -= 1
            if not self._counts[text]:
                del self._counts[text]
                yield from self._interest.unwant(text)
                yield


class Asker:
    """Sends requests to networks."""

    def __init__(
        self, networks: Networks, interest: SensorInterest, speaker: AmplificationGuard, policy: Policy
    ) -> None:
        self._networks = networks
        self._interest = interest
        self._speaker = speaker
        self._hints = {"max_rate": policy.max_rate, "max_age_s": policy.max_age_s}
        self._owed: dict[str, dict[DatagramAddress, None]] = {}  # with withheld messages, by host
        self._owed_count = 0

    def settle(self, effects: list[GatewayEffect]) -> None:
        """Send changed requests to each network that can be reached; first those that end.

        Not more than SETTLED_MAX changes: there may be others after that.
        """
        by_network: dict[str, list[Ask]] = {}
        for instrument, span in self._interest.changes(SETTLED_MAX):
            by_network.setdefault(instrument.sensing_id, []).append((instrument, span))
        for sensing_id, asks in by_network.items():
            network = self._networks.table[sensing_id]
            self._send(network, UnsubscribeSensors, [ask for ask in asks if ask[1] is None], effects)
            self._send(network, SubscribeSensors, [ask for ask in asks if ask[1] is not None], effects)

    def repeat(self, network: Network, effects: list[GatewayEffect]) -> bool:
        """Send the requests to a network again; return whether there are any."""
        wanted = [(one, self._interest.wanted(one)) for one in network.instruments.values()]
        asks: list[Ask] = [(one, span) for one, span in wanted if span is not None]
        self._send(network, SubscribeSensors, asks, effects)
        return bool(asks)

    def ask(self, network: Network, effects: list[GatewayEffect]) -> None:
        """Send the requests to a network again, even if there are none: it shall answer if it is there."""
        if not self.repeat(network, effects) and network.key is not None:
            self._speaker.say(network.key, SubscribeSensors(network.sensing_id, []), effects)

    def heard(self, key: Key) -> bool:
        """Note data from an address; return whether commands were withheld, which are then due."""
        if not isinstance(key, DatagramAddress) or not (owed := self._owed.get(key.host)):
            return False
        first = [key] if key in owed else []
        for address in [*first, *islice((one for one in owed if one != key), OWED_AT_ONCE)]:
            del owed[address]
            self._owed_count -= 1
            for network in self._networks.of(address):
                if network.is_owed:
                    network.is_owed = False
                    self._interest.touch(network.instruments.values())
        if not owed:
            del self._owed[key.host]
        return True

    def _owe(self, network: Network, address: DatagramAddress) -> None:
        """Note that a message was withheld from a network."""
        network.is_owed = True
        owed = self._owed.setdefault(address.host, {})
        if address not in owed:
            owed[address] = None
            self._owed_count += 1
        if self._owed_count > OWED_MAX:
            self._sweep()

    def _sweep(self) -> None:
        """Forget addresses that belong to no network any more."""
        self._owed, self._owed_count = {}, 0
        keys = {one.key for one in self._networks if one.is_owed}
        for key in keys:
            if isinstance(key, DatagramAddress):
                self._owed.setdefault(key.host, {})[key] = None
                self._owed_count += 1

    def _send(
        self,
        network: Network,
        kind: type[SubscribeSensors | UnsubscribeSensors],
        asks: list[Ask],
        effects: list[GatewayEffect],
    ) -> None:
        key = network.key
        if key is None:
            return  # it gets the command when it is back
        size = DATAGRAM_SENSORS_MAX if isinstance(key, DatagramAddress) else len(asks) or 1
        for start in range(0, len(asks), size):
            some = asks[start : start + size]
            named = [self._named(instrument, span) for instrument, span in some]
            restart = self._restart_size(network, some) if kind is UnsubscribeSensors else 0
            is_start = kind is SubscribeSensors and not all(instrument.is_on for instrument, _ in some)
            if self._speaker.say(key, kind(network.sensing_id, named), effects, restart, is_start):
                for instrument, span in some:
                    instrument.ask(span)
            elif isinstance(key, DatagramAddress):
                self._owe(network, key)

    def _restart_size(self, network: Network, asks: list[Ask]) -> int:
        """Return the bytes of a message that starts sensors again, if they must be counted."""
        key = network.key
        if not isinstance(key, DatagramAddress) or self._speaker.is_confirmed(key):
            return 0
        named = [self._named(instrument, instrument.span or WHOLE) for instrument, _ in asks]
        return len(encode(SubscribeSensors(network.sensing_id, named, self._speaker.cookie(key))))

    def _named(self, instrument: Instrument, span: RangeSpan | None) -> Sensor:
        """Return the sensor as named to its network, with a range if it gave one itself."""
        if span is None:
            return Sensor(instrument.name)
        low, high = (None, None) if instrument.span is None else span.ends
        return Sensor(instrument.name, "", low, high, **self._hints)

"""MQTT bridge: devices of an existing broker appear as sensor networks.

The rule kept: a message of quality of service 1 is acknowledged to the broker only after the gateway has
acknowledged it, which it does when the readings are stored. Whichever connection breaks, the rest is
redelivered, and counted once. In the other direction, the gateway's request to a network is a retained
message at `tidings/interest/SENSING-ID`, where devices see whether their readings are wanted.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from tidings.errors import CodecError, Disconnected, MissingExtra
from tidings.gateway.messages import Sensor
from tidings.seen import Producers
from tidings.sensors.link import GatewayPlace
from tidings.sensors.network import SensorNetwork
from tidings.sensors.speaker import Speaker
from tidings.sensors.topics import FoundReading, TopicMap
from tidings.timers import Backoff

if TYPE_CHECKING:
    from tidings.sensors.mqtt_session import MqttBroker, MqttDelivery, MqttSession

INTEREST = "tidings/interest/"
"""Prefix of the topics of requests; the rest of the topic is the sensing-id of the network, quoted."""
REPORT_S = 1.0
REPORT_S = 1.0
"""Least seconds between two reports of a message without a reading; the others are only counted."""
REMEMBERED = 10_000
"""Messages that are remembered, more than a broker has in flight. Packet ids come round after 65,535 messages
at the soonest, so no other message is taken for a repeat of one of these."""


class MqttInbox:
    """Messages that a broker has delivered, until they may be acknowledged.

    Without I/O. The broker delivers messages under packet ids and, over a new connection, all again whose
    acknowledgement it has not received, marked as repeats and with the same ids. So a repeat is recognised by
    its id and content, and counts once. Acknowledgements go out in the order the messages came in, as MQTT
    demands, and only over the connection that brought them last.
    """

    def __init__(self) -> None:
        self._numbers = 0
        self._by_packet: Producers[int, tuple[bytes, int]] = Producers(REMEMBERED)  # a digest, and the number
        self.pending: set[int] = set()
        """Messages that are not safe yet."""
        self._here: dict[int, int] = {}  # unacknowledged packet ids of this connection, by number

    def arrive(self, packet_id: int, is_repeat: bool, topic: str, payload: bytes) -> int | None:
        """Take a message; return its number, for `settle`, or None if it came before."""
        mark = blake2b(topic.encode() + b"\0" + payload, digest_size=16).digest()
        known, number = self._by_packet.get(packet_id, (b"", 0))
        if is_repeat and known == mark:
            self._here.setdefault(number, packet_id)
            return None
        self._numbers += 1
        self._by_packet.put(packet_id, (mark, self._numbers))
        self.pending.add(self._numbers)
        self._here[self._numbers] = packet_id
        return self._numbers

    def settle(self, number: int) -> None:
        """Note that a message is safe."""
        self.pending.remove(number)

    def acknowledgements(self) -> list[int]:
        """Return the packet ids that may be acknowledged now, in order; each is returned once."""
        acknowledged = []
        while self._here and (number := next(iter(self._here))) not in self.pending:
            acknowledged.append(self._here.pop(number))
        return acknowledged

    def disconnected(self) -> None:
        """Note the loss of the connection: the broker will redeliver what was not acknowledged."""
        self._here.clear()


class Bridged(Struct):
    """Counters so far."""

    messages: int = 0
    repeated: int = 0
    readings: int = 0
    networks: int = 0
    arrived: int = 0
    acknowledged: int = 0
    bad: int = 0
    dropped: int = 0
    last_bad: str = ""


class Bridge:
    """Bridge from an MQTT broker to a gateway. `run` ends only when cancelled; `tally` is current.

    `filters` None: those that the map needs. `only_asked`: messages without demand are acknowledged and
    dropped.
    """

    def __init__(
        self,
        topics: TopicMap,
        broker: MqttBroker,
        place: GatewayPlace,
        *,
        filters: list[str] | None = None,
        only_asked: bool = False,
        report: Callable[[Bridged], None] | None = None,
        on_problem: Callable[[str], None] | None = None,
    ) -> None:
        self.tally = Bridged()
        self._topics = topics
        self._on_problem = on_problem or (lambda _: None)
        self._report = report or (lambda _: None)
        self._inbox = MqttInbox()
        self._parts: dict[int, int] = {}
        self._held: deque[tuple[int | None, list[FoundReading]]] = deque()
        self._is_offering = False
        self._report_at = 0.0
        self._dirty: dict[str, SensorNetwork] = {}
        self._is_dirty = asyncio.Event()
        self._speaker = Speaker(
            place,
            always=not only_asked,
            on_arrived=self._arrived,
            on_switched=self._switched,
            on_problem=self._on_problem,
        )
        self.session = session_class()(
            broker,
            filters or topics.filters,
            on_message=self._take,
            on_connected=self._connected,
            on_disconnected=self._inbox.disconnected,
            on_problem=self._on_problem,
        )

    async def run(self) -> None:
        """Carry readings from the broker to the gateway, and interest from the gateway to the broker."""
        async with self._speaker:
            work = [self.session.run(), self._publish_interest(), self._report_on()]
            tasks = [asyncio.ensure_future(one) for one in work]
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _report_on(self) -> None:
        while True:
            await asyncio.sleep(REPORT_S)
            self.tally.networks = len(self._speaker.networks)
            self._report(self.tally)

    # From the broker to the gateway

    def _take(self, delivery: MqttDelivery) -> None:
        """Take a message of the broker."""
        self.tally.messages += 1
        number = None
        if delivery.qos:
            number = self._inbox.arrive(
                delivery.packet_id, delivery.is_repeat, delivery.topic, delivery.payload
            )
            if number is None:
                self.tally.repeated += 1
                self._acknowledge()
                return
        try:
            found = self._topics.read(delivery.topic, delivery.payload)
        except CodecError as error:
            self._pass_over(number, str(error))
            return
        self.tally.readings += len(found)
        self._offer(number, found)

    def _pass_over(self, number: int | None, problem: str) -> None:
        """Count and acknowledge a message without a reading: a redelivery would not have one either."""
        self.tally.bad += 1
        self.tally.last_bad = problem
        if time.monotonic() >= self._report_at:
            self._report_at = time.monotonic() + REPORT_S
            self._on_problem(problem)
        if number is not None:
            self._inbox.settle(number)
            self._acknowledge()

    def _offer(self, number: int | None, found: list[FoundReading]) -> None:
        networks = {one.sensing_id for one in found}
        if any(self._speaker.network(sensing_id).is_full for sensing_id in networks):
            if number is None:
                self.tally.dropped += len(found)  # these carry no promise
            else:
                self._held.append((number, found))
            return
        if number is not None:
            self._parts[number] = len(networks)
        for sensing_id in networks:
            mine = [one for one in found if one.sensing_id == sensing_id]
            sensors: list[Sensor] = [one.sensor for one in mine]
            self._speaker.offer(sensing_id, sensors, [one.reading for one in mine], (number, len(mine)))

    def _arrived(self, tag: tuple[int | None, int]) -> None:
        """Note that the gateway has readings of a message, which is safe once it has all of them."""
        number, readings = tag
        self.tally.arrived += readings
        if number is None:
            return
        self._parts[number] -= 1
        if not self._parts[number]:
            del self._parts[number]
            self._inbox.settle(number)
            self._acknowledge()
            self._offer_held()

    def _offer_held(self) -> None:
        """Retry the readings that found a network full; not reentrant, as readings may arrive at once."""
        if not self._is_offering:
            self._is_offering = True
            for _ in range(len(self._held)):
                self._offer(*self._held.popleft())
            self._is_offering = False

    def _acknowledge(self) -> None:
        for packet_id in self._inbox.acknowledgements():
            self.session.acknowledge(packet_id)
            self.tally.acknowledged += 1

    # From the gateway to the broker

    def _connected(self) -> None:
        for network in self._speaker.networks:
            self._switched(network)

    def _switched(self, network: SensorNetwork) -> None:
        self._dirty[network.sensing_id] = network
        self._is_dirty.set()

    async def _publish_interest(self) -> None:
        backoff = Backoff(random.random)
        while True:
            await self._is_dirty.wait()
            self._is_dirty.clear()
            while self._dirty:
                sensing_id, network = self._dirty.popitem()
                try:
                    await self.session.publish(INTEREST + quote(sensing_id, safe=""), interest_in(network))
                    backoff.reset()
                except Disconnected:
                    self._dirty.setdefault(sensing_id, network)
                    await asyncio.sleep(backoff.next_s())


def interest_in(network: SensorNetwork) -> bytes:
    """Return the demand for a network's devices: the requested sensors, with their ranges."""
    asked: list[Any] = [network.asked[name] for name in sorted(network.asked)]
    return msgspec.json.encode({"sensing-id": network.sensing_id, "sensors": asked})


def session_class() -> type[MqttSession]:
    """Return the class of an MQTT session; MissingExtra if that part is not installed."""
    try:
        from tidings.sensors.mqtt_session import MqttSession
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("aiomqtt", "paho"):
            raise
        raise MissingExtra("the MQTT bridge", "mqtt") from None
    return MqttSession

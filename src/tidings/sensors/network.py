"""Core of a sensor network: the sensors it offers, the requests of the gateway, and the messages it sends.

A core without I/O. Readings are sent while there is demand, in the requested range and at the requested rate.
A network that numbers its messages keeps each until it is acknowledged, and sends all of them again, in
order, over a new connection; the gateway counts repeats once. One that sends datagrams renews its lease, and
repeats messages that were not acknowledged in time.

Requests outlive a broken connection: until the gateway changes them, they are the best guess. Unknown members
and messages of a gateway are ignored, so that it may be newer than the network.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import asdict

from tidings.errors import CodecError
from tidings.gateway.messages import (
    Ack,
    Deregister,
    Error,
    Point,
    Redirect,
    Register,
    Sensor,
    SubscribeSensors,
    UnsubscribeSensors,
)
from tidings.timers import Backoff, renewal_s

WAITING_MAX = 1_000
"""Messages of one network in flight: fewer than a gateway distinguishes."""
DATAGRAMS_WAITING_MAX = 32
"""The same for one that sends datagrams, of which too many at a time get lost."""
REPEAT_S, REPEAT_S_MAX = 1.0, 30.0
"""Delay after which an unacknowledged datagram is repeated: the first time, and after many.

Over a connection nothing is lost, but a gateway may be unable to accept a message for now: the longer one.
"""
SENSORS_PER_DATAGRAM = 200
"""Sensors in one register message that must fit into a datagram."""
LINE_SIZE_MAX = 4 << 20
"""Bytes of one message of a gateway: it may name each of ten thousand sensors."""

SensorReading = Mapping[str, Any]
"""`name`, `type`, `value`, and perhaps `timestamp`, `area` and other members."""
Number = int | float
Heard = SubscribeSensors | UnsubscribeSensors | Ack | Error | Redirect


class SendLine(Struct, frozen=True):
    """Send this message: one line, with its end."""

    line: bytes


class Arrived(Struct, frozen=True):
    """The gateway has the readings that were offered with this tag."""

    tag: Any


class Switched(Struct, frozen=True):
    """These sensors were switched on or off, or requested with another range."""

    names: tuple[str, ...]


class Troubled(Struct, frozen=True):
    """The gateway has found a fault in a message of this network."""

    problem: str


class Redirected(Struct, frozen=True):
    """Another gateway serves this network."""

    address: str


SensorEffect = SendLine | Arrived | Switched | Troubled | Redirected


class _Waiting:
    """Message that is not acknowledged yet."""

    __slots__ = ("backoff", "line", "repeat_at", "tag")

    def __init__(self, line: bytes, tag: Any, first_s: float, now: float) -> None:
        self.line = line
        self.tag = tag
        self.backoff = Backoff(None, first_s, REPEAT_S_MAX)
        self.repeat_at = now + first_s


_encode = msgspec.json.Encoder().encode


def encode_sensing(sensing_id: str, readings: Iterable[SensorReading], seq: int | None = None) -> bytes:
    """Encode readings as one line of JSON, with its end."""
    message: dict[str, Any] = {"sensing-id": sensing_id, "sensors": tuple(readings)}
    if seq is not None:
        message["seq"] = seq
    return _encode({"sensing": message}) + b"\n"


class SensorNetwork:
    """Core of one sensor network.

    `seq`: the number before its first message; None: messages are not numbered, and may be lost. `lease_s`:
    it sends datagrams, and renews its lease that often. `always`: it sends without demand.
    """

    def __init__(
        self,
        sensing_id: str,
        sensors: Iterable[Sensor] = (),
        *,
        area: list[Point] | None = None,
        seq: int | None = None,
        lease_s: float | None = None,
        always: bool = False,
    ) -> None:
        self.sensing_id = sensing_id
        self.sensors = {sensor.name: sensor for sensor in sensors}
        self.area = area
        self.always = always
        self.asked: dict[str, Sensor] = {}
        self.is_connected = False
        self.unwanted = 0  # readings that were not sent, for lack of demand
        self._seq = seq
        self._lease_s = lease_s
        self._cookie: str | None = None
        self._renew_at = inf
        # Up to the share of the lease: the first datagrams may get lost.
        self._renewal = Backoff(None, REPEAT_S, renewal_s(lease_s or 0.0))
        self._answer_at = -inf  # not earlier than this
        self._repeat_s = REPEAT_S_MAX if lease_s is None else REPEAT_S
        self._waiting: dict[int, _Waiting] = {}
        self._sent_at: dict[str, float] = {}

    @property
    def waiting(self) -> int:
        """Number of messages that are not acknowledged yet."""
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether as many messages wait as may."""
        return len(self._waiting) >= (WAITING_MAX if self._lease_s is None else DATAGRAMS_WAITING_MAX)

    # Input of this side

    def connect(self, now: float) -> list[SensorEffect]:
        """Register over a new connection to the gateway."""
        self.is_connected = True
        self._cookie = None
        self._renewal.reset()
        effects = self._register(self.sensors.values(), now)
        for waiting in self._waiting.values():
            effects.append(self._repeat(waiting, now))
        return effects

    def disconnect(self) -> None:
        """Note that the connection to the gateway is gone."""
        self.is_connected = False
        self._renew_at = inf

    def add(self, sensors: Iterable[Sensor], now: float) -> list[SensorEffect]:
        """Register more sensors; known ones are ignored."""
        new = {sensor.name: sensor for sensor in sensors if sensor.name not in self.sensors}
        self.sensors |= new
        return self._register(new.values(), now) if self.is_connected and new else []

    def remove(self, names: Iterable[str]) -> list[SensorEffect]:
        """Deregister sensors; with the last of them, the network."""
        gone = [Sensor(name) for name in names if self.sensors.pop(name, None)]
        for sensor in gone:
            self.asked.pop(sensor.name, None)
            self._sent_at.pop(sensor.name, None)
        if not gone or not self.is_connected:
            return []
        message = Deregister(self.sensing_id, gone if self.sensors else None, self._cookie)
        return [_say("deregister", message)]

    def offer(self, readings: Iterable[SensorReading], now: float, tag: Any = None) -> list[SensorEffect]:
        """Send the readings that are in demand. If none is, they count as arrived.

        A network that numbers its messages must not be full.
        """
        assert not self.is_full, "the caller waits until some have arrived"
        wanted = [one for one in readings if self.always or self.take(one["name"], one.get("value"), now)]
        if not wanted:
            return [] if tag is None else [Arrived(tag)]
        if self._seq is None:
            line = encode_sensing(self.sensing_id, wanted)
            return [SendLine(line)] if self.is_connected else []
        self._seq += 1
        line = encode_sensing(self.sensing_id, wanted, self._seq)
        self._waiting[self._seq] = _Waiting(line, tag, self._repeat_s, now)
        return [SendLine(line)] if self.is_connected else []

    def take(self, name: str, value: Any, now: float) -> bool:
        """Whether a reading is in demand, and not too soon after the one before; then it counts as sent."""
        asked = self.asked.get(name)
        if asked is None or not is_within(value, asked) or not self._is_time(asked, now):
            self.unwanted += 1
            return False
        return True

    def _is_time(self, asked: Sensor, now: float) -> bool:
        if not asked.max_rate:
            return True
        if now < self._sent_at.get(asked.name, -inf) + 1 / asked.max_rate:
            return False
        self._sent_at[asked.name] = now
        return True

    # Messages of the gateway

    def hear(self, message: Heard, now: float) -> list[SensorEffect]:
        """Handle a message of the gateway to this network."""
        match message:
            case Ack():
                waiting = self._waiting.pop(message.seq, None)
                return [] if waiting is None or waiting.tag is None else [Arrived(waiting.tag)]
            case Error():
                return [Troubled(f"{message.place}: {message.problem}")]
            case Redirect():
                return [Redirected(message.address)]
        names = [sensor.name for sensor in message.sensors if sensor.name in self.sensors]
        before = [self.asked.get(name) for name in names]
        if isinstance(message, SubscribeSensors):
            self.asked.update((one.name, one) for one in message.sensors if one.name in self.sensors)
        else:
            for name in names:
                self.asked.pop(name, None)
        changed = (name for name, old in zip(names, before, strict=True) if self.asked.get(name) != old)
        switched = tuple(changed)
        effects: list[SensorEffect] = [Switched(switched)] if switched else []
        return effects + self._answer(
            None if message.cookie is UNSET else message.cookie, bool(switched), now
        )

    def _answer(self, cookie: str | None, is_news: bool, now: float) -> list[SensorEffect]:
        """Prove that datagrams reach this network: when it gets a cookie, and at a repeated request.

        Not each time, as the proof may lead to the same request.
        """
        is_cookie = cookie not in (None, self._cookie)
        if self._lease_s is None or (not is_cookie and (is_news or now < self._answer_at)):
            return []
        self._cookie = cookie or self._cookie
        return self._register(self.sensors.values(), now)

    # Time

    @property
    def wake_at(self) -> float:
        """Time of the next call of `wake`."""
        if not self.is_connected:
            return inf
        return min(self._renew_at, *(waiting.repeat_at for waiting in self._waiting.values()), inf)

    def wake(self, now: float) -> list[SensorEffect]:
        """Renew the lease, or repeat unacknowledged messages."""
        if now < self.wake_at:
            return []
        effects = [self._repeat(one, now) for one in self._waiting.values() if one.repeat_at <= now]
        if self._renew_at <= now:
            effects += self._register(self.sensors.values(), now)
        return effects

    def _repeat(self, waiting: _Waiting, now: float) -> SensorEffect:
        waiting.repeat_at = now + waiting.backoff.next_s()
        return SendLine(waiting.line)

    def _register(self, sensors: Iterable[Sensor], now: float) -> list[SensorEffect]:
        """Register sensors, in as many messages as it takes."""
        all_of_them = list(sensors)
        size = len(all_of_them)
        self._answer_at = now + REPEAT_S
        if self._lease_s is not None:
            self._renew_at = now + self._renewal.next_s()
            size = SENSORS_PER_DATAGRAM
        parts = [all_of_them[start : start + size] for start in range(0, len(all_of_them), max(size, 1))]
        return [
            _say(
                "register",
                Register(self.sensing_id, part, area=self.area, lease_s=self._lease_s, cookie=self._cookie),
            )
            for part in parts
        ]


def is_within(value: Any, asked: Sensor) -> bool:
    """Whether a value lies in the requested range; one that is no number always does."""
    number = _number(value)
    if number is None:
        return True
    low, high = asked.min_value, asked.max_value
    return (low is None or low <= number) and (high is None or number <= high)


def _number(value: Any) -> Number | None:
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _say(title: str, message: Register | Deregister) -> SendLine:
    """Encode a message of ours; unset members are left out."""
    members = {name.replace("_", "-"): value for name, value in asdict(message).items() if value is not None}
    return SendLine(_encode({title: members}) + b"\n")


# Messages of a gateway


class _Line(Struct):
    subscribe: SubscribeSensors | None = None
    unsubscribe: UnsubscribeSensors | None = None
    ack: Ack | None = None
    error: Error | None = None
    redirect: Redirect | None = None


_decode = msgspec.json.Decoder(_Line).decode


class Ear:
    """Decodes the messages of one connection. A datagram is passed whole, to `feed_whole`."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Heard]:
        """Return the messages that are complete; CodecError if one is invalid, or has no end."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > LINE_SIZE_MAX:
            raise CodecError("$", f"a message of the gateway is longer than {LINE_SIZE_MAX:,} bytes")
        return [message for line in lines for message in messages_in(line)]

    def feed_whole(self, data: bytes) -> list[Heard]:
        """Return the messages of a datagram."""
        return [message for line in data.split(b"\n") for message in messages_in(line)]


def messages_in(line: bytes) -> Iterator[Heard]:
    """Yield the message on a line, if it is known."""
    if not line.strip():
        return
    try:
        decoded = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CodecError("$", f"no message of a gateway: {error}") from None
    for message in (decoded.subscribe, decoded.unsubscribe, decoded.ack, decoded.error, decoded.redirect):
        if message is not None:
            yield message

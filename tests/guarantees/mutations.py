"""Frames as no client should send them: good ones with bytes, values or their order changed by chance."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from tidings.event import Event
from tidings.event.wire import encode_events
from tidings.protocol.frames import encode
from tidings.protocol.messages import (
    Accepted,
    Acknowledge,
    Bye,
    Credit,
    Deliver,
    Hello,
    Notice,
    Ping,
    Pong,
    ProtocolMessage,
    Publish,
    Reply,
    Request,
    Welcome,
)

HELLO = Hello([1], "mutant", 1, "mutant")
FILTERS = (
    "",
    "value > 3 AND name LIKE 'a%'",
    "type = 'a' OR NOT (value BETWEEN 1 AND 5)",
    "name IN ('x', 'y')",
)
EVENTS = [
    Event("a.b", value=4, name="abc", delivery="reliable"),
    Event("a", value=1.5, name="x", body=b"body", priority=9),
    Event("c", moment=True, delivery="persistent", ttl_s=5.0, subject="s"),
]
MESSAGES: tuple[ProtocolMessage, ...] = (
    Request(1, "subscribe", {"number": 1, "filter": FILTERS[1], "credit": 10}),
    Request(2, "subscribe", {"number": 2, "durable": "d", "since": 1, "credit": 5}),
    Request(3, "subscribe", {"number": 3, "on_slow": "latest", "slow_key": "value", "credit": 1}),
    Request(4, "subscribe", {"number": 4, "on_slow": "block", "last": True, "filter": FILTERS[2]}),
    Request(5, "subscribe", {"number": 5, "on_slow": "spill", "since_us": 1_000_000, "passive": True}),
    Request(6, "unsubscribe", {"number": 1}),
    Request(7, "unsubscribe", {"durable": "d"}),
    Request(8, "advertise", {"number": 1, "filter": FILTERS[3]}),
    Request(9, "unadvertise", {"number": 1}),
    Request(10, "status", {}),
    Acknowledge(2, 1),
    Credit(1, 100),
    Ping(1),
    Pong(1),
    *[Publish()] * 8,
)
# What may not come at all, or only once.
FOREIGN: tuple[ProtocolMessage, ...] = (
    HELLO,
    Bye("", ""),
    Welcome(1, "node", 1, "session", 5, 1000),
    Accepted(7),
    Reply(1, None, None),
    Deliver(1),
    Notice("gap", 1, {}),
)
LONG_FILTERS = ("((((" * 50, "NOT " * 200 + "a = 1", "x = '" + "q" * 70_000 + "'")
NASTY: tuple[Any, ...] = (
    *(0, -1, 1, 2, 3, 50, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)),
    *(0.0, -0.0, float("nan"), float("inf"), 1e308, True, False, None),
    *("", "a", "a" * 300, "\0", "\ud7ff", "d", "mine", "spill", "value > ", *FILTERS, *LONG_FILTERS),
    *(b"", b"\xff" * 8, b"\0" * 300, [], [[]], [1, "a"], {}, {"a": 1}, {1: 2}, {"": None}),
)  # fmt: skip


def deep(levels: int) -> Any:
    """Lists in lists."""
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


class Mutator:
    """Makes bad frames of good ones."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._counter = 0

    def frame(self) -> bytes:
        """A frame that was changed, or that may not come."""
        random = self._random
        message = random.choice(FOREIGN if random.random() < 0.02 else MESSAGES)
        ways: list[Callable[[ProtocolMessage], bytes]] = [self._values, self._bytes, self._length]
        (way,) = random.choices(ways, (8, 2, 1))
        return way(message)

    def good(self, count: int) -> list[bytes]:
        """So many frames as a client may send them."""
        return [self._good(message) for message in self._random.choices(MESSAGES, k=count)]

    def _events(self) -> list[list[Any]]:
        """Some events in their wire form, counted on."""
        events = []
        for event in self._random.choices(EVENTS, k=self._random.randint(0, 3)):
            self._counter += 1
            (wire,) = msgspec.msgpack.decode(encode_events([event]))
            events.append([self._counter, *wire[1:]])
        return events

    def _good(self, message: ProtocolMessage) -> bytes:
        return encode(message, _array(self._events()) if message.HAS_EVENTS else b"")

    def _values(self, message: ProtocolMessage) -> bytes:
        """A frame whose parts are values, one or two of which are something else."""
        header: Any = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
        events: Any = self._events()
        for _ in range(self._random.randint(1, 2)):
            if message.HAS_EVENTS and self._random.random() < 0.8:
                events = self._changed(events)
            else:
                header = self._changed(header)
        body = msgspec.msgpack.encode(header)
        if message.HAS_EVENTS:
            body += _array(events) if isinstance(events, list) else msgspec.msgpack.encode(events)
        return (len(body) + 1).to_bytes(4, "big") + bytes((message.KIND,)) + body

    def _changed(self, value: Any) -> Any:
        """The value with something in it replaced, added or left out."""
        random = self._random
        if isinstance(value, list) and value and random.random() < 0.9:
            at = random.randrange(len(value))
            match random.randrange(6):
                case 0:
                    return value[:at] + value[at + 1 :]
                case 1:
                    return [*value[:at], self._nasty(), *value[at:]]
                case _:
                    return [*value[:at], self._changed(value[at]), *value[at + 1 :]]
        if isinstance(value, dict) and value and random.random() < 0.9:
            key = random.choice(list(value))
            match random.randrange(6):
                case 0:
                    return {name: one for name, one in value.items() if name != key}
                case 1:
                    return {**value, random.choice(("", "x", "delivery", "number")): self._nasty()}
                case _:
                    return {**value, key: self._changed(value[key])}
        return self._nasty(value)

    def _nasty(self, value: Any = None) -> Any:
        """Something else, mostly of the same type: what is of another is refused at first sight."""
        alike = [one for one in NASTY if type(one) is type(value)]
        if self._random.random() < 0.7 and alike:
            return self._random.choice(alike)
        if self._random.random() < 0.05:
            return deep(self._random.choice((10, 200, 900)))
        return self._random.choice(NASTY)

    def _bytes(self, message: ProtocolMessage) -> bytes:
        """A frame with bytes changed, taken out or put in; its length is right or not."""
        random = self._random
        data = bytearray(self._good(message))
        for _ in range(random.randint(1, 6)):
            at = random.randrange(4, len(data) + 1)
            match random.randrange(4):
                case 0 if at < len(data):
                    data[at] = random.randrange(256)
                case 1 if at < len(data):
                    data[at] ^= 1 << random.randrange(8)
                case 2:
                    del data[at : at + random.randint(1, 8)]
                case _:
                    data[at:at] = random.randbytes(random.randint(1, 8))
        if random.random() < 0.9:
            data[:4] = (len(data) - 4).to_bytes(4, "big")
        return bytes(data)

    def _length(self, message: ProtocolMessage) -> bytes:
        """A frame that says another length than it has, is cut short, or is good as it is."""
        random = self._random
        data = self._good(message)
        match random.randrange(3):
            case 0:
                return random.choice((0, 1, 2**16, 2**24, 2**24 + 1, 2**32 - 1)).to_bytes(4, "big") + data[4:]
            case 1:
                return data[: random.randrange(len(data))]
            case _:
                return data


def _array(events: list[Any]) -> bytes:
    """Whatever they are, as an array with the head that events have."""
    return b"\xdd" + len(events).to_bytes(4, "big") + b"".join(map(msgspec.msgpack.encode, events))

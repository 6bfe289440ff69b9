"""What is said to a queue over AMQP 0-9-1, as RabbitMQ speaks it: confirms for who puts, acknowledgements.

Only what a measurement needs of the protocol, with one channel on each connection. Frames are
`type u8 | channel u16 | size u32 | payload | 0xCE`; method and body frames are told apart by their type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import pack, unpack_from

from benchmarks.queue_wires import BODY, QUEUE, Answer, Getting, QueueWire
from benchmarks.wires import MARKER, Step
from tidings.errors import PeerError

METHOD, HEADER, CONTENT = 1, 2, 3
END = b"\xce"
FRAME_MAX = 131_072
CLOSE, CLOSE_OK = (20, 40), (20, 41)
PUBLISH, ACK = (60, 40), (60, 80)
ACK_SIZE = 21
"""Bytes of a frame with an acknowledgement: all that is said to who puts."""


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """One frame."""
    return pack(">BHI", kind, channel, len(payload)) + payload + END


def method(name: tuple[int, int], arguments: bytes = b"", channel: int = 1) -> bytes:
    """The frame of a method: the numbers of its class and its own."""
    return frame(METHOD, channel, pack(">HH", *name) + arguments)


def text(value: bytes) -> bytes:
    """A short string."""
    return bytes((len(value),)) + value


@dataclass(frozen=True)
class AmqpWire(QueueWire):
    """A durable classic queue, messages with delivery mode 2, confirms."""

    def begin(self) -> list[Step]:
        """Log in as guest without heart beats, and open a channel with confirms."""
        login = b"\0guest\0guest"
        answer = pack(">I", 0) + text(b"PLAIN") + pack(">I", len(login)) + login + text(b"en_US")
        tuned = method((10, 31), pack(">HIH", 1, FRAME_MAX, 0), channel=0)
        return [
            (b"AMQP\0\0\x09\x01", END),
            (method((10, 11), answer, channel=0), END),
            (tuned + method((10, 40), text(b"/") + b"\0\0", channel=0), END),
            (method((20, 10), b"\0"), END),
            (method((85, 10), b"\0"), method((85, 11))),
        ]

    def prepare(self) -> list[Step]:
        """Declare the queue."""
        durable = b"\x02"
        return [*self.begin(), (method((50, 10), b"\0\0" + _NAME + durable + pack(">I", 0)), END)]

    def put(self) -> bytes:
        """basic.publish, with its header and its body."""
        header = pack(">HHQHB", 60, 0, len(BODY), 0x1000, 2)
        published = method(PUBLISH, b"\0\0" + text(b"") + _NAME + b"\0")
        return published + frame(HEADER, 1, header) + frame(CONTENT, 1, BODY)

    def hearing(self) -> Callable[[bytes], int]:
        """A confirm is of one message, or of all up to it."""
        held, below, above = b"", 0, set[int]()

        def hear(data: bytes) -> int:
            nonlocal held, below, above
            data = held + data
            whole = len(data) - len(data) % ACK_SIZE
            held = data[whole:]
            for at in range(0, whole, ACK_SIZE):
                tag, all_up_to = _read_ack(data, at)
                if all_up_to:
                    below = max(below, tag)
                    above = {one for one in above if one > below}
                else:
                    above.add(tag)
            return below + len(above)

        return hear

    def getting(self, count: int) -> Getting:
        """Consume, and acknowledge all that has come."""
        return _AmqpGetting(count, self.at_once)


_NAME = text(QUEUE.encode())


def _read_ack(data: bytes, at: int) -> tuple[int, bool]:
    kind, _, _, *name, tag, all_up_to = unpack_from(">BHIHHQB", data, at)
    if kind != METHOD or tuple(name) != ACK:
        raise PeerError(f"RabbitMQ refused: {data[at : at + 500]!r}")
    return tag, bool(all_up_to)


class _AmqpGetting(Getting):
    """Messages of a channel are numbered from 1, so to count them is to know their tags."""

    _LAST = MARKER + END

    def __init__(self, count: int, at_once: int) -> None:
        super().__init__(count, at_once)
        self._came = 0

    def first(self) -> bytes:
        qos = method((60, 10), pack(">IHB", 0, self._at_once, 0))
        return qos + method((60, 20), b"\0\0" + _NAME + text(b"") + b"\0" + pack(">I", 0))

    def hear(self, data: bytes) -> Answer:
        data = self._held + data
        self._held = data[max(0, len(data) - len(self._LAST) + 1) :]
        came = data.count(self._LAST)
        if not came:
            return 0, b""
        self._came += came
        return came, method(ACK, pack(">QB", self._came, 1))

    def last(self) -> Step:
        return method(CLOSE, pack(">H", 200) + text(b"") + pack(">HH", 0, 0)), method(CLOSE_OK)

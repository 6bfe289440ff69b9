"""Messages that an MQTT broker has handed over, and when it may be told that they are safe.

A core without I/O. The broker hands out messages under packet ids and, over a new connection, all again whose
acknowledgement it has not seen, marked as repeats and with the same ids. So a repeat is recognised by its
id and what it holds, and counts once. Acknowledgements go out in the order the messages came in, as MQTT
demands, and only over the connection that brought them last.
"""

from __future__ import annotations

from hashlib import blake2b

from tidings.seen import Producers

REMEMBERED = 10_000
"""Messages that are remembered, more than a broker has in flight. Packet ids come round after 65,535 messages
at the soonest, so no other message is taken for a repeat of one of these."""


class Inbox:
    """See the module."""

    def __init__(self) -> None:
        self._numbers = 0
        self._by_packet: Producers[int, tuple[bytes, int]] = Producers(REMEMBERED)  # a digest, and the number
        self._pending: set[int] = set()
        self._here: dict[int, int] = {}  # packet ids of this connection, not told yet, by number and in order

    @property
    def pending(self) -> int:
        """Messages that are not safe yet."""
        return len(self._pending)

    def arrive(self, packet_id: int, is_repeat: bool, topic: str, payload: bytes) -> int | None:
        """A message came; its number, under which it is to be made safe, or None if it came before."""
        mark = blake2b(topic.encode() + b"\0" + payload, digest_size=16).digest()
        known, number = self._by_packet.get(packet_id, (b"", 0))
        if is_repeat and known == mark:
            self._here.setdefault(number, packet_id)
            return None
        self._numbers += 1
        self._by_packet.put(packet_id, (mark, self._numbers))
        self._pending.add(self._numbers)
        self._here[self._numbers] = packet_id
        return self._numbers

    def settle(self, number: int) -> None:
        """A message is safe."""
        self._pending.remove(number)

    def acknowledgements(self) -> list[int]:
        """The packet ids that the broker may be told now, in order; each is given once."""
        told = []
        while self._here and (number := next(iter(self._here))) not in self._pending:
            told.append(self._here.pop(number))
        return told

    def disconnected(self) -> None:
        """The connection is gone: the broker will hand over again what it has not been told."""
        self._here.clear()

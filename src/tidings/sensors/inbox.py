"""Messages that an MQTT broker has handed over, and when it may be told that they are safe.

A core without I/O. The broker hands out messages under packet ids and, over a new connection, all again whose
acknowledgement it has not seen, marked as repeats and with the same ids. So a repeat is recognised by its
id and what it holds, and counts once. Acknowledgements go out in the order the messages came in, as MQTT
demands, and only over the connection that brought them last.
"""

from __future__ import annotations

from collections import deque
from hashlib import blake2b

REMEMBERED = 10_000
"""Messages that are remembered after they are safe. Packet ids come round after 65,535 messages at the
soonest, so no other message is taken for a repeat of one of these."""


class _Letter:
    """One message of the broker."""

    __slots__ = ("is_here", "is_safe", "mark", "number", "packet_id")

    def __init__(self, number: int, packet_id: int, mark: bytes) -> None:
        self.number = number
        self.packet_id = packet_id
        self.mark = mark
        self.is_safe = False
        self.is_here = True  # it came over the connection that there is


class Inbox:
    """See the module."""

    def __init__(self) -> None:
        self._numbers = 0
        self._by_packet: dict[int, _Letter] = {}
        self._by_number: dict[int, _Letter] = {}
        self._order: deque[_Letter] = deque()
        self._safe: deque[_Letter] = deque()

    @property
    def pending(self) -> int:
        """Messages that are not safe yet."""
        return len(self._by_number)

    def arrive(self, packet_id: int, is_repeat: bool, topic: str, payload: bytes) -> int | None:
        """A message came; its number, under which it is to be made safe, or None if it came before."""
        mark = blake2b(topic.encode() + b"\0" + payload, digest_size=16).digest()
        known = self._by_packet.get(packet_id)
        if is_repeat and known is not None and known.mark == mark:
            if not known.is_here:
                known.is_here = True
                self._order.append(known)
            return None
        self._numbers += 1
        letter = _Letter(self._numbers, packet_id, mark)
        self._by_packet[packet_id] = self._by_number[letter.number] = letter
        self._order.append(letter)
        return letter.number

    def settle(self, number: int) -> None:
        """A message is safe."""
        letter = self._by_number.pop(number)
        letter.is_safe = True
        self._safe.append(letter)
        if len(self._safe) > REMEMBERED:
            old = self._safe.popleft()
            if self._by_packet.get(old.packet_id) is old and not old.is_here:
                del self._by_packet[old.packet_id]

    def acknowledgements(self) -> list[int]:
        """The packet ids that the broker may be told now, in order; each is given once."""
        told = []
        while self._order and self._order[0].is_safe:
            letter = self._order.popleft()
            letter.is_here = False
            told.append(letter.packet_id)
        return told

    def disconnected(self) -> None:
        """The connection is gone: the broker will hand over again what it has not been told."""
        for letter in self._order:
            letter.is_here = False
        self._order.clear()

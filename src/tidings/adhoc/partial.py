"""Messages that have come in part, because a meeting was cut: the next carrier sends the rest."""

from __future__ import annotations

from msgspec.structs import replace

from tidings.adhoc.frames import CopyFrame
from tidings.adhoc.messages import CarriedMessage, MessageId
from tidings.timers import Timers

PARTIAL_BYTES_MAX = 64 << 20
"""Bytes of all partial messages; the oldest are forgotten beyond."""


class PartialMessages:
    """Beginnings of messages by id."""

    def __init__(self, bytes_max: int = PARTIAL_BYTES_MAX) -> None:
        self._parts: dict[MessageId, bytearray] = {}
        self._expiry: Timers[MessageId] = Timers()
        self._bytes_max = bytes_max
        self._size = 0

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def begun(self) -> tuple[tuple[MessageId, int], ...]:
        """How much is here of each."""
        return tuple((id, len(part)) for id, part in self._parts.items())

    def join(self, frame: CopyFrame, now: float) -> CarriedMessage | None:
        """Return the message of a frame if it is whole now; otherwise keep what has come."""
        message = frame.message
        if not message.raw or (frame.offset == 0 and len(message.raw) >= message.size):
            self._forget(message.id)  # it has come whole, or a simulation has left out its bytes
            return message
        part = self._parts.get(message.id, bytearray())
        if frame.offset > len(part):  # something is missing between
            return None
        joined = part[: frame.offset] + message.raw
        self._forget(message.id)
        if len(joined) >= message.size:
            return replace(message, raw=bytes(joined))
        self._keep(message.id, joined, now + frame.left_s)
        return None

    def _keep(self, id: MessageId, part: bytearray, expires_at: float) -> None:
        self._parts[id] = part
        self._size += len(part)
        self._expiry.at(expires_at, id)
        while self._size > self._bytes_max:
            self._forget(next(iter(self._parts)))

    def _forget(self, id: MessageId) -> None:
        part = self._parts.pop(id, None)
        if part is not None:
            self._size -= len(part)
            self._expiry.cancel(id)

    def expire(self, now: float) -> None:
        """Forget the parts of messages whose life is over."""
        for id in list(self._expiry.due(now)):
            part = self._parts.pop(id)
            self._size -= len(part)

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
        self._changed: dict[MessageId, int] = {}  # from which byte on, since the last look

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def begun(self) -> tuple[tuple[MessageId, int], ...]:
        """How much is here of each."""
        return tuple((id, len(part)) for id, part in self._parts.items())

    def take_changed(self) -> list[tuple[MessageId, int]]:
        """Return the messages of which more is here, or nothing any more, and from which byte on."""
        changed, self._changed = self._changed, {}
        return list(changed.items())

    def get(self, id: MessageId) -> tuple[bytearray, float] | None:
        """The beginning of a message, and when that expires; None if there is none."""
        part = self._parts.get(id)
        return None if part is None else (part, self._expiry.moment(id))

    def restore(self, id: MessageId, part: bytes, expires_at: float) -> None:
        """Know again a beginning that was stored."""
        self._keep(id, bytearray(part), expires_at)

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
        self._changed[message.id] = min(frame.offset, self._changed.get(message.id, frame.offset))
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
            self._changed.setdefault(id, len(part))

    def expire(self, now: float) -> None:
        """Forget the parts of messages whose life is over."""
        for id in list(self._expiry.due(now)):
            self._forget(id)

"""Ring of acknowledgements: which messages were delivered to whom, so that carriers drop their replicas.

Hosts hand acknowledgements on to each other before any message. A ring is bounded: the oldest ones go when it
is full, and each goes when the message it speaks of would have expired everywhere. A recipient does not rely
on rings to recognise a message that comes again; that is the task of `seen_ids.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct

from tidings.adhoc.messages import HostName, MessageId

RING_MAX = 10_000
"""Acknowledgements that a host keeps."""


class Acknowledgement(Struct, frozen=True, array_like=True):
    """Statement of a recipient that it has a message; `left_s` is what is left of the message's life."""

    id: MessageId
    recipient: HostName
    left_s: float
    proof: bytes = b""  # signature of the recipient


class RingEntry(NamedTuple):
    """Acknowledgement as it stands in a ring."""

    number: int
    id: MessageId
    recipient: str
    expires_at: float
    proof: bytes


class AcknowledgementRing:
    """The last acknowledgements that a host has heard, in the order in which it has."""

    def __init__(self, entries_max: int = RING_MAX) -> None:
        self._entries: deque[RingEntry] = deque()
        self._recipients: dict[MessageId, dict[str, RingEntry]] = {}
        self._entries_max = entries_max
        self.last = 0  # number of the newest

    def __len__(self) -> int:
        return len(self._entries)

    def recipients(self, id: MessageId) -> dict[str, RingEntry]:
        """The recipients that are known to have a message."""
        return self._recipients.get(id, _NONE)

    def add(self, id: MessageId, recipient: str, expires_at: float, proof: bytes = b"") -> bool:
        """Note an acknowledgement; False if it is known. The oldest goes if there is no room."""
        if recipient in self.recipients(id) or self._entries_max < 1:
            return False
        if len(self._entries) >= self._entries_max:
            self._drop_first()
        self.last += 1
        entry = RingEntry(self.last, id, recipient, expires_at, proof)
        self._entries.append(entry)
        self._recipients.setdefault(id, {})[recipient] = entry
        return True

    def _drop_first(self) -> None:
        gone = self._entries.popleft()
        known = self._recipients[gone.id]
        del known[gone.recipient]
        if not known:
            del self._recipients[gone.id]

    def since(self, number: int, now: float) -> tuple[Acknowledgement, ...]:
        """The acknowledgements behind this number that still matter, oldest first."""
        return tuple(reversed([*self._newest(number, now)]))

    def _newest(self, number: int, now: float) -> Iterator[Acknowledgement]:
        for entry in reversed(self._entries):
            if entry.number <= number:
                return
            if entry.expires_at > now:
                yield Acknowledgement(entry.id, entry.recipient, entry.expires_at - now, entry.proof)

    @property
    def first(self) -> int:
        """The number of the oldest one that is kept."""
        return self._entries[0].number if self._entries else self.last + 1

    def behind(self, number: int) -> list[RingEntry]:
        """Return the entries behind this number, oldest first."""
        found: list[RingEntry] = []
        for entry in reversed(self._entries):
            if entry.number <= number:
                break
            found.append(entry)
        return found[::-1]

    def expire(self, now: float) -> None:
        """Let go of the oldest ones whose messages have expired."""
        while self._entries and self._entries[0].expires_at <= now:
            self._drop_first()


_NONE: dict[str, RingEntry] = {}

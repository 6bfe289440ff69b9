"""Ids of the messages that a host has received, kept beyond every life: no replica is delivered again.

It rests on `seen.py`: of each sender and epoch the highest number that was received, and the gaps below it. A
number that was received is never forgotten. A gap is given up after the longest life of a message: what could
still come from it has expired. A sender is forgotten after that time too; if there are more senders than
there is room for within it, messages of new ones are refused, since to forget another would deliver its
messages twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from msgspec import Struct

from tidings.adhoc.messages import TTL_S_MAX, MessageId
from tidings.seen import GAPS_MAX, NumberGap, Producers, SeenNumbers
from tidings.timers import Leases

SENDERS_MAX = 10_000
"""Senders, each with an epoch, whose messages are remembered."""

_Sender = tuple[str, int]


class SeenIdsRecord(Struct, frozen=True, array_like=True):
    """What is remembered of one sender, as it is stored; ages are seconds before `heard`."""

    system: str
    epoch: int
    last: int
    gaps: tuple[tuple[int, int, float], ...]
    heard: float


class SeenIds:
    """Ids of messages that were had."""

    def __init__(
        self, senders_max: int = SENDERS_MAX, life_s: float = TTL_S_MAX, gaps_max: int = GAPS_MAX
    ) -> None:
        self._senders: Producers[_Sender, SeenNumbers] = Producers(senders_max)
        self._heard: dict[_Sender, float] = {}
        self._senders_max = senders_max
        self._gaps_max = gaps_max
        self._life_s = life_s
        self._leases: Leases[_Sender] = Leases(lambda sender: self._heard.get(sender, -inf) + life_s)

    def __contains__(self, id: MessageId) -> bool:
        numbers = self._senders.get((id.system, id.epoch))
        return numbers is not None and id.counter in numbers

    def __len__(self) -> int:
        return len(self._senders)

    def add(self, id: MessageId, now: float) -> bool:
        """Remember an id that is new; False if it is not, or if there is no room for its sender."""
        sender = id.system, id.epoch
        if id in self or not self._has_room(sender, now):
            return False
        numbers = self._senders.heard(sender, SeenNumbers)
        numbers.give_up(now - self._life_s)
        self._heard[sender] = now
        self._leases.watch(sender)
        return numbers.add(id.counter, now=now) > 0

    def _has_room(self, sender: _Sender, now: float) -> bool:
        for gone in self._leases.ended(now):
            del self._senders[gone], self._heard[gone]
        numbers = self._senders.get(sender)
        if numbers is None:
            return len(self._senders) < self._senders_max
        return len(numbers.gaps) < self._gaps_max  # one more would give up a gap in which a message may live

    def record(self, id: MessageId) -> SeenIdsRecord:
        """What is to be stored of the sender of an id that was had."""
        sender = id.system, id.epoch
        numbers, heard = self._senders[sender], self._heard[sender]
        gaps = tuple((gap.first, gap.last, max(0.0, heard - gap.since)) for gap in numbers.gaps)
        return SeenIdsRecord(*sender, numbers.last, gaps, heard)

    def restore(self, records: Iterable[SeenIdsRecord], now: float) -> None:
        """Know again what was stored; ages count from now, so nothing is forgotten too early."""
        for one in records:
            sender = one.system, one.epoch
            gaps = [NumberGap(first, last, now - age) for first, last, age in one.gaps]
            self._senders.put(sender, SeenNumbers(one.last, gaps))
            self._heard[sender] = now
            self._leases.watch(sender)

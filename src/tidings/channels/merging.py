"""The stored events of a channel from several nodes, put into one order.

Each source is a node, and has its events in an order of its own, which is kept. Of several the one goes first
that was taken in earliest, by the clocks of these nodes; in a causal channel not before an event that it
names and that another source has; in a total channel by their places in the agreed order. An event that
several sources have, as its first node and who archives the channel, is taken once.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Sequence

from msgspec import Struct

from tidings.channels.causal import Marks, decode_names, mark_of, place_of
from tidings.channels.description import ChannelOrder
from tidings.channels.parts import HistoryPart
from tidings.errors import CodecError
from tidings.event import Event
from tidings.ids import parse_id
from tidings.seen import Producers, SeenNumbers

PRODUCERS_MAX = 100_000
"""Producers of whose events it is known which were taken."""
FOREIGN_MAX = 100_000
"""Ids that no node has given of which the same is known; of more, the oldest are forgotten."""


class TakenEvents:
    """Which events were taken, by their ids: originals and copies have the same."""

    def __init__(self) -> None:
        self._numbers: Producers[tuple[str, int], SeenNumbers] = Producers(PRODUCERS_MAX)
        self._foreign: dict[str, None] = {}

    def take(self, event: Event) -> bool:
        """Take an event; whether it was not taken before."""
        parsed = parse_id(event.id) if event.id else None
        if parsed is None:
            return self._take_foreign(event.id or "")
        system, epoch, counter = parsed
        return self._numbers.heard((system, epoch), SeenNumbers).add(counter) > 0

    def _take_foreign(self, id: str) -> bool:
        if id in self._foreign:
            return False
        self._foreign[id] = None
        if len(self._foreign) > FOREIGN_MAX:
            del self._foreign[next(iter(self._foreign))]
        return True


class _Waiting(Struct):
    """An event of a source, with its number and all that orders it."""

    event: Event
    mark: int
    number: int
    key: tuple[int, int]
    names: Marks


class HistoryMerge:
    """The events of some sources in one order, as far as these were read."""

    def __init__(self, sources: Iterable[str], order: ChannelOrder) -> None:
        self._order = order
        self._waiting: dict[str, deque[_Waiting]] = {source: deque() for source in sources}
        self._ended: set[str] = set()
        # Of each source its numbers by first node, as these grow: the first are the least.
        self._numbers: dict[str, dict[int, deque[int]]] = {source: {} for source in self._waiting}

    @property
    def lacking(self) -> list[str]:
        """The sources of which more must be read before anything can be taken."""
        return [one for one, waiting in self._waiting.items() if not waiting and one not in self._ended]

    def add(self, source: str, parts: Sequence[HistoryPart]) -> None:
        """Add what was read next of a source."""
        for part in parts:
            mark, names = mark_of(part.node, part.epoch, is_volatile=False), _names(part.after)
            place = place_of(part.after) if self._order == "total" and names else 0
            for event, number in zip(part.events(), array("Q", part.numbers), strict=False):
                key = (place, part.stored_us)
                self._waiting[source].append(_Waiting(event, mark, number, key, names))
                self._numbers[source].setdefault(mark, deque()).append(number)

    def end(self, source: str) -> None:
        """A source has no more."""
        self._ended.add(source)

    def take(self) -> list[Event]:
        """Return the events that come next; none while some source lacks."""
        taken: list[Event] = []
        while not self.lacking and (source := self._next()) is not None:
            one = self._waiting[source].popleft()
            numbers = self._numbers[source][one.mark]
            numbers.popleft()
            if not numbers:
                del self._numbers[source][one.mark]
            taken.append(one.event)
        return taken

    def _next(self) -> str | None:
        """Return the source whose event is next."""
        firsts = {source: waiting[0] for source, waiting in self._waiting.items() if waiting}
        if not firsts:
            return None
        source = min(firsts, key=lambda one: (firsts[one].key, one))
        passed = {source}
        while (before := self._before(firsts[source], passed)) is not None:
            passed.add(before)
            source = before
        return source

    def _before(self, one: _Waiting, passed: set[str]) -> str | None:
        """Return another source that has an event which this one names."""
        if self._order != "causal" or not one.names:
            return None
        for source, numbers in self._numbers.items():
            if source not in passed and any(
                mark in numbers and numbers[mark][0] <= number for mark, number in one.names.items()
            ):
                return source
        return None


def _names(after: bytes) -> Marks:
    try:
        return decode_names(after)
    except CodecError:
        return {}

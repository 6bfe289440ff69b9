"""Total order in a channel, at one node: members get the events of agreed entries, one entry after another.

All events are held as they come, a client's own too, until the sequencer has listed them and that is agreed
(`sequencer.py`). An entry whose events are not here yet is waited for: reliable ones HOLD_S at most after
the channel is whole, as for causal order; transient ones LOST_S, as they may be lost. Then it is a gap. A
node that is the only voter lets events pass at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from msgspec import Struct

from tidings.channels.causal import (
    HELD_MAX,
    HELD_SIZE_MAX,
    HOLD_S,
    MARKS_MAX,
    ChannelArrival,
    Marks,
    OrderVerdict,
    urgent,
)
from tidings.channels.sequencer import Sequencer

LOST_S = 2.0
"""How long transient events are waited for that were listed."""

Item = TypeVar("Item")


class _Unlisted(Struct, Generic[Item]):
    last: int
    item: Item
    size: int


class TotalOrder(Generic[Item]):
    """The order of one channel at one node.

    `cut` divides an item: the events up to a number, or None, and the others, or None. `place` notes in an
    item the entry by which it was listed.
    """

    def __init__(
        self,
        sequencer: Sequencer,
        cut: Callable[[Item, int], tuple[Item | None, Item | None]],
        place: Callable[[Item, int], None],
        marks: Marks | None = None,
    ) -> None:
        self.sequencer = sequencer
        self._cut = cut
        self._place = place
        self._marks = dict(marks or {})  # what members have got, or need not get
        self._seen = dict(self._marks)  # what has come here, or need not
        self._held: dict[int, deque[_Unlisted[Item]]] = {}
        self._order: deque[tuple[int, int]] = deque()  # in which events came that may not be listed yet
        self._count = self._size = 0
        self.dropped: list[Item] = []
        """What was held, and members need not get."""
        self._stuck: tuple[int, float] | None = None  # the entry that is waited for, and since when
        self.is_taking_part = False
        """Whether there are members here, or will be."""
        self.learned: Marks = {}
        """Up to where members need not get what comes: it was sent before this node took part."""
        self.gaps = 0
        """Entries whose events were not waited for any longer."""

    @property
    def marks(self) -> Marks:
        """How far the events of each first node have come to members."""
        return self._marks

    @property
    def seen(self) -> Marks:
        """How far they have come here: a node that joins does not get them any more."""
        return self._seen

    @property
    def held(self) -> list[Item]:
        """What is held, in the order of each first node."""
        return [one.item for held in self._held.values() for one in held]

    @property
    def is_waiting(self) -> bool:
        """Whether events wait to be listed."""
        listed = self.sequencer.listed
        while self._order and self._order[0][1] <= listed.get(self._order[0][0], 0):
            self._order.popleft()
        return bool(self._order)

    # Events

    def arrive(self, arrival: ChannelArrival, item: Item, size: int) -> OrderVerdict:
        """Judge what has arrived, or was sent here; what is held is returned by `release` later."""
        mark, last = arrival.mark, arrival.last
        sequencer = self.sequencer
        self._seen[mark] = max(last, self._seen.get(mark, 0))
        _limit(self._seen)
        if sequencer.is_alone and not self._held:
            sequencer.list_alone(mark, last)
            self._got(mark, last)
            return OrderVerdict.PASS
        if not (self.is_taking_part or sequencer.is_voter) or last <= self._marks.get(mark, 0):
            return OrderVerdict.DROP
        if mark in self._held and last <= self._held[mark][-1].last:
            return OrderVerdict.DROP
        self.hold(arrival, item, size)
        return OrderVerdict.HOLD

    def hold(self, arrival: ChannelArrival, item: Item, size: int) -> None:
        """Hold what was held before the node was started again, too."""
        mark, last = arrival.mark, arrival.last
        self._held.setdefault(mark, deque()).append(_Unlisted(last, item, size))
        self._order.append((mark, last))
        self._count += 1
        self._size += size

    def release(self, now: float, is_whole: bool = False) -> list[Item]:
        """Return what members get now, in order; `is_whole`: nothing can be on its way from elsewhere."""
        sequencer = self.sequencer
        if sequencer.is_leader and self.is_waiting:
            sequencer.list_events(list(self._order), now)
        for mark in list(self._held):
            self._got(mark, sequencer.base_listed.get(mark, 0))
            self._drop(mark)
        released: list[Item] = []
        while sequencer.passed < sequencer.agreed:
            entry = sequencer.entry(sequencer.passed + 1)
            if entry.mark >= 0 and entry.last > self._marks.get(entry.mark, 0):
                held = self._held.get(entry.mark)
                if (held is None or held[-1].last < entry.last) and not self._is_lost(
                    entry.mark, now, is_whole
                ):
                    return released
                taken = self._take(entry.mark, entry.last)
                for item in taken:
                    self._place(item, sequencer.passed + 1)
                released += taken
                self._got(entry.mark, entry.last)
            self._stuck = None
            sequencer.pass_to(sequencer.passed + 1)
        return released

    def _is_lost(self, mark: int, now: float, is_whole: bool) -> bool:
        """Whether the events of the next entry were waited for long enough."""
        index = self.sequencer.passed + 1
        if self._stuck is None or self._stuck[0] != index or not (is_whole or mark & 1):
            self._stuck = index, now
        is_full = self._count > HELD_MAX or self._size > HELD_SIZE_MAX
        is_over = now >= self._stuck[1] + (LOST_S if mark & 1 else HOLD_S)
        if is_over or is_full:
            self.gaps += 1
        return is_over or is_full

    @property
    def is_stuck(self) -> bool:
        """Whether the events of an agreed entry are not here."""
        return self._stuck is not None

    def _take(self, mark: int, last: int) -> list[Item]:
        """Take what is held up to a number."""
        taken: list[Item] = []
        held = self._held.get(mark, deque())
        while held and held[0].last <= last:
            one = held.popleft()
            self._count -= 1
            self._size -= one.size
            taken.append(one.item)
        if held:
            part, rest = self._cut(held[0].item, last)
            if part is not None and rest is not None:
                held[0].item = rest
                taken.append(part)
        if not held:
            self._held.pop(mark, None)
        return taken

    def _drop(self, mark: int) -> None:
        """Hold nothing that members need not get."""
        held = self._held.get(mark)
        if held and held[0].last <= self._marks.get(mark, 0):
            self.dropped += self._take(mark, self._marks[mark])

    def _got(self, mark: int, last: int) -> None:
        if last > self._marks.get(mark, 0):
            self._marks[mark] = last
            _limit(self._marks)

    def expedite(self, arrival: ChannelArrival) -> None:
        """Note events that have no place in the agreed order, and are delivered at once."""
        self._got(urgent(arrival).mark, arrival.last)

    was_urgent = expedite

    def lacks(self, marks: Mapping[int, int]) -> list[int]:
        """Return up to which of these marks members have not got the events yet, nor need not."""
        return [mark for mark, number in marks.items() if self._marks.get(mark, 0) < number]

    # Who joins, and what is gone

    def skip(self, marks: Marks) -> None:
        """Nothing: an entry whose events do not come is given up by itself."""

    def learn(self, marks: Mapping[int, int]) -> None:
        """Begin behind what others have had before this node took part."""
        for mark, number in marks.items():
            self._got(mark, number)
            self._seen[mark] = self.learned[mark] = max(number, self._seen.get(mark, 0))

    def miss(self, mark: int, last: int) -> None:
        """Do not wait for events up to a number, of which none are here: they were reported as missed."""
        held = self._held.get(mark)
        if held is None and self._marks.get(mark, 0) < last and self.is_stuck:
            self._got(mark, last)
            self.gaps += 1


def _limit(marks: Marks) -> None:
    while len(marks) > MARKS_MAX:
        del marks[next(iter(marks))]

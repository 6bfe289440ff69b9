"""Causal order in a channel, at one node: no member gets an event before those that it may depend on.

The *predecessors* of an event are those that its first node had delivered to the channel when it took the
event in. On a tree whose hops keep their order they arrive first by themselves. While a tree changes its
shape they may come another way, and later; so an event names them. Of these only the last ones are named:
what they name themselves, and what the same node has sent before, follows from that. An event that is
sent when nothing was delivered since the last one of its node names nothing.

A node lets an event pass when all that it names was delivered, and nothing of its first node is held that
came before it; it *holds* it otherwise. Names lead back in time, so no two events wait for each other. A
reliable predecessor is waited for: HOLD_S at most after the channel is whole, as a name may be forged. A
transient one may be lost, so it is not waited for; it is a gap, and what comes of it later is dropped.

What was delivered is kept as the highest number of each first node and epoch, its *mark*: all before that
was delivered too. That is the cut below which nothing is held or named.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar
from zlib import crc32

import msgspec
from msgspec import Struct, structs

from tidings.errors import CodecError

HOLD_S = 60.0
"""How long an event waits for its predecessors, once all nodes of the channel can be reached."""
HELD_MAX = 10_000
"""Batches that are held in a channel; past that the oldest pass."""
HELD_SIZE_MAX = 64 << 20
"""Their bytes."""
NAMES_MAX = 1_000
"""Predecessors that a batch names, of as many first nodes."""
MARKS_MAX = 3_000
"""First nodes and epochs whose numbers are known in a channel; of more, the oldest are forgotten."""
EXPEDITED = "!"
"""Behind the id of a first node: what is expedited is numbered by itself, as it overtakes."""
PASSED = (1 << 63) - 1
"""The mark of an epoch that is over: nothing more comes of it."""

Item = TypeVar("Item")
Marks = dict[int, int]
"""Numbers by what `mark_of` returns."""


def mark_of(node: str, epoch: int, is_volatile: bool) -> int:
    """Return a short name of a first node in an epoch; an odd one is for numbers of what is not stored."""
    return crc32(f"{node}/{epoch}".encode()) & ~1 | is_volatile


def urgent(arrival: ChannelArrival) -> ChannelArrival:
    """Return expedited events as they are counted: by themselves, as they overtake."""
    return structs.replace(arrival, node=arrival.node + EXPEDITED, names={})


def encode_names(names: Mapping[int, int]) -> bytes:
    """Return predecessors as they travel; nothing if there are none."""
    return msgspec.msgpack.encode([one for pair in names.items() for one in pair]) if names else b""


def decode_names(packed: bytes, count_max: int = NAMES_MAX) -> Marks:
    """Return the predecessors that a batch names; CodecError if it does not, or names too many."""
    if not packed:
        return {}
    try:
        flat = _decode(packed)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise CodecError("$.after", f"no predecessors: {error}") from None
    if len(flat) % 2 or len(flat) > 2 * count_max:
        raise CodecError("$.after", f"{len(flat)} numbers are not those of up to {count_max} predecessors")
    if any(not 0 <= one <= PASSED for one in flat):
        raise CodecError("$.after", "a number is negative or too large")
    return dict(zip(flat[::2], flat[1::2], strict=True))


_decode = msgspec.msgpack.Decoder(list[int]).decode


def encode_place(entry: int) -> bytes:
    """Return the place of an event in the agreed order, as it is stored: where others have predecessors."""
    return encode_names({0: entry})


def place_of(after: bytes) -> int:
    """Return the place in the agreed order that is stored beside an event; 0 if none is."""
    return decode_names(after).get(0, 0)


class CausalState(Struct, frozen=True, omit_defaults=True):
    """What outlives the process: marks, what the next event will name, and the epoch of each first node."""

    marks: Marks = {}
    tips: Marks = {}
    epochs: dict[str, int] = {}


class OrderVerdict(Enum):
    """What becomes of an event that has arrived."""

    PASS = 0
    HOLD = 1
    DROP = 2  # it was given up before: others that followed it were delivered


class ChannelArrival(Struct, frozen=True):
    """Events of one first node that arrive together, with what they name."""

    node: str
    epoch: int
    is_volatile: bool
    last: int
    names: Marks = {}

    @property
    def mark(self) -> int:
        """The short name of the first node and its epoch."""
        return mark_of(self.node, self.epoch, self.is_volatile)


class _Held(Struct, Generic[Item]):
    arrival: ChannelArrival
    item: Item
    size: int
    since: float


class CausalOrder(Generic[Item]):
    """The order of one channel at one node; items are what it holds."""

    def __init__(self, state: CausalState | None = None) -> None:
        stored = state or CausalState()
        self._marks = dict(stored.marks)
        self._tips = dict(stored.tips)  # delivered since the last own event, and not named by each other
        self._epochs = dict(stored.epochs)
        self._own: set[int] = set()
        # By first node and epoch, in order: only the first of each can be the next to pass.
        self._held: dict[int, deque[_Held[Item]]] = {}
        self._count = self._size = 0
        self.learned: Marks = {}
        """Up to where members need not get what comes: it was sent before this node took part."""
        self.dropped: list[Item] = []
        """What was held, and members need not get."""
        self.gaps = 0
        """Predecessors that were not waited for any longer, or never."""

    @property
    def state(self) -> CausalState:
        """What is to be stored."""
        return CausalState(self._marks, self._tips, self._epochs)

    @property
    def marks(self) -> Mapping[int, int]:
        """How far the events of each first node have come."""
        return self._marks

    @property
    def seen(self) -> Marks:
        """How far they have come here: a node that joins does not get them any more."""
        return {**self._marks, **{mark: held[-1].arrival.last for mark, held in self._held.items()}}

    @property
    def held(self) -> list[Item]:
        """What is held, in the order of each first node."""
        return [one.item for held in self._held.values() for one in held]

    # Own events

    def own(self, node: str, epoch: int) -> None:
        """Never wait for events of this node itself: whoever names them has got them from it."""
        for name in (node, node + EXPEDITED):
            self._own.update(mark_of(name, epoch, is_volatile) for is_volatile in (False, True))

    def send(self) -> Marks:
        """Return what an event of this node names that is taken in now."""
        names, self._tips = self._tips, {}
        if len(names) > NAMES_MAX:
            names = dict(list(names.items())[-NAMES_MAX:])
        return names

    def was_sent(self, arrival: ChannelArrival) -> None:
        """Note up to which number own events were handed on."""
        self._mark(arrival.mark, arrival.last)

    def was_urgent(self, arrival: ChannelArrival) -> None:
        """The same of expedited ones."""
        self.was_sent(urgent(arrival))

    # Events of others

    def arrive(self, arrival: ChannelArrival, item: Item, size: int, now: float) -> OrderVerdict:
        """Judge what has arrived; what is held is returned by `release` later."""
        mark = arrival.mark
        if arrival.is_volatile and arrival.last <= self._marks.get(mark, 0):
            return OrderVerdict.DROP
        if mark in self._held and arrival.last <= self._held[mark][-1].arrival.last:
            return OrderVerdict.DROP  # it comes again, as a commit has failed
        self._skip_transient(arrival.names)
        if mark in self._held or self._missing(arrival):
            self.hold(arrival, item, size, now)
            return OrderVerdict.HOLD
        self._deliver(arrival)
        return OrderVerdict.PASS

    def expedite(self, arrival: ChannelArrival) -> None:
        """Note events that are delivered at once, though others may be held before them."""
        self._deliver(urgent(arrival))

    def hold(self, arrival: ChannelArrival, item: Item, size: int, now: float) -> None:
        """Hold what was held before the node was started again, too."""
        self._held.setdefault(arrival.mark, deque()).append(_Held(arrival, item, size, now))
        self._count += 1
        self._size += size

    def release(self, now: float, is_whole: bool = False) -> list[Item]:
        """Return what waits no longer, in order; `is_whole`: nothing can be on its way from elsewhere."""
        released: list[Item] = []
        while (one := self._next(now, is_whole)) is not None:
            self._deliver(self._take_first(one.arrival.mark).arrival)
            released.append(one.item)
        return released

    def _next(self, now: float, is_whole: bool) -> _Held[Item] | None:
        firsts = [held[0] for held in self._held.values()]
        for one in firsts:
            if not self._missing(one.arrival):
                return one
        if not firsts:
            return None
        oldest = min(firsts, key=lambda one: one.since)
        is_late = is_whole and now >= oldest.since + HOLD_S
        if not (is_late or self._count > HELD_MAX or self._size > HELD_SIZE_MAX):
            return None
        self.gaps += len(self._missing(oldest.arrival))
        return oldest

    def _take_first(self, mark: int) -> _Held[Item]:
        """Hold the first that is held of a mark no longer."""
        one = self._held[mark].popleft()
        if not self._held[mark]:
            del self._held[mark]
        self._count -= 1
        self._size -= one.size
        return one

    def _missing(self, arrival: ChannelArrival) -> list[int]:
        return [mark for mark, number in arrival.names.items() if self._lacks(mark, number)]

    def _lacks(self, mark: int, number: int) -> bool:
        return self._marks.get(mark, 0) < number and mark not in self._own

    def _skip_transient(self, names: Marks) -> None:
        """Note what is named and not waited for, as it may be lost."""
        for mark, number in names.items():
            if mark & 1 and self._lacks(mark, number):
                self._marks[mark] = number
                self.gaps += 1

    def _deliver(self, arrival: ChannelArrival) -> None:
        for name, number in arrival.names.items():
            if self._tips.get(name, PASSED) <= number:
                del self._tips[name]
        self._tips[arrival.mark] = arrival.last
        self._follow_epoch(arrival)
        self._mark(arrival.mark, arrival.last)

    def _mark(self, mark: int, last: int) -> None:
        self._marks[mark] = max(last, self._marks.get(mark, 0))
        while len(self._marks) > MARKS_MAX:
            del self._marks[next(iter(self._marks))]

    def _follow_epoch(self, arrival: ChannelArrival) -> None:
        before = self._epochs.get(arrival.node, 0)
        if arrival.epoch > before:
            self._epochs[arrival.node] = arrival.epoch
            if before:
                for is_volatile in (False, True):
                    self._marks[mark_of(arrival.node, before, is_volatile)] = PASSED

    def lacks(self, marks: Mapping[int, int]) -> list[int]:
        """Return up to which of these marks events have not come here yet, nor are given up."""
        return [mark for mark, number in marks.items() if number < PASSED and self._lacks(mark, number)]

    # What does not come

    def skip(self, marks: Marks) -> None:
        """Wait for no transient events up to these marks, and drop them if they come after all."""
        self._skip_transient(marks)

    def learn(self, marks: Mapping[int, int]) -> None:
        """Begin behind what others have had before this node took part."""
        for mark, number in marks.items():
            self._marks[mark] = self.learned[mark] = max(number, self._marks.get(mark, 0))
            held = self._held.get(mark)
            while held and held[0].arrival.last <= number:
                self.dropped.append(self._take_first(mark).item)

    def miss(self, node: str, epoch: int, last: int) -> None:
        """Do not wait for events up to a number: they were reported as missed."""
        mark = mark_of(node, epoch, is_volatile=False)
        if self._marks.get(mark, 0) < last:
            self._marks[mark] = last
            self.gaps += 1

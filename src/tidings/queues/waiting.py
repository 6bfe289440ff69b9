"""Readers that wait at a queue for a matching message, and watches for copies of all that match.

Waiting costs nothing while nothing matches: who demands one value stands under that, other conditions stand
in an index, as subscriptions do, so a message that comes is compared with thousands of them at once. Readers
with the same condition stand in one line, which is compared once, and so do those who want any message. A
message is offered to the first of the lines that match, and to others only if that one does not take it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct, field

from tidings.errors import QueueError
from tidings.exchange import NodeSubscription
from tidings.filters import Filter
from tidings.matching import Index
from tidings.matching.equalities import Equalities
from tidings.protocol.frames import FRAME_MAX
from tidings.queues.message import QueuedMessage

if TYPE_CHECKING:
    from tidings.matching.search import Search
    from tidings.protocol.service import IncomingRequest
    from tidings.queues.inflight import InFlight, ReaderKey
    from tidings.queues.queue import MessageQueue
    from tidings.queues.serving import AtHead
    from tidings.queues.transactions import OpenTransaction
    from tidings.timers import Alarm

WAITING_MAX = 100_000
"""Readers that may wait at one queue."""
FEW = 4
"""Readers in line that are looked at before all of them are."""
ANSWER_COUNT_MAX = 1_000
"""Messages after which a reader gets no more at once."""
ANSWER_SIZE_MAX = 1 << 20
"""Bytes after which a reader gets no more at once; the message that passes it is the last one."""
ANSWER_SIZE_LIMIT = FRAME_MAX // 2
"""Bytes that an answer must not pass, unless it is one message; it has to fit a frame."""


class QueueReader(Struct, eq=False):
    """One who wants messages, up to `count`, and what it has got so far."""

    queue: MessageQueue
    asked: IncomingRequest  # to be answered once, when it has something or its time is up
    holder: ReaderKey  # to which the messages are in flight from then on
    filter: Filter | None = None  # None: anything will do
    count: int = 1
    is_copier: bool = False  # reads, and leaves the messages where they are
    is_if_exists: bool = False  # waits only while others may give back what it wants
    transaction: OpenTransaction | None = None
    up_to: int | None = None  # later messages are not meant
    after: int | None = None  # nor those up to this place in the order
    has_bodies: bool = True
    is_together: bool = False  # several messages of a group may be in flight to it
    taken: list[tuple[QueuedMessage, InFlight | None]] = []
    size: int = 0  # bytes of these
    is_cut: bool = False  # there was one more, which did not fit
    turn: int = 0  # its place in the line; 0 while it does not wait
    line: ReaderLine | None = None  # where it waits
    is_searching: bool = False  # the queue is searched for it, and it is answered when that ends
    search: Search[int] | AtHead | None = None  # how far that has come
    is_over: bool = False  # it must not be answered any more
    timer: Alarm | None = None

    def __post_init__(self) -> None:
        self.count = min(self.count, ANSWER_COUNT_MAX)

    @property
    def takes_any(self) -> bool:
        """Whether it takes whatever comes first, from others."""
        return not (self.is_copier or self.filter or self.transaction or self.up_to is not None)

    @property
    def group_owner(self) -> Hashable:
        """Whose the groups are of which it gets messages, if it may have more of them; None: nobody's."""
        return self.transaction or (self.holder if self.is_together else None)

    def has_room(self, chosen: int, size: int) -> bool:
        """Whether it wants more than it has and others that were chosen for it, of so many bytes."""
        return len(self.taken) + chosen < self.count and self.size + size < ANSWER_SIZE_MAX

    def may_meet(self, place: int) -> bool:
        """Whether the search that is made for it may still come to this place."""
        return self.search is not None and not self.search.has_passed(place)

    def wants(self, message: QueuedMessage, place: int) -> bool:
        """Whether a message is one of those that were asked for, and not copied already."""
        is_late = self.up_to is not None and message.number > self.up_to
        if is_late or (self.after is not None and place <= self.after):
            return False
        return not self.is_copier or all(one.number != message.number for one, _ in self.taken)

    @property
    def is_content(self) -> bool:
        """Whether it wants no more."""
        return len(self.taken) >= self.count or self.size >= ANSWER_SIZE_MAX or self.is_cut

    def fits(self, message: QueuedMessage, chosen: int = 0, size: int = 0) -> bool:
        """Whether a message can be in the same answer, beside others that were chosen for it and their bytes.

        If not, the reader wants no more.
        """
        count, size = len(self.taken) + chosen, self.size + size
        self.is_cut = size + message.size > ANSWER_SIZE_LIMIT and bool(count)
        return not (self.is_cut or count >= self.count or size >= ANSWER_SIZE_MAX)

    def keep(self, is_there: Callable[[QueueReader, QueuedMessage, InFlight | None], bool]) -> None:
        """Lose what it has got and is not there any more."""
        if any(not is_there(self, *one) for one in self.taken):
            self.taken = [one for one in self.taken if is_there(self, *one)]
            self.size = sum(message.size for message, _ in self.taken)
            self.is_cut = False

    def take(self, message: QueuedMessage, held: InFlight | None) -> None:
        """Add a message to what it has got."""
        self.taken.append((message, held))
        self.size += message.size


class ReaderLine(Struct, eq=False):
    """Readers with one condition, who has waited longest first."""

    filter: Filter | None
    readers: OrderedDict[QueueReader, None] = field(default_factory=OrderedDict)

    def __iter__(self) -> Iterator[QueueReader]:
        """Yield the waiting readers while asked: mostly the first one takes the message."""
        turn = 0
        for reader in tuple(islice(self.readers, FEW)):
            turn = reader.turn
            yield reader
        for reader in tuple(self.readers) if turn else ():
            if reader.turn > turn:
                yield reader


class WaitingReaders:
    """All who wait at one queue."""

    def __init__(self) -> None:
        self._any = ReaderLine(None)
        self._lines: dict[int, ReaderLine] = {}  # of the others, by the ids of their filters
        self._equalities: Equalities[ReaderLine] = Equalities()
        self._index: Index[ReaderLine | NodeSubscription] = Index(patient=True)
        self.watching: dict[NodeSubscription, None] = {}
        self._count = 0
        self._turns = 0
        # Those who wait only while others may give something back.
        self.if_exists: dict[QueueReader, None] = {}

    def __len__(self) -> int:
        """Number of waiting readers."""
        return self._count

    def check_room(self, queue: str) -> None:
        """Raise QueueError, with the queue's name, if as many readers wait as may."""
        if self._count >= WAITING_MAX:
            raise QueueError(queue, f"at most {WAITING_MAX} readers can wait")

    def add(self, reader: QueueReader) -> None:
        """Put a reader at the end of the line."""
        self._turns += 1
        self._count += 1
        reader.turn = self._turns
        line = reader.line = self._any if reader.filter is None else self._line(reader.filter)
        line.readers[reader] = None
        if reader.is_if_exists:
            self.if_exists[reader] = None

    def _line(self, filter: Filter) -> ReaderLine:
        line = self._lines.get(id(filter))
        if line is None:
            line = self._lines[id(filter)] = ReaderLine(filter)
            if not self._equalities.add(line, filter):
                self._index.add(line, filter)
        return line

    def remove(self, reader: QueueReader) -> None:
        """Remove a reader, if it waits."""
        line = reader.line
        if line is not None:
            reader.turn, reader.line = 0, None
            self._count -= 1
            del line.readers[reader]
            if reader.is_if_exists:
                self.if_exists.pop(reader, None)
            if line.filter is not None and not line.readers:
                place = self._equalities if line in self._equalities else self._index
                place.remove(line)
                del self._lines[id(line.filter)]

    def watch(self, subscription: NodeSubscription) -> None:
        """Add a watch of all messages that match."""
        self.watching[subscription] = None
        self._index.add(subscription, subscription.filter)

    def is_unindexed(self, subscription: NodeSubscription) -> bool:
        """Whether the filter of a watch must be evaluated on every message."""
        return self._index.is_unindexed(subscription)

    def unwatch(self, subscription: NodeSubscription) -> None:
        """Remove a watch, if it is there."""
        if subscription in self.watching:
            del self.watching[subscription]
            self._index.remove(subscription)

    def readers(self, message: QueuedMessage) -> Iterable[QueueReader]:
        """Return the readers that may have this message, the one that has waited longest first."""
        if not self._lines:
            return self._any
        event = message.shown
        found = self._equalities.match(event)
        found += [one for one in self._index.match(event) if isinstance(one, ReaderLine)]
        if self._any.readers:
            found.append(self._any)
        return found[0] if len(found) == 1 else merge(*found, key=_turn)

    def watchers(self, message: QueuedMessage) -> list[NodeSubscription]:
        """Return the watches that match this message."""
        return [one for one in self._index.match(message.shown) if isinstance(one, NodeSubscription)]

    def everyone(self) -> list[QueueReader]:
        """Return all waiting readers."""
        return [*self._any.readers, *(reader for line in self._lines.values() for reader in line.readers)]


_turn = attrgetter("turn")

"""Those who wait at a queue: readers for a message that matches, watchers for copies of all that do.

Waiting costs nothing while nothing matches: who demands one value stands under that, other conditions stand
in an index, as subscriptions do, so a message that comes is compared with thousands of them at once. Who
wants any message stands in line without a condition.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from tidings.exchange import Subscription
from tidings.filters import Filter
from tidings.matching import Index
from tidings.matching.equalities import Equalities
from tidings.protocol.frames import FRAME_MAX
from tidings.queues.message import Message

if TYPE_CHECKING:
    from tidings.protocol.service import Asked
    from tidings.queues.held import Held, Identity
    from tidings.queues.queue import Queue
    from tidings.queues.timers import Timer
    from tidings.queues.transaction import Transaction

WAITING_MAX = 100_000
"""Readers that may wait at one queue."""
FEW = 4
"""Readers in line that are looked at before all of them are."""
ANSWER_SIZE_MAX = 1 << 20
"""Bytes after which a reader gets no more at once; the message that passes it is the last one."""
ANSWER_SIZE_LIMIT = FRAME_MAX // 2
"""Bytes that an answer must not pass, unless it is one message; it has to fit a frame."""


class Reader:
    """One who wants messages, up to `count`, and what it has got so far."""

    __slots__ = (
        "after",
        "asked",
        "count",
        "filter",
        "has_bodies",
        "holder",
        "is_copier",
        "is_cut",
        "is_if_exists",
        "queue",
        "size",
        "taken",
        "timer",
        "transaction",
        "turn",
        "up_to",
    )

    def __init__(
        self,
        queue: Queue,
        asked: Asked,
        holder: Identity,
        filter: Filter | None = None,
        count: int = 1,
        is_copier: bool = False,
        is_if_exists: bool = False,
        transaction: Transaction | None = None,
        up_to: int | None = None,
        after: int | None = None,
        has_bodies: bool = True,
    ) -> None:
        self.queue = queue
        self.asked = asked  # to be answered once, when it has something or its time is up
        self.holder = holder  # whose hands the messages are in from then on
        self.filter = filter  # None: anything will do
        self.count = count
        self.is_copier = is_copier  # reads, and leaves the messages where they are
        self.is_if_exists = is_if_exists  # waits only while others may give back what it wants
        self.transaction = transaction
        self.up_to = up_to  # later messages are not meant
        self.after = after  # nor those up to this place in the order
        self.has_bodies = has_bodies
        self.taken: list[tuple[Message, Held | None]] = []
        self.size = 0  # bytes of these
        self.is_cut = False  # there was one more, which did not fit
        self.turn = 0  # its place in the line; 0 while it does not wait
        self.timer: Timer | None = None

    @property
    def takes_any(self) -> bool:
        """Whether it takes whatever comes first, from others."""
        return not (self.is_copier or self.filter or self.transaction or self.up_to is not None)

    @property
    def is_content(self) -> bool:
        """Whether it wants no more."""
        return len(self.taken) >= self.count or self.size >= ANSWER_SIZE_MAX or self.is_cut

    def fits(self, message: Message, chosen: int = 0, size: int = 0) -> bool:
        """Whether a message can be in the same answer, beside others that were chosen for it and their bytes.

        If not, the reader wants no more.
        """
        count, size = len(self.taken) + chosen, self.size + size
        self.is_cut = size + message.size > ANSWER_SIZE_LIMIT and bool(count)
        return not (self.is_cut or count >= self.count or size >= ANSWER_SIZE_MAX)

    def take(self, message: Message, held: Held | None) -> None:
        """Add a message to what it has got."""
        self.taken.append((message, held))
        self.size += message.size


class Waiting:
    """All who wait at one queue."""

    def __init__(self) -> None:
        self._any: OrderedDict[Reader, None] = OrderedDict()
        self._equalities: Equalities[Reader] = Equalities()
        self._index: Index[Reader | Subscription] = Index(patient=True)
        self._choosy: dict[Reader, None] = {}
        self._watchers: dict[Subscription, None] = {}
        self._turns = 0

    def __len__(self) -> int:
        """How many readers wait."""
        return len(self._any) + len(self._choosy)

    def add(self, reader: Reader) -> None:
        """Put a reader at the end of the line."""
        self._turns += 1
        reader.turn = self._turns
        if reader.filter is None:
            self._any[reader] = None
        else:
            if not self._equalities.add(reader, reader.filter):
                self._index.add(reader, reader.filter)
            self._choosy[reader] = None

    def remove(self, reader: Reader) -> None:
        """It waits no longer; one that does not wait is passed over."""
        if reader.turn:
            reader.turn = 0
            if reader.filter is None:
                del self._any[reader]
            else:
                place = self._equalities if reader in self._equalities else self._index
                place.remove(reader)
                del self._choosy[reader]

    def watch(self, subscription: Subscription) -> None:
        """Have someone told of all messages that match."""
        self._watchers[subscription] = None
        self._index.add(subscription, subscription.filter)

    def is_unindexed(self, subscription: Subscription) -> bool:
        """Whether someone who is told must be asked about every message."""
        return self._index.is_unindexed(subscription)

    def unwatch(self, subscription: Subscription) -> None:
        """It is to be told no longer; one that is not told is passed over."""
        if subscription in self._watchers:
            del self._watchers[subscription]
            self._index.remove(subscription)

    def readers(self, message: Message) -> Iterable[Reader]:
        """Those who may have this message, who has waited longest first."""
        if not self._choosy:
            return self._first_in_line()
        event = message.shown
        found = self._equalities.match(event)
        found += [one for one in self._index.match(event) if isinstance(one, Reader)]
        found += self._any
        return sorted(found, key=lambda reader: reader.turn)

    def _first_in_line(self) -> Iterator[Reader]:
        """Those who take anything, as long as they are asked for: mostly the first one takes it."""
        yield from tuple(islice(self._any, FEW))
        for reader in tuple(self._any):
            if reader.turn:
                yield reader

    @property
    def has_watchers(self) -> bool:
        """Whether anyone is to be told of messages that come."""
        return bool(self._watchers)

    def watchers(self, message: Message) -> list[Subscription]:
        """Those who are to be told of this message."""
        if not self._watchers:
            return []
        return [one for one in self._index.match(message.shown) if isinstance(one, Subscription)]

    def everyone(self) -> list[Reader]:
        """All readers that wait."""
        return [*self._any, *self._choosy]

    def all_watchers(self) -> list[Subscription]:
        """All who are told of new messages."""
        return list(self._watchers)

"""The queues of one node: created, found, restored and deleted, and all that they share.

A node has one manager, which manages that node's queues only. It numbers their messages, hands the broker
what to store, knows the messages in flight, and has the dead letters, a queue like any other.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from tidings.errors import NotAllowed, QueueError, QueueExists, QueueFull, QueueNotFound, Refused
from tidings.event import Batch
from tidings.event.relayed import RelayedBatch
from tidings.exchange import EventSink, Need, NodeSubscription, Positions, Rows
from tidings.filters import Filter
from tidings.ids import ForwardedOrigin, Origin, make_id
from tidings.protocol.access import NOBODY, OWNER
from tidings.protocol.broker import Broker
from tidings.queues.backend import QueueBackend
from tidings.queues.dead_letters import DeadLetters
from tidings.queues.description import (
    DEAD,
    Description,
    QueueSearch,
    check_name,
    checked,
    decode,
    encode,
    split_address,
    unknown_node,
)
from tidings.queues.inflight import InFlightTable
from tidings.queues.message import LENGTH_MAX, MessageNumbers, QueuedMessage, counter_of, origin_of
from tidings.queues.queue import MessageQueue, Undo
from tidings.queues.types import TYPES, Volatile
from tidings.queues.waiting import QueueReader
from tidings.steps import Steps
from tidings.store.interface import (
    Dequeue,
    DropQueue,
    Enqueue,
    Operation,
    PutQueue,
    QueueRecord,
    Revise,
    StoredMessage,
)

QUEUES_MAX = 100_000
"""Queues and aliases of one node."""
SIZE_MAX = 8 << 30
"""Bytes that the messages of all queues may hold."""
FOUND_MAX = 10_000
"""Descriptions in one answer."""
LOOKED_AT_ONCE = 128
"""Descriptions that are looked at in one step."""


class QueueManager:
    """Manager of a node's queues. `lasts` says whether the store survives a restart."""

    def __init__(self, broker: Broker, lasts: bool, types: Iterable[type[Volatile]] = ()) -> None:
        self.broker = broker
        self.lasts = lasts
        self.types = {**TYPES, **{kind.name: kind for kind in types}}
        self.numbers = MessageNumbers()
        self.timers = broker.timers
        self.in_flight = InFlightTable(self)
        self.backends: list[QueueBackend] = []  # where there are further queues, in the order they are asked
        self.ready_readers: dict[QueueReader, None] = {}  # got something, and are answered when the tick ends
        # Restored messages that someone may have held before, and where.
        self.doubtful: dict[int, MessageQueue] = {}
        # Messages that are not on disk yet, and the commit they are in.
        self.fresh: OrderedDict[int, int] = OrderedDict()
        self.size = 0
        self.dead_letters = DeadLetters(self)
        self.on_new: Callable[[MessageQueue], None] = lambda _queue: None  # called with each that is made
        self._queues: dict[str, MessageQueue] = {}  # by name
        self._ids: dict[str, MessageQueue] = {}
        self._aliases: dict[str, tuple[int, Description]] = {}
        self._aliases_of: dict[str, dict[str, None]] = {}  # by the names of their queues
        # What is not on disk yet, by the commit it is in, and how to undo it if that can't be made.
        self._log: deque[tuple[int, Sequence[Operation], Undo]] = deque()

    # Queues

    def restore(self, records: Iterable[QueueRecord], stored: Iterable[StoredMessage]) -> None:
        """Make the queues that were kept, with their messages; what belongs to no queue is given up."""
        queues: dict[int, MessageQueue] = {}
        for record in records:
            self.numbers.last = max(self.numbers.last, record.key, record.handed)
            description = decode(record.description)
            if description.alias_of is not None:
                self._name(record.name, record.key, description)
            else:
                queues[record.key] = self._add(record.key, description, record.handed)
        parts: dict[int, list[tuple[int, bytes]]] = {}
        heads: list[StoredMessage] = []
        for one in stored:
            self.numbers.last = max(self.numbers.last, one.number)
            if one.part_of:
                parts.setdefault(one.part_of, []).append((one.number, one.raw))
            else:
                heads.append(one)
        origins: dict[Origin, Origin] = {}
        for one in heads:
            self._restore(one, queues.get(one.queue), parts.pop(one.number, []), origins)
        for orphans in parts.values():
            self._give_up(number for number, _ in orphans)
        for queue in queues.values():
            queue.recovery.bury_lost()

    def _restore(
        self,
        stored: StoredMessage,
        queue: MessageQueue | None,
        parts: list[tuple[int, bytes]],
        origins: dict[Origin, Origin],
    ) -> None:
        if queue is None or not queue.kind.persistent:
            self._give_up((stored.number, *(number for number, _ in parts)))
            return
        origin = origin_of(stored)
        self.broker.ledger.learn(origin, counter_of(stored.raw))
        message = QueuedMessage(stored.number, stored.raw, origins.setdefault(origin, origin))
        if queue.recovery.restore(message, stored.deliveries, parts):
            self.doubtful[message.number] = queue

    def _give_up(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.broker.store(Dequeue(number))

    def create(self, wanted: Description) -> MessageQueue:
        """Make a queue; the one that is there if it has the same description, QueueExists if another."""
        key = self.numbers.next(self.broker.wall)
        identity = make_id(self.broker.node, self.broker.boot, key)
        if not wanted.name:
            wanted = replace(wanted, name=identity)
        kinds = {name: kind.persistent for name, kind in self.types.items()}
        description = checked(wanted, self.lasts, kinds)
        known = self._queues.get(description.name)
        if known is not None:
            if known.description.bind is not None and known.description.maker != wanted.maker:
                raise QueueExists(description.name, "it exists already, bound with another user's rights")
            difference = known.description.difference(description)
            if difference:
                raise QueueExists(
                    description.name, f"it exists already with another description: {difference}"
                )
            return known
        if description.compress:
            from tidings.store.packing import check_compression

            check_compression()
        self._check_free(description.name)
        queue = self._add(key, replace(description, id=identity, alias_of=None))
        if queue.description.keep:
            self.broker.store(queue.record())
        return queue

    def _check_free(self, name: str) -> None:
        if name in self._aliases:
            raise QueueExists(name, f"it is an alias of {self._aliases[name][1].alias_of}")
        if name in self._queues:
            raise QueueExists(name, "it exists already")
        if len(self._queues) + len(self._aliases) >= QUEUES_MAX and name != DEAD:
            raise QueueError(name, f"a node has at most {QUEUES_MAX} queues")

    def _add(self, key: int, description: Description, handed: int = 0) -> MessageQueue:
        kind = self.types.get(description.type)
        if kind is None:
            raise QueueError(
                description.name, f"its type {description.type!r} is not registered with this node"
            )
        queue = MessageQueue(key, description, kind(key, description), self, handed)
        self._queues[queue.name] = self._ids[description.id] = queue
        self.on_new(queue)
        if description.bind is not None:
            self._bind(queue, description.bind)
        return queue

    def _bind(self, queue: MessageQueue, wanted: str) -> None:
        """Put matching publications into a queue, as far as its creator may subscribe to them."""
        asked, maker = Filter(wanted), queue.description.maker
        principal = (self.broker.authenticator.principal_of(maker) or NOBODY) if maker else OWNER
        queue.binding = NodeSubscription(
            principal.reach(asked),
            BoundQueue(self, queue),
            queue.description.passive,
            user=principal.bound,
            asked=asked,
        )
        self.broker.exchange.subscribe(queue.binding)

    def review(self) -> None:
        """The rules may have changed: what is put into bound queues is what their makers may subscribe to."""
        for queue in self._queues.values():
            if queue.binding is not None and queue.description.maker:
                self.broker.exchange.unsubscribe(queue.binding)
                self._bind(queue, queue.description.bind or "")

    def alias(self, name: str, target: str) -> MessageQueue:
        """Give a queue a further name."""
        queue = self.find(target)
        known = self._aliases.get(name)
        if known is not None and known[1].alias_of == queue.name:
            return queue
        if name == DEAD:
            raise QueueExists(name, "it is the name of the dead letters")
        self._check_free(name)
        check_name(name)
        key = self.numbers.next(self.broker.wall)
        description = Description(name=name, alias_of=queue.name)
        self._name(name, key, description)
        if queue.description.keep:
            self.broker.store(PutQueue(QueueRecord(key, name, 0, encode(description))))
        return queue

    def _name(self, alias: str, key: int, description: Description) -> None:
        self._aliases[alias] = key, description
        self._aliases_of.setdefault(description.alias_of or "", {})[alias] = None

    def _unname(self, alias: str) -> None:
        key, description = self._aliases.pop(alias)
        of = self._aliases_of[description.alias_of or ""]
        del of[alias]
        if not of:
            del self._aliases_of[description.alias_of or ""]
        self.broker.store(DropQueue(key))

    def delete(self, address: str) -> MessageQueue | None:
        """Delete a queue with all that is in it, or an alias alone; the queue that is gone.

        Its messages are out of reach at once and forgotten bit by bit. If the node ends before that, those
        that are left are given up when it starts again.
        """
        name = address if address in self._queues else self._local(address)
        if name in self._aliases:
            self._unname(name)
            return None
        queue = self.find(address)
        if queue.kind.is_own:
            raise NotAllowed(f"{queue.name!r} is the node's own: it can be purged, and not deleted")
        if queue.binding is not None:
            self.broker.exchange.unsubscribe(queue.binding)
        self.begin(queue.close())
        if queue.description.keep:
            self.broker.store(DropQueue(queue.key))
        del self._queues[queue.name], self._ids[queue.description.id]
        for alias in list(self._aliases_of.get(queue.name, ())):
            self._unname(alias)
        return queue

    def find(self, address: str) -> MessageQueue:
        """The queue of this name, alias, id or `name@node`; QueueNotFound if there is none."""
        queue = self._queues.get(address)
        if queue is not None:
            return queue
        name = self._local(address)
        if name in self._aliases:
            name = self._aliases[name][1].alias_of or ""
        queue = self._queues.get(name) or self._ids.get(name)
        if queue is None:
            raise QueueNotFound(address, "there is no such queue")
        return queue

    def get(self, name: str) -> MessageQueue | None:
        """The queue of this name or id here, if there is one."""
        return self._queues.get(name) or self._ids.get(name)

    def _local(self, address: str) -> str:
        """The name or id in an address of this node."""
        name, node = split_address(address)
        if node is not None and node not in (self.broker.node, self.broker.name):
            raise unknown_node(address, self.broker.node, node)
        return name

    def knows(self, address: str) -> bool:
        """Whether there is a queue of this name, alias, id or `name@node` here."""
        try:
            self.find(address)
        except QueueNotFound:
            return False
        return True

    def search(self, sought: QueueSearch) -> Steps[list[Description]]:
        """Return the descriptions that match; an alias is returned as such. Refused if there are too many."""
        found: list[Description] = []
        for count, one in enumerate([*self._queues, *self._aliases], 1):
            description = self._described(one, sought)
            if description is not None:
                found.append(description)
            if len(found) > FOUND_MAX:
                raise Refused("limit", f"more than {FOUND_MAX} queues agree: ask for less")
            if not count % LOOKED_AT_ONCE:
                yield
        return found

    def _described(self, one: str, sought: QueueSearch) -> Description | None:
        """The description of a queue or an alias, if it agrees."""
        queue = self._queues.get(one)
        if queue is not None:
            return queue.describe() if queue.description.agrees(sought) else None
        if one not in self._aliases:
            return None
        target = self._aliases[one][1].alias_of
        known = self._queues.get(target or "")
        if known is None:
            return None
        described = replace(known.description, name=one, alias_of=target)
        return replace(known.describe(), name=one, alias_of=target) if described.agrees(sought) else None

    def queues(self, most: int) -> list[MessageQueue]:
        """Return the oldest queues, up to so many."""
        return list(islice(self._queues.values(), most))

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[MessageQueue]:
        return iter(list(self._queues.values()))

    # What the queues need

    def keep(self, operations: Sequence[Operation], undo: Undo | None = None) -> int:
        """Store these with this tick; `undo` is called if that can't be. The mark of the commit."""
        mark = self.broker.mark
        if undo is not None:
            self._log.append((mark, operations, undo))
        for operation in operations:
            if isinstance(operation, Enqueue):
                self.fresh[operation.message.number] = mark
            self.broker.store(operation)
        return mark

    def begin(self, steps: Steps[None]) -> Steps[None] | None:
        """Have long work done to its end, the first step now; what is left, for who waits for that."""
        return _follow(steps) if self.broker.background.begin(steps) else None

    def grow(self, size: int) -> None:
        """Count bytes that messages hold; fewer, if it is negative."""
        self.size += size

    def gone(self, message: QueuedMessage) -> None:
        """A message is stored no longer, nor is the counter that its sender gave it."""
        self.doubtful.pop(message.number, None)
        if message.origin is not None:
            self.broker.ledger.gone(message.origin, counter_of(message.raw))

    def check_size(self, name: str) -> None:
        """Raise QueueFull, for the queue of this name, if those of this node hold as much as they may."""
        if self.size > SIZE_MAX:
            raise QueueFull(name, f"the queues of this node hold {SIZE_MAX} bytes")

    # Commits

    def durable(self, mark: int) -> None:
        """Everything up to this mark is on disk."""
        while self._log and self._log[0][0] <= mark:
            self._log.popleft()
        fresh = self.fresh
        while fresh and fresh[first := next(iter(fresh))] <= mark:
            del fresh[first]

    def quiet(self) -> None:
        """Nothing waits for a commit: there is nothing to undo."""
        self._log.clear()

    def failed(self, lost: list[Operation]) -> list[Operation]:
        """These could not be stored: undo what clients will do again; the rest is to be stored yet."""
        undone: set[int] = set()
        never_put: set[int] = set()
        while self._log:
            _, operations, undo = self._log.pop()
            undone.update(map(id, operations))
            never_put.update(one.message.number for one in operations if isinstance(one, Enqueue))
            undo()
        kept = [one for one in lost if id(one) not in undone and _number_of(one) not in never_put]
        mark = self.broker.mark
        self.fresh = OrderedDict((one.message.number, mark) for one in kept if isinstance(one, Enqueue))
        for queue in self._queues.values():
            if queue.handed_mark > self.broker.mark_durable:
                queue.handed_mark = mark
        for reader in list(self.ready_readers):
            self._look_again(reader)
        return kept

    def _look_again(self, reader: QueueReader) -> None:
        """Take undone messages from a reader that is not answered yet; with none left, it waits on."""
        queue = reader.queue
        reader.keep(queue.is_still_with)
        reader.is_cut = False
        if not reader.taken:
            del self.ready_readers[reader]
        if not reader.turn and not reader.is_content:
            queue.waiting.add(reader)


def _follow(steps: Steps[None]) -> Steps[None]:
    """Do steps that are done in the background too: those who wait for the end help, and may leave."""
    for _ in steps:
        yield


def _number_of(operation: Operation) -> int | None:
    """The message that an operation is about."""
    if isinstance(operation, Enqueue | Revise):
        return operation.message.number
    return operation.number if isinstance(operation, Dequeue) else None


class BoundQueue(EventSink):
    """Puts publications that match into a queue; those it has no room for are dead letters.

    `leads_to` returns the id of the node to which they go, if it is another one. Neither requests of clients
    of this node nor the answers to these are of use there: an inbox is at one node. What that node has had
    does not go back to it, and what a neighbour has relayed here is for its first node to send on. The other
    node has the rest in its log.
    """

    def __init__(
        self, manager: QueueManager, queue: MessageQueue, leads_to: Callable[[], str] | None = None
    ) -> None:
        self._manager = manager
        self._queue = queue
        self._leads_to = leads_to

    def need(self, count: int) -> Need:  # noqa: ARG002
        """Have nothing stored: the queue stores for itself."""
        return Need.NOTHING if self._leads_to is None else Need.ELSEWHERE

    def outward(self, batch: Batch, rows: Rows) -> Rows:
        """Return the rows that go to the other node."""
        origin, above = batch.origin, "" if self._leads_to is None else self._leads_to()
        has_passed = isinstance(origin, ForwardedOrigin) and above in origin.passed
        if has_passed or isinstance(batch, RelayedBatch):
            return ()
        answers, requests = self._manager.broker.answers.look(batch)
        return [row for row in rows if row not in answers and row not in requests]

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        """Take these rows of the batch."""
        queue = self._queue
        is_sent_again = positions is not None  # if this can't be stored
        raw, offsets = batch.raw, batch.offsets
        for row in rows if self._leads_to is None else self.outward(batch, rows):
            event = raw[offsets[row] : offsets[row + 1]]
            if len(event) > LENGTH_MAX:
                self._manager.broker.count("dropped", reason="too-large")
                continue
            try:
                self._manager.check_size(queue.name)
                queue.check_room_for(event)
            except QueueFull as error:
                letter = QueuedMessage(0, event, batch.origin)
                self._manager.dead_letters.bury(queue, letter, error.problem, 0, is_sent_again)
            else:
                queue.put(event, batch.origin, undo=is_sent_again)

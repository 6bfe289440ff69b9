"""What a host stores, so that it carries on after a restart: replicas, ids that were had, acknowledgements.

The messages are in a queue (`queued_buffer.py`), and what the host knows of its replica is a small record
beside. Moments are stored as those of the wall clock, and become moments of the steady one when they are
read: nothing lives longer than its life, whatever the clock has been set to meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from tidings.adhoc.frames import Naming
from tidings.adhoc.host import AdhocHost
from tidings.adhoc.messages import TTL_S_MAX, MessageId, Replica, StoredReplica
from tidings.adhoc.queued_buffer import QueuedReplicas, check_carried
from tidings.adhoc.ring import RingEntry
from tidings.adhoc.seen_ids import SeenIdsRecord
from tidings.ids import parse_id
from tidings.protocol.broker import Broker
from tidings.store.interface import RECORD_VALUE_SIZE_MAX, Operation, RecordKind

PART_SIZE = RECORD_VALUE_SIZE_MAX - 1_024
"""Bytes of a message in one record."""
SEEN_GAPS_MAX = 2_000
"""Gaps in the numbers of one sender that are remembered: they stand in one record."""


class HostRecord(Struct, frozen=True):
    """What a host knows of itself."""

    epoch: int  # of its last start


class MessagePart(Struct, frozen=True, array_like=True):
    """A part of the bytes of a message, as they were stored before they were in a queue."""

    raw: bytes


class PartialRecord(Struct, frozen=True, array_like=True):
    """A piece of a message that has come in part, and the end of its life by the wall clock."""

    raw: bytes
    expires: float


class AcknowledgementRecord(Struct, frozen=True, array_like=True):
    """An acknowledgement that was heard, with the end of its message's life by the wall clock."""

    recipient: str
    expires: float
    proof: bytes


class AwaitedRecord(Struct, frozen=True, array_like=True):
    """A message of this host whose sender asks for reports; `raw` is its event without the body."""

    queue: str  # as the sender called it
    pending: tuple[str, ...]
    report: float  # moment of the wall clock
    raw: bytes
    system: str | None
    epoch: int
    source: str | None


class HeldPlaceRecord(Struct, frozen=True, array_like=True):
    """A queue or topic that is held here, or was entered by hand."""

    kind: str
    holder: str
    replicas: int = 0
    deputies: tuple[str, ...] = ()
    naming: Naming | None = None  # by which this host stands in for another
    queue: str = ""  # the id of the queue that was made for that
    follows: bool = False


class VacancyRecord(Struct, frozen=True, array_like=True):
    """A queue or topic that this host holds when the lease of its holder has ended."""

    kind: str
    naming: Naming
    ends: float  # moment of the wall clock


class LeftPlaceRecord(Struct, frozen=True, array_like=True):
    """A queue or topic that this host has held, and who holds it now."""

    kind: str
    naming: Naming
    holder: str
    queue: str  # the id of the queue that is handed over, '' for none
    ends: float  # moment of the wall clock; then nothing can come any more that was sent here


class SubscriberRecord(Struct, frozen=True, array_like=True):
    """A subscriber of a topic that is held here, also one that has ended its subscription."""

    durable: bool
    ends: float  # moment of the wall clock
    stamp: tuple[int, int] = (0, 0)
    is_ended: bool = False


HOST: RecordKind[tuple[str], HostRecord] = RecordKind("adhoc-host", HostRecord)
REPLICAS: RecordKind[tuple[str], StoredReplica] = RecordKind("adhoc-replica", StoredReplica)
PARTS: RecordKind[tuple[str, str], MessagePart] = RecordKind("adhoc-part", MessagePart)
PARTIAL: RecordKind[tuple[str, str], PartialRecord] = RecordKind("adhoc-partial", PartialRecord)
SEEN: RecordKind[tuple[str, str], SeenIdsRecord] = RecordKind("adhoc-seen", SeenIdsRecord)
RING: RecordKind[tuple[str, str], AcknowledgementRecord] = RecordKind(
    "adhoc-acknowledged", AcknowledgementRecord
)
AWAITED: RecordKind[tuple[str], AwaitedRecord] = RecordKind("adhoc-awaited", AwaitedRecord)
PLACES: RecordKind[tuple[str], HeldPlaceRecord] = RecordKind("adhoc-place", HeldPlaceRecord)
VACANCIES: RecordKind[tuple[str], VacancyRecord] = RecordKind("adhoc-vacancy", VacancyRecord)
LEFT: RecordKind[tuple[str], LeftPlaceRecord] = RecordKind("adhoc-left", LeftPlaceRecord)
SUBSCRIBERS: RecordKind[tuple[str, str], SubscriberRecord] = RecordKind("adhoc-subscriber", SubscriberRecord)


def id_of(text: str) -> MessageId:
    """Return the id of a message whose text was stored."""
    parsed = parse_id(text)
    assert parsed is not None, "it was stored by this code"
    return MessageId(*parsed)


def next_epoch(broker: Broker) -> int:
    """Return the epoch of this start, above all before: by the clock, also if that was set back."""
    known = HOST.known(broker.state).get((broker.name,))
    epoch = max(int(broker.wall * 1e6), 0 if known is None else known.epoch + 1)
    broker.store(HOST.set((broker.name,), HostRecord(epoch)))
    return epoch


class HostStore:
    """Stores what changes at a host with the commits of its node, and restores it."""

    def __init__(self, broker: Broker, buffer: QueuedReplicas) -> None:
        self._broker = broker
        self._buffer = buffer
        self._kept: set[MessageId] = set()  # replicas that have a record
        self._ring: deque[RingEntry] = deque()  # those that are stored, oldest first
        self._partial: dict[MessageId, tuple[int, int]] = {}  # records and bytes of those that came in part

    def _store(self, operations: Iterable[Operation]) -> None:
        for one in operations:
            self._broker.store(one)

    def _wall(self, moment: float) -> float:
        return moment - self._broker.now + self._broker.wall

    # Replicas

    def keep(self, replica: Replica) -> None:
        """Store a replica that is new or has changed."""
        head = StoredReplica(
            replica.message,
            tuple(sorted(replica.pending)),
            self._wall(replica.expires_at),
            replica.copies,
            replica.hops,
            self._buffer.number_of(replica.id),
        )
        self._kept.add(replica.id)
        self._broker.store(REPLICAS.set((str(replica.id),), head))

    def drop(self, id: MessageId) -> None:
        """Store a replica no longer."""
        if id in self._kept:
            self._kept.remove(id)
            self._broker.store(REPLICAS.drop((str(id),)))

    def follow_partial(self, host: AdhocHost) -> None:
        """Store what has come of messages that are not whole, and forget those that are, or are gone."""
        for id, offset in host.partial.take_changed():
            count, size = self._partial.get(id, (0, 0))
            found = host.partial.get(id)
            if found is None or offset < size:
                self._drop_partial(id)
                count = size = 0
            if found is not None:
                part, expires_at = found
                pieces = [bytes(part[at : at + PART_SIZE]) for at in range(size, len(part), PART_SIZE)]
                expires = self._wall(expires_at)
                for at, raw in enumerate(pieces, count):
                    self._broker.store(PARTIAL.set((str(id), str(at)), PartialRecord(raw, expires)))
                self._partial[id] = count + len(pieces), len(part)

    def _drop_partial(self, id: MessageId) -> None:
        count, _ = self._partial.pop(id, (0, 0))
        self._store(PARTIAL.drop((str(id), str(at))) for at in range(count))

    def _restore_partial(self, host: AdhocHost) -> None:
        broker, pieces = self._broker, PARTIAL.taken(self._broker.state)
        for text in dict.fromkeys(text for text, _ in pieces):
            raws: list[PartialRecord] = []
            while (piece := pieces.pop((text, str(len(raws))), None)) is not None:
                raws.append(piece)
            expires_at = broker.deadline(min((one.expires for one in raws), default=0.0), TTL_S_MAX)
            part = b"".join(one.raw for one in raws)
            self._partial[id_of(text)] = len(raws), len(part)
            if expires_at > broker.now:
                host.partial.restore(id_of(text), part, expires_at)
            else:
                self._drop_partial(id_of(text))
        for key in pieces:  # behind one that is damaged
            broker.store(PARTIAL.drop(key))

    # Ids and acknowledgements

    def note_seen(self, host: AdhocHost, id: MessageId) -> None:
        """Store that a message was delivered here."""
        self._broker.store(SEEN.set((id.system, str(id.epoch)), host.seen.record(id)))

    def follow_ring(self, host: AdhocHost) -> None:
        """Store what was added to the ring, and forget what has gone from it."""
        last = self._ring[-1].number if self._ring else 0
        for entry in host.ring.behind(last):
            self._ring.append(entry)
            record = AcknowledgementRecord(entry.recipient, self._wall(entry.expires_at), entry.proof)
            self._broker.store(RING.set((str(entry.id), entry.recipient), record))
        while self._ring and self._ring[0].number < host.ring.first:
            gone = self._ring.popleft()
            self._broker.store(RING.drop((str(gone.id), gone.recipient)))

    # The start

    def restore(self, host: AdhocHost) -> None:
        """Have a host know again what was stored; what has expired meanwhile is dropped and counted."""
        state, broker = self._broker.state, self._broker
        host.seen.restore(SEEN.taken(state).values(), broker.now)
        for (text, recipient), ack in RING.taken(state).items():
            left_s = broker.deadline(ack.expires) - broker.now
            if left_s > 0:
                host.ring.add(id_of(text), recipient, broker.now + left_s, ack.proof)
            self._broker.store(RING.drop((text, recipient)))  # it is stored again under its new number
        self.follow_ring(host)
        self._restore_partial(host)
        self._restore_replicas(host)

    def _restore_replicas(self, host: AdhocHost) -> None:
        state, buffer = self._broker.state, self._buffer
        known, numbers = REPLICAS.taken(state), dict.fromkeys(buffer.stored)
        for stored in sorted(known.values(), key=lambda one: one.number):
            reason = self._restore(stored, numbers)
            if reason:
                self._broker.store(REPLICAS.drop((str(stored.message.id),)))
                host.tallies["dropped", reason] += 1
        buffer.drop(list(numbers))  # of which nothing is known
        for replica in buffer.shrink():
            host.tallies["dropped", "displaced"] += 1
            self.drop(replica.id)
        self._store(PARTS.drop(key) for key in PARTS.taken(state))

    def _restore(self, stored: StoredReplica, numbers: dict[int, None]) -> str:
        """Know a replica again; why not, '' if it is. `numbers` loses that of its message."""
        message, now = stored.message, self._broker.now
        expires_at = self._broker.deadline(stored.expires, message.ttl_s)
        if expires_at <= now:
            return "expired"
        replica = Replica(message, set(stored.pending), expires_at, now, stored.copies, stored.hops)
        if not stored.number:
            return self._take_over(replica)
        if stored.number not in numbers:
            return "damaged"
        del numbers[stored.number]
        self._kept.add(replica.id)
        self._buffer.take(replica, stored.number)
        return ""

    def _take_over(self, replica: Replica) -> str:
        """Put a message into the queue whose bytes were stored in parts."""
        parts, raws = PARTS.known(self._broker.state), list[bytes]()
        while (part := parts.get((str(replica.id), str(len(raws))))) is not None:
            raws.append(part.raw)
        replica.message = message = replace(replica.message, raw=b"".join(raws))
        if len(message.raw) != message.size or check_carried(message):
            return "damaged"
        displaced = self._buffer.put(replica)
        if displaced is None:
            return "displaced"  # the buffer was made smaller
        for gone in displaced:
            self.drop(gone.id)
        self.keep(replica)
        return ""

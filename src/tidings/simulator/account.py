"""Accounts of a simulation: of the events that were delivered, and of the messages in queues.

Rules for events, checked at every delivery: a subscriber gets an event again only if it is marked as
redelivered, and never twice in one life; events of a publisher come in order; every event matches the filter
and was published. At the end, when everything has healed: each event that was accepted and had to arrive has
arrived.

At each message that comes out of a queue the account checks that it was put, is unchanged, and matches; the
watch at the node checks the rest. At the end, when the queues are empty: every accepted message was
processed, no refused one ever came, and each transaction was done whole or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum
from math import inf

from msgspec import Struct

from tidings.event import Event
from tidings.filters import Filter
from tidings.protocol.subscriber import Wanted
from tidings.queues.dead_letters import MARKS

EventIdentity = tuple[str, int, int]
"""System, epoch and counter of an event."""
BatchKey = tuple[str, str, int]
"""Node, sink and number of a batch."""

LATE_S = 10.0
"""Longest time from the node's delivery of a message to its arrival."""


class SubscriberAccount:
    """Account of one subscriber, over all its lives."""

    def __init__(self, wanted: Wanted, keeps: frozenset[str]) -> None:
        self.filter = Filter(wanted.filter)
        self.keeps = keeps  # kinds of delivery of which it must get every event
        self.is_rereading = wanted.since is not None  # each life starts in the past again
        self.had: set[EventIdentity] = set()
        self.known: set[EventIdentity] = set()  # may come again only if marked as redelivered
        self.marked = 0
        self.dropped = 0
        self.last: dict[tuple[str, int], int] = {}  # counter, by system and epoch, in this life


class StormAccount:
    """Account of the events published, accepted and delivered in a simulation."""

    def __init__(self) -> None:
        self.events: dict[EventIdentity, Event] = {}
        self.promised: dict[EventIdentity, None] = {}
        self.readers: dict[str, SubscriberAccount] = {}

    def read_by(self, name: str, wanted: Wanted, keeps: frozenset[str]) -> None:
        """Add a subscriber, before anything is published."""
        self.readers[name] = SubscriberAccount(wanted, keeps)

    def begin(self, name: str) -> None:
        """Begin a new life of a subscriber."""
        reader = self.readers[name]
        reader.last = {}
        if reader.is_rereading:
            reader.known.clear()

    def published(self, identity: EventIdentity, event: Event) -> None:
        """Note that a publisher has sent an event."""
        self.events[identity] = event

    def accepted(self, identity: EventIdentity) -> None:
        """Note that the node has accepted an event."""
        self.promised[identity] = None

    def dropped(self, name: str, count: int) -> None:
        """Note a gap that was reported to a subscriber."""
        self.readers[name].dropped += count

    def delivered(self, name: str, identity: EventIdentity, event: Event, redelivered: bool) -> None:
        """Check and note the delivery of an event to a subscriber."""
        reader = self.readers[name]
        sent = self.events.get(identity)
        assert sent is not None, f"{name} got {identity}, which nobody published"
        assert event.values == sent.values, f"{name} got {identity} changed"
        assert reader.filter.matches(event), f"{name} got {identity}, which it does not want"
        assert redelivered or identity not in reader.known, f"{name} got {identity} twice"
        system, epoch, counter = identity
        last = reader.last.get((system, epoch), 0)
        assert counter > last, f"{name} got {identity} after {last}"
        reader.last[system, epoch] = counter
        reader.had.add(identity)
        reader.known.add(identity)
        reader.marked += redelivered

    def missing(self) -> list[tuple[str, EventIdentity]]:
        """Return the events that were accepted, had to arrive, and did not, each with its subscriber."""
        return [
            (name, identity)
            for name, reader in self.readers.items()
            for identity in self.promised
            if identity not in reader.had
            and self.events[identity].delivery in reader.keeps
            and reader.filter.matches(self.events[identity])
        ]


# Queues


class Outcome(Enum):
    """Reply to an application about a put, a settlement or a transaction."""

    OPEN = "open"  # no reply yet; or none any more, after a crash
    DONE = "done"
    REFUSED = "refused"


class TransactionRecord(Struct, eq=False):
    """Transaction, as its application knows it."""

    puts: list[EventIdentity] = []
    takes: list[EventIdentity] = []
    answer: Outcome = Outcome.OPEN


class PutRecord(Struct, eq=False):
    """Event that was put into a queue, or published for one."""

    event: Event
    unit: TransactionRecord | None
    parts: int  # of its body, after the first
    lasts_until: float  # after this it may expire, or be lost with a node that crashes
    own_answer: Outcome = Outcome.OPEN

    @property
    def answer(self) -> Outcome:
        """Reply to the application, for this put alone or for its transaction."""
        return self.own_answer if self.unit is None else self.unit.answer


class SettledRecord(Struct, eq=False):
    """Message that its application has acknowledged."""

    identity: EventIdentity
    answer: Outcome = Outcome.OPEN


class QueueAccount:
    """Account of the queues of one node."""

    def __init__(self) -> None:
        self.puts: dict[EventIdentity, PutRecord] = {}
        self.units: list[TransactionRecord] = []
        self.settled: list[SettledRecord] = []
        self.handed: dict[EventIdentity, int] = {}

    # Actions of applications

    def put(
        self,
        identity: EventIdentity,
        event: Event,
        lasts_until: float,
        unit: TransactionRecord | None = None,
        parts: int = 0,
    ) -> PutRecord:
        """Note that an event is being put into a queue."""
        put = self.puts[identity] = PutRecord(event, unit, parts, lasts_until)
        if unit is not None:
            unit.puts.append(identity)
        return put

    def begin(self) -> TransactionRecord:
        """Note that a transaction begins."""
        self.units.append(TransactionRecord([], []))
        return self.units[-1]

    def got(self, who: str, identity: EventIdentity, event: Event, where: str, parts: int) -> None:
        """Check and note a message that came for a `get` with this filter."""
        put = self.puts.get(identity)
        assert put is not None, f"{who} got {identity}, which nobody put"
        values = {name: value for name, value in event.values.items() if name not in MARKS}
        assert (values, parts) == (put.event.values, put.parts), f"{who} got {identity} changed"
        assert Filter(where).matches(event), f"{who} got {identity}, and asked for {where}"
        self.handed[identity] = self.handed.get(identity, 0) + 1

    def finish(self, identity: EventIdentity) -> SettledRecord:
        """Note that an application acknowledges a message."""
        self.settled.append(SettledRecord(identity))
        return self.settled[-1]

    # Final checks

    def check(self, started_at: float) -> None:
        """Check everything, now that the queues are empty; `started_at` is the last start of the node."""
        for unit in self.units:
            came = {identity in self.handed for identity in self._lasting(unit, started_at)}
            assert len(came) < 2, f"of a transaction that was {unit.answer.value} some came, and some did not"
        finished = self._finished(started_at)
        for identity, put in self.puts.items():
            if put.answer is Outcome.DONE and put.lasts_until > started_at:
                assert identity in finished, f"{identity} was accepted, and nobody has dealt with it"
            if put.answer is Outcome.REFUSED:
                assert identity not in self.handed, f"{identity} was refused, and came nonetheless"

    def _lasting(self, unit: TransactionRecord, started_at: float) -> list[EventIdentity]:
        return [one for one in unit.puts if self.puts[one].lasts_until > started_at]

    def _finished(self, started_at: float) -> set[EventIdentity]:
        """Return the messages that may count as processed; an open transaction is judged by its puts."""
        ended = {one.identity for one in self.settled if one.answer is not Outcome.REFUSED}
        for unit in self.units:
            has_come = all(one in self.handed for one in self._lasting(unit, started_at))
            if unit.answer is Outcome.DONE or (unit.answer is Outcome.OPEN and has_come):
                ended.update(unit.takes)
        return ended

    # Figures

    def count(self, answer: Outcome) -> int:
        """Number of puts with this reply."""
        return sum(put.answer is answer for put in self.puts.values())


class StagedBatch(Struct, eq=False):
    """Batch of a sink."""

    rows: int
    answer: Outcome = Outcome.OPEN


class PeerAccount(QueueAccount):
    """Account of queues at several nodes, and of the events that the logs of these nodes must have.

    Checks more than `QueueAccount`: a message is in its queue once, however it came there; at most
    one application gets its acknowledgement of a message confirmed; and each event that was published, or
    committed in a batch of a sink, is in the log of its node once. A settlement that failed because the node
    was away may have been done or not: it counts as neither.
    """

    def __init__(self) -> None:
        super().__init__()
        # With the node whose log must have it.
        self.published: dict[EventIdentity, tuple[str, PutRecord]] = {}
        self.batches: dict[BatchKey, StagedBatch] = {}
        self.homes: dict[EventIdentity, str] = {}  # the node in whose queue a message is
        self._numbers: dict[EventIdentity, int] = {}  # in the queue that has it
        self._met_at: dict[EventIdentity, float] = {}
        self._ended: dict[EventIdentity, str] = {}  # by which application, in which of its lives

    # Actions of applications

    def met(self, who: str, identity: EventIdentity, number: int, now: float) -> None:
        """Check that a message has only one number in its queue."""
        self._met_at.setdefault(identity, now)
        first = self._numbers.setdefault(identity, number)
        assert first == number, f"{who}: {identity} is in its queue twice: {first} and {number}"

    def ended(self, who: str, identity: EventIdentity, started_at: float) -> None:
        """Check that only one application has its acknowledgement confirmed; the node last started then.

        A message in flight when a node is killed is redelivered, and its first consumer does not learn that.
        """
        first = self._ended.setdefault(identity, who)
        may_be_both = started_at > self._met_at[identity] - LATE_S
        assert first == who or may_be_both, f"{first} and {who} were both answered that they ended {identity}"

    def publish(self, node: str, identity: EventIdentity, event: Event) -> PutRecord:
        """Note that an event is being published at a node."""
        put = PutRecord(event, None, 0, inf)
        self.published[identity] = node, put
        return put

    def stage(self, node: str, sink: str, batch: int, rows: int) -> None:
        """Note that a batch is being staged at a node."""
        self.batches[node, sink, batch] = StagedBatch(rows)

    def commit(self, node: str, sink: str, batch: int) -> None:
        """Note that a batch is committed."""
        self.batches[node, sink, batch].answer = Outcome.DONE

    # Final checks

    def check_log(self, node: str, logged: Iterable[Event]) -> None:
        """Check that the log of a node has the events that it must have."""
        news: Counter[EventIdentity] = Counter()
        rows: Counter[tuple[str, int]] = Counter()
        for event in logged:
            if event.type == "row":
                rows[event["sink"], event["batch"]] += 1
            elif event.type == "news":
                assert event.origin is not None
                news[event.origin.system or "", event.origin.epoch, event.counter] += 1
        self._check_news(node, news)
        self._check_batches(node, rows)

    def _check_news(self, node: str, news: Counter[EventIdentity]) -> None:
        for identity, (where, put) in self.published.items():
            if where == node:
                is_done, count = put.answer is Outcome.DONE, news[identity]
                assert is_done <= count <= 1, f"{identity} is {count} times in the log of {node}"

    def _check_batches(self, node: str, rows: Counter[tuple[str, int]]) -> None:
        for (where, sink, batch), staged in self.batches.items():
            if where == node:
                found = rows[sink, batch]
                allowed = {staged.rows} if staged.answer is Outcome.DONE else {0, staged.rows}
                assert found in allowed, f"{found} of {staged.rows} rows of {sink}, batch {batch}, are logged"

"""Patterns at a node: a service of the broker, with one subscription for the steps of each pattern.

The steps stand in the exchange's index like any filter, so an event that is no step costs nothing here. The
events of a tick are used when the tick ends, and the state of each key that has changed is a record of the
commit of that tick, as the events themselves are. If a commit fails, the keys go back to the state before it.

A pattern of a session ends with it, and its matches go to its consumer. One with a name *stands*: it is
stored, its partial matches are there after a restart, and its matches are published.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from typing import Any, NamedTuple

from msgspec import Struct

from tidings.errors import NotAllowed, Refused
from tidings.event import Batch, Event
from tidings.event.relayed import RelayedBatch
from tidings.event.wire import check
from tidings.exchange import EventSink, NodeSubscription, Positions, Rows
from tidings.filters import Filter
from tidings.patterns.matcher import Matcher, decode_key, encode_key
from tidings.patterns.pattern import Pattern
from tidings.patterns.reporting import LATE_TYPE, TIMEOUT, late_event, match_event
from tidings.patterns.runs import Row, RunOutcome
from tidings.protocol.access import NOBODY, OWNER, Principal
from tidings.protocol.arguments import check_readable
from tidings.protocol.broker import Broker
from tidings.protocol.consumer import Consumer
from tidings.protocol.frames import encode
from tidings.protocol.messages import Notice
from tidings.protocol.service import Service
from tidings.protocol.session import Session
from tidings.store.interface import Operation, RecordKind

PATTERNS_MAX = 1_000
"""Patterns of a node, those of sessions and standing ones together."""
UNUSED = "patterns_unused"
"""Counter of events that were a step and could not be used, by reason."""


class StandingRecord(Struct, frozen=True):
    """A standing pattern as it is stored, with the watermark that it had."""

    pattern: str
    user: str = ""
    passive: bool = False
    watermark_us: int | None = None


class KeyRecord(Struct, frozen=True):
    """The partial matches of one key."""

    state: bytes


StandingKey = tuple[str, str]
PATTERNS: RecordKind[StandingKey, StandingRecord] = RecordKind("pattern", StandingRecord)
KEYS: RecordKind[tuple[str, str, str], KeyRecord] = RecordKind("pattern-key", KeyRecord)


class PatternWatch(EventSink):
    """A pattern at work: what comes for it is gathered until the tick ends."""

    def __init__(
        self, service: PatternService, pattern: Pattern, granted: list[Filter], matcher: Matcher
    ) -> None:
        self.pattern, self.matcher = pattern, matcher
        self.subscription = NodeSubscription(pattern.filter, self)
        self.allow(granted)
        self._service = service
        self._gathered: list[tuple[Batch, Rows, Positions]] = []
        self.changed: dict[bytes, None] = {}
        self.more: dict[str, Any] = {}  # further attributes of its matches
        self.delivery = "transient"

    def allow(self, granted: list[Filter]) -> None:
        """Let each step have the events of its filter; each is indexed by itself."""
        whole = granted[0]
        for filter in granted[1:]:
            whole = whole | filter
        self.subscription.filter, self.subscription.parts = whole, tuple(granted)

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        """Keep what is some step until the tick ends."""
        self._gathered.append((batch, rows, positions))
        self._service.note(self)

    @abstractmethod
    def report(self, matches: list[Event], unused: list[tuple[Row, str]]) -> None:
        """Deliver what a tick has brought."""

    def run(self, now: float, node: str) -> None:
        """Use what has come and what is due; `node` is the id of this node."""
        gathered, self._gathered = self._gathered, []
        unused: list[tuple[Row, str]] = []
        for batch, rows, positions in gathered:
            for row in rows:
                self._offer(batch, int(row), positions, now, node, unused)
        matches: list[Event] = []
        for key, found in self.matcher.advance(now):
            self.changed[key] = None
            for one in found:
                if isinstance(one, RunOutcome):
                    name = decode_key(key)
                    matches.append(match_event(self.pattern, name, one, self.more, self.delivery))
                else:
                    unused.append(one)
        if matches or unused:
            matches.sort(key=lambda match: match.time_us)
            self.report(matches, unused)

    def _offer(
        self,
        batch: Batch,
        row: int,
        positions: Positions,
        now: float,
        own: str,
        unused: list[tuple[Row, str]],
    ) -> None:
        event, pattern = batch[row], self.pattern
        if isinstance(batch, RelayedBatch):
            first = batch.first
            node, number = f"{first.node}~" if first.is_volatile else first.node, int(batch.numbers[row])
        elif positions is None or (stored := positions[row]) is None:
            node, number = f"{own}~", self._service.arrived()
        else:
            node, number = own, stored
        taken = Row(event.time_us, node, number, pattern.mask(event), pattern.values(event))
        key = pattern.key(event)
        if isinstance(key, str):
            unused.append((taken, key))
            return
        encoded = encode_key(key)
        reason = self.matcher.offer(encoded, taken, now)
        if reason is None:
            self.changed[encoded] = None
        else:
            unused.append((taken, reason))


class SessionWatch(PatternWatch):
    """A pattern of a session, whose consumer gets the matches."""

    consumer: Consumer

    def report(self, matches: list[Event], unused: list[tuple[Row, str]]) -> None:
        """Hand matches to the consumer; what was not used is a gap."""
        broker = self.consumer.session.broker
        self.consumer.depend()
        if matches:
            batch = Batch.of(map(broker.own, matches))
            self.consumer.deliver(batch, range(len(batch)), None)
        for reason, times in Counter(reason for _, reason in unused).items():
            broker.count(UNUSED, times, reason)
            told = {"dropped": times, "reason": reason}
            self.consumer.session.post(encode(Notice("gap", self.consumer.number, told)), self.consumer.mark)
        self.changed.clear()


class Before(NamedTuple):
    """What a key of a standing pattern, or with None its watermark, was before a commit."""

    mark: int
    watch: StandingWatch
    key: bytes | None
    state: bytes | int | None


class StandingWatch(PatternWatch):
    """A pattern with a name and an owner: it is stored, and its matches are published."""

    def __init__(
        self, service: PatternService, key: StandingKey, record: StandingRecord, granted: list[Filter]
    ) -> None:
        pattern, broker = Pattern(record.pattern), service.broker
        super().__init__(service, pattern, granted, Matcher(pattern, broker.now, record.watermark_us))
        self.key, self.record = key, record
        self.subscription.passive = record.passive
        self.subscription.owner = key[0]
        self.stored: dict[bytes, bytes] = {}
        self.more = {"pattern": "/".join(key)}
        self.delivery = "reliable"
        self._broker = broker

    @property
    def wanted(self) -> Filter:
        """The filter of its matches and time-outs."""
        types = [self.pattern.type, self.pattern.type + TIMEOUT]
        return Filter("type IN :types AND pattern = :name", types=types, name=self.more["pattern"])

    def report(self, matches: list[Event], unused: list[tuple[Row, str]]) -> None:
        """Publish matches, and what was not used as the history `late`."""
        rules = self.more, self.delivery
        events = [*matches, *(late_event(self.pattern, row, reason, *rules) for row, reason in unused)]
        for _, reason in unused:
            self._broker.count(UNUSED, 1, reason)
        batch = Batch.of(map(self._broker.own, events))
        self._broker.publishing.hand_on(batch, check(batch.raw))

    def store(self) -> Iterable[Before]:
        """Have the keys stored that have changed; yields what they were."""
        broker = self._broker
        for key in self.changed:
            state, before = self.matcher.state(key), self.stored.get(key)
            if state == before:
                continue
            yield Before(broker.mark, self, key, before)
            name = (*self.key, key.hex())
            if state is None:
                del self.stored[key]
                broker.store(KEYS.drop(name))
            else:
                self.stored[key] = state
                broker.store(KEYS.set(name, KeyRecord(state)))
        if self.changed:
            yield Before(broker.mark, self, None, self.record.watermark_us)
            self.keep(self.matcher.watermark_us(broker.now))
        self.changed.clear()

    def keep(self, watermark_us: int | None) -> None:
        """Store the pattern with this watermark."""
        record = self.record
        self.record = StandingRecord(record.pattern, record.user, record.passive, watermark_us)
        self._broker.store(PATTERNS.set(self.key, self.record))

    def restore(self, before: Before) -> None:
        """Go back to what was before a commit that was not made."""
        key, state = before.key, before.state
        if key is None:
            assert not isinstance(state, bytes)
            self.matcher.reset(state, self._broker.now)
            self.record = StandingRecord(self.record.pattern, self.record.user, self.record.passive, state)
            return
        assert not isinstance(state, int)
        self.matcher.restore(key, state)
        if state is None:
            self.stored.pop(key, None)
        else:
            self.stored[key] = state

    def dropped(self) -> Iterable[Operation]:
        """Yield the operations that remove it."""
        yield PATTERNS.drop(self.key)
        for key in self.stored:
            yield KEYS.drop((*self.key, key.hex()))


class PatternService(Service):
    """Patterns of a broker; the broker sends subscriptions with a pattern here."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        broker.patterns = self
        self._count = self._arrivals = 0
        self._noted: dict[PatternWatch, None] = {}
        self._sessions: dict[SessionWatch, None] = {}
        self._standing: dict[StandingKey, StandingWatch] = {}
        self._before: deque[Before] = deque()
        self._restore()

    def _restore(self) -> None:
        state = self.broker.state
        for key, record in PATTERNS.known(state).items():
            watch = StandingWatch(self, key, record, _filters(Pattern(record.pattern)))
            self._begin(watch)
            self._standing[key] = watch
        for (owner, name, key_text), kept in KEYS.taken(state).items():
            found = self._standing.get((owner, name))
            if found is not None:
                key_bytes = bytes.fromhex(key_text)
                found.stored[key_bytes] = kept.state
                found.matcher.restore(key_bytes, kept.state)
        self._set_alarm()

    # Patterns come and go

    def open(self, session: Session, text: str, consumer: Consumer, passive: bool) -> Callable[[], None]:
        """Let a session have the matches of a pattern, as far as its steps were granted; what ends that."""
        pattern = Pattern(text)
        granted = self._narrowed(session, pattern)
        watch = SessionWatch(self, pattern, granted, Matcher(pattern, self.broker.now))
        watch.consumer = consumer
        subscription = watch.subscription
        subscription.passive, subscription.user, subscription.owner = passive, session.bound, session
        self._begin(watch)
        self._sessions[watch] = None
        return partial(self._end, watch)

    def stand(self, session: Session, name: str, text: str, passive: bool) -> Filter:
        """Have a pattern stand under a name, unless it does; the filter of its matches."""
        pattern, key = Pattern(text), (session.owner, name)
        self._check_published(session.principal, pattern)
        granted = self._narrowed(session, pattern)
        watch = self._standing.get(key)
        if watch is not None:
            if watch.pattern != pattern:
                raise Refused("exists", f"{name!r} exists with the pattern {watch.pattern}")
            return watch.wanted
        check_readable(name, "the name of a durable subscription")
        record = StandingRecord(str(pattern), session.principal.user, passive)
        watch = StandingWatch(self, key, record, granted)
        watch.subscription.user = session.bound
        self._begin(watch)
        self._standing[key] = watch
        watch.keep(None)
        return watch.wanted

    def end(self, owner: str, name: str) -> None:
        """End a standing pattern for good, if there is one."""
        watch = self._standing.pop((owner, name), None)
        if watch is not None:
            self._end(watch)
            for operation in watch.dropped():
                self.broker.store(operation)
            self._before = deque(one for one in self._before if one.watch is not watch)

    def _narrowed(self, session: Session, pattern: Pattern) -> list[Filter]:
        """Return the filters of steps as far as they were granted; NotAllowed if one is not at all."""
        granted = [session.narrow("subscribe", filter) for filter in _filters(pattern)]
        for filter in granted:
            self.broker.exchange.unindexed.check(session.bound or "", filter)
        return granted

    def _check_published(self, principal: Principal, pattern: Pattern) -> None:
        """Raise NotAllowed for one who may not publish the matches of a standing pattern."""
        granted = principal.grant("publish")
        for kind in (pattern.type, pattern.type + TIMEOUT, pattern.type + LATE_TYPE):
            if granted is not None and not granted.covers(Filter("type = :kind", kind=kind)):
                raise NotAllowed(f"{principal.user!r} may not publish {kind!r}, as this pattern does")

    def _begin(self, watch: PatternWatch) -> None:
        if self._count >= PATTERNS_MAX:
            raise Refused("limit", f"a node has at most {PATTERNS_MAX} patterns")
        self._count += 1
        self.broker.exchange.subscribe(watch.subscription)

    def _end(self, watch: PatternWatch) -> None:
        self._count -= 1
        self._noted.pop(watch, None)
        if isinstance(watch, SessionWatch):
            self._sessions.pop(watch, None)
        self.broker.exchange.unsubscribe(watch.subscription)
        self._set_alarm()

    def review(self) -> None:
        """Let standing patterns have what their owners may subscribe to now, if these may publish."""
        authenticator = self.broker.authenticator
        for watch in self._standing.values():
            user, subscription = watch.record.user, watch.subscription
            principal = (authenticator.principal_of(user) or NOBODY) if user else OWNER
            try:
                self._check_published(principal, watch.pattern)
                granted = [principal.reach(filter) for filter in _filters(watch.pattern)]
            except NotAllowed:
                granted = [~Filter()]
            self.broker.exchange.unsubscribe(subscription)
            watch.allow(granted)
            subscription.user = principal.bound
            self.broker.exchange.subscribe(subscription)

    def status(self) -> dict[str, Any]:
        """Return the standing patterns, with the number of keys that have partial matches."""
        return {
            "patterns": [
                {"owner": owner, "name": name, "pattern": str(watch.pattern), "keys": watch.matcher.partial}
                for (owner, name), watch in self._standing.items()
            ]
        }

    # Ticks and time

    def arrived(self) -> int:
        """Return the next number of an event that is not stored: no two have one, also after a restart."""
        self._arrivals += 1
        return self.broker.boot << 40 | self._arrivals

    def note(self, watch: PatternWatch) -> None:
        """Something has come for a pattern, or is due."""
        self._noted[watch] = None

    def finish_tick(self) -> None:
        """Use what the tick has brought, and have it stored."""
        if not self._noted:
            return
        noted, self._noted = self._noted, {}
        broker = self.broker
        for watch in noted:
            watch.run(broker.now, broker.node)
        for watch in noted:
            if isinstance(watch, StandingWatch):
                self._before.extend(watch.store())
        self._set_alarm()

    def durable(self, mark: int) -> None:
        """Everything up to this mark is on disk."""
        while self._before and self._before[0].mark <= mark:
            self._before.popleft()

    def failed(self, lost: list[Operation]) -> list[Operation]:
        """Go back to the state of the last commit, and store that these patterns stand."""
        while self._before:
            one = self._before.pop()
            one.watch.restore(one)
        lost = [one for one in lost if KEYS.key_of(one) is None and _is_not_set(one, self._standing)]
        return [*lost, *(PATTERNS.set(key, watch.record) for key, watch in self._standing.items())]

    def _set_alarm(self) -> None:
        moments = [watch.matcher.wake_at() for watch in (*self._sessions, *self._standing.values())]
        moment = min(moments, default=inf)
        self.broker.timers.at(self.broker.now if self._noted else moment, self._wake)

    def _wake(self, now: float) -> None:
        for watch in (*self._sessions, *self._standing.values()):
            if watch.matcher.wake_at() <= now:
                self.note(watch)


def _filters(pattern: Pattern) -> list[Filter]:
    return [step.filter for step in pattern.steps]


def _is_not_set(operation: Operation, standing: dict[StandingKey, StandingWatch]) -> bool:
    key = PATTERNS.key_of(operation)
    return key is None or key not in standing

"""Patterns whose partial matches are stored: those with a name, and those placed at another node.

The keys that a tick has changed are stored with its commit, and go back to what they were if that fails.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from tidings.event import Batch, Event
from tidings.event.wire import check
from tidings.filters import Filter
from tidings.patterns.key_records import PatternKey, key_changes
from tidings.patterns.matcher import Matcher
from tidings.patterns.pattern import Pattern
from tidings.patterns.reporting import TIMEOUT, late_event
from tidings.patterns.watching import UNUSED, PatternWatch, Seen, UnusedRow
from tidings.store.interface import Operation, RecordKind

if TYPE_CHECKING:
    from tidings.patterns.service import PatternService


class StandingRecord(Struct, frozen=True):
    """A standing pattern as it is stored, with the watermark that it had and the events that it has used."""

    pattern: str
    user: str = ""
    passive: bool = False
    watermark_us: int | None = None
    seen: Seen = {}


PATTERNS: RecordKind[PatternKey, StandingRecord] = RecordKind("pattern", StandingRecord)


class Marks(NamedTuple):
    """What a watch has beside its keys: its watermark, what it has seen, and how many events it holds."""

    watermark_us: int | None
    seen: Seen
    held: int


class Before(NamedTuple):
    """What a key of a stored watch, or with None all beside its keys, was before a commit."""

    mark: int
    watch: StoredWatch
    key: bytes | None
    state: bytes | Marks | None


class StoredWatch(PatternWatch):
    """A pattern whose partial matches are stored under its key."""

    key: PatternKey

    def __init__(
        self, service: PatternService, pattern: Pattern, granted: list[Filter], watermark_us: int | None
    ) -> None:
        super().__init__(service, pattern, granted, Matcher(pattern, service.broker.now, watermark_us))
        self.stored: dict[bytes, bytes] = {}
        self._broker = service.broker
        self._marks = Marks(watermark_us, {}, 0)

    def store(self) -> Iterable[Before]:
        """Have the keys stored that have changed; yields what they were before that."""
        broker = self._broker
        for key in self.changed:
            state, before = self.matcher.state(key), self.stored.get(key)
            if state == before:
                continue
            yield Before(broker.mark, self, key, before)
            for change in key_changes(self.key, key, before, state):
                broker.store(change)
            if state is None:
                del self.stored[key]
            else:
                self.stored[key] = state
        if self.changed or self._marks.held != len(self.held):
            yield Before(broker.mark, self, None, self._marks)
            before_held = self._marks.held
            self._marks = Marks(self.matcher.watermark_us(broker.now), dict(self.seen), len(self.held))
            self.keep(self._marks)
            if self._service.placer is not None:
                self._service.placer.held(self, before_held)
        self.changed.clear()

    @abstractmethod
    def keep(self, marks: Marks) -> None:
        """Store the pattern with this watermark, and what it has seen."""

    def revert(self) -> None:
        """Go back to what is stored: the events since then are lost, and come again."""
        if not self.changed and len(self.held) == self._marks.held:
            return
        for key in self.changed:
            self.matcher.restore(key, self.stored.get(key))
        self.changed.clear()
        self._found.clear()
        self._unused.clear()
        marks = self._marks
        self.matcher.reset(marks.watermark_us, self._broker.now)
        self.seen = dict(marks.seen)
        del self.held[marks.held :]

    def restore(self, before: Before) -> None:
        """Go back to what was before a commit that was not made."""
        key, state = before.key, before.state
        if key is None:
            assert isinstance(state, Marks)
            self.matcher.reset(state.watermark_us, self._broker.now)
            self.seen, self._marks = dict(state.seen), state
            del self.held[state.held :]
            self.went_back(state)
            return
        assert not isinstance(state, Marks)
        self.matcher.restore(key, state)
        if state is None:
            self.stored.pop(key, None)
        else:
            self.stored[key] = state

    def went_back(self, marks: Marks) -> None:
        """A commit was not made: these marks hold again."""

    def reopen(self, key: bytes, state: bytes) -> None:
        """Take a key that was stored."""
        self.stored[key] = state
        self.matcher.restore(key, state)

    def dropped(self) -> Iterable[Operation]:
        """Yield the operations that remove its keys."""
        for key, state in self.stored.items():
            yield from key_changes(self.key, key, state, None)


class StandingWatch(StoredWatch):
    """A pattern with a name and an owner: it is stored, and its matches are published."""

    def __init__(
        self, service: PatternService, key: PatternKey, record: StandingRecord, granted: list[Filter]
    ) -> None:
        super().__init__(service, Pattern(record.pattern), granted, record.watermark_us)
        self.key, self.record = key, record
        self.seen = dict(record.seen)
        self.subscription.passive = record.passive
        self.subscription.owner = key[0]
        self.share = service.broker.sessions.share_of(record.user, self.share)
        self.more = {"pattern": "/".join(key)}
        self.delivery = "reliable"

    @property
    def wanted(self) -> Filter:
        """The filter of its matches and time-outs."""
        types = [self.pattern.type, self.pattern.type + TIMEOUT]
        return Filter("type IN :types AND pattern = :name", types=types, name=self.more["pattern"])

    def report(self, matches: list[Event], unused: list[UnusedRow]) -> None:
        """Publish matches, and what was not used as the history `late`."""
        rules = self.more, self.delivery
        events = [*matches, *(late_event(self.pattern, row, reason, *rules) for row, reason in unused)]
        for _, reason in unused:
            self._broker.count(UNUSED, 1, reason)
        batch = Batch.of(map(self._broker.own, events))
        self._broker.publishing.hand_on(batch, check(batch.raw))

    def keep(self, marks: Marks) -> None:
        """Store the pattern with this watermark, and what it has seen."""
        self._set(marks)
        self._broker.store(PATTERNS.set(self.key, self.record))

    def went_back(self, marks: Marks) -> None:
        """A commit was not made: these marks hold again."""
        self._set(marks)

    def _set(self, marks: Marks) -> None:
        record = self.record
        about = record.pattern, record.user, record.passive
        self.record = StandingRecord(*about, marks.watermark_us, marks.seen)

    def dropped(self) -> Iterable[Operation]:
        """Yield the operations that remove it."""
        yield PATTERNS.drop(self.key)
        yield from super().dropped()

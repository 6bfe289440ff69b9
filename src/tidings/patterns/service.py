"""Patterns at a node: a service of the broker, with one subscription for the steps of each pattern.

The steps stand in the exchange's index like any filter, so an event that is no step costs nothing here. The
state of each key that has changed in a tick is a record of the commit of that tick, as the events themselves
are. If a commit fails, the keys go back to the state before it. Each pattern is a worker that finds matches
when it is its turn; `watching.py` has them.
"""

from __future__ import annotations

from collections import Counter, deque
from math import inf
from typing import Any

from tidings.errors import NotAllowed, Refused
from tidings.filters import Filter
from tidings.patterns.key_records import KEYS, PatternKey, take_states
from tidings.patterns.matcher import Matcher
from tidings.patterns.pattern import Pattern
from tidings.patterns.reporting import LATE_TYPE, TIMEOUT
from tidings.patterns.session_watch import SessionWatch
from tidings.patterns.stored_watch import PATTERNS, Before, Marks, StandingRecord, StandingWatch
from tidings.patterns.watching import NodeNumbers, PatternPlacer, PatternWatch
from tidings.protocol.access import NOBODY, OWNER, Principal
from tidings.protocol.arguments import check_readable
from tidings.protocol.broker import Broker
from tidings.protocol.consumer import Consumer
from tidings.protocol.service import Service
from tidings.protocol.session import Session
from tidings.store.interface import Operation
from tidings.timers import Timers

PATTERNS_MAX = 1_000
"""Patterns of a node, those of sessions and standing ones together."""


class PatternService(Service):
    """Patterns of a broker; the broker sends subscriptions with a pattern here."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        broker.patterns = self
        self._arrivals = 0
        self._worked: dict[PatternWatch, None] = {}  # with something to report or to store
        self._watches: dict[PatternWatch, None] = {}
        self._sizes: Counter[Session] = Counter()  # bytes of what their patterns remember
        self._due: Timers[PatternWatch] = Timers()  # when each has something to do though nothing comes
        self._standing: dict[PatternKey, StandingWatch] = {}
        self.placer: PatternPlacer | None = None
        """Who lets other nodes do the work of patterns."""
        self.numbers: NodeNumbers | None = None
        """Numbers of this node's events, while it has neighbours."""
        self.foreign_keys: dict[PatternKey, dict[bytes, bytes]] = {}
        """Stored keys of patterns that are none of this node, for who has them."""
        self._before: deque[Before] = deque()
        self._restore()

    def _restore(self) -> None:
        for key, record in PATTERNS.known(self.broker.state).items():
            watch = StandingWatch(self, key, record, _filters(Pattern(record.pattern)))
            self._begin(watch)
            self._standing[key] = watch
        for key, states in take_states(self.broker).items():
            found = self._standing.get(key)
            if found is None:
                self.foreign_keys[key] = states
            else:
                for key_bytes, state in states.items():
                    found.reopen(key_bytes, state)
        self.look_again()

    # Patterns come and go

    def open(self, session: Session, text: str, consumer: Consumer, passive: bool) -> SessionWatch:
        """Let a session have the matches of a pattern, as far as its steps were granted."""
        pattern = Pattern(text)
        granted = self._narrowed(session, pattern)
        watch = SessionWatch(self, pattern, granted, Matcher(pattern, self.broker.now))
        watch.begin(consumer)
        subscription = watch.subscription
        subscription.passive, subscription.user, subscription.owner = passive, session.bound, session
        self._begin(watch)
        return watch

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
        watch.keep(Marks(None, {}, 0))
        return watch.wanted

    def end(self, owner: str, name: str) -> None:
        """End a standing pattern for good, if there is one."""
        watch = self._standing.pop((owner, name), None)
        if watch is not None:
            self.close(watch)
            for operation in watch.dropped():
                self.broker.store(operation)

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
        self.enter(watch)
        if self.placer is not None:
            self.placer.begun(watch)

    def close(self, watch: PatternWatch) -> None:
        """End the pattern of a session, or take one that stands away."""
        self.leave(watch)
        if self.placer is not None:
            self.placer.ended(watch)

    def enter(self, watch: PatternWatch) -> None:
        """Let a watch have events; Refused if there are too many of them."""
        if len(self._watches) >= PATTERNS_MAX:
            raise Refused("limit", f"a node has at most {PATTERNS_MAX} patterns")
        self._watches[watch] = None
        watch.listen()

    def leave(self, watch: PatternWatch) -> None:
        """Let a watch have no more events, and forget it."""
        del self._watches[watch]
        self.broker.turns.discard(watch)
        self._worked.pop(watch, None)
        self._due.cancel(watch)
        watch.turn_away()
        watch.close()
        self._before = deque(one for one in self._before if one.watch is not watch)
        self._set_alarm()

    @property
    def watches(self) -> list[PatternWatch]:
        """All patterns at work."""
        return list(self._watches)

    def standing(self, key: PatternKey) -> StandingWatch | None:
        """Return the standing pattern of an owner and a name."""
        return self._standing.get(key)

    def review(self) -> None:
        """Let standing patterns have what their owners may subscribe to now, if these may publish."""
        authenticator = self.broker.authenticator
        for watch in self._standing.values():
            user = watch.record.user
            principal = (authenticator.principal_of(user) or NOBODY) if user else OWNER
            try:
                self._check_published(principal, watch.pattern)
                granted = [principal.reach(filter) for filter in _filters(watch.pattern)]
            except NotAllowed:
                granted = [~Filter()]
            self.allow(watch, granted, principal.bound)

    def allow(self, watch: PatternWatch, granted: list[Filter], user: str | None) -> None:
        """Let a watch have other events than before, if these are others."""
        if granted == watch.granted and watch.subscription.user == user:
            return
        was_listening = watch.is_listening
        watch.turn_away()
        watch.allow(granted)
        watch.subscription.user = user
        if was_listening:
            watch.listen()
        if self.placer is not None:
            self.placer.changed(watch)

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
        """Something has come for a pattern, or is due: it has its turn."""
        self.broker.turns.add(watch, watch.share)
        self.worked(watch)

    def worked(self, watch: PatternWatch) -> None:
        """A pattern may have something to report and to store when the tick ends."""
        self._worked[watch] = None

    def charge(self, session: Session, size: int) -> int:
        """Count bytes that the patterns of a session remember more; how many all of them have."""
        total = self._sizes.get(session, 0) + size
        if not size:
            return total
        if total:
            self._sizes[session] = total
        else:
            self._sizes.pop(session, None)
        return total

    def finish_tick(self) -> None:
        """Report what the patterns have found, and have their state stored."""
        if not self._worked:
            return
        worked, self._worked = self._worked, {}
        for watch in worked:
            watch.finish()
            self._time(watch)
        for watch in worked:
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
        for watch in self._watches:
            watch.revert()
        self.look_again()
        lost = [one for one in lost if KEYS.key_of(one) is None and _is_not_set(one, self._standing)]
        return [*lost, *(PATTERNS.set(key, watch.record) for key, watch in self._standing.items())]

    def look_again(self) -> None:
        """Find out anew when patterns have something to do: their states have come, gone or changed."""
        for watch in self._watches:
            self._time(watch)
        self._set_alarm()

    def _time(self, watch: PatternWatch) -> None:
        is_waiting = watch.is_waiting or watch in self.broker.turns
        self._due.at(inf if is_waiting else watch.matcher.wake_at(), watch)

    def _set_alarm(self) -> None:
        """Be woken when the first pattern has something to do though nothing comes."""
        self.broker.timers.at(self.broker.now if self._worked else self._due.wake_at, self._wake)

    def _wake(self, now: float) -> None:
        for watch in self._due.due(now):
            if not watch.is_waiting:
                self.note(watch)


def _filters(pattern: Pattern) -> list[Filter]:
    return [step.filter for step in pattern.steps]


def _is_not_set(operation: Operation, standing: dict[PatternKey, StandingWatch]) -> bool:
    key = PATTERNS.key_of(operation)
    return key is None or key not in standing

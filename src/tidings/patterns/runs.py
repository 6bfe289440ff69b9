"""Matches of a pattern in the events of one key: the core that node, batch and stream drive.

Each event that the first step of an alternative takes starts a *run*, which goes on with the events that
follow. A run never divides: an event goes to the next step if that takes it, else to the step at which the
run is, else it is passed over, or ends the run if it must be absent. So a run costs a few comparisons for
each event, and one start yields at most one match. Events are handed in by `offer` in any order and are used
by time, node and number, when `advance` says that all up to a time have come.

This is a hot path: plain lists and calls.
"""

from __future__ import annotations

from bisect import insort_right
from math import inf
from operator import attrgetter
from typing import NamedTuple

import msgspec
from msgspec import Struct

from tidings.event.values import Value
from tidings.patterns.compiled import CompiledAlternative, CompiledPattern, RowSight

RUNS_MAX = 1_000
"""Runs of one key: events that would start more of them start none."""

TOO_MANY_RUNS = "too many partial matches"


class Row(Struct, frozen=True, array_like=True, gc=False):
    """An event, as far as a pattern needs it: its place in the order, its steps and its values.

    `mask` has a bit for each step whose condition, references to other steps aside, is true of the event.
    Rows come by the thousand and are in no cycle, so the garbage collector passes over them.
    """

    time_us: int
    node: str
    number: int
    mask: int
    values: tuple[Value | None, ...] = ()


class RunOutcome(Struct, frozen=True):
    """A match, or a run that timed out: the events of each step, in their order.

    `end_us` is the time of the last event, or the end of the time within which something was absent.
    """

    events: tuple[tuple[int, Row], ...]
    end_us: int
    is_timeout: bool = False

    @property
    def start_us(self) -> int:
        """The time of the first event."""
        return self.events[0][1].time_us


class RefusedRow(NamedTuple):
    """An event that was not used, and why."""

    row: Row
    reason: str


Found = RunOutcome | RefusedRow

_ORDER = attrgetter("time_us", "node", "number")


class _PartialMatch:
    """A partial match: the alternative, the element it is at, the events of that, and all events."""

    __slots__ = ("alternative", "at", "bound", "count", "events")

    def __init__(
        self, alternative: CompiledAlternative, bound: list[tuple[Value | None, ...] | None]
    ) -> None:
        self.alternative = alternative
        self.at = self.count = 0
        self.bound = bound  # the values of the last event of each step
        self.events: list[tuple[int, Row]] = []

    def take(self, at: int, row: Row) -> bool:
        """Take an event into the element at that place; whether the match is complete."""
        element = self.alternative.elements[at]
        self.count = self.count + 1 if at == self.at else 1
        self.at = at
        self.events.append((element.step, row))
        self.bound[element.step] = row.values
        return (
            at == self.alternative.last
            and self.count == element.high
            and not self.alternative.has_absence_at_end
        )

    @property
    def is_complete_in_time(self) -> bool:
        """Whether it is a match when its time has passed."""
        alternative = self.alternative
        return (
            alternative.gathers
            and self.at == alternative.last
            and self.count >= alternative.elements[self.at].low
        )


class StoredRun(Struct, frozen=True, array_like=True):
    """A run as it is stored; events are (step, number of the row in the table of rows)."""

    alternative: int
    at: int
    count: int
    events: tuple[tuple[int, int], ...]


class StoredRuns(Struct, frozen=True, array_like=True):
    """The state of a key as it is stored: rows, each once, the runs, and which rows wait."""

    rows: tuple[Row, ...]
    runs: tuple[StoredRun, ...]
    waiting: int  # the last ones of the rows


class KeyRuns:
    """Partial matches of one key, and its events that wait for their time."""

    __slots__ = ("_pattern", "_runs", "_sight", "_waiting", "weight")

    def __init__(self, pattern: CompiledPattern) -> None:
        self._pattern = pattern
        self.weight = 0  # what `weigh` has returned last
        self._runs: list[_PartialMatch] = []  # by their start, then in the order of alternatives
        self._waiting: list[Row] = []
        self._sight = RowSight()

    @property
    def wake_us(self) -> int | None:
        """Up to which time all events must have come before there is something to do; None: nothing waits."""
        waiting = self._waiting[0].time_us if self._waiting else None
        within = self._pattern.within_us
        if not self._runs or within is None:
            return waiting
        end = self._runs[0].events[0][1].time_us + within
        return end if waiting is None else min(waiting, end)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to remember."""
        return not self._runs and not self._waiting

    @property
    def runs(self) -> int:
        """Number of partial matches."""
        return len(self._runs)

    @property
    def waiting(self) -> int:
        """Number of events that wait for their time."""
        return len(self._waiting)

    def weigh(self) -> int:
        """Return how many events are remembered, those that wait too, and one more for each partial match."""
        runs = self._runs
        self.weight = len(self._waiting) + len(runs) + sum([len(run.events) for run in runs])
        return self.weight

    def offer(self, row: Row) -> None:
        """Keep an event until all before it have come."""
        waiting = self._waiting
        if not waiting or _ORDER(waiting[-1]) <= _ORDER(row):
            waiting.append(row)
        else:
            insort_right(waiting, row, key=_ORDER)

    def advance(self, until_us: int, most: float = inf) -> list[Found]:
        """All events up to and including this time have come: use them; what was found, by time.

        `most`: after about so many steps, one for each event and run, the events left go on waiting.
        """
        found: list[Found] = []
        used = 0
        for row in self._waiting:
            if row.time_us > until_us:
                break
            if most <= 0:
                del self._waiting[:used]
                return found
            used += 1
            most -= 1 + len(self._runs)
            self.use(row, found)
        if used:
            del self._waiting[:used]
        self.expire(until_us, found)
        return found

    def use(self, row: Row, found: list[Found]) -> None:
        """Use an event that follows all others that were used; adds what was found."""
        if self._runs:
            self.expire(row.time_us - 1, found)
        if self._go_on(row, found):
            return
        self._start(row, found)

    # One event

    def _go_on(self, row: Row, found: list[Found]) -> bool:
        """Offer the event to all runs; whether it belongs to a match, so that it starts nothing."""
        mask, kept, overlapping = row.mask, [], self._pattern.overlapping
        over: Row | None = None  # the start of a match: its other alternatives are over
        for run in self._runs:
            if run.events[0][1] is over:
                continue
            if not mask & run.alternative.concerns[run.at]:
                kept.append(run)
                continue
            verdict = self._step(run, row)
            if verdict is None:
                found.append(RunOutcome(tuple(run.events), row.time_us))
                if not overlapping:
                    self._runs = []
                    return True
                over = run.events[0][1]
                while kept and kept[-1].events[0][1] is over:
                    kept.pop()
            elif verdict:
                kept.append(run)
        self._runs = kept
        return False

    def _step(self, run: _PartialMatch, row: Row) -> bool | None:
        """Offer an event to a run: None if that completes it, False if it ends it."""
        alternative, at = run.alternative, run.at
        elements, mask = alternative.elements, row.mask
        element, last = elements[at], alternative.last
        is_free = run.count >= element.low
        if (
            is_free
            and at < last
            and mask & elements[at + 1].bit
            and self._holds(elements[at + 1].step, row, run)
        ):
            return None if run.take(at + 1, row) else True
        if run.count < element.high and mask & element.bit and self._holds(element.step, row, run):
            return None if run.take(at, row) else True
        if is_free:
            for step, bit in elements[at + 1].absent if at < last else alternative.absent:
                if mask & bit and self._holds(step, row, run):
                    return False
        return True

    def _holds(self, step: int, row: Row, run: _PartialMatch) -> bool:
        test = self._pattern.tests[step]
        if test is None:
            return True
        self._sight.values, self._sight.bound = row.values, run.bound
        return test(self._sight) is True

    def _start(self, row: Row, found: list[Found]) -> None:
        """Start a run of each alternative whose first step takes the event."""
        pattern = self._pattern
        if not row.mask & pattern.first:
            return
        if len(self._runs) >= RUNS_MAX:
            found.append(RefusedRow(row, TOO_MANY_RUNS))
            return
        begun: list[_PartialMatch] = []
        for alternative in pattern.alternatives:
            first = alternative.elements[0]
            if not row.mask & first.bit:
                continue
            run = _PartialMatch(alternative, [None] * pattern.steps)
            if not self._holds(first.step, row, run):
                continue
            if run.take(0, row):
                found.append(RunOutcome(tuple(run.events), row.time_us))
                if not pattern.overlapping:
                    self._runs = []
                return
            begun.append(run)
        self._runs += begun

    # Time

    def expire(self, until_us: int, found: list[Found]) -> None:
        """End the runs whose time has passed: matches by absence, and time-outs."""
        within, runs = self._pattern.within_us, self._runs
        if not runs or within is None or runs[0].events[0][1].time_us + within > until_us:
            return
        while runs:
            start = runs[0].events[0][1]
            if start.time_us + within > until_us:
                return
            count = next((i for i, run in enumerate(runs) if run.events[0][1] is not start), len(runs))
            group, runs = runs[:count], runs[count:]
            whole = next((run for run in group if run.is_complete_in_time), None)
            if whole is not None:
                found.append(RunOutcome(tuple(whole.events), start.time_us + within))
                if not self._pattern.overlapping:
                    end = _ORDER(whole.events[-1][1])
                    runs = [run for run in runs if _ORDER(run.events[0][1]) > end]
            elif self._pattern.timeouts:
                longest = max(group, key=lambda run: len(run.events))
                found.append(RunOutcome(tuple(longest.events), start.time_us + within, is_timeout=True))
            self._runs = runs

    # Storage

    def encode(self) -> bytes:
        """Return the state as bytes."""
        places: dict[int, int] = {}
        rows: list[Row] = []
        for run in self._runs:
            for _, row in run.events:
                if places.setdefault(id(row), len(rows)) == len(rows):
                    rows.append(row)
        stored = tuple(
            StoredRun(
                run.alternative.number,
                run.at,
                run.count,
                tuple((step, places[id(row)]) for step, row in run.events),
            )
            for run in self._runs
        )
        return _encoder.encode(StoredRuns((*rows, *self._waiting), stored, len(self._waiting)))

    @classmethod
    def decode(cls, pattern: CompiledPattern, data: bytes) -> KeyRuns:
        """Return the state that `encode` has written for the same pattern."""
        state, made = _decoder.decode(data), cls(pattern)
        rows = list(state.rows)
        for stored in state.runs:
            run = _PartialMatch(pattern.alternatives[stored.alternative], [None] * pattern.steps)
            run.at, run.count = stored.at, stored.count
            for step, place in stored.events:
                run.events.append((step, rows[place]))
                run.bound[step] = rows[place].values
            made._runs.append(run)
        made._waiting = rows[len(rows) - state.waiting :]
        return made


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(StoredRuns)

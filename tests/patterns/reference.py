"""Patterns as docs/patterns.md defines them, as plainly as possible: what the compiled core is compared with.

Every start is followed to its end by itself, over all events; only then is decided which matches count.
Nothing here is fast, and nothing is shared with the core but the tree of the pattern.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations
from typing import Any, NamedTuple

from tidings import Event, Filter
from tidings.filters.text import write
from tidings.filters.tree import And, names_in
from tidings.patterns.tree import Absent, All, Either, Node, StepNode, Then, steps_in


class Given(NamedTuple):
    """An event with its place in the order."""

    time: int
    node: str
    number: int
    key: Any
    event: Event


class Said(NamedTuple):
    """A match or a time-out: the key, the steps with the places of their events, and its end."""

    key: Any
    events: tuple[tuple[str, int, str, int], ...]
    end: int
    is_timeout: bool


class _Unit(NamedTuple):
    step: StepNode
    low: int
    high: int
    absent: frozenset[str]


def matches(
    node: Node, within: int | None, overlapping: bool, timeouts: bool, given: list[Given], until: int
) -> set[Said]:
    """Return all that a pattern says of events when all up to a time have come."""
    found: set[Said] = set()
    for key in {one.key for one in given}:
        own = sorted((one for one in given if one.key == key and one.time <= until), key=lambda one: one[:3])
        found |= _OneKey(node, within, own, until).said(overlapping, timeouts)
    return found


class _OneKey:
    def __init__(self, node: Node, within: int | None, events: list[Given], until: int) -> None:
        self.within, self.events, self.until = within, events, until
        self.steps = {step.name: step for step in steps_in(node)}
        places = {name: place for place, name in enumerate(self.steps)}
        parts: list[Node] = list(node.parts) if isinstance(node, Then) else [node]
        self.at_end = set[str]()
        while isinstance(last := parts[-1], Absent):
            self.at_end.add(last.step.name)
            parts.pop()
        units = _line(parts)
        self.lines = sorted(units, key=lambda line: [places[unit.step.name] for unit in line])

    def said(self, overlapping: bool, timeouts: bool) -> set[Said]:
        whole, out = [], []
        for start in range(len(self.events)):
            fates = [(number, *self.follow(start, line)) for number, line in enumerate(self.lines)]
            ends = [
                (moment, start, number, taken) for number, fate, moment, taken in fates if fate == "whole"
            ]
            whole += sorted(ends)[:1]
            if not ends:
                left = [
                    (len(taken), -number, taken, moment)
                    for number, fate, moment, taken in fates
                    if fate == "out"
                ]
                if left:
                    _, _, taken, moment = max(left)
                    out.append((moment, start, taken))
        kept: list[Any] = []
        for moment, start, number, taken in sorted(whole):
            if overlapping or all(start > last[3][-1][1] for last in kept):
                kept.append((moment, start, number, taken))
        said = {self.words(taken, moment[0], False) for moment, _, _, taken in kept}
        if timeouts:
            for moment, start, taken in out:
                gone = [
                    last for last in kept if (last[0], last[1]) < (moment, start) and last[3][-1][1] >= start
                ]
                if overlapping or not gone:
                    said.add(self.words(taken, moment[0], True))
        return said

    def words(self, taken: Any, end: int, is_timeout: bool) -> Said:
        places = tuple((step, *self.events[place][:3]) for step, place in taken)
        return Said(self.events[0].key, places, end, is_timeout)

    def follow(self, start: int, line: tuple[_Unit, ...]) -> tuple[str, Any, Any]:
        """Follow one start through one sequence: 'whole', 'out', 'ended' or 'open', with the moment."""
        if not self.fits(line[0].step, start, ()):
            return "ended", None, ()
        taken: tuple[tuple[str, int], ...] = ((line[0].step.name, start),)
        at, count = 0, 1
        last = len(line) - 1
        deadline = None if self.within is None else self.events[start].time + self.within
        gathers = bool(self.at_end) or line[last].low < line[last].high
        for place in range(start, len(self.events)):
            if deadline is not None and self.events[place].time > deadline:
                break
            if place > start:
                unit, free = line[at], count >= line[at].low
                if free and at < last and self.fits(line[at + 1].step, place, taken):
                    at, count = at + 1, 1
                    taken = (*taken, (line[at].step.name, place))
                elif count < unit.high and self.fits(unit.step, place, taken):
                    count += 1
                    taken = (*taken, (unit.step.name, place))
                else:
                    absent = line[at + 1].absent if at < last else self.at_end
                    if free and any(self.fits(self.steps[name], place, taken) for name in absent):
                        return "ended", None, ()
                    continue
            if at == last and count == line[at].high and not self.at_end:
                return "whole", (self.events[place].time, 0, place), taken
        if deadline is None or deadline > self.until:
            return "open", None, ()
        if at == last and count >= line[at].low and gathers:
            return "whole", (deadline, 1, 0), taken
        return "out", (deadline, 1, 0), taken

    def fits(self, step: StepNode, place: int, taken: tuple[tuple[str, int], ...]) -> bool:
        event = self.events[place].event
        seen = {name: self.events[at].event for name, at in taken}
        values = dict(event.attributes)
        for name, other in seen.items():
            values |= {f"{name}.{attribute}": value for attribute, value in other.attributes.items()}
        whole = step.condition
        for part in whole.operands if isinstance(whole, And) else (whole,):
            is_own = any(name.partition(".")[0] == step.name for name in names_in(part) if "." in name)
            if is_own and step.name not in seen:
                continue
            if not _filter(write(part)).matches(Event(event.type, values)):
                return False
        return True


@lru_cache(None)
def _filter(text: str) -> Filter:
    return Filter(text)


def _line(parts: list[Node]) -> list[tuple[_Unit, ...]]:
    """Return all sequences of parts one after the other."""
    lines: list[tuple[_Unit, ...]] = [()]
    absent = frozenset[str]()
    for part in parts:
        if isinstance(part, Absent):
            absent |= {part.step.name}
            continue
        lines = [
            (*begun, line[0]._replace(absent=line[0].absent | absent), *line[1:])
            for begun in lines
            for line in _lines(part)
        ]
        absent = frozenset()
    return lines


def _lines(node: Node) -> list[tuple[_Unit, ...]]:
    if isinstance(node, StepNode):
        return [(_Unit(node, node.low, 1000 if node.high is None else node.high, frozenset()),)]
    if isinstance(node, Either):
        return [line for part in node.parts for line in _lines(part)]
    if isinstance(node, Then):
        return _line(list(node.parts))
    assert isinstance(node, All)
    choices: list[list[tuple[_Unit, ...]]] = [[]]
    for part in node.parts:
        choices = [[*chosen, _single(line)] for chosen in choices for line in _lines(part)]
    return [line for chosen in choices for line in _mixed(chosen)]


def _single(line: tuple[_Unit, ...]) -> tuple[_Unit, ...]:
    single: list[_Unit] = []
    for unit in line:
        single += [_Unit(unit.step, 1, 1, unit.absent if not n else frozenset()) for n in range(unit.low)]
        single[-1] = single[-1]._replace(high=1 + unit.high - unit.low)
    return tuple(single)


def _mixed(lines: list[tuple[_Unit, ...]]) -> list[tuple[_Unit, ...]]:
    orders = set(permutations([number for number, line in enumerate(lines) for _ in line]))
    mixed = []
    for order in orders:
        at, line = [0] * len(lines), []
        for number in order:
            absent = lines[number][at[number]].absent
            for other, place in enumerate(at):
                if other != number and 0 < place < len(lines[other]):
                    absent |= lines[other][place].absent
            line.append(lines[number][at[number]]._replace(absent=absent))
            at[number] += 1
        mixed.append(tuple(line))
    return mixed

"""Patterns written out: AND and OR become alternatives, each a plain sequence of steps.

`a AND b` means `(a THEN b) OR (b THEN a)`, with more or longer parts all ways to mix them, and OR means that
a match of one alternative is a match. So the core that finds matches knows sequences only. An absence that
holds between two events of one part holds for the events of other parts that come between them, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from msgspec import Struct

from tidings.errors import PatternError
from tidings.patterns.text import REPETITIONS_MAX
from tidings.patterns.tree import Absent, All, Either, Node, StepNode, Then, steps_in

ALTERNATIVES_MAX = 120
"""Alternatives of a pattern: five steps in any order."""


class Element(Struct, frozen=True):
    """One place of a sequence: `low` to `high` events of a step; until the first, none of the absent ones."""

    step: str
    low: int
    high: int
    absent: frozenset[str] = frozenset()


class Alternative(Struct, frozen=True):
    """A sequence; after its last element none of the absent steps comes until its time has passed."""

    elements: tuple[Element, ...]
    absent: frozenset[str] = frozenset()

    @property
    def gathers(self) -> bool:
        """Whether it may be complete only when its time has passed."""
        last = self.elements[-1]
        return bool(self.absent) or last.low < last.high


def alternatives_of(node: Node) -> tuple[Alternative, ...]:
    """Return the alternatives of a pattern, each once, ordered by the places of their steps in the text.

    PatternError if there are too many.
    """
    parts: list[Node] = list(node.parts) if isinstance(node, Then) else [node]
    absent = _taken_absent(parts)
    sequences = list(dict.fromkeys(islice(_sequence(parts), ALTERNATIVES_MAX + 1)))
    if len(sequences) > ALTERNATIVES_MAX:
        raise PatternError(
            f"AND and OR make more than {ALTERNATIVES_MAX} sequences of it", hint="use several patterns"
        )
    places = {step.name: place for place, step in enumerate(steps_in(node))}
    sequences.sort(key=lambda elements: [places[element.step] for element in elements])
    return tuple(Alternative(elements, absent) for elements in sequences)


_Sequence = tuple[Element, ...]


def _sequences(node: Node) -> Iterator[_Sequence]:
    match node:
        case StepNode(name, _, low, high):
            yield (Element(name, low, REPETITIONS_MAX if high is None else high),)
        case Then(parts):
            yield from _sequence(list(parts))
        case Either(parts):
            for part in parts:
                yield from _sequences(part)
        case All(parts):
            yield from _mixed(list(parts))


def _sequence(parts: list[Node]) -> Iterator[_Sequence]:
    """Yield all sequences of parts one after the other; the last part is not an absence."""
    if not parts:
        yield ()
        return
    *before, last = parts
    absent = _taken_absent(before)
    for begun in _sequence(before):
        for first, *rest in _sequences(last):
            guarded = Element(first.step, first.low, first.high, first.absent | absent)
            yield (*begun, guarded, *rest)


def _taken_absent(parts: list[Node]) -> frozenset[str]:
    """Take the absences off the end of parts; which steps they name."""
    absent = set[str]()
    while parts and isinstance(last := parts[-1], Absent):
        absent.add(last.step.name)
        parts.pop()
    return frozenset(absent)


def _mixed(parts: list[Node]) -> Iterator[_Sequence]:
    """Yield all ways to mix the sequences of parts."""
    first, *rest = parts
    if not rest:
        yield from (_single(sequence) for sequence in _sequences(first))
        return
    for one in _sequences(first):
        for other in _mixed(rest):
            yield from _interleaved(_single(one), other)


def _single(sequence: _Sequence) -> _Sequence:
    """Write repetitions out, so that events of other parts can come between: a{2,5} is a, then a{1,4}."""
    written: list[Element] = []
    for element in sequence:
        extra = element.high - element.low
        for number in range(element.low):
            most = 1 + extra if number == element.low - 1 else 1
            written.append(Element(element.step, 1, most, element.absent if number == 0 else frozenset()))
    return tuple(written)


def _interleaved(one: _Sequence, other: _Sequence, i: int = 0, j: int = 0) -> Iterator[_Sequence]:
    """Yield all ways to mix two sequences, from these places on."""
    if i == len(one) and j == len(other):
        yield ()
        return
    for mine, at, theirs, place in ((one, i, other, j), (other, j, one, i)):
        if at == len(mine):
            continue
        # The other sequence has begun and goes on: its absence holds here as well.
        waiting = theirs[place].absent if 0 < place < len(theirs) else frozenset()
        element = Element(mine[at].step, mine[at].low, mine[at].high, mine[at].absent | waiting)
        following = (i + 1, j) if mine is one else (i, j + 1)
        for rest in _interleaved(one, other, *following):
            yield (element, *rest)

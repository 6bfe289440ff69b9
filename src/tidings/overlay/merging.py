"""Merging: filters that differ in one attribute only are announced as one that matches exactly their union.

`type = 'a' AND x BETWEEN 0 AND 5` and `type = 'a' AND x BETWEEN 5 AND 9` are *alike* along `x`, and so are
`room = 1` and `room = 2` along `room`. Alike filters stand in a *row*, in the order of that attribute, and
are found by a hash of everything else, never by comparing pairs. A row is cut into *runs*: a filter begins
one if its own hash says so. The filters of a run are merged. So a change concerns one run, or two of them,
and the runs depend on the filters alone, not on the order in which they came.

All filters are merged along the first of their attributes, then the results along the second, and so on; the
type comes last. A filter that has several separate pieces of an attribute is not merged along it: so lists
do not grow from hop to hop. One with several alternatives or very many attributes is not merged at all.

Where a node may waste something (`is_coarse`), the gaps between merged numbers or times are closed, so that
the result is one piece and can be merged once more. Such a filter matches more than was wanted: `waste.py`
measures how much comes of it, and has it taken back to the exact ones.

The rules kept: what is announced matches what was wanted, and no more save in those gaps; a passive filter is
merged with passive ones only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import Final, NamedTuple
from zlib import crc32

from tidings.filters import Filter
from tidings.filters.constraint import Constraint
from tidings.filters.intervals import NOTHING, Intervals
from tidings.filters.normal import Conjunction, Normal
from tidings.matching import Index
from tidings.overlay.boxes import BOOLEAN_KIND, End, only_line

RUN_MEAN: Final = 16
"""Filters that are merged into one, on average."""
RUN_MAX = 128
"""Filters in a run that are merged; those of a longer one are announced one by one."""
TEXT_LENGTH_MAX = 16_384
"""Characters of a merged filter; where it would be longer, its filters are announced one by one."""
ATTRIBUTES_MAX = 6
"""Attributes of a filter that is merged; those with more hardly ever differ in one only."""
CROWD_MAX = 1_024
"""Filters in a run, which only an attack can make as long; further ones are not put into it."""
GOLDEN: Final = 0x9E3779B1
"""Spreads the checksums of texts that differ in little (Knuth's multiplicative hashing)."""
PIECES_MAX = 64
"""Filters into which one is taken apart; one that has more pieces stays whole."""

APART_KEPT: Final = 1_024
"""Filters whose pieces are kept."""
KINDS: Final = BOOLEAN_KIND
"""Number of the ordered kinds of values: numbers, strings, times, bytes."""

Span = tuple[End, ...]
"""Ends of the one piece that an attribute must lie in: the place of a filter in a row."""


class Unit:
    """Filter that is announced as it is or merged with others: a wanted one, or one that was merged."""

    __slots__ = ("_hashes", "_sum", "alternative", "filter", "names", "passive", "run")

    def __init__(self, filter: Filter, normal: Normal, passive: bool) -> None:
        self.filter = filter
        self.passive = passive
        self.run: _MergedRun | None = None  # of which it is made, if it matches more than the run does
        self.alternative = normal[0]
        self.names: list[str] = []
        self._hashes: dict[str, int] = {}
        self._sum = 0
        constraints = self.alternative.constraints
        if len(normal) == 1 and len(constraints) <= ATTRIBUTES_MAX:
            self.names = sorted(constraints, key=lambda name: (name == "type", name))
            self._hashes = {name: hash((name, one)) for name, one in constraints.items()}
            self._sum = sum(self._hashes.values(), hash(self.alternative.residues))

    def key(self, name: str, again: int) -> int:
        """Return a hash of all but one attribute; others that have the same are alike, or strangers.

        `again`: how often its attributes were gone through before.
        """
        rest = self._sum - self._hashes[name]
        return hash((rest, name, self.passive, len(self._hashes), again))

    def places(self, level: int, rounds: int) -> Iterator[tuple[int, int, str]]:
        """Yield the attributes along which it may be merged, from a level on, with level and round."""
        for one in range(level, rounds * len(self.names)):
            again, number = divmod(one, len(self.names))
            yield one, again, self.names[number]

    def is_alike(self, other: Unit, name: str) -> bool:
        """Whether the other differs in nothing but one attribute."""
        mine, theirs = self.alternative.constraints, other.alternative.constraints
        return (
            self.passive is other.passive
            and mine.keys() == theirs.keys()
            and self.alternative.residues == other.alternative.residues
            and all(theirs[one] == constraint for one, constraint in mine.items() if one != name)
        )


class Emitted(NamedTuple):
    """Change of what is announced."""

    unit: Unit
    is_new: bool


class Merging:
    """Units by their rows. `add` and `remove` note changes, `settle` yields those of what is announced.

    `is_coarse`: what is announced may match more than what was wanted.
    """

    def __init__(self, is_coarse: bool = False) -> None:
        self._rounds = 2 if is_coarse else 1
        self.coarse: Index[Unit] | None = Index(patient=True) if is_coarse else None
        """Those of the announced units that match more than what was wanted."""
        self._rows: dict[int, Unit | _Row] = {}  # by the hash of what is common; a unit that is alone
        self._dirty: dict[int, dict[_MergedRun, None]] = {}  # by level, the number of an attribute
        self._emitted: list[Emitted] = []

    def __bool__(self) -> bool:
        return bool(self._rows)

    def add(self, unit: Unit) -> None:
        """Take in a unit that is not there."""
        self._enter(unit, 0)

    def remove(self, unit: Unit) -> None:
        """Take out a unit that is there."""
        self._leave(unit, 0)

    def _enter(self, unit: Unit, level: int) -> None:
        """Put a unit into the first row, from a level on, where others are; announce it if there is none."""
        for following, again, name in unit.places(level, self._rounds):
            span = span_of(unit.alternative.constraints[name])
            if not span:
                continue
            key = unit.key(name, again)
            row = self._rows.get(key)
            if row is None:
                self._rows[key] = unit
                continue
            example = row.example if isinstance(row, _Row) else row
            if not example.is_alike(unit, name):
                continue
            if not isinstance(row, _Row):
                known = span_of(row.alternative.constraints[name])
                if known == span:
                    continue
                row = self._rows[key] = _Row(key, name, following, again, row, known)
            elif row.find(span) is not None or row.is_crowded(span):
                continue
            self._touch(*row.add(unit, span))
            return
        self._emitted.append(Emitted(unit, True))

    def _leave(self, unit: Unit, level: int) -> None:
        """Take a unit out of the rows that it is in, from a level on."""
        for _, again, name in unit.places(level, self._rounds):
            span = span_of(unit.alternative.constraints[name])
            if not span:
                continue
            key = unit.key(name, again)
            row = self._rows.get(key)
            if row is unit:
                del self._rows[key]
            elif isinstance(row, _Row) and row.name == name and row.find(span) is unit:
                self._touch(*row.remove(span))
                return
        self._emitted.append(Emitted(unit, False))

    def _touch(self, *runs: _MergedRun) -> None:
        for run in runs:
            self._dirty.setdefault(run.row.level, {})[run] = None

    def settle(self) -> Iterator[Emitted | None]:
        """Merge what has changed, along one attribute after the other; yield what came of it, and None."""
        while self._dirty:
            level = min(self._dirty)
            runs = self._dirty.pop(level)
            fresh: list[Unit] = []
            for run in runs:
                before, run.outcome = run.outcome, dict.fromkeys(run.merged(self.coarse is not None))
                for unit in before:
                    if unit not in run.outcome:
                        self._leave(unit, level + 1)
                fresh += [unit for unit in run.outcome if unit not in before]
                yield None
            for unit in fresh:  # a unit may have left another run
                self._enter(unit, level + 1)
                yield None
            for run in runs:
                self._tidy(run.row)
        emitted, self._emitted = self._emitted, []
        if self.coarse is not None:
            _follow(self.coarse, emitted)
        yield from emitted

    @property
    def is_due(self) -> bool:
        """Whether `settle` has something to do."""
        return bool(self._dirty)

    def sharpen(self, unit: Unit) -> None:
        """Announce exactly what was wanted, from now on, in place of a unit that matches more."""
        if unit.run is not None and unit in unit.run.outcome:
            unit.run.is_exact = True
            self._touch(unit.run)

    def _tidy(self, row: _Row) -> None:
        """Forget a row that is empty, and replace one of a single unit by that."""
        if row.size <= 1 and self._rows.get(row.key) is row:
            units = list(row)
            if units:
                self._rows[row.key] = units[0]
            else:
                del self._rows[row.key]


class _MergedRun:
    """Units that follow each other in a row; `outcome` is what was made of them at last."""

    __slots__ = ("is_exact", "outcome", "row", "units")

    def __init__(self, row: _Row) -> None:
        self.row = row
        self.is_exact = False  # whether too much has come of closing its gaps
        self.units: dict[Span, Unit] = {}
        self.outcome: dict[Unit, None] = {}

    def merged(self, is_coarse: bool) -> list[Unit]:
        """Return one unit in place of all, or these where it would be too large."""
        units = list(self.units.values())
        has_more = any(unit.run is not None for unit in units)  # than was wanted, by merging before
        if not 1 < len(units) <= RUN_MAX or (has_more and self.is_exact):
            return units
        first, name = units[0].alternative, self.row.name
        exact = united = _united(sorted(self.units))
        if is_coarse and not self.is_exact:
            united = _without_gaps(united)
        if self.row.again and not span_of(united):
            return units
        constraints = first.constraints | {name: united}
        ordered = {one: constraints[one] for one in sorted(constraints, key=lambda one: (one != "type", one))}
        normal = (Conjunction(ordered, first.residues),)
        filter = Filter.from_normal(normal)
        if len(str(filter)) > TEXT_LENGTH_MAX:
            return units
        made = Unit(filter, normal, units[0].passive)
        if has_more or united != exact:
            made.run = self
        return [made]


class _Row:
    """Units that are alike along one attribute, in runs."""

    __slots__ = ("_runs", "_starts", "again", "example", "key", "level", "name", "size")

    def __init__(self, key: int, name: str, level: int, again: int, unit: Unit, span: Span) -> None:
        self.key = key
        self.name = name
        self.level = level
        self.again = again
        self.example = unit
        self.size = 0
        self._starts: list[Span] = [()]  # before all others
        self._runs = [_MergedRun(self)]
        for run in self.add(unit, span):
            run.outcome = dict.fromkeys(run.units.values())  # it has passed already

    def __iter__(self) -> Iterator[Unit]:
        return (unit for run in self._runs for unit in run.units.values())

    def _place(self, span: Span) -> int:
        return bisect_right(self._starts, span) - 1

    def find(self, span: Span) -> Unit | None:
        """Return the unit that has this place."""
        return self._runs[self._place(span)].units.get(span)

    def is_crowded(self, span: Span) -> bool:
        """Whether the run that has this place has no room."""
        return len(self._runs[self._place(span)].units) >= CROWD_MAX

    def add(self, unit: Unit, span: Span) -> list[_MergedRun]:
        """Put a unit into a place that is free; return the runs that change."""
        self.size += 1
        place = self._place(span)
        run = self._runs[place]
        if not _begins_run(span, self.again):
            run.units[span] = unit
            return [run]
        made = _MergedRun(self)
        made.units = {span: unit} | {one: run.units.pop(one) for one in list(run.units) if one > span}
        self._starts.insert(place + 1, span)
        self._runs.insert(place + 1, made)
        return [run, made]

    def remove(self, span: Span) -> list[_MergedRun]:
        """Free a place; return the runs that change."""
        self.size -= 1
        place = self._place(span)
        run = self._runs[place]
        del run.units[span]
        if self._starts[place] != span:
            return [run]
        before = self._runs[place - 1]
        before.units |= run.units
        run.units = {}
        del self._starts[place], self._runs[place]
        return [before, run]


def _begins_run(span: Span, again: int) -> bool:
    """Whether a place begins a run: the same in each life of a node, so that its tables stay as they are."""
    mixed = crc32(repr(span[0]).encode(), again) * GOLDEN & 0xFFFFFFFF if span else 0
    return mixed * RUN_MEAN >> 32 == 1


def span_of(constraint: Constraint) -> Span:
    """Return the ends of the one piece that a constraint admits; () if there are several."""
    kind, line = only_line(constraint)
    if line is None or kind == BOOLEAN_KIND:
        return ((kind, constraint.booleans), (kind, constraint.booleans)) if line is not None else ()
    cuts, count = line.cuts, len(line.cuts)
    if count > 2 or (line.inside and count == 2):
        return ()
    low: End = (kind,) if line.inside else (kind, *cuts[0])
    is_endless = line.inside ^ bool(count & 1)
    return low, (kind + 0.5,) if is_endless else (kind, *cuts[-1])


def _united(spans: Iterable[Span]) -> Constraint:
    """Return the union of the pieces that have these places, from the lowest."""
    lines: dict[int, list[list[End]]] = {}  # by kind: separate pieces
    booleans = 0
    for low, high in filter(None, spans):
        kind = low[0]
        if kind == BOOLEAN_KIND:
            booleans |= low[1]
            continue
        pieces = lines.setdefault(kind, [])
        if pieces and low <= pieces[-1][1]:
            pieces[-1][1] = max(pieces[-1][1], high)
        else:
            pieces.append([low, high])
    numbers, strings, times, blobs = (
        Intervals(len(some[0][0]) == 1, tuple([end[1:] for piece in some for end in piece if len(end) > 1]))
        if (some := lines.get(kind))
        else NOTHING
        for kind in range(KINDS)
    )
    return Constraint(numbers, strings, times, blobs, booleans)


def _without_gaps(constraint: Constraint) -> Constraint:
    """Return a constraint that admits all numbers and times between those which one admits, too."""
    numbers, times = constraint.numbers.hull(), constraint.times.hull()
    return Constraint(numbers, constraint.strings, times, constraint.blobs, constraint.booleans)


def _follow(coarse: Index[Unit], emitted: list[Emitted]) -> None:
    """Keep an index of the announced units that match more than what was wanted."""
    for unit, is_new in emitted:
        if is_new and unit.run is not None:
            coarse.add(unit, unit.filter)
        elif unit in coarse:
            coarse.remove(unit)


@lru_cache(APART_KEPT)
def taken_apart(filter: Filter) -> Sequence[Filter]:
    """Return filters of one piece each that match together what one does; itself if these are too many.

    They are kept for the next call: a filter is pruned for each neighbour in turn.
    """
    if len(filter.normal) != 1:
        return (filter,)
    (alternative,) = filter.normal
    count = 1
    choices: list[list[tuple[str, Constraint]]] = []
    for name, constraint in alternative.constraints.items():
        pieces = [constraint] if span_of(constraint) else _pieces_of(constraint)
        choices.append([(name, piece) for piece in pieces])
        count *= len(pieces)
        if count > PIECES_MAX:
            return (filter,)
    if count == 1:
        return (filter,)
    return tuple(
        Filter.from_normal((Conjunction(dict(chosen), alternative.residues),)) for chosen in product(*choices)
    )


def _pieces_of(constraint: Constraint) -> list[Constraint]:
    """Return the pieces of a constraint on one kind of value."""
    kind, line = only_line(constraint)
    if line is None or kind == BOOLEAN_KIND:
        return [constraint]
    found: list[Constraint] = []
    for low, high in line.spans():
        piece = Intervals(low is None, tuple(cut for cut in (low, high) if cut is not None))
        numbers, strings, times, blobs = (piece if one == kind else NOTHING for one in range(KINDS))
        found.append(Constraint(numbers, strings, times, blobs))
    return found

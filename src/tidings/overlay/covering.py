"""Covering set: as few filters as possible, announced to one neighbour so that everything wanted is covered.

Wanted filters that are equal are one *entry*. The entries form a forest. Each entry that is no root has a
parent that covers it, so the root of its tree does. The roots are announced, those merged that differ in one
attribute only (`merging.py`). Only roots are searched when an entry comes (`candidates.py`). It becomes a
child of a root that covers it, or else a root, and the roots that it covers become its children. When a root
goes, its children are placed anew; when another entry goes, its children become those of its parent. A root
that becomes a child keeps its own children, so covering much costs little.

A parent of many entries has few children. Two of the same rank and with the same value (`candidates.py`: the
anchor) are compared, and the covered one becomes a child of the other, whose rank grows, as in a binomial
heap: of n filters `value > x` a root has about log n children, one of which is the next root.

The rules kept: each wanted filter is covered by an announced one, what is announced matches nothing else,
save where merging may waste something, and a passive one never stands for a demanding one. No root covers
another one, as far as `Filter.covers` finds, unless comparing them or searching would take too long; a merged
filter may cover a root that none of its own covers. Of filters that cover each other the one with the
shortest text is a root, of several the first in order of text, so the result does not depend on the order in
which they came. Changes are returned between two rounds of operations only: a filter that goes and those
which it covered are in the same `AnnouncedChanges`, and so are a merged filter and the one in its place.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

from tidings.filters import Filter
from tidings.filters.normal import Normal
from tidings.filters.relations import covers_singly, simplify
from tidings.interest.demand import COMPARED_MAX, MERGED_ALTERNATIVES_MAX, Weight, comparing, weigh
from tidings.matching import Index
from tidings.overlay.boxes import Box
from tidings.overlay.candidates import Candidates, anchor_of
from tidings.overlay.merging import Merging, Unit
from tidings.steps import Steps

STEP: Final = 8
"""Comparisons, or nodes of the index, in one step."""
SEARCH_MAX: Final = 20_000
"""Comparisons and nodes without result in one search; past this nothing more is found."""
ROUND_MIN: Final = 1_000
"""Operations after which roots are merged and changes can be taken, though more operations are noted; in a
larger set, as many as it has entries, so that each merged filter is made anew a few times only."""
DIGEST_BITS: Final = 128


class Announced(NamedTuple):
    """A filter that a neighbour is sent, and whether it creates no demand."""

    filter: Filter
    passive: bool


class AnnouncedChanges(NamedTuple):
    """Net changes of the announced filters, for one message."""

    added: list[Announced]
    removed: list[Announced]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


_Name = tuple[str, bool]  # text, passive
_Noted = tuple[Filter, bool] | None


class _Entry:
    """Wanted filter, however many keys have it."""

    __slots__ = (
        "box", "children", "home", "keys", "latest", "normal", "parent",
        "passive", "rank", "simple", "unit", "wanted", "weight",
    )  # fmt: skip

    def __init__(self, wanted: Filter, passive: bool) -> None:
        self.wanted = wanted
        self.passive = passive
        self.keys = 0
        self.normal = wanted.normal
        self.simple: Normal = self.normal
        if 1 < len(self.normal) <= MERGED_ALTERNATIVES_MAX:
            self.simple = simplify(self.normal)
        self.box = Box(self.normal[0], self)
        self.home: object = anchor_of(self.normal[0], self.box) or self.box.names
        self.weight: Weight | None = None
        self.parent: _Entry | None = None
        self.children: dict[_Entry, None] = {}
        self.latest: dict[tuple[object, int], _Entry] = {}  # children by home and rank
        self.rank = 0
        self.unit: Unit | None = None  # of a root that is announced

    def stands_for(self, other: _Entry) -> bool:
        """Whether the other need not be announced if this one is, for all that is known without doubt."""
        if self.passive > other.passive:
            return False
        if len(other.normal) == len(self.normal) == 1:
            if not self.box.is_around(other.box):
                return False
            if self.box.is_exact:
                return True
        if comparing(_weight(self), _weight(other)) > COMPARED_MAX:
            return False
        return covers_singly(self.simple, other.normal)

    def precedes(self, other: _Entry) -> bool:
        """Whether this one is announced rather than the other."""
        if not self.stands_for(other):
            return False
        if not other.stands_for(self):
            return True
        mine, theirs = str(self.wanted), str(other.wanted)
        return (len(mine), mine) < (len(theirs), theirs)

    def adopt(self, child: _Entry) -> None:
        """Make an entry that this one covers its child, or that of another child."""
        while True:
            slot = child.home, child.rank
            rival = self.latest.get(slot)
            if rival is None:
                break
            if rival.precedes(child):
                winner, loser = rival, child
            elif child.precedes(rival):
                winner, loser = child, rival
            else:
                break
            self.abandon(rival)
            winner._take(loser)
            winner.rank += 1
            child = winner
        self._take(child)

    def _take(self, child: _Entry) -> None:
        child.parent = self
        self.children[child] = None
        self.latest[child.home, child.rank] = child

    def abandon(self, child: _Entry) -> None:
        """Let go of a child."""
        del self.children[child]
        child.parent = None
        if self.latest.get((child.home, child.rank)) is child:
            del self.latest[child.home, child.rank]


def _weight(entry: _Entry) -> Weight:
    if entry.weight is None:
        entry.weight = weigh(entry.wanted)
    return entry.weight


def number_of(announced: Announced) -> int:
    """Return the number that an announced filter adds to the digest of a set."""
    return number_of_text(str(announced.filter), announced.passive)


def number_of_text(text: str, passive: bool) -> int:
    """Return the same of the text of a filter."""
    data = f"{int(passive)}{text}".encode()
    return int.from_bytes(blake2b(data, digest_size=DIGEST_BITS // 8).digest(), "big")


def digest_of(numbers: int) -> int:
    """Return the digest of a set, given the sum of the numbers of its members."""
    return numbers % (1 << DIGEST_BITS)


class CoveringSet:
    """Filters wanted under keys, and those of them that are announced.

    `len`, iteration and `digest` describe the announced filters as of the last `take_changes`: what a
    neighbour has that got every change. A filter that matches nothing is never announced. `is_coarse`: what
    is announced may match more than what is wanted (`merging.py`).
    """

    def __init__(self, is_coarse: bool = False) -> None:
        self._noted: OrderedDict[Hashable, _Noted] = (
            OrderedDict()
        )  # the first is taken quickly, as of no dict
        self._wanted: dict[Hashable, _Entry | None] = {}
        self._entries: dict[_Name, _Entry] = {}
        self._roots: dict[bool, Candidates[_Entry]] = {False: Candidates(), True: Candidates()}  # by passive
        self._turned: dict[_Entry, bool] = {}  # roots that are new (True) or none any more, in this round
        self._merging = Merging(is_coarse)
        self._units: dict[str, tuple[Unit, ...]] = {}  # that are to be announced, by their text
        self._announced: dict[_Name, Announced] = {}
        self._added: dict[_Name, Announced] = {}
        self._removed: dict[_Name, Announced] = {}
        self._sum = 0  # of the numbers of what is to be announced
        self._digest = 0  # as of the last change that was taken
        self._is_between = True  # no round is under way
        self._working = self._work()

    def __len__(self) -> int:
        return len(self._announced)

    def __iter__(self) -> Iterator[Announced]:
        return iter(self._announced.values())

    @property
    def digest(self) -> int:
        """Digest of the announced filters, whatever their order."""
        return digest_of(self._digest)

    @property
    def unmerged(self) -> int:
        """How many filters would be announced if none were merged."""
        return sum(map(len, self._roots.values()))

    @property
    def is_due(self) -> bool:
        """Whether steps are left."""
        return bool(self._noted) or not self._is_between or self._merging.is_due

    @property
    def has_changes(self) -> bool:
        """Whether `take_changes` would return any."""
        return self._is_between and bool(self._added or self._removed)

    def __contains__(self, key: Hashable) -> bool:
        """Whether anything is wanted under this key, by what was noted."""
        return self._noted[key] is not None if key in self._noted else key in self._wanted

    def add(self, key: Hashable, filter: Filter, passive: bool = False) -> None:
        """Note that a filter is wanted under a key, instead of the one before."""
        self._noted[key] = filter, passive

    def remove(self, key: Hashable) -> None:
        """Note that nothing is wanted under a key any more; KeyError if nothing was."""
        if key not in self:
            raise KeyError(key)
        self._noted[key] = None
        self._noted.move_to_end(key)  # behind what was noted to take its place

    @property
    def coarse(self) -> Index[Unit] | None:
        """Those of the announced units that match more than what is wanted; None if none may."""
        return self._merging.coarse

    def sharpen(self, unit: Unit) -> None:
        """Announce exactly what is wanted in place of such a unit."""
        self._merging.sharpen(unit)

    def take_changes(self) -> AnnouncedChanges:
        """Return what has changed since the last call: nothing while one change is half done."""
        if not self._is_between:
            return AnnouncedChanges([], [])
        changes = AnnouncedChanges(list(self._added.values()), list(self._removed.values()))
        for name in self._removed:
            del self._announced[name]
        self._announced |= self._added
        self._added, self._removed = {}, {}
        self._digest = self._sum
        return changes

    def steps(self) -> Steps[None]:
        """Do the noted work; steps that are closed are resumed by the next ones."""
        while self.is_due:
            self.step()
            yield

    def step(self) -> None:
        """Do one step of the noted work, of which there is some."""
        next(self._working)

    def _work(self) -> Iterator[None]:
        """Do what is noted, without end, one key after another, in rounds."""
        while True:
            for _ in range(max(ROUND_MIN, len(self._entries))):
                if not self._noted:
                    break
                self._is_between = False
                key, noted = self._noted.popitem(last=False)
                former = self._wanted.pop(key, None)
                if noted is not None:  # first, so that what the former one covered finds a cover
                    yield from self._come(key, *noted)
                if former is not None:
                    yield from self._go(former)
                if self._noted:
                    yield
            yield from self._merge()
            self._is_between = True
            yield

    def _come(self, key: Hashable, filter: Filter, passive: bool) -> Iterator[None]:
        if not filter.normal:
            self._wanted[key] = None
            return
        name = str(filter), passive
        entry = self._entries.get(name)
        if entry is None:
            entry = self._entries[name] = _Entry(filter, passive)
        self._wanted[key] = entry
        entry.keys += 1
        if entry.keys == 1:
            yield from self._place(entry)

    def _go(self, entry: _Entry) -> Iterator[None]:
        entry.keys -= 1
        if entry.keys:
            return
        del self._entries[str(entry.wanted), entry.passive]
        children = sorted(entry.children, key=lambda child: -child.rank)
        parent = entry.parent
        if parent is not None:
            parent.abandon(entry)
            for child in children:
                parent.adopt(child)
                yield
            return
        self._conceal(entry)
        for child in children:
            child.parent = None
            yield from self._place(child)
            yield

    def _place(self, entry: _Entry) -> Iterator[None]:
        """Find a place for an entry that has none: below a root, or as one."""
        alternative, box = entry.normal[0], entry.box
        for passive in (False, True) if entry.passive else (False,):
            yield from self._roots[passive].filing(alternative, box)
            search = self._roots[passive].covering(alternative, box)
            for number, root in enumerate(search):
                if root is not None and root.precedes(entry):
                    root.adopt(entry)
                    return
                if number % STEP == STEP - 1:
                    yield
                if number > SEARCH_MAX:
                    break
        covered: dict[_Entry, None] = {}
        for passive in (True,) if entry.passive else (True, False):
            if self._roots[passive]:
                yield from self._find_covered(entry, self._roots[passive], covered)
        self._announce(entry)
        for root in covered:
            self._conceal(root)
            entry.adopt(root)
            yield

    def _find_covered(
        self, entry: _Entry, roots: Candidates[_Entry], covered: dict[_Entry, None]
    ) -> Iterator[None]:
        """Collect the roots that an entry stands for."""
        missed = 0
        for alternative in entry.simple:
            box = entry.box if alternative is entry.normal[0] else Box(alternative, entry)
            yield from roots.filing(alternative, box)
            for number, root in enumerate(roots.covered_by(alternative, box)):
                if root is None or root in covered or not entry.precedes(root):
                    missed += 1
                else:
                    covered[root] = None
                if number % STEP == STEP - 1:
                    yield
                if missed > SEARCH_MAX:
                    return

    def _announce(self, entry: _Entry) -> None:
        """Make an entry a root."""
        if self._turned.pop(entry, None) is None:
            self._turned[entry] = True
        self._roots[entry.passive].add(entry, entry.normal, entry.simple, entry.box)

    def _conceal(self, entry: _Entry) -> None:
        """Make an entry a root no longer."""
        if self._turned.pop(entry, None) is None:
            self._turned[entry] = False
        self._roots[entry.passive].remove(entry)

    def _merge(self) -> Iterator[None]:
        """Merge the roots of this round with all others, and note what is to be announced then."""
        turned, self._turned = self._turned, {}
        for is_new in (False, True):  # an entry that went may have come again
            for number, entry in enumerate(one for one, is_root in turned.items() if is_root is is_new):
                if is_new:
                    entry.unit = Unit(entry.wanted, entry.simple, entry.passive)
                    self._merging.add(entry.unit)
                else:
                    assert entry.unit is not None
                    self._merging.remove(entry.unit)
                    entry.unit = None
                if number % STEP == STEP - 1:
                    yield
        for number, emitted in enumerate(self._merging.settle()):
            if emitted is not None:
                self._show(*emitted)
            if number % STEP == STEP - 1:
                yield

    def _show(self, unit: Unit, is_new: bool) -> None:
        """Announce the filter of a unit, or no longer; a text is announced once, as demanding if any is."""
        text = str(unit.filter)
        known = self._units.get(text, ())
        units = (*known, unit) if is_new else tuple(one for one in known if one is not unit)
        if units:
            self._units[text] = units
        else:
            del self._units[text]
        before, after = _announced_of(known), _announced_of(units)
        if before is not None and (after is None or after.passive is not before.passive):
            self._take_back(before)
        if after is not None and (before is None or after.passive is not before.passive):
            name = text, after.passive
            if self._removed.pop(name, None) is None:
                self._added[name] = after
            self._sum += number_of(after)

    def _take_back(self, announced: Announced) -> None:
        name = str(announced.filter), announced.passive
        if self._added.pop(name, None) is None:
            self._removed[name] = self._announced[name]
        self._sum -= number_of(announced)


def _announced_of(units: tuple[Unit, ...]) -> Announced | None:
    """Return what is announced for units of the same text."""
    if len(units) < 2:
        return Announced(units[0].filter, units[0].passive) if units else None
    first = min(units, key=lambda unit: unit.passive)
    return Announced(first.filter, first.passive)

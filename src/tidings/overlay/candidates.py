"""Index of filters that returns those which may cover one filter, and those which one filter may cover.

A filter is filed in two roles. As one that covers, each of its alternatives stands under its *anchor*: a
condition that every alternative it covers must have as well, or ensure. This is a residue, such as a LIKE or
a topic pattern, or else one value of an attribute, such as `type = 'air.pm10'`; of a list, each value. As one
that is covered, its first alternative stands under each of its values and residues, and under the first value
of each list. Under each of these is a pile of boxes (`piles.py`), in which those around or within another are
found.

A string may ensure a residue: `topic = 'a.b'` is covered by `TOPIC(topic, 'a.*')`. The patterns that fit a
string are found by their clues (`matching/clues.py`). The strings that fit a pattern are tried in order, or
those with the last level of a topic, if the pattern has one and these are fewer.

Some of this is searched seldom: the pile of all boxes for alternatives without any value or residue only, the
patterns of an attribute only for strings, and strings only for patterns. So what comes is filed there when it
is searched, in steps (`filing`).

The rule kept: whatever covers is found, and more may be. A result that is not there yet is None, so that a
long search can be cut into steps.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar

from tidings.filters.functions import FUNCTIONS
from tidings.filters.normal import Conjunction, Normal
from tidings.filters.topics import DOTS, SLASHES
from tidings.filters.tree import Condition, FunctionCall, Not
from tidings.matching.clue_tables import Ends, TextParts, TopicLevels
from tidings.matching.clues import ClueTable, Keys, Path, clues_of
from tidings.overlay.boxes import Box, End, Point
from tidings.overlay.piles import Pile

STRING_KIND = 1
FILED_AT_ONCE = 64
"""Boxes that are put into the pile of all boxes in one step."""
CLUES_AT_ONCE = 16
"""Strings, or patterns, that are put in order in one step."""
Place = Point | Condition | None
"""Under which an alternative stands; None for any."""

K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=Hashable)


class Candidates(Generic[K]):
    """Filters by their normal form, each under a key."""

    def __init__(self) -> None:
        self._wide: dict[Place, Pile] = {}
        self._narrow: dict[Place, Pile] = {}
        self._residues: dict[str, _Residues] = {}  # by attribute: those that are anchors
        self._strings: dict[str, _Strings] = {}  # by attribute: those that are places
        self._unfiled: dict[Box, None] = {}  # those that are not in the pile of all boxes yet
        self._filed: dict[K, tuple[list[tuple[Place, Box]], list[Place], Box]] = {}

    def __len__(self) -> int:
        return len(self._filed)

    def add(self, key: K, normal: Normal, simple: Normal, box: Box) -> None:
        """File a filter by its normal form, the simplified one, and the box of its first alternative."""
        wide: list[tuple[Place, Box]] = []
        for one in simple:
            made = box if one is normal[0] else Box(one, key)
            wide += [(anchor, made) for anchor in _anchors_of(one, made)]
        places = _places_of(normal[0], box)
        self._filed[key] = wide, places, box
        for anchor, made in wide:
            self._put(self._wide, anchor, made)
        for place in places:
            self._put(self._narrow, place, box)
        self._unfiled[box] = None

    def remove(self, key: K) -> None:
        """Forget a filter; KeyError if it is not there."""
        wide, places, box = self._filed.pop(key)
        for anchor, made in wide:
            self._drop(self._wide, anchor, made)
        for place in places:
            self._drop(self._narrow, place, box)
        if box in self._unfiled:
            del self._unfiled[box]
        else:
            self._drop(self._narrow, None, box)

    def filing(self, alternative: Conjunction, box: Box) -> Iterable[None]:
        """File what the searches for this alternative look through, in steps; to be done before them."""
        due: list[Iterator[None]] = []
        if self._residues:
            points = [*box.points, *[values[0] for values in box.lists]]
            due += [self._residues[name].filing() for name, _, _ in points if name in self._residues]
        if box.points:
            pass
        elif alternative.residues:
            call = _call_of(alternative.residues[0])
            if call is not None and call.names[0] in self._strings:
                due.append(self._strings[call.names[0]].filing())
        elif not box.lists:
            due.append(self._file_all())
        return chain(*due)

    def _file_all(self) -> Iterator[None]:
        """Put all boxes into the pile of all; now and then there is a step."""
        while self._unfiled:
            self._put(self._narrow, None, self._unfiled.popitem()[0])
            if not len(self._unfiled) % FILED_AT_ONCE:
                yield

    def _put(self, piles: dict[Place, Pile], place: Place, box: Box) -> None:
        pile = piles.get(place)
        if pile is None:
            pile = piles[place] = Pile()
            self._note(piles, place, is_new=True)
        pile.add(box)

    def _drop(self, piles: dict[Place, Pile], place: Place, box: Box) -> None:
        pile = piles[place]
        pile.remove(box)
        if not pile:
            del piles[place]
            self._note(piles, place, is_new=False)

    def _note(self, piles: dict[Place, Pile], place: Place, is_new: bool) -> None:
        """Note that a place came into use or went out of it."""
        if piles is self._narrow:
            if isinstance(place, tuple) and place[1] == STRING_KIND:
                self._note_string(place[0], place[2], is_new)
        elif (call := _call_of(place)) is not None:
            assert isinstance(place, Condition)
            name = call.names[0]
            residues = self._residues.get(name)
            if residues is None:
                residues = self._residues[name] = _Residues()
            residues.change(place, is_new)
            if not residues:
                del self._residues[name]

    def _note_string(self, name: str, text: str, is_new: bool) -> None:
        strings = self._strings.get(name)
        if strings is None:
            strings = self._strings[name] = _Strings()
        strings.change(text, is_new)
        if not strings:
            del self._strings[name]

    # Searching

    def covering(self, alternative: Conjunction, box: Box) -> Iterator[K | None]:
        """Yield the keys of filters that may cover one alternative, some maybe twice."""
        for anchor in self._anchors(alternative, box):
            pile = self._wide.get(anchor)
            if pile is not None:
                for found in pile.around(box):
                    yield None if found is None else found.owner

    def _anchors(self, alternative: Conjunction, box: Box) -> list[Place]:
        """Return all anchors that filters may have which cover this alternative."""
        points = [*box.points, *[values[0] for values in box.lists]]
        anchors: list[Place] = [None, *alternative.residues, *points]
        for name, kind, text in points if self._residues else ():
            if kind == STRING_KIND and name in self._residues:
                anchors += self._residues[name].fitting(text)
        return anchors

    def covered_by(self, alternative: Conjunction, box: Box) -> Iterator[K | None]:
        """Yield the keys of filters whose first alternative this one may cover, some maybe twice."""
        for place in self._places_within(alternative, box):
            pile = self._narrow.get(place)
            if pile is not None:
                for found in pile.within(box):
                    yield None if found is None else found.owner
            yield None

    def _places_within(self, alternative: Conjunction, box: Box) -> Iterator[Place]:
        """Yield places, under one of which each alternative stands that this one covers."""
        if box.points:
            yield min(box.points, key=lambda point: len(self._narrow.get(point, ())))
        elif alternative.residues:
            yield alternative.residues[0]
            yield from self._strings_of(alternative.residues[0], box)
        elif box.lists:
            yield from min(box.lists, key=len)
        else:
            yield None

    def _strings_of(self, residue: Condition, box: Box) -> Iterator[Place]:
        """Yield the strings that ensure a residue."""
        call = _call_of(residue)
        strings = None if call is None else self._strings.get(call.names[0])
        if call is None or strings is None:
            return
        (name,) = call.names
        test = FUNCTIONS[call.function].prepare(*call.constants)
        for number, text in enumerate(strings.within(call if call is residue else None, *box.ends(name))):
            if test(text) is (call is residue):
                yield name, STRING_KIND, text
            elif number & 15 == 15:
                yield _NOWHERE


_NOWHERE: Point = ("", -1, None)  # nothing stands there: a search goes on


def anchor_of(alternative: Conjunction, box: Box) -> Place:
    """Return the first condition that all which this alternative covers must have as well, or ensure."""
    return _anchors_of(alternative, box)[0]


def _anchors_of(alternative: Conjunction, box: Box) -> Sequence[Place]:
    """Return the conditions of which all that this alternative covers must have one, or ensure it."""
    if alternative.residues:
        return alternative.residues[:1]
    if box.points:
        return [next((point for point in box.points if point[0] == "type"), box.points[0])]
    return min(box.lists, key=len) if box.lists else (None,)


def _places_of(alternative: Conjunction, box: Box) -> list[Place]:
    """Return the places under which an alternative is found by those which cover it, beside that of all."""
    return [*dict.fromkeys(alternative.residues), *box.points, *[values[0] for values in box.lists]]


def _call_of(residue: object) -> FunctionCall | None:
    """Return the condition on one string that a residue demands, or forbids."""
    call = residue.operand if isinstance(residue, Not) else residue
    return call if isinstance(call, FunctionCall) and len(call.names) == 1 else None


class _Filing(Generic[T]):
    """What is put in order when it is searched."""

    def __init__(self) -> None:
        self._unfiled: dict[T, None] = {}
        self._size = 0

    def __bool__(self) -> bool:
        return self._size > 0

    def change(self, what: T, is_new: bool) -> None:
        """Add or remove something."""
        self._size += 1 if is_new else -1
        if is_new:
            self._unfiled[what] = None
        elif what in self._unfiled:
            del self._unfiled[what]
        else:
            self._file(what, is_new=False)

    def filing(self) -> Iterator[None]:
        """Put in order what was added; now and then there is a step."""
        while self._unfiled:
            self._file(self._unfiled.popitem()[0], is_new=True)
            if not len(self._unfiled) % CLUES_AT_ONCE:
                yield

    def _file(self, what: T, is_new: bool) -> None:
        raise NotImplementedError


class _Strings(_Filing[str]):
    """Strings of one attribute, found by their order and by their last levels as topics."""

    def __init__(self) -> None:
        super().__init__()
        self._sorted: list[str] = []
        self._endings: dict[tuple[ClueTable, str], dict[str, None]] = {}

    def _file(self, what: str, is_new: bool) -> None:
        if is_new:
            insort(self._sorted, what)
        else:
            del self._sorted[bisect_left(self._sorted, what)]
        for table, separator in _SEPARATORS.items():
            key = table, what.rpartition(separator)[2]
            if is_new:
                self._endings.setdefault(key, {})[what] = None
            else:
                del self._endings[key][what]
                if not self._endings[key]:
                    del self._endings[key]

    def within(self, call: FunctionCall | None, low: End, high: End) -> Iterator[str]:
        """Yield the strings between two ends that may fulfil a condition, where one must."""
        strings = self._sorted
        first = bisect_left(strings, low[1]) if len(low) == 3 else 0
        last = bisect_right(strings, high[1]) if len(high) == 3 else len(strings)
        ending = None if call is None else _ending_of(call)
        found = {} if ending is None else self._endings.get(ending, {})
        if ending is not None and len(found) < last - first:
            return iter(list(found))
        return (strings[place] for place in range(first, last))


_SEPARATORS = {ClueTable.DOTS: DOTS.separator, ClueTable.SLASHES: SLASHES.separator}


def _ending_of(call: FunctionCall) -> tuple[ClueTable, str] | None:
    """Return the last level that a topic must have to fit a pattern; None if it may have several."""
    clues = clues_of(call)
    if clues is None or len(clues.clues) != 1:
        return None
    (clue,) = clues.clues
    path = clue.wanted
    if clue.table not in _SEPARATORS or not isinstance(path, Path) or path.is_open:
        return None
    last = path.levels[-1] if path.levels and len(path.levels) == path.fewest else None
    return None if last is None else (clue.table, last)


class _Residues(_Filing[Condition]):
    """Residues on the string of one attribute, found by a string that they may be true of."""

    def __init__(self) -> None:
        super().__init__()
        self._tables: dict[ClueTable, Any] = {
            ClueTable.DOTS: TopicLevels(DOTS.separator, hides=False),
            ClueTable.SLASHES: TopicLevels(SLASHES.separator, hides=True),
            ClueTable.END: Ends(),
            ClueTable.PART: TextParts(),
        }
        self._without_clue: Keys[Condition] = {}

    def _file(self, what: Condition, is_new: bool) -> None:
        found = clues_of(what)
        clues = () if found is None else found.clues
        if not clues or any(clue.table not in self._tables for clue in clues):
            if is_new:
                self._without_clue[what] = None
            else:
                del self._without_clue[what]
            return
        for clue in clues:
            table = self._tables[clue.table]
            (table.add if is_new else table.remove)(clue.wanted, what)

    def fitting(self, text: str) -> Iterator[Condition]:
        """Yield the residues that may be true of a string."""
        found: list[Keys[Condition]] = [self._without_clue]
        for table in self._tables.values():
            if table:
                table.find(text, found)
        yield from dict.fromkeys(residue for keys in found for residue in keys)

"""Clues that a matching event must have and no range of values shows: texts, and levels of topics.

A *clue* is a condition on the string of one attribute: that it is equal to a text, ends with it, contains it,
or is a topic with certain levels. All clues of a kind are looked up at once, however many there are. A filter
has clues if it can't match unless one of them holds; then it is evaluated only for events for which one does
(Fabret and others call this an access predicate). Of conditions joined by AND the most selective one gives
the clues; of those joined by OR each must have clues.

Every filter is classified by what the index knows of it (`way_of`): its constraints decide alone; a clue says
when to evaluate it; it demands a value; or it is evaluated for every event, and counted as *unindexed*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from enum import Enum
from itertools import chain
from typing import Final, NamedTuple, TypeVar

from tidings.errors import Refused
from tidings.event import HEADER_READERS
from tidings.filters import Filter
from tidings.filters.constraint import Constraint
from tidings.filters.patterns import implied_by_like, needed_by_like, needed_by_matches
from tidings.filters.topics import DOTS, SLASHES, levels_of_under, read_topic
from tidings.filters.tree import And, Compare, Condition, FunctionCall, In, Literal, Name, Or, parts_of

SCANNED_HEADER: Final = frozenset({
    "type", "time", "source", "channel", "subject", "priority", "ttl_s", "keep_s", "delivery", "route",
    "reliability", "reply_to", "correlation_id", "object_class", "content_type",
})  # fmt: skip
"""Header fields that the scan of raw events reads; conditions on others are left to the filter."""

UNSCANNED: Final = frozenset(HEADER_READERS) - SCANNED_HEADER

TEXT_FIELDS: Final = frozenset({
    "type", "channel", "subject", "reply_to", "correlation_id", "object_class", "content_type",
})  # fmt: skip
"""Header fields that are text in an event, if they are present."""


UNINDEXED_MAX: Final = 500
"""Conditions in the unindexed filters of one user, or of all clients if there are no users."""
CLUES_MAX: Final = 1_000
"""Clues of one filter; one that would need more is evaluated for every event."""
EQUAL_STRENGTH: Final = 3
TOPIC_STRENGTH: Final = 4
TEXT_STRENGTH_MAX: Final = 64
"""Selectivity of a clue: a text counts its characters, a value as much as three, a topic as four."""


Key = TypeVar("Key", bound=Hashable)
Keys = dict[Key, None]
"""Keys with one clue, in the order added."""


class ClueTable(Enum):
    """Table in which a clue is looked up."""

    EQUAL = "equal"
    END = "end"
    PART = "part"
    DOTS = DOTS.separator
    SLASHES = SLASHES.separator


class Path(NamedTuple):
    """Topic pattern: its levels, None for any, the fewest levels it matches, and whether more may follow.

    It matches topics that have between `fewest` and all of its levels, these being alike, and longer ones if
    it is open.
    """

    levels: tuple[str | None, ...]
    fewest: int
    is_open: bool


class Clue(NamedTuple):
    """Condition on the string of an attribute."""

    name: str
    table: ClueTable
    wanted: str | Path


class Clues(NamedTuple):
    """Clues of which one must hold, the selectivity of the weakest, and whether one decides alone."""

    clues: tuple[Clue, ...]
    strength: int
    is_exact: bool = False


class Way(Enum):
    """Way in which the index finds the events for which a filter is evaluated."""

    EXACT = "exact"
    BY_CLUE = "by clue"
    BY_VALUE = "by value"
    UNINDEXED = "unindexed"


def way_of(wanted: Filter) -> tuple[Way, Clues | None]:
    """Return the way of a filter, and its clues if that needs them; most filters cost no more than a look."""
    if all(not one.residues and UNSCANNED.isdisjoint(one.constraints) for one in wanted.normal):
        return Way.EXACT, None
    clues = clues_of(wanted.condition)
    if clues is not None and not (clues.strength or clues.is_exact):
        clues = None
    is_plain = clues is None or all(clue.table is ClueTable.EQUAL for clue in clues.clues)
    if is_plain and demands_value(wanted):
        return Way.BY_VALUE, None  # its constraints contain that, and its other demands
    return (Way.UNINDEXED, None) if clues is None else (Way.BY_CLUE, clues)


def demands_value(wanted: Filter) -> bool:
    """Whether the constraints of a filter demand certain values, whichever alternative holds."""
    return all(
        any(name not in UNSCANNED and _is_listed(wish) for name, wish in one.constraints.items())
        for one in wanted.normal
        if one.residues or not UNSCANNED.isdisjoint(one.constraints)
    )


def _is_listed(constraint: Constraint) -> bool:
    """Whether only certain numbers, texts, times or bytes are admitted, one by one."""
    if constraint.booleans or constraint.nan or constraint.missing:
        return False
    return all(line.points() is not None for line in constraint.lines)


def clues_of(node: Condition) -> Clues | None:
    """Return the clues of a condition, or None if it has none."""
    match node:
        case Compare("=", Name(name), Literal(str() as text)):
            return _equal(name, text)
        case In(name, values) if all(isinstance(value, str) for value in values):
            return _equal(name, *map(str, values))
        case FunctionCall(function, (name,), constants) if function in _READERS:
            return _READERS[function](name, *constants)
        case And(operands):
            found = [made for part in operands if (made := clues_of(part)) is not None]
            best = max(found, key=lambda clues: clues.strength, default=None)
            return None if best is None else best._replace(is_exact=False)
        case Or(operands):
            return _any_of([clues_of(part) for part in operands])
    return None


def _any_of(parts: list[Clues | None]) -> Clues | None:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    clues = tuple(dict.fromkeys(chain.from_iterable(part.clues for part in known)))
    strength = min(part.strength for part in known)
    return _limited(Clues(clues, strength, all(part.is_exact for part in known)))


def _limited(clues: Clues) -> Clues | None:
    return clues if len(clues.clues) <= CLUES_MAX else None


# Reading conditions


def _equal(name: str, *texts: str) -> Clues | None:
    clues = tuple(Clue(name, ClueTable.EQUAL, text) for text in texts)
    return _limited(Clues(clues, EQUAL_STRENGTH, is_exact=True))


def _text(name: str, text: str, at_end: bool, is_exact: bool) -> Clues | None:
    if not text:
        return None
    clue = Clue(name, ClueTable.END if at_end else ClueTable.PART, text)
    return Clues((clue,), min(len(text), TEXT_STRENGTH_MAX), is_exact)


def _like(name: str, pattern: str, escape: str | None = None) -> Clues | None:
    """Return None for a prefix: its range is tested already, and rules give a user's filters the same one."""
    if implied_by_like(pattern, escape)[1]:
        return None
    text, at_end, is_all = needed_by_like(pattern, escape)
    return _text(name, text, at_end, is_all)


def _path(name: str, table: ClueTable, path: Path, is_exact: bool) -> Clues:
    strength = TOPIC_STRENGTH if any(level is not None for level in path.levels) else 0
    return Clues((Clue(name, table, path),), strength, is_exact)


def _topic(name: str, pattern: str) -> Clues:
    spelling, levels, is_open = read_topic(pattern)
    table = ClueTable.SLASHES if spelling is SLASHES else ClueTable.DOTS
    more = is_open and spelling is DOTS  # its > stands for one level at least
    return _path(name, table, Path(levels, len(levels) + more, is_open), is_exact=True)


def _under(name: str, pattern: str, escape: str | None = None) -> Clues | None:
    """Return None if the first name is a pattern: every topic of one level may then be a parent."""
    levels = levels_of_under(pattern, escape)
    if levels[0] is None:
        return None
    return _path(name, ClueTable.DOTS, Path(levels, 1, is_open=True), is_exact=None not in levels)


def _is_a(name: str, *terms: str) -> Clues | None:
    paths = [Path(tuple(term.split(DOTS.separator)), term.count(DOTS.separator) + 1, True) for term in terms]
    clues = tuple(Clue(name, ClueTable.DOTS, path) for path in dict.fromkeys(paths))
    return _limited(Clues(clues, TOPIC_STRENGTH, is_exact=True))


_READERS: dict[str, Callable[..., Clues | None]] = {
    "TOPIC": _topic,
    "UNDER": _under,
    "IS_A": _is_a,
    "LIKE": _like,
    "ENDS_WITH": lambda name, text: _text(name, text, at_end=True, is_exact=True),
    "CONTAINS": lambda name, text: _text(name, text, at_end=False, is_exact=True),
    "MATCHES": lambda name, pattern: _text(name, needed_by_matches(pattern).text, False, False),
}


# Counting


class Unindexed:
    """Unindexed filters, counted and limited by user.

    Nothing shows beforehand whether `a < b` may match, so each event costs the evaluation of each such
    filter: about a microsecond for each of its conditions. The limit is of conditions, not of filters,
    because one filter may have a thousand.
    """

    def __init__(self, most: int = UNINDEXED_MAX) -> None:
        self._most = most
        self._held: dict[Hashable, tuple[str, int, int]] = {}  # user, conditions, those tried
        self._conditions: Counter[str] = Counter()  # by user
        self.conditions = 0  # of all users, those that are tried while an event is published

    def __len__(self) -> int:
        return len(self._held)

    def check(self, user: str, wanted: Filter) -> bool:
        """Refuse a filter beyond the limit of a user; return whether it must be tried on every event."""
        if way_of(wanted)[0] is not Way.UNINDEXED:
            return False
        if self._conditions[user] + _conditions(wanted.condition) > self._most:
            raise Refused(
                "limit",
                f"{user or 'this node'!r} has too many filters that must be tried on every event: their"
                f" conditions are limited to UNINDEXED_MAX = {self._most}; add a condition with a constant,"
                " such as an equality, a topic or a text to be contained",
            )
        return True

    def add(self, holder: Hashable, user: str, wanted: Filter, is_later: bool = False) -> None:
        """Count a filter, within the limit or not; `is_later`: not tried by publishers."""
        conditions = _conditions(wanted.condition)
        tried = 0 if is_later else conditions
        self._held[holder] = user, conditions, tried
        self._conditions[user] += conditions
        self.conditions += tried

    def remove(self, holder: Hashable) -> None:
        """Count a filter no longer; does nothing for one that was not counted."""
        held = self._held.pop(holder, None)
        if held is not None:
            user, conditions, tried = held
            self._conditions[user] -= conditions
            self.conditions -= tried
            if not self._conditions[user]:
                del self._conditions[user]


def _conditions(condition: Condition) -> int:
    """Number of simple conditions that a condition consists of."""
    return sum(map(_conditions, parts_of(condition))) or 1
